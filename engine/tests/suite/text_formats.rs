//! Policies as text: a policy that was written is read as the same policy, in every format, and looks as people write
//! it.

use std::{collections::BTreeMap, path::Path};

use proptest::{collection::vec, option, prelude::*};
use tidegate::{
    Engine, Identity, Publish, Request, Snapshot,
    clock::ManualClock,
    formats::Format::{self, Json, Toml, Yaml},
    policy::{
        Algorithm, Client, DescriptorPaths, Descriptors, Domain, Headers, Limit, Mode, OnError, OnFailure, Override,
        Per, Policy, Reset, Rule, Sharing, Tier, borrowed,
    },
    time::Timestamp,
};

const FORMATS: [Format; 3] = [Toml, Yaml, Json];

/// Words that some format could take for something else, or for its own marks.
const ODD: &[&str] = &[
    "",
    " ",
    "*",
    "k-*",
    "yes",
    "No",
    "null",
    "~",
    "true",
    "1",
    "-1",
    "1.0",
    "0x1f",
    "1e3",
    ".inf",
    ".nan",
    "1_000",
    "12:30",
    "2027-01-01",
    "2027-01-01T00:00:00Z",
    "1m",
    "#",
    " #",
    "a: b",
    "a:",
    "- a",
    "-",
    "---",
    "...",
    "?",
    "!",
    "&a",
    "*a",
    "|",
    ">",
    "%",
    "@",
    "`",
    "'",
    "\"",
    "'''",
    "\"\"\"",
    "\\",
    "\\n",
    "{}",
    "{a}",
    "[",
    "]",
    ",",
    "=",
    "<<",
    "a\nb",
    "a\r\nb",
    "\n",
    "\n\n",
    " a",
    "a ",
    "\ta",
    "a\t",
    "a\n",
    "\u{0}",
    "\u{1}",
    "\u{1b}",
    "\u{7f}",
    "\u{85}",
    "\u{a0}",
    "\u{2028}",
    "\u{feff}",
    "\u{feff}a",
    "\u{fffd}",
    "\u{1f600}",
    "\u{10ffff}",
    "e\u{301}",
    "\u{202e}",
    "${HOME}",
    "{{ x }}",
    "10.0.0.0/8",
    "2001:db8::/32",
];

fn text() -> impl Strategy<Value = String> {
    prop_oneof![3 => prop::sample::select(ODD).prop_map(str::to_owned), 2 => "[a-z]{1,8}", 2 => any::<String>(), 1 => "(?s).{60,200}"]
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0..100_u64, Just((1 << 53) - 1), Just(1 << 31), 0..=((1_u64 << 53) - 1)]
}

fn limit() -> impl Strategy<Value = Limit> {
    let algorithm = prop::sample::select(
        &[
            Algorithm::TokenBucket,
            Algorithm::LeakyBucket,
            Algorithm::FixedWindow,
            Algorithm::SlidingWindowCounter,
            Algorithm::SlidingWindowLog,
        ][..],
    );
    let period = prop_oneof![
        prop::sample::select(&["250ms", "1s", "15m", "1d", "day", "week", "month"][..]).prop_map(str::to_owned),
        text()
    ];
    let sharing = prop::sample::select(&[Sharing::Local, Sharing::Strict, Sharing::Leased, Sharing::Synced][..]);
    let on_failure = prop_oneof![
        Just(OnFailure::Open),
        Just(OnFailure::Closed),
        (0.0..=1.0).prop_map(OnFailure::Local),
        Just(OnFailure::Local(1.0)),
        Just(OnFailure::Local(f64::MIN_POSITIVE)),
    ];
    let mode = prop::sample::select(&[Mode::Enforce, Mode::Shadow][..]);
    let extra = || option::of(number());
    (text(), algorithm, number(), period, extra(), extra(), mode, sharing, option::of(on_failure)).prop_map(
        |(id, algorithm, limit, period, burst, max_debt, mode, sharing, on_failure)| Limit {
            id,
            algorithm,
            limit,
            period,
            burst,
            max_debt,
            mode,
            sharing,
            on_failure,
        },
    )
}

fn client() -> impl Strategy<Value = Client> {
    let exception = (any::<bool>(), any::<bool>(), vec(limit(), 0..3), option::of(text()), option::of(text()))
        .prop_map(|(blocked, unlimited, limits, until, reason)| Override { blocked, unlimited, limits, until, reason });
    let words = || option::of(text());
    (text(), text(), words(), words(), vec(text(), 0..3), words(), option::of(exception)).prop_map(
        |(kind, value, tier, label, tags, note, exception)| Client { kind, value, tier, label, tags, note, exception },
    )
}

