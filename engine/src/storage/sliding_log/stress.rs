//! Logs over real threads. The test runs until it saw the races that it is about, and fails if it saw none before the
//! deadline.

use std::{
    sync::{
        Barrier, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tidegate_conformance::Deadline;

use super::*;
use crate::base::{hash::KeyHasher, time::SECOND_NS};

const THREADS: usize = 4;
const KEYS: usize = 32;
const LIMIT: u64 = 3;
/// The clock moves in steps of a tenth of a second.
const STEP: u64 = SECOND_NS / 10;
const STEPS: u64 = 1_000;

#[expect(clippy::unnecessary_wraps, reason = "has the type of a function that meets newer numbers")]
fn state(held: Option<BucketState>, _: &mut Option<SpareRing<'_>>) -> Result<LogState, ()> {
    Ok(held.map_or(LogState::Word(0), |held| held.ring().map_or(LogState::Word(held.word), LogState::Ring)))
}

/// Slots and rings change hands all the time, some keys find no ring, and no key is ever admitted more than its limit in
/// any interval of a period.
#[test]
fn slots_and_rings_change_hands_and_no_key_exceeds_its_limit() {
    let log = SlidingWindowLog::new(LIMIT, Duration::from_secs(1)).expect("fits");
    let (mut reuses, mut without_ring, deadline) = (0, 0, Deadline::new());
    while (reuses < 1_000 || without_ring == 0) && !deadline.has_passed() {
        // Two lines, eight slots, and eight overflow buckets for 32 keys.
        let table = Table::new(5);
        let clock = AtomicU64::new(1_000 * SECOND_NS);
        let admitted: Vec<Mutex<Vec<Nanos>>> = (0..KEYS).map(|_| Mutex::default()).collect();
        let start = Barrier::new(THREADS);
        let run = |thread: usize| {
            // At first there are three rings for sixteen buckets, later enough.
            let mut kept: Vec<_> = (0..if thread == 1 { 13 } else { 0 }).map(|_| table.rings.take(LIMIT)).collect();
            start.wait();
            for call in 0.. {
                let now = clock.load(Ordering::SeqCst);
                if now > (1_000 + STEPS / 10) * SECOND_NS {
                    return;
                }
                let name = (call * (2 * thread + 1)) % KEYS;
                let key = HashedKey::new(7, KeyHasher::new(1).name(&name.to_string()));
                let cost = 1 + u64::from(call % 7 == 0);
                let limit =
                    SlidingLog { table: &table, log, generation: Generation::default(), key, cost, is_owed: false };
                let outcome = limit.charge(now, || clock.load(Ordering::SeqCst), state);
                if let Ok(Ok(StepResult { verdict: Verdict::Admit(_), now, .. })) = outcome {
                    admitted[name].lock().expect("no panic").extend((0..cost).map(|_| now));
                }
                if thread == 0 && call % 16 == 0 {
                    clock.fetch_add(STEP, Ordering::SeqCst);
                }
                if call == 2_000 {
                    kept.clear();
                }
            }
        };
        std::thread::scope(|scope| {
            let run = &run;
            for thread in 0..THREADS {
                scope.spawn(move || run(thread));
            }
        });
        without_ring += table.rings.missed.count();
        let mut total = 0;
        for (name, at) in admitted.into_iter().enumerate() {
            let mut at = at.into_inner().expect("no panic");
            at.sort_unstable();
            total += at.len() as u64;
            for window in at.windows(LIMIT as usize + 1) {
                let within = window[LIMIT as usize] - window[0];
                assert!(within >= SECOND_NS, "key {name}: more than {LIMIT} within {within} ns");
            }
        }
        // Far more admissions than sixteen buckets could have without changing hands are proof that they did.
        reuses += total / (LIMIT * 16);
        // Every ring is named by a slot or free.
        let named = (0..KEYS).filter(|name| {
            let key = HashedKey::new(7, KeyHasher::new(1).name(&name.to_string()));
            table.get(key).is_some_and(|held| held.is_ring)
        });
        let named = named.count();
        assert_eq!(table.shares.rings(7).get(), named as u64, "each is counted once");
        let free: Vec<_> = std::iter::from_fn(|| table.rings.take(LIMIT)).collect();
        assert_eq!(named + free.len(), 16, "no ring is lost, and none is named twice");
    }
    assert!(reuses >= 1_000 && without_ring > 0, "slots hardly changed hands: {reuses}, {without_ring}");
}
