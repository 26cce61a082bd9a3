//! Token striping over real threads. Each test runs until it saw the races that it is about, and fails if it saw none
//! before the deadline.

use std::sync::Barrier;

use tidegate_conformance::Deadline;

use super::{
    fixture::{EARLY, FixtureValue, TOKEN_NS, World},
    *,
};
use crate::base::atomic::Cell64;

const THREADS: usize = 4;
const STRIPES: usize = 2;
const SHARE: u64 = 8;

/// Charges the key from all threads at once, until `is_over` returns true for a thread, the number of its charge, and
/// whether it was admitted. Returns the dates and costs of what was admitted. Two threads share each stripe, one opens
/// a session now and then, one closes it.
fn hammer(world: &World, is_over: impl Fn(usize, u64, bool) -> bool + Sync) -> Vec<(Nanos, u64)> {
    let start = Barrier::new(THREADS);
    let run = |thread: usize| {
        let mut admitted = Vec::new();
        start.wait();
        for call in 0.. {
            match (thread, call % 500) {
                (0, 0) => world.open(),
                (1, 499) => {
                    world.close();
                }
                _ => {}
            }
            let cost = 1 + u64::from(call % 7 == 0) * 2;
            let charged = world.charge_at(thread, 0, cost);
            admitted.extend(charged.map(|charged| (charged.now, cost)));
            if is_over(thread, call, charged.is_some()) {
                break;
            }
        }
        admitted
    };
    std::thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || run(thread))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    })
}

/// Returns the numbers of sessions that began, of sessions that ended, and of refills.
fn seen(world: &World) -> (u64, u64, u64) {
    let refills = REFILLS.get(world.stripes.groups[0].refills.load());
    (world.stripes.counters.begun.count(), world.stripes.counters.ended.count(), refills)
}

#[test]
fn threads_on_a_key_with_leases_admit_exactly_the_burst() {
    const BURST: u64 = 100_000;
    let (mut leases, mut refills, mut rounds, deadline) = (0, 0, 0, Deadline::new());
    while rounds < 3 || ((leases < 100 || refills < 1_000) && !deadline.has_passed()) {
        let world = World::new(BURST, SHARE, STRIPES);
        // The slot is not idle, so a refund finds it.
        world.touch(100);
        let admitted: u64 = hammer(&world, |_, _, is_admitted| !is_admitted).iter().map(|(_, cost)| cost).sum();
        assert_eq!(admitted + world.drain(0), BURST - 100);
        world.close();
        assert!(world.is_at_rest());
        let (begun, ended, refilled) = seen(&world);
        assert_eq!(begun, ended);
        (leases, refills, rounds) = (leases + begun, refills + refilled, rounds + 1);
    }
    assert!(leases >= 100 && refills >= 1_000, "hardly any leases: {leases}, with {refills} refills");
}

/// The clock moves on, threads stop anywhere by their number, and over no interval of dates more is admitted than the
/// burst and what came back in it.
#[test]
fn threads_on_a_key_with_leases_keep_the_bound_over_every_stretch_of_time() {
    const BURST: u64 = 200;
    let (mut leases, mut refills, mut rounds, deadline) = (0, 0, 0, Deadline::new());
    while rounds < 3 || ((leases < 100 || refills < 1_000) && !deadline.has_passed()) {
        let mut world = World::new(BURST, SHARE, STRIPES);
        world.clock = FixtureValue::Cell(Cell64::new(EARLY));
        world.touch(0);
        let mut admitted = hammer(&world, |thread, call, _| {
            let now = world.clock.load();
            if thread == 0 && call % 4 == 0 {
                // The clock moves by many tokens in half of the calls.
                world.clock.store(now + TOKEN_NS * if call % 1_000 < 500 { 1 } else { 7 });
            }
            now > EARLY + 100_000 * TOKEN_NS
        });
        admitted.sort_unstable();
        let mut full_at = 0;
        for (at, cost) in admitted {
            full_at = at.max(full_at) + cost * TOKEN_NS;
            assert!(full_at - at <= BURST * TOKEN_NS, "{} too many at {at}", (full_at - at) / TOKEN_NS - BURST);
        }
        let (begun, _, refilled) = seen(&world);
        (leases, refills, rounds) = (leases + begun, refills + refilled, rounds + 1);
    }
    assert!(leases >= 100 && refills >= 1_000, "hardly any leases: {leases}, with {refills} refills");
}
