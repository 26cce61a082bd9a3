//! Conformance of the pure step, and of the bucket without a table.

use std::{collections::HashMap, time::Duration};

use tidegate::{
    algorithm::{Carry, FixedWindow, Meter, SlidingWindowCounter, TokenBucket},
    clock::{Clock, ManualClock},
    internals::{Bucket, Receipt, Verdict},
    policy::Algorithm,
    time::Nanos,
};
use tidegate_conformance::{
    CheckOutcome, CheckReply, Implementation, KEYS, LimitNumbers, Moment, SharedSubject, Subject, SubjectCall,
    SubjectReply,
};

use super::outcome;

#[expect(clippy::panic, reason = "a new algorithm must be compared")]
pub(crate) fn meter(numbers: &LimitNumbers) -> Option<Meter> {
    let &LimitNumbers { algorithm, limit, period_ns, burst, .. } = numbers;
    let bucket = || TokenBucket::new(limit, Duration::from_nanos(period_ns), burst.unwrap_or(limit)).ok();
    match algorithm {
        Algorithm::TokenBucket => bucket().map(Meter::TokenBucket),
        Algorithm::LeakyBucket => bucket().map(Meter::LeakyBucket),
        // The compiler of policies makes calendars.
        Algorithm::FixedWindow if numbers.calendar.is_some() => None,
        Algorithm::FixedWindow => FixedWindow::new(limit, Duration::from_nanos(period_ns)).ok().map(Meter::FixedWindow),
        Algorithm::SlidingWindowCounter => {
            SlidingWindowCounter::new(limit, Duration::from_nanos(period_ns)).ok().map(Meter::SlidingWindowCounter)
        }
        // Over one word it is stricter than the rule; the engine has a ring beside it.
        Algorithm::SlidingWindowLog => None,
        other => panic!("no pure step of {other:?} is compared yet"),
    }
}

/// The pure step.
pub(crate) struct Steps;

impl Implementation for Steps {
    fn subject(&self, numbers: &LimitNumbers) -> Option<Box<dyn Subject>> {
        let meter = meter(numbers)?;
        let keys = [StepKey::default(); KEYS as usize];
        Some(Box::new(Step { meter, max_debt: numbers.debt_max(), keys, reserved: HashMap::new() }))
    }
}

/// Buckets without a table.
pub(crate) struct Buckets;

impl Implementation for Buckets {
    fn subject(&self, numbers: &LimitNumbers) -> Option<Box<dyn Subject>> {
        Some(Box::new(Alone::new(numbers)?))
    }

    fn shared(&self, numbers: &LimitNumbers, clock: &ManualClock) -> Option<Box<dyn SharedSubject>> {
        Some(Box::new(SharedAlone(Alone::new(numbers)?, clock.clone())))
    }
}

/// The step with the words that its caller holds.
struct Step {
    meter: Meter,
    max_debt: u64,
    keys: [StepKey; KEYS as usize],
    reserved: HashMap<usize, Reserved>,
}

#[derive(Clone, Copy, Default)]
struct StepKey {
    word: u64,
    /// The sum by which refunds moved the word back.
    moved_ns: u64,
    /// The number of resets. Receipts from before a reset are void, which their holder must check.
    resets: u64,
}

struct Reserved {
    key: u8,
    receipt: Receipt,
    /// The key as it was before.
    before: StepKey,
}

impl Step {
    /// The answer, and the word after it.
    fn answer(&self, key: u8, now: Nanos, cost: u64) -> (CheckReply, u64) {
        let word = self.keys[usize::from(key)].word;
        let verdict = self.meter.step(word, now, cost);
        let (after, delay_ns) = match verdict {
            Verdict::Admit(after) => (after, self.meter.delay_ns(after, now, cost)),
            _ => (word, 0),
        };
        let answer = CheckReply {
            at: Some(now),
            outcome: outcome(verdict),
            remaining: Some(self.meter.remaining(after, now)),
            reset_after_ns: Some(self.meter.reset_after_ns(after, now)),
            delay_ns: Some(delay_ns),
        };
        (answer, after)
    }

