//! The refund log: how far buckets were moved back by refunds and resets. A charge that is given back later asks what happened
//! since.

use std::cell::Cell;

use crate::{
    algorithm::{Meter, Receipt},
    base::{atomic::Counter, time::Nanos},
    storage::{
        layout::Held,
        table::{Key, Table},
    },
};

/// What was taken off buckets other than by time: it decides how much of a charge is left to give back.
#[derive(Debug)]
pub(crate) struct Moves {
    groups: Box<[Group]>,
    /// Resets of any key.
    resets: Counter,
}

/// Sums of a group of keys.
#[derive(Debug, Default)]
struct Group {
    /// How far buckets were moved back by what was given back to them, in microseconds rounded up.
    moved: Counter,
    resets: Counter,
}

/// How the sums stood before a charge.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mark {
    /// For a charge that is given back at once or never: one read for all keys.
    Brief { resets: u64 },
    /// For one that may be given back much later.
    Long { moved: u64, resets: u64 },
}

impl Moves {
    /// Loom minds every one.
    const GROUPS: usize = if cfg!(engine_loom) { 1 } else { 4_096 };
    const UNIT_NS: u64 = 1_000;

    pub(crate) fn new() -> Self {
        Self { groups: (0..Self::GROUPS).map(|_| Group::default()).collect(), resets: Counter::default() }
    }

    pub(crate) fn mark_brief(&self) -> Mark {
        Mark::Brief { resets: self.resets.count() }
    }

    pub(crate) fn mark_long(&self, key: Key) -> Mark {
        let group = self.group(key);
        Mark::Long { moved: group.moved.count(), resets: group.resets.count() }
    }

    fn group(&self, key: Key) -> &Group {
        &self.groups[key.bits().spread() % Self::GROUPS]
    }

    /// To be called before the word is swapped, as `reset`.
    fn moved(&self, key: Key, ns: u64) {
        self.group(key).moved.add(ns.div_ceil(Self::UNIT_NS));
    }

    pub(crate) fn reset(&self, key: Key) {
        self.resets.add(1);
        self.group(key).resets.add(1);
    }

    /// At most so far was the key's bucket moved back since `mark`; `u64::MAX` when unknown. `None`: it may have been reset.
    /// Sums wrap around after half a million years.
    pub(crate) fn since(&self, key: Key, mark: Mark) -> Option<u64> {
        match mark {
            Mark::Brief { resets } => (self.resets.count() == resets).then_some(u64::MAX),
            Mark::Long { moved, resets } => {
                let group = self.group(key);
                let ns = group.moved.count().wrapping_sub(moved).saturating_mul(Self::UNIT_NS);
                (group.resets.count() == resets).then_some(ns)
            }
        }
    }

    /// Returns the bucket after a give-back, or `None` where nothing is left to give. The caller reads `now` after `held`: what
    /// time has returned up to now must not be returned again.
    pub(crate) fn given_back(
        &self,
        key: Key,
        held: Held,
        meter: &Meter,
        receipt: &Receipt,
        now: Nanos,
    ) -> Option<Held> {
        let word = meter.give_back(held.word, now, receipt)?;
        self.moved(key, held.word.saturating_sub(word));
        Some(Held { word, ..held })
    }

    /// Gives a charge back to the slot of a key. `receipt` returns `None` where other numbers rule the slot by now.
    ///
    /// Where the slot is leased and its word holds less than the refund, stripes gave the rest: `end_lease` has it charged to
    /// the word first. While other threads begin and end leases of the key, the rest may be lost.
    pub(crate) fn give_back(
        &self,
        table: &Table,
        key: Key,
        meter: &Meter,
        receipt: impl Fn(Held) -> Option<Receipt>,
        read_clock: impl Fn() -> Nanos,
        end_lease: impl Fn(),
    ) {
        for can_end_lease in [true, true, false] {
            let is_short = Cell::new(false);
            table.change(key, |held| {
                let receipt = receipt(held)?;
                let now = read_clock();
                is_short.set(can_end_lease && held.is_leased && meter.is_short_of(held.word, now, &receipt));
                if is_short.get() { None } else { self.given_back(key, held, meter, &receipt, now) }
            });
            if !is_short.get() {
                return;
            }
            end_lease();
        }
    }
}
