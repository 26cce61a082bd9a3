//! Conformance of checks in two halves: one limit of this node and one in a store, with the same numbers, so that what
//! holds for each holds for both. The store is a map of this test, driven by the same steps.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use tidegate::{
    Decision, Engine, Snapshot,
    clock::{Clock, ManualClock},
    internals::{BeginResult, GiveBack, Receipt, StoreCharge, Verdict},
    policy::{Limit, Sharing},
    time::Timestamp,
};
use tidegate_conformance::{
    CheckReply, Implementation, LimitNumbers, Moment, SharedSubject, Subject, SubjectCall, SubjectReply,
};

use super::{answer, ask, engine, policy};

pub(crate) struct Fleets;

impl Implementation for Fleets {
    fn subject(&self, numbers: &LimitNumbers) -> Option<Box<dyn Subject>> {
        Some(Box::new(Fleet::new(numbers, ManualClock::at(Timestamp::from_nanos(0)))?))
    }

    fn shared(&self, numbers: &LimitNumbers, clock: &ManualClock) -> Option<Box<dyn SharedSubject>> {
        Some(Box::new(Fleet::new(numbers, clock.clone())?))
    }
}

struct Fleet {
    engine: Engine<ManualClock>,
    clock: ManualClock,
    store: Mutex<Store>,
}

#[derive(Default)]
struct Store {
    words: HashMap<String, u64>,
    /// The charges that may still be given back, by key.
    charged: HashMap<String, Vec<Receipt>>,
}

/// Returns a policy with a limit of these numbers on this node, and one in the store.
fn both(numbers: &LimitNumbers) -> Option<Snapshot> {
    policy(numbers, |limit| {
        let stored = Limit { id: "s".to_owned(), sharing: Sharing::Strict, ..limit.clone() };
        vec![limit, stored]
    })
}

fn key(charge: &StoreCharge<'_>) -> String {
    charge.identities().map(|identity| identity.value()).collect()
}

impl Store {
    fn decide(&mut self, charge: &StoreCharge<'_>, now: u64) -> tidegate::internals::StoreAnswer {
        let word = self.words.entry(key(charge)).or_default();
        // A peek is a step of one token whose word is not stored.
        let verdict = charge.meter.step(*word, now, charge.cost.max(1));
        if let (Verdict::Admit(new), true) = (verdict, charge.cost > 0) {
            *word = new;
            let receipt = Receipt { cost: charge.cost, charged_at: now, word: new, moved_ns: u64::MAX };
            self.charged.entry(key(charge)).or_default().push(receipt);
        }
        tidegate::internals::StoreAnswer::Decided { verdict, word: *word, now }
    }

    fn give_back(&mut self, charge: &StoreCharge<'_>, now: u64) {
        let charged = self.charged.entry(key(charge)).or_default();
        let place = charged.iter().rposition(|receipt| receipt.cost == charge.cost).expect("it was charged");
        let receipt = charged.remove(place);
        let word = self.words.entry(key(charge)).or_default();
        *word = charge.meter.give_back(*word, now, &receipt).unwrap_or(*word);
    }
}

impl Fleet {
    fn new(numbers: &LimitNumbers, clock: ManualClock) -> Option<Self> {
        let engine = engine(numbers, both(numbers)?, clock.clone());
        Some(Self { engine, clock, store: Mutex::default() })
    }

    fn check(&self, key: u8, cost: u64) -> CheckReply {
        ask(key, cost, |request| {
            let store = || self.store.lock().unwrap_or_else(PoisonError::into_inner);
            let decision: Decision<'_> = match self.engine.begin(request) {
                BeginResult::Decided(decision) => decision,
                BeginResult::Pending(pending) => {
                    let now = self.clock.now();
                    let answers: Vec<_> =
                        pending.charges().map(|charge| store().decide(&charge, now.as_nanos())).collect();
                    let (decision, give_back) = self.engine.finish(pending, &answers);
                    for charge in give_back.iter().flat_map(GiveBack::charges) {
                        store().give_back(&charge, self.clock.now().as_nanos());
                    }
                    decision
                }
            };
            answer(&decision)
        })
    }
}

impl Subject for Fleet {
    fn call(&mut self, moment: Moment, call: &SubjectCall) -> SubjectReply {
        self.clock.set(Timestamp::from_nanos(moment.now));
        match *call {
            SubjectCall::Check { key, cost } => SubjectReply::Check(self.check(key, cost)),
            SubjectCall::Peek { key, cost: 0 } => SubjectReply::Check(self.check(key, 0)),
            _ => SubjectReply::Unsupported,
        }
    }
}

impl SharedSubject for Fleet {
    fn check(&self, key: u8, cost: u64) -> CheckReply {
        // The two limits are charged one after the other, and the clock may move between them.
        CheckReply { at: None, ..self.check(key, cost) }
    }
}
