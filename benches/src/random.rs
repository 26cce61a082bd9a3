//! Random key numbers, uniform or by Zipf's law: drawn beforehand, the same sequence for every limiter.

/// A generator of uniform numbers below `bound` (xorshift64*; Vigna, 2016).
#[derive(Debug)]
pub struct Uniform {
    state: u64,
    bound: u64,
}

impl Uniform {
    /// Returns a generator of numbers below `bound`; `seed` must not be 0.
    #[must_use]
    pub fn new(seed: u64, bound: u64) -> Self {
        Self { state: seed, bound }
    }

    /// Draws the next number.
    #[inline]
    pub fn draw(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        let product = self.state.wrapping_mul(0x2545_F491_4F6C_DD1D);
        ((u128::from(product) * u128::from(self.bound)) >> 64) as u64
    }
}

/// A generator of numbers by Zipf's law with exponent 1: number k is drawn 1/(k + 1) times as often as number 0. The numbers
/// follow the law exactly, since a uniform number is looked up in the sums of the weights.
#[derive(Debug)]
pub struct Zipf {
    uniform: Uniform,
    sums: Vec<f64>,
}

impl Zipf {
    /// Returns a generator of numbers below `bound`; `seed` must not be 0.
    #[must_use]
    pub fn new(seed: u64, bound: u32) -> Self {
        let weights = (0..bound).map(|number| 1.0 / (f64::from(number) + 1.0));
        let sums = weights.scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        });
        Self { uniform: Uniform::new(seed, 1 << 53), sums: sums.collect() }
    }

    /// Draws the next number.
    pub fn draw(&mut self) -> u64 {
        let all = self.sums.last().copied().unwrap_or_default();
        let point = self.uniform.draw() as f64 / (1_u64 << 53) as f64 * all;
        self.sums.partition_point(|sum| *sum <= point) as u64
    }
}

/// Calls `draw` `count` times, and returns its numbers, which must be below 2^32.
pub fn draw_many(count: usize, mut draw: impl FnMut() -> u64) -> Vec<u32> {
    (0..count).map(|_| draw() as u32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: u32 = 1_000_000;

    /// Asserts that each number was drawn as often as expected, within six standard deviations.
    fn assert_frequencies(numbers: &[u32], expected: impl Fn(u32) -> f64, bound: u32) {
        let mut counts = vec![0_u32; bound as usize];
        for &number in numbers {
            counts[number as usize] += 1;
        }
        for (number, &count) in counts.iter().enumerate() {
            let expected = expected(number as u32) * f64::from(DRAWS);
            let off = (f64::from(count) - expected).abs() / expected.sqrt();
            assert!(off < 6.0, "{number} was drawn {count} times instead of {expected:.0}");
        }
    }

    #[test]
    fn zipf_draws_each_number_as_often_as_the_law_says() {
        let mut zipf = Zipf::new(7, 1_000);
        let all: f64 = (1..=1_000).map(|rank| 1.0 / f64::from(rank)).sum();
        let numbers = draw_many(DRAWS as usize, || zipf.draw());
        assert_frequencies(&numbers, |number| 1.0 / f64::from(number + 1) / all, 1_000);
    }

    #[test]
    fn uniform_numbers_are_equally_frequent() {
        let mut uniform = Uniform::new(7, 100);
        assert_frequencies(&draw_many(DRAWS as usize, || uniform.draw()), |_| 0.01, 100);
    }

    #[test]
    fn the_least_and_the_greatest_uniform_number_stay_within_the_bounds_of_zipf() {
        let mut zipf = Zipf::new(7, 3);
        zipf.uniform = Uniform::new(7, 1);
        assert_eq!(zipf.draw(), 0, "the lowest point is the first number's");
        let highest = ((1_u64 << 53) - 1) as f64 / (1_u64 << 53) as f64 * zipf.sums[2];
        assert_eq!(zipf.sums.partition_point(|sum| *sum <= highest), 2, "the highest point is the last number's");
    }
}
