//! A charge as an addition to a part of a word, which a store can make without knowing the algorithm.

use crate::base::time::Nanos;

/// An addition to the lower part of a word, its tail. The upper part, its head, does not change.
///
/// The tail becomes `max(tail, floor) + add` if that is at most `floor + most`; otherwise the charge is refused. The
/// floor is 0 for a count, and the store's time for an instant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteAdd {
    /// The head: the word with a tail of 0.
    pub head: u64,
    /// Whether the tail is an instant in nanoseconds since the Unix epoch (the head is then empty); otherwise it is a count.
    pub is_instant: bool,
    /// The number that is added to the tail.
    pub add: u64,
    /// The largest distance of the tail from the floor after the addition.
    pub most: u64,
    /// The first instant at which this addition is valid.
    pub from: Nanos,
    /// The end of its validity: from this instant on it is not valid.
    pub until: Nanos,
}

impl RemoteAdd {
    /// Returns the tail after the addition at time `now`, or `None` where it would be above the bound.
    #[must_use]
    pub fn apply(&self, tail: u64, now: Nanos) -> Option<u64> {
        let floor = if self.is_instant { now } else { 0 };
        let sum = tail.max(floor).checked_add(self.add)?;
        (sum - floor <= self.most).then_some(sum)
    }

    /// Returns the tail after the same amount was deducted from it; see
    /// [`Meter::plan_give_back`](crate::algorithm::Meter::plan_give_back).
    #[must_use]
    pub fn deduct(&self, tail: u64, now: Nanos) -> u64 {
        let floor = if self.is_instant { now } else { 0 };
        tail.saturating_sub(self.add).max(floor)
    }
}
