//! Tests of the clock's steering by hostile histories: threads that are stopped anywhere in a reading, wall time that
//! is set to anything, a machine that sleeps at any moment, and counters that stop, go on or begin anew meanwhile.

#[cfg(test)]
mod limits;
#[cfg(test)]
mod machine;

use std::time::Duration;

use proptest::prelude::*;

use super::steering::{ANCHOR_NS, Steering};
use crate::base::time::SECOND_NS;
use machine::{BOUND, ClockEvent, ClockSimulation, CounterInSleep, HOUR, MS, Machine, NOW};

fn nanoseconds() -> impl Strategy<Value = u64> {
    // The orders of magnitude are equally likely, up to five hours.
    (0_u32..=44).prop_flat_map(|bits| 0..=1_u64 << bits)
}

fn event() -> impl Strategy<Value = ClockEvent> {
    let counts =
        prop_oneof![Just(CounterInSleep::Nothing), Just(CounterInSleep::Everything), Just(CounterInSleep::Anew)];
    prop_oneof![
        12 => (0_usize..3).prop_map(ClockEvent::Run),
        3 => nanoseconds().prop_map(ClockEvent::Pass),
        1 => (nanoseconds(), any::<bool>()).prop_map(|(ns, ahead)| ClockEvent::Set(if ahead { ns.into() } else { -i128::from(ns) })),
        1 => (nanoseconds(), counts).prop_map(|(ns, counts)| ClockEvent::Sleep(ns, counts)),
    ]
}

fn machine() -> impl Strategy<Value = Machine> {
    let wall = prop_oneof![4 => Just(NOW), 1 => Just(0), 1 => Just(u64::MAX), 1 => any::<u64>()];
    (wall, nanoseconds(), -400_i64..=400).prop_map(|(wall, uptime, ppm)| Machine::new(wall, uptime, ppm))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// The clock never goes back. From any step to any later one it is no faster than allowed except for sleep, and no slower,
    /// unless wall time was set by a step.
    #[test]
    fn the_clock_never_goes_back_and_keeps_its_rates(machine in machine(), events in prop::collection::vec(event(), 1..400)) {
        let mut run = ClockSimulation::new(machine);
        for event in events {
            match event {
                ClockEvent::Pass(ns) => run.machine.pass(ns),
                ClockEvent::Set(ns) => run.machine.wall += ns,
                ClockEvent::Sleep(ns, counts) => run.machine.sleep(ns, counts),
                ClockEvent::Run(thread) => run.run(thread),
            }
            if run.is_hidden() {
                break;
            }
        }
        for (place, first) in run.steps.iter().enumerate() {
            let (mut is_even, mut is_tight) = (true, first.is_tight);
            for last in run.steps[place + 1..].iter().take_while(|step| !step.is_of_wall) {
                (is_even, is_tight) = (is_even && !last.is_anew, is_tight && last.is_tight);
                let (time, mono) = (i128::from(last.time - first.time), i128::from(last.mono - first.mono));
                // At most 500 ppm, and sleep. The clock makes up for a counter that began anew at once, by at most the time that
                // passed.
                if is_even && first.is_tight {
                    let most = mono + mono / 2_000 + i128::from(last.asleep - first.known) + 1;
                    prop_assert!(time <= most, "{time} ns in {most}: {first:?} {last:?}");
                }
                if is_tight {
                    prop_assert!(time >= mono - mono / 2_000 - 1, "{time} ns in {mono}: {first:?} {last:?}");
                }
            }
        }
    }

    /// Once wall time is no longer set, the clock approaches it without overshooting, and then stays at it.
    #[test]
    fn the_clock_comes_to_show_wall_time(set_ms in -500_i64..500, ppm in -400_i64..=400, pause in 10_u64..120_000) {
        let mut run = ClockSimulation::new(Machine::new(NOW, HOUR, ppm));
        run.machine.wall += i128::from(set_ms) * i128::from(MS);
        let mut gap = run.gap();
        // A thousandth more, because a step is a whole number of nanoseconds.
        let due = 2_050 * set_ms.unsigned_abs() * MS;
        while run.machine.mono < HOUR + due {
            run.machine.pass(pause * MS);
            run.step();
            let now = run.gap();
            prop_assert!(now.abs() <= gap.abs() && now * gap >= 0, "{now} ns after {gap}");
            gap = now;
        }
        run.machine.pass(pause * MS);
        run.step();
        prop_assert_eq!(run.gap(), 0);
    }
}

