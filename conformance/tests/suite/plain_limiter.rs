//! Plain limiter, as simple as possible, which can be given one of the classic mistakes.

use std::collections::HashMap;

use tidegate::{policy::Algorithm, time::Nanos};
use tidegate_conformance::{CheckOutcome, CheckReply, KEYS, LimitNumbers, Moment, Subject, SubjectCall, SubjectReply};

use Mistake as M;

pub(crate) const BUCKETS: [Algorithm; 2] = [Algorithm::TokenBucket, Algorithm::LeakyBucket];

/// A classic mistake of rate limiters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mistake {
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

/// State of a key, for all algorithms.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeyState {
    /// The instant at which a bucket is full, in n-ths of a nanosecond.
    full_at: u128,
    /// The start of a window, its count, and the count of the previous one.
    start: Nanos,
    count: u128,
    before: u128,
    /// The admissions in a log.
    log: Vec<(Nanos, u128)>,
    newest: Nanos,
}

/// A limiter with one limit, for sequential calls.
#[derive(Clone, Debug)]
pub(crate) struct PlainLimiter {
    mistake: Mistake,
    numbers: LimitNumbers,
    pub(crate) keys: Vec<KeyState>,
    /// Reservations: key, cost and time; the time is `None` if the key was reset since.
    charges: HashMap<usize, (usize, u64, Option<Nanos>)>,
}

impl PlainLimiter {
    pub(crate) fn new(mistake: Mistake, numbers: &LimitNumbers) -> Self {
        Self { mistake, numbers: *numbers, keys: vec![KeyState::default(); KEYS.into()], charges: HashMap::new() }
    }

    fn has(&self, mistake: Mistake) -> bool {
        self.mistake == mistake
    }

    /// Returns limit, period and capacity.
    fn terms(&self) -> (u128, u128, u128) {
        let LimitNumbers { limit, period_ns, .. } = self.numbers;
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

    /// Returns the state in the window of `at`, or in its own window if that is newer.
    fn rolled(&self, state: &KeyState, at: Nanos) -> KeyState {
        let period = self.numbers.period_ns;
        let at = at.saturating_add(self.has(M::WindowEndsEarly).into());
        let window = self.numbers.window(at);
        let start = if self.has(M::MonthsHaveThirtyDays) { at / period * period } else { window.start };
        if start <= state.start {
            return state.clone();
        }
        let before = if start - state.start == period { state.count } else { 0 };
        KeyState { start, count: 0, before, ..state.clone() }
    }

    /// Returns the tokens in use at `at`, as a fraction.
    #[expect(clippy::panic, reason = "it fails the test that calls it")]
    fn used(&self, state: &KeyState, at: Nanos) -> (u128, u128) {
        let (limit, period, capacity) = self.terms();
        let now = u128::from(at) * limit;
        match self.numbers.algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                // Credit of the past counts a second time.
                let credit =
                    if self.has(M::IdlingDoublesTheBurst) && state.full_at > 0 { capacity * period } else { 0 };
                (state.full_at.max(now.saturating_sub(credit)).saturating_sub(now), period)
            }
            Algorithm::FixedWindow => (self.rolled(state, at).count, 1),
            Algorithm::SlidingWindowCounter => {
                let KeyState { start, count, before, .. } = self.rolled(state, at);
                let used = count * period + before * (u128::from(start) + period - u128::from(at.max(start)));
                if self.has(M::WeightIsRoundedDown) { (used / period, 1) } else { (used, period) }
            }
            Algorithm::SlidingWindowLog => {
                let early = u128::from(self.has(M::LogForgetsEarly));
                let is_held = |then: Nanos| u128::from(then) + period > u128::from(at) + early;
                (state.log.iter().filter(|(then, _)| is_held(*then)).map(|(_, cost)| cost).sum(), 1)
            }
            other => panic!("no model of {other:?}"),
        }
    }

    pub(crate) fn room(&self, state: &KeyState, at: Nanos) -> u64 {
        let ((used, token), (.., capacity)) = (self.used(state, at), self.terms());
        let left = match (capacity * token).checked_sub(used) {
            None if self.has(M::RemainingWraps) => u128::from(u64::MAX) * token,
            left => left.unwrap_or(0),
        };
        (left / token) as u64
    }

    /// Returns the nanoseconds until `cost` fits, by bisection.
    fn wait(&self, state: &KeyState, at: Nanos, cost: u64) -> u64 {
        let (mut low, mut high) = (0, u64::MAX - at);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.room(state, at + middle) >= cost { high = middle } else { low = middle + 1 }
        }
        high
    }

    /// Returns the state after `cost` is charged.
    fn charged(&self, state: &KeyState, at: Nanos, cost: u64) -> KeyState {
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

    /// Returns the state after an excess is charged, up to the largest debt of a bucket.
    fn owed(&self, state: &KeyState, at: Nanos, excess: u64) -> KeyState {
        let (limit, period, capacity) = self.terms();
        let most = u128::from(at) * limit + (capacity + u128::from(self.numbers.debt_max())) * period;
        let after = self.charged(state, at, excess);
        KeyState { full_at: after.full_at.min(most.max(state.full_at)), ..after }
    }

    /// Returns the reply, and the state after it.
    pub(crate) fn check(&self, state: &KeyState, at: Nanos, cost: u64) -> (CheckReply, KeyState) {
        let (limit, period, capacity) = self.terms();
        let (mut after, capacity) = (state.clone(), capacity as u64);
        let outcome = if cost > capacity && !self.has(M::NeverIsLater) {
            if self.has(M::NeverIsCharged) {
                after = self.charged(state, at, 1);
            }
            CheckOutcome::Never
        } else if cost <= self.room(state, at) {
            after = self.charged(state, at, cost);
            CheckOutcome::Allowed
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
            CheckOutcome::Later { wait_ns }
        };
        let is_queued = self.numbers.algorithm == Algorithm::LeakyBucket && outcome == CheckOutcome::Allowed;
        let place = if self.has(M::DelayIsOnePlaceShort) { (period / limit.max(1)) as u64 } else { 0 };
        let answer = CheckReply {
            at: Some(at),
            outcome,
            remaining: Some(self.room(&after, at) + u64::from(self.has(M::RemainingIsOneTooMany))),
            reset_after_ns: Some(self.wait(&after, at, capacity).saturating_sub(self.has(M::ResetIsEarly).into())),
            delay_ns: Some(if is_queued { self.wait(state, at, capacity).saturating_sub(place) } else { 0 }),
        };
        (answer, after)
    }

    /// Refunds the part of a charge that was not used and that time has not given back yet.
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

    fn publish(&mut self, at: Nanos, numbers: LimitNumbers) {
        let windows = |numbers: &LimitNumbers| (numbers.algorithm, numbers.period_ns, numbers.calendar);
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
            *new = KeyState { full_at, start, count, before: 0, log: vec![(at, count)], newest: at };
            if is_same {
                (new.start, new.count, new.before) =
                    (state.start, state.count.min(capacity), state.before.min(capacity));
            }
        }
    }
}

