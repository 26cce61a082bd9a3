//! Counts of decisions: totals, latencies, samples, and the counts of each limit, tier and rule.

pub(crate) mod counters;
pub(crate) mod latency;
pub(crate) mod limit_owner;
pub(crate) mod sampler;
pub(crate) mod totals;
