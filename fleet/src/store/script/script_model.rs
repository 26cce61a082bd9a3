//! A model of the store's script in Rust: tests run it in place of a store, and compare it with the script on a real
//! server.

use std::collections::HashMap;

use tidegate::{
    algorithm::{Addition, Meter, Receipt},
    time::{Nanos, SECOND_NS},
};

#[cfg(test)]
use crate::store::script::decode::KeyReply;
use crate::store::{
    config::LEASE_NS,
    script::{
        decode::OpOutcome,
        encode::{SCRIPT, ScriptCall},
        grant::LeaseRequest,
        op::ScriptOp,
        plan::{Intent, KeyRequest, SlotRequest},
        record::{self, Leases, Record, StoredRecord, VersionedMeter},
    },
};

/// Runs a request for one key at `now` of the store's clock, for a node that assumes the time `supposed`.
#[cfg(test)]
pub(crate) fn run(part: &mut KeyRequest, value: &mut String, supposed: Nanos, now: Nanos) -> KeyReply {
    let mut supposed = supposed;
    for _ in 0..10 {
        let op = part.op(supposed);
        part.is_refused = op.is_err();
        let done = made(&op.unwrap_or(ScriptOp::Look), value, part.own.version, now);
        if let Some(told) = part.answer(done, value.clone(), now) {
            return told;
        }
        supposed = now;
    }
    panic!("it is never answered: {part:?} of {value}")
}

fn made(op: &ScriptOp, value: &mut String, version: u64, now: Nanos) -> OpOutcome {
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
            added(value, addition, (head, version, now), leases, |tail| addition.tail(tail, now))
        }
        ScriptOp::Take { head, take } => {
            if value.is_empty() {
                return OpOutcome::Other;
            }
            added(value, take, (head, version, now), Some, |tail| Some(take.less(tail, now)))
        }
        ScriptOp::Lend { head, epoch, more, out_most, addition } => {
            let lent = |out: Leases| out.with(*epoch, *more).filter(|out| out.out() <= *out_most);
            let done = added(value, addition, (head, version, now), lent, |tail| addition.tail(tail, now));
            if done == OpOutcome::Refused { OpOutcome::Other } else { done }
        }
    }
}

fn added(
    value: &mut String,
    addition: &Addition,
    (head, version, now): (&str, u64, Nanos),
    leases: impl FnOnce(Leases) -> Option<Leases>,
    tail_after: impl FnOnce(u64) -> Option<u64>,
) -> OpOutcome {
    let numbers: Meter = head.split_once(';').expect("numbers").0.parse().expect("a meter");
    let nothing =
        Record { under: VersionedMeter { meter: numbers, version }, word: addition.head, leases: Leases::default() };
    let found = StoredRecord::read(value.clone(), &numbers).held.unwrap_or(nothing);
    let tail = found.under.meter.tail(found.word);
    let is_its = record::head(&found.under.meter, found.word - tail) == head;
    let Some(leases) = leases(found.leases).filter(|_| is_its && (addition.from..addition.until).contains(&now)) else {
        return OpOutcome::Other;
    };
    let Some(after) = tail_after(if value.is_empty() { 0 } else { tail }) else { return OpOutcome::Refused };
    let under = VersionedMeter { version: version.max(found.under.version), ..found.under };
    *value = Record { under, word: addition.head + after, leases }.write();
    OpOutcome::Charged
}

/// A request of a comparison for one key, from a node that knows the record as it was some scripts ago.
#[derive(Clone, Debug)]
pub struct Step {
    /// The index of the intent, from 0 to 8.
    pub what: usize,
    /// The tokens of the intent.
    pub tokens: u64,
    /// The age of the record that the node knows, in scripts.
    pub ago: usize,
    /// The version of the node's policy.
    pub version: u64,
    /// Whether that version has the second set of numbers.
    pub has_other_numbers: bool,
    /// Whether the limit is in shadow mode.
    pub is_shadow: bool,
    /// The tokens that are left of a lease.
    pub left: u64,
}

/// The requests of one script, from a node whose idea of the time is late.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The requests, each with one step for each of its keys.
    pub questions: Vec<Vec<Step>>,
    /// The lateness in microseconds.
    pub late_us: u64,
}

