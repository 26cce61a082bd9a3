//! Parses and runs the commands `CL.THROTTLE` of redis-cell and `THROTTLE` of throttlecrab: limits whose numbers come with the
//! command.

use std::{num::NonZeroU16, time::Duration};

use tidegate::{Outcome, RatedLimiter, Retry, algorithm::TokenBucket, clock::Clock};

use super::error::{Dialect, Error};

/// A year, in seconds: the longest period, and the longest time in which a bucket may fill.
const PERIOD_MAX_S: u64 = 366 * 24 * 60 * 60;

/// The arguments of a command: the bucket of a key, and the tokens to take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Throttle<'a> {
    dialect: Dialect,
    key: &'a [u8],
    bucket: TokenBucket,
    burst: u64,
    quantity: u64,
}

impl<'a> Throttle<'a> {
    /// Reads `key max_burst count period [quantity]`: `count` tokens come back in `period` seconds.
    pub(super) fn read(dialect: Dialect, arguments: &[&'a [u8]]) -> Result<Self, Error> {
        let (key, max_burst, count, period, quantity) = match *arguments {
            [key, max_burst, count, period] => (key, max_burst, count, period, None),
            [key, max_burst, count, period, quantity] => (key, max_burst, count, period, Some(quantity)),
            _ => return Err(Error::Usage(dialect)),
        };
        let number = |field, argument: &[u8]| {
            let number = parse_integer(argument);
            let number =
                number.ok_or_else(|| Error::NotWhole(dialect, String::from_utf8_lossy(argument).into_owned()))?;
            u64::try_from(number).map_err(|_| Error::Number(dialect, format!("{field}: {number} is below 0")))
        };
        let unfit = |error: &str| Error::Number(dialect, error.to_owned());
        let max_burst = number("max_burst", max_burst)?;
        let (count, period) = (number("count", count)?, number("period", period)?);
        let quantity = quantity.map_or(Ok(1), |quantity| number("quantity", quantity))?;
        let burst = max_burst + u64::from(dialect == Dialect::RedisCell);
        if !(1..=PERIOD_MAX_S).contains(&period) {
            return Err(unfit(&format!("period: {period} is out of range; from 1 to {PERIOD_MAX_S} seconds fit")));
        }
        let bucket = TokenBucket::new(count, Duration::from_secs(period), burst).map_err(|why| {
            // The arguments have other names than the fields of the bucket.
            let field = match why.field {
                "limit" => "count",
                "burst" => "max_burst",
                field => field,
            };
            unfit(&format!("{field}: {}", why.message))
        })?;
        // A key holds its place in the table until its bucket is full again.
        if u128::from(burst) * u128::from(period) > u128::from(PERIOD_MAX_S) * u128::from(count) {
            return Err(unfit(&format!(
                "max_burst: {burst} tokens would take longer than {PERIOD_MAX_S} seconds to come back; ask for fewer, or for a \
                 larger count in the period"
            )));
        }
        Ok(Self { dialect, key, bucket, burst, quantity })
    }

    /// Takes the tokens, if the bucket has them, for a caller of this group. A quantity of 0 takes none and returns the state.
    pub(super) fn charge<C: Clock>(&self, limiter: &RatedLimiter<C>, group: NonZeroU16) -> Outcome {
        limiter.check_n_in_group(group, self.key, self.bucket, self.quantity)
    }

    /// Returns the five numbers of the reply.
    pub(super) fn reply(&self, outcome: &Outcome) -> [i64; 5] {
        self.numbers(outcome.is_allowed(), outcome.remaining(), outcome.retry(), outcome.reset_after())
    }

    /// Returns the five numbers of the reply where there is no decision.
    pub(super) fn undecided_reply(&self, is_allowed: bool, wait: Duration) -> [i64; 5] {
        let retry = if is_allowed { Retry::Now } else { Retry::After(wait) };
        self.numbers(is_allowed, 0, retry, Duration::ZERO)
    }

    fn numbers(&self, is_allowed: bool, remaining: u64, retry: Retry, reset: Duration) -> [i64; 5] {
        let (limit, remaining, reset) = (to_integer(self.burst), to_integer(remaining), seconds(reset));
        match (self.dialect, retry) {
            (Dialect::RedisCell, Retry::After(wait)) => {
                [i64::from(!is_allowed), limit, remaining, seconds(wait), reset]
            }
            (Dialect::RedisCell, _) => [i64::from(!is_allowed), limit, remaining, -1, reset],
            (Dialect::Throttlecrab, retry) => {
                let wait = match retry {
                    Retry::Now => 0,
                    Retry::After(wait) => seconds(wait),
                    Retry::Never => -1,
                };
                [i64::from(is_allowed), limit, remaining, reset, wait]
            }
        }
    }
}

/// Reads a whole number, as `str::parse` does. Returns `None` where the argument is no number, or out of range.
fn parse_integer(argument: &[u8]) -> Option<i64> {
    // Numbers of up to 18 digits are in range.
    if (1..=18).contains(&argument.len()) && argument.iter().all(u8::is_ascii_digit) {
        return Some(argument.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0')));
    }
    str::from_utf8(argument).ok()?.parse().ok()
}

/// Returns a number as an integer of the protocol, which is signed.
pub(super) fn to_integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns seconds, rounded up, so that a retry after that time is not too early.
pub(super) fn seconds(time: Duration) -> i64 {
    to_integer(time.as_secs() + u64::from(time.subsec_nanos() > 0))
}

#[cfg(test)]
mod tests;
