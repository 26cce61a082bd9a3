//! Walks over the whole table: counts live slots, and converts or empties the buckets of limits that a publish changes. Idle
//! slots are taken back where a key needs one, in [`Table`].

use super::Table;
use crate::{
    base::time::Nanos,
    storage::{
        atomic_update::{Next, Swap, update},
        caller_groups::NO_GROUP,
        layout::{BucketState, RingWord, Slot, SlotState},
        log_pool::SpareRing,
    },
};

/// The number of slots, about, from which [`Table::fill`] estimates how full the table is.
const FILL_SLOTS: usize = 4_096;

/// The most slots of a table, 1 GiB, whose keys [`Table::count_live`] counts.
const COUNTED_SLOTS_MAX: usize = 1 << 27;

impl Table {
    /// Returns the part of the slots that are live at `now`, estimated from a few thousand that are spread over the
    /// table.
    pub(crate) fn fill(&self, now: Nanos) -> f64 {
        let step = (self.cells().len() / FILL_SLOTS).max(1);
        // The step is odd, so that every place in a line is sampled equally often.
        let looked_at = self.cells().iter().step_by(if step > 1 { step | 1 } else { step });
        let (live, all) = looked_at
            .fold((0u32, 0u32), |(live, all), cell| (live + u32::from(!Swap::load(cell).is_free(now)), all + 1));
        f64::from(live) / f64::from(all.max(1))
    }

    /// Counts the slots and overflow buckets that are live at `now`, one by one. `None`: there are more than `most`, or
    /// the table has too many slots to read each.
    pub(crate) fn count_live(&self, now: Nanos, most: usize) -> Option<usize> {
        if self.slots() > COUNTED_SLOTS_MAX {
            return None;
        }
        let cells = self.cells().iter().chain(self.shares.overflows(|_| true));
        let live = cells.filter(|cell| !Swap::load(*cell).is_free(now)).take(most.saturating_add(1)).count();
        (live <= most).then_some(live)
    }

    /// Passes every bucket of the limits for which `concerns` is true to `convert`. A bucket that changes meanwhile is
    /// passed again, and so is one whose ring `convert` has closed. The state that `convert` returns may name the ring
    /// that it puts into its last argument. Claims are swapped away, so that no check which began before the sweep
    /// makes one active after it.
    pub(crate) fn sweep<'t>(
        &'t self,
        concerns: impl Fn(u32) -> bool,
        convert: impl Fn(u32, BucketState, &mut Option<SpareRing<'t>>) -> BucketState,
    ) {
        for cell in self.cells().iter().chain(self.shares.overflows(&concerns)) {
            let pass = || {
                let (mut limit, mut left, mut spare, mut claim) = (0, None, None, None);
                let is_closed = update(cell, Swap::load(cell), &mut 0, |slot: Slot| {
                    // These are of an attempt whose swap failed.
                    (left, spare, claim) = (None, None, None);
                    match slot.state() {
                        SlotState::Active if concerns(slot.limit()) => {
                            let held = convert(slot.limit(), slot.held(), &mut spare);
                            let after = Slot::active(slot.key(), held);
                            (limit, left) = (slot.limit(), slot.ring_left_for(after));
                            Next::Write(after, held.ring().is_some_and(RingWord::is_closed))
                        }
                        SlotState::Claimed if concerns(slot.limit()) => {
                            claim = Some(slot);
                            Next::Write(Slot::EMPTY, false)
                        }
                        _ => Next::Leave(false),
                    }
                });
                if let Some(claim) = claim {
                    self.passed(cell, self.shares.owner(claim), None, NO_GROUP);
                }
                self.put_back(limit, left);
                self.keep(limit, spare);
                is_closed
            };
            while pass() {}
        }
    }

    /// Empties the slots and overflow buckets of limits for which `concerns` is true, where `can_go` is true of the
    /// slot, and claims of their keys. Passes the limit of each slot that stays to `on_kept`. No check may reach these
    /// limits; another key may take an idle slot of theirs meanwhile.
    pub(crate) fn clear(
        &self,
        concerns: impl Fn(u32) -> bool,
        can_go: impl Fn(Slot) -> bool,
        mut on_kept: impl FnMut(u32),
    ) {
        for cell in self.cells().iter().chain(self.shares.overflows(&concerns)) {
            let gone = update(cell, Swap::load(cell), &mut 0, |slot: Slot| match slot.state() {
                SlotState::Active if concerns(slot.limit()) && !can_go(slot) => {
                    on_kept(slot.limit());
                    Next::Leave(None)
                }
                SlotState::Active | SlotState::Claimed if concerns(slot.limit()) => {
                    Next::Write(Slot::EMPTY, Some(slot))
                }
                _ => Next::Leave(None),
            });
            if let Some(gone) = gone {
                self.passed(cell, self.shares.owner(gone), None, NO_GROUP);
                self.put_back(gone.limit(), gone.ring());
            }
        }
    }
}
