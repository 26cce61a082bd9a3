//! Conformance to limits files of limitador. The model: every limit of the namespace holds whose conditions are met by
//! the first descriptor and whose variables it has; all of them are charged, or none.

use std::{collections::HashMap, fmt::Write};

use proptest::{collection::vec, prelude::*, sample::select, test_runner::TestRunner};
use tidegate::import::{ImportedPolicy, Source, limitador, limitador_cases};

use super::{Coverage, Entries, Listener, START, differing};

/// Keys of entries. The key of a path is a key like any other.
const KEYS: &[&str] = &["a", "b", "PATH", "req.method"];
/// More keys than a request has identities, none of which is in a file.
const OTHERS: &[&str] = &["o1", "o2", "o3", "o4", "o5", "o6", "o7", "o8", "o9", "o10"];
const SPACES: &[&str] = &["shop", "web"];

#[derive(Clone, Debug)]
struct Limit {
    space: &'static str,
    max_value: u64,
    seconds: u64,
    /// The key and value of each condition.
    conditions: Vec<(&'static str, &'static str)>,
    variables: Vec<&'static str>,
}

impl Limit {
    /// Returns whether limitador takes both for one limit, which does not depend on their numbers.
    fn is_as(&self, other: &Self) -> bool {
        let identity = |of: &Self| (of.space, of.seconds, of.conditions.clone(), of.variables.clone());
        identity(self) == identity(other)
    }
}

fn yaml(limits: &[Limit]) -> String {
    let mut text = "---\n".to_owned();
    for Limit { space, max_value, seconds, conditions, variables } in limits {
        let conditions = conditions.iter().map(|(key, value)| format!("\"descriptors[0]['{key}'] == '{value}'\""));
        let variables = variables.iter().map(|key| format!("\"descriptors[0]['{key}']\""));
        let [conditions, variables] = [conditions.collect::<Vec<_>>(), variables.collect()].map(|list| list.join(", "));
        writeln!(
            text,
            "- {{ namespace: {space}, max_value: {max_value}, seconds: {seconds}, conditions: [{conditions}], variables: [{variables}] }}"
        )
        .expect("a string");
    }
    text
}

