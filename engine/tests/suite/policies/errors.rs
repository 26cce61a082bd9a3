//! Documents that are refused, each with the field and line of its problem.

use super::*;

/// A document with a problem: the change to the good document, and the expected error.
struct Bad {
    what: &'static str,
    change: fn(&mut serde_json::Value),
    path: &'static str,
    says: &'static str,
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
