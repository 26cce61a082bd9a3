//! The suite itself: a plain limiter that is right conforms, in every operation and every algorithm, and each classic
//! mistake in it is caught, by the rule that it breaks.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use tidegate::{
    clock::{Clock, ManualClock},
    policy::Algorithm,
    time::Nanos,
};
use tidegate_conformance::{
    Answer, Call, Cost, Coverage, Effort, Failure, Gap, History, Implementation, KEYS, Moment, Numbers, Op, Outcome,
    Reply, Shared, Step, Subject, conform, replay,
};

const BUCKETS: [Algorithm; 2] = [Algorithm::TokenBucket, Algorithm::LeakyBucket];
const ALL: [Algorithm; 5] = [
    Algorithm::TokenBucket,
    Algorithm::LeakyBucket,
    Algorithm::FixedWindow,
    Algorithm::SlidingWindowCounter,
    Algorithm::SlidingWindowLog,
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mistake {
    None,
    IdlingDoublesTheBurst,
    RefusalsAreCharged,
    NeverIsLater,
    NeverIsCharged,
    WaitIsRoundedDown,
    WaitIsZero,
    WaitIsTooLong,
    RemainingWraps,
    RemainingIsOneTooMany,
    ResetIsEarly,
    DelayIsOnePlaceShort,
    OldClockTurnsTimeBack,
    FastRatesAreClamped,
    IntervalIsTruncated,
    BurstIsCutTo32Bits,
    RollLosesAnAdd,
    WindowEndsEarly,
    MonthsHaveThirtyDays,
    WeightIsRoundedDown,
    LogForgetsEarly,
    KeysShare,
    PeekCharges,
    PeekIsGenerous,
    RefundMints,
    RefundOfWhatWasForgotten,
    ExcessIsNotCharged,
    ResetDoesNothing,
    PublishForgets,
    PublishKeepsWhatIsLeft,
}

use Mistake as M;

#[derive(Clone, Debug, Default)]
struct State {
    /// A bucket's instant at which it is full, in n-ths of a nanosecond.
    full_at: u128,
    /// A window's beginning, its count, and that of the one before.
    start: Nanos,
    count: u128,
    before: u128,
    /// A log.
    log: Vec<(Nanos, u128)>,
    newest: Nanos,
}

/// One limit, as simple as can be.
#[derive(Clone, Debug)]
struct Plain {
    mistake: Mistake,
    numbers: Numbers,
    keys: Vec<State>,
    /// Reservations: key, cost, and when; `None` for one whose key was reset since.
    charges: HashMap<usize, (usize, u64, Option<Nanos>)>,
}

impl Plain {
    fn new(mistake: Mistake, numbers: &Numbers) -> Self {
        Self { mistake, numbers: *numbers, keys: vec![State::default(); KEYS.into()], charges: HashMap::new() }
    }

    fn has(&self, mistake: Mistake) -> bool {
        self.mistake == mistake
    }

    /// Limit, period and capacity.
    fn terms(&self) -> (u128, u128, u128) {
        let Numbers { limit, period_ns, .. } = self.numbers;
        let interval = period_ns / limit.max(1);
        let capacity = self.numbers.capacity();
        let capacity = if self.has(M::BurstIsCutTo32Bits) { u64::from(capacity as u32).max(1) } else { capacity };
        let (limit, period_ns) = match self.mistake {
            M::FastRatesAreClamped if interval == 0 => (1, 1),
            M::IntervalIsTruncated if interval > 0 => (1, interval),
            _ => (limit, period_ns),
        };
        (limit.into(), period_ns.into(), capacity.into())
    }

    /// The state in the window of `at`, or in its own if that is newer.
    fn rolled(&self, state: &State, at: Nanos) -> State {
        let period = self.numbers.period_ns;
        let at = at.saturating_add(self.has(M::WindowEndsEarly).into());
        let window = self.numbers.window(at);
        let start = if self.has(M::MonthsHaveThirtyDays) { at / period * period } else { window.start };
        if start <= state.start {
            return state.clone();
        }
        let before = if start - state.start == period { state.count } else { 0 };
        State { start, count: 0, before, ..state.clone() }
    }

    /// Used at `at`, in tokens, as a fraction.
    fn used(&self, state: &State, at: Nanos) -> (u128, u128) {
        let (limit, period, capacity) = self.terms();
        let now = u128::from(at) * limit;
        match self.numbers.algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                // Old credit counts once more.
                let credit =
                    if self.has(M::IdlingDoublesTheBurst) && state.full_at > 0 { capacity * period } else { 0 };
                (state.full_at.max(now.saturating_sub(credit)).saturating_sub(now), period)
            }
            Algorithm::FixedWindow => (self.rolled(state, at).count, 1),
            Algorithm::SlidingWindowCounter => {
                let State { start, count, before, .. } = self.rolled(state, at);
                let used = count * period + before * (u128::from(start) + period - u128::from(at.max(start)));
                if self.has(M::WeightIsRoundedDown) { (used / period, 1) } else { (used, period) }
            }
            Algorithm::SlidingWindowLog => {
                let early = u128::from(self.has(M::LogForgetsEarly));
                let is_held = |then: Nanos| u128::from(then) + period > u128::from(at) + early;
                (state.log.iter().filter(|(then, _)| is_held(*then)).map(|(_, cost)| cost).sum(), 1)
            }
        }
    }

    fn room(&self, state: &State, at: Nanos) -> u64 {
        let ((used, token), (.., capacity)) = (self.used(state, at), self.terms());
        let left = match (capacity * token).checked_sub(used) {
            None if self.has(M::RemainingWraps) => u128::from(u64::MAX) * token,
            left => left.unwrap_or(0),
        };
        (left / token) as u64
    }

    /// Nanoseconds until there is room for `cost`, found by trying.
    fn wait(&self, state: &State, at: Nanos, cost: u64) -> u64 {
        let (mut low, mut high) = (0, u64::MAX - at);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.room(state, at + middle) >= cost { high = middle } else { low = middle + 1 }
        }
        high
    }

    /// The state after `cost` is charged.
    fn charged(&self, state: &State, at: Nanos, cost: u64) -> State {
        let (limit, period, capacity) = self.terms();
        let mut after = self.rolled(state, at);
        let now = u128::from(at) * limit;
        let mut from = now;
        if self.has(M::IdlingDoublesTheBurst) && state.full_at > 0 {
            from = now.saturating_sub(capacity * period);
        } else if self.has(M::OldClockTurnsTimeBack) {
            after.full_at -= (u128::from(state.newest.saturating_sub(at)) * limit).min(after.full_at);
        }
        after.full_at = after.full_at.max(from) + u128::from(cost) * period;
        after.count += if self.has(M::RollLosesAnAdd) && after.start > state.start { 0 } else { u128::from(cost) };
        after.log.push((at, cost.into()));
        after.newest = after.newest.max(at);
        after
    }

    /// The state after an excess is charged: a bucket owes no more than it may.
    fn owed(&self, state: &State, at: Nanos, excess: u64) -> State {
        let (limit, period, capacity) = self.terms();
        let most = u128::from(at) * limit + (capacity + u128::from(self.numbers.debt_max())) * period;
        let after = self.charged(state, at, excess);
        State { full_at: after.full_at.min(most.max(state.full_at)), ..after }
    }

    /// The answer, and the state after it.
    fn check(&self, state: &State, at: Nanos, cost: u64) -> (Answer, State) {
        let (limit, period, capacity) = self.terms();
        let (mut after, capacity) = (state.clone(), capacity as u64);
        let outcome = if cost > capacity && !self.has(M::NeverIsLater) {
            if self.has(M::NeverIsCharged) {
                after = self.charged(state, at, 1);
            }
            Outcome::Never
        } else if cost <= self.room(state, at) {
            after = self.charged(state, at, cost);
            Outcome::Allowed
        } else {
            if self.has(M::RefusalsAreCharged) {
                after = self.charged(state, at, cost.min(capacity));
            }
            let wait_ns = self.wait(state, at, cost);
            let wait_ns = match self.mistake {
                M::WaitIsRoundedDown => (wait_ns / 1_000_000 * 1_000_000).max(1),
                M::WaitIsZero => wait_ns / 1_000_000_000 * 1_000_000_000,
                M::WaitIsTooLong => wait_ns.saturating_add(1_000),
                _ => wait_ns,
            };
            Outcome::Later { wait_ns }
        };
        let is_queued = self.numbers.algorithm == Algorithm::LeakyBucket && outcome == Outcome::Allowed;
        let place = if self.has(M::DelayIsOnePlaceShort) { (period / limit.max(1)) as u64 } else { 0 };
        let answer = Answer {
            at: Some(at),
            outcome,
            remaining: Some(self.room(&after, at) + u64::from(self.has(M::RemainingIsOneTooMany))),
            reset_after_ns: Some(self.wait(&after, at, capacity).saturating_sub(self.has(M::ResetIsEarly).into())),
            delay_ns: Some(if is_queued { self.wait(state, at, capacity).saturating_sub(place) } else { 0 }),
        };
        (answer, after)
    }

    /// What time has not given back yet of the part of a charge that was not needed.
    fn give_back(&mut self, charge: usize, kept: u64, now: Nanos) {
        let Some((key, cost, Some(at))) = self.charges.remove(&charge) else { return };
        let (limit, period, _) = self.terms();
        let (tokens, mut state) = (u128::from(cost - kept), self.rolled(&self.keys[key], now));
        let repaid = if self.has(M::RefundMints) { 0 } else { u128::from(now - at) * limit };
        let left = (tokens * period).saturating_sub(repaid);
        state.full_at = state.full_at.saturating_sub(left).max(u128::from(now) * limit).min(state.full_at);
        if at >= state.start {
            state.count = state.count.saturating_sub(tokens);
        } else if u128::from(at) + period >= u128::from(state.start) {
            state.before = state.before.saturating_sub(tokens);
        }
        if let Some(entry) = state.log.iter_mut().find(|entry| **entry == (at, cost.into())) {
            entry.1 -= tokens;
        }
        self.keys[key] = state;
    }

    fn publish(&mut self, at: Nanos, numbers: Numbers) {
        let windows = |numbers: &Numbers| (numbers.algorithm, numbers.period_ns, numbers.calendar);
        let is_same = windows(&self.numbers) == windows(&numbers);
        let old = std::mem::replace(self, Self::new(self.mistake, &numbers));
        let (limit, period, capacity) = self.terms();
        if self.has(M::PublishForgets) {
            return;
        }
        // Windows count whole tokens; buckets, 4,096ths.
        let is_whole = [numbers, old.numbers].iter().any(|numbers| !BUCKETS.contains(&numbers.algorithm));
        let unit = if is_whole { 1 } else { 4_096 };
        for (new, state) in self.keys.iter_mut().zip(&old.keys) {
            let (used, token) = old.used(state, at);
            let mut used = (used * unit).div_ceil(token).min(capacity * unit);
            if self.mistake == M::PublishKeepsWhatIsLeft && used > 0 {
                used = used.max((capacity * unit).saturating_sub(u128::from(old.room(state, at)) * unit));
            }
            let (full_at, count) = (u128::from(at) * limit + (used * period).div_ceil(unit), used.div_ceil(unit));
            let start = numbers.window(at).start;
            *new = State { full_at, start, count, before: 0, log: vec![(at, count)], newest: at };
            if is_same {
                (new.start, new.count, new.before) =
                    (state.start, state.count.min(capacity), state.before.min(capacity));
            }
        }
    }
}

