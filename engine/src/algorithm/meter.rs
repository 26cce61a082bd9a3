//! The meter of a limit: its numbers, compiled for its algorithm.

use std::time::Duration;

use super::{
    carry::Carry,
    fixed_window::FixedWindow,
    sliding_window_counter::SlidingWindowCounter,
    sliding_window_log::SlidingWindowLog,
    token_bucket::{OneToken, TokenBucket},
    verdict::{Receipt, Verdict},
};
use crate::base::time::Nanos;

/// One limit's compiled numbers. The meter interprets the words of the limit's buckets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Meter {
    /// A token bucket, by GCRA.
    TokenBucket(TokenBucket),
    /// A leaky bucket: GCRA as a queue, in which an admitted request waits for its turn.
    LeakyBucket(TokenBucket),
    /// A count for each aligned window.
    FixedWindow(FixedWindow),
    /// The counts of two aligned windows, weighted.
    SlidingWindowCounter(SlidingWindowCounter),
    /// A log of admissions. The steps here use one word alone and are stricter than the engine's log, which has a ring of
    /// instants beside the word.
    SlidingWindowLog(SlidingWindowLog),
}

/// Calls the method of the algorithm that a meter has.
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
    /// Returns the precomputed step of a cost of one, for a token bucket.
    pub(crate) fn one_token(&self) -> Option<OneToken> {
        match self {
            Self::TokenBucket(bucket) => bucket.one_token(),
            _ => None,
        }
    }

    /// Returns the most tokens that can be used at once: the burst of a bucket, the limit of a window.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        each!(self, algorithm => algorithm.capacity())
    }

    /// Returns the time in which the whole [`capacity`](Self::capacity) comes back: for a bucket, from empty to full; for a window,
    /// its length (for a calendar, the mean length).
    #[must_use]
    pub fn period(&self) -> Duration {
        Duration::from_nanos(self.period_ns())
    }

    /// Returns the nanoseconds of [`period`](Self::period), for the crates of this repository; it may change in any version.
    #[doc(hidden)]
    #[must_use]
    pub fn period_ns(&self) -> u64 {
        each!(self, algorithm => algorithm.whole_period_ns())
    }

    /// Returns the meter for a clock that is `ns` nanoseconds ahead of wall time. Windows follow wall time.
    pub(crate) fn ahead_of_wall(self, ns: u64) -> Self {
        match self {
            Self::FixedWindow(window) => Self::FixedWindow(window.ahead_of_wall(ns)),
            Self::SlidingWindowCounter(counter) => Self::SlidingWindowCounter(counter.ahead_of_wall(ns)),
            other => other,
        }
    }

    /// Returns whether its windows follow the calendar of a time zone.
    pub(crate) fn is_of_calendar(&self) -> bool {
        matches!(self, Self::FixedWindow(window) if window.is_of_calendar())
    }
}

/// Steps over the word of a bucket, for the crates of this repository. They may change in any version.
#[doc(hidden)]
impl Meter {
    /// Decides a cost of at least 1 at time `now`.
    #[inline(always)]
    pub fn step(&self, word: u64, now: Nanos, cost: u64) -> Verdict {
        each!(self, algorithm => algorithm.step(word, now, cost))
    }

    /// Returns the largest cost that would be admitted now.
    #[must_use]
    pub fn remaining(&self, word: u64, now: Nanos) -> u64 {
        each!(self, algorithm => algorithm.remaining(word, now))
    }

    /// Returns the nanoseconds until the whole capacity is available again.
    #[must_use]
    pub fn reset_after_ns(&self, word: u64, now: Nanos) -> u64 {
        each!(self, algorithm => algorithm.reset_after_ns(word, now))
    }

    /// Returns the nanoseconds that an admitted cost has to wait for its turn: 0 except for a leaky bucket, whose queue drains
    /// at its rate. `word` is the one that the charge wrote.
    #[must_use]
    #[inline(always)]
    pub fn delay_ns(&self, word: u64, now: Nanos, cost: u64) -> u64 {
        match self {
            Self::LeakyBucket(queue) => queue.before(word, cost).saturating_sub(now),
            _ => 0,
        }
    }

