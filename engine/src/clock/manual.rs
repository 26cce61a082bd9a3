//! A clock that is moved by hand.

use std::sync::Arc;

use super::{Clock, raise};
use crate::{sync::Cell64, time::Nanos};

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
        raise(&self.0, now);
    }

    /// Moves forward by `ns` nanoseconds.
    pub fn advance(&self, ns: u64) {
        let mut seen = self.0.load();
        while let Err(newer) = self.0.compare_exchange(seen, seen.saturating_add(ns)) {
            seen = newer;
        }
    }
}

impl Clock for ManualClock {
    #[inline]
    fn now(&self) -> Nanos {
        self.0.load()
    }
}
