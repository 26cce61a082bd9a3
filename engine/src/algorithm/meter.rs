//! The meter of a limit: whichever algorithm it has, with its numbers.

use super::{
    carry::Carry,
    fixed_window::FixedWindow,
    sliding_window_counter::SlidingWindowCounter,
    sliding_window_log::SlidingWindowLog,
    token_bucket::{OneToken, TokenBucket},
    verdict::{Receipt, Verdict},
};
use crate::base::time::Nanos;

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
