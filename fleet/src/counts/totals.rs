//! Totals of an interval: of all decisions, and of one limit, tier or rule.

use crate::counts::latency::LatencyHistogram;

/// The totals of one limit, tier or rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LimitTotals {
    /// Requests that were allowed and charged to it; for a tier or a rule, also those that its shadow limits would
    /// have denied.
    pub allowed: u64,
    /// Requests that it was the first to deny.
    pub denied: u64,
    /// Requests that it would have denied, were it not in shadow mode.
    pub shadow_denied: u64,
}

/// The totals of all decisions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DecisionTotals {
    /// Decisions that allowed.
    pub allowed: u64,
    /// Decisions that denied.
    pub denied: u64,
    /// Decisions that allowed because no limit applied.
    pub no_limit: u64,
    /// Decisions of `no_limit` whose domain the policy does not have.
    pub unknown_domain: u64,
    /// Decisions that were made without the store of a shared limit, estimated from the sample.
    pub degraded: u64,
    /// The latencies of the sampled decisions.
    pub latency: LatencyHistogram,
}

impl LimitTotals {
    /// Adds other totals.
    pub fn add(&mut self, other: Self) {
        add(&mut self.allowed, other.allowed);
        add(&mut self.denied, other.denied);
        add(&mut self.shadow_denied, other.shadow_denied);
    }

    /// Returns the difference from earlier totals.
    #[must_use]
    pub fn since(self, then: Self) -> Self {
        Self {
            allowed: self.allowed.saturating_sub(then.allowed),
            denied: self.denied.saturating_sub(then.denied),
            shadow_denied: self.shadow_denied.saturating_sub(then.shadow_denied),
        }
    }

    /// Returns whether nothing was counted.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self == Self::default()
    }

    /// Returns the number of requests that the limit saw.
    #[must_use]
    pub fn requests(self) -> u64 {
        self.allowed.saturating_add(self.denied).saturating_add(self.shadow_denied)
    }
}

impl DecisionTotals {
    /// Returns the number of decisions.
    #[must_use]
    pub fn decisions(&self) -> u64 {
        self.allowed.saturating_add(self.denied)
    }

    /// Adds other totals.
    pub fn add(&mut self, other: &Self) {
        add(&mut self.allowed, other.allowed);
        add(&mut self.denied, other.denied);
        add(&mut self.no_limit, other.no_limit);
        add(&mut self.unknown_domain, other.unknown_domain);
        add(&mut self.degraded, other.degraded);
        self.latency.add(&other.latency);
    }
}

/// Adds to a sum, which saturates: another machine may report any number.
fn add(sum: &mut u64, more: u64) {
    *sum = sum.saturating_add(more);
}
