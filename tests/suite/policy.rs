//! `tidegate policy check`: bad documents are rejected with the field and the line, in every format.

use std::fs;

use crate::support::{tidegate, tidegate_reading};

const GOOD: &str = r#"{
  "domains": {
    "default": {
      "defaults": {"ip": "free"},
      "tiers": [
        {"id": "free", "limits": [
          {"id": "minute", "algorithm": "token_bucket", "limit": 100, "period": "1m"}
        ]}
      ],
      "rules": [
        {"id": "login", "endpoint": "/login", "method": "POST", "per": "ip", "limits": [
          {"id": "rate", "algorithm": "fixed_window", "limit": 10, "period": "1m"}
        ]}
      ]
    }
  }
}
"#;

const GOOD_TOML: &str = r#"
[domains.default]
defaults = { ip = "free" }

[[domains.default.tiers]]
id = "free"
limits = [
  { id = "minute", algorithm = "token_bucket", limit = 100, period = "1m" },
]

[[domains.default.rules]]
id = "login"
endpoint = "/login"
method = "POST"
per = "ip"
limits = [
  { id = "rate", algorithm = "fixed_window", limit = 10, period = "1m" },
]
"#;

const GOOD_YAML: &str = r"
domains:
  default:
    defaults:
      ip: free
    tiers:
      - id: free
        limits:
          - id: minute
            algorithm: token_bucket
            limit: 100
            period: 1m
    rules:
      - id: login
        endpoint: /login
        method: POST
        per: ip
        limits:
          - id: rate
            algorithm: fixed_window
            limit: 10
            period: 1m
";

/// A change of a document, for each format in the order of [`DOCUMENTS`], and the field that the error must name.
struct Case {
    what: &'static str,
    change: [(&'static str, &'static str); 3],
    field: &'static str,
}

const DOCUMENTS: [(&str, &str); 3] = [("toml", GOOD_TOML), ("yaml", GOOD_YAML), ("json", GOOD)];

const CASES: [Case; 9] = [
    Case {
        what: "an unknown algorithm",
        change: [
            ("\"token_bucket\"", "\"leaky_cauldron\""),
            ("token_bucket", "leaky_cauldron"),
            ("\"token_bucket\"", "\"leaky_cauldron\""),
        ],
        field: "domains.default.tiers[0].limits[0].algorithm",
    },
    Case {
        what: "an unknown key",
        change: [
            ("limit = 100", "limit = 100, colour = 1"),
            ("limit: 100", "limit: 100\n            colour: 1"),
            ("\"limit\": 100", "\"limit\": 100, \"colour\": 1"),
        ],
        field: "colour",
    },
    Case {
        what: "a period of zero",
        change: [
            ("limit = 100, period = \"1m\"", "limit = 100, period = \"0s\""),
            ("limit: 100\n            period: 1m", "limit: 100\n            period: 0s"),
            ("\"limit\": 100, \"period\": \"1m\"", "\"limit\": 100, \"period\": \"0s\""),
        ],
        field: "domains.default.tiers[0].limits[0].period: a period of zero",
    },
    Case {
        what: "a burst below 1",
        change: [
            ("limit = 100", "limit = 100, burst = 0"),
            ("limit: 100", "limit: 100\n            burst: 0"),
            ("\"limit\": 100", "\"limit\": 100, \"burst\": 0"),
        ],
        field: "domains.default.tiers[0].limits[0].burst",
    },
    Case {
        what: "a log that is too large",
        change: [
            ("\"fixed_window\", limit = 10", "\"sliding_window_log\", limit = 4097"),
            ("fixed_window\n            limit: 10", "sliding_window_log\n            limit: 4097"),
            ("\"fixed_window\", \"limit\": 10", "\"sliding_window_log\", \"limit\": 4097"),
        ],
        field: "domains.default.rules[0].limits[0].limit: 4097 is out of range; from 1 to 4096 fit",
    },
    Case {
        what: "an id twice",
        change: [
            (
                "limits = [\n  { id = \"rate\"",
                "limits = [\n  { id = \"rate\", algorithm = \"fixed_window\", limit = 1, period = \"1s\" },\n  { id = \"rate\"",
            ),
            (
                "          - id: rate",
                "          - { id: rate, algorithm: fixed_window, limit: 1, period: 1s }\n          - id: rate",
            ),
            (
                "          {\"id\": \"rate\"",
                "          {\"id\": \"rate\", \"algorithm\": \"fixed_window\", \"limit\": 1, \"period\": \"1s\"},\n          {\"id\": \"rate\"",
            ),
        ],
        field: "domains.default.rules[0].limits[1].id: another limit here is called `rate`",
    },
    Case {
        what: "a tier that does not exist",
        change: [
            ("ip = \"free\"", "ip = \"gold\""),
            ("ip: free", "ip: gold"),
            ("\"ip\": \"free\"", "\"ip\": \"gold\""),
        ],
        field: "domains.default.defaults.ip: no tier is called `gold`",
    },
    Case {
        what: "a number above 2^53 - 1",
        change: [
            ("limit = 100", "limit = 9007199254740992"),
            ("limit: 100", "limit: 9007199254740992"),
            ("\"limit\": 100", "\"limit\": 9007199254740992"),
        ],
        field: "domains.default.tiers[0].limits[0].limit",
    },
    Case {
        what: "two rules with the same pattern, method and per",
        change: [
            (
                "[[domains.default.rules]]",
                "[[domains.default.rules]]\nid = \"again\"\nendpoint = \"/login\"\nmethod = \"post\"\nper = [\"ip\"]\nlimits = [{ id = \"a\", algorithm = \"fixed_window\", limit = 1, period = \"1s\" }]\n\n[[domains.default.rules]]",
            ),
            (
                "    rules:",
                "    rules:\n      - { id: again, endpoint: /login, method: post, per: [ip], limits: [{ id: a, algorithm: fixed_window, limit: 1, period: 1s }] }",
            ),
            (
                "\"rules\": [",
                "\"rules\": [\n        {\"id\": \"again\", \"endpoint\": \"/login\", \"method\": \"post\", \"per\": [\"ip\"], \"limits\": [{\"id\": \"a\", \"algorithm\": \"fixed_window\", \"limit\": 1, \"period\": \"1s\"}]},",
            ),
        ],
        field: "domains.default.rules[1].endpoint: rule `again` has the same pattern",
    },
];

