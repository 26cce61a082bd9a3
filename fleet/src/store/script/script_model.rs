//! A model of the store's script in Rust: tests run it in place of a store, and compare it with the script on a real
//! server.

use std::collections::HashMap;

use tidegate::{
    algorithm::Meter,
    internals::RemoteAdd,
    time::{Nanos, SECOND_NS},
};

use crate::store::script::{
    argument::ScriptArgument,
    decode::OpOutcome,
    op::ScriptOp,
    record::{self, Leases, Record, StoredRecord, VersionedMeter},
};
#[cfg(test)]
use crate::store::script::{decode::KeyReply, plan::KeyRequest};

/// Runs a request for one key at `now` of the store's clock, for a node that assumes the time `supposed`.
#[cfg(test)]
pub(crate) fn run(request: &mut KeyRequest, value: &mut String, assumed: Nanos, now: Nanos) -> KeyReply {
    let mut assumed = assumed;
    for _ in 0..10 {
        let op = request.op(assumed);
        request.is_refused = op.is_err();
        let done = apply(&op.unwrap_or(ScriptOp::Look), value, request.own.version, now);
        if let Some(reply) = request.answer(done, value.clone(), now) {
            return reply;
        }
        assumed = now;
    }
    panic!("it is never answered: {request:?} of {value}")
}

fn apply(op: &ScriptOp, value: &mut String, version: u64, now: Nanos) -> OpOutcome {
    let is_time = |from: Nanos, until: Nanos| (from..until).contains(&now);
    match op {
        ScriptOp::Look => OpOutcome::Looked,
        ScriptOp::Clear => {
            value.clear();
            OpOutcome::Charged
        }
        ScriptOp::Swap { before, after, from, until } => {
            if !is_time(*from, *until) || before != value {
                return OpOutcome::Other;
            }
            value.clone_from(after);
            OpOutcome::Charged
        }
        ScriptOp::Add { head, leases, addition } => {
            let leases = |out: Leases| (out.write() == *leases).then_some(out);
            added(value, addition, (head, version, now), leases, |tail| addition.apply(tail, now))
        }
        ScriptOp::Take { head, take } => {
            if value.is_empty() {
                return OpOutcome::Other;
            }
            added(value, take, (head, version, now), Some, |tail| Some(take.deduct(tail, now)))
        }
        ScriptOp::Lend { head, epoch, more, out_most, addition } => {
            let lent = |out: Leases| out.with(*epoch, *more).filter(|out| out.out() <= *out_most);
            let done = added(value, addition, (head, version, now), lent, |tail| addition.apply(tail, now));
            if done == OpOutcome::Refused { OpOutcome::Other } else { done }
        }
    }
}

fn added(
    value: &mut String,
    addition: &RemoteAdd,
    (head, version, now): (&str, u64, Nanos),
    leases: impl FnOnce(Leases) -> Option<Leases>,
    tail_after: impl FnOnce(u64) -> Option<u64>,
) -> OpOutcome {
    let numbers: Meter = head.split_once(';').expect("numbers").0.parse().expect("a meter");
    let nothing =
        Record { under: VersionedMeter { meter: numbers, version }, word: addition.head, leases: Leases::default() };
    let found = StoredRecord::read(value.clone(), &numbers).held.unwrap_or(nothing);
    let tail = found.under.meter.tail_of(found.word);
    let is_its = record::head(&found.under.meter, found.word - tail) == head;
    let Some(leases) = leases(found.leases).filter(|_| is_its && (addition.from..addition.until).contains(&now)) else {
        return OpOutcome::Other;
    };
    let Some(after) = tail_after(if value.is_empty() { 0 } else { tail }) else { return OpOutcome::Refused };
    let under = VersionedMeter { version: version.max(found.under.version), ..found.under };
    *value = Record { under, word: addition.head + after, leases }.write();
    OpOutcome::Charged
}

/// A value of a [`ScriptModel`].
#[derive(Debug)]
struct ModelValue {
    text: String,
    life_s: u64,
    expires: Nanos,
}

/// A model of a single server that runs the script: its keys and values, and the script as a function.
#[derive(Debug, Default)]
pub(crate) struct ScriptModel {
    values: HashMap<String, ModelValue>,
    /// The keys that the last run wrote.
    written: Vec<String>,
}

impl ScriptModel {
    /// Returns the value of a key; empty: there is none.
    pub(crate) fn value(&self, key: &str, now: Nanos) -> &str {
        self.values.get(key).filter(|value| now < value.expires).map_or("", |value| &value.text)
    }

    /// Returns the keys that the last run wrote, and how many seconds each lives.
    pub(super) fn written(&self) -> impl Iterator<Item = (&str, u64)> {
        self.written.iter().map(|key| (key.as_str(), self.values[key].life_s))
    }

    /// Runs the script, and returns its answer. The time is in whole microseconds.
    pub(crate) fn run(&mut self, keys: &[String], arguments: &[&[u8]], now: Nanos) -> Vec<String> {
        self.written.clear();
        let mut answer = vec![(now / 1_000).to_string()];
        let charges: Vec<_> = arguments.iter().map(|argument| ScriptArgument::read(argument)).collect();
        for operations in charges.split_inclusive(|charge| charge.is_last) {
            self.ask(keys, operations, now, &mut answer);
        }
        answer
    }

