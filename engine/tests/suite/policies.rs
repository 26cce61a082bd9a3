//! Policy documents: the errors with field and line, in every format, and the policies that are read.

mod errors;

use tidegate::{
    Engine, Identity, Problem, Publish, Request, Snapshot,
    clock::ManualClock,
    formats::Format::{self, Json, Toml, Yaml},
    policy::{Policy, differences},
    time::Timestamp,
};

fn good() -> serde_json::Value {
    serde_json::json!({ "domains": { "default": {
        "defaults": { "ip": "free", "user": "free" },
        "tiers": [
            { "id": "free", "limits": [
                { "id": "burst", "algorithm": "token_bucket", "limit": 10, "period": "1s", "burst": 20 },
                { "id": "minute", "algorithm": "fixed_window", "limit": 1000, "period": "1m" },
            ] },
            { "id": "internal", "unlimited": true },
        ],
        "clients": [{ "kind": "ip", "value": "10.0.0.0/8", "tier": "internal" }],
        "rules": [
            { "id": "search", "endpoint": "/search", "method": "GET", "per": "ip",
              "limits": [{ "id": "search", "algorithm": "token_bucket", "limit": 5, "period": "1s" }] },
        ],
    } } })
}

fn domain(document: &mut serde_json::Value) -> &mut serde_json::Value {
    &mut document["domains"]["default"]
}

fn limit(document: &mut serde_json::Value) -> &mut serde_json::Value {
    &mut domain(document)["tiers"][0]["limits"][0]
}

#[expect(clippy::panic, reason = "it fails the test that calls it")]
fn write(document: &serde_json::Value, format: Format) -> String {
    match format {
        Json => serde_json::to_string_pretty(document).expect("writes"),
        Toml => toml::to_string_pretty(document).expect("writes"),
        // Block style, as people write it.
        Yaml => yaml(document, 0),
        other => panic!("no writer of {other:?}"),
    }
}

fn yaml(value: &serde_json::Value, depth: usize) -> String {
    let indent = "  ".repeat(depth);
    match value {
        serde_json::Value::Object(fields) if !fields.is_empty() => {
            let lines: Vec<_> =
                fields.iter().map(|(key, value)| format!("\n{indent}{key}: {}", yaml(value, depth + 1))).collect();
            lines.concat()
        }
        serde_json::Value::Array(items) if !items.is_empty() => {
            let lines: Vec<_> = items.iter().map(|item| format!("\n{indent}-{}", yaml(item, depth + 1))).collect();
            lines.concat()
        }
        scalar => format!(" {scalar}"),
    }
}

fn problems(text: &str, format: Format) -> Vec<Problem> {
    Snapshot::parse(text, format).expect_err("a bad document").iter().cloned().collect()
}

/// Own limits of the same ids replace the tier's, so they do not count twice.
#[test]
fn a_policy_of_which_no_request_meets_too_many_limits_is_taken() {
    let mut document = good();
    let ids: Vec<_> = (0..20).map(|n| format!("l{n}")).collect();
    let limits: Vec<_> = ids
        .iter()
        .map(|id| {
            let mut limit = limit(&mut document).clone();
            limit["id"] = id.as_str().into();
            limit
        })
        .collect();
    domain(&mut document)["tiers"][0]["limits"] = limits.clone().into();
    domain(&mut document)["clients"] =
        serde_json::json!([{ "kind": "user", "value": "u", "override": { "limits": limits } }]);
    let snapshot =
        Snapshot::parse(&write(&document, Json), Json).expect("20 of the ip, 20 of the user, one of the rule");
    assert_eq!(snapshot.most_limits_per_request(), 41);
}

/// A disabled rule is validated, but not part of the snapshot.
#[test]
fn a_disabled_rule_leaves_nothing_behind() {
    let mut document = good();
    domain(&mut document)["rules"][0]["enabled"] = false.into();
    let names =
        |document: &serde_json::Value| Snapshot::parse(&write(document, Json), Json).map(|s| s.limit_names().len());
    assert_eq!(names(&document), Ok(2));
    domain(&mut document)["rules"][0]["endpoint"] = "wrong".into();
    assert!(names(&document).is_err());
}

#[test]
fn all_problems_are_reported_at_once() {
    let mut document = good();
    limit(&mut document)["period"] = "0s".into();
    domain(&mut document)["defaults"]["ip"] = "gold".into();
    domain(&mut document)["rules"][0]["endpoint"] = "x".into();
    let found = problems(&write(&document, Toml), Toml);
    assert_eq!(found.len(), 3);
    assert!(found.is_sorted_by_key(|problem| problem.line), "{found:#?}");
}

