//! The ranges of a limit's numbers, and the error for a number outside of them.

use std::{fmt, time::Duration};

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

/// Refuses a window whose period is not a whole number of seconds.
pub(super) fn whole_seconds(period: Duration) -> Result<(), Unfit> {
    if period.subsec_nanos() == 0 {
        return Ok(());
    }
    let message = "a window counts in whole seconds; use 1s or more, or token_bucket".to_owned();
    Err(Unfit { field: "period", message })
}

/// Refuses a value outside `min..=max`.
pub(super) fn in_range<T: PartialOrd + fmt::Debug + Copy>(
    field: &'static str,
    value: T,
    min: T,
    max: T,
) -> Result<(), Unfit> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(Unfit { field, message: format!("{value:?} is out of range; from {min:?} to {max:?} fit") })
}
