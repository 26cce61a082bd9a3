//! A store of one key and three nodes that lease from it, as a test drives them event by event.

use proptest::prelude::*;
use tidegate::{
    algorithm::Meter,
    internals::{Receipt, StoreAnswer, Verdict},
    time::{Nanos, SECOND_NS},
};

use crate::store::{
    client::clock_reading::ClockReading,
    config::LEASE_NS,
    local::lease::{Lease, SpendResult},
    script::{
        decode::KeyReply,
        grant::LeaseRequest,
        plan::{Intent, KeyRequest},
        record::VersionedMeter,
        script_model,
    },
};

pub(super) const START: Nanos = 1_790_035_200 * SECOND_NS;

#[derive(Clone, Debug)]
pub(super) enum Event {
    /// A node is asked for this many tokens.
    Check(usize, u64),
    /// The store handles one of the requests under way, in any order.
    Serve {
        which: usize,
        reply: Reply,
    },
    /// A node receives a late reply.
    Hear(usize),
    /// A node renews its lease, or gives it back.
    Renew(usize, bool),
    /// A node takes back one of its charges.
    PutBack(usize, usize),
    /// A node gets the newest numbers.
    Publish(usize),
    /// A node dies, and another one takes its place.
    Crash(usize),
    Pass(u64),
    /// The time moves to so many milliseconds before the end of the window.
    WindowEnds(u64),
    /// A node uses all that is left, and each reply arrives at once.
    UseUp(usize),
}

/// The fate of a reply of the store.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reply {
    Heard,
    Late,
    Lost,
}

/// Draws the index of a request, mostly that of the oldest.
pub(super) fn serve_order() -> impl Strategy<Value = usize> {
    prop_oneof![3 => Just(0), 2 => 0_usize..4]
}

pub(super) fn reply() -> impl Strategy<Value = Reply> {
    prop_oneof![7 => Just(Reply::Heard), 2 => Just(Reply::Late), 1 => Just(Reply::Lost)]
}

pub(super) fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        16 => (0_usize..3, 1_u64..6).prop_map(|(node, cost)| Event::Check(node, cost)),
        12 => (serve_order(), reply()).prop_map(|(which, reply)| Event::Serve { which, reply }),
        3 => serve_order().prop_map(Event::Hear),
        2 => (0_usize..3, any::<bool>()).prop_map(|(node, keeps)| Event::Renew(node, keeps)),
        4 => (0_usize..3, 0_usize..10).prop_map(|(node, which)| Event::PutBack(node, which)),
        1 => (0_usize..3).prop_map(Event::Publish),
        1 => (0_usize..3).prop_map(Event::Crash),
        6 => prop_oneof![4 => 0..30_u64, 2 => 0..2_000_u64, 1 => 0..40_000_u64].prop_map(Event::Pass),
        3 => prop_oneof![Just(0), 1..30_u64].prop_map(Event::WindowEnds),
        2 => (0_usize..3).prop_map(Event::UseUp),
    ];
    prop::collection::vec(event, 0..400)
}

pub(super) const SERVE: Event = Event::Serve { which: 0, reply: Reply::Heard };

pub(super) struct Node {
    pub(super) lease: Lease,
    pub(super) own: VersionedMeter,
    /// The record of the store that the node knows.
    pub(super) known: String,
    /// The offset of its own clock.
    pub(super) offset: Nanos,
    /// The generation of the node in this place.
    pub(super) born: usize,
    /// The charges, each with its numbers and its index in `admitted`.
    pub(super) receipts: Vec<(Receipt, VersionedMeter, usize)>,
}

/// A request of a node: for a lease, or to give back a charge of a denied request.
pub(super) struct Sent {
    pub(super) node: usize,
    pub(super) born: usize,
    pub(super) own: VersionedMeter,
    pub(super) what: Intent,
}

/// The store's reply to a request for a lease.
pub(super) struct Replied {
    node: usize,
    born: usize,
    own: VersionedMeter,
    ask: LeaseRequest,
    key_reply: KeyReply,
    is_lost: bool,
    served_at: Nanos,
}

/// The store of one key, and three nodes with clocks of their own.
pub(super) struct World {
    pub(super) newest: Meter,
    pub(super) now: Nanos,
    pub(super) value: String,
    pub(super) nodes: [Node; 3],
    pub(super) under_way: Vec<Sent>,
    pub(super) replies: Vec<Replied>,
    /// The time and the tokens of each admission; no tokens where the charge was taken back.
    pub(super) admitted: Vec<(Nanos, u64)>,
}

impl World {
    pub(super) fn new(numbers: [Meter; 2]) -> Self {
        let own = VersionedMeter { meter: numbers[0], version: 0 };
        let nodes = [0, 77, 30 * SECOND_NS].map(|offset| Node {
            lease: Lease::new(),
            own,
            known: String::new(),
            offset,
            born: 0,
            receipts: Vec::new(),
        });
        let (value, under_way, replies, admitted) = (String::new(), Vec::new(), Vec::new(), Vec::new());
        Self { newest: numbers[1], now: START, value, nodes, under_way, replies, admitted }
    }

    pub(super) fn moment(&self, node: usize) -> ClockReading {
        // The store's time as a node knows it is a little late, and the node's own clock begins anywhere.
        ClockReading { store: self.now - 300_000 * node as u64, own: self.now - self.nodes[node].offset }
    }

