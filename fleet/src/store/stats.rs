//! Statistics of a store: its requests, its faults, and how long checks waited for it.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use crate::store::fault::{FaultReport, StoreFault};

/// The statistics of a store and of what this node holds of it. Counts are since the start.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct StoreStats {
    /// Whether the circuit breaker is open.
    pub is_open: bool,
    /// The number of times that the circuit breaker opened.
    pub opened: u64,
    /// Scripts that were sent.
    pub asked: u64,
    /// Scripts that failed.
    pub failed: u64,
    /// The faults that the store has now; warnings come last.
    pub faults: Vec<FaultReport>,
    /// Errors of scripts and probes by fault, in the order of [`StoreFault::ALL`].
    pub fault_counts: [u64; StoreFault::ALL.len()],
    /// The total latency of the scripts that did not fail.
    pub took: Duration,
    /// The times for which checks waited for the store.
    pub waits: WaitHistogram,
    /// Tokens that the store counts as lent to this node.
    pub leased_out: u64,
    /// The number of times that the store had more used of a synced limit than the limit has.
    pub overshoots: u64,
    /// The most tokens above a synced limit that the store has had.
    pub overshoot_max: u64,
    /// The most tokens of one key that this node spent between two exchanges: from the sending of one to the answer to
    /// the next. The sum over all nodes bounds how far a synced limit is exceeded.
    pub untold_max: u64,
    /// The time for which the last exchanged charge of a synced limit had waited when the store had it.
    pub sync_lag: Duration,
}

/// The upper bounds of the buckets; one more bucket has longer waits.
const BOUNDS: [Duration; 9] = [
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_micros(2_500),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(25),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(250),
];

/// Counters of waits that any thread can add to.
#[derive(Debug, Default)]
pub(crate) struct WaitCounters {
    counts: [AtomicU64; BOUNDS.len() + 1],
    sum_ns: AtomicU64,
}

/// The histogram of the waits of checks since the start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct WaitHistogram {
    counts: [u64; BOUNDS.len() + 1],
    /// The sum of all waits.
    pub sum: Duration,
}

impl WaitCounters {
    pub(crate) fn count(&self, wait: Duration) {
        self.counts[BOUNDS.partition_point(|bound| *bound < wait)].fetch_add(1, Relaxed);
        self.sum_ns.fetch_add(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    pub(crate) fn read(&self) -> WaitHistogram {
        WaitHistogram {
            counts: std::array::from_fn(|place| self.counts[place].load(Relaxed)),
            sum: Duration::from_nanos(self.sum_ns.load(Relaxed)),
        }
    }
}

impl WaitHistogram {
    /// Returns each bucket's upper bound and count; the last one has no bound.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<Duration>, u64)> {
        BOUNDS.iter().copied().map(Some).chain([None]).zip(self.counts)
    }

    /// Returns the number of waits.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_in_the_first_bucket_that_holds_it() {
        let waiting = WaitCounters::default();
        for ms in [0, 1, 1, 2, 5, 6, 250, 251, 5_000] {
            waiting.count(Duration::from_millis(ms));
        }
        let waits = waiting.read();
        let counts: Vec<_> =
            waits.buckets().map(|(bound, count)| (bound.map_or(0, |it| it.as_micros()), count)).collect();
        let expected = [
            (500, 1),
            (1_000, 2),
            (2_500, 1),
            (5_000, 1),
            (10_000, 1),
            (25_000, 0),
            (50_000, 0),
            (100_000, 0),
            (250_000, 1),
            (0, 2),
        ];
        assert_eq!(counts, expected);
        assert_eq!((waits.total(), waits.sum), (9, Duration::from_millis(5_516)));
    }
}
