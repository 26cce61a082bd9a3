//! Settings of the connection to a store.

use std::time::Duration;

use tidegate::time::{Nanos, SECOND_NS};

/// The usual life of a lease, and the length of an epoch. A lease lives as long as this from before it was asked for, so it is over
/// before those of its epoch are counted as spent.
pub(crate) const LEASE_NS: Nanos = 60 * SECOND_NS;

/// How the store is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoreSettings {
    /// No check waits longer for the store: 5 ms unless said.
    pub timeout: Duration,
    /// After so many failures in a row it is not asked any more: 5.
    pub failures_max: u32,
    /// For so long; then one check tries whether it is back: 30 s.
    pub pause: Duration,
    /// How often what was charged to synced limits is exchanged: 100 ms.
    pub sync_interval: Duration,
    /// The life of a lease: one minute. All nodes of a store must have the same. A node that died holds its tokens for two of them at
    /// most, and then they count as spent.
    pub lease: Duration,
    /// How often it is seen whether the store takes writes, and evicts or lost keys: one minute.
    pub watch_interval: Duration,
    /// The limit for what operators ask, who rather wait than not know: 500 ms.
    pub operator_timeout: Duration,
    /// The limit for giving back what is left when a node stops: one second.
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
