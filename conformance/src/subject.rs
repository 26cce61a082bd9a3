//! Traits that a tested implementation provides, with the types of its calls and replies.

use std::ops::Range;

use tidegate::{clock::ManualClock, policy::Algorithm, time::Nanos};

use crate::{calendar::CalendarWindows, contention::SharedSubject};

/// Number of keys of a history, from 0 upwards: enough to see that keys are independent.
pub const KEYS: u8 = 3;

/// The numbers of one limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LimitNumbers {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Tokens per period; 0 denies everything.
    pub limit: u64,
    /// Nanoseconds; approximate if there is a calendar.
    pub period_ns: u64,
    /// The calendar of fixed windows that follow one.
    pub calendar: Option<CalendarWindows>,
    /// Most tokens at once, for the two buckets; the limit unless given.
    pub burst: Option<u64>,
    /// Most tokens that settlements may charge above the capacity, for the two buckets; the limit unless given.
    pub max_debt: Option<u64>,
}

impl LimitNumbers {
    /// Returns the most tokens that can be used at once.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        if self.limit == 0 { 0 } else { self.burst.unwrap_or(self.limit) }
    }

    /// Returns the most tokens that settlements may charge above the capacity of a bucket.
    #[must_use]
    pub fn debt_max(&self) -> u64 {
        self.max_debt.unwrap_or(self.limit)
    }

    /// Returns the aligned window that contains `at`.
    #[must_use]
    pub fn window(&self, at: Nanos) -> Range<Nanos> {
        if let Some(calendar) = self.calendar {
            return calendar.window(at);
        }
        let start = at / self.period_ns * self.period_ns;
        start..start.saturating_add(self.period_ns)
    }
}

/// Time of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment {
    /// The current time.
    pub now: Nanos,
    /// The call's first clock reading, which is before `now` if the thread read its clock and then stalled. It differs from
    /// `now` only if [`Subject::can_stall`]; a clock that is read again during the call shows `now`.
    pub read: Nanos,
}

/// A call to a subject.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SubjectCall {
    /// Checks a cost, and charges it if it is allowed.
    Check {
        /// Below [`KEYS`].
        key: u8,
        /// At least 1.
        cost: u64,
    },
    /// Reports what a check would reply; with cost 0, how much is left.
    Peek {
        /// Below [`KEYS`].
        key: u8,
        /// Tokens.
        cost: u64,
    },
    /// Checks and charges an estimate, for work whose cost is known only afterwards.
    Reserve {
        /// Below [`KEYS`].
        key: u8,
        /// At least 1.
        estimate: u64,
        /// Identifies the charge in later calls, if the reservation is allowed.
        charge: usize,
    },
    /// Ends a reservation whose work is done: refunds what it did not use, and charges what it used above the estimate.
    Settle {
        /// An open reservation.
        charge: usize,
        /// The actual cost.
        actual: u64,
    },
    /// Ends a reservation whose work was not done: refunds all of it.
    Refund {
        /// An open reservation.
        charge: usize,
    },
    /// Resets what the key has used.
    Reset {
        /// Below [`KEYS`].
        key: u8,
    },
    /// Changes the limit's numbers; what was used stays used.
    Publish {
        /// New numbers of the same limit.
        numbers: LimitNumbers,
    },
}

/// Reply of a subject to a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum SubjectReply {
    /// The reply to a check, a peek or a reservation.
    Check(CheckReply),
    /// The call had its effect.
    Done,
    /// The subject does not support this call, or not with these numbers; nothing changed.
    Unsupported,
}

/// Reply to a check. A field that a subject does not report is `None`, and is not checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub struct CheckReply {
    /// The clock value at which it was decided; the moment's `read` if `None`.
    pub at: Option<Nanos>,
    /// Allowed or not, and after which wait.
    pub outcome: CheckOutcome,
    /// The largest cost that would be admitted now.
    pub remaining: Option<u64>,
    /// Nanoseconds until everything is available again.
    pub reset_after_ns: Option<u64>,
    /// Nanoseconds that an allowed call has to wait for its turn.
    pub delay_ns: Option<u64>,
}

/// Outcome of a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CheckOutcome {
    /// The call is allowed.
    Allowed,
    /// The call is denied for now.
    Later {
        /// Nanoseconds after which the same call is admitted, unless another one is admitted first.
        wait_ns: u64,
    },
    /// The call is denied permanently: its cost is above the capacity.
    Never,
}

/// An implementation of one limit with an empty history, with a clock that the suite sets.
pub trait Subject {
    /// Executes one call. Time never goes back from call to call, except in [`Moment::read`].
    fn call(&mut self, moment: Moment, call: &SubjectCall) -> SubjectReply;

    /// Returns whether a call can use a clock reading that is older than the last one.
    fn can_stall(&self) -> bool {
        false
    }
}

/// The implementation under test. It creates limiters with given numbers, or returns `None` if it cannot represent them.
pub trait Implementation {
    /// Creates a limiter for sequential calls.
    fn subject(&self, numbers: &LimitNumbers) -> Option<Box<dyn Subject>>;

    /// Creates a limiter with this clock that threads share, or returns `None` if threads cannot share it.
    fn shared(&self, numbers: &LimitNumbers, clock: &ManualClock) -> Option<Box<dyn SharedSubject>> {
        let _ = (numbers, clock);
        None
    }
}
