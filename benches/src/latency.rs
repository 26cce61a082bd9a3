//! Quantiles of the time to an answer, round by round.

use crate::{histogram::Histogram, spread::Spread};

/// Quantiles of the time to an answer in microseconds, one value for each round.
#[derive(Default, Debug)]
pub struct Latencies {
    /// The median of each round.
    pub p50_us: Vec<f64>,
    /// The 99th percentile of each round.
    pub p99_us: Vec<f64>,
    /// The 99.9th percentile of each round.
    pub p999_us: Vec<f64>,
}

impl Latencies {
    /// Adds a round, whose histogram counts nanoseconds.
    pub fn record(&mut self, round: &Histogram) {
        for (quantiles, share) in [(&mut self.p50_us, 0.5), (&mut self.p99_us, 0.99), (&mut self.p999_us, 0.999)] {
            quantiles.push(round.quantile(share) as f64 / 1e3);
        }
    }

    /// Returns p50 and p99 as text.
    #[must_use]
    pub fn text(&self) -> String {
        format!("p50 {:.0} us, p99 {:.0} us", Spread::of(&self.p50_us), Spread::of(&self.p99_us))
    }

    /// Returns two lines that compare p50 and p99 with those of the bare server, with their goals.
    #[must_use]
    pub fn added_to_bare(&self, bare: &Self) -> String {
        let added = |ours: &[f64], bare: &[f64]| Spread::by_round(ours, bare, |ours, bare| ours - bare);
        format!(
            "added to the bare server's p50: {:.0} us (goal: under 200)\n\
             added to the bare server's p99: {:.0} us (goal: under 1000)",
            added(&self.p50_us, &bare.p50_us),
            added(&self.p99_us, &bare.p99_us)
        )
    }
}
