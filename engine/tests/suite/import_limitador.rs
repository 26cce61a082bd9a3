//! Limits files of limitador against the policy that is made of them: a slow model (every limit whose conditions are met
//! and whose variables are there holds, all or none are charged) decides every request, and our engine the same.

use std::{cell::Cell, collections::HashMap, fmt::Write};

use proptest::{collection::vec, prelude::*, sample::select, test_runner::TestRunner};
use tidegate::{
    Engine, Identity, Request, Snapshot,
    clock::ManualClock,
    import::{Imported, Source, limitador},
    time::SECOND_NS,
};

const START: u64 = 20_000 * 86_400;
const KEYS: &[&str] = &["a", "b", "c"];

#[derive(Clone, Debug)]
struct Limit {
    max_value: u64,
    seconds: u64,
    /// Key and value.
    conditions: Vec<(&'static str, &'static str)>,
    variables: Vec<&'static str>,
}

impl Limit {
    /// Are both one limit to limitador, whatever their values are?
    fn is_as(&self, other: &Self) -> bool {
        let identity = |of: &Self| (of.seconds, of.conditions.clone(), of.variables.clone());
        identity(self) == identity(other)
    }
}

fn yaml(limits: &[Limit]) -> String {
    let mut text = "---\n".to_owned();
    for Limit { max_value, seconds, conditions, variables } in limits {
        let conditions = conditions.iter().map(|(key, value)| format!("\"descriptors[0].{key} == '{value}'\""));
        let variables = variables.iter().map(|key| format!("\"descriptors[0].{key}\""));
        let [conditions, variables] = [conditions.collect::<Vec<_>>(), variables.collect()].map(|list| list.join(", "));
        writeln!(
            text,
            "- {{ namespace: shop, max_value: {max_value}, seconds: {seconds}, conditions: [{conditions}], variables: [{variables}] }}"
        )
        .expect("a string");
    }
    text
}

type Values = [(&'static str, Option<&'static str>)];

/// Counters by limit, values of its variables, and window.
#[derive(Default)]
struct Model(HashMap<(usize, Vec<&'static str>, u64), u64>);

impl Model {
    fn is_allowed(&mut self, limits: &[Limit], values: &Values, now: u64) -> bool {
        let of = |key: &str| values.iter().find(|(name, _)| *name == key).and_then(|(_, value)| *value);
        let mut counters = Vec::new();
        for (place, limit) in limits.iter().enumerate() {
            // A set of limits takes no second one.
            if limits[..place].iter().any(|first| first.is_as(limit)) {
                continue;
            }
            let holds = limit.conditions.iter().all(|(key, value)| of(key) == Some(value));
            let variables: Option<Vec<&str>> = limit.variables.iter().map(|key| of(key)).collect();
            if let Some(variables) = variables.filter(|_| holds) {
                counters.push(((place, variables, now / limit.seconds), limit.max_value));
            }
        }
        let is_allowed = counters.iter().all(|(counter, most)| self.0.get(counter).copied().unwrap_or(0) < *most);
        if is_allowed {
            for (counter, _) in counters {
                *self.0.entry(counter).or_default() += 1;
            }
        }
        is_allowed
    }
}

fn limits() -> impl Strategy<Value = Vec<Limit>> {
    let conditions = vec((select(KEYS), select(&["x", "y"][..])), 0..3);
    let limit = (0..5_u64, select(&[1, 7, 60, 3_600][..]), conditions, vec(select(KEYS), 0..3));
    let limit = limit.prop_map(|(max_value, seconds, mut conditions, mut variables)| {
        conditions.sort_unstable();
        conditions.dedup_by_key(|(key, _)| *key);
        variables.sort_unstable();
        variables.dedup();
        Limit { max_value, seconds, conditions, variables }
    });
    // Some of them twice.
    let again = (any::<prop::sample::Index>(), 0..5_u64);
    (vec(limit, 1..8), proptest::option::of(again)).prop_map(|(mut limits, again)| {
        if let Some((which, max_value)) = again {
            limits.push(Limit { max_value, ..which.get(&limits).clone() });
        }
        limits
    })
}

#[test]
fn random_limits_decide_as_the_original() {
    let seen = [const { Cell::new(0_u32) }; 4];
    let is_enough = || {
        let [compared, denied, together, twice] = seen.each_ref().map(Cell::get);
        compared > 20_000 && denied > 5_000 && denied < compared && together > 200 && twice > 100
    };
    // Some kinds are rare: more cases run until enough of each was compared.
    let mut cases = 0;
    while cases < 500 || (!is_enough() && cases < 1_500) {
        compare_random_limits(250, &seen).unwrap_or_else(|why| panic!("{why}"));
        cases += 250;
    }
    assert!(is_enough(), "{seen:?}");
}

/// Compares this many random files with the model, and counts the decisions, the denials among them, the rules of several limits,
/// and the files that name a limit twice. The error is the smallest case that differs.
fn compare_random_limits(cases: u32, [compared, denied, together, twice]: &[Cell<u32>; 4]) -> Result<(), String> {
    let values = vec(select(&[None, Some("x"), Some("y"), Some("z")][..]), KEYS.len());
    let requests = vec((values, prop_oneof![8 => Just(0_u64), 1 => 1..90_u64]), 1..150);
    let mut runner = TestRunner::new(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) });
    let outcome = runner.run(&(limits(), requests), |(limits, requests)| {
        let text = yaml(&limits);
        let Imported { policy, notes } = limitador(&[Source { name: "limits.yaml", text: &text }]).expect("limits");
        let is_about_windows = |what: &str| what.starts_with("windows that begin with the first request");
        let changing = notes.iter().filter(|note| note.changes_decisions);
        prop_assert!(changing.into_iter().all(|note| is_about_windows(&note.what)), "{notes:?}");
        let left_out = (1..limits.len()).any(|place| limits[..place].iter().any(|first| first.is_as(&limits[place])));
        prop_assert_eq!(left_out, notes.iter().any(|note| note.instead.starts_with("the first holds")));
        twice.set(twice.get() + u32::from(left_out));
        let engine = Engine::for_simulation(4_096, ManualClock::default(), 1);
        engine.publish(Snapshot::compile(&policy).expect("a right policy")).expect("room");
        let (mut model, mut now) = (Model::default(), START);
        for (values, wait) in requests {
            now += wait;
            engine.clock().set(now * SECOND_NS);
            let values: Vec<_> = KEYS.iter().copied().zip(values).collect();
            let mut identities: Vec<_> = values
                .iter()
                .filter_map(|(kind, value)| Some(Identity::new(kind, (*value)?).expect("an identity")))
                .collect();
            identities.push(Identity::new("somebody", "else").expect("an identity"));
            let request = Request::new(&identities).expect("a request").domain("shop");
            let wanted = model.is_allowed(&limits, &values, now);
            let found = engine.check(&request);
            prop_assert_eq!(found.is_allowed(), wanted, "{:?} at {}\n{}\n{:#?}", values, now, text, policy);
            compared.set(compared.get() + 1);
            denied.set(denied.get() + u32::from(!wanted));
        }
        let rules = &policy.domains["shop"].rules;
        together.set(together.get() + rules.iter().filter(|rule| rule.limits.len() > 1).count() as u32);
        Ok(())
    });
    outcome.map_err(|why| why.to_string())
}
