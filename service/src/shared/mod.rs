//! The parts that the listeners of all protocols share: the decider with its caches, fair shares of callers, the body
//! budget, health, metrics and worker threads. None of them knows a protocol.

pub(crate) mod body_budget;
pub(crate) mod caller_shares;
pub(crate) mod decider;
pub(crate) mod degraded;
pub(crate) mod error;
pub(crate) mod health_monitor;
pub(crate) mod health_rules;
pub(crate) mod latency;
pub(crate) mod listener_counts;
pub(crate) mod log_limiter;
pub(crate) mod metric_encoding;
pub(crate) mod metrics;
pub(crate) mod operators;
pub(crate) mod rejection_counts;
pub(crate) mod request_id_cache;
pub(crate) mod reservations;
pub(crate) mod service_state;
pub(crate) mod store_concurrency;
pub(crate) mod throttle_metrics;
pub(crate) mod timeouts;
pub(crate) mod tokens;
pub(crate) mod traces;
pub(crate) mod worker_threads;