impl Subject for PlainLimiter {
    fn call(&mut self, moment: Moment, call: &SubjectCall) -> SubjectReply {
        match *call {
            SubjectCall::Check { key, cost } | SubjectCall::Reserve { key, estimate: cost, .. } => {
                let key = if self.has(M::KeysShare) { 0 } else { key.into() };
                let (answer, after) = self.check(&self.keys[key], moment.read, cost);
                self.keys[key] = after;
                if let (SubjectCall::Reserve { charge, .. }, CheckOutcome::Allowed) = (call, answer.outcome) {
                    self.charges.insert(*charge, (key, cost, Some(moment.read)));
                }
                SubjectReply::Check(answer)
            }
            SubjectCall::Peek { key, cost } => {
                let key = usize::from(key);
                let (mut answer, after) = self.check(&self.keys[key], moment.read, cost);
                if self.has(M::PeekCharges) {
                    self.keys[key] = after;
                }
                if self.has(M::PeekIsGenerous) {
                    answer.outcome = CheckOutcome::Allowed;
                }
                SubjectReply::Check(answer)
            }
            SubjectCall::Settle { charge, actual } => {
                match self.charges.get(&charge) {
                    Some((_, cost, _)) if actual <= *cost => self.give_back(charge, actual, moment.now),
                    Some((key, cost, _)) if !self.has(M::ExcessIsNotCharged) => {
                        self.keys[*key] = self.owed(&self.keys[*key], moment.now, actual - cost);
                    }
                    _ => {}
                }
                self.charges.remove(&charge);
                SubjectReply::Done
            }
            SubjectCall::Refund { charge } => {
                self.give_back(charge, 0, moment.now);
                SubjectReply::Done
            }
            SubjectCall::Reset { key } => {
                if !self.has(M::ResetDoesNothing) {
                    self.keys[usize::from(key)] = KeyState::default();
                }
                if !self.has(M::RefundOfWhatWasForgotten) {
                    let of_key = self.charges.values_mut().filter(|(of, ..)| *of == usize::from(key));
                    of_key.for_each(|(.., at)| *at = None);
                }
                SubjectReply::Done
            }
            SubjectCall::Publish { numbers } => {
                self.publish(moment.now, numbers);
                SubjectReply::Done
            }
            _ => SubjectReply::Unsupported,
        }
    }

    fn can_stall(&self) -> bool {
        true
    }
}
