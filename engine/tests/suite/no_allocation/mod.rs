//! Checks allocate nothing, through every entry point; and the entry points that do allocate, by name.
//!
//! That a check makes no system call is the test `system_calls.rs`; that it takes no lock is a rule about the sources:
//! `layers.rs`, `a_lock_stands_only_where_its_reason_is_known`.

mod entry_points;

use std::{num::NonZeroU32, time::Duration};

use allocation_counter::measure;
use tidegate::{HeavyHitters, Identity, Request, clock::ManualClock, internals::BeginResult, time::Timestamp};
use tidegate_conformance::Deadline;

use self::entry_points::{EntryPoints, SECOND, Sums, engine, leasing};
use crate::racing_clock::{RacingClock, together};

/// The beginning of a minute in 2026.
const NOW: u64 = 1_790_035_200 * SECOND;

/// The table has room for all keys, or for few of them, so that the others go to overflow buckets; with and without an observer.
#[test]
fn no_entry_point_of_a_check_allocates() {
    for (max_keys, is_observed) in [(10_000, false), (10, false), (10_000, true)] {
        let engine = engine(max_keys, ManualClock::at(Timestamp::from_nanos(NOW)));
        if is_observed {
            engine.observe(NonZeroU32::MIN, HeavyHitters::new(16, Duration::from_mins(1)));
        }
        let (mut entry_points, mut sums) = (EntryPoints::new(&engine), Sums::default());
        // The first check of a thread may allocate.
        entry_points.pass(0, &mut sums);
        let made = measure(|| {
            for number in 1..1_000 {
                entry_points.pass(number, &mut sums);
                engine.clock().advance(Duration::from_millis(10));
            }
        });
        assert_eq!(made.count_total, 0, "room for {max_keys} keys, observed: {is_observed}");
        assert!(sums.allowed > 1_000 && sums.denied > 1_000, "{} {}", sums.allowed, sums.denied);
        assert_eq!(engine.overflow_charges() > 0, max_keys == 10);
    }
}

/// A key that two threads hit allocates nothing: striping begins, stripes are spent, and it ends when nothing is left.
#[test]
fn no_striping_allocates() {
    let engine = engine(10_000, RacingClock::at(NOW));
    let (mut round, deadline) = (0_u64, Deadline::new());
    while round < 20 || (engine.leases_ended() == 0 && !deadline.has_passed()) {
        let made = together(&engine, |_| {
            let mut handle = leasing(&engine);
            // The first check of a thread may allocate.
            let _ = handle.check(round);
            measure(|| while handle.check(round).is_allowed() {}).count_total
        });
        assert_eq!(made, 0);
        round += 1;
    }
    assert!(engine.leases_ended() > 0, "the threads never met: nothing was shown");
}

/// A decision in two halves is kept on the heap in between: the only entry points that allocate, and how often.
#[test]
fn a_decision_in_two_halves_is_kept_on_the_heap() {
    let engine = engine(10_000, ManualClock::at(Timestamp::from_nanos(NOW)));
    let (who, node) = ([Identity::new("ip", "ada").expect("valid")], [Identity::new("node", "ada").expect("valid")]);
    let (who, node) = (Request::new(&who).expect("valid"), Request::new(&node).expect("valid"));
    let _ = engine.check(&who);

    let mut reservation = None;
    assert_eq!(
        measure(|| reservation = engine.reserve(&who).1).count_total,
        3,
        "marks; charges, and again where they shrink to size"
    );
    let reservation = reservation.expect("allowed");
    assert_eq!(measure(|| engine.settle(reservation, 2)).count_total, 0);
    let reservation = engine.reserve(&who).1.expect("allowed");
    assert_eq!(measure(|| engine.refund(reservation)).count_total, 0);

    assert_eq!(measure(|| assert!(matches!(engine.begin(&who), BeginResult::Decided(_)))).count_total, 0);
    let mut begun = None;
    assert_eq!(measure(|| begun = Some(engine.begin(&node))).count_total, 1, "the plan");
    let Some(BeginResult::Pending(pending)) = begun else { panic!("the limit is shared") };
    let made = measure(|| assert!(engine.finish(pending, &[]).1.is_none()));
    assert_eq!(made.count_total, 0);
}
