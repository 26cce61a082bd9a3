//! Loom models of rings: the interleavings of a few threads over one ring or one pool.

use loom::{model::Builder, sync::Arc, thread};

use super::*;

const PERIOD: u64 = 100;

fn ring(limit: u64, now: Nanos, taken: &[Nanos]) -> (Arc<LogPool>, RingId) {
    let rings = Arc::new(LogPool::new(1));
    let spare = rings.take(limit).expect("a free one");
    let id = spare.fill(0, now, taken.iter().copied());
    spare.keep();
    (rings, id)
}

/// Charges `cost` cells, and returns whether they were admitted.
fn charge(rings: &LogPool, id: RingId, limit: u64, now: Nanos, cost: u64) -> bool {
    let ring = rings.ring(id, limit);
    ring.look(now, cost).is_ok_and(|seen| seen.free >= cost) && ring.claim(now, now + PERIOD, cost) == Ok(true)
}

/// All interleavings with at most this many preemptions.
fn check_within(preemptions: Option<usize>, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(model);
}

/// Two admissions by one cell are a period apart, whichever clock is ahead.
#[test]
fn two_clocks_on_one_cell() {
    for other_now in [10, 10 + PERIOD - 1, 10 + PERIOD] {
        check_within(Some(3), move || {
            let (rings, id) = ring(1, 5, &[]);
            let other = Arc::clone(&rings);
            let thread = thread::spawn(move || charge(&other, id, 1, other_now, 1));
            let mine = charge(&rings, id, 1, 10, 1);
            let others = thread.join().expect("no panic");
            assert!(mine || others, "one fits");
            assert!(!(mine && others) || other_now == 10 + PERIOD);
        });
    }
}

#[test]
fn three_threads_on_two_cells_are_admitted_twice() {
    check_within(Some(2), || {
        let (rings, id) = ring(2, 5, &[]);
        let spawn = || {
            let rings = Arc::clone(&rings);
            thread::spawn(move || charge(&rings, id, 2, 10, 1))
        };
        let threads = [spawn(), spawn()];
        let mine = charge(&rings, id, 2, 10, 1);
        let admitted = threads.into_iter().map(|thread| thread.join().expect("no panic")).chain([mine]);
        assert_eq!(admitted.filter(|admitted| *admitted).count(), 2);
    });
}

/// A thread stalls between its claim and moving the hint on, until the others have gone round.
#[test]
fn a_hint_that_lags_is_helped_and_no_cell_is_passed_over() {
    check_within(Some(3), || {
        let (rings, id) = ring(2, 5, &[]);
        let other = Arc::clone(&rings);
        let thread = thread::spawn(move || usize::from(charge(&other, id, 2, 10, 1)));
        let mut admitted = 0;
        for now in [10, 10 + PERIOD, 11 + PERIOD] {
            admitted += usize::from(charge(&rings, id, 2, now, 1));
        }
        admitted += thread.join().expect("no panic");
        assert!((3..=4).contains(&admitted));
        // The ring is still sorted from its head: each cell is found when it is due.
        let ring = rings.ring(id, 2);
        assert_eq!(ring.look(10 + PERIOD, 1).expect("not lost").free, 0);
        assert_eq!(ring.look(11 + 2 * PERIOD, 2).expect("not lost").free, 2);
        assert!(charge(&rings, id, 2, 11 + 2 * PERIOD, 2));
        assert_eq!(ring.look(11 + 2 * PERIOD, 1).expect("not lost").free, 0);
    });
}

/// Two threads want all cells each: at most one is admitted.
#[test]
fn costs_that_do_not_fit_together_are_not_both_admitted() {
    check_within(Some(3), || {
        let (rings, id) = ring(2, 5, &[]);
        let other = Arc::clone(&rings);
        let thread = thread::spawn(move || charge(&other, id, 2, 10, 2));
        let mine = charge(&rings, id, 2, 10, 2);
        let others = thread.join().expect("no panic");
        assert!(!(mine && others));
        assert_eq!(rings.ring(id, 2).look(10, 1).expect("not lost").free, 0, "what was taken stays taken");
    });
}

/// The last owner claims a cell late, and takes none of the next owner's.
#[test]
fn a_stale_claim_takes_no_cell_of_the_next_owner() {
    check_within(None, || {
        let (rings, id) = ring(2, 5, &[8]);
        let other = Arc::clone(&rings);
        let thread = thread::spawn(move || charge(&other, id, 2, 10, 1));
        rings.put_back(id);
        let spare = rings.take(2).expect("a free one");
        let next = spare.fill(0, 12, std::iter::once(12 + PERIOD));
        spare.keep();
        let seen = rings.ring(next, 2).look(12, 1);
        assert_eq!(seen, Ok(RingSnapshot { free: 1, due: 12, last: 12 + PERIOD }));
        thread.join().expect("no panic");
        assert_eq!(rings.ring(next, 2).look(12, 1), seen);
    });
}

/// A thread is about to take the top ring; another takes both rings and puts the first back. The ring below the top is then
/// no longer free.
#[test]
fn a_ring_is_not_taken_twice_though_the_top_looks_the_same() {
    check_within(None, || {
        let rings = Arc::new(LogPool::new(1));
        rings.make_room(1);
        let other = Arc::clone(&rings);
        let thread = thread::spawn(move || {
            let (first, second) = (other.take(1), other.take(1));
            drop(first);
            second.map(|spare| {
                let place = spare.place;
                spare.keep();
                place
            })
        });
        let mine = rings.take(1).map(|spare| {
            let place = spare.place;
            spare.keep();
            place
        });
        let others = thread.join().expect("no panic");
        assert!(mine.is_none() || mine != others);
        let left = std::iter::from_fn(|| rings.take(1).map(SpareRing::keep)).count();
        assert_eq!(usize::from(mine.is_some()) + usize::from(others.is_some()) + left, POOL_MIN, "none is lost");
    });
}