fn after(set: i128, sleep: Option<(u64, CounterInSleep)>) -> (ClockSimulation, i128) {
    let mut run = ClockSimulation::new(Machine::new(NOW, HOUR, 0));
    run.machine.wall += set;
    if let Some((ns, counts)) = sleep {
        run.machine.sleep(ns, counts);
    }
    let before = run.steering.line().start();
    run.machine.pass(10 * MS);
    run.step();
    let moved = i128::from(run.steering.line().start() - before) - i128::from(10 * MS);
    (run, moved)
}

const WAYS: [CounterInSleep; 3] = [CounterInSleep::Nothing, CounterInSleep::Everything, CounterInSleep::Anew];

#[test]
fn a_difference_within_the_bound_is_slewed_both_ways() {
    for (set, slewed) in [(900 * MS, 4_882), (MS, 4_882)] {
        for (sign, way) in [(1, "forward"), (-1, "back")] {
            let (run, moved) = after(sign * i128::from(set), None);
            assert_eq!(moved, sign * slewed, "{way}, in 10 ms, at 488 ppm");
            assert_eq!(run.steering.steps(), super::WallSteps::default());
        }
    }
}

#[test]
fn wall_time_that_is_set_forward_is_followed_at_once() {
    for ns in [BOUND + MS, HOUR, 10_000 * HOUR] {
        let (run, moved) = after(ns.into(), None);
        assert_eq!((moved, run.gap(), run.steering.ahead()), (ns.into(), 0, 0));
        let steps = run.steering.steps();
        assert_eq!((steps.forward, steps.stops, steps.anchors, steps.is_standing), (1, 0, 0, false));
        assert_eq!(steps.last.map(|step| (step.size, step.is_back)), Some((Duration::from_nanos(ns), false)));
    }
}

#[test]
fn a_difference_above_the_bound_is_a_step() {
    for (bound_ns, forward) in [(10 * MS, 1), (100 * MS, 0)] {
        let mut run = ClockSimulation::new(Machine::new(NOW, HOUR, 0));
        run.steering = Steering::new(&run.machine.sample(), bound_ns);
        run.machine.wall += i128::from(50 * MS);
        run.go_on(10 * MS, 10 * MS);
        assert_eq!(run.steering.steps().forward, forward, "with a bound of {bound_ns} ns");
    }
}

/// Makes a clock that stands, since wall time was set back by `ns`.
fn standing(ns: u64) -> ClockSimulation {
    let mut run = ClockSimulation::new(Machine::new(NOW, HOUR, 0));
    run.machine.wall -= i128::from(ns);
    // The first step stops it, the second says where.
    run.go_on(40 * MS, 20 * MS);
    assert!(run.steering.steps().is_standing);
    run
}

#[test]
fn wall_time_that_is_set_back_by_less_than_a_minute_is_waited_for() {
    for ns in [BOUND + MS, 30 * SECOND_NS, ANCHOR_NS - MS] {
        let mut run = standing(ns);
        let stands_at = run.time();
        run.go_on(ns - 100 * MS, 20 * MS);
        assert_eq!(run.time(), stands_at);
        run.go_on(200 * MS, 20 * MS);
        assert!(run.time() > stands_at);
        let steps = run.steering.steps();
        assert_eq!((steps.forward, steps.stops, steps.anchors, steps.is_standing), (0, 1, 0, false));
        assert_eq!((run.gap(), run.steering.ahead()), (0, 0));
    }
}

#[test]
fn a_clock_that_is_not_read_while_it_stands_goes_on_at_wall_time() {
    let mut run = standing(30 * SECOND_NS);
    run.go_on(HOUR, HOUR);
    assert_eq!((run.gap(), run.steering.ahead()), (0, 0));
    assert_eq!(run.steering.steps().forward, 0);
}

#[test]
fn a_clock_stands_for_a_minute_at_most_whatever_wall_time_does() {
    let (mut run, mut stood) = (standing(2 * SECOND_NS), 0);
    while run.steering.steps().is_standing {
        assert!(stood <= ANCHOR_NS + SECOND_NS, "it stands still");
        // Wall time stands too.
        run.machine.wall -= i128::from(100 * MS);
        run.go_on(100 * MS, 100 * MS);
        stood += 100 * MS;
    }
    assert_eq!(run.steering.steps().anchors, 1);
    assert_eq!(run.gap(), 0);
}

