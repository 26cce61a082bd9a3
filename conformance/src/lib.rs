//! Conformance suite for rate limiters: an exact model, and one function that tests any implementation against it.
//!
//! [`conform`] runs random histories through each [`Subject`] that an [`Implementation`] makes, and compares every reply with
//! an exact model that keeps the whole history. Costs, limits, periods and gaps take extreme values, calls happen a nanosecond
//! before and after each instant that matters, and threads stall after reading their clock. Then threads contend for a few
//! keys of each [`SharedSubject`], and the sum of what they admitted is compared with the bound. A run that has not exercised
//! enough fails: see [`Coverage`].
//!
//! An implementation can be a function, an engine, a server or a script in a store. It declares what it supports: it makes no
//! limiter of numbers that it cannot represent, replies [`SubjectReply::Unsupported`] to a call that it does not know, and
//! leaves out of a [`CheckReply`] what it does not report. It must use a clock that the suite can set.
//!
//! The suite checks after each call:
//!
//! * over every interval no more was admitted than the algorithm's bound;
//! * the exact rule admits what was admitted and denies what was denied, except for the rounding that the algorithm's
//!   documentation states, which is always against the client;
//! * a denial charges nothing; a denial is permanent if and only if the cost is above the capacity;
//! * remaining, reset-after, retry-after and delay lie between the values of the exact rule and of the stated rounding;
//!   retry-after is never 0, and each value is exact: that many tokens are admitted, from that instant on;
//! * a peek reports what the check then reports, and changes nothing; a stale clock reading creates no tokens;
//! * a refund gives back at most what was charged and what time has not given back; a settlement above its estimate is
//!   charged, up to the largest debt that the limit allows; a change of the numbers keeps what was used.
//!
//! proptest shrinks a failing history, and prints it as a [`History`] that [`replay`] runs again.

mod calendar;
mod contention;
mod deadline;
mod history;
mod judge;
mod model;
mod subject;

use std::{cell::RefCell, fmt};

pub use calendar::{CalendarUnit, CalendarWindows};
pub use contention::SharedSubject;
pub use deadline::Deadline;
pub use history::{Cost, Gap, History, HistoryOp, HistoryStep, Pick};
pub use judge::Coverage;
use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};
pub use subject::{
    CheckOutcome, CheckReply, Implementation, KEYS, LimitNumbers, Moment, Subject, SubjectCall, SubjectReply,
};
use tidegate::policy::Algorithm;

/// Size of a run.
#[derive(Clone, Debug)]
pub struct Effort {
    /// Algorithms of the limits, with equal probability.
    pub algorithms: Vec<Algorithm>,
    /// Number of histories.
    pub histories: u32,
    /// Most steps of a history.
    pub steps: usize,
}

/// Reason why an implementation does not conform.
#[derive(Clone)]
pub enum Nonconformance {
    /// A wrong reply: the shortest history that was found, and the error at its end.
    Wrong {
        /// Input for [`replay`].
        history: Box<History>,
        /// Description of the error.
        why: String,
    },
    /// Threads that contended for this limit were admitted too much or too little.
    Contended {
        /// The limit.
        numbers: LimitNumbers,
        /// Description of the error.
        why: String,
    },
    /// The run has not exercised enough.
    Vacuous(Box<Coverage>),
}

impl fmt::Display for Nonconformance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wrong { history, why } => write!(f, "{why}\nin {history}"),
            Self::Contended { numbers, why } => write!(f, "{why}\nby threads, of {numbers:?}"),
            Self::Vacuous(seen) => write!(f, "too little was tested: {seen:?}"),
        }
    }
}

/// Prints like `Display`, so that `expect` prints a history that can be replayed.
impl fmt::Debug for Nonconformance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Tests an implementation against the model: sequentially, with random histories that differ from run to run, and then with
/// threads.
pub fn conform(implementation: &dyn Implementation, effort: &Effort) -> Result<Coverage, Nonconformance> {
    let config = Config { failure_persistence: None, ..Config::with_cases(effort.histories) };
    let seen = RefCell::new(Coverage::default());
    let histories = history::histories(effort.algorithms.clone(), effort.steps);
    let outcome = TestRunner::new(config).run(&histories, |history| {
        judge::judge(implementation, &history, &mut seen.borrow_mut()).map_err(TestCaseError::fail)
    });
    let mut seen = seen.into_inner();
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(why, history)) => {
            return Err(Nonconformance::Wrong { history: Box::new(history), why: why.message().to_owned() });
        }
        Err(TestError::Abort(_)) => return Err(Nonconformance::Vacuous(Box::new(seen))),
    }
    for numbers in contention::limits(&effort.algorithms) {
        seen.turns +=
            contention::contend(implementation, &numbers).map_err(|why| Nonconformance::Contended { numbers, why })?;
    }
    let is_shown = [seen.allowed, seen.later, seen.never, seen.waited].iter().all(|count| *count > 0);
    let is_each_taken = effort.algorithms.iter().all(|algorithm| seen.taken.contains(algorithm));
    if is_shown && is_each_taken { Ok(seen) } else { Err(Nonconformance::Vacuous(Box::new(seen))) }
}

/// Runs one history; the error names the step with the wrong reply, and the difference.
pub fn replay(implementation: &dyn Implementation, history: &History) -> Result<Coverage, String> {
    let mut seen = Coverage::default();
    judge::judge(implementation, history, &mut seen)?;
    Ok(seen)
}
