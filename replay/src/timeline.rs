//! Timeline of a replay in bounded memory: buckets of a second at first, which are merged into longer ones when there are
//! many.

use tidegate::time::{Nanos, SECOND_NS};

use crate::{report::TimelineRow, timestamp::Utc};

/// Lengths of a bucket in seconds. Each divides the next.
const BUCKET_SECONDS: [u64; 6] = [1, 10, 60, 600, 3_600, 86_400];

/// Most rows of a report, unless the bucket has its longest length.
const ROWS_MAX: u64 = 1_000;

/// Most buckets in memory. More of them give more than [`ROWS_MAX`] rows, so that buckets are never merged too early.
const KEPT_MAX: usize = 4_000;

#[derive(Debug)]
struct TimelineCounts {
    /// Seconds since the epoch, a multiple of the bucket's length.
    at: u64,
    allowed: u64,
    denied: u64,
}

/// Allowed and denied requests over time.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    /// Buckets with a request, in order of time.
    buckets: Vec<TimelineCounts>,
    /// Index in [`BUCKET_SECONDS`].
    length: usize,
}

impl Timeline {
    /// Counts a request. `now` never goes back.
    #[inline]
    pub(crate) fn count(&mut self, now: Nanos, is_allowed: bool) {
        let second = now / SECOND_NS;
        let at = second - second % BUCKET_SECONDS[self.length];
        let (allowed, denied) = (u64::from(is_allowed), u64::from(!is_allowed));
        match self.buckets.last_mut() {
            Some(last) if last.at == at => {
                last.allowed += allowed;
                last.denied += denied;
            }
            _ => {
                self.buckets.push(TimelineCounts { at, allowed, denied });
                while self.buckets.len() > KEPT_MAX && self.length + 1 < BUCKET_SECONDS.len() {
                    self.merge();
                }
            }
        }
    }

    fn merge(&mut self) {
        self.length += 1;
        for bucket in &mut self.buckets {
            bucket.at -= bucket.at % BUCKET_SECONDS[self.length];
        }
        self.buckets.dedup_by(|next, kept| {
            let is_same = next.at == kept.at;
            if is_same {
                kept.allowed += next.allowed;
                kept.denied += next.denied;
            }
            is_same
        });
    }

    /// Returns the length of a bucket in seconds, and a row for every bucket from the first to the last, empty ones too.
    pub(crate) fn into_rows(mut self) -> (u64, Vec<TimelineRow>) {
        let rows = |timeline: &Self| match &*timeline.buckets {
            [first, .., last] => (last.at - first.at) / BUCKET_SECONDS[timeline.length] + 1,
            few => few.len() as u64,
        };
        while rows(&self) > ROWS_MAX && self.length + 1 < BUCKET_SECONDS.len() {
            self.merge();
        }
        let seconds = BUCKET_SECONDS[self.length];
        let mut all: Vec<TimelineRow> = Vec::new();
        for bucket in self.buckets {
            let row = |at, allowed, denied| TimelineRow { at: Utc(at * SECOND_NS), allowed, denied };
            while let Some(gap) = all.last().map(|last| last.at.0 / SECOND_NS + seconds).filter(|gap| *gap < bucket.at)
            {
                all.push(row(gap, 0, 0));
            }
            all.push(row(bucket.at, bucket.allowed, bucket.denied));
        }
        (seconds, all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_bucket_that_gives_a_thousand_rows_is_chosen() {
        // Seconds from the first request to the last, the bucket, the rows.
        for (span, seconds, rows) in [
            (0, 1, 1),
            (999, 1, 1_000),
            (1_000, 10, 101),
            (9_999, 10, 1_000),
            (10_000, 60, 167),
            (59_999, 60, 1_000),
            (60_000, 600, 101),
            (600_000, 3_600, 167),
            (3_600_000, 86_400, 42),
            (86_400 * 1_200, 86_400, 1_201),
        ] {
            let mut timeline = Timeline::default();
            // Both ends, and enough between them to merge buckets while counting.
            let step = (span / 20_000).max(1);
            let seen: Vec<u64> = (0..span).step_by(step as usize).chain([span]).collect();
            for second in &seen {
                timeline.count(86_400 * SECOND_NS * 16_000 + second * SECOND_NS + 7, second % 3 > 0);
                assert!(timeline.buckets.len() <= KEPT_MAX);
            }
            let (bucket, all) = timeline.into_rows();
            assert_eq!((bucket, all.len()), (seconds, rows), "{span} s");
            assert!(all.windows(2).all(|pair| pair[1].at.0 - pair[0].at.0 == seconds * SECOND_NS));
            assert_eq!(all.iter().map(|row| row.allowed + row.denied).sum::<u64>(), seen.len() as u64);
            assert_eq!(
                all.iter().map(|row| row.denied).sum::<u64>(),
                seen.iter().filter(|s| *s % 3 == 0).count() as u64
            );
        }
    }

    #[test]
    fn empty_buckets_are_rows_too() {
        let mut timeline = Timeline::default();
        timeline.count(5 * SECOND_NS, true);
        timeline.count(8 * SECOND_NS, false);
        let (_, rows) = timeline.into_rows();
        let rows: Vec<_> = rows.iter().map(|row| (row.at.0 / SECOND_NS, row.allowed, row.denied)).collect();
        assert_eq!(rows, [(5, 1, 0), (6, 0, 0), (7, 0, 0), (8, 0, 1)]);
        assert_eq!(Timeline::default().into_rows().1.len(), 0);
    }
}
