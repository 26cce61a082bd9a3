//! Totals of a stretch of time: of all decisions together, and of one limit, tier or rule.

use crate::counts::latency::Latency;

/// What the part of a limit, a tier or a rule was.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Part {
    /// Requests that were allowed and charged to it. Of a tier or a rule also those that its shadows would have refused.
    pub allowed: u64,
    /// Requests that it was the first to refuse.
    pub denied: u64,
    /// Requests that it would have refused, were it no shadow.
    pub shadow_denied: u64,
}

/// All decisions together.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Whole {
    /// Allowed.
    pub allowed: u64,
    /// Denied.
    pub denied: u64,
    /// Of those allowed, the ones that met no limit.
    pub no_limit: u64,
    /// Of those, the ones that named a domain which the policy does not have.
    pub unknown_domain: u64,
    /// Decided without the store that the limit is shared over: estimated from the sample.
    pub degraded: u64,
    /// How long decisions of the sample took.
    pub latency: Latency,
}

impl Part {
    /// Adds what another one was.
    pub fn add(&mut self, other: Self) {
        add(&mut self.allowed, other.allowed);
        add(&mut self.denied, other.denied);
        add(&mut self.shadow_denied, other.shadow_denied);
    }

    /// What came to it since it was `then`.
    #[must_use]
    pub fn since(self, then: Self) -> Self {
        Self {
            allowed: self.allowed.saturating_sub(then.allowed),
            denied: self.denied.saturating_sub(then.denied),
            shadow_denied: self.shadow_denied.saturating_sub(then.shadow_denied),
        }
    }

    /// Did it decide nothing?
    #[must_use]
    pub fn is_nothing(self) -> bool {
        self == Self::default()
    }

    /// Requests that a limit saw.
    #[must_use]
    pub fn requests(self) -> u64 {
        self.allowed.saturating_add(self.denied).saturating_add(self.shadow_denied)
    }
}

impl Whole {
    /// How many there are.
    #[must_use]
    pub fn decisions(&self) -> u64 {
        self.allowed.saturating_add(self.denied)
    }

    /// Adds others.
    pub fn add(&mut self, other: &Self) {
        add(&mut self.allowed, other.allowed);
        add(&mut self.denied, other.denied);
        add(&mut self.no_limit, other.no_limit);
        add(&mut self.unknown_domain, other.unknown_domain);
        add(&mut self.degraded, other.degraded);
        self.latency.add(&other.latency);
    }
}

/// What somebody else told may be any number.
fn add(sum: &mut u64, more: u64) {
    *sum = sum.saturating_add(more);
}