impl Subject for Plain {
    fn call(&mut self, moment: Moment, call: &Call) -> Reply {
        match *call {
            Call::Check { key, cost } | Call::Reserve { key, estimate: cost, .. } => {
                let key = if self.has(M::KeysShare) { 0 } else { key.into() };
                let (answer, after) = self.check(&self.keys[key], moment.read, cost);
                self.keys[key] = after;
                if let (Call::Reserve { charge, .. }, Outcome::Allowed) = (call, answer.outcome) {
                    self.charges.insert(*charge, (key, cost, Some(moment.read)));
                }
                Reply::Answer(answer)
            }
            Call::Peek { key, cost } => {
                let key = usize::from(key);
                let (mut answer, after) = self.check(&self.keys[key], moment.read, cost);
                if self.has(M::PeekCharges) {
                    self.keys[key] = after;
                }
                if self.has(M::PeekIsGenerous) {
                    answer.outcome = Outcome::Allowed;
                }
                Reply::Answer(answer)
            }
            Call::Settle { charge, actual } => {
                match self.charges.get(&charge) {
                    Some((_, cost, _)) if actual <= *cost => self.give_back(charge, actual, moment.now),
                    Some((key, cost, _)) if !self.has(M::ExcessIsNotCharged) => {
                        self.keys[*key] = self.owed(&self.keys[*key], moment.now, actual - cost);
                    }
                    _ => {}
                }
                self.charges.remove(&charge);
                Reply::Done
            }
            Call::Refund { charge } => {
                self.give_back(charge, 0, moment.now);
                Reply::Done
            }
            Call::Reset { key } => {
                if !self.has(M::ResetDoesNothing) {
                    self.keys[usize::from(key)] = State::default();
                }
                if !self.has(M::RefundOfWhatWasForgotten) {
                    let of_key = self.charges.values_mut().filter(|(of, ..)| *of == usize::from(key));
                    of_key.for_each(|(.., at)| *at = None);
                }
                Reply::Done
            }
            Call::Publish { numbers } => {
                self.publish(moment.now, numbers);
                Reply::Done
            }
            _ => Reply::Unsupported,
        }
    }

