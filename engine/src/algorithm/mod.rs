//! The algorithms: pure functions from a word, the time and a cost to a verdict and the next word. No atomics, no clock.

mod calendar;
mod carry;
mod fixed_window;
mod sliding_window_counter;
mod sliding_window_log;
mod text;
mod token_bucket;
mod transition;

pub(crate) use calendar::Calendar;
pub use carry::Carry;
pub use fixed_window::FixedWindow;
#[cfg(feature = "formats")]
pub(crate) use fixed_window::LIMIT_MAX as WINDOW_LIMIT_MAX;
pub use sliding_window_counter::SlidingWindowCounter;
pub use sliding_window_log::SlidingWindowLog;
pub use token_bucket::TokenBucket;
pub(crate) use token_bucket::{OneToken, refill};
pub use transition::{Addition, Transition};

use std::fmt;

use crate::base::time::{Nanos, SECOND_NS};

/// The largest whole number that a policy or a cost may carry: 2^53 - 1, the largest that every JSON reader keeps.
pub const NUMBER_MAX: u64 = (1 << 53) - 1;

/// What one step decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Verdict {
    /// Admitted, and this is the word to store.
    Admit(u64),
    /// Refused now; the same cost is admitted in `wait_ns` nanoseconds (at least 1) if nobody else comes. Costs nothing.
    Later {
        /// Nanoseconds from the `now` of the step.
        wait_ns: u64,
    },
    /// The cost is above the capacity: refused for ever. Costs nothing.
    Never,
}

impl Verdict {
    /// The word to store, if it is admitted.
    #[inline(always)]
    pub(crate) fn admitted(self) -> Option<u64> {
        match self {
            Self::Admit(word) => Some(word),
            Self::Later { .. } | Self::Never => None,
        }
    }
}

/// What a charge leaves behind for giving it back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Receipt {
    /// Tokens that were charged.
    pub cost: u64,
    /// The `now` of the step that charged them.
    pub charged_at: Nanos,
    /// The word that the charge wrote.
    pub word: u64,
    /// At most so many nanoseconds were given back to the same bucket since, for other charges; `u64::MAX` when unknown.
    pub moved_ns: u64,
}

/// Tokens in use, in units of 2^-16 token: how quota is carried from one set of numbers to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Used(u128);

impl Used {
    const FRACTION_BITS: u32 = 16;

    /// `tokens` whole tokens.
    #[must_use]
    pub(crate) fn whole(tokens: u64) -> Self {
        Self(u128::from(tokens) << Self::FRACTION_BITS)
    }

    /// In whole tokens, rounded up.
    fn ceil(self) -> u64 {
        u64::try_from(self.0.div_ceil(1 << Self::FRACTION_BITS)).unwrap_or(u64::MAX)
    }
}

/// A parameter that no word can carry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unfit {
    /// The parameter: `limit`, `period` or `burst`.
    pub field: &'static str,
    /// What is wrong and what would be right.
    pub message: String,
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

impl std::error::Error for Unfit {}

/// One limit's numbers, compiled: what interprets the words of its buckets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Meter {
    /// GCRA.
    TokenBucket(TokenBucket),
    /// GCRA too, as a queue: what is admitted waits for its turn.
    LeakyBucket(TokenBucket),
    /// Aligned windows.
    FixedWindow(FixedWindow),
    /// Two aligned windows, weighted.
    SlidingWindowCounter(SlidingWindowCounter),
    /// A log of admissions. As steps over one word, which is what stands here, it is stricter than the engine's, which has
    /// a ring of instants beside the word.
    SlidingWindowLog(SlidingWindowLog),
}

/// One way to say "the method of whichever algorithm this is".
macro_rules! each {
    ($meter:expr, $algorithm:ident => $answer:expr) => {
        match $meter {
            Meter::TokenBucket($algorithm) | Meter::LeakyBucket($algorithm) => $answer,
            Meter::FixedWindow($algorithm) => $answer,
            Meter::SlidingWindowCounter($algorithm) => $answer,
            Meter::SlidingWindowLog($algorithm) => $answer,
        }
    };
}

impl Meter {
    /// Decides a cost of at least 1 at time `now`.
    #[inline(always)]
    pub fn step(&self, word: u64, now: Nanos, cost: u64) -> Verdict {
        each!(self, algorithm => algorithm.step(word, now, cost))
    }

    /// The step of a cost of one, where it can be worked out beforehand: of a token bucket.
    pub(crate) fn one_token(&self) -> Option<OneToken> {
        match self {
            Self::TokenBucket(bucket) => bucket.one_token(),
            _ => None,
        }
    }

