//! Time series of counts, of all requests and of each client, in buckets whose length grows with the number of buckets.

use serde::{Deserialize, Serialize};
use tidegate::time::Nanos;

use super::SIDES;

/// Lengths of buckets in milliseconds.
pub const BUCKETS_MS: [u64; 9] =
    [100, 1_000, 10_000, 60_000, 600_000, 3_600_000, 86_400_000, 604_800_000, 31_449_600_000];
/// Most buckets of all clients together, 32 bytes each. Beyond it buckets become longer, up to 52 weeks, of which no log has
/// many.
pub const CELLS_MAX: usize = 500_000;
/// Most buckets of all requests together.
const ALL_MAX: usize = 1_000;

const MS_NS: u64 = 1_000_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct BucketCounts {
    pub(crate) requests: u64,
    pub(crate) denied: [u64; SIDES],
}

impl BucketCounts {
    fn add(&mut self, other: Self) {
        self.requests += other.requests;
        for (denied, more) in self.denied.iter_mut().zip(other.denied) {
            *denied += more;
        }
    }
}

/// Buckets with a request in order of time, by their number since the epoch.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct CountSeries(pub(crate) Vec<(u64, BucketCounts)>);

impl CountSeries {
    /// Adds counts to a bucket; returns whether the bucket is new.
    fn count(&mut self, bucket: u64, counts: BucketCounts) -> bool {
        // Late requests of a log count in the newest bucket.
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

    /// Merges each `times` buckets into one.
    pub(crate) fn merged(&self, times: u64) -> Self {
        let mut merged = Self::default();
        for (bucket, counts) in &self.0 {
            merged.count(bucket / times, *counts);
        }
        merged
    }
}

/// The series of all requests, and the lengths of buckets.
#[derive(Debug, Default)]
pub(crate) struct SeriesSet {
    pub(crate) all: CountSeries,
    /// Index in [`BUCKETS_MS`].
    all_length: usize,
    length: usize,
    cells: usize,
}

impl SeriesSet {
    pub(crate) fn count_all(&mut self, now: Nanos, counts: BucketCounts) {
        self.all.count(now / MS_NS / BUCKETS_MS[self.all_length], counts);
        let span = |series: &CountSeries| {
            series.0.last().zip(series.0.first()).map_or(0, |(last, first)| last.0 - first.0 + 1)
        };
        while span(&self.all) > ALL_MAX as u64 && self.all_length + 1 < BUCKETS_MS.len() {
            self.all = self.all.merged(BUCKETS_MS[self.all_length + 1] / BUCKETS_MS[self.all_length]);
            self.all_length += 1;
        }
    }

    pub(crate) fn count_one(&mut self, series: &mut CountSeries, now: Nanos, counts: BucketCounts) {
        self.cells += usize::from(series.count(now / MS_NS / BUCKETS_MS[self.length], counts));
    }

    pub(crate) fn are_too_many(&self) -> bool {
        self.cells > CELLS_MAX && self.length + 1 < BUCKETS_MS.len()
    }

    /// Merges the buckets of clients into longer ones.
    pub(crate) fn coarsen<'s>(&mut self, all_series: impl Iterator<Item = &'s mut CountSeries>) {
        let times = BUCKETS_MS[self.length + 1] / BUCKETS_MS[self.length];
        self.length += 1;
        self.cells = 0;
        for series in all_series {
            *series = series.merged(times);
            series.0.shrink_to_fit();
            self.cells += series.0.len();
        }
    }

    pub(crate) fn all_bucket_ms(&self) -> u64 {
        BUCKETS_MS[self.all_length]
    }

    pub(crate) fn bucket_ms(&self) -> u64 {
        BUCKETS_MS[self.length]
    }
}
