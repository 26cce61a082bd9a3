//! Policy documents: the errors with field and line, in every format, and the policies that are read.

use tidegate::{
    Engine, Identity, Problem, Publish, Request, Snapshot,
    clock::ManualClock,
    formats::Format::{self, Json, Toml, Yaml},
    policy::{Policy, differences},
};

/// A document with a problem: the change to the good document, and the expected error.
struct Bad {
    what: &'static str,
    change: fn(&mut serde_json::Value),
    path: &'static str,
    says: &'static str,
}

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

fn push_rule(document: &mut serde_json::Value, change: fn(&mut serde_json::Value)) {
    let mut rule = domain(document)["rules"][0].clone();
    rule["id"] = "other".into();
    change(&mut rule);
    domain(document)["rules"].as_array_mut().expect("a list").push(rule);
}

const FIRST_LIMIT: &str = "domains.default.tiers[0].limits[0]";

const BAD: &[Bad] = &[
    Bad {
        what: "an unknown algorithm",
        change: |d| limit(d)["algorithm"] = "magic".into(),
        path: "domains.default.tiers[0].limits[0].algorithm",
        says: "`magic` stands here; write `token_bucket`, ",
    },
    Bad {
        what: "a log that is too long",
        change: |d| {
            limit(d)["algorithm"] = "sliding_window_log".into();
            limit(d)["limit"] = 4_097.into();
        },
        path: "domains.default.tiers[0].limits[0].limit",
        says: "4097 is out of range; from 1 to 4096 fit",
    },
    Bad {
        what: "an unknown key",
        change: |d| limit(d)["brust"] = 1.into(),
        path: "domains.default.tiers[0].limits[0].brust",
        says: "unknown field `brust`",
    },
    Bad {
        what: "a description that is too long",
        change: |d| domain(d)["tiers"][1]["description"] = "ü".repeat(201).into(),
        path: "domains.default.tiers[1].description",
        says: "201 characters; at most 200 fit",
    },
    Bad {
        what: "a description with a tab",
        change: |d| domain(d)["tiers"][1]["description"] = "for\tus".into(),
        path: "domains.default.tiers[1].description",
        says: "U+0009",
    },
    Bad {
        what: "a tag that is no id",
        change: |d| domain(d)["clients"][0]["tags"] = vec!["beta", "Not One"].into(),
        path: "domains.default.clients[0].tags[1]",
        says: "`Not One` is not an id",
    },
    Bad {
        what: "a tag twice",
        change: |d| domain(d)["clients"][0]["tags"] = vec!["beta", "eu", "beta"].into(),
        path: "domains.default.clients[0].tags[2]",
        says: "another tag here is called `beta`",
    },
    Bad {
        what: "more tags than fit",
        change: |d| {
            domain(d)["clients"][0]["tags"] = (0..17).map(|n| format!("t{n}")).collect::<Vec<_>>().into();
        },
        path: "domains.default.clients[0].tags",
        says: "17 tags; at most 16 fit",
    },
    Bad {
        what: "an unknown key of a domain",
        change: |d| domain(d)["tier"] = 1.into(),
        path: "domains.default.tier",
        says: "unknown field `tier`",
    },
    Bad {
        what: "a missing key",
        change: |d| drop(limit(d).as_object_mut().expect("a table").remove("period")),
        path: FIRST_LIMIT,
        says: "missing field `period`",
    },
    Bad {
        what: "a time zone that does not exist",
        change: |d| domain(d)["timezone"] = "Europe/Pari".into(),
        path: "domains.default.timezone",
        says: "no time zone is called `Europe/Pari`",
    },
    Bad {
        what: "a zero period",
        change: |d| limit(d)["period"] = "0s".into(),
        path: "domains.default.tiers[0].limits[0].period",
        says: "zero",
    },
    Bad {
        what: "a period without unit",
        change: |d| limit(d)["period"] = "60".into(),
        path: "domains.default.tiers[0].limits[0].period",
        says: "no unit",
    },
    Bad {
        what: "a calendar period of a bucket",
        change: |d| limit(d)["period"] = "day".into(),
        path: "domains.default.tiers[0].limits[0].period",
        says: "write 1d",
    },
    Bad {
        what: "a window of part of a second",
        change: |d| domain(d)["tiers"][0]["limits"][1]["period"] = "1500ms".into(),
        path: "domains.default.tiers[0].limits[1].period",
        says: "whole seconds",
    },
    Bad {
        what: "a window above its bound",
        change: |d| domain(d)["tiers"][0]["limits"][1]["limit"] = 16_777_217.into(),
        path: "domains.default.tiers[0].limits[1].limit",
        says: "16777216",
    },
    Bad {
        what: "a burst of a window",
        change: |d| domain(d)["tiers"][0]["limits"][1]["burst"] = 5.into(),
        path: "domains.default.tiers[0].limits[1].burst",
        says: "no burst",
    },
    Bad {
        what: "a burst below 1",
        change: |d| limit(d)["burst"] = 0.into(),
        path: "domains.default.tiers[0].limits[0].burst",
        says: "from 1",
    },
    Bad {
        what: "a negative burst",
        change: |d| limit(d)["burst"] = (-1).into(),
        path: "domains.default.tiers[0].limits[0].burst",
        says: "a whole number from 0",
    },
    Bad {
        what: "a debt of a window",
        change: |d| domain(d)["tiers"][0]["limits"][1]["max_debt"] = 5.into(),
        path: "domains.default.tiers[0].limits[1].max_debt",
        says: "owes nothing after its end",
    },
    Bad {
        what: "a debt above 2^53 - 1",
        change: |d| limit(d)["max_debt"] = (1u64 << 53).into(),
        path: "domains.default.tiers[0].limits[0].max_debt",
        says: "from 0 to 9007199254740991",
    },
    Bad {
        what: "a negative debt",
        change: |d| limit(d)["max_debt"] = (-1).into(),
        path: "domains.default.tiers[0].limits[0].max_debt",
        says: "a whole number from 0",
    },
    Bad {
        what: "a log that nodes lease",
        change: |d| {
            let limit = limit(d);
            limit["algorithm"] = "sliding_window_log".into();
            limit.as_object_mut().expect("a table").remove("burst");
            limit["sharing"] = "leased".into();
        },
        path: "domains.default.tiers[0].limits[0].sharing",
        says: "a log cannot be shared like this",
    },
    Bad {
        what: "more than all of a limit",
        change: |d| {
            limit(d)["sharing"] = "strict".into();
            limit(d)["on_failure"] = serde_json::json!({ "local": 1.5 });
        },
        path: "domains.default.tiers[0].limits[0].on_failure.local",
        says: "1.5 is out of range",
    },
    Bad {
        what: "a rule without limits",
        change: |d| domain(d)["rules"][0]["limits"] = serde_json::json!([]),
        path: "domains.default.rules[0].limits",
        says: "at least one limit",
    },
    Bad {
        what: "a method that is none",
        change: |d| domain(d)["rules"][0]["method"] = "GET /".into(),
        path: "domains.default.rules[0].method",
        says: "a method is letters",
    },
    Bad {
        what: "a rule of no tier",
        change: |d| domain(d)["rules"][0]["tiers"] = serde_json::json!([]),
        path: "domains.default.rules[0].tiers",
        says: "an empty list would match nobody",
    },
    Bad {
        what: "a rule that counts nobody",
        change: |d| domain(d)["rules"][0]["per"] = serde_json::json!([]),
        path: "domains.default.rules[0].per",
        says: "an empty list counts nobody",
    },
    Bad {
        what: "a client twice",
        change: |d| {
            let client = domain(d)["clients"][0].clone();
            domain(d)["clients"].as_array_mut().expect("a list").push(client);
        },
        path: "domains.default.clients[1].value",
        says: "stands here twice",
    },
    Bad {
        what: "a block with bits beyond it",
        change: |d| domain(d)["clients"][0]["value"] = "10.1.0.0/8".into(),
        path: "domains.default.clients[0].value",
        says: "10.1.0.0/8",
    },
    Bad {
        what: "a client that is too long",
        change: |d| domain(d)["clients"][0]["value"] = "9".repeat(1_025).into(),
        path: "domains.default.clients[0].value",
        says: "1025 bytes",
    },
    Bad {
        what: "too many kinds",
        change: |d| {
            for n in 0..65 {
                domain(d)["defaults"][format!("k{n}")] = "free".into();
            }
        },
        path: "domains.default",
        says: "a domain can speak of 64",
    },
    Bad {
        what: "a limit of half a token",
        change: |d| limit(d)["limit"] = 1.5.into(),
        path: "domains.default.tiers[0].limits[0].limit",
        says: "a whole number from 0",
    },
    Bad {
        what: "a limit in words",
        change: |d| limit(d)["limit"] = "ten".into(),
        path: "domains.default.tiers[0].limits[0].limit",
        says: "a whole number from 0",
    },
    Bad {
        what: "a number above 2^53 - 1",
        change: |d| limit(d)["limit"] = (1u64 << 53).into(),
        path: "domains.default.tiers[0].limits[0].limit",
        says: "9007199254740991",
    },
    Bad {
        what: "a burst above 2^53 - 1",
        change: |d| limit(d)["burst"] = (1u64 << 53).into(),
        path: "domains.default.tiers[0].limits[0].burst",
        says: "9007199254740991",
    },
    Bad {
        what: "a failure of what is not shared",
        change: |d| limit(d)["on_failure"] = "open".into(),
        path: "domains.default.tiers[0].limits[0].on_failure",
        says: "not shared",
    },
    Bad {
        what: "no fraction at all",
        change: |d| {
            limit(d)["sharing"] = "strict".into();
            limit(d)["on_failure"] = serde_json::json!({ "local": 0.0 });
        },
        path: "domains.default.tiers[0].limits[0].on_failure.local",
        says: "above 0, and at most 1",
    },
    Bad {
        what: "a duplicate limit",
        change: |d| domain(d)["tiers"][0]["limits"][1]["id"] = "burst".into(),
        path: "domains.default.tiers[0].limits[1].id",
        says: "another limit here is called `burst`",
    },
    Bad {
        what: "a duplicate tier",
        change: |d| domain(d)["tiers"][1]["id"] = "free".into(),
        path: "domains.default.tiers[1].id",
        says: "another tier here is called `free`",
    },
    Bad {
        what: "a duplicate rule",
        change: |d| {
            push_rule(d, |rule| {
                rule["id"] = "search".into();
                rule["endpoint"] = "/x".into();
            });
        },
        path: "domains.default.rules[1].id",
        says: "another rule here is called `search`",
    },
    Bad {
        what: "two rules that are equal",
        change: |d| push_rule(d, |_| ()),
        path: "domains.default.rules[1].endpoint",
        says: "rule `search` has the same pattern",
    },
    Bad {
        what: "two rules that differ in the parameter's name",
        change: |d| {
            domain(d)["rules"][0]["endpoint"] = "/a/{x}".into();
            push_rule(d, |rule| rule["endpoint"] = "/a/{y}".into());
        },
        path: "domains.default.rules[1].endpoint",
        says: "rule `search` has the same pattern",
    },
    Bad {
        what: "two rules that count the same kinds in another order",
        change: |d| {
            domain(d)["rules"][0]["per"] = serde_json::json!(["ip", "user"]);
            push_rule(d, |rule| rule["per"] = serde_json::json!(["user", "ip"]));
        },
        path: "domains.default.rules[1].endpoint",
        says: "rule `search` has the same pattern",
    },
    Bad {
        what: "a tier that does not exist",
        change: |d| domain(d)["defaults"]["ip"] = "gold".into(),
        path: "domains.default.defaults.ip",
        says: "no tier is called `gold`; the tiers are free, internal",
    },
    Bad {
        what: "a client's tier that does not exist",
        change: |d| domain(d)["clients"][0]["tier"] = "gold".into(),
        path: "domains.default.clients[0].tier",
        says: "no tier is called `gold`",
    },
    Bad {
        what: "a rule's tier that does not exist",
        change: |d| domain(d)["rules"][0]["tiers"] = serde_json::json!(["free", "gold"]),
        path: "domains.default.rules[0].tiers[1]",
        says: "no tier is called `gold`",
    },
    Bad {
        what: "a tier without limits",
        change: |d| domain(d)["tiers"][0]["limits"] = serde_json::json!([]),
        path: "domains.default.tiers[0]",
        says: "needs limits, or `unlimited = true`",
    },
    Bad {
        what: "a tier with limits that is unlimited",
        change: |d| domain(d)["tiers"][0]["unlimited"] = true.into(),
        path: "domains.default.tiers[0].unlimited",
        says: "not both",
    },
    Bad {
        what: "an id in capitals",
        change: |d| domain(d)["tiers"][0]["id"] = "Free".into(),
        path: "domains.default.tiers[0].id",
        says: "is not an id",
    },
    Bad {
        what: "a kind in capitals",
        change: |d| domain(d)["rules"][0]["per"] = "IP".into(),
        path: "domains.default.rules[0].per",
        says: "is not a kind",
    },
    Bad {
        what: "a pattern without slash",
        change: |d| domain(d)["rules"][0]["endpoint"] = "search".into(),
        path: "domains.default.rules[0].endpoint",
        says: "must begin with `/`",
    },
    Bad {
        what: "an address that is none",
        change: |d| domain(d)["clients"][0]["value"] = "10.0.0.300".into(),
        path: "domains.default.clients[0].value",
        says: "neither an address nor a CIDR block",
    },
    Bad {
        what: "a client with nothing",
        change: |d| drop(domain(d)["clients"][0].as_object_mut().expect("a table").remove("tier")),
        path: "domains.default.clients[0]",
        says: "needs a tier or an override",
    },
    Bad {
        what: "an override of two sorts",
        change: |d| domain(d)["clients"][0]["override"] = serde_json::json!({ "blocked": true, "unlimited": true }),
        path: "domains.default.clients[0].override",
        says: "exactly one",
    },
    Bad {
        what: "an end that is no instant",
        change: |d| domain(d)["clients"][0]["override"] = serde_json::json!({ "blocked": true, "until": "tomorrow" }),
        path: "domains.default.clients[0].override.until",
        says: "RFC 3339",
    },
    Bad {
        what: "a cost of zero",
        change: |d| domain(d)["rules"][0]["cost"] = 0.into(),
        path: "domains.default.rules[0].cost",
        says: "from 1",
    },
    Bad { what: "no domain", change: |d| d["domains"] = serde_json::json!({}), path: "domains", says: "no domain" },
    Bad {
        what: "more limits than a request may meet",
        change: |d| {
            let limits: Vec<_> = (0..40)
                .map(|n| {
                    let mut limit = limit(d).clone();
                    limit["id"] = format!("l{n}").into();
                    limit
                })
                .collect();
            domain(d)["tiers"][0]["limits"] = limits.into();
        },
        path: "domains.default",
        says: "at most 64",
    },
];