#[test]
fn wall_time_that_is_set_back_by_a_minute_or_more_leaves_the_clock_ahead_and_running() {
    for ns in [ANCHOR_NS, HOUR, 10_000 * HOUR] {
        let (mut run, moved) = after(-i128::from(ns), None);
        assert_eq!((moved, run.gap(), run.steering.ahead()), (0, 0, ns));
        let steps = run.steering.steps();
        assert_eq!((steps.forward, steps.stops, steps.anchors, steps.is_standing), (0, 0, 1, false));
        // When wall time is set forward again, the clock jumps only by what exceeds its lead.
        for (more, left) in [(ns / 2, ns - ns / 2), (ns - ns / 2, 0)] {
            let before = run.time();
            run.machine.wall += i128::from(more);
            run.go_on(10 * MS, 10 * MS);
            assert_eq!((run.time() - before, run.steering.ahead()), (10 * MS, left));
        }
        let before = run.time();
        run.machine.wall += i128::from(HOUR);
        run.go_on(10 * MS, 10 * MS);
        assert_eq!((run.time() - before, run.steering.ahead()), (HOUR + 10 * MS, 0));
    }
}

#[test]
fn a_thread_that_is_stopped_in_the_middle_of_a_reading_is_no_step_of_wall_time() {
    // The thread stops before or after an access of a sample. (The counter is slow by a second in 17 minutes.)
    for stop in 0..=5 {
        let mut run = ClockSimulation::new(Machine::new(NOW, HOUR, 0));
        run.machine.pass(20 * MS);
        // First the accesses until the thread has the lock, then those of the sample, then the publication of the line.
        for access in 0..10 {
            if access == 4 + stop {
                run.machine.pass(300 * SECOND_NS);
            }
            run.run(0);
        }
        run.go_on(SECOND_NS, 20 * MS);
        assert_eq!(run.steering.steps(), super::WallSteps::default(), "stopped before access {stop}");
    }
}

#[test]
fn a_sleep_is_jumped_over_whatever_the_counter_did() {
    for counts in WAYS {
        let (run, moved) = after(0, Some((HOUR, counts)));
        assert_eq!((run.gap(), moved), (0, HOUR.into()), "{counts:?}");
    }
}

#[test]
fn a_jump_over_a_sleep_is_no_longer_than_the_sleep() {
    for counts in WAYS {
        let (run, moved) = after(i128::from(900 * MS), Some((HOUR, counts)));
        assert_eq!(moved, i128::from(HOUR) + 4_882, "{counts:?}");
        assert_eq!(run.steering.steps().forward, 0, "{counts:?}");
    }
}

#[test]
fn a_sleep_is_not_jumped_over_where_wall_time_is_behind() {
    // A counter that began anew hides what was read last: then the clock goes on evenly for one step.
    let set = -i128::from(HOUR + 900 * MS);
    for (counts, moved) in [(CounterInSleep::Nothing, -4_882), (CounterInSleep::Anew, 0)] {
        assert_eq!(after(set, Some((HOUR, counts))).1, moved, "{counts:?}");
    }
}

#[test]
fn sleep_that_wall_time_did_not_ask_for_is_not_kept_for_a_later_step() {
    let (mut run, _) = after(-i128::from(HOUR), Some((HOUR, CounterInSleep::Nothing)));
    run.machine.wall += i128::from(900 * MS);
    let before = run.time();
    run.go_on(10 * MS, 10 * MS);
    assert_eq!(run.time() - before, 10 * MS + 4_882);
}

#[test]
fn a_long_idle_time_is_followed_by_one_step_within_the_rate() {
    let (mut run, _) = after(i128::from(900 * MS), None);
    let before = run.time();
    run.go_on(60 * SECOND_NS, 60 * SECOND_NS);
    assert_eq!(run.time() - before, 60 * SECOND_NS + 60 * SECOND_NS / 2_048);
}

#[test]
fn wall_times_of_before_1970_and_of_the_far_future_are_survived() {
    for wall in [i128::MIN / 2, -1, 0, u64::MAX.into(), i128::MAX / 2] {
        let mut machine = Machine::new(0, 100 * HOUR, 0);
        machine.wall = wall;
        let mut run = ClockSimulation::new(machine);
        for _ in 0..100 {
            let before = run.steering.line().start();
            run.machine.pass(24 * 365 * HOUR / 10);
            run.step();
            assert!(run.steering.line().start() > before, "{wall}");
        }
    }
}
