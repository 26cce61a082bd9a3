//! The script, as a function of what lies there: for tests of what is made of it, and to be compared with the script.

use std::collections::HashMap;

#[cfg(test)]
use super::Told;
use super::{
    Addition, Deed, Done, Found, Held, LEASE_NS, LeaseAsk, Leases, Meter, Nanos, Part, Receipt, SECOND_NS, Telling,
    Under, Wish,
};

/// What becomes of one thing that is asked at `now` of the store's clock, by who believes it to be `supposed`.
#[cfg(test)]
pub(in crate::store) fn run(part: &mut Part, value: &mut String, supposed: Nanos, now: Nanos) -> Told {
    let mut supposed = supposed;
    for _ in 0..10 {
        let deed = part.deed(supposed);
        part.is_refused = deed.is_err();
        let done = made(&deed.unwrap_or(Deed::Look), value, part.own.version, now);
        if let Some(told) = part.answer(done, value.clone(), now) {
            return told;
        }
        supposed = now;
    }
    panic!("it is never answered: {part:?} of {value}")
}

fn made(deed: &Deed, value: &mut String, version: u64, now: Nanos) -> Done {
    let is_time = |from: Nanos, until: Nanos| (from..until).contains(&now);
    match deed {
        Deed::Look => Done::Looked,
        Deed::Clear => {
            value.clear();
            Done::Charged
        }
        Deed::Swap { before, after, from, until } => {
            if !is_time(*from, *until) || before != value {
                return Done::Other;
            }
            value.clone_from(after);
            Done::Charged
        }
        Deed::Add { head, leases, addition } => {
            let leases = |out: Leases| (out.write() == *leases).then_some(out);
            added(value, addition, (head, version, now), leases, |tail| addition.tail(tail, now))
        }
        Deed::Take { head, take } => {
            if value.is_empty() {
                return Done::Other;
            }
            added(value, take, (head, version, now), Some, |tail| Some(take.less(tail, now)))
        }
        Deed::Lend { head, epoch, more, out_most, addition } => {
            let lent = |out: Leases| out.with(*epoch, *more).filter(|out| out.out() <= *out_most);
            let done = added(value, addition, (head, version, now), lent, |tail| addition.tail(tail, now));
            if done == Done::Refused { Done::Other } else { done }
        }
    }
}

fn added(
    value: &mut String,
    addition: &Addition,
    (head, version, now): (&str, u64, Nanos),
    leases: impl FnOnce(Leases) -> Option<Leases>,
    tail_after: impl FnOnce(u64) -> Option<u64>,
) -> Done {
    let numbers: Meter = head.split_once(';').expect("numbers").0.parse().expect("a meter");
    let nothing = Held { under: Under { meter: numbers, version }, word: addition.head, leases: Leases::default() };
    let found = Found::read(value.clone(), &numbers).held.unwrap_or(nothing);
    let tail = found.under.meter.tail(found.word);
    let is_its = super::head(&found.under.meter, found.word - tail) == head;
    let Some(leases) = leases(found.leases).filter(|_| is_its && (addition.from..addition.until).contains(&now)) else {
        return Done::Other;
    };
    let Some(after) = tail_after(if value.is_empty() { 0 } else { tail }) else { return Done::Refused };
    let under = Under { version: version.max(found.under.version), ..found.under };
    *value = Held { under, word: addition.head + after, leases }.write();
    Done::Charged
}

/// A wish about one key, of a node that knows its word as it was some scripts ago.
#[derive(Clone, Debug)]
pub struct Step {
    /// Which wish, from 0 to 8.
    pub what: usize,
    /// Tokens that it is about.
    pub tokens: u64,
    /// How many scripts ago the word was as the node knows it.
    pub ago: usize,
    /// Version of the node's policy.
    pub version: u64,
    /// Whether that has the second set of numbers.
    pub has_other_numbers: bool,
    /// Whether it is a shadow.
    pub is_shadow: bool,
    /// Tokens that are left of a lease.
    pub left: u64,
}

/// Questions of one script, each about some keys, of a node whose idea of the time is late.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The questions, each with a step for each of its keys.
    pub questions: Vec<Vec<Step>>,
    /// How late, in microseconds.
    pub late_us: u64,
}