#[test]
fn text_that_is_no_document_is_refused_with_its_line() {
    for (text, format, line) in [
        ("[domains.default\n", Toml, Some(1)),
        ("[domains.default]\ntiers = 5\n", Toml, Some(2)),
        ("domains = 1\ndomains = 2\n", Toml, Some(2)),
        ("{\"domains\": {}\n", Json, Some(2)),
        ("{\"domains\": {}} x", Json, Some(1)),
        ("domains: [\n", Yaml, None),
        ("domains:\n  default: &a [*a]\n", Yaml, None),
        ("", Toml, None),
        ("", Yaml, None),
        ("", Json, None),
        ("\u{0}\u{1}", Yaml, None),
    ] {
        let found = problems(text, format);
        assert_eq!(found.len(), 1);
        assert!(!found[0].message.is_empty());
        if line.is_some() {
            assert_eq!(found[0].line, line, "{text:?}: {}", found[0]);
        }
    }
}

#[test]
fn a_repeated_key_is_refused_in_every_format() {
    for (text, format) in [
        ("[domains.default]\n[domains.default]\n", Toml),
        ("domains:\n  default: {}\n  default: {}\n", Yaml),
        ("{\"domains\": {\"default\": {}, \"default\": {}}}", Json),
        ("{\"domains\": {}, \"domains\": {}}", Json),
    ] {
        assert!(Snapshot::parse(text, format).is_err(), "{text}");
    }
}

#[test]
fn the_three_formats_carry_the_same_document() {
    let [toml, yaml, json] =
        [Toml, Yaml, Json].map(|format| Policy::parse(&write(&good(), format), format).expect("good"));
    assert_eq!(toml, yaml);
    assert_eq!(toml, json);
    let again = serde_json::to_string(&toml).expect("writes");
    assert_eq!(Policy::parse(&again, Json).expect("its own writing"), toml);
}