/// The number of keys of a comparison.
pub const KEYS: usize = 3;

/// Two sets of numbers for each algorithm, small enough to be used up.
const NUMBERS: [[&str; 2]; 5] = [
    ["token_bucket/100/1000000000/60", "token_bucket/1000/1000000000/90"],
    ["leaky_bucket/100/1000000000/60", "leaky_bucket/1000/1000000000/90"],
    ["fixed_window/60/1000000000", "fixed_window/90/1000000000"],
    ["sliding_window_counter/60/1000000000", "sliding_window_counter/90/1000000000"],
    ["sliding_window_log/5/1000000000", "sliding_window_log/7/1000000000"],
];

impl Step {
    fn intent(&self, key: &str, known: Option<&Record>, now: Nanos) -> Intent {
        let tokens = self.tokens;
        match self.what {
            0 => Intent::Look(tokens),
            1 => Intent::Reset,
            // Up to three limits at once, with and without a largest debt.
            2 => {
                let max_debt = if self.version < 3 { u64::MAX } else { 2 * tokens };
                Intent::Overcharge { tokens: tokens * (1 + self.left), max_debt }
            }
            6 => {
                let word = known.map_or(0, |held| held.word);
                Intent::GiveBack(Receipt { cost: tokens, charged_at: now, word, moved_ns: u64::MAX })
            }
            3 => Intent::Delta { sent: format!("{key}:sent:{}", self.left % 2), number: self.version, tokens },
            4 | 5 => {
                let (out, epoch) = (tokens * self.left, (now / LEASE_NS).saturating_sub(u64::from(self.ago == 3)));
                let left = out.min(self.left);
                let ends = known.map_or(0, |held| held.under.meter.ends(held.word));
                Intent::Lease(LeaseRequest { epoch, ends, out, left, keep: left / 2, want: tokens, need: tokens % 3 })
            }
            _ => Intent::Charge(tokens),
        }
    }
}

/// An operation as the script reads it from an argument.
#[derive(Debug)]
struct Charge {
    is_last: bool,
    op: ScriptOp,
    /// The index of its key, from 1.
    key: usize,
    is_shadow: bool,
    /// The version of the policy by which an addition is charged.
    version: u64,
    /// The seconds that the value lives: without leases, and with leases.
    lives: [u64; 2],
    /// The index of the key of the last number that the node sent (0: none), and the number of this charge.
    sent: usize,
    number: u64,
}

impl Charge {
    /// Decodes an argument.
    fn read(argument: &[u8]) -> Self {
        let mut values = Unpacked(argument);
        let (is_last, what) = (values.flag(), values.text());
        let (key, is_shadow) = (values.place(), values.flag());
        let mut charge =
            Self { is_last, op: ScriptOp::Look, key, is_shadow, version: 0, lives: [1; 2], sent: 0, number: 0 };
        match what {
            "look" => return charge,
            "clear" => {
                charge.op = ScriptOp::Clear;
                return charge;
            }
            _ => {}
        }
        let (from, until) = (values.number().saturating_mul(1_000), values.number().saturating_mul(1_000));
        charge.lives = [values.number(), values.number()];
        (charge.sent, charge.number) = (values.place(), values.number());
        if what == "swap" {
            let (after, before) = (values.text().to_owned(), values.text().to_owned());
            charge.op = ScriptOp::Swap { before, after, from, until };
            return charge;
        }
        let (is_instant, head) = (values.flag(), values.text().to_owned());
        let mut tail = || {
            let (first, second) = (values.signed().unsigned_abs(), values.signed().unsigned_abs());
            if is_instant { first.saturating_mul(SECOND_NS).saturating_add(second) } else { first }
        };
        let (add, most) = (tail(), tail());
        charge.version = values.number();
        let word_head = head.split_once(';').map(|(_, word)| u64::from_str_radix(word, 16));
        let word_head = word_head.expect("numbers and a word").expect("a word");
        let addition = Addition { head: word_head, is_instant, add, most, from, until };
        charge.op = match what {
            "add" => ScriptOp::Add { head, leases: values.text().to_owned(), addition },
            "take" => ScriptOp::Take { head, take: addition },
            "lend" => {
                let (epoch, more) = (values.number(), [values.signed(), values.signed()]);
                ScriptOp::Lend { head, epoch, more, out_most: values.number(), addition }
            }
            _ => unreachable!("{what}"),
        };
        charge
    }

