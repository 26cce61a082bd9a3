//! The refund log: how far refunds and resets moved buckets back, so that a later refund knows what is left of its
//! charge.
//!
//! Keys share a fixed number of sums. A charge notes the sums before it; its refund compares them with the present
//! ones.

use std::cell::Cell;

use crate::{
    algorithm::{Meter, Receipt},
    base::{atomic::Counter, time::Nanos},
    storage::{
        layout::BucketState,
        table::{HashedKey, Table},
    },
};

/// Sums of everything that was taken off buckets other than by time. They bound how much of a charge is left to give
/// back.
#[derive(Debug)]
pub(crate) struct RefundLog {
    groups: Box<[Group]>,
    /// Resets of all keys.
    resets: Counter,
}

/// The sums of a group of keys.
#[derive(Debug, Default)]
struct Group {
    /// The distance by which refunds moved buckets back, in microseconds rounded up.
    moved: Counter,
    resets: Counter,
}

/// The sums as they were before a charge.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mark {
    /// The mark of a charge that is given back at once or never. It takes one read for all keys.
    Brief { resets: u64 },
    /// The mark of a charge that may be given back much later.
    Long { moved: u64, resets: u64 },
}

impl RefundLog {
    /// The number of groups. Loom explores each access, so it has one group.
    const GROUPS: usize = if cfg!(engine_loom) { 1 } else { 4_096 };
    /// Nanoseconds of one unit of [`Group::moved`].
    const UNIT_NS: u64 = 1_000;

    pub(crate) fn new() -> Self {
        Self { groups: (0..Self::GROUPS).map(|_| Group::default()).collect(), resets: Counter::default() }
    }

    /// Returns a mark for a charge that is given back at once or never.
    pub(crate) fn mark_brief(&self) -> Mark {
        Mark::Brief { resets: self.resets.count() }
    }

    /// Returns a mark for a charge that may be given back much later.
    pub(crate) fn mark_long(&self, key: HashedKey) -> Mark {
        let group = self.group(key);
        Mark::Long { moved: group.moved.count(), resets: group.resets.count() }
    }

    fn group(&self, key: HashedKey) -> &Group {
        &self.groups[key.bits().spread() % Self::GROUPS]
    }

    /// Counts a reset of the key. Call it before the bucket is swapped.
    pub(crate) fn reset(&self, key: HashedKey) {
        self.resets.add(1);
        self.group(key).resets.add(1);
    }

    /// Returns the most nanoseconds by which the key's bucket was moved back since `mark`; `u64::MAX` when unknown.
    /// `None`: the bucket may have been reset. Sums wrap around after half a million years.
    pub(crate) fn since(&self, key: HashedKey, mark: Mark) -> Option<u64> {
        match mark {
            Mark::Brief { resets } => (self.resets.count() == resets).then_some(u64::MAX),
            Mark::Long { moved, resets } => {
                let group = self.group(key);
                let ns = group.moved.count().wrapping_sub(moved).saturating_mul(Self::UNIT_NS);
                (group.resets.count() == resets).then_some(ns)
            }
        }
    }

    /// Returns the bucket after a refund, or `None` where nothing is left to give back. The caller must read `now`
    /// after `held`: what time has returned up to `now` must not be returned again.
    pub(crate) fn given_back(
        &self,
        key: HashedKey,
        held: BucketState,
        meter: &Meter,
        receipt: &Receipt,
        now: Nanos,
    ) -> Option<BucketState> {
        let word = meter.give_back(held.word, now, receipt)?;
        // Before the bucket is swapped.
        self.group(key).moved.add(held.word.saturating_sub(word).div_ceil(Self::UNIT_NS));
        Some(BucketState { word, ..held })
    }

    /// Gives a charge back to the slot of a key. `receipt` returns `None` where the slot has other numbers by now.
    ///
    /// Where the slot is striped and holds less than the refund, stripes gave the rest: `end_striping` then ends the
    /// striping, which charges that rest to the slot first. While other threads begin and end the striping of the key,
    /// the rest may be lost.
    pub(crate) fn give_back(
        &self,
        table: &Table,
        key: HashedKey,
        meter: &Meter,
        receipt: impl Fn(BucketState) -> Option<Receipt>,
        read_clock: impl Fn() -> Nanos,
        end_striping: impl Fn(),
    ) {
        for can_end_lease in [true, true, false] {
            let is_short = Cell::new(false);
            table.change(key, |held| {
                let receipt = receipt(held)?;
                let now = read_clock();
                is_short.set(can_end_lease && held.is_striped && meter.is_short_of(held.word, now, &receipt));
                if is_short.get() { None } else { self.given_back(key, held, meter, &receipt, now) }
            });
            if !is_short.get() {
                return;
            }
            end_striping();
        }
    }
}
