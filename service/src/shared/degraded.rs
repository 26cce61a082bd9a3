//! Answers that are not what they should have been: counted by reason, and told in the log.

use std::{
    collections::BTreeMap,
    panic,
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
};
use tidegate::{
    Degraded, Limiter, Rate,
    clock::{Clock, SystemClock},
};

/// Those of all doors of a process.
#[derive(Debug)]
pub(crate) struct DegradedCounts {
    by_reason: Family<Reason, Counter>,
    log: LogLimiter,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
pub(crate) struct Reason {
    reason: &'static str,
}

impl DegradedCounts {
    pub(crate) fn new() -> Self {
        let by_reason = Family::default();
        // From the start on at 0, so that the first one shows as a rise.
        for reason in [Degraded::InternalError, Degraded::Overload] {
            drop(by_reason.get_or_create_owned(&Reason { reason: reason.name() }));
        }
        Self { by_reason, log: LogLimiter::new() }
    }

    /// One more, which is as the policy has it, such as a limit without its store.
    pub(crate) fn count(&self, reason: Degraded) {
        self.by_reason.get_or_create(&Reason { reason: reason.name() }).inc();
    }

    /// One more, of which somebody should know.
    pub(crate) fn failed(&self, reason: Degraded) {
        self.count(reason);
        if let Some(left_out) = self.log.is_time() {
            tracing::error!(reason = reason.name(), left_out, "answered without a decision");
        }
    }

    /// Returns how many answers had no decision. Those that had no room for a reservation are not among them: they were decided.
    pub(crate) fn failures(&self) -> u64 {
        self.by_reason.get_or_create(&Reason { reason: Degraded::InternalError.name() }).get()
    }

    /// How many there were, by reason.
    pub(crate) fn counts(&self) -> BTreeMap<&'static str, u64> {
        let reasons = [Degraded::NoStore, Degraded::StoreFailed, Degraded::InternalError, Degraded::Overload];
        let count = |reason: &'static str| Some((reason, self.by_reason.get(&Reason { reason })?.get()));
        reasons.into_iter().filter_map(|reason| count(reason.name())).collect()
    }

    pub(crate) fn by_reason(&self) -> &Family<Reason, Counter> {
        &self.by_reason
    }
}

/// A limiter of a line of the log, which is written once a second at most.
#[derive(Debug)]
pub(crate) struct LogLimiter<C = SystemClock> {
    limiter: Limiter<C>,
    left_out: AtomicU64,
}

impl LogLimiter {
    pub(crate) fn new() -> Self {
        Self::by(SystemClock::new())
    }
}

impl<C: Clock> LogLimiter<C> {
    fn by(clock: C) -> Self {
        Self { limiter: Limiter::with_clock(Rate::per_second(1), clock), left_out: AtomicU64::new(0) }
    }

    /// Returns how many lines were left out since the last one, if it is time for another one.
    pub(crate) fn is_time(&self) -> Option<u64> {
        if self.limiter.check().is_allowed() {
            Some(self.left_out.swap(0, Ordering::Relaxed))
        } else {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            None
        }
    }
}

/// Panics of this process are told once a second at most, from now on: whatever comes with every request could fill a disk.
/// Those of the main thread, which end it, always are.
pub fn tell_panics_seldom() {
    let tell = panic::take_hook();
    let log = LogLimiter::new();
    panic::set_hook(Box::new(move |what| {
        if thread::current().name() == Some("main") {
            return tell(what);
        }
        if let Some(left_out) = log.is_time() {
            tell(what);
            if left_out > 0 {
                tracing::error!(left_out, "more panics, which were not told");
            }
        }
    }));
}

#[cfg(test)]
mod tests {
    use tidegate::{clock::ManualClock, time::SECOND_NS};

    use super::*;

    #[test]
    fn a_line_comes_once_a_second_and_says_how_many_were_left_out() {
        let clock = ManualClock::at(1_700_000_000 * SECOND_NS);
        let log = LogLimiter::by(clock.clone());
        assert_eq!(log.is_time(), Some(0));
        assert!((0..1_000).all(|_| log.is_time().is_none()));
        clock.advance(SECOND_NS);
        assert_eq!([log.is_time(), log.is_time()], [Some(1_000), None]);
        clock.advance(SECOND_NS);
        assert_eq!(log.is_time(), Some(1));
    }
}
