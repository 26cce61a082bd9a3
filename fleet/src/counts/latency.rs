//! A histogram of decision latencies in buckets a quarter of an octave wide. Histograms can be added, so a percentile
//! of an hour covers all its decisions.

/// The first bucket has all durations below this, nanoseconds.
const LEAST_NS: u64 = 1 << 4;
/// The buckets reach to 4 seconds; the last one also has all longer durations.
const BUCKETS: usize = 1 + 4 * 28;

/// A latency histogram.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LatencyHistogram([u64; BUCKETS]);

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self([0; BUCKETS])
    }
}

impl LatencyHistogram {
    /// Counts one decision that took this long.
    pub fn count(&mut self, ns: u64) {
        self.0[bucket(ns)] += 1;
    }

    /// Adds the counts of another histogram.
    pub fn add(&mut self, other: &Self) {
        for (count, more) in self.0.iter_mut().zip(&other.0) {
            *count = count.saturating_add(*more);
        }
    }

    /// Returns the number of samples.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.0.iter().fold(0, |sum: u64, count| sum.saturating_add(*count))
    }

    /// Returns the buckets that have counts.
    pub fn buckets(&self) -> impl Iterator<Item = (usize, u64)> {
        self.0.iter().copied().enumerate().filter(|(_, count)| *count > 0)
    }

    /// Sets the count of a bucket; `None`: there is no such bucket.
    pub fn put(&mut self, bucket: usize, count: u64) -> Option<()> {
        *self.0.get_mut(bucket)? = count;
        Some(())
    }

    /// Returns a percentile: the time, in whole microseconds rounded up, that this many samples in a thousand did not
    /// exceed; `None` without samples.
    #[must_use]
    pub fn at_most_us(&self, per_mille: u64) -> Option<u64> {
        let rank = self.samples().saturating_mul(per_mille).div_ceil(1_000).max(1);
        let mut seen = 0u64;
        self.buckets().find_map(|(bucket, count)| {
            seen = count.saturating_add(seen);
            (seen >= rank).then(|| end_ns(bucket).div_ceil(1_000))
        })
    }
}

fn bucket(ns: u64) -> usize {
    if ns < LEAST_NS {
        return 0;
    }
    let octave = ns.ilog2();
    let quarter = (ns >> (octave - 2)) & 3;
    (1 + 4 * (octave - LEAST_NS.ilog2()) as usize + quarter as usize).min(BUCKETS - 1)
}

/// Returns the end of a bucket; all its durations are shorter.
fn end_ns(bucket: usize) -> u64 {
    let Some(place) = bucket.checked_sub(1) else { return LEAST_NS };
    ((LEAST_NS >> 2) * (5 + place as u64 % 4)) << (place / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_has_durations_up_to_its_end_and_little_below() {
        let mut before = 0;
        for ns in (0..200).chain((1..200).map(|part| part * 20_000_000)) {
            let end = end_ns(bucket(ns));
            assert!(ns < end || bucket(ns) == BUCKETS - 1, "{ns} < {end}");
            assert!(end <= LEAST_NS.max(ns + ns / 4 + 1), "{ns}: {end}");
            assert!(bucket(ns) >= before);
            before = bucket(ns);
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_cover_all_samples() {
        let mut latency = LatencyHistogram::default();
        assert_eq!(latency.at_most_us(990), None);
        for _ in 0..989 {
            latency.count(100);
        }
        for _ in 0..11 {
            latency.count(40_000);
        }
        assert_eq!(
            (latency.at_most_us(500), latency.at_most_us(989), latency.at_most_us(990)),
            (Some(1), Some(1), Some(41))
        );
        let mut sum = LatencyHistogram::default();
        sum.add(&latency);
        sum.add(&latency);
        assert_eq!(sum.at_most_us(990), latency.at_most_us(990));
    }
}