/// Keys of a comparison.
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
    fn wish(&self, key: &str, known: Option<&Held>, now: Nanos) -> Wish {
        let tokens = self.tokens;
        match self.what {
            0 => Wish::Look(tokens),
            1 => Wish::Reset,
            // Up to three limits at once, with and without a largest debt.
            2 => {
                let max_debt = if self.version < 3 { u64::MAX } else { 2 * tokens };
                Wish::Overcharge { tokens: tokens * (1 + self.left), max_debt }
            }
            6 => {
                let word = known.map_or(0, |held| held.word);
                Wish::GiveBack(Receipt { cost: tokens, charged_at: now, word, moved_ns: u64::MAX })
            }
            3 => Wish::Delta { sent: format!("{key}:sent:{}", self.left % 2), number: self.version, tokens },
            4 | 5 => {
                let (out, epoch) = (tokens * self.left, (now / LEASE_NS).saturating_sub(u64::from(self.ago == 3)));
                let left = out.min(self.left);
                let ends = known.map_or(0, |held| held.under.meter.ends(held.word));
                Wish::Lease(LeaseAsk { epoch, ends, out, left, keep: left / 2, want: tokens, need: tokens % 3 })
            }
            _ => Wish::Charge(tokens),
        }
    }
}

/// What lies there, by key.
#[derive(Debug, Default)]
struct Lying {
    values: [String; KEYS],
    /// The last number of each node, by its key.
    sent: HashMap<String, u64>,
    /// Seconds to live, of what was written.
    lives: [Option<u64>; KEYS],
    /// How often that was for what is used above the limit.
    debts: usize,
}

impl Lying {
    /// All of a question, or nothing; the keys of its parts come one after the other.
    fn ask(&mut self, question: &[Part], deeds: &[Deed], now: Nanos) -> Vec<(Done, String)> {
        let mut is_made = true;
        let mut told = Vec::new();
        for (key, (part, deed)) in question.iter().zip(deeds).enumerate() {
            let mut after = self.values[key].clone();
            let done = match &part.wish {
                _ if !is_made => Done::Unasked,
                Wish::Delta { sent, number, .. }
                    if self.sent.get(sent) >= Some(number) && !matches!(deed, Deed::Look) =>
                {
                    Done::Known
                }
                _ => made(deed, &mut after, part.own.version, now),
            };
            is_made &= done != Done::Other && (done != Done::Refused || part.is_shadow);
            told.push((done, after));
        }
        for (key, (part, (done, told))) in question.iter().zip(&mut told).enumerate() {
            if *done == Done::Charged && is_made {
                self.lives[key] = Found::read(told.clone(), &part.own.meter).held.map(|held| {
                    let leased_ns = if held.leases.out() > 0 { 2 * LEASE_NS } else { 0 };
                    let debt_ns = held.under.meter.reset_after_ns(held.word, now);
                    let known = part.found.as_ref().and_then(|found| found.held);
                    let theirs = known.map_or(0, |held| held.under.meter.period_ns());
                    let life_ns = (2 * part.own.meter.period_ns().max(theirs)).max(leased_ns);
                    self.debts += usize::from(debt_ns > life_ns);
                    let life_ns = life_ns.max(debt_ns);
                    life_ns.div_ceil(SECOND_NS) + 1
                });
                self.values[key].clone_from(told);
                if let Wish::Delta { sent, number, .. } = &part.wish {
                    self.sent.insert(sent.clone(), *number);
                }
            } else if *done == Done::Charged {
                *done = Done::Spared;
            }
            *told = if *done == Done::Unasked { String::new() } else { self.values[key].clone() };
        }
        told
    }
}

fn kind(deed: &Deed) -> &'static str {
    match deed {
        Deed::Look => "look",
        Deed::Clear => "clear",
        Deed::Swap { .. } => "swap",
        Deed::Add { .. } => "add",
        Deed::Take { .. } => "take",
        Deed::Lend { .. } => "lend",
    }
}

/// A store by the function, beside a real one: each batch is put to both.
#[derive(Debug)]
pub struct Comparison {
    numbers: usize,
    keys: Vec<String>,
    lying: Lying,
    before: Vec<[String; KEYS]>,
    heard: Nanos,
    asked: Vec<(Vec<Part>, Vec<Deed>)>,
}