    /// Returns how many seconds the value lives once it is charged.
    fn life_s(&self, after: &str, now: Nanos) -> u64 {
        let (_, rest) = after.split_once('|').unwrap_or_default();
        let life = self.lives[usize::from(rest.starts_with(|sign: char| sign.is_ascii_digit()))];
        match &self.op {
            ScriptOp::Add { addition, .. }
            | ScriptOp::Take { take: addition, .. }
            | ScriptOp::Lend { addition, .. }
                if addition.is_instant =>
            {
                let seconds = rest.split('|').nth(1).and_then(|seconds| seconds.parse::<u64>().ok());
                life.max((seconds.expect("seconds") + 2).saturating_sub(now / SECOND_NS))
            }
            _ => life,
        }
    }
}

/// A decoder of what `MsgPack` encodes.
struct Unpacked<'a>(&'a [u8]);

impl<'a> Unpacked<'a> {
    fn bytes(&mut self, length: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(length);
        self.0 = rest;
        bytes
    }

    fn flag(&mut self) -> bool {
        match self.bytes(1) {
            [0xc2] => false,
            [0xc3] => true,
            other => unreachable!("a flag: {other:?}"),
        }
    }

    fn signed(&mut self) -> i64 {
        assert_eq!(self.bytes(1), [0xd3], "a number");
        i64::from_be_bytes(self.bytes(8).try_into().expect("eight bytes"))
    }

    fn number(&mut self) -> u64 {
        self.signed().try_into().expect("it is not negative")
    }

    fn place(&mut self) -> usize {
        usize::try_from(self.number()).expect("a place")
    }

    fn text(&mut self) -> &'a str {
        assert_eq!(self.bytes(1), [0xdb], "a text");
        let length = u32::from_be_bytes(self.bytes(4).try_into().expect("four bytes"));
        str::from_utf8(self.bytes(length as usize)).expect("UTF-8")
    }
}

/// Decodes the arguments of a script so that they can be printed.
#[cfg(test)]
pub(crate) fn read(arguments: &[&[u8]]) -> impl std::fmt::Debug {
    arguments.iter().map(|argument| Charge::read(argument).op).collect::<Vec<_>>()
}

/// A value of a [`ScriptModel`].
#[derive(Debug)]
struct Value {
    text: String,
    life_s: u64,
    expires: Nanos,
}

/// A model of a single server that runs the script: its keys and values, and the script as a function.
#[derive(Debug, Default)]
pub(crate) struct ScriptModel {
    values: HashMap<String, Value>,
    /// The keys that the last run wrote.
    written: Vec<String>,
}

impl ScriptModel {
    /// Returns the value of a key; empty: there is none.
    pub(crate) fn value(&self, key: &str, now: Nanos) -> &str {
        self.values.get(key).filter(|value| now < value.expires).map_or("", |value| &value.text)
    }

    /// Runs the script, and returns its answer. The time is in whole microseconds.
    pub(crate) fn run(&mut self, keys: &[String], arguments: &[&[u8]], now: Nanos) -> Vec<String> {
        self.written.clear();
        let mut answer = vec![(now / 1_000).to_string()];
        let charges: Vec<_> = arguments.iter().map(|argument| Charge::read(argument)).collect();
        for question in charges.split_inclusive(|charge| charge.is_last) {
            self.ask(keys, question, now, &mut answer);
        }
        answer
    }

