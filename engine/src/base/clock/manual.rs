//! The manual clock, which moves only by calls of its methods.

use std::sync::Arc;

use super::{Clock, raise};
use crate::base::{atomic::Cell64, time::Nanos};

/// A clock that moves only by calls of its methods, for tests and simulation. Clones show the same time.
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Arc<Hands>);

#[derive(Debug, Default)]
struct Hands {
    time: Cell64,
    ahead: Cell64,
}

impl ManualClock {
    /// Makes a clock that stands at `now`.
    #[must_use]
    pub fn at(now: Nanos) -> Self {
        Self(Arc::new(Hands { time: Cell64::new(now), ahead: Cell64::new(0) }))
    }

    /// Moves to `now`, or stays where it is if `now` is in the past.
    pub fn set(&self, now: Nanos) {
        raise(&self.0.time, now);
    }

    /// Moves forward by `ns` nanoseconds.
    pub fn advance(&self, ns: u64) {
        add(&self.0.time, ns);
    }

    /// Sets wall time back by `ns` nanoseconds: the clock stays where it is, and is as far [ahead](Clock::ahead_ns) of wall
    /// time.
    pub fn set_wall_back(&self, ns: u64) {
        add(&self.0.ahead, ns);
    }
}

fn add(cell: &Cell64, ns: u64) {
    let mut seen = cell.load();
    while let Err(newer) = cell.compare_exchange(seen, seen.saturating_add(ns)) {
        seen = newer;
    }
}

impl Clock for ManualClock {
    #[inline]
    fn now(&self) -> Nanos {
        self.0.time.load()
    }

    fn ahead_ns(&self) -> u64 {
        self.0.ahead.load()
    }
}