fn write(document: &serde_json::Value, format: Format) -> String {
    match format {
        Json => serde_json::to_string_pretty(document).expect("writes"),
        Toml => toml::to_string_pretty(document).expect("writes"),
        // Block style, as people write it.
        Yaml => yaml(document, 0),
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

#[test]
fn errors_name_field_and_line_in_every_format() {
    for format in [Toml, Yaml, Json] {
        let text = write(&good(), format);
        Snapshot::parse(&text, format).unwrap_or_else(|problems| panic!("{format:?}: {problems}\n{text}"));
        for Bad { what, change, path, says } in BAD {
            let mut document = good();
            change(&mut document);
            let text = write(&document, format);
            let found = problems(&text, format);
            let Some(problem) = found.iter().find(|problem| problem.path == *path) else {
                panic!("{what} in {format:?}: {path} is not named in {found:#?}\n{text}");
            };
            assert!(problem.message.contains(says), "{what} in {format:?}: {problem}");
            // The line is the field's own: it holds the field's name, or begins the list or table.
            let line = text.lines().nth(problem.line.unwrap_or_else(|| panic!("{what} in {format:?} has no line")) - 1);
            let line = line.unwrap_or_else(|| panic!("{what} in {format:?}: line {:?} does not exist", problem.line));
            let field = path.rsplit('.').next().expect("a field");
            let is_item = field.contains('[')
                || matches!(*path, "domains" | "domains.default")
                || ["domains.default.clients[0].override", "domains.default.clients[0].tags"].contains(path);
            assert!(
                is_item || line.contains(field),
                "{what} in {format:?}: line {:?} is `{line}`\n{text}",
                problem.line
            );
        }
    }
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
        let engine = Engine::with_clock(64, ManualClock::at(1_790_035_200_000_000_000));
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
fn the_policy_of_the_readme_is_right() {
    let readme = include_str!("../../../README.md");
    let policy = readme.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a policy");
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
    let ids: Vec<&str> = policy.domains["default"].rules_by_closeness().iter().map(|rule| rule.id.as_str()).collect();
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
