//! What is tested, and the little that the suite needs to speak with it.

use std::ops::Range;

use tidegate::{clock::ManualClock, policy::Algorithm, time::Nanos};

use crate::{calendar::Calendar, contend::Shared};

/// How many keys a history uses, from 0 upwards: enough to see that they do not touch each other.
pub const KEYS: u8 = 3;

/// The numbers of one limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Numbers {
    /// How it counts.
    pub algorithm: Algorithm,
    /// Tokens per period; 0 denies everything.
    pub limit: u64,
    /// Nanoseconds; of a calendar, more or less.
    pub period_ns: u64,
    /// For fixed windows that begin and end by it.
    pub calendar: Option<Calendar>,
    /// Most tokens at once, for the two buckets; the limit unless given.
    pub burst: Option<u64>,
    /// Most tokens that settlements may charge above the capacity, for the two buckets; the limit unless given.
    pub max_debt: Option<u64>,
}

impl Numbers {
    /// The most that can be used at once.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        if self.limit == 0 { 0 } else { self.burst.unwrap_or(self.limit) }
    }

    /// The most tokens that settlements may charge above the capacity of a bucket.
    #[must_use]
    pub fn debt_max(&self) -> u64 {
        self.max_debt.unwrap_or(self.limit)
    }

    /// The aligned window that `at` lies in.
    #[must_use]
    pub fn window(&self, at: Nanos) -> Range<Nanos> {
        if let Some(calendar) = self.calendar {
            return calendar.window(at);
        }
        let start = at / self.period_ns * self.period_ns;
        start..start.saturating_add(self.period_ns)
    }
}

/// When a call happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment {
    /// What the clock shows.
    pub now: Nanos,
    /// What the call reads first: before `now` for a thread that read its clock and stalled. Only for a
    /// [`Subject::can_stall`]; a clock that is read again during the call shows `now`.
    pub read: Nanos,
}

/// One thing to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Call {
    /// Decide, and charge what is allowed.
    Check {
        /// Below [`KEYS`].
        key: u8,
        /// At least 1.
        cost: u64,
    },
    /// Say what a check would answer; of cost 0: what is left.
    Peek {
        /// Below [`KEYS`].
        key: u8,
        /// In tokens.
        cost: u64,
    },
    /// As a check, for work whose cost is known only afterwards.
    Reserve {
        /// Below [`KEYS`].
        key: u8,
        /// At least 1.
        estimate: u64,
        /// The number by which later calls name this charge, if it becomes one.
        charge: usize,
    },
    /// The work of a reservation is done: give back what it did not need, charge what it needed above.
    Settle {
        /// Of a reservation that stands.
        charge: usize,
        /// What it did cost.
        actual: u64,
    },
    /// The work of a reservation was not done: give it back.
    Refund {
        /// Of a reservation that stands.
        charge: usize,
    },
    /// Forget what the key has used.
    Reset {
        /// Below [`KEYS`].
        key: u8,
    },
    /// Other numbers from now on; what was used stays used.
    Publish {
        /// Of the same limit.
        numbers: Numbers,
    },
}

/// What a call came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Reply {
    /// Of a check, a peek, a reservation.
    Answer(Answer),
    /// It is done.
    Done,
    /// The subject cannot do this, or not with these numbers: nothing changed.
    Unsupported,
}

/// The answer to a check. What a subject does not say is `None`, and is not judged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub struct Answer {
    /// The clock value at which it was decided; the moment's `read` unless said.
    pub at: Option<Nanos>,
    /// Allowed or not, and when again.
    pub outcome: Outcome,
    /// The largest cost that would be admitted now.
    pub remaining: Option<u64>,
    /// Nanoseconds until everything is available again.
    pub reset_after_ns: Option<u64>,
    /// Nanoseconds that an allowed call has to wait for its turn.
    pub delay_ns: Option<u64>,
}

/// Allowed or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It may go on.
    Allowed,
    /// Not now.
    Later {
        /// Nanoseconds after which the same call is admitted, if nobody else comes.
        wait_ns: u64,
    },
    /// It costs more than there ever is.
    Never,
}

/// An implementation of one limit with an empty history, behind a clock that the suite sets.
pub trait Subject {
    /// Does one thing. Time never goes back from call to call, but for [`Moment::read`].
    fn call(&mut self, moment: Moment, call: &Call) -> Reply;

    /// Can it be given a clock reading that is older than the last one?
    fn can_stall(&self) -> bool {
        false
    }

    /// Waits and resets are told as a multiple of this, rounded up.
    fn told_in_ns(&self) -> u64 {
        1
    }
}

/// What is held to the suite: it makes limiters of given numbers, or `None` when it cannot carry them.
pub trait Implementation {
    /// One limiter, which is asked one thing after another.
    fn subject(&self, numbers: &Numbers) -> Option<Box<dyn Subject>>;

    /// One limiter that threads share, whose clock is this one; `None` too where threads cannot share it.
    fn shared(&self, numbers: &Numbers, clock: &ManualClock) -> Option<Box<dyn Shared>> {
        let _ = (numbers, clock);
        None
    }
}
