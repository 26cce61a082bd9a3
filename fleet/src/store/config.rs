//! Settings of a store: timeouts, the circuit breaker, and how leases and views are exchanged.

use std::time::Duration;

use tidegate::time::{Nanos, SECOND_NS};

/// The usual life of a lease, and the length of an epoch. A lease lives this long from before its request was sent, so
/// it ends before the leases of its epoch are counted as spent.
pub(crate) const LEASE_NS: Nanos = 60 * SECOND_NS;

/// The settings of a store's client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoreSettings {
    /// The longest time for which a check waits for the store; default: 5 ms.
    pub timeout: Duration,
    /// The number of consecutive failures after which the circuit breaker opens; default: 5.
    pub failures_max: u32,
    /// The pause of an open circuit breaker, after which the health monitor tries the store; default: 30 s.
    pub pause: Duration,
    /// The interval at which the charges of synced limits are exchanged; default: 100 ms.
    pub sync_interval: Duration,
    /// The life of a lease; default: one minute. All nodes of a store must have the same. A dead node holds its tokens
    /// for at most two lives; then they count as spent.
    pub lease: Duration,
    /// The interval at which the node checks whether the store takes writes, evicts keys or lost some; default: one
    /// minute.
    pub watch_interval: Duration,
    /// The time limit for queries of operators, who would rather wait than not know; default: 500 ms.
    pub operator_timeout: Duration,
    /// The time limit for giving back leases and sending deltas when a node stops; default: one second.
    pub close_timeout: Duration,
}

impl Default for StoreSettings {
    fn default() -> Self {
        Self {
            timeout: Duration::from_millis(5),
            failures_max: 5,
            pause: Duration::from_secs(30),
            sync_interval: Duration::from_millis(100),
            lease: Duration::from_nanos(LEASE_NS),
            watch_interval: Duration::from_mins(1),
            operator_timeout: Duration::from_millis(500),
            close_timeout: Duration::from_secs(1),
        }
    }
}