    fn can_stall(&self) -> bool {
        true
    }
}

/// A subject that only says whether and when, not how much is left.
struct Terse(Plain);

impl Subject for Terse {
    fn call(&mut self, moment: Moment, call: &Call) -> Reply {
        match self.0.call(moment, call) {
            Reply::Answer(answer) => {
                Reply::Answer(Answer { remaining: None, reset_after_ns: None, delay_ns: None, ..answer })
            }
            other => other,
        }
    }

    fn can_stall(&self) -> bool {
        true
    }
}

/// Limiters with a mistake, for one caller after another.
struct Alone {
    mistake: Mistake,
    is_terse: bool,
}

impl Implementation for Alone {
    fn subject(&self, numbers: &Numbers) -> Option<Box<dyn Subject>> {
        let plain = Plain::new(self.mistake, numbers);
        Some(if self.is_terse { Box::new(Terse(plain)) } else { Box::new(plain) })
    }
}

/// Holds limiters with this mistake to the suite.
fn run(mistake: Mistake, is_terse: bool, algorithms: &[Algorithm], histories: u32) -> Result<Coverage, Failure> {
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
    // Does it show in whether and when alone?
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
            // Some show in one history of a thousand: the rounds are many, so that chance decides nothing.
            let mut rounds = (0..20).map(|_| run(mistake, is_terse, algorithms, 3_000));
            let caught = rounds.find_map(Result::err);
            assert!(matches!(caught, Some(Failure::Wrong { .. })), "{mistake:?} was not caught: {caught:?}");
        }
    }
}

