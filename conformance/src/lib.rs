//! What a rate limiter must do, for any implementation of it.
//!
//! [`conform`] is the one function. It drives random histories through each [`Subject`] that an [`Implementation`] makes
//! and holds every answer against an exact model that keeps the whole history: costs, limits, periods and gaps at their
//! extremes, a nanosecond before and after each instant that matters, threads that stall after reading their clock. Then
//! it lets threads meet on a few keys of each [`Shared`] and holds the sum of what they admitted against the bound. It
//! wants to see the evidence that it has shown something, and fails without.
//!
//! An implementation is whatever answers: a function, an engine, a server, a script in a store. It says what it can do: it
//! makes no limiter of numbers that it cannot carry, answers [`Reply::Unsupported`] to a call that it does not know, and
//! leaves out of an [`Answer`] what it does not say. Of time it needs a clock that the suite can set.
//!
//! After each call:
//!
//! * over every interval no more was admitted than the algorithm's bound;
//! * what was admitted the exact rule admits, and what was refused it refuses, but for the rounding that the algorithm's
//!   documentation states, which is always against the client;
//! * a refusal costs nothing; one for ever is of a cost above the capacity, and no other is;
//! * remaining, reset-after, retry-after and delay lie between what the rule and what the stated rounding gives; retry-after
//!   is never 0, and what was told holds: exactly that much is admitted, from exactly then on;
//! * a peek says what the check then says, and changes nothing; a clock read long ago mints nothing;
//! * a refund gives back at most what was charged and time has not given back; a settlement above its estimate is charged, up
//!   to the largest debt that the limit takes; other numbers keep what was used.
//!
//! A failure is shrunk by proptest and printed as a [`History`] that [`replay`] runs again.

mod calendar;
mod contend;
mod deadline;
mod history;
mod judge;
mod model;
mod subject;

use std::{cell::RefCell, fmt};

pub use calendar::{Calendar, Unit};
pub use contend::Shared;
pub use deadline::Deadline;
pub use history::{Cost, Gap, History, Op, Pick, Step};
pub use judge::Coverage;
use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};
pub use subject::{Answer, Call, Implementation, KEYS, Moment, Numbers, Outcome, Reply, Subject};
use tidegate::policy::Algorithm;

/// How much a run tries.
#[derive(Clone, Debug)]
pub struct Effort {
    /// Limits of these, each as likely as the others.
    pub algorithms: Vec<Algorithm>,
    /// How many histories.
    pub histories: u32,
    /// How many steps the longest have.
    pub steps: usize,
}

/// Why a subject does not conform.
#[derive(Clone)]
pub enum Failure {
    /// It did something wrong: the shortest history that was found, and what was wrong at its end.
    Wrong {
        /// For [`replay`].
        history: Box<History>,
        /// What was wrong.
        why: String,
    },
    /// Threads that met over this limit were admitted too much or too little.
    Contended {
        /// The limit.
        numbers: Numbers,
        /// What was wrong.
        why: String,
    },
    /// The run has not shown enough.
    Vacuous(Box<Coverage>),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wrong { history, why } => write!(f, "{why}\nin {history}"),
            Self::Contended { numbers, why } => write!(f, "{why}\nby threads, of {numbers:?}"),
            Self::Vacuous(seen) => write!(f, "nothing was shown: {seen:?}"),
        }
    }
}

/// The same, so that `expect` prints what can be replayed.
impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Holds an implementation to the model: one call after another, over many random histories that differ from run to run,
/// and then by threads.
pub fn conform(implementation: &dyn Implementation, effort: &Effort) -> Result<Coverage, Failure> {
    let config = Config { failure_persistence: None, ..Config::with_cases(effort.histories) };
    let seen = RefCell::new(Coverage::default());
    let histories = history::histories(effort.algorithms.clone(), effort.steps);
    let outcome = TestRunner::new(config).run(&histories, |history| {
        seen.borrow_mut().add(replay(implementation, &history).map_err(TestCaseError::fail)?);
        Ok(())
    });
    let mut seen = seen.into_inner();
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(why, history)) => {
            return Err(Failure::Wrong { history: Box::new(history), why: why.message().to_owned() });
        }
        Err(TestError::Abort(_)) => return Err(Failure::Vacuous(Box::new(seen))),
    }
    for numbers in contend::limits(&effort.algorithms) {
        seen.turns += contend::contend(implementation, &numbers).map_err(|why| Failure::Contended { numbers, why })?;
    }
    let is_shown = [seen.allowed, seen.later, seen.never, seen.waited].iter().all(|count| *count > 0);
    let is_each_taken = effort.algorithms.iter().all(|algorithm| seen.taken.contains(algorithm));
    if is_shown && is_each_taken { Ok(seen) } else { Err(Failure::Vacuous(Box::new(seen))) }
}

/// Runs one history; the error says which step was answered wrongly, and how.
pub fn replay(implementation: &dyn Implementation, history: &History) -> Result<Coverage, String> {
    judge::judge(implementation, history)
}