fn rule() -> impl Strategy<Value = Rule> {
    let per = prop_oneof![text().prop_map(Per::One), vec(text(), 0..4).prop_map(Per::Each)];
    let whom = (per, option::of(vec(text(), 0..3)), words_by_word());
    let what = (prop_oneof![Just(1), number()], vec(limit(), 0..3), any::<bool>());
    (text(), option::of(text()), text(), option::of(text()), whom, what).prop_map(
        |(id, note, endpoint, method, (per, tiers, condition), (cost, limits, enabled))| Rule {
            id,
            note,
            endpoint,
            method,
            per,
            tiers,
            condition,
            cost,
            limits,
            enabled,
        },
    )
}

fn words_by_word() -> impl Strategy<Value = BTreeMap<String, String>> {
    prop::collection::btree_map(text(), text(), 0..3)
}

fn domain() -> impl Strategy<Value = Domain> {
    let tier = (text(), option::of(text()), vec(limit(), 0..4), any::<bool>())
        .prop_map(|(id, description, limits, unlimited)| Tier { id, description, limits, unlimited });
    let doors = (
        any::<bool>(),
        prop::sample::select(&[Descriptors::Exact, Descriptors::Subset][..]),
        prop::sample::select(&[DescriptorPaths::Endpoint, DescriptorPaths::Identity][..]),
        prop::sample::select(&[OnError::Open, OnError::Closed][..]),
        prop::sample::select(&[Headers::XRatelimit, Headers::Ietf, Headers::None][..]),
        prop::sample::select(&[Reset::Epoch, Reset::Delta][..]),
        option::of(text()),
    );
    (words_by_word(), doors, vec(tier, 0..3), vec(client(), 0..3), vec(rule(), 0..3)).prop_map(
        |(
            defaults,
            (tier_hint, descriptors, descriptor_paths, on_error, headers, reset, timezone),
            tiers,
            clients,
            rules,
        )| Domain {
            defaults,
            tier_hint,
            descriptors,
            descriptor_paths,
            on_error,
            headers,
            reset,
            timezone,
            tiers,
            clients,
            rules,
        },
    )
}

fn policy() -> impl Strategy<Value = Policy> {
    prop::collection::btree_map(text(), domain(), 0..3).prop_map(|domains| Policy { domains })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn a_written_policy_is_read_unchanged(policy in policy()) {
        for format in FORMATS {
            let text = policy.write(format).expect("everything can be written");
            let read = Policy::parse(&text, format);
            prop_assert_eq!(read.as_ref(), Ok(&policy), "{:?}\n{}", format, text);
        }
    }
}

/// Asserts that reading for a snapshot alone, with clients borrowed from the text, gives the same for a document.
fn is_the_same_borrowed(text: &str) -> Result<(), TestCaseError> {
    let owned = serde_json::from_str::<Policy>(text);
    let borrowed = serde_json::from_str::<borrowed::Policy<'_>>(text);
    prop_assert_eq!(owned.as_ref().err().map(ToString::to_string), borrowed.as_ref().err().map(ToString::to_string));
    let (Ok(owned), Ok(borrowed)) = (owned, borrowed) else { return Ok(()) };
    match (Snapshot::compile(&owned), Snapshot::compile_borrowed(&borrowed)) {
        (Err(problems), Err(same)) => prop_assert_eq!(problems, same),
        (Ok(snapshot), Ok(same)) => {
            let engines = [snapshot, same].map(|snapshot| {
                let engine = Engine::with_clock(64, ManualClock::at(Timestamp::from_nanos(1_790_035_200_000_000_000)));
                engine.publish(Publish::of(snapshot)).expect("it fits");
                engine
            });
            for (domain, client) in
                owned.domains.iter().flat_map(|(name, of)| of.clients.iter().map(move |c| (name, c)))
            {
                for value in [client.value.trim_end_matches(['*', '.']), "other"] {
                    let Ok(who) = Identity::new(&client.kind, value) else { continue };
                    let who = [who];
                    let request = Request::new(&who).expect("one identity").domain(domain);
                    let [found, same] = engines.each_ref().map(|engine| format!("{:?}", engine.inspect(&request)));
                    prop_assert_eq!(found, same);
                }
            }
        }
        (owned, borrowed) => prop_assert!(false, "{:?} is not {:?}", owned, borrowed),
    }
    Ok(())
}

