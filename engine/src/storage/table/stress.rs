//! Stress tests of the table over real threads.
//!
//! Threads race within a few nanoseconds, which a round may miss on a machine that is busy with other things. Each test
//! runs until it saw the races that it is about, and fails if it saw none before the deadline.

use std::sync::{
    Barrier,
    atomic::{AtomicU64, Ordering},
};

use tidegate_conformance::Deadline;

use super::*;
use crate::base::hash::KeyHasher;
use crate::storage::alloc::CacheLine;

const THREADS: usize = 4;

/// Runs `work` on every thread at once and adds up what they met.
fn together(work: impl Fn(usize, &mut RaceCounts) + Sync) -> RaceCounts {
    let start = Barrier::new(THREADS);
    let run = |thread| {
        let mut met = RaceCounts::default();
        start.wait();
        work(thread, &mut met);
        met
    };
    std::thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || run(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).fold(RaceCounts::default(), both)
    })
}

fn both(one: RaceCounts, other: RaceCounts) -> RaceCounts {
    RaceCounts {
        retries: one.retries + other.retries,
        reuses: one.reuses + other.reuses,
        resolved: one.resolved + other.resolved,
    }
}

fn key(name: u64) -> HashedKey {
    HashedKey::new(7, KeyHasher::new(1).name(&name.to_string()))
}

fn add_one(held: Option<BucketState>, _: Nanos) -> Next<BucketState, ()> {
    let held = held.unwrap_or_default();
    Next::Write(BucketState { word: held.word + 1, ..held }, ())
}

/// Every thread inserts the same keys in the same order, so that claims of one key meet.
#[test]
fn no_key_ever_has_two_slots() {
    const KEYS: u64 = 20_000;
    let (mut seen, mut rounds, deadline) = (RaceCounts::default(), 0, Deadline::new());
    while rounds < 3 || (seen.resolved.min(seen.retries) == 0 && !deadline.has_passed()) {
        let mut table = Table::new(2 * KEYS as usize);
        table.share_by_group();
        let met = together(|thread, met| {
            for name in 0..KEYS {
                // Words are live at time 0.
                assert_eq!(table.update_by(1 + thread as CallerGroup, key(name), 0, || 0, met, add_one), Ok(()));
            }
        });
        (seen, rounds) = (both(seen, met), rounds + 1);
        let slots = table.cells().iter().map(Swap::load).filter(|slot| *slot != Slot::EMPTY).count();
        assert_eq!(slots, KEYS as usize);
        assert_eq!(table.shares.held(7), KEYS, "each is counted once, whichever thread made it active");
        let groups = table.groups.as_ref().expect("it has some");
        let is_wrong = |place: &usize| {
            let slot: Slot = Swap::load(&table.cells()[*place]);
            (groups.of(*place) == NO_GROUP) != (slot == Slot::EMPTY)
        };
        let wrong = (0..table.slots()).filter(is_wrong).count() as u64;
        assert!(wrong <= met.retries + met.resolved, "{wrong} slots have a wrong group: more than threads met");
        for group in 1..=THREADS as CallerGroup {
            let slots = (0..table.slots()).filter(|place| groups.of(*place) == group).count() as u64;
            assert_eq!(groups.held(group), slots, "group {group}");
        }
        for name in 0..KEYS {
            assert_eq!(table.get(key(name)).map(|held| held.word), Some(THREADS as u64), "key {name}");
        }
    }
    assert!(seen.retries > 0 && seen.resolved > 0, "claims of one key never met: {seen:?}");
}

/// Buckets of one token that comes back with the next tick of a shared clock: slots change hands all the time, and no key
/// may be admitted twice at one time.
#[test]
fn slots_change_hands_and_no_key_is_admitted_twice() {
    const KEYS: usize = 64;
    const TICKS: usize = 20_000;
    let (mut seen, deadline) = (RaceCounts::default(), Deadline::new());
    while (seen.reuses <= 1_000 || seen.retries == 0) && !deadline.has_passed() {
        // Two lines, eight slots, and eight overflow buckets for 64 keys: nearly every insertion is a reuse.
        let table = Table::new(5);
        let clock = AtomicU64::new(1);
        let admitted: Vec<[AtomicU64; KEYS]> =
            (0..=TICKS).map(|_| std::array::from_fn(|_| AtomicU64::new(0))).collect();
        let met = together(|thread, met| {
            let read_clock = || clock.load(Ordering::SeqCst);
            for round in 0.. {
                let now = read_clock();
                if now >= TICKS as u64 {
                    return;
                }
                let name = (round * (2 * thread + 1)) % KEYS;
                let outcome = table.update(key(name as u64), now, read_clock, met, |held, now| match held {
                    Some(held) if held.word > now => Next::Leave(None),
                    _ => Next::Write(BucketState { word: now + 1, ..BucketState::default() }, Some(now)),
                });
                if let Ok(Some(at)) = outcome {
                    admitted[at as usize][name].fetch_add(1, Ordering::SeqCst);
                }
                if thread == 0 && round % 16 == 0 {
                    clock.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        seen = both(seen, met);
        let named = table.cells().iter().map(Swap::load);
        assert_eq!(named.filter(|slot: &Slot| slot.owner().is_some()).count() as u64, table.shares.held(7));
        for (tick, names) in admitted.iter().enumerate() {
            for (name, count) in names.iter().enumerate() {
                let count = count.load(Ordering::SeqCst);
                assert!(count <= 1, "key {name} was admitted {count} times at {tick}");
            }
        }
    }
    assert!(seen.reuses > 1_000 && seen.retries > 0, "slots hardly changed hands: {seen:?}");
}

/// Two lines to choose from, and the lines beside them.
#[test]
fn two_choices_leave_few_keys_without_a_slot() {
    const KEYS: u64 = 1_000_000;
    let table = Table::new(KEYS as usize);
    assert!(size_of_val(&*table.lines) <= KEYS as usize * BYTES_PER_KEY + size_of::<CacheLine>());
    let denied = (0..KEYS)
        .filter(|&name| table.update(key(name), 0, || 0, &mut RaceCounts::default(), add_one).is_err())
        .count() as u64;
    let without = denied + table.shares.overflowed.count();
    // The goal: 0.2 % at 24 bytes a key.
    assert!(without <= KEYS / 500, "{without} of {KEYS} keys found no slot");
}
