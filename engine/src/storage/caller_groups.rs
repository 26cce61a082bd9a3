//! Caller groups: how many slots of a table the keys of each group of callers hold, and how many they may hold.
//!
//! Where callers name the same keys, a key does not say which caller brought it. So each slot has a number beside it:
//! the group of the caller whose check took the slot. The number stays as long as the key does, also when other callers
//! check that key.
//!
//! # The counts
//!
//! The number beside a slot is swapped right after the swap that changes the owner of the slot, and the counts change
//! by the number that this swap returned. So the count of a group is the number of slots that have its number, whatever
//! the order of the threads. Two threads that change the owner of one slot, one right after the other, may swap the
//! numbers in the other order. The slot then counts for the owner before, or for none, until its owner changes again:
//! each such race shifts a count by one slot.
//!
//! # The share
//!
//! As with limits (`table_shares.rs`), all groups together hold at most 85 % of the slots before some are kept: above
//! that load, new keys find no slot among their candidates although some slots are free. A group that has `n` slots
//! takes another one while `n : free` is below 80 : 20, where `free` is the number of slots that are missing to 85 %.
//! So a group alone may have 68 % of the slots, which is `max_keys`, and a second group may have 80 % of the slots that
//! are free then. Of the 15 % that are kept each group may have a 64th, and only groups with so few slots get overflow
//! buckets.

use crate::{
    base::atomic::{Cell16, Counter, Gauge},
    storage::alloc::zeroed_numbers,
};

/// The number of a group of callers; see [`RatedLimiter::with_groups`](crate::RatedLimiter::with_groups).
pub(crate) type CallerGroup = u16;

/// The number of an empty slot, and of checks without a group. It has no share.
pub(crate) const NO_GROUP: CallerGroup = 0;

/// The slots that all groups together may hold before some are kept, in percent.
const TABLE_PERCENT: u64 = 85;

/// The part of those slots that one group may have while no other has any, in percent.
const GROUP_PERCENT: u64 = 80;

/// The number of groups for which the kept slots are enough.
const GROUPS_KEPT_FOR: u64 = 64;

/// The least number of slots that a group may have: as many as the two lines of a key have.
const SLOTS_MIN: u64 = 8;

/// The group of each slot of a table, and the number of slots of each group.
#[derive(Debug)]
pub(crate) struct CallerGroups {
    /// The group of each slot, by place.
    of_slots: Box<[Cell16]>,
    /// The number of slots of each group.
    held: Box<[Gauge]>,
    /// The number of slots of all groups.
    all: Gauge,
    /// The checks that were denied because their groups held their shares.
    pub(crate) refused: Counter,
}

impl CallerGroups {
    /// Makes the groups of a table that has `slots` slots, all of them empty.
    pub(crate) fn new(slots: usize) -> Self {
        let held = (0..=CallerGroup::MAX).map(|_| Gauge::default()).collect();
        Self { of_slots: zeroed_numbers(slots), held, all: Gauge::default(), refused: Counter::default() }
    }

    /// Returns whether a group holds its share: a new key of it may only take a slot that the group has already.
    pub(crate) fn has_share(&self, group: CallerGroup) -> bool {
        if self.has_few(group) {
            return false;
        }
        let free = (self.slots() * TABLE_PERCENT / 100).saturating_sub(self.all.get());
        self.held(group) * (100 - GROUP_PERCENT) >= free * GROUP_PERCENT
    }

    /// Returns whether a group has so few slots that it may take any slot, and overflow buckets.
    pub(crate) fn has_few(&self, group: CallerGroup) -> bool {
        let few = (self.slots() * (100 - TABLE_PERCENT) / 100 / GROUPS_KEPT_FOR).max(SLOTS_MIN);
        group == NO_GROUP || self.held(group) < few
    }

    fn slots(&self) -> u64 {
        self.of_slots.len() as u64
    }

    /// Returns the group that has the slot at this place.
    pub(crate) fn of(&self, place: usize) -> CallerGroup {
        self.of_slots[place].load()
    }

    /// Counts that the slot at this place belongs to group `to` from now on; [`NO_GROUP`]: it is empty.
    pub(crate) fn change_owner(&self, place: usize, to: CallerGroup) {
        let from = self.of_slots[place].swap(to);
        if from == to {
            return;
        }
        for (group, slots) in [(from, -1), (to, 1)] {
            if group != NO_GROUP {
                self.held[usize::from(group)].add(slots);
                self.all.add(slots);
            }
        }
    }

    /// Returns the number of slots that a group has.
    pub(crate) fn held(&self, group: CallerGroup) -> u64 {
        self.held[usize::from(group)].get()
    }
}

#[cfg(all(test, not(engine_loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_count_of_a_group_is_the_number_of_its_slots(
            changes in proptest::collection::vec((0..20_usize, 0..4_u16), 0..200),
        ) {
            let groups = CallerGroups::new(20);
            let mut slots = [NO_GROUP; 20];
            for (place, to) in changes {
                groups.change_owner(place, to);
                slots[place] = to;
            }
            for group in 1..4 {
                prop_assert_eq!(groups.held(group), slots.iter().filter(|of| **of == group).count() as u64);
            }
            prop_assert_eq!(groups.held(NO_GROUP), 0);
            prop_assert_eq!(groups.all.get(), slots.iter().filter(|of| **of != NO_GROUP).count() as u64);
        }
    }

    /// Gives a group all slots that it may have, from place `first` on. Returns the first place that it may not have.
    fn fill(groups: &CallerGroups, group: CallerGroup, first: usize) -> usize {
        let mut place = first;
        while !groups.has_share(group) {
            groups.change_owner(place, group);
            place += 1;
        }
        place
    }

    #[test]
    fn each_group_leaves_part_of_the_free_slots_to_later_groups() {
        let groups = CallerGroups::new(15_000);
        let mut first = 0;
        // From the fifth group on each has its part of the kept slots: 15 % of all, for 64 groups.
        for (group, slots) in [(1, 10_200), (2, 2_040), (3, 408), (4, 82), (5, 35), (6, 35)] {
            let end = fill(&groups, group, first);
            assert_eq!(end - first, slots, "group {group}");
            first = end;
        }
        assert!(!groups.has_few(6) && groups.has_few(7) && !groups.has_share(7));
        assert!(groups.has_few(NO_GROUP) && !groups.has_share(NO_GROUP));
    }
}
