//! Rings against a slow, exact model, and over real threads. Each stress test runs until it saw the races that it is
//! about, and fails if it saw none before the deadline.

use std::sync::{
    Barrier, Mutex,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use proptest::prelude::*;
use tidegate_conformance::Deadline;

use super::*;
use crate::base::clock::{Clock, SystemClock};

const THREADS: usize = 4;

/// Every admission: a slow model that keeps all of them.
#[derive(Default)]
struct Model(Vec<Nanos>);

impl Model {
    fn live(&self, now: Nanos, period: u64) -> Vec<Nanos> {
        self.0.iter().copied().filter(|at| at + period > now).collect()
    }
}

/// Asserts at most `limit` admissions in every half-open interval of length `period`.
fn assert_bound(mut admitted: Vec<Nanos>, limit: usize, period: u64) {
    admitted.sort_unstable();
    for window in admitted.windows(limit + 1) {
        assert!(window[limit] - window[0] >= period, "{} within {} ns", limit + 1, window[limit] - window[0]);
    }
}

fn rings() -> LogPool {
    LogPool::new(POOL_MIN)
}

/// Fills a spare ring and puts it to use.
fn keep(rings: &LogPool, limit: u64, now: Nanos, taken: impl Iterator<Item = Nanos>) -> RingId {
    let spare = rings.take(limit).expect("a free one");
    let id = spare.fill(0, now, taken);
    spare.keep();
    id
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_ring_decides_as_the_exact_model(
        limit in prop_oneof![1..6u64, 1..70u64, Just(4_096u64)], period in prop_oneof![1..20u64, 1..1_000_000u64],
        calls in prop::collection::vec((prop_oneof![Just(0u64), 0..10u64, 0..300u64], prop_oneof![Just(1u64), 1..=100u64]), 1..150),
    ) {
        let rings = rings();
        let (mut now, mut model) = (1_000, Model::default());
        let id = keep(&rings, limit, now, std::iter::empty());
        for (gap, share) in calls {
            // Gaps in hundredths of a period.
            now += gap * period / 100;
            let cost = if share == 1 { 1 } else { (limit * share / 100).max(1) };
            let ring = rings.ring(id, limit);
            let live = model.live(now, period);
            let seen = ring.look(now, cost).expect("not lost");
            prop_assert_eq!(seen.free, limit - live.len() as u64);
            if cost <= seen.free {
                prop_assert_eq!(ring.claim(now, now + period, cost), Ok(true));
                model.0.extend((0..cost).map(|_| now));
            } else {
                // Waiting exactly until `due` is enough, and a nanosecond less is not.
                let due = live[(cost - seen.free) as usize - 1] + period;
                prop_assert_eq!(seen.due, due);
                prop_assert!(ring.look(due, cost).expect("not lost").free >= cost);
                prop_assert!(ring.look(due - 1, cost).expect("not lost").free < cost);
                prop_assert_eq!(ring.claim(now, now + period, seen.free + 1), Ok(false), "takes what is there");
                model.0.extend((0..seen.free).map(|_| now));
            }
            prop_assert_eq!(ring.look(now, 0).expect("not lost").last.max(now), model.0.last().map_or(now, |at| at + period).max(now));
        }
        assert_bound(model.0, limit as usize, period);
    }

    /// A ring that is filled knows the cells that were taken before.
    #[test]
    fn a_filled_ring_frees_its_cells_when_they_are_due(limit in 1..40u64, dues in prop::collection::vec(1..1_000u64, 0..40)) {
        let rings = rings();
        let mut dues: Vec<Nanos> = dues.into_iter().take(limit as usize).map(|due| 5_000 + due).collect();
        dues.sort_unstable();
        let id = keep(&rings, limit, 5_000, dues.iter().copied());
        for now in (4_990..6_010).step_by(7) {
            let taken = dues.iter().filter(|due| **due > now).count() as u64;
            let free = if now < 5_000 { 0 } else { limit - taken };
            prop_assert_eq!(rings.ring(id, limit).look(now, 1).expect("not lost").free, free, "at {}", now);
        }
    }
}

#[test]
fn a_ring_that_was_put_back_is_lost() {
    let rings = rings();
    let first = keep(&rings, 3, 10, std::iter::once(20));
    rings.put_back(first);
    let second = keep(&rings, 4, 30, std::iter::empty());
    assert_eq!((first.size(), first.place()), (second.size(), second.place()), "the same ring");
    assert_eq!(rings.ring(first, 3).look(40, 1), Err(RingLost));
    assert_eq!(rings.ring(first, 3).claim(40, 50, 1), Err(RingLost));
    assert_eq!(rings.ring(second, 4).look(40, 1), Ok(RingSnapshot { free: 4, due: 30, last: 30 }));
}

#[test]
fn a_pool_gives_every_ring_once_and_takes_spares_back() {
    let rings = rings();
    let taken: Vec<_> = std::iter::from_fn(|| rings.take(100)).collect();
    assert_eq!(taken.len(), POOL_MIN);
    drop(taken);
    let again: Vec<_> = std::iter::from_fn(|| rings.take(128)).collect();
    assert_eq!(again.len(), POOL_MIN, "all of them came back, and have 128 cells");
    assert!(rings.take(129).is_some() && rings.take(64).is_some(), "other sizes have their own");
}

#[test]
fn no_pool_is_larger_than_it_may_be() {
    for size in 0..=12 {
        let cells = 1 << size;
        let bytes = Pool::new(cells, usize::MAX).words.len() * size_of::<Cell64>();
        assert!(bytes <= POOL_BYTES && bytes > POOL_BYTES * 99 / 100, "{bytes} bytes for {cells} cells");
    }
}

/// Runs `work` on every thread at once, and adds up the results.
fn together(work: impl Fn(usize) -> u64 + Sync) -> u64 {
    let start = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        let (work, start) = (&work, &start);
        let run = move |thread| {
            start.wait();
            work(thread)
        };
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || run(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    })
}