    fn check(&mut self, key: u8, now: Nanos, cost: u64) -> CheckReply {
        let (answer, word) = self.answer(key, now, cost);
        self.keys[usize::from(key)].word = word;
        answer
    }

    fn settle(&mut self, charge: usize, actual: u64, now: Nanos) {
        let Some(Reserved { key, receipt, before }) = self.reserved.remove(&charge) else { return };
        let key = &mut self.keys[usize::from(key)];
        if actual > receipt.cost {
            let excess = (actual - receipt.cost).min(self.meter.debt_room(key.word, now, self.max_debt));
            key.word = self.meter.overcharge(key.word, now, excess);
        } else if key.resets == before.resets {
            let moved_ns = key.moved_ns - before.moved_ns;
            let receipt = Receipt { cost: receipt.cost - actual, moved_ns, ..receipt };
            let after = self.meter.give_back(key.word, now, &receipt).unwrap_or(key.word);
            *key = StepKey { word: after, moved_ns: key.moved_ns + key.word.saturating_sub(after), ..*key };
        }
    }
}

impl Subject for Step {
    fn call(&mut self, moment: Moment, call: &SubjectCall) -> SubjectReply {
        match *call {
            SubjectCall::Check { key, cost } => return SubjectReply::Check(self.check(key, moment.read, cost)),
            SubjectCall::Peek { key, cost } => return SubjectReply::Check(self.answer(key, moment.read, cost).0),
            SubjectCall::Reserve { key, estimate, charge } => {
                let before = self.keys[usize::from(key)];
                let answer = self.check(key, moment.read, estimate);
                if answer.outcome == CheckOutcome::Allowed {
                    let word = self.keys[usize::from(key)].word;
                    let receipt = Receipt { cost: estimate, charged_at: moment.read, word, moved_ns: 0 };
                    self.reserved.insert(charge, Reserved { key, receipt, before });
                }
                return SubjectReply::Check(answer);
            }
            SubjectCall::Settle { charge, actual } => self.settle(charge, actual, moment.now),
            SubjectCall::Refund { charge } => self.settle(charge, 0, moment.now),
            SubjectCall::Reset { key } => {
                let key = &mut self.keys[usize::from(key)];
                *key = StepKey { word: 0, resets: key.resets + 1, ..*key };
            }
            SubjectCall::Publish { numbers } => {
                let Some(next) = meter(&numbers) else { return SubjectReply::Unsupported };
                for key in &mut self.keys {
                    key.word = self.meter.carry_over(key.word, moment.now, &next, Carry::Keep);
                }
                (self.meter, self.max_debt) = (next, numbers.debt_max());
            }
            _ => return SubjectReply::Unsupported,
        }
        SubjectReply::Done
    }

    fn can_stall(&self) -> bool {
        true
    }
}

/// Buckets without a table, one for each key.
struct Alone {
    meter: Meter,
    buckets: [Bucket; KEYS as usize],
}

impl Alone {
    fn new(numbers: &LimitNumbers) -> Option<Self> {
        Some(Self { meter: meter(numbers)?, buckets: std::array::from_fn(|_| Bucket::new()) })
    }

    fn charge(&self, key: u8, now: Nanos, cost: u64) -> CheckReply {
        let verdict = self.buckets[usize::from(key)].charge(&self.meter, now, cost);
        let remaining = match verdict {
            Verdict::Admit(word) => Some(self.meter.remaining(word, now)),
            _ => None,
        };
        CheckReply { at: Some(now), outcome: outcome(verdict), remaining, reset_after_ns: None, delay_ns: None }
    }
}

impl Subject for Alone {
    fn call(&mut self, moment: Moment, call: &SubjectCall) -> SubjectReply {
        match *call {
            SubjectCall::Check { key, cost } => SubjectReply::Check(self.charge(key, moment.read, cost)),
            _ => SubjectReply::Unsupported,
        }
    }

    fn can_stall(&self) -> bool {
        true
    }
}

struct SharedAlone(Alone, ManualClock);

impl SharedSubject for SharedAlone {
    fn check(&self, key: u8, cost: u64) -> CheckReply {
        self.0.charge(key, self.1.now().as_nanos(), cost)
    }
}
