//! Clocks: where the engine's `now` comes from.

use std::{
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use crate::{sync::Cell64, time::Nanos};

/// Gives the time, in nanoseconds since the Unix epoch. Must never go back.
pub trait Clock: Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> Nanos;
}

/// The processor's time stamp counter, calibrated, and anchored to wall time when it was made; from then on it moves
/// with the monotonic clock and ignores what happens to wall time.
#[derive(Clone, Debug)]
pub struct SystemClock {
    clock: quanta::Clock,
    anchor: quanta::Instant,
    anchor_ns: Nanos,
}

impl SystemClock {
    /// A clock that is anchored to wall time now.
    #[must_use]
    pub fn new() -> Self {
        let clock = quanta::Clock::new();
        let anchor = clock.now();
        #[expect(clippy::disallowed_methods, reason = "the one place where wall time enters the engine")]
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { clock, anchor, anchor_ns: u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX) }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[inline]
    fn now(&self) -> Nanos {
        // 584 years of uptime fit.
        self.anchor_ns.saturating_add(self.clock.now().duration_since(self.anchor).as_nanos() as u64)
    }
}

/// A clock that moves when it is told to: for tests and simulation. Clones show the same time.
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Arc<Cell64>);

impl ManualClock {
    /// A clock that stands at `now`.
    #[must_use]
    pub fn at(now: Nanos) -> Self {
        Self(Arc::new(Cell64::new(now)))
    }

    /// Moves to `now`, or stays where it is when that is in the past.
    pub fn set(&self, now: Nanos) {
        let mut seen = self.0.load();
        while seen < now {
            match self.0.compare_exchange(seen, now) {
                Ok(_) => return,
                Err(newer) => seen = newer,
            }
        }
    }

    /// Moves forward by `ns` nanoseconds.
    pub fn advance(&self, ns: u64) {
        self.set(self.0.load().saturating_add(ns));
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Nanos {
        self.0.load()
    }
}
