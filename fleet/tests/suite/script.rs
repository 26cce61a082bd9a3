//! The script of the store does the same as its model in Rust: random requests run in both, over a real store.

use std::collections::HashMap;

use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{Config, TestRunner},
};
use tidegate_fleet::store::{ComparedBatch, ComparedStep, KEYS, ScriptComparison};
use tidegate_testkit::redis::Redis;

fn batches() -> impl Strategy<Value = Vec<ComparedBatch>> {
    let seldom = prop::bool::weighted(0.1);
    let step = (0..9_usize, 1..20_u64, 0..4_usize, 1..4_u64, seldom, seldom, 0..10_u64);
    let step = step.prop_map(|(what, tokens, ago, version, has_other_numbers, is_shadow, left)| ComparedStep {
        what,
        tokens,
        ago,
        version,
        has_other_numbers,
        is_shadow,
        left,
    });
    let requests = prop::collection::vec(prop::collection::vec(step, 1..=KEYS), 1..4);
    let batch = (requests, 0..3_000_u64).prop_map(|(requests, late_us)| ComparedBatch { requests, late_us });
    prop::collection::vec(batch, 1..40)
}

/// The outcomes, each with the kind of its operation, of which the test needs more than ten.
const NEEDED_OUTCOMES: [(&str, &str); 14] = [
    ("looked", "look"),
    ("charged", "clear"),
    ("charged", "swap"),
    ("other", "swap"),
    ("known", "add"),
    ("charged", "add"),
    ("refused", "add"),
    ("other", "add"),
    ("charged", "take"),
    ("other", "take"),
    ("charged", "lend"),
    ("other", "lend"),
    ("spared", "add"),
    ("unasked", "add"),
];

#[test]
fn the_script_does_what_its_model_does() {
    let redis = Redis::start();
    let mut connection = redis.connect().expect("it answers");
    let (mut seen, mut debts): (HashMap<(String, &str), usize>, usize) = (HashMap::new(), 0);
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::default() });
    let is_enough = |seen: &HashMap<(String, &'static str), usize>| {
        NEEDED_OUTCOMES
            .iter()
            .all(|(done, kind)| seen.get(&((*done).to_owned(), *kind)).is_some_and(|&count| count > 10))
    };
    for case in 0..600 {
        // Some outcomes are rare: more cases run until there are enough.
        if case >= 200 && debts > 10 && is_enough(&seen) {
            break;
        }
        let batches = batches().new_tree(&mut runner).expect("a case").current();
        let mut comparison = ScriptComparison::new(case);
        for batch in batches {
            let told: Vec<String> = comparison.command(batch).query(&mut connection).expect("it runs");
            for done in comparison.compare(&told) {
                *seen.entry(done).or_default() += 1;
            }
            for (key, life) in comparison.lives() {
                let found: u64 = redis::cmd("TTL").arg(key).query(&mut connection).expect("it is there");
                // A second of the life may have passed by now.
                assert!((life.saturating_sub(1)..=life).contains(&found), "{found} s instead of {life}");
            }
        }
        debts += comparison.debts();
    }
    assert!(debts > 10, "{debts}");
    assert!(is_enough(&seen), "{seen:?}");
}