impl Comparison {
    /// Makes one that uses keys of this case, which is a number of its own.
    #[must_use]
    pub fn new(case: usize) -> Self {
        Self {
            numbers: case % NUMBERS.len(),
            keys: (0..KEYS).map(|at| format!("{{{case}}}{at}")).collect(),
            lying: Lying::default(),
            before: vec![Default::default()],
            heard: 0,
            asked: Vec::new(),
        }
    }

    /// Returns the command by which the real store is asked for a batch.
    ///
    /// # Panics
    ///
    /// Numbers of the comparison are wrong.
    #[must_use]
    pub fn command(&mut self, batch: Batch) -> redis::Cmd {
        let supposed = if self.heard == 0 { 1 } else { self.heard - batch.late_us * 1_000 };
        let mut telling = Telling::default();
        self.asked.clear();
        for steps in batch.questions {
            let part = |(at, (step, key)): (usize, (&Step, &String))| {
                let meter = NUMBERS[self.numbers][usize::from(step.has_other_numbers)].parse().expect("a meter");
                let under = Under { meter, version: step.version };
                let text = &self.before[self.before.len().saturating_sub(1 + step.ago)][at];
                let known = Found::read(text.clone(), &meter).held;
                let wish = step.wish(key, known.as_ref(), supposed);
                Part { is_shadow: step.is_shadow, ..Part::again(key.clone(), under, wish, Some(text)) }
            };
            let mut question: Vec<_> = steps.iter().zip(&self.keys).enumerate().map(part).collect();
            telling.question(&mut question, supposed);
            let deeds: Vec<_> = question.iter_mut().map(|part| part.deed(supposed)).collect();
            let is_refused = question.iter().zip(&deeds).any(|(part, it)| it.is_err() && !part.is_shadow);
            let deeds = deeds.into_iter().map(|it| it.ok().filter(|_| !is_refused).unwrap_or(Deed::Look));
            self.asked.push((question, deeds.collect()));
        }
        let mut command = redis::cmd("EVAL");
        command.arg(include_str!("../script.lua")).arg(telling.keys.len()).arg(telling.keys).arg(telling.arguments);
        command
    }

    /// Puts the batch of the last command to the function, and compares what the real store answered. Returns what was done to each
    /// key, and by which deed.
    ///
    /// # Panics
    ///
    /// They differ.
    pub fn compare(&mut self, told: &[String]) -> Vec<(String, &'static str)> {
        self.heard = told[0].parse::<Nanos>().expect("a time") * 1_000;
        self.lying.lives = [None; KEYS];
        let mut seen = Vec::new();
        let mut told = told[1..].chunks_exact(2);
        for (question, deeds) in &self.asked {
            let expected = self.lying.ask(question, deeds, self.heard);
            for ((done, value), deed) in expected.into_iter().zip(deeds) {
                let told = told.next().expect("one for each charge");
                assert_eq!((Done::named(&told[0]), &told[1]), (Some(done), &value), "{deed:?} of {deeds:?}");
                seen.push((told[0].clone(), kind(deed)));
            }
        }
        assert_eq!(told.next(), None);
        self.before.push(self.lying.values.clone());
        seen
    }

    /// Returns the keys that the last batch wrote, and how many seconds each is to live.
    pub fn lives(&self) -> impl Iterator<Item = (&str, u64)> {
        self.keys.iter().zip(self.lying.lives).filter_map(|(key, life)| Some((key.as_str(), life?)))
    }

    /// Returns how often a key lives for what is used above the limit.
    #[must_use]
    pub fn debts(&self) -> usize {
        self.lying.debts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_charged_by_newer_numbers_is_given_back_where_older_ones_lie() {
        let [older, newer] = NUMBERS[2].map(|numbers| numbers.parse::<Meter>().expect("a meter"));
        let under = |meter, version| Under { meter, version };
        let now = 1_790_035_200 * SECOND_NS;
        let word = older.overcharge(0, now, 5);
        let mut value = Held { under: under(older, 1), word, leases: Leases::default() }.write();
        let receipt = Receipt { cost: 2, charged_at: now, word: newer.overcharge(0, now, 2), moved_ns: u64::MAX };
        let mut part = Part::again(String::new(), under(newer, 2), Wish::GiveBack(receipt), Some(&value));
        assert_eq!(newer.remaining(run(&mut part, &mut value, now, now).word, now), 90 - 3);
        assert!(value.starts_with("fixed_window/90/"), "{value}");
    }
}
