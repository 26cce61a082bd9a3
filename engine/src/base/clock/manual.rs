//! The manual clock, which moves only by calls of its methods.

use std::{sync::Arc, time::Duration};

use super::{Clock, raise};
use crate::base::{
    atomic::Cell64,
    time::{Timestamp, saturating_nanos},
};

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
    pub fn at(now: impl Into<Timestamp>) -> Self {
        Self(Arc::new(Hands { time: Cell64::new(now.into().as_nanos()), ahead: Cell64::new(0) }))
    }

    /// Moves to `now`, or stays where it is if `now` is in the past.
    pub fn set(&self, now: impl Into<Timestamp>) {
        raise(&self.0.time, now.into().as_nanos());
    }

    /// Moves forward by `duration`.
    pub fn advance(&self, duration: Duration) {
        add(&self.0.time, duration);
    }

    /// Sets wall time back by `duration`: the clock stays where it is, and is as far [ahead](Clock::ahead) of wall time.
    pub fn set_wall_back(&self, duration: Duration) {
        add(&self.0.ahead, duration);
    }
}

fn add(cell: &Cell64, duration: Duration) {
    let ns = saturating_nanos(duration);
    let mut seen = cell.load();
    while let Err(newer) = cell.compare_exchange(seen, seen.saturating_add(ns)) {
        seen = newer;
    }
}

impl Clock for ManualClock {
    #[inline]
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.0.time.load())
    }

    fn ahead(&self) -> Duration {
        Duration::from_nanos(self.0.ahead.load())
    }
}
