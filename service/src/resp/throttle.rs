//! `CL.THROTTLE` of redis-cell and `THROTTLE` of throttlecrab: limits whose numbers come with the command.

use std::{num::NonZeroU16, time::Duration};

use tidegate::{Outcome, RatedLimiter, Retry, algorithm::TokenBucket, clock::Clock, time::SECOND_NS};

use super::error::Error;

/// A year, in seconds: the longest period, and the longest time in which a key fills.
const PERIOD_MAX_S: u64 = 366 * 24 * 60 * 60;

/// Whose words are used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Dialect {
    /// Holds one more than `max_burst`; answers 0 when it is allowed.
    RedisCell,
    /// Holds `max_burst`; answers 1 when it is allowed, and the wait last.
    Throttlecrab,
}

/// What is asked: of which bucket, and how many tokens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Throttle<'a> {
    dialect: Dialect,
    key: &'a [u8],
    bucket: TokenBucket,
    burst: u64,
    quantity: u64,
}

impl<'a> Throttle<'a> {
    /// From `key max_burst count period [quantity]`: `count` tokens come back in `period` seconds.
    pub(super) fn read(dialect: Dialect, arguments: &[&'a [u8]]) -> Result<Self, Error> {
        let (key, max_burst, count, period, quantity) = match *arguments {
            [key, max_burst, count, period] => (key, max_burst, count, period, None),
            [key, max_burst, count, period, quantity] => (key, max_burst, count, period, Some(quantity)),
            _ => return Err(Error::Usage(dialect)),
        };
        let number = |field, argument: &[u8]| {
            let number = whole_number(argument);
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
        let bucket = TokenBucket::new(count, period * SECOND_NS, burst).map_err(|why| {
            // Here they have other names.
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

    /// Charges it for a caller of this group, if it is allowed; a quantity of 0 asks what is left.
    pub(super) fn charge<C: Clock>(&self, limiter: &RatedLimiter<C>, group: NonZeroU16) -> Outcome {
        limiter.check_n_by(group, self.key, self.bucket, self.quantity)
    }

    /// The five numbers of an answer.
    pub(super) fn answer(&self, outcome: &Outcome) -> [i64; 5] {
        let wait = match outcome.retry() {
            Retry::Now => Wait::None,
            Retry::After(wait) => Wait::For(wait),
            Retry::Never => Wait::Never,
        };
        self.told(outcome.is_allowed(), outcome.remaining(), wait, outcome.reset_after())
    }

    /// The same where there is no decision.
    pub(super) fn undecided(&self, is_allowed: bool, wait: Duration) -> [i64; 5] {
        let wait = if is_allowed { Wait::None } else { Wait::For(wait) };
        self.told(is_allowed, 0, wait, Duration::ZERO)
    }

    fn told(&self, is_allowed: bool, remaining: u64, wait: Wait, reset: Duration) -> [i64; 5] {
        let (limit, remaining, reset) = (whole(self.burst), whole(remaining), seconds(reset));
        match self.dialect {
            Dialect::RedisCell => {
                let wait = if let Wait::For(wait) = wait { seconds(wait) } else { -1 };
                [i64::from(!is_allowed), limit, remaining, wait, reset]
            }
            Dialect::Throttlecrab => {
                let wait = match wait {
                    Wait::None => 0,
                    Wait::For(wait) => seconds(wait),
                    Wait::Never => -1,
                };
                [i64::from(is_allowed), limit, remaining, reset, wait]
            }
        }
    }
}

/// Reads a whole number, as `str::parse` does; `None`: the argument is no number, or one that does not fit.
fn whole_number(argument: &[u8]) -> Option<i64> {
    // So many digits fit.
    if (1..=18).contains(&argument.len()) && argument.iter().all(u8::is_ascii_digit) {
        return Some(argument.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0')));
    }
    str::from_utf8(argument).ok()?.parse().ok()
}

/// When to come again.
#[derive(Clone, Copy)]
enum Wait {
    None,
    For(Duration),
    Never,
}

/// A number as the protocol has them.
pub(super) fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Seconds, rounded up: whoever waits for so long does not come too early.
pub(super) fn seconds(time: Duration) -> i64 {
    whole(time.as_secs() + u64::from(time.subsec_nanos() > 0))
}

#[cfg(test)]
mod tests;
