//! Tests of the suite: a correct plain limiter conforms, in every operation and with every algorithm, and the suite catches
//! each classic mistake.

use std::sync::{Mutex, PoisonError};

use tidegate::{
    clock::{Clock, ManualClock},
    policy::Algorithm,
};
use tidegate_conformance::{
    CheckOutcome, CheckReply, Cost, Coverage, Effort, Gap, History, HistoryOp, HistoryStep, Implementation,
    LimitNumbers, Moment, Nonconformance, SharedSubject, Subject, SubjectCall, SubjectReply, conform, replay,
};

use crate::plain_limiter::{BUCKETS, Mistake, Mistake as M, PlainLimiter};

const ALL: [Algorithm; 5] = [
    Algorithm::TokenBucket,
    Algorithm::LeakyBucket,
    Algorithm::FixedWindow,
    Algorithm::SlidingWindowCounter,
    Algorithm::SlidingWindowLog,
];

/// A subject that reports only the outcome, not how much is left.
struct Terse(PlainLimiter);

impl Subject for Terse {
    fn call(&mut self, moment: Moment, call: &SubjectCall) -> SubjectReply {
        match self.0.call(moment, call) {
            SubjectReply::Check(answer) => {
                SubjectReply::Check(CheckReply { remaining: None, reset_after_ns: None, delay_ns: None, ..answer })
            }
            other => other,
        }
    }

    fn can_stall(&self) -> bool {
        true
    }
}

/// Limiters with a mistake, for sequential calls.
struct Alone {
    mistake: Mistake,
    is_terse: bool,
}

impl Implementation for Alone {
    fn subject(&self, numbers: &LimitNumbers) -> Option<Box<dyn Subject>> {
        let plain = PlainLimiter::new(self.mistake, numbers);
        Some(if self.is_terse { Box::new(Terse(plain)) } else { Box::new(plain) })
    }
}

/// Runs the suite on limiters with this mistake.
fn run(mistake: Mistake, is_terse: bool, algorithms: &[Algorithm], histories: u32) -> Result<Coverage, Nonconformance> {
    conform(&Alone { mistake, is_terse }, &Effort { algorithms: algorithms.to_vec(), histories, steps: 50 })
}

#[test]
fn a_plain_limiter_conforms_in_every_operation() {
    for algorithm in ALL {
        let seen = run(M::None, false, &[algorithm], 300).expect("it conforms");
        let each = [seen.stalled, seen.one_short, seen.foretold, seen.gave_back, seen.excesses, seen.resets];
        assert!(each.iter().all(|count| *count > 0) && seen.publishes > 0, "{algorithm:?}: {seen:?}");
    }
}

#[test]
fn each_classic_mistake_is_caught() {
    const WINDOWS: [Algorithm; 2] = [Algorithm::FixedWindow, Algorithm::SlidingWindowCounter];
    // Each with whether it shows in the outcomes alone.
    let cases: &[(Mistake, bool, &[Algorithm])] = &[
        (M::IdlingDoublesTheBurst, true, &BUCKETS),
        (M::RefusalsAreCharged, true, &ALL),
        (M::NeverIsLater, true, &ALL),
        (M::NeverIsCharged, true, &ALL),
        (M::WaitIsRoundedDown, true, &ALL),
        (M::WaitIsZero, true, &ALL),
        (M::WaitIsTooLong, true, &ALL),
        (M::RemainingWraps, true, &WINDOWS),
        (M::RemainingIsOneTooMany, false, &ALL),
        (M::ResetIsEarly, false, &ALL),
        (M::DelayIsOnePlaceShort, false, &BUCKETS),
        (M::OldClockTurnsTimeBack, true, &BUCKETS),
        (M::FastRatesAreClamped, true, &BUCKETS),
        (M::IntervalIsTruncated, true, &BUCKETS),
        (M::BurstIsCutTo32Bits, true, &BUCKETS),
        (M::RollLosesAnAdd, true, &WINDOWS),
        (M::WindowEndsEarly, true, &WINDOWS),
        (M::MonthsHaveThirtyDays, true, &[Algorithm::FixedWindow]),
        (M::WeightIsRoundedDown, true, &[Algorithm::SlidingWindowCounter]),
        (M::LogForgetsEarly, true, &[Algorithm::SlidingWindowLog]),
        (M::KeysShare, true, &ALL),
        (M::PeekCharges, true, &ALL),
        (M::PeekIsGenerous, true, &ALL),
        (M::RefundMints, true, &BUCKETS),
        (M::RefundOfWhatWasForgotten, true, &ALL),
        (M::ExcessIsNotCharged, true, &ALL),
        (M::ResetDoesNothing, true, &ALL),
        (M::PublishForgets, true, &ALL),
        (M::PublishKeepsWhatIsLeft, true, &BUCKETS),
    ];
    for &(mistake, is_seen_in_outcomes, algorithms) in cases {
        for &is_terse in if is_seen_in_outcomes { &[false, true][..] } else { &[false] } {
            // Some mistakes show in one history of a thousand, so there are many rounds.
            let mut rounds = (0..20).map(|_| run(mistake, is_terse, algorithms, 3_000));
            let caught = rounds.find_map(Result::err);
            assert!(matches!(caught, Some(Nonconformance::Wrong { .. })), "{mistake:?} was not caught: {caught:?}");
        }
    }
}

