//! How long things took, counted in buckets that exist beforehand: recording allocates nothing.

/// Each power of two is cut into so many buckets: a quantile is right to a 64th.
const CUTS: usize = 64;

/// The last bucket of the largest power of two.
const BUCKETS: usize = (u64::BITS as usize - CUTS.ilog2() as usize - 1) * CUTS + 2 * CUTS;

/// Counts of values.
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
        self.counts[place(value)] += 1;
        self.total += 1;
    }

    /// How many values were counted.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The least value that at least this share of all is at or below, rounded up to the end of its bucket: too high by less
    /// than a 64th. 0 of nothing.
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

/// Below [`CUTS`] each value has its own bucket; above, those that agree in their highest bits share one.
fn place(value: u64) -> usize {
    let shift = shift_of(value);
    shift as usize * CUTS + (value >> shift) as usize
}

fn shift_of(value: u64) -> u32 {
    (value | CUTS as u64).ilog2() - CUTS.ilog2()
}

/// The largest value in a bucket.
fn end(place: usize) -> u64 {
    let shift = (place / CUTS).saturating_sub(1);
    (((place - shift * CUTS) as u64) << shift) + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Numbers;

    #[test]
    fn buckets_follow_each_other_and_end_where_the_next_begins() {
        for bucket in 0..BUCKETS - 1 {
            assert_eq!(place(end(bucket)), bucket);
            assert_eq!(place(end(bucket) + 1), bucket + 1);
        }
        assert_eq!(place(u64::MAX), BUCKETS - 1);
        assert_eq!(end(BUCKETS - 1), u64::MAX);
    }

    #[test]
    #[expect(clippy::cast_sign_loss, reason = "a share is not negative")]
    fn a_quantile_is_that_of_the_sorted_values_to_a_64th() {
        let mut numbers = Numbers::new(7, 40);
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
    fn of_nothing_every_quantile_is_0() {
        assert_eq!(Histogram::default().quantile(0.5), 0);
    }
}