    /// Makes all operations of a request, or none.
    fn ask(&mut self, keys: &[String], question: &[Charge], now: Nanos, answer: &mut Vec<String>) {
        let mut is_made = true;
        let mut outcomes = Vec::with_capacity(question.len());
        for charge in question {
            let mut after = self.value(&keys[charge.key - 1], now).to_owned();
            let done = if !is_made {
                OpOutcome::Unasked
            } else if charge.sent > 0 && self.sent(&keys[charge.sent - 1], now) >= charge.number {
                OpOutcome::Known
            } else {
                made(&charge.op, &mut after, charge.version, now)
            };
            is_made &= done != OpOutcome::Other && (done != OpOutcome::Refused || charge.is_shadow);
            outcomes.push((done, after));
        }
        for (charge, (done, after)) in question.iter().zip(outcomes) {
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
        self.values.insert(key.to_owned(), Value { text, life_s, expires });
        self.written.push(key.to_owned());
    }
}

fn kind(op: &ScriptOp) -> &'static str {
    match op {
        ScriptOp::Look => "look",
        ScriptOp::Clear => "clear",
        ScriptOp::Swap { .. } => "swap",
        ScriptOp::Add { .. } => "add",
        ScriptOp::Take { .. } => "take",
        ScriptOp::Lend { .. } => "lend",
    }
}

/// A comparison of the model with a real store: each batch is run by both.
#[derive(Debug)]
pub struct Comparison {
    numbers: usize,
    keys: Vec<String>,
    twin: ScriptModel,
    before: Vec<[String; KEYS]>,
    heard: Nanos,
    asked: Vec<SlotRequest>,
    told: ScriptCall,
    /// The number of times that a key lived longer because of a debt.
    debts: usize,
}

impl Comparison {
    /// Makes a comparison. The number of the case is part of its keys, so it must be used once.
    #[must_use]
    pub fn new(case: usize) -> Self {
        Self {
            numbers: case % NUMBERS.len(),
            keys: (0..KEYS).map(|at| format!("{{{case}}}{at}")).collect(),
            twin: ScriptModel::default(),
            before: vec![Default::default()],
            heard: 0,
            asked: Vec::new(),
            told: ScriptCall::default(),
            debts: 0,
        }
    }

    /// Returns the command that runs a batch in the real store.
    ///
    /// # Panics
    ///
    /// The numbers of the comparison are invalid.
    #[must_use]
    pub fn command(&mut self, batch: Batch) -> redis::Cmd {
        let supposed = if self.heard == 0 { 1 } else { self.heard - batch.late_us * 1_000 };
        self.told = ScriptCall::default();
        self.asked.clear();
        for steps in batch.questions {
            let part = |(at, (step, key)): (usize, (&Step, &String))| {
                let meter = NUMBERS[self.numbers][usize::from(step.has_other_numbers)].parse().expect("a meter");
                let under = VersionedMeter { meter, version: step.version };
                let text = &self.before[self.before.len().saturating_sub(1 + step.ago)][at];
                let known = StoredRecord::read(text.clone(), &meter).held;
                let intent = step.intent(key, known.as_ref(), supposed);
                let mut part = KeyRequest::again(key.clone(), under, intent, Some(text));
                part.is_shadow = step.is_shadow;
                part
            };
            let mut question: Vec<_> = steps.iter().zip(&self.keys).enumerate().map(part).collect();
            self.told.question(&mut question, supposed);
            self.asked.push(question);
        }
        let mut command = redis::cmd("EVAL");
        let ScriptCall { keys, arguments, .. } = &self.told;
        command.arg(SCRIPT).arg(keys.len()).arg(keys).arg(arguments);
        command
    }

    /// Runs the batch of the last command in the model, and compares the answer of the real store. Returns the outcome
    /// for each key, and the kind of its operation.
    ///
    /// # Panics
    ///
    /// The answers differ.
    pub fn compare(&mut self, told: &[String]) -> Vec<(String, &'static str)> {
        self.heard = told[0].parse::<Nanos>().expect("a time") * 1_000;
        let arguments: Vec<_> = self.told.arguments.iter().map(Vec::as_slice).collect();
        let expected = self.twin.run(&self.told.keys, &arguments, self.heard);
        let mut seen = Vec::new();
        let mut parts = self.asked.iter().flatten();
        for ((argument, told), expected) in
            arguments.iter().zip(told[1..].chunks_exact(2)).zip(expected[1..].chunks_exact(2))
        {
            let (charge, part) = (Charge::read(argument), parts.next().expect("one for each charge"));
            assert_eq!(told, expected, "{charge:?}");
            if told[0] == OpOutcome::Charged.name() {
                let life_s = charge.life_s(&told[1], self.heard);
                self.debts += usize::from(is_long_enough(part, &told[1], life_s, self.heard));
            }
            seen.push((told[0].clone(), kind(&charge.op)));
        }
        assert_eq!(told.len(), expected.len());
        let value = |key: &String| self.twin.value(key, self.heard).to_owned();
        self.before.push(std::array::from_fn(|at| value(&self.keys[at])));
        seen
    }

