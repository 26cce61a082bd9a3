//! Limits repeated lines of the log, panics among them, to one a second, so that what comes with every request cannot
//! fill a disk.

use std::{
    panic,
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use tidegate::{
    Limiter, Rate,
    clock::{Clock, SystemClock},
};

/// A limiter of one line of the log, which is written at most once a second.
#[derive(Debug)]
pub(crate) struct LogLimiter<C = SystemClock> {
    limiter: Limiter<C>,
    left_out: AtomicU64,
}

impl LogLimiter {
    pub(crate) fn new() -> Self {
        Self::with_clock(SystemClock::new())
    }
}

impl<C: Clock> LogLimiter<C> {
    fn with_clock(clock: C) -> Self {
        Self { limiter: Limiter::with_clock(Rate::per_second(1), clock), left_out: AtomicU64::new(0) }
    }

    /// Returns how many lines were left out since the last one if another line may be written now; otherwise counts one left out.
    pub(crate) fn admit(&self) -> Option<u64> {
        if self.limiter.check().is_allowed() {
            Some(self.left_out.swap(0, Ordering::Relaxed))
        } else {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            None
        }
    }
}

/// Limits the report of panics of this process to one a second from now on. Panics of the main thread, which end the process, are
/// always reported.
pub fn limit_panic_reports() {
    let report = panic::take_hook();
    let log = LogLimiter::new();
    panic::set_hook(Box::new(move |info| {
        if thread::current().name() == Some("main") {
            return report(info);
        }
        if let Some(left_out) = log.admit() {
            report(info);
            if left_out > 0 {
                tracing::error!(left_out, "more panics, which were not told");
            }
        }
    }));
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate::{
        clock::ManualClock,
        time::{SECOND_NS, Timestamp},
    };

    use super::*;

    #[test]
    fn a_line_is_written_once_a_second_with_the_count_of_those_left_out() {
        let clock = ManualClock::at(Timestamp::from_nanos(1_700_000_000 * SECOND_NS));
        let log = LogLimiter::with_clock(clock.clone());
        assert_eq!(log.admit(), Some(0));
        assert!((0..1_000).all(|_| log.admit().is_none()));
        clock.advance(Duration::from_secs(1));
        assert_eq!([log.admit(), log.admit()], [Some(1_000), None]);
        clock.advance(Duration::from_secs(1));
        assert_eq!(log.admit(), Some(1));
    }
}
