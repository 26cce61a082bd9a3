//! The script, as a function of what lies there; and that the script does the same.

use super::*;

/// What becomes of one thing that is asked at `now` of the store's clock, by who believes it to be `supposed`.
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

#[path = "../../../tests/store/rig.rs"]
#[expect(dead_code, reason = "other tests need more of it")]
mod rig;

mod tests {
    use std::collections::HashMap;

    use proptest::{
        prelude::*,
        strategy::ValueTree,
        test_runner::{Config, TestRunner},
    };

    use super::{rig::Redis, *};

    /// What somebody wishes who knows the word as it was so many values ago, at a time so many microseconds ago.
    #[derive(Clone, Debug)]
    struct Step {
        what: usize,
        tokens: u64,
        ago: usize,
        late_us: u64,
        version: u64,
        has_other_numbers: bool,
        left: u64,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = (0..9_usize, 1..20_u64, 0..4_usize, 0..3_000_u64, 1..4_u64, prop::bool::weighted(0.1), 0..10_u64);
        let step = step.prop_map(|(what, tokens, ago, late_us, version, has_other_numbers, left)| Step {
            what,
            tokens,
            ago,
            late_us,
            version,
            has_other_numbers,
            left,
        });
        prop::collection::vec(step, 1..60)
    }

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
                2 => Wish::Overcharge(tokens),
                6 => {
                    let word = known.map_or(0, |held| held.word);
                    Wish::GiveBack(Receipt { cost: tokens, charged_at: now, word, moved_ns: u64::MAX })
                }
                3 => Wish::Delta {
                    sent: format!("{key}:sent"),
                    node: (self.left % 2).to_string(),
                    number: self.version,
                    tokens,
                },
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

    #[test]
    fn the_script_does_what_this_function_does() {
        let redis = Redis::start();
        let mut connection = redis.connect().expect("it answers");
        let mut seen: HashMap<(Done, &str), usize> = HashMap::new();
        let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::default() });
        for case in 0..300 {
            let (numbers, steps) = (0..NUMBERS.len(), steps()).new_tree(&mut runner).expect("a case").current();
            let key = format!("{{{case}}}");
            let (mut values, mut sent) = (vec![String::new()], HashMap::new());
            let mut heard = 0;
            for step in steps {
                let meter = NUMBERS[numbers][usize::from(step.has_other_numbers)].parse().expect("a meter");
                let under = Under { meter, version: step.version };
                let text = values[values.len().saturating_sub(1 + step.ago)].clone();
                let supposed = if heard == 0 { 1 } else { heard - step.late_us * 1_000 };
                let known = Found::read(text.clone(), &meter).held;
                let wish = step.wish(&key, known.as_ref(), supposed);
                let mut question = vec![Part::again(key.clone(), under, wish.clone(), Some(&text))];
                let deed = question[0].deed(supposed).unwrap_or(Deed::Look);
                let mut telling = Telling::default();
                telling.question(&mut question, supposed);
                let mut command = redis::cmd("EVAL");
                command.arg(include_str!("../script.lua")).arg(telling.keys.len());
                let told: Vec<String> =
                    command.arg(telling.keys).arg(telling.arguments).query(&mut connection).expect("it runs");
                heard = told[0].parse::<Nanos>().expect("a time") * 1_000;
                let mut value = values[values.len() - 1].clone();
                let done = match &wish {
                    Wish::Delta { node, number, .. }
                        if sent.get(node) >= Some(number) && !matches!(deed, Deed::Look) =>
                    {
                        Done::Known
                    }
                    _ => made(&deed, &mut value, under.version, heard),
                };
                if let (Wish::Delta { node, number, .. }, Done::Charged) = (wish, done) {
                    sent.insert(node, number);
                }
                assert_eq!((Done::named(&told[1]), &told[2]), (Some(done), &value), "{deed:?}");
                let kind = match deed {
                    Deed::Look => "look",
                    Deed::Clear => "clear",
                    Deed::Swap { .. } => "swap",
                    Deed::Add { .. } => "add",
                    Deed::Take { .. } => "take",
                    Deed::Lend { .. } => "lend",
                };
                *seen.entry((done, kind)).or_default() += 1;
                values.push(value);
            }
        }
        for (done, kind) in [
            (Done::Looked, "look"),
            (Done::Charged, "clear"),
            (Done::Charged, "swap"),
            (Done::Other, "swap"),
            (Done::Known, "add"),
            (Done::Charged, "add"),
            (Done::Refused, "add"),
            (Done::Other, "add"),
            (Done::Charged, "take"),
            (Done::Other, "take"),
            (Done::Charged, "lend"),
            (Done::Other, "lend"),
        ] {
            assert!(seen.get(&(done, kind)).is_some_and(|&count| count > 10), "{done:?} of {kind}: {seen:?}");
        }
    }
}