    /// Returns the keys that the last batch wrote, and how many seconds each lives.
    pub fn lives(&self) -> impl Iterator<Item = (&str, u64)> {
        self.twin.written.iter().map(|key| (key.as_str(), self.twin.values[key].life_s))
    }

    /// Returns how often a key lived longer because of a debt.
    #[must_use]
    pub fn debts(&self) -> usize {
        self.debts
    }
}

/// Checks the life of a value, and returns whether it is longer because of a debt.
fn is_long_enough(part: &KeyRequest, value: &str, life_s: u64, now: Nanos) -> bool {
    let Some(held) = StoredRecord::read(value.to_owned(), &part.own.meter).held else {
        assert_eq!(life_s, 1, "{value}");
        return false;
    };
    let leased_ns = if held.leases.out() > 0 { 2 * LEASE_NS } else { 0 };
    let debt_ns = held.under.meter.reset_after_ns(held.word, now);
    let known = part.found.as_ref().and_then(|found| found.held);
    let theirs = known.map_or(0, |held| held.under.meter.period_ns());
    let usual_ns = (2 * part.own.meter.period_ns().max(theirs)).max(leased_ns);
    // The script computes a debt in whole seconds.
    let expected_s = usual_ns.max(debt_ns).div_ceil(SECOND_NS) + 1;
    assert!((expected_s - 1..=expected_s + 1).contains(&life_s), "{life_s} s instead of {expected_s}: {value}");
    debt_ns > usual_ns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_by_newer_numbers_is_given_back_to_a_record_with_older_ones() {
        let [older, newer] = NUMBERS[2].map(|numbers| numbers.parse::<Meter>().expect("a meter"));
        let under = |meter, version| VersionedMeter { meter, version };
        let now = 1_790_035_200 * SECOND_NS;
        let word = older.overcharge(0, now, 5);
        let mut value = Record { under: under(older, 1), word, leases: Leases::default() }.write();
        let receipt = Receipt { cost: 2, charged_at: now, word: newer.overcharge(0, now, 2), moved_ns: u64::MAX };
        let mut part = KeyRequest::again(String::new(), under(newer, 2), Intent::GiveBack(receipt), Some(&value));
        assert_eq!(newer.remaining(run(&mut part, &mut value, now, now).word, now), 90 - 3);
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
        let mut part = KeyRequest::again(String::new(), under, intent, Some(&value));
        let now = start + SECOND_NS / 2;
        run(&mut part, &mut value, now - SECOND_NS / 50, now);
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
    fn a_lost_race_costs_no_tokens() {
        let meter: Meter = "token_bucket/100/1000000000/100".parse().expect("a meter");
        let (own, start) = (VersionedMeter { meter, version: 1 }, 1_790_035_200 * SECOND_NS);
        let ask = LeaseRequest { epoch: 0, ends: 0, out: 0, left: 0, keep: 0, want: 4, need: 0 };
        let mut part = KeyRequest::again(String::new(), own, Intent::Lease(ask), None);
        let mut value = String::new();
        for race in 1..=5 {
            let op = part.op(start).expect("there is room");
            assert!(matches!(op, ScriptOp::Swap { .. }), "{op:?}");
            // Another node was faster. Its leases are of the epoch before, so that the request needs a swap again.
            let mut leases = Leases::default();
            leases.lend(start - LEASE_NS, race, LEASE_NS);
            value = Record { under: own, word: start, leases }.write();
            assert!(part.answer(OpOutcome::Other, value.clone(), start).is_none());
            part.tries += 1;
        }
        run(&mut part, &mut value, start, start);
        let held = StoredRecord::read(value, &meter).held.expect("a value");
        assert!(meter.remaining(held.word, start) >= 99, "{held:?}");
    }
}
