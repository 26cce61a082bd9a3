//! Conformance to configurations of envoyproxy/ratelimit. The model is written after the documentation and the
//! behaviour of its release f2fb157: matching (`config_impl.go`), keys of counters (`cache_key.go`), and limits that
//! replace others (`ratelimit.go`).

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fmt::Write,
};

use proptest::{collection::vec, prelude::*, sample::select, test_runner::TestRunner};
use tidegate::import::{ImportedPolicy, Note, Source, envoy, envoy_cases};

use super::{Call, Coverage, Entries, Listener, START, Status, differing};

#[derive(Clone, Debug)]
struct Descriptor {
    key: &'static str,
    value: &'static str,
    limit: Limit,
    /// The name of the limit, and the name of a limit that it replaces.
    names: (Option<&'static str>, Option<&'static str>),
    is_shadow: bool,
    is_quota: bool,
    is_shared: bool,
    below: Vec<Descriptor>,
}

impl Descriptor {
    /// Returns the name of the descriptor in its list: the key, with the value if it has one.
    fn name(&self) -> String {
        if self.value.is_empty() { self.key.to_owned() } else { format!("{}_{}", self.key, self.value) }
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Limit {
    None,
    Unlimited,
    /// The requests in a unit of this many seconds.
    Per(u64, u64, &'static str),
}

fn yaml(descriptors: &[Descriptor]) -> String {
    fn list(text: &mut String, descriptors: &[Descriptor], indent: &str) {
        for Descriptor { key, value, limit, names: (name, replaced), is_shadow, is_quota, is_shared, below } in
            descriptors
        {
            writeln!(text, "{indent}- key: {key}").expect("a string");
            let name = name.map(|name| format!("name: {name}, ")).unwrap_or_default();
            let replaces = replaced.map(|name| format!(", replaces: [{{ name: {name} }}]")).unwrap_or_default();
            let limit = match limit {
                Limit::None => String::new(),
                Limit::Unlimited => format!("rate_limit: {{ {name}unlimited: true{replaces} }}"),
                Limit::Per(limit, _, unit) => {
                    format!("rate_limit: {{ {name}unit: {unit}, requests_per_unit: {limit}{replaces} }}")
                }
            };
            for (line, is_there) in [
                (format!("value: \"{value}\""), !value.is_empty()),
                ("shadow_mode: true".to_owned(), *is_shadow),
                ("quota_mode: true".to_owned(), *is_quota),
                ("share_threshold: true".to_owned(), *is_shared),
                (limit.clone(), !limit.is_empty()),
                ("descriptors:".to_owned(), !below.is_empty()),
            ] {
                if is_there {
                    writeln!(text, "{indent}  {line}").expect("a string");
                }
            }
            list(text, below, &format!("{indent}  "));
        }
    }
    let mut text = "domain: shop\ndescriptors:\n".to_owned();
    list(&mut text, descriptors, "");
    text
}

/// A model of envoyproxy/ratelimit without quotas, each of which is in the report.
struct Model<'d> {
    descriptors: &'d [Descriptor],
    counters: HashMap<String, u64>,
    /// The counters that took hits of a denied request, which in Tidegate charges nothing; the report says so.
    tainted: HashSet<String>,
}

impl<'d> Model<'d> {
    fn new(descriptors: &'d [Descriptor]) -> Self {
        Self { descriptors, counters: HashMap::new(), tainted: HashSet::new() }
    }

    /// Returns the node that a descriptor matches, and the key of its counter without the window.
    fn find(&self, entries: &Entries<'_>) -> Option<(&'d Descriptor, String)> {
        let (mut level, mut counter) = (self.descriptors, "shop_".to_owned());
        for (depth, (key, value)) in entries.iter().enumerate() {
            let whole = format!("{key}_{value}");
            let by_name = |name: &str| level.iter().find(|it| it.name() == name);
            let by_wildcard = || {
                let wild = level.iter().filter(|it| it.name().ends_with('*'));
                wild.into_iter().find(|it| whole.starts_with(it.name().trim_end_matches('*')))
            };
            let node = by_name(&whole).or_else(by_wildcard).or_else(|| by_name(key))?;
            let is_shared = node.is_shared && node.name() != whole;
            write!(counter, "{key}_{}_", if is_shared { node.value } else { value }).expect("a string");
            if depth + 1 == entries.len() {
                return Some((node, counter));
            }
            level = &node.below;
        }
        None
    }

    /// Decides the descriptors of a request at this second. Returns the status of each, and whether the statuses can be compared.
    fn decide(&mut self, calls: &[Call<'_>], now: u64) -> (Vec<Status>, bool) {
        let found: Vec<_> = calls.iter().map(|(entries, _)| self.find(entries)).collect();
        let with_limit = || found.iter().flatten().filter(|(node, _)| node.limit != Limit::None);
        let replaced: BTreeSet<_> = with_limit().filter_map(|(node, _)| node.names.1).collect();
        let (mut statuses, mut charged, mut over) = (Vec::new(), Vec::new(), Vec::new());
        for (found, (_, hits)) in found.iter().zip(calls) {
            let limited = found.as_ref().and_then(|(node, counter)| match node.limit {
                Limit::Per(limit, seconds, _) if node.names.0.is_none_or(|name| !replaced.contains(name)) => {
                    Some((node, format!("{counter}{}", now / seconds * seconds), limit))
                }
                _ => None,
            });
            let Some((node, counter, limit)) = limited else {
                statuses.push((true, None));
                continue;
            };
            let used = self.counters.entry(counter.clone()).or_default();
            *used += hits;
            let is_within = *used <= limit;
            statuses.push((is_within || node.is_shadow, Some((limit, limit.saturating_sub(*used)))));
            if !is_within && *hits > 1 {
                over.push(counter.clone());
            }
            charged.push(counter);
        }
        let is_denied = statuses.iter().any(|(is_within, _)| !is_within);
        let is_twice = charged.iter().collect::<HashSet<_>>().len() < charged.len();
        let is_comparable = charged.iter().all(|counter| !self.tainted.contains(counter)) && !(is_denied && is_twice);
        self.tainted.extend(over);
        if !is_comparable || (is_denied && calls.len() > 1) {
            self.tainted.extend(charged);
        }
        (statuses, is_comparable)
    }
}

fn import(text: &str) -> ImportedPolicy {
    envoy(&[Source { name: "config.yaml", text }]).expect("what the original takes")
}

/// Returns the sequences of keys of all descriptors, from the top.
fn sequences(descriptors: &[Descriptor]) -> BTreeSet<Vec<&'static str>> {
    let mut found = BTreeSet::new();
    for it in descriptors {
        found.insert(vec![it.key]);
        found.extend(sequences(&it.below).into_iter().map(|below| [vec![it.key], below].concat()));
    }
    found
}

/// Keys with their values, and the values that requests have: each region of the first, and more than one of each.
const KEYS: &[(&str, &[&str], &[&str])] = &[
    ("a", VALUES, ASKED),
    ("generic_key", VALUES, ASKED),
    ("X-Tenant", VALUES, ASKED),
    (JOINED, VALUES, ASKED),
    (
        "PATH",
        &["", "/x", "/x/y", "/x/*", "/*", "/x*", "//", "/x?a=1"],
        &["/x", "/x/y", "/x/z", "/x/", "/", "/y", "//", "/x?a=1", "/x//", "/X", "x", ""],
    ),
    ("method", &["GET", "get", "POST", ""], &["GET", "POST", "PUT", "get", "Get"]),
    ("remote_address", &["", "192.0.2.7", "192.0.*"], &["192.0.2.7", "192.0.2.8", "192.1.2.7", "2001:db8::1", "x"]),
];
/// A key, and one that is this key joined with a value.
const DIVIDED: &str = "a";
const JOINED: &str = "a_x";
const VALUES: &[&str] = &["", "", "x", "xy", "xyz", "y", "x*", "xy*", "*", "y*", " x", "X"];
/// Values, of which the last is longer than an identity may be.
const ASKED: &[&str] =
    &["x", "xy", "xyz", "y", "x1", "x2", "xy1", "xy2", "xyz1", "y1", "z", "z1", "X", " x", "x ", "", LONG];
const LONG: &str = match str::from_utf8(&LONG_BYTES) {
    Ok(text) => text,
    Err(_) => "",
};
const LONG_BYTES: [u8; 2_000] = [b'x'; 2_000];

fn limit() -> impl Strategy<Value = Limit> {
    let units = &[
        (1, "second"),
        (60, "Minute"),
        (3_600, "hour"),
        (604_800, "WEEK"),
        (2_592_000, "month"),
        (31_536_000, "year"),
    ];
    let limit = (0..5_u64, select(&units[..]));
    prop_oneof![
        1 => Just(Limit::None),
        1 => Just(Limit::Unlimited),
        5 => limit.prop_map(|(limit, (seconds, unit))| Limit::Per(limit, seconds, unit)),
    ]
}

/// Generates lists in which no name stands twice, as the original takes them.
fn descriptors() -> impl Strategy<Value = Vec<Descriptor>> {
    let flags = (prop::bool::weighted(0.15), prop::bool::weighted(0.02), prop::bool::weighted(0.3));
    let name = || prop_oneof![4 => Just(None), 1 => select(&[Some("one"), Some("two")][..])];
    let names = (name(), prop_oneof![30 => Just(None), 1 => select(&[Some("one"), Some("two"), Some("three")][..])]);
    let key = prop_oneof![16 => 0..3_usize, 1 => Just(3_usize), 6 => 4..KEYS.len()];
    let one = (key, any::<prop::sample::Index>(), limit(), flags, names);
    let leaf = one.prop_map(|(key, value, limit, (is_shadow, is_quota, is_shared), (name, replaced))| {
        let (key, values, _) = KEYS[key];
        let value = *value.get(values);
        let is_shared = is_shared && value.ends_with('*');
        // A limit does not replace itself.
        let names = (name, replaced.filter(|replaced| Some(*replaced) != name));
        Descriptor { key, value, limit, names, is_shadow, is_quota, is_shared, below: Vec::new() }
    });
    let tree = leaf.prop_recursive(2, 12, 5, |inner| {
        (inner.clone(), vec(inner, 0..5)).prop_map(|(it, below)| Descriptor { below, ..it })
    });
    vec(tree, 1..6).prop_map(|mut list| {
        fn keep_first_of_each_name(list: &mut Vec<Descriptor>) {
            let mut seen = BTreeSet::new();
            list.retain(|it| seen.insert(it.name()));
            for it in list {
                keep_first_of_each_name(&mut it.below);
            }
        }
        keep_first_of_each_name(&mut list);
        list
    })
}

/// The plan of a descriptor: its sequence of keys, its values, its difference from the file, and its hits.
type Plan = (prop::sample::Index, Vec<prop::sample::Index>, Bend, u64);

/// The difference of a descriptor's keys from a sequence of the file.
#[derive(Clone, Copy, Debug)]
enum Bend {
    Straight,
    /// A key, by its number, is added at an index.
    Longer(usize, prop::sample::Index),
    /// The last key is left out.
    Shorter,
}

/// Generates requests: descriptors, and the seconds that pass before.
fn requests() -> impl Strategy<Value = Vec<(Vec<Plan>, u64)>> {
    let wait =
        prop_oneof![32 => Just(0_u64), 4 => Just(1), 2 => 0..90_u64, 1 => 0..1_000_000_u64, 1 => 0..40_000_000_u64];
    let bend = prop_oneof![
        6 => Just(Bend::Straight),
        2 => (0..KEYS.len(), any::<prop::sample::Index>()).prop_map(|(key, at)| Bend::Longer(key, at)),
        1 => Just(Bend::Shorter),
    ];
    let hits = prop_oneof![12 => Just(1_u64), 1 => 2..4_u64];
    let plan = (any::<prop::sample::Index>(), vec(any::<prop::sample::Index>(), 5), bend, hits);
    let plans = prop_oneof![6 => vec(plan.clone(), 1), 1 => vec(plan, 2..4)];
    vec((plans, wait), 1..150)
}

/// Returns the descriptor of a plan; `None` where it would have no entries, or is one that the report notes: a
/// descriptor of the file with its keys in another order, which is the same in Tidegate, or one with a key that is a
/// key of the file joined with a value, or divided.
fn call(sequences: &[Vec<&'static str>], (sequence, values, bend, hits): &Plan) -> Option<Call<'static>> {
    let mut keys = sequence.get(sequences).clone();
    match bend {
        Bend::Straight => {}
        Bend::Longer(key, at) => keys.insert(at.index(keys.len() + 1), KEYS[*key].0),
        Bend::Shorter => drop(keys.pop()),
    }
    let sorted = |keys: &[&'static str]| {
        let mut keys = keys.to_vec();
        keys.sort_unstable();
        keys
    };
    let is_same = |named: &Vec<&'static str>| *named != keys && sorted(named) == sorted(&keys);
    // The original joins key and value: an entry of `a_x` matches a descriptor of `a`, and one of `a` with `x` a
    // descriptor of `a_x`. The report notes that for all files, and marks a file that has both keys.
    let is_named = |key| sequences.iter().any(|named| named.contains(key));
    let is_joined = [(DIVIDED, JOINED), (JOINED, DIVIDED)]
        .iter()
        .any(|(asked, named)| keys.contains(asked) && !is_named(asked) && is_named(named));
    if keys.is_empty() || is_joined || sequences.iter().any(is_same) {
        return None;
    }
    let asked = |key: &str| KEYS.iter().find(|(name, ..)| *name == key).map_or(ASKED, |(.., asked)| asked);
    Some((keys.iter().zip(values).map(|(key, value)| (*key, *value.get(asked(key)))).collect(), *hits))
}

const LEAST: &[(&str, u32)] = &[
    ("configurations", 600),
    ("cases", 500),
    ("descriptors", 40_000),
    ("over their limits", 5_000),
    ("near misses", 5_000),
    ("with a path or a method", 5_000),
    ("with a key twice", 500),
    ("unlimited", 1_000),
    ("shadow limits", 1_000),
    ("counted with others", 500),
    ("long values", 300),
    ("several hits", 1_000),
    ("of several in a request", 3_000),
    ("beyond their limits with others", 300),
    ("in the report", 50),
];

#[test]
fn random_configurations_decide_as_the_original() {
    let coverage = Coverage::default();
    // Some kinds are rare: more cases run until enough of each was compared.
    let mut cases = 0;
    while cases < 1_500 || (!coverage.is_enough(LEAST) && cases < 4_500) {
        compare_random_configurations(500, &coverage).unwrap_or_else(|why| panic!("{why}"));
        cases += 500;
    }
    assert!(coverage.is_enough(LEAST), "{coverage:#?}");
}

/// Compares this many random configurations with the model, and counts the compared cases. The error is the smallest
/// case that differs.
fn compare_random_configurations(cases: u32, coverage: &Coverage) -> Result<(), String> {
    let mut runner = TestRunner::new(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) });
    let outcome = runner.run(&(descriptors(), requests()), |(descriptors, requests)| {
        let count = |kind, is_one| coverage.count(kind, is_one);
        let text = yaml(&descriptors);
        let ImportedPolicy { policy, notes } = import(&text);
        let is_reported = notes.iter().any(|note| note.changes_decisions);
        let has_no_rule = text.contains("quota_mode") || text.contains("replaces");
        prop_assert!(is_reported || !has_no_rule, "{}\n{:#?}", text, notes);
        // A file that the report notes as deciding otherwise may do so.
        if is_reported {
            count("in the report", true);
            return Ok(());
        }
        count("configurations", true);
        let cases = envoy_cases(&[Source { name: "config.yaml", text: &text }]).expect("what the original takes");
        count("cases", !cases.is_empty());
        let differing = differing(&policy, &cases).map_err(TestCaseError::fail)?;
        prop_assert!(differing.is_empty(), "{}\n{:#?}", text, differing);
        let sequences: Vec<_> = sequences(&descriptors).into_iter().collect();
        let listener = Listener::new(&policy);
        let mut model = Model::new(&descriptors);
        let mut seconds = 0;
        for (plans, wait) in requests {
            seconds += wait;
            let calls: Vec<Call<'_>> = plans.iter().filter_map(|plan| call(&sequences, plan)).collect();
            if calls.is_empty() {
                continue;
            }
            let (wanted, is_comparable) = model.decide(&calls, START + seconds);
            let found = listener.decide("shop", &calls, seconds).map_err(TestCaseError::fail)?;
            if !is_comparable {
                continue;
            }
            // The numbers of a denied request are those without it; those of a shadow limit are the ones after all descriptors.
            let is_denied = wanted.iter().any(|(is_within, _)| !is_within);
            let has_several_hits = calls.iter().any(|(_, hits)| *hits > 1);
            let is_used_up = wanted.iter().any(|(_, limit)| limit.is_some_and(|(_, left)| left == 0));
            let has_shadow =
                calls.iter().any(|(entries, _)| model.find(entries).is_some_and(|(node, _)| node.is_shadow));
            let is_left_comparable = calls.len() == 1 && !(is_used_up && has_several_hits) || !is_denied && !has_shadow;
            let shown = |statuses: &[Status]| -> Vec<Status> {
                let left = |left| if is_left_comparable { left } else { 0 };
                let status = |(is_within, limit): &Status| (*is_within, limit.map(|(limit, rest)| (limit, left(rest))));
                statuses.iter().map(status).collect()
            };
            prop_assert_eq!(shown(&found), shown(&wanted), "{:?}\n{}\n{:#?}\n{:#?}", calls, text, policy, notes);
            for ((entries, hits), (is_within, limit)) in calls.iter().zip(&wanted) {
                let node = model.find(entries).map(|(node, _)| node);
                let has_limit = |node: &&Descriptor| node.limit != Limit::None;
                let is = |kind: fn(&Descriptor) -> bool| node.filter(has_limit).is_some_and(kind);
                let keys: BTreeSet<_> = entries.iter().map(|(key, _)| *key).collect();
                count("descriptors", true);
                count("over their limits", !is_within);
                count("near misses", !node.as_ref().is_some_and(has_limit));
                count("with a path or a method", keys.contains("PATH") || keys.contains("method"));
                count("with a key twice", keys.len() < entries.len() && limit.is_some());
                count("unlimited", is(|node| node.limit == Limit::Unlimited));
                count("shadow limits", is(|node| node.is_shadow));
                count("counted with others", is(|node| node.is_shared));
                count("long values", limit.is_some() && entries.iter().any(|(_, value)| *value == LONG));
                count("several hits", *hits > 1 && limit.is_some());
                count("of several in a request", calls.len() > 1);
                count("beyond their limits with others", calls.len() > 1 && !is_within);
            }
        }
        Ok(())
    });
    outcome.map_err(|why| why.to_string())
}

/// A limit that replaces others, and a quota, decide otherwise, and the report says where.
#[test]
fn parts_that_no_rule_can_express_are_in_the_report() {
    let of = |fields: &str| {
        let text = format!(
            "domain: shop\ndescriptors:\n- key: a\n  {fields}\n- key: b\n  rate_limit: {{ name: one, unit: day, requests_per_unit: 1 }}\n"
        );
        let ImportedPolicy { notes, .. } = import(&text);
        let changing = |note: &Note| note.changes_decisions.then(|| note.path.clone());
        notes.iter().filter_map(changing).collect::<Vec<_>>()
    };
    let limit = "rate_limit: { unit: day, requests_per_unit: 1";
    assert_eq!(of(&format!("{limit} }}")), [] as [&str; 0]);
    assert_eq!(of(&format!("{limit}, replaces: [{{ name: one }}] }}")), ["descriptors[0].rate_limit.replaces"]);
    assert_eq!(of(&format!("{limit} }}\n  quota_mode: true")), ["descriptors[0].quota_mode"]);
}
