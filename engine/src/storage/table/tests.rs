//! Tests of which slot a new key takes, and of how many slots a limit, a domain or a group holds.

use proptest::prelude::*;

use super::{
    candidates::{BLOCK, beside},
    *,
};
use crate::storage::{alloc::CacheLine, two_choice::places};

fn key(name: u64) -> HashedKey {
    HashedKey::new(7, name.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

/// Touches a key at `now`, so that it is idle from `idle` on. A table for one key has two lines, so every key may be in
/// either.
fn touch(table: &Table, name: u64, now: Nanos, idle: Nanos) {
    let write =
        |_: Option<BucketState>, _: Nanos| Next::Write(BucketState { word: idle, ..BucketState::default() }, ());
    assert_eq!(table.update(key(name), now, || now, &mut RaceCounts::default(), write), Ok(()), "key {name}");
}

fn present(table: &Table, names: std::ops::Range<u64>) -> Vec<u64> {
    names.filter(|name| table.get(key(*name)).is_some()).collect()
}

#[test]
fn an_empty_slot_is_taken_before_an_idle_one() {
    let table = Table::new(1);
    for name in 0..8 {
        // All other keys are idle by then.
        touch(&table, name, 100 * name, 100 * name + 1);
        assert_eq!(present(&table, 0..8).len() as u64, name + 1, "no key lost its slot");
    }
}

#[test]
fn the_slot_that_has_been_idle_for_the_longest_is_taken() {
    // The keys become idle in another order than that of their places.
    for longest in 0..8 {
        let table = Table::new(1);
        for name in 0..8 {
            touch(&table, name, 0, 10 + (name + 8 - longest) % 8);
        }
        touch(&table, 8, 1_000, 2_000);
        let expected: Vec<u64> = (0..9).filter(|name| *name != longest).collect();
        assert_eq!(present(&table, 0..9), expected);
        // Now the line of the new key has fewer idle slots, so the next key takes the oldest of the other line.
        touch(&table, 9, 1_000, 2_000);
        let [first, second] = table.lines.of(0);
        let live = |line: &CacheLine| line.iter().filter(|cell| !Swap::load(*cell).is_free(1_000)).count();
        assert_eq!((live(first), live(second)), (1, 1));
    }
}

/// The estimate looks at 4,096 of the 15,000 slots.
#[test]
fn live_keys_are_counted_one_by_one_up_to_a_number() {
    let table = Table::new(10_000);
    for name in 0..137 {
        touch(&table, name, 0, 100 + name % 2);
    }
    assert_eq!([0, 100, 101].map(|now| table.count_live(now, 137)), [Some(137), Some(68), Some(0)]);
    assert_eq!(table.count_live(0, 136), None);
    // Keys in overflow buckets count too.
    let table = Table::new(1);
    let limit = table.shares.add();
    assert_eq!(found(&table, limit, 0..16, 0, 100), 16);
    assert_eq!(table.count_live(0, 16), Some(16));
    // In a table of 36 MB the estimate misses nearly all keys.
    let table = Table::new(3_000_000);
    for name in 0..137 {
        touch(&table, name, 0, 100);
    }
    assert_eq!(table.count_live(0, 137), Some(137));
}

proptest! {
    /// A scan that met a candidate twice would take a claim for two.
    #[test]
    fn the_lines_of_a_key_are_different_ones(hash: u64, lines in 2..100_usize) {
        let near = places(hash, lines);
        let mut all: Vec<usize> = near.into_iter().chain(beside(near, lines)).collect();
        prop_assert!(all.iter().all(|place| *place < lines && near.map(|near| near / BLOCK).contains(&(place / BLOCK))));
        // The lines fill whole blocks, except the last block of the table.
        let mut blocks = near.map(|place| place / BLOCK).to_vec();
        blocks.dedup();
        let of_block = |block: &usize| (lines - block * BLOCK).min(BLOCK);
        prop_assert_eq!(all.len(), blocks.iter().map(of_block).sum::<usize>());
        all.sort_unstable();
        all.dedup();
        prop_assert_eq!(all.len(), blocks.iter().map(of_block).sum::<usize>());
    }
}

/// Touches a key of limit `limit`, which is then live until `idle`, or returns the error.
fn touch_of(table: &Table, limit: u32, name: u64, now: Nanos, idle: Nanos) -> Result<(), TableFull> {
    let key = HashedKey::new(limit, name.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let write = |held: Option<BucketState>, _: Nanos| match held {
        Some(_) => Next::Leave(()),
        None => Next::Write(BucketState { word: idle, ..BucketState::default() }, ()),
    };
    table.update(key, now, || now, &mut RaceCounts::default(), write)
}

/// Returns the number of slots of the table that name the limit.
fn named(table: &Table, limit: u32) -> u64 {
    table.cells().iter().map(Swap::load).filter(|slot: &Slot| slot.owner() == Some(limit)).count() as u64
}

/// Returns how many of these keys of a limit find a bucket, live until `idle`.
fn found(table: &Table, limit: u32, names: std::ops::Range<u64>, now: Nanos, idle: Nanos) -> u64 {
    names.filter(|name| touch_of(table, limit, *name, now, idle).is_ok()).count() as u64
}

#[test]
fn eight_new_keys_find_overflow_buckets_and_the_next_error_says_when_one_is_idle() {
    let table = Table::new(1);
    for name in 0..8 {
        touch(&table, name, 0, 1_000 + name);
    }
    for name in 8..16 {
        touch(&table, name, 0, 2_000 - name);
    }
    assert_eq!(table.shares.overflowed.count(), 8);
    assert_eq!(touch_of(&table, 7, 16, 999, 5_000), Err(TableFull { idle_at: 1_000 }));
    assert_eq!(table.find_room(NO_GROUP, key(16), 999), Err(TableFull { idle_at: 1_000 }));
    // Overflow buckets belong to the limit, slots to all limits.
    assert_eq!(present(&table, 0..17).len(), 16);
    assert_eq!((table.find_room(NO_GROUP, key(16), 1_000), touch_of(&table, 7, 16, 1_000, 5_000)), (Ok(()), Ok(())));
    assert_eq!(touch_of(&table, 7, 17, 1_000, 5_000), Err(TableFull { idle_at: 1_001 }));
    assert_eq!(touch_of(&table, 7, 17, 1_001, 5_000), Ok(()));
}

/// Makes six limits of two domains in a table of 1,000 keys; the first two limits are of one domain.
fn shared() -> Table {
    let mut table = Table::new(1_000);
    table.share(TableShares::default());
    let domains = [(); 2].map(|()| table.shares.add_domain());
    for domain in [0, 0, 1, 1, 1, 1] {
        table.shares.bind(table.shares.add(), domains[domain]);
    }
    table.shares.come_into_force(6, 6, 2);
    table
}

#[test]
fn a_flood_of_one_limit_or_domain_takes_its_share_and_no_more() {
    let table = shared();
    let slots = table.slots() as u64;
    // More keys than the table has slots, then as many of the other limit of the domain. Each limit has its overflow buckets too.
    assert_eq!(found(&table, 0, 0..2 * slots, 0, 1_000), slots * 70 / 100 + 8);
    assert_eq!(named(&table, 0), slots * 70 / 100);
    assert_eq!(found(&table, 1, 0..2 * slots, 0, 1_000), slots * 5 / 100 + 8);
    assert_eq!(named(&table, 0) + named(&table, 1), slots * 75 / 100);
    // The other limits find the slots that are left.
    assert_eq!(found(&table, 2, 0..100, 0, 1_000), 100);
    for limit in 0..3 {
        assert_eq!(table.shares.held(limit), named(&table, limit), "limit {limit}");
    }
}

/// A limit of each domain is flooded, and a third limit holds little.
#[test]
fn a_limit_that_holds_little_has_room_whatever_is_flooded() {
    let table = shared();
    let slots = table.slots() as u64;
    let (table_max, kept_for_each) = (slots * 85 / 100, slots * 15 / 100 / 4);
    for flooded in [0, 2] {
        found(&table, flooded, 0..2 * slots, 0, 1_000);
    }
    assert_eq!(named(&table, 0) + named(&table, 2), table_max);
    assert!((kept_for_each..=kept_for_each + 8).contains(&found(&table, 1, 0..100, 0, 500)));
    // Its next keys, not the other limits, get the slots of its keys when those are idle.
    for flooded in [0, 2] {
        found(&table, flooded, 2 * slots..4 * slots, 500, 1_000);
    }
    assert_eq!(named(&table, 0) + named(&table, 2), table_max);
    assert!((kept_for_each..=kept_for_each + 8).contains(&found(&table, 1, 100..200, 500, 1_000)));
    // Any limit may take the slots once all keys are idle.
    let new = slots * 60 / 100;
    assert!(found(&table, 2, 4 * slots..4 * slots + new, 1_000, 2_000) >= new * 99 / 100);
}

/// A limit may use its idle slots again at once, even if it holds its share.
#[test]
fn a_limit_that_holds_its_share_of_idle_slots_has_room() {
    let table = shared();
    let slots = table.slots() as u64;
    found(&table, 0, 0..2 * slots, 0, 1_000);
    assert_eq!(table.shares.shortage(0), Some(Shortage::Limit));
    // All keys are idle: nearly as many new keys as the limit may have find a slot.
    let new = slots * 60 / 100;
    let found = found(&table, 0, 2 * slots..2 * slots + new, 1_000, 2_000);
    assert!(found >= new * 99 / 100, "{found} of {new}");
    assert_eq!(table.shares.held(0), named(&table, 0));
}

/// A claim that a sweep swaps away is no longer counted, and neither are slots that are emptied.
#[test]
fn emptied_slots_are_not_counted() {
    let table = shared();
    for name in 0..10 {
        assert_eq!(touch_of(&table, 0, name, 0, 100), Ok(()));
    }
    let cell = table.cells().iter().find(|cell| Swap::load(*cell) == Slot::EMPTY).expect("one of many");
    let claim = Slot::claimed(KeyBits::new(0, 7 << 40), 1);
    assert!(table.hand_over(cell, Slot::EMPTY, claim, NO_GROUP));
    assert_eq!((claim.state(), table.shares.held(0)), (SlotState::Claimed, 11));
    table.sweep(|limit| limit == 0, |_, held, _| held);
    assert_eq!(table.shares.held(0), 10);
    let sweeps = table.slots().div_ceil(RECLAIMED);
    (0..sweeps).for_each(|_| table.reclaim(0, Some(Shortage::Limit), 99));
    assert_eq!(table.shares.held(0), 10, "live ones stay");
    (0..sweeps).for_each(|_| table.reclaim(1, Some(Shortage::Limit), 100));
    assert_eq!(table.shares.held(0), 10, "so do those of other limits");
    (0..sweeps).for_each(|_| table.reclaim(1, Some(Shortage::Domain), 100));
    assert_eq!((table.shares.held(0), named(&table, 0)), (0, 0), "of its domain");
}

/// Clears the slots, claims and overflow buckets of a limit that no policy has any more.
#[test]
fn cleared_slots_are_empty_and_not_counted() {
    let mut table = shared();
    table.share(TableShares { limit_percent: 1, domain_percent: 100 });
    table.shares.come_into_force(6, 6, 2);
    let share = table.slots() as u64 / 100;
    assert_eq!(found(&table, 0, 0..1_000, 0, 100), share + 8);
    let cell = table.cells().iter().find(|cell| Swap::load(*cell) == Slot::EMPTY).expect("one of many");
    assert!(table.hand_over(cell, Slot::EMPTY, Slot::claimed(KeyBits::new(0, 7 << 40), 1), NO_GROUP));
    assert_eq!(touch_of(&table, 1, 0, 0, 200), Ok(()));
    let clear = |limit, now| {
        let mut left = 0;
        table.clear(|one| one == limit, |slot| slot.is_free(now), |_| left += 1);
        (left, table.shares.held(limit), named(&table, limit))
    };
    assert_eq!(clear(0, 99), (share + 8, share, share), "what is in use stays");
    assert_eq!(clear(0, 100), (0, 0, 0));
    assert!(table.shares.overflow(0).iter().all(|cell| Swap::load(cell) == Slot::EMPTY));
    assert_eq!([clear(1, 199), clear(1, 200)], [(1, 1, 1), (0, 0, 0)]);
}

/// Touches a key of limit 7 for this group, live until `idle`.
fn touch_by(table: &Table, group: CallerGroup, name: u64, now: Nanos, idle: Nanos) -> Result<(), TableFull> {
    let write =
        |_: Option<BucketState>, _: Nanos| Next::Write(BucketState { word: idle, ..BucketState::default() }, ());
    table.update_by(group, key(name), now, || now, &mut RaceCounts::default(), write)
}

/// Returns how many of these new keys find a bucket for a group, each live until `idle`.
fn brought(table: &Table, group: CallerGroup, names: std::ops::Range<u64>, now: Nanos, idle: Nanos) -> usize {
    names.filter(|name| touch_by(table, group, *name, now, idle).is_ok()).count()
}

#[test]
fn a_group_that_brings_keys_without_end_leaves_room_for_others() {
    let mut table = Table::with_overflow(10_000, OVERFLOW_BUCKETS);
    table.share_by_group();
    assert_eq!(brought(&table, 1, 0..20_000, 0, 1_000), 10_200, "80 % of 85 % of the slots, and no overflow bucket");
    // Each further key is denied until one of its keys is idle, and `find_room` says the same.
    assert_eq!(touch_by(&table, 1, 30_000, 0, 1_000).map_err(|full| full.idle_at), Err(1_000));
    assert_eq!(table.find_room(1, key(30_000), 0), Err(TableFull { idle_at: 1_000 }));
    assert_eq!(touch_by(&table, 1, 0, 0, 2_000), Ok(()), "a key that has its bucket keeps it");
    assert_eq!(touch_by(&table, 2, 0, 0, 2_000), Ok(()), "and all groups use it");
    // More hostile groups, one after the other; each honest group still gets all of what is kept for it.
    for group in 2..6 {
        brought(&table, group, u64::from(group) * 100_000..u64::from(group) * 100_000 + 20_000, 0, 1_000);
    }
    assert_eq!(table.shares.overflowed.count(), 0, "none of them had a key in an overflow bucket");
    for group in 6..16 {
        let names = u64::from(group) * 100_000..u64::from(group) * 100_000 + 35;
        assert_eq!(brought(&table, group, names, 0, 1_000), 35, "group {group}");
    }
    // Idle buckets of every group are reclaimed.
    assert_eq!(brought(&table, 1, 80_000..90_000, 3_000, 9_000), 10_000);
}
