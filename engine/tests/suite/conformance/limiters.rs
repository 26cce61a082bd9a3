//! Conformance of limiters without a policy.

use std::time::Duration;

use tidegate::{
    KeyedLimiter, Outcome, RatedLimiter,
    algorithm::{Meter, TokenBucket},
    clock::{Clock, ManualClock},
    time::Timestamp,
};
use tidegate_conformance::{
    CheckReply, Implementation, LimitNumbers, Moment, SharedSubject, Subject, SubjectCall, SubjectReply,
};

use super::{engine::Stalling, retry, step::meter};

pub(crate) struct Limiters;

impl Implementation for Limiters {
    fn subject(&self, numbers: &LimitNumbers) -> Option<Box<dyn Subject>> {
        Some(Box::new(Keyed(limiter(numbers, Stalling::default())?)))
    }

    fn shared(&self, numbers: &LimitNumbers, clock: &ManualClock) -> Option<Box<dyn SharedSubject>> {
        Some(Box::new(Keyed(limiter(numbers, clock.clone())?)))
    }
}

struct Keyed<C>(KeyedLimiter<C>);

fn limiter<C: Clock>(numbers: &LimitNumbers, clock: C) -> Option<KeyedLimiter<C>> {
    let meter = if numbers.limit == 0 { None } else { Some(meter(numbers)?) };
    Some(KeyedLimiter::with_clock(meter, 16, clock))
}

fn answer(outcome: &Outcome) -> CheckReply {
    let ns = |duration: Duration| duration.as_nanos() as u64;
    CheckReply {
        at: Some(Timestamp::from(outcome.reset_at() - outcome.reset_after()).as_nanos()),
        outcome: retry(outcome.retry()),
        remaining: Some(outcome.remaining()),
        reset_after_ns: Some(ns(outcome.reset_after())),
        delay_ns: Some(ns(outcome.delay())),
    }
}

impl Subject for Keyed<Stalling> {
    fn call(&mut self, moment: Moment, call: &SubjectCall) -> SubjectReply {
        self.0.clock().set(moment);
        match *call {
            SubjectCall::Check { key, cost } => SubjectReply::Check(answer(&self.0.check_n(u64::from(key), cost))),
            SubjectCall::Peek { key, cost } => SubjectReply::Check(answer(&self.0.peek_n(u64::from(key), cost))),
            _ => SubjectReply::Unsupported,
        }
    }

    fn can_stall(&self) -> bool {
        true
    }
}

impl SharedSubject for Keyed<ManualClock> {
    fn check(&self, key: u8, cost: u64) -> CheckReply {
        answer(&self.0.check_n(u64::from(key), cost))
    }
}

/// Limiters whose numbers come with each check.
pub(crate) struct Rated;

impl Implementation for Rated {
    fn subject(&self, numbers: &LimitNumbers) -> Option<Box<dyn Subject>> {
        Some(Box::new(ByBucket(RatedLimiter::with_clock(16, Stalling::default()), bucket(numbers)?)))
    }

    fn shared(&self, numbers: &LimitNumbers, clock: &ManualClock) -> Option<Box<dyn SharedSubject>> {
        Some(Box::new(ByBucket(RatedLimiter::with_clock(16, clock.clone()), bucket(numbers)?)))
    }
}

struct ByBucket<C>(RatedLimiter<C>, TokenBucket);

fn bucket(numbers: &LimitNumbers) -> Option<TokenBucket> {
    match meter(numbers)? {
        Meter::TokenBucket(bucket) if numbers.limit > 0 => Some(bucket),
        _ => None,
    }
}

impl Subject for ByBucket<Stalling> {
    fn call(&mut self, moment: Moment, call: &SubjectCall) -> SubjectReply {
        self.0.clock().set(moment);
        match *call {
            SubjectCall::Check { key, cost } => {
                SubjectReply::Check(answer(&self.0.check_n(u64::from(key), self.1, cost)))
            }
            SubjectCall::Peek { key, cost } => {
                SubjectReply::Check(answer(&self.0.peek_n(u64::from(key), self.1, cost)))
            }
            _ => SubjectReply::Unsupported,
        }
    }

    fn can_stall(&self) -> bool {
        true
    }
}

impl SharedSubject for ByBucket<ManualClock> {
    fn check(&self, key: u8, cost: u64) -> CheckReply {
        answer(&self.0.check_n(u64::from(key), self.1, cost))
    }
}