/// Threads charge one ring by the real clock, in ones and twos.
#[test]
fn threads_on_one_ring_never_admit_more_than_the_limit() {
    const PERIOD: u64 = 20_000;
    let clock = SystemClock::new();
    let (mut lost_races, mut rounds, deadline) = (0, 0, Deadline::new());
    while (lost_races == 0 && !deadline.has_passed()) || rounds < 10 {
        let limit = [1, 2, 3, 7][rounds % 4];
        let rings = rings();
        let id = keep(&rings, limit, clock.now().as_nanos(), std::iter::empty());
        let admitted = Mutex::new(Vec::new());
        lost_races += together(|thread| {
            let (mut mine, mut lost) = (Vec::new(), 0);
            for call in 0..5_000 {
                let cost = 1 + u64::from(limit > 1 && (call + thread) % 5 == 0);
                let (ring, now) = (rings.ring(id, limit), clock.now().as_nanos());
                if ring.look(now, cost).expect("not lost").free >= cost {
                    if ring.claim(now, now + PERIOD, cost).expect("not lost") {
                        mine.extend((0..cost).map(|_| now));
                    } else {
                        lost += 1;
                    }
                }
            }
            admitted.lock().expect("no panic").extend(mine);
            lost
        });
        rounds += 1;
        assert_bound(admitted.into_inner().expect("no panic"), limit as usize, PERIOD);
        // However the threads met, nothing is lost for good.
        let seen = rings.ring(id, limit).look(clock.now().as_nanos() + PERIOD, limit).expect("not lost");
        assert_eq!(seen.free, limit);
    }
    assert!(lost_races > 0, "the threads never met");
}

/// Threads take rings from a small pool and put them back: no two hold one at a time, and none is lost.
#[test]
fn no_ring_is_taken_twice() {
    const LIMIT: u64 = 2;
    let (mut handed_over, deadline) = (0, Deadline::new());
    while handed_over < 1_000 && !deadline.has_passed() {
        let rings = rings();
        let owners: Vec<AtomicU64> = (0..POOL_MIN).map(|_| AtomicU64::new(0)).collect();
        let last: Vec<AtomicUsize> = (0..POOL_MIN).map(|_| AtomicUsize::new(usize::MAX)).collect();
        handed_over += together(|thread| {
            let mut handed_over = 0;
            for call in 0..20_000 {
                let taken: Vec<_> = (0..=call % 3).filter_map(|_| rings.take(LIMIT)).collect();
                for spare in &taken {
                    assert_eq!(owners[spare.place].fetch_add(1, Ordering::SeqCst), 0, "taken twice");
                    let before = last[spare.place].swap(thread, Ordering::SeqCst);
                    handed_over += u64::from(before != thread && before != usize::MAX);
                }
                for spare in taken {
                    owners[spare.place].fetch_sub(1, Ordering::SeqCst);
                }
            }
            handed_over
        });
        let held = || rings.pool(size_of_ring(LIMIT)).held.get();
        assert_eq!(held(), 0);
        assert_eq!(std::iter::from_fn(|| rings.take(LIMIT).map(SpareRing::keep)).count(), POOL_MIN, "none is lost");
        assert_eq!(held(), POOL_MIN as u64);
    }
    assert!(handed_over >= 1_000, "rings hardly changed hands: {handed_over}");
}
