//! Configurations of envoyproxy/ratelimit against the policy that is made of them: a slow model of its matching and of its
//! counters (`config_impl.go`, `cache_key.go`) decides every descriptor, and our engine has to decide the same.

use std::{
    cell::Cell,
    collections::{BTreeSet, HashMap},
    fmt::Write,
};

use proptest::{collection::vec, prelude::*, sample::select, test_runner::TestRunner};
use tidegate::{
    Engine, Identity, Request, Snapshot,
    clock::ManualClock,
    import::{Imported, Note, Source, envoy},
    policy::{Per, Policy},
    time::SECOND_NS,
};

/// The beginning of some day, in nanoseconds.
const START: u64 = 20_000 * 86_400 * SECOND_NS;

#[derive(Clone, Debug)]
struct Descriptor {
    key: &'static str,
    value: &'static str,
    says: Says,
    is_shadow: bool,
    is_shared: bool,
    below: Vec<Descriptor>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Says {
    Nothing,
    Unlimited,
    /// So many requests in so many seconds, of this unit.
    Limit(u64, u64, &'static str),
}

fn yaml(descriptors: &[Descriptor]) -> String {
    fn list(text: &mut String, descriptors: &[Descriptor], indent: &str) {
        for Descriptor { key, value, says, is_shadow, is_shared, below } in descriptors {
            writeln!(text, "{indent}- key: {key}").expect("a string");
            for (line, is_there) in [
                (format!("value: \"{value}\""), !value.is_empty()),
                ("shadow_mode: true".to_owned(), *is_shadow),
                ("share_threshold: true".to_owned(), *is_shared),
            ] {
                if is_there {
                    writeln!(text, "{indent}  {line}").expect("a string");
                }
            }
            match says {
                Says::Nothing => {}
                Says::Unlimited => writeln!(text, "{indent}  rate_limit: {{ unlimited: true }}").expect("a string"),
                Says::Limit(limit, _, unit) => {
                    writeln!(text, "{indent}  rate_limit: {{ unit: {unit}, requests_per_unit: {limit} }}")
                        .expect("a string");
                }
            }
            if !below.is_empty() {
                writeln!(text, "{indent}  descriptors:").expect("a string");
                list(text, below, &format!("{indent}  "));
            }
        }
    }
    let mut text = "domain: shop\ndescriptors:\n".to_owned();
    list(&mut text, descriptors, "");
    text
}

type Entries<'a> = [(&'a str, &'a str)];

/// What envoyproxy/ratelimit does.
struct Model<'d> {
    descriptors: &'d [Descriptor],
    counters: HashMap<String, u64>,
}

impl<'d> Model<'d> {
    /// What a descriptor comes to, and the key of its counter without the window.
    fn found(&self, entries: &Entries<'_>) -> Option<(&'d Descriptor, String)> {
        let composite = |it: &Descriptor| {
            if it.value.is_empty() { it.key.to_owned() } else { format!("{}_{}", it.key, it.value) }
        };
        let (mut level, mut counter) = (self.descriptors, "shop_".to_owned());
        for (depth, (key, value)) in entries.iter().enumerate() {
            let whole = format!("{key}_{value}");
            let by_name = |name: &str| level.iter().find(|it| composite(it) == name);
            let by_wildcard = || {
                let wild = level.iter().filter(|it| composite(it).ends_with('*'));
                wild.into_iter().find(|it| whole.starts_with(composite(it).trim_end_matches('*')))
            };
            let found = by_name(&whole).or_else(by_wildcard).or_else(|| by_name(key))?;
            let is_shared = found.is_shared && composite(found) != whole;
            write!(counter, "{key}_{}_", if is_shared { found.value } else { value }).expect("a string");
            if depth + 1 == entries.len() {
                return Some((found, counter));
            }
            level = &found.below;
        }
        None
    }