#[test]
#[expect(clippy::unreadable_literal, reason = "as it is printed")]
fn a_failure_is_printed_as_the_expression_that_replays_it() {
    use Algorithm::TokenBucket;
    use Cost::{Capacity, Tokens};
    use Gap::{Retry, Zero};
    use HistoryOp::Check;

    // Formatted exactly as it is printed.
    #[rustfmt::skip]
    let history = History {
        numbers: LimitNumbers { algorithm: TokenBucket, limit: 2, period_ns: 1000000000, calendar: None, burst: None, max_debt: None },
        start: 7,
        steps: vec![
            HistoryStep { key: 0, gap: Zero, lag: 0, op: Check(Capacity(0)) },
            HistoryStep { key: 0, gap: Retry(-1), lag: 0, op: Check(Tokens(1)) },
        ],
    };
    let why =
        replay(&Alone { mistake: M::WaitIsTooLong, is_terse: false }, &history).expect_err("the wait is too long");
    assert!(why.starts_with("step 1, ") && why.contains("retry-after is 500001000 ns"), "{why}");
    let printed = Nonconformance::Wrong { history: Box::new(history), why }.to_string();
    let (_, expression) = printed.split_once("\nin ").expect("why, and in which history");
    // This file contains it, indented.
    let source = include_str!("mistakes.rs").replace("\n    ", "\n");
    assert!(source.contains(&format!("let history = {expression};")), "{expression}");
}

/// An implementation that accepts no numbers.
struct Nothing;

impl Implementation for Nothing {
    fn subject(&self, _: &LimitNumbers) -> Option<Box<dyn Subject>> {
        None
    }
}

#[test]
fn a_run_that_has_shown_nothing_fails() {
    let effort = Effort { algorithms: ALL.to_vec(), histories: 20, steps: 5 };
    assert!(matches!(conform(&Nothing, &effort), Err(Nonconformance::Vacuous(_))));
}

/// A mistake that only threads make.
#[derive(Clone, Copy, Debug)]
enum Race {
    /// No mistake.
    None,
    /// Reads and charges in two steps, without holding the mutex between them.
    LosesCharges,
    /// Denies the last token.
    KeepsOne,
}

/// A plain limiter behind a mutex.
struct Guarded {
    plain: Mutex<PlainLimiter>,
    clock: ManualClock,
    race: Race,
}

impl Implementation for Race {
    fn subject(&self, numbers: &LimitNumbers) -> Option<Box<dyn Subject>> {
        Some(Box::new(PlainLimiter::new(M::None, numbers)))
    }

    fn shared(&self, numbers: &LimitNumbers, clock: &ManualClock) -> Option<Box<dyn SharedSubject>> {
        let guarded =
            || Guarded { plain: Mutex::new(PlainLimiter::new(M::None, numbers)), clock: clock.clone(), race: *self };
        // It is too slow for large limits.
        (numbers.limit < 100).then(|| Box::new(guarded()) as Box<dyn SharedSubject>)
    }
}

impl SharedSubject for Guarded {
    fn check(&self, key: u8, cost: u64) -> CheckReply {
        let lock = || self.plain.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now().as_nanos();
        let mut plain = lock();
        let (answer, after) = plain.check(&plain.keys[usize::from(key)], now, cost);
        match self.race {
            Race::LosesCharges => {
                drop(plain);
                std::thread::yield_now();
                plain = lock();
            }
            Race::KeepsOne if plain.room(&after, now) == 0 => {
                return CheckReply { outcome: CheckOutcome::Later { wait_ns: 1 }, ..answer };
            }
            Race::None | Race::KeepsOne => {}
        }
        plain.keys[usize::from(key)] = after;
        answer
    }
}

#[test]
fn threads_that_lose_each_others_charges_are_caught() {
    for algorithm in ALL {
        let effort = Effort { algorithms: vec![algorithm], histories: 100, steps: 50 };
        let seen = conform(&Race::None, &effort).expect("it conforms");
        assert!(seen.turns > 0, "{algorithm:?}: {seen:?}");
        for race in [Race::LosesCharges, Race::KeepsOne] {
            match conform(&race, &effort) {
                Err(Nonconformance::Contended { why, .. }) if why.contains("were admitted") => {}
                other => panic!("{algorithm:?} {race:?}: {other:?}"),
            }
        }
    }
}
