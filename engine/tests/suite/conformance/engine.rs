//! Conformance of the engine with a policy of one limit.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use tidegate::{
    Engine, Reservation,
    clock::{Clock, ManualClock},
    time::Timestamp,
};
use tidegate_conformance::{
    CheckReply, Implementation, LimitNumbers, Moment, SharedSubject, Subject, SubjectCall, SubjectReply,
};

use super::{answer, ask, engine, policy};

pub(crate) struct Engines;

impl Implementation for Engines {
    fn subject(&self, numbers: &LimitNumbers) -> Option<Box<dyn Subject>> {
        let clock = Stalling::default();
        let engine = engine(numbers, policy(numbers, |limit| vec![limit])?, clock.clone());
        Some(Box::new(Whole { engine, clock, reserved: HashMap::new() }))
    }

    fn shared(&self, numbers: &LimitNumbers, clock: &ManualClock) -> Option<Box<dyn SharedSubject>> {
        Some(Box::new(SharedWhole(engine(numbers, policy(numbers, |limit| vec![limit])?, clock.clone()))))
    }
}

/// A clock whose next reading is the one of a thread that stalls right after it; every other reading is the time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stalling(Arc<[AtomicU64; 2]>);

impl Stalling {
    pub(crate) fn set(&self, moment: Moment) {
        self.0[0].store(moment.now, Ordering::SeqCst);
        self.0[1].store(moment.read, Ordering::SeqCst);
    }
}

impl Clock for Stalling {
    fn now(&self) -> Timestamp {
        let now = self.0[0].load(Ordering::SeqCst);
        Timestamp::from_nanos(self.0[1].swap(now, Ordering::SeqCst))
    }
}

struct Whole {
    engine: Engine<Stalling>,
    clock: Stalling,
    reserved: HashMap<usize, Reservation>,
}

impl Subject for Whole {
    fn call(&mut self, moment: Moment, call: &SubjectCall) -> SubjectReply {
        self.clock.set(moment);
        let engine = &self.engine;
        match *call {
            SubjectCall::Check { key, cost } => {
                return SubjectReply::Check(ask(key, cost, |request| answer(&engine.check(request))));
            }
            SubjectCall::Peek { key, cost } => {
                return SubjectReply::Check(ask(key, cost, |request| answer(&engine.peek(request))));
            }
            SubjectCall::Reserve { key, estimate, charge } => {
                return ask(key, estimate, |request| {
                    let (decision, reservation) = engine.reserve(request);
                    self.reserved.extend(reservation.map(|reservation| (charge, reservation)));
                    SubjectReply::Check(answer(&decision))
                });
            }
            SubjectCall::Settle { charge, actual } => {
                engine.settle(self.reserved.remove(&charge).expect("open"), actual);
            }
            SubjectCall::Refund { charge } => engine.refund(self.reserved.remove(&charge).expect("open")),
            SubjectCall::Reset { key } => {
                let _ = ask(key, 0, |request| engine.reset(request));
            }
            SubjectCall::Publish { numbers } => {
                let Some(snapshot) = policy(&numbers, |limit| vec![limit]) else { return SubjectReply::Unsupported };
                engine.publish(snapshot).expect("one limit");
            }
            _ => return SubjectReply::Unsupported,
        }
        SubjectReply::Done
    }

    fn can_stall(&self) -> bool {
        true
    }
}

struct SharedWhole(Engine<ManualClock>);

impl SharedSubject for SharedWhole {
    fn check(&self, key: u8, cost: u64) -> CheckReply {
        ask(key, cost, |request| answer(&self.0.check(request)))
    }
}
