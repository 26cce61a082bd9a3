//! Figures of a store: its calls, its faults, and how long checks waited for it.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use crate::store::fault::{FaultReport, StoreFault};

/// The store, and what this node holds of it; counts are since the start.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct StoreStats {
    /// Is the store left alone, since it did not answer?
    pub is_open: bool,
    /// How often that began.
    pub opened: u64,
    /// Scripts that were sent.
    pub asked: u64,
    /// Those without an answer.
    pub failed: u64,
    /// The faults that are there now, those that the store refuses or fails by before warnings.
    pub faults: Vec<FaultReport>,
    /// Errors of scripts and probes by fault, in the order of [`StoreFault::ALL`].
    pub fault_counts: [u64; StoreFault::ALL.len()],
    /// What the others took, in all.
    pub took: Duration,
    /// For how long checks waited, of those that did.
    pub waits: WaitHistogram,
    /// Tokens that the store counts as lent to this node.
    pub leased_out: u64,
    /// How often the store had more used of a synced limit than there is.
    pub overshoots: u64,
    /// The most tokens above a limit that it had.
    pub overshoot_max: u64,
    /// The most tokens of one key that this node spent between two exchanges: from the sending of one to the answer to the next.
    /// The sum of all nodes bounds by how much they are above a synced limit.
    pub untold_max: u64,
    /// For how long a synced charge was untold, when the store had it: the last one.
    pub sync_lag: Duration,
}

/// Milliseconds, from half of one; beyond the last there is one more.
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

/// Counts waits, from any thread.
#[derive(Debug, Default)]
pub(crate) struct WaitCounters {
    counts: [AtomicU64; BOUNDS.len() + 1],
    sum_ns: AtomicU64,
}

/// Waits of checks, since the start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct WaitHistogram {
    counts: [u64; BOUNDS.len() + 1],
    /// All of them together.
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
    /// How many were longer than the bound before, and at most as long as this one; the last has none.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<Duration>, u64)> {
        BOUNDS.iter().copied().map(Some).chain([None]).zip(self.counts)
    }

    /// How many there were.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_in_the_bucket_that_just_holds_it() {
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