#[test]
#[expect(clippy::unreadable_literal, reason = "as it is printed")]
fn a_failure_is_printed_as_the_expression_that_replays_it() {
    use Algorithm::TokenBucket;
    use Cost::{Capacity, Tokens};
    use Gap::{Retry, Zero};
    use Op::Check;

    // In the lines in which it is printed.
    #[rustfmt::skip]
    let history = History {
        numbers: Numbers { algorithm: TokenBucket, limit: 2, period_ns: 1000000000, calendar: None, burst: None, max_debt: None },
        start: 7,
        steps: vec![
            Step { key: 0, gap: Zero, lag: 0, op: Check(Capacity(0)) },
            Step { key: 0, gap: Retry(-1), lag: 0, op: Check(Tokens(1)) },
        ],
    };
    let why =
        replay(&Alone { mistake: M::WaitIsTooLong, is_terse: false }, &history).expect_err("the wait is too long");
    assert!(why.starts_with("step 1, ") && why.contains("retry-after is 500001000 ns"), "{why}");
    let printed = Failure::Wrong { history: Box::new(history), why }.to_string();
    let (_, expression) = printed.split_once("\nin ").expect("why, and in which history");
    // This file holds it, indented.
    let source = include_str!("mistakes.rs").replace("\n    ", "\n");
    assert!(source.contains(&format!("let history = {expression};")), "{expression}");
}

/// Takes nothing.
struct Nothing;

impl Implementation for Nothing {
    fn subject(&self, _: &Numbers) -> Option<Box<dyn Subject>> {
        None
    }
}

#[test]
fn a_run_that_has_shown_nothing_fails() {
    let effort = Effort { algorithms: ALL.to_vec(), histories: 20, steps: 5 };
    assert!(matches!(conform(&Nothing, &effort), Err(Failure::Vacuous(_))));
}

/// What threads may get wrong.
#[derive(Clone, Copy, Debug)]
enum Race {
    /// Nothing.
    None,
    /// Looks and charges in two steps, as if the mutex were not there.
    LosesCharges,
    /// Never admits the last token.
    KeepsOne,
}

/// A plain limiter behind a mutex.
struct Guarded {
    plain: Mutex<Plain>,
    clock: ManualClock,
    race: Race,
}

impl Implementation for Race {
    fn subject(&self, numbers: &Numbers) -> Option<Box<dyn Subject>> {
        Some(Box::new(Plain::new(M::None, numbers)))
    }

    fn shared(&self, numbers: &Numbers, clock: &ManualClock) -> Option<Box<dyn Shared>> {
        let guarded = || Guarded { plain: Mutex::new(Plain::new(M::None, numbers)), clock: clock.clone(), race: *self };
        // It is too slow for large ones.
        (numbers.limit < 100).then(|| Box::new(guarded()) as Box<dyn Shared>)
    }
}

impl Shared for Guarded {
    fn check(&self, key: u8, cost: u64) -> Answer {
        let lock = || self.plain.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now();
        let mut plain = lock();
        let (answer, after) = plain.check(&plain.keys[usize::from(key)], now, cost);
        match self.race {
            Race::LosesCharges => {
                drop(plain);
                std::thread::yield_now();
                plain = lock();
            }
            Race::KeepsOne if plain.room(&after, now) == 0 => {
                return Answer { outcome: Outcome::Later { wait_ns: 1 }, ..answer };
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
                Err(Failure::Contended { why, .. }) if why.contains("were admitted") => {}
                other => panic!("{algorithm:?} {race:?}: {other:?}"),
            }
        }
    }
}
