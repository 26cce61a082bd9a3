//! The engine with a policy of one limit.

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
    time::Nanos,
};
use tidegate_conformance::{Answer, Call, Implementation, Moment, Numbers, Reply, Shared, Subject};

use super::{answer, ask, engine, policy};

pub(crate) struct Engines;

impl Implementation for Engines {
    fn subject(&self, numbers: &Numbers) -> Option<Box<dyn Subject>> {
        let clock = Stalling::default();
        let engine = engine(numbers, policy(numbers, |limit| vec![limit])?, clock.clone());
        Some(Box::new(Whole { engine, clock, reserved: HashMap::new() }))
    }

    fn shared(&self, numbers: &Numbers, clock: &ManualClock) -> Option<Box<dyn Shared>> {
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
    fn now(&self) -> Nanos {
        let now = self.0[0].load(Ordering::SeqCst);
        self.0[1].swap(now, Ordering::SeqCst)
    }
}

struct Whole {
    engine: Engine<Stalling>,
    clock: Stalling,
    reserved: HashMap<usize, Reservation>,
}

impl Subject for Whole {
    fn call(&mut self, moment: Moment, call: &Call) -> Reply {
        self.clock.set(moment);
        let engine = &self.engine;
        match *call {
            Call::Check { key, cost } => {
                return Reply::Answer(ask(key, cost, |request| answer(&engine.check(request))));
            }
            Call::Peek { key, cost } => {
                return Reply::Answer(ask(key, cost, |request| answer(&engine.peek(request))));
            }
            Call::Reserve { key, estimate, charge } => {
                return ask(key, estimate, |request| {
                    let (decision, reservation) = engine.reserve(request);
                    self.reserved.extend(reservation.map(|reservation| (charge, reservation)));
                    Reply::Answer(answer(&decision))
                });
            }
            Call::Settle { charge, actual } => engine.settle(self.reserved.remove(&charge).expect("open"), actual),
            Call::Refund { charge } => engine.refund(self.reserved.remove(&charge).expect("open")),
            Call::Reset { key } => {
                let _ = ask(key, 0, |request| engine.reset(request));
            }
            Call::Publish { numbers } => {
                let Some(snapshot) = policy(&numbers, |limit| vec![limit]) else { return Reply::Unsupported };
                engine.publish(snapshot).expect("one limit");
            }
            _ => return Reply::Unsupported,
        }
        Reply::Done
    }

    fn can_stall(&self) -> bool {
        true
    }
}

struct SharedWhole(Engine<ManualClock>);

impl Shared for SharedWhole {
    fn check(&self, key: u8, cost: u64) -> Answer {
        ask(key, cost, |request| answer(&self.0.check(request)))
    }
}