    /// The most that can be used at once: the burst of a bucket, the limit of a window.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        each!(self, algorithm => algorithm.capacity())
    }

    /// Nanoseconds in which all that [`capacity`](Self::capacity) says comes back: of a bucket, from empty to full; of a
    /// window, its length (of a calendar, the mean one).
    #[must_use]
    pub fn period_ns(&self) -> u64 {
        each!(self, algorithm => algorithm.whole_period_ns())
    }

    /// The same limit by a clock that is so far ahead of wall time, by which windows begin and end.
    pub(crate) fn ahead_of_wall(self, ns: u64) -> Self {
        match self {
            Self::FixedWindow(window) => Self::FixedWindow(window.ahead_of_wall(ns)),
            Self::SlidingWindowCounter(counter) => Self::SlidingWindowCounter(counter.ahead_of_wall(ns)),
            other => other,
        }
    }

    /// Do its windows follow a calendar, which is that of a time zone?
    pub(crate) fn is_of_calendar(&self) -> bool {
        matches!(self, Self::FixedWindow(window) if window.is_of_calendar())
    }

    /// The largest cost that would be admitted now.
    #[must_use]
    pub fn remaining(&self, word: u64, now: Nanos) -> u64 {
        each!(self, algorithm => algorithm.remaining(word, now))
    }

    /// Nanoseconds until everything is available again.
    #[must_use]
    pub fn reset_after_ns(&self, word: u64, now: Nanos) -> u64 {
        each!(self, algorithm => algorithm.reset_after_ns(word, now))
    }

    /// Nanoseconds that an admitted cost has to wait for its turn: 0 but for a leaky bucket, whose queue drains at its
    /// rate. `word` is the one that the charge wrote.
    #[must_use]
    #[inline(always)]
    pub fn delay_ns(&self, word: u64, now: Nanos, cost: u64) -> u64 {
        match self {
            Self::LeakyBucket(queue) => queue.before(word, cost).saturating_sub(now),
            _ => 0,
        }
    }

    /// What admits only when no delay would follow, over the same words.
    #[cfg(feature = "wait")]
    pub(crate) fn undelayed(self) -> Self {
        match self {
            Self::LeakyBucket(queue) => Self::LeakyBucket(queue.undelayed()),
            other => other,
        }
    }

    /// The word after a charge was given back, or `None` where nothing is left to give.
    ///
    /// `now` must have been read after `word`. Never returns more than the passing of time has not returned already.
    #[must_use]
    pub fn give_back(&self, word: u64, now: Nanos, receipt: &Receipt) -> Option<u64> {
        each!(self, algorithm => algorithm.give_back(word, now, receipt))
    }

    /// Returns whether a token bucket's word holds less than the part of a charge that time has not repaid. The stripes of a
    /// lease gave the rest, and it is not charged to the word yet.
    pub(crate) fn is_short_of(&self, word: u64, now: Nanos, receipt: &Receipt) -> bool {
        matches!(self, Self::TokenBucket(bucket) if bucket.is_short_of(word, now, receipt))
    }

    /// The word after `cost` was charged although it may not fit: what was used already and is known only now. Later costs
    /// wait for it: [`debt_room`](Self::debt_room) says how much may be charged before they wait too long. A window holds at
    /// most what its field does, and forgets it at its end; a log at most its limit, for a period.
    #[must_use]
    pub fn overcharge(&self, word: u64, now: Nanos, cost: u64) -> u64 {
        each!(self, algorithm => algorithm.overcharge(word, now, cost))
    }

    /// The largest cost of an [`overcharge`](Self::overcharge) after which at most `max_debt` tokens are owed above the
    /// capacity; 0 where as many or more are owed already. Any cost of a window or a log, which forget a debt within a period.
    #[must_use]
    pub fn debt_room(&self, word: u64, now: Nanos, max_debt: u64) -> u64 {
        match self {
            Self::TokenBucket(bucket) | Self::LeakyBucket(bucket) => bucket.debt_room(word, now, max_debt),
            Self::FixedWindow(_) | Self::SlidingWindowCounter(_) | Self::SlidingWindowLog(_) => u64::MAX,
        }
    }

    /// At least as much used as either word says. Of two windows, the later one.
    #[must_use]
    pub fn merge(&self, one: u64, other: u64) -> u64 {
        match self {
            Self::SlidingWindowCounter(counter) => counter.merge(one, other),
            // An instant; or the window and what is used in it.
            _ => one.max(other),
        }
    }

    /// When the window began that a word counts in, and so the earliest that it can have been written; 0 where no window says.
    fn since(&self, word: u64) -> Nanos {
        match self {
            _ if word == 0 => 0,
            // A log's word says it rounded up, which would carry too much.
            Self::TokenBucket(_) | Self::LeakyBucket(_) | Self::SlidingWindowLog(_) => 0,
            Self::FixedWindow(window) => window.since(word),
            Self::SlidingWindowCounter(counter) => counter.since(word),
        }
    }

    /// `word`, as it stands at time `at`, under the numbers of `next`: what `carry` says of what was used, up to the new
    /// capacity.
    #[must_use]
    pub fn carry_over(&self, word: u64, at: Nanos, next: &Self, carry: Carry) -> u64 {
        match (self, next) {
            _ if carry == Carry::Reset => 0,
            // The same windows: a count needs no instant, which keeps those charged after `at`.
            (Self::FixedWindow(old), Self::FixedWindow(new)) if old.has_windows_of(new) => {
                old.in_windows_of(word, new, carry)
            }
            (Self::SlidingWindowCounter(old), Self::SlidingWindowCounter(new)) if old.has_windows_of(new) => {
                old.in_windows_of(word, new, carry)
            }
            (Self::SlidingWindowLog(old), Self::SlidingWindowLog(new)) if old.has_period_of(new) => {
                old.in_limit_of(word, new, carry)
            }
            _ => {
                // A word that a check wrote after `at` stands for what was used by then too.
                let at = at.max(self.since(word));
                let used = each!(self, algorithm => algorithm.used(word, at));
                let carried = carry.carried(used, self.capacity(), next.capacity());
                each!(next, algorithm => algorithm.with_used(carried, at))
            }
        }
    }
}

/// Windows are counted in seconds.
fn whole_seconds(period_ns: u64) -> Result<(), Unfit> {
    if period_ns.is_multiple_of(SECOND_NS) {
        return Ok(());
    }
    let message = "a window counts in whole seconds; use 1s or more, or token_bucket".to_owned();
    Err(Unfit { field: "period", message })
}

fn in_range(field: &'static str, value: u64, min: u64, max: u64) -> Result<(), Unfit> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(Unfit { field, message: format!("{value} is out of range; from {min} to {max} fit") })
}
