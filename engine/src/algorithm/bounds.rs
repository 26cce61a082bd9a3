//! The ranges of a limit's numbers, and the error for a number outside of them.

use std::{fmt, time::Duration};

use crate::base::time::{PERIOD_MAX, PERIOD_MIN};

/// The largest whole number that a policy or a cost may carry: 2^53 - 1, the largest that every JSON reader keeps.
pub const NUMBER_MAX: u64 = (1 << 53) - 1;

/// The error for a parameter that does not fit into a word.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Unfit {
    /// The parameter: `limit`, `period` or `burst`.
    pub field: &'static str,
    /// The reason, and the values that would fit.
    pub message: String,
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

impl std::error::Error for Unfit {}

/// The shortest period of a limit that does not count in whole seconds, and its text.
pub(super) const BUCKET_MIN: (Duration, &str) = (PERIOD_MIN, "1ms");

/// The shortest period of a window, and its text.
pub(super) const WINDOW_MIN: (Duration, &str) = (Duration::from_secs(1), "1s");

/// Refuses a period outside `min..=PERIOD_MAX`, where `min` is written as policies write periods.
pub(super) fn period_in_range(period: Duration, (min, min_text): (Duration, &str)) -> Result<(), Unfit> {
    if (min..=PERIOD_MAX).contains(&period) {
        return Ok(());
    }
    Err(Unfit { field: "period", message: format!("{period:?} is out of range; from {min_text} to 366d fit") })
}

/// Refuses a window whose period is not a whole number of seconds.
pub(super) fn whole_seconds(period: Duration) -> Result<(), Unfit> {
    if period.subsec_nanos() == 0 {
        return Ok(());
    }
    let message = "a window counts in whole seconds; use 1s or more, or token_bucket".to_owned();
    Err(Unfit { field: "period", message })
}

/// Refuses a value outside `min..=max`.
pub(super) fn in_range(field: &'static str, value: u64, min: u64, max: u64) -> Result<(), Unfit> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(Unfit { field, message: format!("{value} is out of range; from {min} to {max} fit") })
}

#[cfg(all(test, not(engine_loom)))]
mod tests {
    use super::*;
    use crate::algorithm::{FixedWindow, SlidingWindowCounter, SlidingWindowLog, TokenBucket};

    #[test]
    fn an_error_names_the_number_and_the_range() {
        let (short, second) = (Duration::from_nanos(999_999), Duration::from_secs(1));
        let long = PERIOD_MAX + second;
        let texts = [
            TokenBucket::new(1, short, 1).unwrap_err().to_string(),
            SlidingWindowLog::new(1, long).unwrap_err().to_string(),
            FixedWindow::new(1, Duration::ZERO).unwrap_err().to_string(),
            SlidingWindowCounter::new(1, Duration::from_millis(1_500)).unwrap_err().to_string(),
            TokenBucket::new(0, second, 1).unwrap_err().to_string(),
        ];
        let expected = [
            "period: 999.999µs is out of range; from 1ms to 366d fit",
            "period: 31622401s is out of range; from 1ms to 366d fit",
            "period: 0ns is out of range; from 1s to 366d fit",
            "period: a window counts in whole seconds; use 1s or more, or token_bucket",
            "limit: 0 is out of range; from 1 to 9007199254740991 fit",
        ];
        assert_eq!(texts, expected);
    }
}
