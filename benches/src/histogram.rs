//! A histogram of durations whose buckets are allocated beforehand, so that recording allocates nothing.

/// The number of buckets in each power of two: a quantile is exact to a 64th.
const CUTS: usize = 64;

/// The number of buckets, up to the last one of the largest power of two.
const BUCKETS: usize = (u64::BITS as usize - CUTS.ilog2() as usize - 1) * CUTS + 2 * CUTS;

/// A histogram of values.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Box<[u64]>,
    total: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS].into(), total: 0 }
    }
}

impl Histogram {
    /// Counts a value.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.counts[bucket(value)] += 1;
        self.total += 1;
    }

    /// Returns the number of values that were counted.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns the least value that at least this share of all values is at or below, rounded up to the end of its bucket: too
    /// high by less than a 64th. Returns 0 if there are no values.
    #[must_use]
    #[expect(clippy::cast_sign_loss, reason = "a share is not negative")]
    pub fn quantile(&self, share: f64) -> u64 {
        let rank = (share * self.total as f64).ceil() as u64;
        let mut below = 0;
        let reached = |count: &u64| {
            below += count;
            below >= rank.max(1)
        };
        self.counts.iter().position(reached).map_or(0, end)
    }
}

/// Returns the bucket of a value. Below [`CUTS`] each value has its own bucket; above, values with the same highest bits share
/// one.
fn bucket(value: u64) -> usize {
    let shift = shift_of(value);
    shift as usize * CUTS + (value >> shift) as usize
}

fn shift_of(value: u64) -> u32 {
    (value | CUTS as u64).ilog2() - CUTS.ilog2()
}

/// Returns the largest value in a bucket.
fn end(bucket: usize) -> u64 {
    let shift = (bucket / CUTS).saturating_sub(1);
    (((bucket - shift * CUTS) as u64) << shift) + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Uniform;

    #[test]
    fn each_bucket_ends_where_the_next_begins() {
        for number in 0..BUCKETS - 1 {
            assert_eq!(bucket(end(number)), number);
            assert_eq!(bucket(end(number) + 1), number + 1);
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        assert_eq!(end(BUCKETS - 1), u64::MAX);
    }

    #[test]
    #[expect(clippy::cast_sign_loss, reason = "a share is not negative")]
    fn a_quantile_is_exact_to_a_64th() {
        let mut numbers = Uniform::new(7, 40);
        let mut histogram = Histogram::default();
        let mut values: Vec<u64> = (0..100_000).map(|value| (value % 977) << numbers.draw()).collect();
        for &value in &values {
            histogram.record(value);
        }
        values.sort_unstable();
        for share in [0.000_01, 0.25, 0.5, 0.99, 0.9999, 1.0] {
            let exact = values[(share * values.len() as f64).ceil() as usize - 1];
            let found = histogram.quantile(share);
            assert!(exact <= found && found <= exact + exact / 64, "{share}: {found} is not {exact}");
        }
        assert_eq!(histogram.total(), 100_000);
    }

    #[test]
    fn quantiles_of_an_empty_histogram_are_0() {
        assert_eq!(Histogram::default().quantile(0.5), 0);
    }
}