#[test]
fn bad_documents_are_refused_with_field_and_line() {
    let folder = tempfile::tempdir().expect("a folder");
    for case in &CASES {
        for ((format, good), (from, to)) in DOCUMENTS.iter().zip(case.change) {
            let file = folder.path().join(format!("policy.{format}"));
            assert!(good.contains(from), "{}, {format}", case.what);
            fs::write(&file, good.replacen(from, to, 1)).expect("room for a file");
            let file = file.display().to_string();
            let run = tidegate(["policy", "check", &file]);
            let place = run.stdout.strip_prefix(&format!("{file}:")).and_then(|rest| rest.split(": ").next());
            let has_line = place.is_some_and(|line| line.parse::<usize>().is_ok_and(|line| line > 0));
            assert_eq!(run.status, Some(1), "{}, {format}: {run:?}", case.what);
            assert!(has_line && run.stdout.contains(case.field), "{}, {format}: {run:?}", case.what);
            assert_eq!(run.stderr, "", "{}, {format}", case.what);
        }
    }
}

#[test]
fn good_documents_are_summarized() {
    let folder = tempfile::tempdir().expect("a folder");
    for (format, good) in DOCUMENTS {
        let file = folder.path().join(format!("policy.{format}"));
        fs::write(&file, good).expect("room for a file");
        let file = file.display().to_string();
        let run = tidegate(["policy", "check", &file]);
        let expected = format!("{file}: valid: 1 domain, 1 tier, 1 rule, 0 clients, 2 limits\n");
        assert_eq!((run.stdout, run.status), (expected, Some(0)), "{}", run.stderr);
        let run = tidegate_reading(good.as_bytes(), ["policy", "check", "-", "--format", format]);
        assert_eq!(run.status, Some(0), "{run:?}");
    }
}

#[test]
fn every_problem_is_printed() {
    let wrong = GOOD_TOML.replace("\"1m\"", "\"1 minute\"").replace("\"free\" }", "\"gold\" }");
    let run = tidegate_reading(wrong.as_bytes(), ["policy", "check", "-", "--format", "toml"]);
    assert_eq!((run.status, run.stdout.lines().count()), (Some(1), 3), "{run:?}");
    assert!(run.stdout.lines().all(|line| line.starts_with("-:")), "{run:?}");
}

#[test]
fn unreadable_input_is_status_2() {
    let folder = tempfile::tempdir().expect("a folder");
    let missing = folder.path().join("missing.toml").display().to_string();
    let nameless = folder.path().join("policy").display().to_string();
    for (arguments, told) in [
        (&["policy", "check", &missing] as &[&str], "missing.toml"),
        (&["policy", "check", &nameless], "does not show the format"),
        (&["policy", "check", "-"], "--format"),
        (&["policy", "check"], "Usage"),
        (&["policy"], "Usage"),
    ] {
        let run = tidegate(arguments);
        assert_eq!((run.status, run.stdout.as_str()), (Some(2), ""), "{run:?}");
        assert!(run.stderr.contains(told), "{run:?}");
    }
}
