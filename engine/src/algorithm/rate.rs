//! A rate: the numbers of a token bucket, for limiters without a policy.

use std::time::Duration;

use super::{meter::Meter, token_bucket::TokenBucket};
use crate::base::time::{PERIOD_MAX, PERIOD_MIN, saturating_nanos};

/// A number of tokens per period, and the most at once (the burst). [`Limiter`](crate::Limiter) and
/// [`KeyedLimiter`](crate::KeyedLimiter) are made of a rate or of a [`Meter`]; a check of a
/// [`RatedLimiter`](crate::RatedLimiter) takes a rate or a [`TokenBucket`].
///
/// Every number is valid: a limit or a burst of 0 denies everything. Numbers that are too large for the engine are clamped: a
/// limit or a burst to 2^53 - 1, and a burst to the tokens that come back within a hundred years.
///
/// ```
/// use tidegate::{Limiter, Rate};
///
/// const SEARCHES: Rate = Rate::per_minute(30).burst(5);
/// let limiter = Limiter::new(SEARCHES);
/// assert_eq!(limiter.peek().limit(), 5);
/// assert!(!Limiter::new(Rate::per_minute(0)).check().is_allowed());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub struct Rate {
    limit: u64,
    period: Duration,
    burst: u64,
}

impl Rate {
    /// Creates a rate of `limit` tokens a second, with a burst of `limit`.
    pub const fn per_second(limit: u64) -> Self {
        Self { limit, period: Duration::from_secs(1), burst: limit }
    }

    /// Creates a rate of `limit` tokens a minute, with a burst of `limit`.
    pub const fn per_minute(limit: u64) -> Self {
        Self { limit, period: Duration::from_mins(1), burst: limit }
    }

    /// Creates a rate of `limit` tokens an hour, with a burst of `limit`.
    pub const fn per_hour(limit: u64) -> Self {
        Self { limit, period: Duration::from_hours(1), burst: limit }
    }

    /// Creates a rate of `limit` tokens in a period, with a burst of `limit`. The period is clamped to between 1 ms and 366 days.
    pub fn per(limit: u64, period: Duration) -> Self {
        Self { limit, period: period.clamp(PERIOD_MIN, PERIOD_MAX), burst: limit }
    }

    /// Returns the same rate with at most `burst` tokens at once. A client may spend the burst after a pause, before it is held
    /// to the rate. A burst of 1 spaces calls evenly.
    pub const fn burst(self, burst: u64) -> Self {
        Self { burst, ..self }
    }

    /// Returns the limit, the period in nanoseconds, and the burst.
    pub(crate) fn numbers(self) -> [u64; 3] {
        [self.limit, saturating_nanos(self.period), self.burst]
    }
}

/// Converts a rate to its token bucket, or to `None` where it admits nothing.
impl From<Rate> for Option<TokenBucket> {
    fn from(Rate { limit, period, burst }: Rate) -> Self {
        if limit == 0 || burst == 0 {
            return None;
        }
        Some(TokenBucket::clamped(limit, period, burst))
    }
}

/// Converts a rate to its meter, or to `None` where it admits nothing.
impl From<Rate> for Option<Meter> {
    fn from(rate: Rate) -> Self {
        Option::<TokenBucket>::from(rate).map(Meter::TokenBucket)
    }
}
