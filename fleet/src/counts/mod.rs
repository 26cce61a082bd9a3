//! Counts of decisions.

pub(crate) mod counters;
pub(crate) mod latency;
pub(crate) mod owner;
pub(crate) mod sampler;
pub(crate) mod totals;