/// Descriptions and notes are in every format, change no decision, and need a reader that knows them.
#[test]
fn descriptions_and_notes_are_for_people_alone() {
    let mut document = good();
    let plain = Policy::parse(&write(&document, Json), Json).expect("good");
    domain(&mut document)["tiers"][0]["description"] = format!("{}\nSecond line", "ü".repeat(188)).into();
    let described = Policy::parse(&write(&document, Json), Json).expect("good");
    domain(&mut document)["rules"][0]["note"] = "asked for by search".into();
    for format in [Toml, Yaml, Json] {
        let noted = Policy::parse(&write(&document, Json), Json).expect("good");
        let written = noted.write(format).expect("it can be written");
        assert_eq!(Policy::parse(&written, format).as_ref(), Ok(&noted), "{written}");
        let of = |policy: &Policy| {
            Snapshot::compile(policy).expect("right").limit_names().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(of(&noted), of(&plain));
        assert_eq!([plain.schema(), described.schema(), noted.schema()], [1, 3, 3]);
    }
}

#[test]
fn a_largest_debt_is_in_every_format_and_needs_a_reader_that_knows_it() {
    let mut document = good();
    let plain = Policy::parse(&write(&document, Json), Json).expect("good");
    limit(&mut document)["max_debt"] = 0.into();
    let bounded = Policy::parse(&write(&document, Json), Json).expect("good");
    assert_eq!([plain.schema(), bounded.schema()], [1, 5]);
    for format in [Toml, Yaml, Json] {
        let written = bounded.write(format).expect("it can be written");
        assert_eq!(Policy::parse(&written, format).as_ref(), Ok(&bounded), "{written}");
        assert!(!plain.write(format).expect("it can be written").contains("max_debt"));
    }
}

/// Tags keep their order in every format, change no decision, and need a reader that knows them.
#[test]
fn tags_are_for_people_alone() {
    let mut document = good();
    let plain = Policy::parse(&write(&document, Json), Json).expect("good");
    domain(&mut document)["clients"][0]["tags"] = (0..16).rev().map(|n| format!("t{n}")).collect::<Vec<_>>().into();
    let tagged = Policy::parse(&write(&document, Json), Json).expect("good");
    assert_eq!(tagged.domains["default"].clients[0].tags[..2], ["t15", "t14"]);
    assert_eq!([plain.schema(), tagged.schema()], [1, 4]);
    for format in [Toml, Yaml, Json] {
        let written = tagged.write(format).expect("it can be written");
        assert_eq!(Policy::parse(&written, format).as_ref(), Ok(&tagged), "{written}");
        assert!(!plain.write(format).expect("it can be written").contains("tags"));
    }
    let engines = [&plain, &tagged].map(|policy| {
        let engine = Engine::with_clock(64, ManualClock::at(Timestamp::from_nanos(1_790_035_200_000_000_000)));
        engine.publish(Publish::of(Snapshot::compile(policy).expect("right"))).expect("it fits");
        engine
    });
    let who = [Identity::new("ip", "10.0.0.1").expect("valid")];
    let request = Request::new(&who).expect("valid").endpoint("/search").expect("valid");
    let [found, same] = engines.each_ref().map(|engine| format!("{:?}", engine.inspect(&request)));
    assert_eq!(found, same);
}

/// The example of the format's description, with everything that it shows.
#[test]
fn the_whole_example_is_read() {
    let text = r#"
        [domains.default]
        defaults = { ip = "anonymous", user = "free" }
        tier_hint = false
        on_error = "open"
        headers = "x-ratelimit"
        reset = "epoch"
        timezone = "UTC"

        [[domains.default.tiers]]
        id = "free"
        limits = [
          { id = "burst",  algorithm = "token_bucket", limit = 10,    period = "1s", burst = 20 },
          { id = "minute", algorithm = "fixed_window", limit = 1000,  period = "1m" },
        ]
        [[domains.default.tiers]]
        id = "anonymous"
        limits = [ { id = "minute", algorithm = "token_bucket", limit = 60, period = "1m" } ]
        [[domains.default.tiers]]
        id = "pro"
        limits = [ { id = "minute", algorithm = "token_bucket", limit = 10000, period = "1m" } ]
        [[domains.default.tiers]]
        id = "internal"
        unlimited = true

        [[domains.default.clients]]
        kind = "api_key"
        value = "k-123"
        tier = "pro"
        label = "Acme"
        override = { blocked = true, until = "2027-01-01T00:00:00Z", reason = "abuse" }

        [[domains.default.rules]]
        id = "search"
        endpoint = "/api/v1/search"
        method = "GET"
        per = "ip"
        tiers = ["free"]
        where = { plan = "trial*" }
        cost = 1
        limits = [ { id = "search", algorithm = "token_bucket", limit = 5, period = "1s" } ]
        enabled = true
    "#;
    let snapshot = Snapshot::parse(text, Toml).expect("the example is right");
    let names: Vec<&str> = snapshot.limit_names().collect();
    assert_eq!(
        names,
        [
            "default/tier:free/burst",
            "default/tier:free/minute",
            "default/tier:anonymous/minute",
            "default/tier:pro/minute",
            "default/client:api_key:k-123/blocked",
            "default/rule:search/search",
        ]
    );
}

#[test]
fn the_policy_of_the_document_is_right() {
    let document = include_str!("../../../docs/policy.md");
    let policy = document.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a policy");
    assert_eq!(Snapshot::parse(policy, Toml).expect("right").limit_names().len(), 4);
}

#[test]
fn rules_are_listed_as_they_win() {
    let rule = |id: &str, endpoint: &str, more: &str| {
        format!(
            "[[domains.default.rules]]\nid = \"{id}\"\nendpoint = \"{endpoint}\"\nper = \"ip\"\n{more}\
             limits = [{{ id = \"l\", algorithm = \"token_bucket\", limit = 1, period = \"1s\" }}]\n"
        )
    };
    let text = [
        rule("all", "*", ""),
        rule("rest", "/users/*", ""),
        rule("any", "/users/{id}", ""),
        rule("post", "/users/me", "method = \"POST\"\n"),
        rule("me", "/users/me", ""),
        rule("prefix", "/users/me", "where = { plan = \"t*\" }\n"),
        rule("longer-prefix", "/users/me", "where = { plan = \"tri*\" }\n"),
        rule("trial", "/users/me", "where = { plan = \"trial\" }\n"),
        rule("net", "/users/me", "where = { ip = \"10.0.0.0/8\" }\n"),
        rule("address", "/users/me", "where = { ip = \"10.9.0.1\" }\n"),
        rule("subnet", "/users/me", "where = { ip = \"10.9.*\" }\n"),
    ]
    .concat();
    let policy = Policy::parse(&text, Toml).expect("a good policy");
    let ids: Vec<&str> = policy.domains["default"].rules_by_specificity().iter().map(|rule| rule.id.as_str()).collect();
    let [by_address, by_plan] = [["address", "subnet", "net"], ["trial", "longer-prefix", "prefix"]];
    assert_eq!(ids, [&["post"][..], &by_address, &by_plan, &["me", "any", "rest", "all"]].concat());
}

#[test]
fn what_descriptors_meet_is_in_every_format_and_needs_a_reader_that_knows_it() {
    let of = |settings: &str| Policy::parse(&format!("[domains.default]\n{settings}"), Toml).expect("good");
    let [plain, exact, subset] = ["", "descriptors = \"exact\"", "descriptors = \"subset\""].map(of);
    assert_eq!([plain.schema(), exact.schema(), subset.schema()], [1, 1, 6]);
    let identity = of("descriptor_paths = \"identity\"");
    assert_eq!([of("descriptor_paths = \"endpoint\"").schema(), identity.schema()], [1, 7]);
    for format in [Toml, Yaml, Json] {
        for policy in [&subset, &identity] {
            let written = policy.write(format).expect("it can be written");
            assert_eq!(Policy::parse(&written, format).as_ref(), Ok(policy), "{written}");
        }
        assert!(!exact.write(format).expect("it can be written").contains("descriptors"));
    }
    let error = Policy::parse("[domains.default]\ndescriptors = \"all\"", Toml).expect_err("no way to meet limits");
    assert!(
        error.to_string().contains("line 2: domains.default.descriptors: `all` stands here; write `exact` or `subset`"),
        "{error}"
    );
    let found = differences(&plain, &subset);
    assert_eq!((found.len(), found[0].field.as_deref()), (1, Some("descriptors")));
}
