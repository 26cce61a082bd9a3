//! The median of repeated measurements, with their least and greatest value.

use std::{borrow::Borrow, fmt};

/// The median of some values, with the least and the greatest of them.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Spread {
    /// The least value.
    pub least: f64,
    /// The middle value, or the mean of the two in the middle.
    pub median: f64,
    /// The greatest value.
    pub most: f64,
}

impl Spread {
    /// Returns the spread of these values; NaN if there are none.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = impl Borrow<f64>>) -> Self {
        let mut values: Vec<f64> = values.into_iter().map(|value| *value.borrow()).collect();
        values.sort_by(f64::total_cmp);
        let at = |place: usize| values.get(place).copied().unwrap_or(f64::NAN);
        let last = values.len().saturating_sub(1);
        Self { least: at(0), median: f64::midpoint(at(last / 2), at(last.div_ceil(2))), most: at(last) }
    }

    /// Returns the spread of `combine(ours, theirs)` over the rounds of a measurement.
    #[must_use]
    pub fn by_round(ours: &[f64], theirs: &[f64], combine: impl Fn(f64, f64) -> f64) -> Self {
        Self::of(ours.iter().zip(theirs).map(|(&ours, &theirs)| combine(ours, theirs)))
    }
}

/// Writes `median (least to most)`. The width applies to the median, the precision to all three.
impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { least, median, most } = self;
        let (width, digits) = (f.width().unwrap_or(0), f.precision().unwrap_or(1));
        write!(f, "{median:>width$.digits$} ({least:.digits$} to {most:.digits$})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_the_mean_of_the_two_in_the_middle() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Spread { least: 1.0, median: 2.0, most: 3.0 });
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 10.0]), Spread { least: 1.0, median: 3.0, most: 10.0 });
        assert_eq!(Spread::of([5.0]), Spread { least: 5.0, median: 5.0, most: 5.0 });
        assert!(Spread::of([0.0; 0]).median.is_nan());
    }

    #[test]
    fn rounds_are_combined_one_by_one() {
        let ratios = Spread::by_round(&[2.0, 9.0, 8.0], &[1.0, 3.0, 8.0], |ours, theirs| ours / theirs);
        assert_eq!(ratios, Spread { least: 1.0, median: 2.0, most: 3.0 });
    }

    #[test]
    fn text_shows_the_median_first_and_pads_only_that() {
        let spread = Spread::of([1.0, 2.25, 30.0]);
        assert_eq!(format!("{spread:>6.2}"), "  2.25 (1.00 to 30.00)");
        assert_eq!(format!("{spread:.0}"), "2 (1 to 30)");
    }
}