    pub(super) fn ask(&mut self, node: usize, need: u64, keep: bool) {
        let now = self.moment(node);
        let Node { lease, own, born, .. } = &mut self.nodes[node];
        if !lease.is_asking {
            let what = Intent::Lease(lease.ask(&own.meter, need, keep, now));
            self.under_way.push(Sent { node, born: *born, own: *own, what });
        }
    }

    pub(super) fn admit(&mut self, node: usize, cost: u64, answer: StoreAnswer) {
        let StoreAnswer::Decided { verdict: Verdict::Admit(word), now, .. } = answer else { return };
        let receipt = Receipt { cost, charged_at: now, word, moved_ns: u64::MAX };
        let Node { own, receipts, .. } = &mut self.nodes[node];
        receipts.push((receipt, *own, self.admitted.len()));
        self.admitted.push((self.now, cost));
    }

    pub(super) fn hear(&mut self, which: usize) {
        let Replied { node, born, own, ask, key_reply, is_lost, served_at } = self.replies.remove(which);
        let now = self.moment(node);
        let it = &mut self.nodes[node];
        if it.born != born {
            return;
        }
        match key_reply.grant {
            Some(grant) if !is_lost => {
                it.lease.granted(&own.meter, &ask, &grant, (served_at, now), LEASE_NS);
                it.known = key_reply.text;
            }
            _ => it.lease.failed(),
        }
    }

    // Long: one arm for each event.
    pub(super) fn happen(&mut self, event: &Event) {
        match *event {
            Event::Pass(ms) => self.now += ms * 1_000_000,
            Event::Check(node, cost) => {
                let now = self.moment(node);
                let Node { lease, own, .. } = &mut self.nodes[node];
                match lease.spend(&own.meter, cost, now) {
                    SpendResult::Answer(answer, is_time) => {
                        self.admit(node, cost, answer);
                        if is_time {
                            self.ask(node, 0, true);
                        }
                    }
                    SpendResult::Ask => self.ask(node, cost, true),
                }
            }
            Event::Renew(node, keeps) => self.ask(node, 0, keeps),
            Event::PutBack(node, which) => {
                let now = self.moment(node);
                let Node { lease, own, born, receipts, .. } = &mut self.nodes[node];
                if receipts.is_empty() {
                    return;
                }
                let (receipt, under, place) = receipts.swap_remove(which % receipts.len());
                let is_its = own.meter == under.meter;
                let left = if is_its { lease.put_back(&own.meter, &receipt, now) } else { receipt.cost };
                if left > 0 {
                    let what = Intent::GiveBack(Receipt { cost: left, ..receipt });
                    self.under_way.push(Sent { node, born: *born, own: under, what });
                }
                self.admitted[place].1 = 0;
            }
            Event::Publish(node) => {
                let own = VersionedMeter { meter: self.newest, version: 1 };
                if self.nodes[node].own.meter != own.meter {
                    if self.nodes[node].lease.out() > 0 {
                        self.ask(node, 0, false);
                    }
                    self.nodes[node].lease = Lease::new();
                    self.nodes[node].born += 1;
                }
                self.nodes[node].own = own;
            }
            Event::Crash(node) => {
                let Node { own, offset, born, .. } = self.nodes[node];
                let (lease, known, receipts) = (Lease::new(), String::new(), Vec::new());
                self.nodes[node] = Node { lease, own, known, offset: offset / 2, born: born + 1, receipts };
                self.under_way.retain(|sent| sent.node != node);
            }
            Event::WindowEnds(in_ms) => {
                let period_ns = self.newest.period_ns();
                self.now = self.now.max((self.now / period_ns + 1) * period_ns - in_ms * 1_000_000);
            }
            Event::UseUp(node) => {
                for _ in 0..100 {
                    let count = self.admitted.len();
                    self.happen(&Event::Check(node, 1));
                    if let Some(which) = self.under_way.iter().position(|sent| sent.node == node) {
                        self.happen(&Event::Serve { which, reply: Reply::Heard });
                    }
                    if self.admitted.len() == count && !self.nodes[node].lease.is_asking {
                        break;
                    }
                }
            }
            Event::Serve { which, reply } if !self.under_way.is_empty() => {
                let Sent { node, born, own, what } = self.under_way.remove(which % self.under_way.len());
                let mut request = KeyRequest::again(String::new(), own, what.clone(), Some(&self.nodes[node].known));
                let now = self.moment(node);
                // A store's clock has microseconds.
                let key_reply = script_model::run(&mut request, &mut self.value, now.store, self.now / 1_000 * 1_000);
                let Intent::Lease(ask) = what else { return };
                let (is_lost, served_at) = (matches!(reply, Reply::Lost), self.now);
                // The check that waited was charged then, even if the reply arrives later.
                if !is_lost && self.nodes[node].born == born && key_reply.grant.is_some_and(|grant| grant.is_charged) {
                    self.admit(node, ask.need, key_reply.answer);
                }
                self.replies.push(Replied { node, born, own, ask, key_reply, is_lost, served_at });
                if !matches!(reply, Reply::Late) {
                    self.hear(self.replies.len() - 1);
                }
            }
            Event::Hear(which) if !self.replies.is_empty() => self.hear(which % self.replies.len()),
            Event::Serve { .. } | Event::Hear(_) => {}
        }
    }
}