    /// Makes all operations of a request, or none.
    fn ask(&mut self, keys: &[String], operations: &[ScriptArgument], now: Nanos, answer: &mut Vec<String>) {
        let mut is_made = true;
        let mut outcomes = Vec::with_capacity(operations.len());
        for charge in operations {
            let mut after = self.value(&keys[charge.key - 1], now).to_owned();
            let done = if !is_made {
                OpOutcome::Unasked
            } else if charge.sent > 0 && self.sent(&keys[charge.sent - 1], now) >= charge.number {
                OpOutcome::Known
            } else {
                apply(&charge.op, &mut after, charge.version, now)
            };
            is_made &= done != OpOutcome::Other && (done != OpOutcome::Refused || charge.is_shadow);
            outcomes.push((done, after));
        }
        for (charge, (done, after)) in operations.iter().zip(outcomes) {
            let key = &keys[charge.key - 1];
            let done = if done == OpOutcome::Charged && !is_made { OpOutcome::Spared } else { done };
            if done == OpOutcome::Charged {
                let life_s = charge.life_s(&after, now);
                self.write(key, after, life_s, now);
                if charge.sent > 0 {
                    self.write(&keys[charge.sent - 1], charge.number.to_string(), charge.lives[0].max(60), now);
                }
            }
            let value = if done == OpOutcome::Unasked { "" } else { self.value(key, now) };
            answer.extend([done.name().to_owned(), value.to_owned()]);
        }
    }

    fn sent(&self, key: &str, now: Nanos) -> u64 {
        self.value(key, now).parse().unwrap_or(0)
    }

    fn write(&mut self, key: &str, text: String, life_s: u64, now: Nanos) {
        let expires = now.saturating_add(life_s.saturating_mul(SECOND_NS));
        self.values.insert(key.to_owned(), ModelValue { text, life_s, expires });
        self.written.push(key.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use tidegate::internals::Receipt;

    use super::*;
    use crate::store::{
        config::LEASE_NS,
        script::{grant::LeaseRequest, plan::Intent},
    };

    #[test]
    fn a_charge_by_newer_numbers_is_given_back_to_a_record_with_older_ones() {
        let [older, newer] = ["fixed_window/60/1000000000", "fixed_window/90/1000000000"]
            .map(|numbers| numbers.parse::<Meter>().expect("a meter"));
        let under = |meter, version| VersionedMeter { meter, version };
        let now = 1_790_035_200 * SECOND_NS;
        let word = older.overcharge(0, now, 5);
        let mut value = Record { under: under(older, 1), word, leases: Leases::default() }.write();
        let receipt = Receipt { cost: 2, charged_at: now, word: newer.overcharge(0, now, 2), moved_ns: u64::MAX };
        let mut request = KeyRequest::again(String::new(), under(newer, 2), Intent::GiveBack(receipt), Some(&value));
        assert_eq!(newer.remaining(run(&mut request, &mut value, now, now).word, now), 90 - 3);
        assert!(value.starts_with("fixed_window/90/"), "{value}");
    }

    /// Runs an intent of a node whose idea of the time is 20 ms late, on a full bucket of 100 tokens a second. A node
    /// leased 6 of them in the epoch before, so that the operation is a swap. Returns the tokens that are left then,
    /// and those that are out.
    fn left_after(intent: Intent) -> (u64, u64) {
        let meter: Meter = "token_bucket/100/1000000000/100".parse().expect("a meter");
        let (under, start) = (VersionedMeter { meter, version: 1 }, 1_790_035_200 * SECOND_NS);
        let mut leases = Leases::default();
        leases.lend(start - SECOND_NS, 6, LEASE_NS);
        let mut value = Record { under, word: start - SECOND_NS, leases }.write();
        let mut request = KeyRequest::again(String::new(), under, intent, Some(&value));
        let now = start + SECOND_NS / 2;
        run(&mut request, &mut value, now - SECOND_NS / 50, now);
        let held = StoredRecord::read(value, &meter).held.expect("a value");
        (meter.remaining(held.word, now), held.leases.out())
    }

    #[test]
    fn a_swap_of_a_late_node_counts_from_when_the_store_has_it() {
        let epoch = 1_790_035_200 * SECOND_NS / LEASE_NS - 1;
        let ask = LeaseRequest { epoch, ends: Nanos::MAX, out: 6, left: 2, keep: 2, want: 4, need: 0 };
        let (left, out) = left_after(Intent::Lease(ask));
        assert!((90..=96).contains(&left) && out == 6, "{left} are left, and {out} are out: 4 were spent");
        let (left, out) = left_after(Intent::Charge(10));
        assert!((84..=90).contains(&left) && out == 6, "{left} are left, and {out} are out: 10 were charged");
    }

    /// A node that loses races for a full bucket does not charge more because of them.
    #[test]
    fn losing_a_race_costs_no_tokens() {
        let meter: Meter = "token_bucket/100/1000000000/100".parse().expect("a meter");
        let (own, start) = (VersionedMeter { meter, version: 1 }, 1_790_035_200 * SECOND_NS);
        let ask = LeaseRequest { epoch: 0, ends: 0, out: 0, left: 0, keep: 0, want: 4, need: 0 };
        let mut request = KeyRequest::again(String::new(), own, Intent::Lease(ask), None);
        let mut value = String::new();
        for race in 1..=5 {
            let op = request.op(start).expect("there is room");
            assert!(matches!(op, ScriptOp::Swap { .. }), "{op:?}");
            // Another node was faster. Its leases are of the epoch before, so that the request needs a swap again.
            let mut leases = Leases::default();
            leases.lend(start - LEASE_NS, race, LEASE_NS);
            value = Record { under: own, word: start, leases }.write();
            assert!(request.answer(OpOutcome::Other, value.clone(), start).is_none());
            request.tries += 1;
        }
        run(&mut request, &mut value, start, start);
        let held = StoredRecord::read(value, &meter).held.expect("a value");
        assert!(meter.remaining(held.word, start) >= 99, "{held:?}");
    }
}
