//! What is told once a second: a sample, and rows of tiers and rules.

use schemars::JsonSchema;
use serde::Serialize;
use tidegate_fleet::CountedLimit;

/// What was counted since the process started, by its engine and by the nodes that tell it, and how fast.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct Sample {
    /// Unix milliseconds.
    pub(crate) t: i64,
    pub(crate) policy_version: u64,
    /// Since the sample before, whatever the wall clock did; 0 in the first.
    pub(super) interval_ms: u64,
    pub(super) totals: AllTotals,
    /// Was anything ever decided: since the process started, or in an hour that the database has, by any server of it?
    pub(super) anything_yet: bool,
    pub(super) rates: Rates,
    /// Decisions since the sample before, of which the rates are.
    pub(super) decisions: u64,
    /// How long half of the decisions since the sample before took at most, and 99 in 100, of those that were measured: whole
    /// microseconds, rounded up. `null`: none was.
    pub(super) p50_us: Option<u64>,
    pub(super) p99_us: Option<u64>,
    /// Decisions that were measured: one in 16.
    pub(super) measured: u64,
    /// Keys that were denied within the last minute, as far as the sketch of the most denied knows: at most 256.
    pub(super) keys_limited: usize,
    /// New keys that found no slot in the engine's table.
    pub(crate) overflow_charges: u64,
    /// The limits of tiers and rules, in the policy's order.
    pub(super) limits: Vec<LimitFigures>,
}

#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
pub(super) struct AllTotals {
    pub(super) allowed: u64,
    pub(super) denied: u64,
    pub(super) no_limit: u64,
    pub(super) unknown_domain: u64,
    /// What shadow limits would have denied.
    pub(super) shadow_denied: u64,
    /// Decided without the store that a limit is shared over; estimated from one decision in 16.
    pub(super) degraded: u64,
}

/// Per second.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
pub(super) struct Rates {
    pub(super) allowed: f64,
    pub(super) denied: f64,
    pub(super) shadow_denied: f64,
    /// Estimated from one decision in 16.
    pub(super) degraded: f64,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "LimitCounts")]
pub(super) struct LimitFigures {
    pub(super) limit_id: String,
    #[serde(flatten)]
    pub(super) figures: PartFigures,
}

/// The tiers or the rules, once a second.
#[derive(Serialize)]
pub(super) struct OwnersEvent<'a> {
    pub(super) t: i64,
    pub(super) interval_ms: u64,
    pub(super) items: Vec<OwnerFigures<'a>>,
}

#[derive(Serialize)]
pub(super) struct OwnerFigures<'a> {
    pub(super) id: &'a str,
    #[serde(flatten)]
    pub(super) figures: PartFigures,
}

/// Since the process started, and per second.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(super) struct PartFigures {
    allowed: u64,
    denied: u64,
    pub(super) shadow_denied: u64,
    allowed_rate: f64,
    denied_rate: f64,
    shadow_denied_rate: f64,
}

/// One second of the history.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(crate) struct Second {
    /// Unix milliseconds.
    pub(super) t: i64,
    /// Per second.
    pub(super) allowed: f64,
    pub(super) denied: f64,
}

impl Sample {
    /// Requests that named a domain which the policy does not have.
    pub(crate) fn unknown_domain(&self) -> u64 {
        self.totals.unknown_domain
    }

    /// Decisions without the store that a limit is shared over.
    pub(crate) fn degraded(&self) -> u64 {
        self.totals.degraded
    }
}

impl PartFigures {
    pub(super) fn new(CountedLimit { all, new, .. }: CountedLimit, rate: &impl Fn(u64) -> f64) -> Self {
        Self {
            allowed: all.allowed,
            denied: all.denied,
            shadow_denied: all.shadow_denied,
            allowed_rate: rate(new.allowed),
            denied_rate: rate(new.denied),
            shadow_denied_rate: rate(new.shadow_denied),
        }
    }
}

/// Per second, of what was counted in so many milliseconds: a tick that was late counts for as long as it took.
pub(super) fn rates_over(interval_ms: u64) -> impl Fn(u64) -> f64 {
    move |count| if interval_ms == 0 { 0.0 } else { count as f64 * 1_000.0 / interval_ms as f64 }
}