    /// Returns a meter over the same words that admits only where no delay would follow.
    #[cfg(feature = "wait")]
    pub(crate) fn undelayed(self) -> Self {
        match self {
            Self::LeakyBucket(queue) => Self::LeakyBucket(queue.undelayed()),
            other => other,
        }
    }

    /// Returns the word after a charge was given back, or `None` where nothing is left to give back.
    ///
    /// `now` must have been read after `word`. Never gives back what time has returned already.
    #[must_use]
    pub fn give_back(&self, word: u64, now: Nanos, receipt: &Receipt) -> Option<u64> {
        each!(self, algorithm => algorithm.give_back(word, now, receipt))
    }

    /// Returns whether a token bucket's word holds less than the part of a charge that time has not repaid. Stripes of
    /// the key gave the rest, and it is not charged to the word yet.
    pub(crate) fn is_short_of(&self, word: u64, now: Nanos, receipt: &Receipt) -> bool {
        matches!(self, Self::TokenBucket(bucket) if bucket.is_short_of(word, now, receipt))
    }

    /// Returns the word after `cost` was charged even if it does not fit, because it was used already and is known only
    /// now. Later costs wait for it: [`debt_room`](Self::debt_room) says how much may be charged before they wait too
    /// long. A window counts at most what its field holds, and forgets it at its end; a log counts at most its limit,
    /// for a period.
    #[must_use]
    pub fn overcharge(&self, word: u64, now: Nanos, cost: u64) -> u64 {
        each!(self, algorithm => algorithm.overcharge(word, now, cost))
    }

    /// Returns the largest cost of an [`overcharge`](Self::overcharge) after which at most `max_debt` tokens are owed
    /// above the capacity; 0 where as many or more are owed already. For a window or a log, which forget a debt within
    /// a period, any cost.
    #[must_use]
    pub fn debt_room(&self, word: u64, now: Nanos, max_debt: u64) -> u64 {
        match self {
            Self::TokenBucket(bucket) | Self::LeakyBucket(bucket) => bucket.debt_room(word, now, max_debt),
            Self::FixedWindow(_) | Self::SlidingWindowCounter(_) | Self::SlidingWindowLog(_) => u64::MAX,
        }
    }

    /// Returns a word with at least as much used as in either word. Of two windows, the later one counts.
    #[must_use]
    pub fn merge(&self, one: u64, other: u64) -> u64 {
        match self {
            Self::SlidingWindowCounter(counter) => counter.merge(one, other),
            // Words are instants, or a window and what is used in it, so the larger one has more used.
            _ => one.max(other),
        }
    }

    /// Returns the start of the window that a word counts in, which is the earliest time at which it can have been written; 0 for
    /// algorithms whose word does not say.
    fn since(&self, word: u64) -> Nanos {
        match self {
            _ if word == 0 => 0,
            // A log's word has the instant rounded up, which would carry too much.
            Self::TokenBucket(_) | Self::LeakyBucket(_) | Self::SlidingWindowLog(_) => 0,
            Self::FixedWindow(window) => window.since(word),
            Self::SlidingWindowCounter(counter) => counter.since(word),
        }
    }

    /// Converts `word`, as it stands at time `at`, to the numbers of `next`. `carry` says how much stays used, up to the new
    /// capacity.
    #[must_use]
    pub fn carry_over(&self, word: u64, at: Nanos, next: &Self, carry: Carry) -> u64 {
        match (self, next) {
            _ if carry == Carry::Reset => 0,
            // The windows are the same, so the count needs no instant, and keeps the charges after `at`.
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
                // A check may have written the word after `at`; then the word counts what was used until then.
                let at = at.max(self.since(word));
                let used = each!(self, algorithm => algorithm.used(word, at));
                let carried = carry.carried(used, self.capacity(), next.capacity());
                each!(next, algorithm => algorithm.with_used(carried, at))
            }
        }
    }
}
