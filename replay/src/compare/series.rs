//! Counts over time, in buckets of a length that grows with what there is to count: of all requests together, and of each
//! client.

use serde::{Deserialize, Serialize};
use tidegate::time::Nanos;

use super::SIDES;

/// Lengths of buckets, in milliseconds.
pub const BUCKETS_MS: [u64; 9] =
    [100, 1_000, 10_000, 60_000, 600_000, 3_600_000, 86_400_000, 604_800_000, 31_449_600_000];
/// The most buckets of all clients together; beyond it they become longer, as long as a longer one can be had (52 weeks, of
/// which no log has many). 32 bytes each.
pub const CELLS_MAX: usize = 500_000;
/// The most buckets of all requests together.
const ALL_MAX: usize = 1_000;

const MS_NS: u64 = 1_000_000;

/// What was counted in a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub(crate) requests: u64,
    pub(crate) denied: [u64; SIDES],
}

impl Counts {
    fn add(&mut self, other: Self) {
        self.requests += other.requests;
        for (denied, more) in self.denied.iter_mut().zip(other.denied) {
            *denied += more;
        }
    }
}

/// Buckets in order of time, by their number since the epoch; those without a request are not there.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Strip(pub(crate) Vec<(u64, Counts)>);

impl Strip {
    /// True if it took another bucket.
    fn count(&mut self, bucket: u64, counts: Counts) -> bool {
        // What comes late in a log is counted where time is.
        match self.0.last_mut() {
            Some((last, sum)) if *last >= bucket => {
                sum.add(counts);
                false
            }
            _ => {
                self.0.push((bucket, counts));
                true
            }
        }
    }

    /// Makes each `times` buckets one.
    pub(crate) fn merged(&self, times: u64) -> Self {
        let mut merged = Self::default();
        for (bucket, counts) in &self.0 {
            merged.count(bucket / times, *counts);
        }
        merged
    }
}

/// The strip of all, and how long the buckets are.
#[derive(Debug, Default)]
pub(crate) struct Strips {
    pub(crate) all: Strip,
    /// Place in [`BUCKETS_MS`].
    all_length: usize,
    length: usize,
    cells: usize,
}

impl Strips {
    pub(crate) fn count_all(&mut self, now: Nanos, counts: Counts) {
        self.all.count(now / MS_NS / BUCKETS_MS[self.all_length], counts);
        let span = |strip: &Strip| strip.0.last().zip(strip.0.first()).map_or(0, |(last, first)| last.0 - first.0 + 1);
        while span(&self.all) > ALL_MAX as u64 && self.all_length + 1 < BUCKETS_MS.len() {
            self.all = self.all.merged(BUCKETS_MS[self.all_length + 1] / BUCKETS_MS[self.all_length]);
            self.all_length += 1;
        }
    }

    pub(crate) fn count_one(&mut self, strip: &mut Strip, now: Nanos, counts: Counts) {
        self.cells += usize::from(strip.count(now / MS_NS / BUCKETS_MS[self.length], counts));
    }

    pub(crate) fn are_too_many(&self) -> bool {
        self.cells > CELLS_MAX && self.length + 1 < BUCKETS_MS.len()
    }

    /// Makes the buckets of clients longer.
    pub(crate) fn coarsen<'s>(&mut self, strips: impl Iterator<Item = &'s mut Strip>) {
        let times = BUCKETS_MS[self.length + 1] / BUCKETS_MS[self.length];
        self.length += 1;
        self.cells = 0;
        for strip in strips {
            *strip = strip.merged(times);
            strip.0.shrink_to_fit();
            self.cells += strip.0.len();
        }
    }

    pub(crate) fn all_bucket_ms(&self) -> u64 {
        BUCKETS_MS[self.all_length]
    }

    pub(crate) fn bucket_ms(&self) -> u64 {
        BUCKETS_MS[self.length]
    }
}
