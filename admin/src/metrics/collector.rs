//! Figures: what the engine and the nodes of the fleet counted, once a second, with the rates since the second before.
//! Seconds are kept in memory for a quarter of an hour, minutes and hours in the store.

mod history;
mod persistence;

use std::{
    collections::{HashMap, VecDeque},
    convert::Infallible,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tidegate::{Engine, Hitter};
use tidegate_fleet::{Counters, IntervalCounts, Sampler, owner_of, wire::Report};
pub(crate) use tidegate_fleet::{HITTER_HALF_LIFE, OwnerKind, SAMPLED_ONE_IN, SKETCH_ENTRIES};
use tidegate_replay::client_limit_name;
use tokio::{
    sync::Notify,
    time::{self, Instant},
};

pub(crate) use self::{
    history::{Asked, Range},
    persistence::{Counts, Kept},
};
use crate::{
    base::event_log::{Events, Topic},
    capacity::work_queue::Queries,
    domain::{
        error::Problem,
        metric_types::{DecisionTotals, LimitTotals, Minute},
        privacy::Privacy,
    },
    metrics::{
        clock::FiguresClock,
        endpoints::{Endpoint, Endpoints, Met, Seen},
        remotes::Remotes,
        ring::{Ring, SECONDS},
        sample::{AllTotals, LimitFigures, OwnerFigures, OwnersEvent, PartFigures, Rates, Sample, Second, rates_over},
        sums::Sums,
        top::{Denied, Heaviest, Hit, Identity, Of, Top, TopBy, of_seconds},
    },
};

/// Milliseconds between two samples.
const TICK_MS: i64 = 1_000;

/// The figures of the engine of this process, and of the nodes that tell it theirs.
#[derive(Debug)]
pub(crate) struct Figures {
    engine: Arc<Engine>,
    node: String,
    clock: FiguresClock,
    privacy: Privacy,
    watcher: Arc<Sampler<Seen>>,
    events: Arc<Events>,
    now: Mutex<Now>,
    /// There is a minute to be written.
    is_over: Notify,
    kept: Kept,
}

#[derive(Debug)]
struct Now {
    newest: Arc<Sample>,
    /// Something was decided, also before this process: then it stays so.
    anything_yet: bool,
    before: Before,
    counters: Counters,
    /// Rates of seconds, as the dashboard draws them.
    history: VecDeque<Second>,
    ring: Ring,
    top: Top,
    endpoints: Endpoints,
    remotes: Remotes,
    own: Own,
    /// To be written, oldest first, each with its node.
    minutes: VecDeque<(String, Minute)>,
}

/// What the engine of this process counted in the last second.
#[derive(Clone, Debug, Default)]
pub(crate) struct Own {
    /// How long it was.
    pub(crate) interval_ms: u64,
    pub(crate) whole: DecisionTotals,
}

/// What was counted until the last sample.
#[derive(Debug)]
struct Before {
    at: Instant,
    whole: DecisionTotals,
    shadow_denied: u64,
}

impl Figures {
    /// `has_figures`: the store has some of before.
    pub(crate) fn new(
        engine: Arc<Engine>,
        node: String,
        clock: FiguresClock,
        privacy: Privacy,
        events: Arc<Events>,
        has_figures: bool,
    ) -> Self {
        let watcher = Arc::new(Sampler::new(engine.clock().clone()));
        engine.observe(SAMPLED_ONE_IN, Arc::clone(&watcher));
        let before = Before { at: Instant::now(), whole: DecisionTotals::default(), shadow_denied: 0 };
        let now = Now {
            newest: Arc::default(),
            anything_yet: has_figures,
            before,
            counters: Counters::default(),
            history: VecDeque::new(),
            ring: Ring::default(),
            top: Top::default(),
            endpoints: Endpoints::default(),
            remotes: Remotes::default(),
            own: Own::default(),
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

    /// What decides in this process.
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Name of this node.
    pub(crate) fn node(&self) -> &str {
        &self.node
    }

    /// What this node counted in the last second.
    pub(crate) fn own(&self) -> Own {
        self.now().own.clone()
    }

    /// Takes in what another node counted.
    pub(crate) fn take_in(&self, report: &Report) {
        let Now { remotes, counters, .. } = &mut *self.now();
        remotes.take_in(report, &self.engine, counters);
    }

    /// How minutes got into the store.
    pub(crate) fn kept(&self) -> &Kept {
        &self.kept
    }

    /// Endpoints that were asked for, the most requests first.
    pub(crate) fn endpoints(&self) -> Vec<(Endpoint, Met)> {
        self.now().endpoints.list()
    }

    /// The heaviest keys, or limits, tiers or rules, the first first; at most so many. Those of limits, tiers and rules are found
    /// in the turn of `queries`.
    pub(crate) async fn heaviest(
        self: &Arc<Self>,
        by: TopBy,
        of: Of,
        count: usize,
        queries: &Queries,
    ) -> Result<Vec<Heaviest>, Problem> {
        if by == TopBy::Key {
            return Ok(self.now().top.heaviest(of, count, |hit| self.heavy_key(hit)));
        }
        let figures = Arc::clone(self);
        // There may be a thousand limits in each of 900 seconds.
        let find = move || {
            let seconds = figures.now().ring.within(0..i64::MAX);
            of_seconds(&seconds, by, of, count, |limit| figures.engine.limit_name(limit))
        };
        queries.work(find).await
    }

    /// How those of a domain are denied who are among the keys that are denied most: by kind and value, as they came. It is for
    /// whoever is named by somebody, as a client is in the policy.
    pub(crate) fn denied_in(&self, domain: &str) -> HashMap<(String, String), Denied> {
        self.now().top.denied_in(domain)
    }

    /// A limit's name; that of a limit of a single client has the client in it.
    pub(crate) fn shown(&self, limit: &str) -> String {
        let Some(of) = client_limit_name(limit) else { return limit.to_owned() };
        let (kind, value) = of.client.split_once(':').unwrap_or_default();
        format!("{}/client:{kind}:{}/{}", of.domain, self.privacy.show(kind, value), of.limit)
    }

    /// The limit of a key, and who is counted together, as they may be shown.
    fn heavy_key(&self, hit: &Hit) -> (String, Vec<Identity>) {
        let shown =
            |(kind, value): &(String, String)| Identity { value: self.privacy.show(kind, value), kind: kind.clone() };
        (self.shown(&hit.limit), hit.identities.iter().map(shown).collect())
    }

    /// What the watcher knows of a key.
    fn hit(&self, hitter: Hitter) -> Hit {
        let who = |(kind, value): (String, Vec<u8>)| (kind, String::from_utf8_lossy(&value).into_owned());
        Hit {
            limit: self.engine.limit_name(hitter.limit).to_owned(),
            identities: hitter.identities.into_iter().map(who).collect(),
            count: hitter.count,
            error: hitter.error,
        }
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
        let mut counted = now.counters.count(&self.engine, &self.watcher.take());
        now.before.shadow_denied = counted.shadow_denied();
        now.before.whole = mem::take(&mut counted.whole);
        now.anything_yet |= now.before.whole.decisions() > 0;
        for figure in counted.present.iter_mut().chain(&mut counted.owners) {
            figure.new = LimitTotals::default();
        }
        let sample = self.sample(&now, 0, &counted);
        self.tell(&mut now, sample, &counted);
    }

    fn tick(&self) {
        let taken = self.watcher.take();
        let mut now = self.now();
        let at = Instant::now();
        let interval_ms = (at - now.before.at).as_millis() as u64;
        let mut counted = now.counters.count(&self.engine, &taken);
        let sums = Sums::of(&counted);
        now.endpoints.add(&taken.extension, sums.whole.decisions(), sums.whole.latency.samples());
        now.own = Own { interval_ms, whole: sums.whole.clone() };

        let t = self.clock.now_ms();
        // It is taken just after the second that it is about.
        let second = (t - TICK_MS / 2).div_euclid(TICK_MS);
        let name = |limit| self.engine.limit_name(limit);
        let Now { ring, remotes, .. } = &mut *now;
        let over = ring.add(second, sums, name);
        let mut told = remotes.count(second, ring, name);
        let minutes = mem::take(&mut told.minutes);
        remotes.add_to(&mut counted, told);
        now.before.at = at;
        now.before.whole.add(&counted.whole);
        now.anything_yet |= counted.whole.decisions() > 0;
        now.before.shadow_denied += counted.shadow_denied();
        if now.top.is_due() {
            let (mut denied, mut hot) = now.remotes.heaviest();
            denied.extend(self.watcher.hitters.denied().into_iter().map(|hitter| self.hit(hitter)));
            hot.extend(self.watcher.hitters.hot().into_iter().map(|hitter| self.hit(hitter)));
            now.top.follow(denied, hot, t);
            self.events.post(Topic::Top, "top", &now.top.event(t, |hit| self.heavy_key(hit)));
        }
        let sample = self.sample(&now, interval_ms, &counted);
        let rates = sample.rates;
        if now.history.len() == SECONDS as usize {
            now.history.pop_front();
        }
        now.history.push_back(Second { t, allowed: rates.allowed, denied: rates.denied });
        self.tell(&mut now, sample, &counted);
        let own = over.map(|minute| (self.node.clone(), minute));
        self.keep_minutes(&mut now, own.into_iter().chain(minutes));
    }

    fn sample(&self, now: &Now, interval_ms: u64, counted: &IntervalCounts) -> Sample {
        let rate = rates_over(interval_ms);
        let Before { whole: all, shadow_denied, .. } = &now.before;
        let whole = &counted.whole;
        let limits = counted.present.iter().map(|&figure| LimitFigures {
            limit_id: self.engine.limit_name(figure.limit).to_owned(),
            figures: PartFigures::new(figure, &rate),
        });
        Sample {
            t: self.clock.now_ms(),
            policy_version: self.engine.version(),
            interval_ms,
            totals: AllTotals {
                allowed: all.allowed,
                denied: all.denied,
                no_limit: all.no_limit,
                unknown_domain: all.unknown_domain,
                shadow_denied: *shadow_denied,
                degraded: all.degraded,
            },
            anything_yet: now.anything_yet,
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
            overflow_charges: self.engine.overflow_charges() + now.remotes.overflow_charges(),
            limits: limits.collect(),
        }
    }

    /// Shows a sample to those who ask, and to the streams.
    fn tell(&self, now: &mut Now, sample: Sample, counted: &IntervalCounts) {
        self.events.post(Topic::Metrics, "metrics", &sample);
        for (owner, topic, event) in [
            (OwnerKind::Tier, Topic::MetricsTier, "metrics.tier"),
            (OwnerKind::Rule, Topic::MetricsRule, "metrics.rule"),
        ] {
            let rate = rates_over(sample.interval_ms);
            let items = counted.owners.iter().filter_map(|&figure| {
                let id = owner_of(self.engine.limit_name(figure.limit)).filter(|id| owner.is(id))?;
                Some(OwnerFigures { id, figures: PartFigures::new(figure, &rate) })
            });
            let items = items.collect();
            self.events.post(topic, event, &OwnersEvent { t: sample.t, interval_ms: sample.interval_ms, items });
        }
        now.newest = Arc::new(sample);
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        // Nothing in here panics.
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
