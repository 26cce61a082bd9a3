//! Figures: what the engine counted, once a second, with the rates since the second before. Seconds are kept in memory for
//! a quarter of an hour, minutes and hours in the store.

mod clock;
mod counters;
mod endpoints;
mod keeper;
mod latency;
mod owners;
mod range;
mod ring;
mod sample;
mod series;
mod span;
mod top;
mod watcher;

use std::{
    collections::VecDeque,
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tidegate::{Engine, Hitter, Totals};
use tidegate_replay::of_client;
use tokio::{
    sync::Notify,
    task::spawn_blocking,
    time::{self, Instant},
};

pub use self::clock::FiguresClock;
use self::{
    counters::{Counted, Counters},
    endpoints::Endpoints,
    owners::owner_of,
    ring::Ring,
    sample::{AllTotals, LimitFigures, NodeRow, OwnerFigures, OwnersEvent, PartFigures, Rates, rates_over},
    top::{Identity, Top},
    watcher::Watcher,
};
pub(crate) use self::{
    endpoints::{Endpoint, Met, Shown},
    keeper::{Counts, Kept, Numbers},
    owners::Owner,
    range::{Asked, Range},
    ring::{HOUR, MINUTE, Minute},
    sample::{Sample, Second},
    span::{Part, Span, Whole},
    top::{Heaviest, Of, TopBy},
    watcher::{ENTRIES, HALF_LIFE, ONE_IN},
};
use crate::{
    events::{Events, Topic},
    privacy::Privacy,
    problem::Problem,
};

/// Milliseconds between two samples.
const TICK_MS: i64 = 1_000;

/// The figures of the engine of this process.
#[derive(Debug)]
pub(crate) struct Figures {
    engine: Arc<Engine>,
    node: String,
    clock: FiguresClock,
    privacy: Privacy,
    watcher: Arc<Watcher>,
    events: Arc<Events>,
    now: Mutex<Now>,
    /// There is a minute to be written.
    is_over: Notify,
    kept: Kept,
}

#[derive(Debug)]
struct Now {
    newest: Arc<Sample>,
    before: Before,
    counters: Counters,
    /// Rates of seconds, as the dashboard draws them.
    history: VecDeque<Second>,
    ring: Ring,
    top: Top,
    endpoints: Endpoints,
    row: Option<NodeRow>,
    /// To be written, oldest first.
    minutes: VecDeque<Minute>,
}

/// What the next sample's rates are worked out from.
#[derive(Debug)]
struct Before {
    at: Instant,
    totals: Totals,
    shadow_denied: u64,
    degraded: u64,
}

impl Figures {
    pub(crate) fn new(
        engine: Arc<Engine>,
        node: String,
        clock: FiguresClock,
        privacy: Privacy,
        events: Arc<Events>,
    ) -> Self {
        let watcher = Arc::new(Watcher::new(engine.clock().clone()));
        engine.observe(ONE_IN, Arc::clone(&watcher));
        let before = Before { at: Instant::now(), totals: engine.totals(), shadow_denied: 0, degraded: 0 };
        let now = Now {
            newest: Arc::default(),
            before,
            counters: Counters::default(),
            history: VecDeque::new(),
            ring: Ring::default(),
            top: Top::default(),
            endpoints: Endpoints::default(),
            row: None,
            minutes: VecDeque::new(),
        };
        let is_over = Notify::new();
        let figures = Self {
            engine,
            node,
            clock,
            privacy,
            watcher,
            events,
            now: Mutex::new(now),
            is_over,
            kept: Kept::default(),
        };
        figures.begin();
        figures
    }

    pub(crate) fn newest(&self) -> Arc<Sample> {
        Arc::clone(&self.now().newest)
    }

    /// Oldest first.
    pub(crate) fn history(&self) -> Vec<Second> {
        self.now().history.iter().copied().collect()
    }

    /// The time under which figures are kept.
    pub(crate) fn time(&self) -> jiff::Timestamp {
        jiff::Timestamp::from_millisecond(self.clock.now_ms()).unwrap_or_default()
    }

    /// Name of this node.
    pub(crate) fn node(&self) -> &str {
        &self.node
    }

    /// How minutes got into the store.
    pub(crate) fn kept(&self) -> &Kept {
        &self.kept
    }

    /// Endpoints that were asked for, the most requests first.
    pub(crate) fn endpoints(&self) -> Vec<(Endpoint, Met)> {
        self.now().endpoints.list()
    }

    /// The heaviest keys, or limits, tiers or rules, the first first; at most so many.
    pub(crate) async fn heaviest(self: &Arc<Self>, by: TopBy, of: Of, count: usize) -> Result<Vec<Heaviest>, Problem> {
        if by == TopBy::Key {
            return Ok(self.now().top.heaviest(of, count, |hitter| self.heavy_key(hitter)));
        }
        let (figures, seconds) = (Arc::clone(self), self.now().ring.within(0..i64::MAX));
        // There may be a thousand limits in each of 900 seconds.
        let find = move || top::of_seconds(&seconds, by, of, count, |limit| figures.engine.limit_name(limit));
        spawn_blocking(find).await.map_err(|error| Problem::Internal(error.to_string()))
    }

    /// A limit's name; that of a limit of a single client has the client in it.
    fn shown(&self, limit: &str) -> String {
        let Some(of) = of_client(limit) else { return limit.to_owned() };
        let (kind, value) = of.client.split_once(':').unwrap_or_default();
        format!("{}/client:{kind}:{}/{}", of.domain, self.privacy.show(kind, value), of.limit)
    }

    /// The limit of a key, and who is counted together, as they may be shown.
    fn heavy_key(&self, hitter: &Hitter) -> (String, Vec<Identity>) {
        let identities = hitter.identities.iter().map(|(kind, value)| Identity {
            value: self.privacy.show(kind, &String::from_utf8_lossy(value)),
            kind: kind.clone(),
        });
        (self.shown(self.engine.limit_name(hitter.limit)), identities.collect())
    }

    /// Samples the engine once a second, on the second, for ever.
    pub(crate) async fn run(&self) -> Infallible {
        loop {
            let into_second = jiff::Timestamp::now().as_millisecond().rem_euclid(TICK_MS);
            time::sleep(Duration::from_millis((TICK_MS - into_second).unsigned_abs())).await;
            self.tick();
        }
    }

    /// The first sample: what there was before is nobody's second.
    fn begin(&self) {
        let mut now = self.now();
        let mut counted = now.counters.count(&self.engine);
        now.before.shadow_denied = counted.shadow_denied();
        for figure in counted.present.iter_mut().chain(&mut counted.owners) {
            figure.new = Part::default();
        }
        let sample = self.sample(&now, 0, &Whole::default(), &counted);
        self.tell(&mut now, sample, &counted);
    }

    fn tick(&self) {
        let taken = self.watcher.take();
        let mut now = self.now();
        let at = Instant::now();
        let interval_ms = (at - now.before.at).as_millis() as u64;
        let totals = self.engine.totals();
        let counted = now.counters.count(&self.engine);
        let before = now.before.totals;
        let whole = Whole {
            allowed: totals.allowed.saturating_sub(before.allowed),
            denied: totals.denied.saturating_sub(before.denied),
            no_limit: totals.no_limit.saturating_sub(before.no_limit),
            unknown_domain: totals.unknown_domain.saturating_sub(before.unknown_domain),
            degraded: taken.degraded,
            latency: taken.latency,
        };
        now.before.at = at;
        now.before.totals = totals;
        now.before.shadow_denied += counted.shadow_denied();
        now.before.degraded += whole.degraded;

        let t = self.clock.now_ms();
        // It is taken just after the second that it is about.
        let second = (t - TICK_MS / 2).div_euclid(TICK_MS);
        let name = |limit| self.engine.limit_name(limit);
        let over = now.ring.add(second, whole.clone(), counted.busy_limits(), counted.busy_owners(), name);
        now.endpoints.add(&taken.seen, whole.decisions(), whole.latency.samples());
        if now.top.follow(&self.watcher.hitters, t) {
            self.events.post(Topic::Top, "top", &now.top.event(t, |hitter| self.heavy_key(hitter)));
        }
        let sample = self.sample(&now, interval_ms, &whole, &counted);
        let rates = sample.rates;
        if now.history.len() == ring::SECONDS as usize {
            now.history.pop_front();
        }
        now.history.push_back(Second { t, allowed: rates.allowed, denied: rates.denied });
        self.tell(&mut now, sample, &counted);
        if let Some(minute) = over {
            self.keep_minute(&mut now, minute);
        }
    }

    fn sample(&self, now: &Now, interval_ms: u64, whole: &Whole, counted: &Counted) -> Sample {
        let rate = rates_over(interval_ms);
        let Totals { allowed, denied, no_limit, unknown_domain } = now.before.totals;
        let limits = counted.present.iter().map(|&figure| LimitFigures {
            limit_id: self.engine.limit_name(figure.limit).to_owned(),
            figures: PartFigures::new(figure, &rate),
        });
        Sample {
            t: self.clock.now_ms(),
            policy_version: self.engine.version(),
            interval_ms,
            totals: AllTotals {
                allowed,
                denied,
                no_limit,
                unknown_domain,
                shadow_denied: now.before.shadow_denied,
                degraded: now.before.degraded,
            },
            rates: Rates {
                allowed: rate(whole.allowed),
                denied: rate(whole.denied),
                shadow_denied: rate(counted.shadow_denied()),
                degraded: rate(whole.degraded),
            },
            decisions: whole.decisions(),
            p50_us: whole.latency.at_most_us(500),
            p99_us: whole.latency.at_most_us(990),
            measured: whole.latency.samples(),
            keys_limited: now.top.keys_limited(),
            overflow_charges: self.engine.overflow_charges(),
            limits: limits.collect(),
        }
    }

    /// Shows a sample to those who ask, and to the streams.
    fn tell(&self, now: &mut Now, sample: Sample, counted: &Counted) {
        self.events.post(Topic::Metrics, "metrics", &sample);
        for (owner, topic, event) in
            [(Owner::Tier, Topic::MetricsTier, "metrics.tier"), (Owner::Rule, Topic::MetricsRule, "metrics.rule")]
        {
            let rate = rates_over(sample.interval_ms);
            let items = counted.owners.iter().filter_map(|&figure| {
                let id = owner_of(self.engine.limit_name(figure.limit)).filter(|id| owner.is(id))?;
                Some(OwnerFigures { id, figures: PartFigures::new(figure, &rate) })
            });
            let items = items.collect();
            self.events.post(topic, event, &OwnersEvent { t: sample.t, interval_ms: sample.interval_ms, items });
        }
        let Rates { allowed, denied, .. } = sample.rates;
        let all_per_second = allowed + denied;
        let row = NodeRow {
            node: self.node.clone(),
            version: env!("CARGO_PKG_VERSION"),
            policy_version: sample.policy_version,
            decisions_per_second: all_per_second,
            denied_share: if all_per_second > 0.0 { denied / all_per_second } else { 0.0 },
            decisions: sample.decisions,
            p99_us: sample.p99_us,
            measured: sample.measured,
            overflow_charges: sample.overflow_charges,
        };
        if now.row.as_ref() != Some(&row) {
            self.events.post(Topic::Node, "node", &row);
            now.row = Some(row);
        }
        now.newest = Arc::new(sample);
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        // Nothing in here panics.
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
