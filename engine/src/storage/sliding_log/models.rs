//! Loom models of a key's log: its slot, the ring that the slot names, and other keys that want either.

use std::time::Duration;

use loom::{model::Builder, sync::Arc, thread};

use super::*;
use crate::base::{
    atomic::Cell64,
    time::{PERIOD_MIN_NS, SECOND_NS},
};

/// Two instants so far apart that slots of the early one look idle at the late one.
const EARLY: Nanos = 10 * SECOND_NS;
const LATE: Nanos = 20 * SECOND_NS;

fn table() -> Arc<Table> {
    Arc::new(Table::new(1))
}

fn key(name: u64) -> HashedKey {
    HashedKey::new(1, name.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

fn log(table: &Table, limit: u64, key: HashedKey) -> SlidingLog<'_> {
    let log = SlidingWindowLog::new(limit, Duration::from_nanos(PERIOD_MIN_NS)).expect("fits");
    SlidingLog { table, log, generation: Generation::default(), key, cost: 1, is_owed: false }
}

fn state(held: Option<BucketState>, _: &mut Option<SpareRing<'_>>) -> Result<LogState, ()> {
    let word = held.map_or(LogState::Word(0), |held| held.ring().map_or(LogState::Word(held.word), LogState::Ring));
    Ok(word)
}

/// Returns when the check was admitted, if it was.
fn admitted_at(log: SlidingLog<'_>, clock: &Cell64) -> Option<Nanos> {
    // A check whose time is past may find no slot that was idle at that time.
    let outcome = log.charge(clock.load(), || clock.load(), state).ok()?.expect("no error");
    matches!(outcome.verdict, Verdict::Admit(_)).then_some(outcome.now)
}

/// Takes one of the two slots for good.
fn fill_a_slot(table: &Table) {
    let live = BucketState { word: 1_000 * SECOND_NS, ..BucketState::default() };
    let filled = table.update(key(99), EARLY, || EARLY, &mut RaceCounts::default(), |_, _| Next::Write(live, ()));
    assert_eq!(filled, Ok(()));
}

fn free_rings(table: &Table, limit: u64) -> usize {
    let rings: Vec<_> = std::iter::from_fn(|| table.rings.take(limit)).collect();
    rings.len()
}

/// All interleavings with at most this many preemptions.
fn check_within(preemptions: Option<usize>, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(model);
}

#[test]
fn a_first_touch_by_two_threads_leaves_one_ring() {
    check_within(Some(3), || {
        let (table, clock) = (table(), Arc::new(Cell64::new(EARLY)));
        table.rings.make_room(2);
        let all = free_rings(&table, 2);
        let (other, its_clock) = (Arc::clone(&table), Arc::clone(&clock));
        let thread = thread::spawn(move || admitted_at(log(&other, 2, key(1)), &its_clock));
        let mine = admitted_at(log(&table, 2, key(1)), &clock);
        let others = thread.join().expect("no panic");
        assert!(mine.is_some() && others.is_some(), "two fit");
        assert_eq!(admitted_at(log(&table, 2, key(1)), &clock), None, "and no more");
        assert_eq!(free_rings(&table, 2), all - 1, "one ring is in use");
    });
}

/// A check reads the clock and stalls anywhere; the key's ring ages, another key takes the slot and then the ring, and
/// the key comes back.
#[test]
fn a_stalled_charge_is_not_admitted_beside_the_next_owner() {
    check_within(Some(3), || {
        let (table, clock) = (table(), Arc::new(Cell64::new(EARLY)));
        table.rings.make_room(1);
        fill_a_slot(&table);
        assert_eq!(
            admitted_at(log(&table, 1, key(1)), &Cell64::new(EARLY - 5 * SECOND_NS)),
            Some(EARLY - 5 * SECOND_NS)
        );
        let (other, its_clock) = (Arc::clone(&table), Arc::clone(&clock));
        let thread = thread::spawn(move || {
            let first = admitted_at(log(&other, 1, key(1)), &its_clock);
            its_clock.store(LATE);
            (first, admitted_at(log(&other, 1, key(2)), &its_clock))
        });
        let mine = admitted_at(log(&table, 1, key(1)), &clock);
        let (first, strangers) = thread.join().expect("no panic");
        assert!(first.is_none() || first != mine, "admitted twice at {mine:?}");
        assert!(first.or(mine).or(strangers).is_some(), "one fits, unless the stranger has its slot");
        if strangers.is_some() {
            assert_eq!(admitted_at(log(&table, 1, key(2)), &clock), None, "the stranger's own is taken");
        }
        assert!(free_rings(&table, 1) >= 1, "no ring is lost");
    });
}

/// A look whose slot and ring go to another key meanwhile answers for its own key.
#[test]
fn a_look_never_answers_for_a_stranger() {
    check_within(None, || {
        let (table, clock) = (table(), Arc::new(Cell64::new(LATE)));
        table.rings.make_room(1);
        fill_a_slot(&table);
        assert_eq!(admitted_at(log(&table, 1, key(1)), &Cell64::new(EARLY)), Some(EARLY));
        let (other, its_clock) = (Arc::clone(&table), Arc::clone(&clock));
        let thread = thread::spawn(move || admitted_at(log(&other, 1, key(2)), &its_clock));
        let looked = log(&table, 1, key(1)).look(LATE, || clock.load(), state).expect("no error");
        assert!(matches!(looked.verdict, Verdict::Admit(_)), "everything of this key is past: {looked:?}");
        assert_eq!(thread.join().expect("no panic"), Some(LATE));
    });
}

/// A publish closes the slot, reads the ring, and writes what it read under the next generation; a check that was admitted
/// by the old numbers was read.
#[test]
fn a_conversion_counts_every_admission() {
    check_within(Some(3), || {
        let (table, clock, version) = (table(), Arc::new(Cell64::new(LATE)), Arc::new(Cell64::new(0)));
        table.rings.make_room(2);
        assert_eq!(admitted_at(log(&table, 2, key(1)), &Cell64::new(EARLY)), Some(EARLY));
        let (other, its_version) = (Arc::clone(&table), Arc::clone(&version));
        let thread = thread::spawn(move || {
            its_version.store(1);
            let limit = log(&other, 2, key(1));
            other.sweep(
                |_| true,
                |_, held, _| match held.ring() {
                    Some(word) if !word.is_closed() => BucketState::with_ring(held.generation, word.closed()),
                    Some(word) => {
                        let seen = limit.ring(word).look(LATE, 0).expect("not lost");
                        BucketState::word(held.generation.next(), limit.log.word(2 - seen.free, seen.last))
                    }
                    None => held,
                },
            );
        });
        let outcome = log(&table, 2, key(1)).charge(
            LATE,
            || clock.load(),
            |held, spare| {
                let is_stale = version.load() > 0;
                if is_stale { Err(()) } else { state(held, spare).map_err(|()| unreachable!()) }
            },
        );
        thread.join().expect("no panic");
        let held = table.get(key(1)).expect("a slot");
        assert!(!held.is_ring && held.generation == Generation::default().next());
        let (used, _) = log(&table, 2, key(1)).log.in_use(held.word, LATE);
        let admitted = outcome.expect("a slot").is_ok();
        // A check that was not admitted may have taken a cell, which only denies.
        assert!(used >= u64::from(admitted), "admitted, and forgotten");
        assert_eq!(free_rings(&table, 2), 2, "the ring went back, once");
    });
}

/// The slot holds the log as a word where no ring is free, and the next charge that finds a ring takes the word over.
#[test]
fn two_threads_that_find_a_ring_for_a_word_keep_what_was_used() {
    check_within(Some(3), || {
        let (table, clock) = (table(), Arc::new(Cell64::new(EARLY)));
        table.rings.make_room(2);
        let all: Vec<_> = std::iter::from_fn(|| table.rings.take(2)).collect();
        assert_eq!(admitted_at(log(&table, 2, key(1)), &clock), Some(EARLY));
        assert_eq!(table.rings.missed.count(), 1);
        drop(all);
        let (other, its_clock) = (Arc::clone(&table), Arc::clone(&clock));
        let thread = thread::spawn(move || admitted_at(log(&other, 2, key(1)), &its_clock));
        let mine = admitted_at(log(&table, 2, key(1)), &clock);
        let others = thread.join().expect("no panic");
        assert!(mine.is_some() != others.is_some(), "one of two was used: {mine:?}, {others:?}");
        assert!(table.get(key(1)).expect("a slot").is_ring);
    });
}

/// No ring is free, and a key that was idle comes back just as its ring is taken for another.
#[test]
fn the_ring_of_an_idle_key_serves_one_key_at_a_time() {
    check_within(Some(3), || {
        let (table, clock) = (table(), Arc::new(Cell64::new(LATE)));
        table.rings.make_room(1);
        let kept = table.rings.take(1);
        assert_eq!(admitted_at(log(&table, 1, key(1)), &Cell64::new(EARLY)), Some(EARLY));
        let (other, its_clock) = (Arc::clone(&table), Arc::clone(&clock));
        let thread = thread::spawn(move || admitted_at(log(&other, 1, key(2)), &its_clock));
        assert_eq!(admitted_at(log(&table, 1, key(1)), &clock), Some(LATE));
        assert_eq!(thread.join().expect("no panic"), Some(LATE));
        for name in [1, 2] {
            assert_eq!(admitted_at(log(&table, 1, key(name)), &clock), None, "key {name}: one fits");
        }
        drop(kept);
        let named = [1, 2].into_iter().filter(|&name| table.get(key(name)).is_some_and(|held| held.is_ring)).count();
        assert_eq!(named + free_rings(&table, 1), 2, "no ring is lost, and none is named twice");
    });
}