/// Counters by limit, values of its variables, and window.
#[derive(Default)]
struct Model(HashMap<(usize, Vec<&'static str>, u64), u64>);

impl Model {
    /// Returns whether a descriptor passes, and how many limits it met.
    fn decide(
        &mut self,
        limits: &[Limit],
        space: &str,
        entries: &Entries<'static>,
        hits: u64,
        now: u64,
    ) -> (bool, usize) {
        let of = |key: &str| entries.iter().find(|(name, _)| *name == key).map(|(_, value)| *value);
        let mut counters = Vec::new();
        for (place, limit) in limits.iter().enumerate().filter(|(_, limit)| limit.space == space) {
            // A set of limits has no equal ones.
            if limits[..place].iter().any(|first| first.is_as(limit)) {
                continue;
            }
            let holds = limit.conditions.iter().all(|(key, value)| of(key) == Some(value));
            let variables: Option<Vec<&str>> = limit.variables.iter().map(|key| of(key)).collect();
            if let Some(variables) = variables.filter(|_| holds) {
                counters.push(((place, variables, now / limit.seconds), limit.max_value));
            }
        }
        let is_allowed =
            counters.iter().all(|(counter, most)| self.0.get(counter).copied().unwrap_or(0) + hits <= *most);
        let met = counters.len();
        if is_allowed {
            for (counter, _) in counters {
                *self.0.entry(counter).or_default() += hits;
            }
        }
        (is_allowed, met)
    }
}

fn limits() -> impl Strategy<Value = Vec<Limit>> {
    let conditions = vec((select(KEYS), select(&["x", "/y?a=1", "get"][..])), 0..3);
    let numbers = (0..6_u64, select(&[1, 7, 60, 3_600][..]));
    let limit = (select(SPACES), numbers, conditions, vec(select(KEYS), 0..3));
    let limit = limit.prop_map(|(space, (max_value, seconds), mut conditions, mut variables)| {
        conditions.sort_unstable();
        conditions.dedup_by_key(|(key, _)| *key);
        variables.sort_unstable();
        variables.dedup();
        Limit { space, max_value, seconds, conditions, variables }
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

/// The plan of a descriptor: the values of its keys, the number of its other keys, its hits, its domain, and the
/// seconds that pass before.
type Plan = (Vec<Option<&'static str>>, usize, u64, &'static str, u64);

fn plans() -> impl Strategy<Value = Vec<Plan>> {
    let values = vec(
        select(&[None, None, Some("x"), Some("/y?a=1"), Some("/y"), Some("get"), Some("GET"), Some("z")][..]),
        KEYS.len(),
    );
    let others = prop_oneof![6 => 0..3_usize, 1 => 6..=OTHERS.len()];
    let hits = prop_oneof![8 => Just(1_u64), 1 => 2..4_u64];
    let space = prop_oneof![8 => Just("shop"), 4 => Just("web"), 1 => Just("other")];
    let wait = prop_oneof![8 => Just(0_u64), 1 => 1..90_u64];
    vec((values, others, hits, space, wait), 1..150)
}

const LEAST: &[(&str, u32)] = &[
    ("cases", 400),
    ("descriptors", 20_000),
    ("denied", 3_000),
    ("met no limit", 3_000),
    ("met several limits", 2_000),
    ("several hits", 1_000),
    ("many entries", 1_000),
    ("a limit twice", 100),
];

#[test]
fn random_limits_decide_as_the_original() {
    let coverage = Coverage::default();
    // Some kinds are rare: more cases run until enough of each was compared.
    let mut cases = 0;
    while cases < 500 || (!coverage.is_enough(LEAST) && cases < 1_500) {
        compare_random_limits(250, &coverage).unwrap_or_else(|why| panic!("{why}"));
        cases += 250;
    }
    assert!(coverage.is_enough(LEAST), "{coverage:#?}");
}

/// Compares this many random files with the model, and counts the compared cases. The error is the smallest case that differs.
fn compare_random_limits(cases: u32, coverage: &Coverage) -> Result<(), String> {
    /// Parts of the notes that each file has: windows, and requests that the model does not make.
    const OF_EVERY_FILE: [&str; 3] =
        ["windows that begin", "values of `descriptors[0]`", "a key that one descriptor has twice"];
    let mut runner = TestRunner::new(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) });
    let outcome = runner.run(&(limits(), plans()), |(limits, plans)| {
        let count = |kind, is_one| coverage.count(kind, is_one);
        let text = yaml(&limits);
        let ImportedPolicy { policy, notes } =
            limitador(&[Source { name: "limits.yaml", text: &text }]).expect("limits");
        let mut changing = notes.iter().filter(|note| note.changes_decisions);
        let is_of_every_file = |what: &str| OF_EVERY_FILE.iter().any(|beginning| what.starts_with(beginning));
        prop_assert!(changing.all(|note| is_of_every_file(&note.what)), "{}\n{:#?}", text, notes);
        let left_out = (1..limits.len()).any(|place| limits[..place].iter().any(|first| first.is_as(&limits[place])));
        prop_assert_eq!(left_out, notes.iter().any(|note| note.instead.starts_with("the first holds")));
        count("a limit twice", left_out);
        let cases = limitador_cases(&[Source { name: "limits.yaml", text: &text }]).expect("limits");
        count("cases", !cases.is_empty());
        let differing = differing(&policy, &cases).map_err(TestCaseError::fail)?;
        prop_assert!(differing.is_empty(), "{}\n{:#?}", text, differing);
        let listener = Listener::new(&policy);
        let (mut model, mut seconds) = (Model::default(), 0);
        for (values, others, hits, space, wait) in plans {
            seconds += wait;
            let own = KEYS.iter().zip(&values).filter_map(|(key, value)| Some((*key, (*value)?)));
            let entries: Entries<'_> = OTHERS[..others].iter().map(|key| (*key, "o")).chain(own).collect();
            if entries.is_empty() {
                continue;
            }
            let (wanted, met) = model.decide(&limits, space, &entries, hits, START + seconds);
            let many = entries.len() > 8;
            let found = listener.decide(space, &[(entries.clone(), hits)], seconds).map_err(TestCaseError::fail)?;
            prop_assert_eq!(found[0].0, wanted, "{}: {:?}, {} hits\n{}\n{:#?}", space, entries, hits, text, policy);
            count("descriptors", true);
            count("denied", !wanted);
            count("met no limit", met == 0);
            count("met several limits", met > 1);
            count("several hits", hits > 1 && met > 0);
            count("many entries", many && met > 0);
        }
        Ok(())
    });
    outcome.map_err(|why| why.to_string())
}
