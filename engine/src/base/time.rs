//! `Timestamp`, an instant of a clock, and the periods that policies write.

use std::{
    fmt,
    ops::{Add, Sub},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Nanoseconds since the Unix epoch, as the words of buckets hold them; for the crates of this repository.
#[doc(hidden)]
pub type Nanos = u64;

/// The nanoseconds of a second; for the crates of this repository.
#[doc(hidden)]
pub const SECOND_NS: u64 = 1_000_000_000;

/// The shortest period that a policy may name: one millisecond.
pub const PERIOD_MIN: Duration = Duration::from_millis(1);

/// The longest period that a policy may name: 366 days.
pub const PERIOD_MAX: Duration = Duration::from_hours(366 * 24);

pub(crate) const PERIOD_MIN_NS: u64 = saturating_nanos(PERIOD_MIN);
pub(crate) const PERIOD_MAX_NS: u64 = saturating_nanos(PERIOD_MAX);

/// An instant of a [`Clock`](crate::clock::Clock): whole nanoseconds since the Unix epoch, which last until the year 2554.
///
/// It converts from and into [`SystemTime`]. Clocks and what the engine reads of them on every check, such as the times that an
/// observer is shown, are of this type, because it is one `u64`. Times that a program reads rarely, such as
/// [`Decision::reset_at`](crate::Decision::reset_at), are [`SystemTime`].
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use tidegate::time::Timestamp;
///
/// let now = Timestamp::from(SystemTime::now());
/// let later = now + Duration::from_secs(1);
/// assert_eq!(later.duration_since(now), Duration::from_secs(1));
/// assert_eq!(SystemTime::from(later), SystemTime::from(now) + Duration::from_secs(1));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct Timestamp(u64);

impl Timestamp {
    /// Returns the instant `nanos` nanoseconds after the Unix epoch.
    #[must_use]
    #[inline]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the nanoseconds since the Unix epoch.
    #[must_use]
    #[inline]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the time that has passed since `earlier`; zero if `earlier` is later.
    #[must_use]
    #[inline]
    pub const fn duration_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Converts a time before the Unix epoch to the epoch, and one after the year 2554 to the last instant.
impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        Self(saturating_nanos(time.duration_since(UNIX_EPOCH).unwrap_or_default()))
    }
}

impl From<Timestamp> for SystemTime {
    fn from(instant: Timestamp) -> Self {
        UNIX_EPOCH + Duration::from_nanos(instant.0)
    }
}

/// Returns the later instant, or the last one if the later one does not fit.
impl Add<Duration> for Timestamp {
    type Output = Self;

    #[inline]
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(saturating_nanos(duration)))
    }
}

/// Returns the earlier instant, or the Unix epoch if the earlier one would be before it.
impl Sub<Duration> for Timestamp {
    type Output = Self;

    #[inline]
    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(saturating_nanos(duration)))
    }
}

/// Returns the nanoseconds of a duration, or `u64::MAX` for a duration of more than 584 years.
#[inline]
pub(crate) const fn saturating_nanos(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(SECOND_NS).saturating_add(duration.subsec_nanos() as u64)
}

/// The error for a text that is not a period.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PeriodError {
    /// A number without a unit, or an empty text; holds the text.
    NoUnit(String),
    /// A text that is not a whole number and a unit; holds the text.
    Malformed(String),
    /// The period is zero.
    Zero,
    /// A period longer than [`PERIOD_MAX`]; holds its text.
    TooLong(String),
}

impl fmt::Display for PeriodError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const FORM: &str = "write a whole number and a unit: 250ms, 1s, 15m, 1h, 1d";
        match self {
            Self::NoUnit(text) => write!(f, "`{text}` has no unit; {FORM}"),
            Self::Malformed(text) => write!(f, "`{text}` is not a period; {FORM}"),
            Self::Zero => f.write_str("a period of zero has no rate; the shortest period is 1ms"),
            Self::TooLong(text) => write!(f, "`{text}` is longer than the longest period, 366d"),
        }
    }
}

impl std::error::Error for PeriodError {}

/// Reads a period as policies write it: a whole number and one of `ms`, `s`, `m`, `h`, `d`.
///
/// ```
/// use std::time::Duration;
/// use tidegate::time::parse_period;
///
/// assert_eq!(parse_period("15m"), Ok(Duration::from_mins(15)));
/// assert!(parse_period("0s").is_err());
/// ```
pub fn parse_period(text: &str) -> Result<Duration, PeriodError> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit_ms = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        "" => return Err(PeriodError::NoUnit(text.to_owned())),
        _ => return Err(PeriodError::Malformed(text.to_owned())),
    };
    if digits == 0 {
        return Err(PeriodError::Malformed(text.to_owned()));
    }
    let period = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit_ms)).map(Duration::from_millis);
    match period {
        Some(Duration::ZERO) => Err(PeriodError::Zero),
        Some(period) if period <= PERIOD_MAX => Ok(period),
        _ => Err(PeriodError::TooLong(text.to_owned())),
    }
}

#[cfg(all(test, not(engine_loom)))]
mod tests {
    use super::*;

    #[test]
    fn periods_have_units_and_bounds() {
        for (text, period) in [
            ("1ms", PERIOD_MIN),
            ("250ms", Duration::from_millis(250)),
            ("1s", Duration::from_secs(1)),
            ("15m", Duration::from_mins(15)),
            ("1h", Duration::from_hours(1)),
            ("366d", PERIOD_MAX),
        ] {
            assert_eq!(parse_period(text), Ok(period), "{text}");
        }
        for text in
            ["", "0s", "0ms", "s", "1", "1.5s", "-1s", "1 s", "1w", "367d", "99999999999999999999d", "1µs", "١s"]
        {
            assert!(parse_period(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_period_error_says_what_is_wrong_and_what_is_right() {
        let text_of = |period: &str| parse_period(period).expect_err("wrong").to_string();
        let form = "write a whole number and a unit: 250ms, 1s, 15m, 1h, 1d";
        assert_eq!(text_of("15"), format!("`15` has no unit; {form}"));
        assert_eq!(text_of("1w"), format!("`1w` is not a period; {form}"));
        assert_eq!(text_of("0s"), "a period of zero has no rate; the shortest period is 1ms");
        assert_eq!(text_of("367d"), "`367d` is longer than the longest period, 366d");
    }

    #[test]
    fn timestamps_saturate_at_both_ends() {
        let (first, last) = (Timestamp::from_nanos(0), Timestamp::from_nanos(u64::MAX));
        assert_eq!(Timestamp::from(UNIX_EPOCH - Duration::from_secs(1)), first);
        assert_eq!(Timestamp::from(UNIX_EPOCH + Duration::from_secs(1 << 35)), last);
        assert_eq!(first - Duration::from_nanos(1), first);
        assert_eq!(last + Duration::MAX, last);
        assert_eq!(first.duration_since(last), Duration::ZERO);
        assert_eq!(Timestamp::from(SystemTime::from(last)), last);
    }
}
