//! What the listeners of all protocols share.

pub(crate) mod body_budget;
pub(crate) mod caller_shares;
pub(crate) mod decider;
pub(crate) mod degraded;
pub(crate) mod health_monitor;
pub(crate) mod health_rules;
pub(crate) mod latency;
pub(crate) mod metrics;
pub(crate) mod rejection_counts;
pub(crate) mod request_id_cache;
pub(crate) mod reservations;
pub(crate) mod store_concurrency;
pub(crate) mod timeouts;
pub(crate) mod tokens;
pub(crate) mod traces;
pub(crate) mod worker_threads;
