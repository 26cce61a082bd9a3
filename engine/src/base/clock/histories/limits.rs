//! Tests of limits while wall time is set: each step of wall time mints at most one limit, and no key waits longer for
//! it.

use std::time::Duration;

use proptest::prelude::*;

use super::{
    super::steering::ANCHOR_NS,
    machine::{ClockSimulation, HOUR, MS, Machine, NOW},
    nanoseconds,
};
use crate::{
    algorithm::{Carry, FixedWindow, Meter, SlidingWindowCounter, SlidingWindowLog, TokenBucket, Verdict},
    base::time::SECOND_NS,
};

/// A limit and one key of it, by a clock whose wall time is set: the word that the engine keeps, and a slow model,
/// which keeps every admission by the time that really passed.
struct Key {
    meter: Meter,
    word: u64,
    /// The nanoseconds by which the clock was ahead of wall time when the windows of `meter` were bound.
    ahead: u64,
    admitted: Vec<Admission>,
    /// The steps of wall time that give a key up to one limit each: those that the clock jumped by, and those that
    /// windows followed.
    grants: u64,
}

#[derive(Clone, Copy, Debug)]
struct Admission {
    mono: u64,
    cost: u64,
    grants: u64,
}

impl Key {
    fn new(meter: Meter) -> Self {
        Self { meter, word: 0, ahead: 0, admitted: Vec::new(), grants: 0 }
    }

    fn check(&mut self, run: &ClockSimulation, cost: u64) -> Verdict {
        let verdict = self.meter.step(self.word, run.time(), cost);
        if let Verdict::Admit(word) = verdict {
            self.word = word;
            let grants = self.grants + run.steering.steps().forward;
            self.admitted.push(Admission { mono: run.machine.mono, cost, grants });
        }
        verdict
    }

    /// Follows wall time as the engine does it: as a publish of other numbers.
    fn follow(&mut self, run: &ClockSimulation) {
        if self.ahead == run.steering.ahead() {
            return;
        }
        self.ahead = run.steering.ahead();
        let bound = self.meter.ahead_of_wall(self.ahead);
        if bound != self.meter {
            self.word = self.meter.carry_over(self.word, run.time(), &bound, Carry::Keep);
            (self.meter, self.grants) = (bound, self.grants + 1);
        }
    }

    /// Returns the most that the model admits between two instants: what the limit admits in the time that really
    /// passed, and one limit for each step of wall time.
    fn most(&self, first: Admission, last: Admission) -> u128 {
        let (capacity, period_ns) = (u128::from(self.meter.capacity()), u128::from(self.meter.period_ns().max(1)));
        // The clock may run 500 ppm fast.
        let length = u128::from(last.mono - first.mono) * 2_001 / 2_000 + 1;
        let at_once = if matches!(self.meter, Meter::TokenBucket(_) | Meter::LeakyBucket(_)) { 1 } else { 2 };
        capacity * (at_once + u128::from(last.grants - first.grants)) + (capacity * length).div_ceil(period_ns)
    }
}

fn meters() -> impl Strategy<Value = Meter> {
    let seconds = || prop_oneof![1..120_u64, Just(3_600_u64), Just(86_400_u64)];
    let bucket = (1..50_u64, seconds(), 1..50_u64, any::<bool>()).prop_map(|(limit, seconds, burst, is_leaky)| {
        let bucket = TokenBucket::new(limit, Duration::from_secs(seconds), burst).expect("fits");
        if is_leaky { Meter::LeakyBucket(bucket) } else { Meter::TokenBucket(bucket) }
    });
    let others = (1..50_u64, seconds(), 0..3_u8).prop_map(|(limit, seconds, which)| {
        let period = Duration::from_secs(seconds);
        match which {
            0 => Meter::FixedWindow(FixedWindow::new(limit, period).expect("fits")),
            1 => Meter::SlidingWindowCounter(SlidingWindowCounter::new(limit, period).expect("fits")),
            _ => Meter::SlidingWindowLog(SlidingWindowLog::new(limit, period).expect("fits")),
        }
    });
    prop_oneof![2 => bucket, 3 => others]
}

#[derive(Clone, Debug)]
enum Happening {
    Pass(u64),
    Set(i128),
    Check(u64),
    /// The engine follows wall time.
    Follow,
}

fn happening() -> impl Strategy<Value = Happening> {
    // Steps are from a nanosecond to half a year.
    let size = || (0_u32..=53).prop_flat_map(|bits| 0..=1_u64 << bits);
    prop_oneof![
        6 => (1_u64..10).prop_map(Happening::Check),
        3 => nanoseconds().prop_map(Happening::Pass),
        2 => (size(), any::<bool>()).prop_map(|(ns, back)| Happening::Set(if back { -i128::from(ns) } else { ns.into() })),
        1 => Just(Happening::Follow),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn steps_of_wall_time_mint_one_limit_each_at_most_and_no_key_is_refused_for_them(
        meter in meters(),
        happenings in prop::collection::vec(happening(), 1..120),
    ) {
        let mut run = ClockSimulation::new(Machine::new(NOW, HOUR, 0));
        let mut key = Key::new(meter);
        for happening in happenings {
            match happening {
                Happening::Pass(ns) => run.machine.pass(ns),
                // Wall time stays within the range that a clock can show.
                Happening::Set(ns) if (SECOND_NS.into()..i128::from(2 * NOW)).contains(&(run.machine.wall + ns)) => {
                    run.machine.wall += ns;
                }
                Happening::Set(_) => {}
                Happening::Check(cost) => {
                    let _ = key.check(&run, cost.min(meter.capacity()));
                }
                Happening::Follow => key.follow(&run),
            }
            run.go_on(40 * MS, 20 * MS);
        }
        for (place, first) in key.admitted.iter().enumerate() {
            let mut sum = 0;
            for last in &key.admitted[place..] {
                sum += u128::from(last.cost);
                let most = key.most(*first, *last);
                prop_assert!(sum <= most, "{sum} of {most}: {first:?} {last:?}");
            }
        }

        // Wall time is no longer set, and the engine has followed it.
        run.go_on(2 * ANCHOR_NS, SECOND_NS);
        key.follow(&run);
        prop_assert!(!run.steering.steps().is_standing);
        let cost = meter.capacity();
        if let Verdict::Later { wait_ns } = key.check(&run, cost) {
            let most = if matches!(meter, Meter::SlidingWindowCounter(_)) { 2 } else { 1 } * meter.period_ns();
            // A log counts in units of 2^13 ns.
            prop_assert!(wait_ns <= most + (1 << 14), "{wait_ns} ns of {most}");
            // The clock may run 500 ppm slow.
            let really = wait_ns + wait_ns / 2_000 + 1;
            run.go_on(really, really);
            prop_assert!(matches!(key.check(&run, cost), Verdict::Admit(_)));
        }
    }
}
