//! Live figures: what the engine counted, once a second, with the rates since the second before.

use std::{
    collections::{HashMap, VecDeque},
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use schemars::JsonSchema;
use serde::Serialize;
use tidegate::{Counts, Engine, LimitIndex, Totals};
use tokio::{
    sync::watch,
    time::{self, Instant},
};

/// Between two samples.
const TICK: Duration = Duration::from_secs(1);
/// Seconds that the history keeps: a quarter of an hour.
const HISTORY: usize = 900;

/// What the engine has counted since the process started, and how fast.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct Sample {
    /// Counted from 1.
    #[serde(skip)]
    pub(crate) sequence: u64,
    #[serde(skip)]
    taken_at: Option<Instant>,
    /// Unix milliseconds.
    pub(crate) t: i64,
    pub(crate) policy_version: u64,
    /// Since the sample before, whatever the wall clock did; 0 in the first.
    interval_ms: u64,
    totals: AllTotals,
    rates: Rates,
    /// The limits of tiers and rules, in the policy's order.
    limits: Vec<LimitFigures>,
}

#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
struct AllTotals {
    allowed: u64,
    denied: u64,
    no_limit: u64,
    unknown_domain: u64,
}

/// Per second.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
struct Rates {
    allowed: f64,
    denied: f64,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
struct LimitFigures {
    limit_id: String,
    allowed: u64,
    denied: u64,
    allowed_rate: f64,
    denied_rate: f64,
}

/// One second of the history.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(crate) struct Second {
    /// Unix milliseconds.
    t: i64,
    /// Per second.
    allowed: f64,
    denied: f64,
}

/// The newest sample, and the rates of the last quarter of an hour.
#[derive(Debug)]
pub(crate) struct Figures {
    engine: Arc<Engine>,
    newest: watch::Sender<Arc<Sample>>,
    history: Mutex<VecDeque<Second>>,
}

impl Figures {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        let first = sample(&engine, &Sample::default(), &HashMap::new()).0;
        Self { engine, newest: watch::Sender::new(Arc::new(first)), history: Mutex::default() }
    }

    pub(crate) fn newest(&self) -> Arc<Sample> {
        self.newest.borrow().clone()
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Arc<Sample>> {
        self.newest.subscribe()
    }

    /// Oldest first.
    pub(crate) fn history(&self) -> Vec<Second> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }

    /// Samples the engine once a second, for ever.
    pub(crate) async fn run(&self) -> Infallible {
        let mut ticks = time::interval(TICK);
        ticks.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
        ticks.tick().await;
        let mut counted = counts(&self.engine);
        loop {
            ticks.tick().await;
            let (next, now_counted) = sample(&self.engine, &self.newest(), &counted);
            counted = now_counted;
            let second = Second { t: next.t, allowed: next.rates.allowed, denied: next.rates.denied };
            {
                let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
                if history.len() == HISTORY {
                    history.pop_front();
                }
                history.push_back(second);
            }
            self.newest.send_replace(Arc::new(next));
        }
    }
}

fn counts(engine: &Engine) -> HashMap<LimitIndex, Counts> {
    engine.limit_counts().into_iter().collect()
}

/// The figures now, and the counts that the next sample's rates are worked out from.
fn sample(
    engine: &Engine,
    before: &Sample,
    counted: &HashMap<LimitIndex, Counts>,
) -> (Sample, HashMap<LimitIndex, Counts>) {
    let now = Instant::now();
    let interval_ms = before.taken_at.map_or(0, |then| (now - then).as_millis() as u64);
    // A tick that was late counts for as long as it took.
    let rate = |now: u64, then: u64| {
        if interval_ms == 0 { 0.0 } else { now.saturating_sub(then) as f64 * 1_000.0 / interval_ms as f64 }
    };
    let Totals { allowed, denied, no_limit, unknown_domain } = engine.totals();
    let now_counted = engine.limit_counts();
    let limits = now_counted
        .iter()
        .map(|&(limit, now)| (engine.limit_name(limit), now, counted.get(&limit).copied().unwrap_or(now)))
        .map(|(name, now, then)| LimitFigures {
            limit_id: name.to_owned(),
            allowed: now.allowed,
            denied: now.denied,
            allowed_rate: rate(now.allowed, then.allowed),
            denied_rate: rate(now.denied, then.denied),
        })
        .collect();
    let sample = Sample {
        sequence: before.sequence + 1,
        taken_at: Some(now),
        t: jiff::Timestamp::now().as_millisecond(),
        policy_version: engine.version(),
        interval_ms,
        totals: AllTotals { allowed, denied, no_limit, unknown_domain },
        rates: Rates { allowed: rate(allowed, before.totals.allowed), denied: rate(denied, before.totals.denied) },
        limits,
    };
    (sample, now_counted.into_iter().collect())
}