    /// Is a request let through at this second, and what is left of which limit?
    fn decide(&mut self, entries: &Entries<'_>, now: u64) -> (bool, Option<(u64, u64)>) {
        let Some((descriptor, counter)) = self.found(entries) else { return (true, None) };
        let Says::Limit(limit, seconds, _) = descriptor.says else { return (true, None) };
        let used = self.counters.entry(format!("{counter}{}", now / seconds * seconds)).or_default();
        *used += 1;
        let is_within = *used <= limit;
        let left = limit.saturating_sub(*used);
        (is_within || descriptor.is_shadow, (!descriptor.is_shadow).then_some((limit, left)))
    }
}

fn import(text: &str) -> Imported {
    envoy(&[Source { name: "config.yaml", text }]).expect("what the original takes")
}

fn changes(notes: &[Note]) -> Vec<&Note> {
    notes.iter().filter(|note| note.changes_decisions).collect()
}

/// An overlap changes what requests with more entries meet, not what their own descriptors say.
fn is_overlap(note: &Note) -> bool {
    note.instead.starts_with("a request that has those too")
}

/// An engine with the rules that speak of exactly these keys.
fn engine(policy: &Policy, keys: &BTreeSet<&str>) -> Engine<ManualClock> {
    let mut policy = policy.clone();
    let speaks_of = |rule: &tidegate::policy::Rule| {
        let per = match &rule.per {
            Per::One(everyone) if everyone == "everyone" => Vec::new(),
            Per::One(kind) => vec![kind.clone()],
            Per::Each(kinds) => kinds.clone(),
        };
        let path = (rule.endpoint != "*").then(|| "path".to_owned());
        let method = rule.method.as_ref().map(|_| "method".to_owned());
        per.into_iter().chain(rule.condition.keys().cloned()).chain(path).chain(method).collect::<BTreeSet<_>>()
    };
    let domain = policy.domains.get_mut("shop").expect("the domain");
    domain.rules.retain(|rule| speaks_of(rule).iter().map(String::as_str).eq(keys.iter().copied()));
    whole_engine(&policy)
}

fn whole_engine(policy: &Policy) -> Engine<ManualClock> {
    let engine = Engine::for_simulation(4_096, ManualClock::at(START), 1);
    engine.publish(Snapshot::compile(policy).expect("a right policy")).expect("room");
    engine
}

/// What our engine says, to Envoy or else over HTTP: allowed, and what is left of which limit.
fn check(engine: &Engine<ManualClock>, entries: &Entries<'_>, is_of_envoy: bool) -> (bool, Option<(u64, u64)>) {
    let (mut identities, mut endpoint, mut method) = (Vec::new(), None, None);
    for (key, value) in entries {
        match *key {
            "path" => endpoint = Some(*value),
            "method" => method = Some(*value),
            kind => identities.push(Identity::new(kind, value).expect("valid")),
        }
    }
    if identities.is_empty() && !is_of_envoy {
        identities.push(Identity::new("none", "none").expect("valid"));
    }
    let request = if is_of_envoy { Request::exactly(&identities) } else { Request::new(&identities) };
    let mut request = request.expect("valid").domain("shop");
    if let Some(endpoint) = endpoint {
        request = request.endpoint(endpoint).expect("valid");
    }
    if let Some(method) = method {
        request = request.method(method);
    }
    let decision = engine.check(&request);
    (decision.is_allowed(), decision.limit().zip(decision.remaining()))
}

/// Of each descriptor the keys, as they are written one below the other.
fn sequences(descriptors: &[Descriptor]) -> BTreeSet<Vec<&'static str>> {
    let mut found = BTreeSet::new();
    for it in descriptors {
        found.insert(vec![it.key]);
        found.extend(sequences(&it.below).into_iter().map(|below| [vec![it.key], below].concat()));
    }
    found
}

/// Keys with their values, and the values that requests say: each region of the first, and more than one of each.
const KEYS: &[(&str, &[&str], &[&str])] = &[
    ("a", VALUES, ASKED),
    ("b", VALUES, ASKED),
    ("c", VALUES, ASKED),
    ("path", &["/x", "/x/y", "/x/*", "/*"], &["/x", "/x/y", "/x/z", "/x/", "/", "/y"]),
    ("method", &["GET", "POST"], &["GET", "POST", "PUT"]),
];
const VALUES: &[&str] = &["", "", "x", "xy", "xyz", "y", "x*", "xy*", "*", "y*"];
const ASKED: &[&str] = &["x", "xy", "xyz", "y", "x1", "x2", "xy1", "xy2", "xyz1", "y1", "z", "z1"];

