//! A charge as an addition to a part of a word, which a store can make that knows no algorithm.

use crate::base::time::Nanos;

/// An addition to the lower part of a word, its tail; the upper part, its head, stays.
///
/// The tail becomes `max(tail, floor) + add`, where that is at most `floor + most`, with a floor of 0, or for a tail that is an
/// instant the store's time. Otherwise the charge is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Addition {
    /// The word with a tail of 0.
    pub head: u64,
    /// Is the tail an instant in nanoseconds since the Unix epoch (and the head nothing)? Else it is a count.
    pub is_instant: bool,
    /// What is added.
    pub add: u64,
    /// How far above the floor the tail may come.
    pub most: u64,
    /// From when on the numbers here are right.
    pub from: Nanos,
    /// Until when: from this instant on they are not.
    pub until: Nanos,
}

impl Addition {
    /// The tail after it, at this time; `None`: that is above the bound.
    #[must_use]
    pub fn tail(&self, tail: u64, now: Nanos) -> Option<u64> {
        let floor = if self.is_instant { now } else { 0 };
        let sum = tail.max(floor).checked_add(self.add)?;
        (sum - floor <= self.most).then_some(sum)
    }

    /// The tail after as much was taken off it: see [`Meter::deduction`](crate::algorithm::Meter::deduction).
    #[must_use]
    pub fn less(&self, tail: u64, now: Nanos) -> u64 {
        let floor = if self.is_instant { now } else { 0 };
        tail.saturating_sub(self.add).max(floor)
    }
}