proptest! {
    #[test]
    fn borrowed_from_its_text_it_is_the_same(policy in policy(), cut in any::<prop::sample::Index>()) {
        let text = policy.write(Json).expect("everything can be written");
        is_the_same_borrowed(&text)?;
        // A letter that is missing somewhere.
        let place = (0..=cut.index(text.len())).rev().find(|place| text.is_char_boundary(*place)).unwrap_or(0);
        let mut damaged = text;
        damaged.remove(place);
        is_the_same_borrowed(&damaged)?;
    }
}

/// The policies of the repository.
#[test]
fn policies_of_the_repository_are_written_and_read_unchanged() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for file in ["admin/src/example.toml", "replay/src/demo.toml"] {
        let text = std::fs::read_to_string(root.join(file)).expect("it is there");
        let policy = Policy::parse(&text, Toml).expect("it is right");
        is_the_same_borrowed(&policy.write(Json).expect("it can be written")).expect("the same");
        for format in FORMATS {
            let written = policy.write(format).expect("it can be written");
            assert_eq!(Policy::parse(&written, format).as_ref(), Ok(&policy), "{file}\n{written}");
        }
    }
}

const AS_PEOPLE_WRITE: &str = r#"[domains.default]
defaults = { ip = "anonymous", user = "free" }
timezone = "Europe/Berlin"

[[domains.default.tiers]]
id = "anonymous"
limits = [{ id = "minute", algorithm = "token_bucket", limit = 60, period = "1m" }]

[[domains.default.tiers]]
id = "free"
limits = [
  { id = "burst", algorithm = "token_bucket", limit = 10, period = "1s", burst = 20 },
  { id = "day", algorithm = "fixed_window", limit = 1000, period = "day", mode = "shadow" },
]

[[domains.default.clients]]
kind = "api_key"
value = "k-123"
tier = "free"
label = "Acme"
tags = ["beta", "eu"]
override = { blocked = true, until = "2027-01-01T00:00:00Z", reason = "abuse" }

[[domains.default.rules]]
id = "search"
endpoint = "/api/v1/search"
method = "GET"
per = ["ip", "user"]
tiers = ["free"]
where = { plan = "trial*" }
limits = [{ id = "search", algorithm = "token_bucket", limit = 5, period = "1s", sharing = "strict", on_failure = { local = 0.25 } }]

[domains.web]
"#;

const AS_PEOPLE_WRITE_YAML: &str = r"domains:
  default:
    defaults:
      ip: anonymous
      user: free
    timezone: Europe/Berlin
    tiers:
      - id: anonymous
        limits:
          - id: minute
            algorithm: token_bucket
            limit: 60
            period: 1m
";

#[test]
fn a_written_policy_looks_as_people_write_it() {
    let policy = Policy::parse(AS_PEOPLE_WRITE, Toml).expect("a right document");
    assert_eq!(policy.write(Toml).expect("it can be written"), AS_PEOPLE_WRITE);
    let yaml = policy.write(Yaml).expect("it can be written");
    assert!(yaml.starts_with(AS_PEOPLE_WRITE_YAML), "{yaml}");
}

#[test]
fn clients_of_every_kind_are_the_same_borrowed() {
    let policy = Policy::parse(AS_PEOPLE_WRITE, Toml).expect("a right document");
    let mut text = policy.write(Json).expect("it can be written");
    let more = ["10.0.0.0/8", "10.1.*", "2001:db8::1", "*"]
        .map(|value| format!(r#"{{"kind":"ip","value":"{value}","tier":"free"}}"#));
    let odd = r#"{"kind":"us\u0065r","value":"a\u0064a\n","tier":"fr\u0065e","note":"x"}"#;
    text = text.replacen(r#""clients": ["#, &format!(r#""clients": [{odd},{},"#, more.join(",")), 1);
    assert_eq!(Policy::parse(&text, Json).expect("it is right").domains["default"].clients.len(), 6, "{text}");
    is_the_same_borrowed(&text).expect("the same");
}

/// Every format reads back as many clients as the server takes.
#[test]
fn a_hundred_thousand_clients_come_back() {
    let client = |place: u32| Client { tier: Some("free".to_owned()), ..Client::new("user", format!("user-{place}")) };
    let mut policy = Policy::parse(r#"{"domains": {"default": {"tiers": [{"id": "free", "unlimited": true}]}}}"#, Json)
        .expect("a policy");
    policy.domains.get_mut("default").expect("it is there").clients = (0..100_000).map(client).collect();
    for format in FORMATS {
        let written = policy.write(format).expect("it can be written");
        assert!(Policy::parse(&written, format) == Ok(policy.clone()), "{format:?}");
    }
}