fn says() -> impl Strategy<Value = Says> {
    let units = &[
        (1, "second"),
        (60, "Minute"),
        (3_600, "hour"),
        (604_800, "WEEK"),
        (2_592_000, "month"),
        (31_536_000, "year"),
    ];
    let limit = (0..4_u64, select(&units[..]));
    prop_oneof![
        1 => Just(Says::Nothing),
        1 => Just(Says::Unlimited),
        5 => limit.prop_map(|(limit, (seconds, unit))| Says::Limit(limit, seconds, unit)),
    ]
}

/// Lists without two of one name, as the original takes them.
fn descriptors() -> impl Strategy<Value = Vec<Descriptor>> {
    let key = prop_oneof![8 => 0..3_usize, 3 => 3..5_usize];
    let one = (key, any::<prop::sample::Index>(), says(), prop::bool::weighted(0.15), prop::bool::weighted(0.3));
    let leaf = one.prop_map(|(key, value, says, is_shadow, is_shared)| {
        let (key, values, _) = KEYS[key];
        let value = *value.get(values);
        // Each path by itself is counted by no rule.
        let is_shared = (is_shared || key == "path") && value.ends_with('*');
        Descriptor { key, value, says, is_shadow, is_shared, below: Vec::new() }
    });
    let tree = leaf.prop_recursive(2, 12, 5, |inner| {
        (inner.clone(), vec(inner, 0..5)).prop_map(|(it, below)| Descriptor { below, ..it })
    });
    vec(tree, 1..6).prop_map(|mut list| {
        fn tidy(list: &mut Vec<Descriptor>, above: &[&'static str]) {
            let mut seen = BTreeSet::new();
            // Each key once on the way down: a request has each kind once.
            list.retain(|it| !above.contains(&it.key) && seen.insert((it.key, it.value)));
            for it in list {
                tidy(&mut it.below, &[above, &[it.key]].concat());
            }
        }
        tidy(&mut list, &[]);
        list
    })
}

/// Requests: which keys, which values, and how many seconds pass before.
fn requests() -> impl Strategy<Value = Vec<(prop::sample::Index, Vec<prop::sample::Index>, u64)>> {
    let wait =
        prop_oneof![32 => Just(0_u64), 4 => Just(1), 2 => 0..90_u64, 1 => 0..1_000_000_u64, 1 => 0..40_000_000_u64];
    vec((any::<prop::sample::Index>(), vec(any::<prop::sample::Index>(), 4), wait), 1..150)
}

/// What a run compared.
#[derive(Debug, Default)]
struct Seen {
    configurations: Cell<u32>,
    compared: Cell<u32>,
    denied: Cell<u32>,
    /// Requests that are counted with others.
    shared: Cell<u32>,
    /// Rules that let requests pass beside others.
    open_rules: Cell<u32>,
    /// By the policy as it is, not only by the rules of just these keys.
    by_the_whole: Cell<u32>,
    /// What is unlimited on purpose, by the policy as it is, with some key beside others.
    let_pass: Cell<u32>,
    /// With a path or a method.
    of_paths: Cell<u32>,
    /// As Envoy asks, by the policy as it is, of what no descriptor of the file is.
    near_misses: Cell<u32>,
}

impl Seen {
    /// Returns whether enough was compared of each kind of case.
    fn is_enough(&self) -> bool {
        let enough = [
            (&self.configurations, 700),
            (&self.compared, 40_000),
            (&self.denied, 5_000),
            (&self.shared, 500),
            (&self.open_rules, 500),
            (&self.by_the_whole, 10_000),
            (&self.let_pass, 100),
            (&self.of_paths, 5_000),
            (&self.near_misses, 10_000),
        ];
        enough.iter().all(|(count, least)| count.get() > *least)
    }
}

fn count(counter: &Cell<u32>, more: u32) {
    counter.set(counter.get() + more);
}

#[test]
fn random_configurations_decide_as_the_original() {
    let seen = Seen::default();
    // Some kinds are rare: more cases run until enough of each was compared.
    let mut cases = 0;
    while cases < 1_500 || (!seen.is_enough() && cases < 4_500) {
        compare_random_configurations(500, &seen).unwrap_or_else(|why| panic!("{why}"));
        cases += 500;
    }
    assert!(seen.is_enough(), "{seen:?}");
}

/// Compares this many random configurations with the model. The error is the smallest case that differs.
fn compare_random_configurations(cases: u32, seen: &Seen) -> Result<(), String> {
    let mut runner = TestRunner::new(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) });
    let outcome = runner.run(&(descriptors(), requests()), |(descriptors, requests)| {
        let text = yaml(&descriptors);
        let Imported { policy, notes } = import(&text);
        // What is said to decide otherwise may.
        if changes(&notes).iter().any(|note| !is_overlap(note)) {
            return Ok(());
        }
        count(&seen.configurations, 1);
        let named = sequences(&descriptors);
        // With one entry more, near misses: not what the file names in another order, which is the same here, as the report
        // says.
        let sets: BTreeSet<BTreeSet<&str>> = named.iter().map(|keys| keys.iter().copied().collect()).collect();
        let longer = named.iter().flat_map(|keys| {
            let others = KEYS.iter().map(|(key, ..)| *key).filter(|key| !keys.contains(key));
            others.map(|key| [keys.as_slice(), &[key]].concat())
        });
        let longer = longer.filter(|keys| !sets.contains(&keys.iter().copied().collect::<BTreeSet<_>>()));
        let sequences: Vec<_> = longer.chain((0..4).flat_map(|_| named.iter().cloned())).collect();
        let mut engines: HashMap<&Vec<&str>, Engine<ManualClock>> = HashMap::new();
        // Where nothing overlaps, the whole policy decides as well, over HTTP too.
        let over_http = !notes.iter().any(is_overlap);
        let whole = [over_http, changes(&notes).is_empty()].map(|decides| decides.then(|| whole_engine(&policy)));
        let mut model = Model { descriptors: &descriptors, counters: HashMap::new() };
        let mut seconds = 0;
        for (sequence, values, wait) in requests {
            seconds += wait;
            let keys = sequence.get(&sequences);
            let engine = engines.entry(keys).or_insert_with(|| engine(&policy, &keys.iter().copied().collect()));
            let asked = |key: &str| KEYS.iter().find(|(name, ..)| *name == key).expect("a key").2;
            let entries: Vec<_> = keys.iter().zip(values).map(|(key, value)| (*key, *value.get(asked(key)))).collect();
            let is_named = model.found(&entries).is_some_and(|(found, _)| found.says != Says::Nothing);
            let is_open = model.found(&entries).is_some_and(|(found, _)| found.says == Says::Unlimited);
            let wanted = model.decide(&entries, START / SECOND_NS + seconds);
            let has_path = keys.contains(&"path") || keys.contains(&"method");
            let is_near_miss = !is_named && keys.len() > 1;
            let [over_http, to_envoy] = &whole;
            for (engine, is_whole, is_of_envoy) in
                [(Some(&*engine), false, false), (over_http.as_ref(), true, false), (to_envoy.as_ref(), true, true)]
            {
                let Some(engine) = engine else { continue };
                // Over HTTP it may meet the limit of fewer keys; to Envoy only where those are a path or a method.
                if is_whole && is_near_miss && (!is_of_envoy || has_path) {
                    continue;
                }
                engine.clock().set(START + seconds * SECOND_NS);
                let found = check(engine, &entries, is_of_envoy);
                prop_assert_eq!(found, wanted, "{:?}\n{}\n{:#?}\n{:#?}", entries, text, policy, notes);
                count(&seen.by_the_whole, u32::from(is_whole));
                count(&seen.near_misses, u32::from(is_of_envoy && is_near_miss));
                count(&seen.let_pass, u32::from(is_whole && is_open && keys.len() > 1));
            }
            count(&seen.compared, 1);
            count(&seen.denied, u32::from(!wanted.0));
            if let Some((found, _)) = model.found(&entries) {
                count(&seen.shared, u32::from(found.is_shared && found.says != Says::Nothing));
                count(&seen.of_paths, u32::from(keys.contains(&"path") || keys.contains(&"method")));
            }
        }
        let is_open = |rule: &&tidegate::policy::Rule| rule.id.contains("unlimited");
        count(&seen.open_rules, policy.domains["shop"].rules.iter().filter(is_open).count() as u32);
        Ok(())
    });
    outcome.map_err(|why| why.to_string())
}
