//! The error messages of wrong policies: they say what was found and what would be right, in every format, and never in
//! the terms of a library.

use tidegate::{
    Problem, Request, RequestError,
    formats::{
        Format::{self, Json, Toml, Yaml},
        read_yaml,
    },
    policy::Policy,
};

const YAML: &str = "\
domains:
  default:
    defaults: { ip: free }
    tiers:
      - id: free
        limits:
          - id: minute
            algorithm: fixed_window
            limit: 5
            period: 1m
    rules:
      - { id: a, endpoint: /x, per: ip, limits: [] }
";

const TOML: &str = r#"[domains.default]
defaults = { ip = "free" }
[[domains.default.tiers]]
id = "free"
limits = [{ id = "m", algorithm = "fixed_window", limit = 5, period = "1m" }]
"#;

const JSON: &str = r#"{"domains": {"default": {
  "tiers": [{"id": "free", "limits": [
    {"id": "m", "algorithm": "fixed_window", "limit": 5, "period": "1m"}]}]
}}}
"#;

/// Terms of libraries, and of Rust, that do not help the author of a policy.
const INTERNAL: &[&str] = &[
    "from_str",
    "Option<",
    "expected mapping",
    "expected sequence",
    "expected string",
    "invalid u",
    "invalid type",
    "invalid value",
    "untagged",
    "struct ",
    "variant",
    "deserialize",
    "expected ident",
    "EOF",
    "expected one of",
    " at line ",
    "scalar",
    "serde",
    "a map",
    "sequence",
];

fn told(text: &str, format: Format) -> String {
    Policy::parse(text, format).expect_err(text).to_string()
}

fn assert_told(text: &str, format: Format, wanted: &str) {
    let told = told(text, format);
    assert!(told.contains(wanted), "{text}\n{format:?}: {told}\nwanted: {wanted}");
    let internal: Vec<_> = INTERNAL.iter().filter(|term| told.contains(**term)).collect();
    assert!(internal.is_empty(), "{text}\n{format:?}: {told}: {internal:?}");
}

/// Asserts the message for each change of the good document.
fn assert_each(good: &str, format: Format, changes: &[(&str, &str, &str)]) {
    assert!(Policy::parse(good, format).is_ok(), "{format:?}");
    for (from, to, wanted) in changes {
        assert!(good.contains(from), "{from}");
        assert_told(&good.replacen(from, to, 1), format, wanted);
    }
}

const LIMIT: &str = "domains.default.tiers[0].limits[0].limit: ";
const NUMBER: &str = " stands here; write a whole number from 0 to 9007199254740991";

// Long because it is a table: one row for each mistake.
#[test]
fn yaml() {
    let number = |found: &str| format!("line 9: {LIMIT}{found}{NUMBER}");
    let (word, half, huge) = (number("`five`"), number("`1.5`"), number("`99999999999999999999999`"));
    let (nothing, list, table) = (number("nothing"), number("a list"), number("a table of keys and values"));
    assert_each(
        YAML,
        Yaml,
        &[
            ("limit: 5", "limit: five", &word),
            ("limit: 5", "limit: 1.5", &half),
            ("limit: 5", "limit: 99999999999999999999999", &huge),
            ("limit: 5", "limit: 18446744073709551616", &number("`18446744073709551616`")),
            ("limit: 5", "limit:", &nothing),
            ("limit: 5", "limit: [1]", &list),
            ("limit: 5", "limit: {a: 1}", &table),
            (
                "limit: 5",
                "limit: -1",
                "line 9: domains.default.tiers[0].limits[0].limit: -1 is out of range; expected a whole",
            ),
            (
                "limit: 5",
                "limit: 5\n            limit: 6",
                "line 10: domains.default.tiers[0].limits[0]: `limit` stands here twice",
            ),
            ("id: free", "id:", "tiers[0].id: nothing stands here; write a text"),
            ("id: free", "id: [1]", "line 5: domains.default.tiers[0].id: a list stands here; write a text"),
            (
                "fixed_window",
                "7",
                "line 8: domains.default.tiers[0].limits[0].algorithm: `7` stands here; write `token_bucket`, ",
            ),
            ("fixed_window", "magic", "algorithm: `magic` stands here; write `token_bucket`, `leaky_bucket`, "),
            ("fixed_window", "[a]", "algorithm: a list stands here; write `token_bucket`, "),
            ("    tiers:", "    tier_hint: 1\n    tiers:", "tier_hint: `1` stands here; write true or false"),
            (
                "{ ip: free }",
                "[a]",
                "line 3: domains.default.defaults: a list stands here; write a table of keys and values",
            ),
            ("{ ip: free }", "{ ip: [x] }", "line 3: domains.default.defaults.ip: a list stands here; write a text"),
            ("{ ip: free }", "{ ip: x, ip: y }", "line 3: domains.default.defaults: `ip` stands here twice"),
            (
                "    rules:\n",
                "    rules: { a: b }\n    x:\n",
                "rules: a table of keys and values stands here; write a list",
            ),
            ("    rules:\n", "    rules: text\n    x:\n", "rules: `text` stands here; write a list"),
            ("  default:", "  default: 5\n  x:", "line 2: domains.default: `5` stands here; write a table"),
            ("domains:", "domains: [a]\nx:", "line 1: domains: a list stands here; write a table"),
            ("domains:", "domains:\nx:", "domains: nothing stands here; write a table"),
            ("domains:", "domain:", "line 1: domain: unknown field `domain`; write `domains`"),
            (
                "period: 1m",
                "periods: 1m",
                "line 10: domains.default.tiers[0].limits[0].periods: unknown field `periods`; write `id`",
            ),
            ("            period: 1m\n", "", "domains.default.tiers[0].limits[0]: missing field `period`; add it"),
            ("per: ip", "per: 5", "rules[0].per: `5` stands here; write a kind, a list of kinds, or \"everyone\""),
            ("per: ip", "per: { a: b }", "rules[0].per: a table of keys and values stands here; write a kind"),
            ("per: ip", "per: ip, cost: 1.5", "rules[0].cost: `1.5` stands here; write a whole number"),
            ("per: ip", "per: ip, tiers: free", "rules[0].tiers: `free` stands here; write a list"),
            (
                "period: 1m",
                "on_failure: { lokal: 1 }",
                "on_failure.lokal: `lokal` stands here; write `open`, `closed` or `local`",
            ),
            ("period: 1m", "on_failure: { local: x }", "on_failure.local: `x` stands here; write a number"),
            ("        limits:", "\tlimits:", "line 5: "),
            ("        limits:", "\tlimits:", "a tab stands here; indent with spaces"),
            ("period: 1m", "period: @x", "line 10: "),
            ("period: 1m", "period: *x", "put a text that begins with it in quotes"),
            ("period: 1m", "period: 1m\n         bad: 1", "look at the indentation"),
        ],
    );
}

// Long because it is a table: one row for each mistake.
#[test]
fn toml() {
    let number = |found: &str| format!("line 5: {LIMIT}{found}{NUMBER}");
    let (quoted, half, none) = (number("`5`") + ", without quotes", number("`1.5`"), number("`nan`"));
    let date = number("a date without quotes");
    assert_each(
        TOML,
        Toml,
        &[
            ("limit = 5", "limit = \"5\"", &quoted),
            ("limit = 5", "limit = 1.5", &half),
            ("limit = 5", "limit = nan", &none),
            ("limit = 5", "limit = 2026-01-01", &date),
            ("limit = 5", "limit = 5.50", &number("`5.50`")),
            (
                "limit = 5",
                "limit = 99999999999999999999",
                "line 5: domains.default.tiers[0].limits[0].limit: 99999999999999999999 is out of range; expected a whole",
            ),
            ("limit = 5", "limit = ", "line 5: not TOML: `=` and a value must follow the key"),
            ("id = \"free\"", "id = ", "line 4: not TOML: `=` and a value must follow the key"),
            (
                "limits = [",
                "limits = [[], ",
                "line 5: domains.default.tiers[0].limits[0]: a list stands here; write a table",
            ),
            (
                "limit = 5, period = \"1m\" }]",
                "limit = 5",
                "line 5: not TOML: a table that began with `{` does not end",
            ),
            ("[[domains.default.tiers]]", "[[domains.default.tiers", "line 3: not TOML: `[` has no `]`; write it"),
            ("limit = 5", "limit = 05", "line 5: not TOML: a number begins with 0; write it without"),
            ("limit = 5", "limit = 5, limit = 6", "line 5: not TOML: this key stands here twice"),
            (
                "id = \"free\"",
                "id = 5",
                "line 4: domains.default.tiers[0].id: `5` stands here; write a text, in quotes",
            ),
            ("id = \"free\"", "id = free", "line 4: not TOML: a text stands here without quotes"),
            ("id = \"free\"", "id = \"free", "line 4: not TOML: the quotes of a text do not end on its line"),
            ("\"fixed_window\"", "true", "algorithm: `true` stands here; write `token_bucket`, "),
            ("[domains.default]", "[domains.default", "line 1: "),
            ("[domains.default]", "[domain.default]", "domain: unknown field `domain`; write `domains`"),
            ("[domains.default]", "[[domains.default]]", "domains.default: a list stands here; write a table"),
            (
                "[[domains.default.tiers]]",
                "[domains.default.tiers]",
                "tiers: a table of keys and values stands here; write a list",
            ),
            (
                "defaults = ",
                "tier_hint = \"true\"\ndefaults = ",
                "tier_hint: `true` stands here; write true or false, without quotes",
            ),
            (
                "defaults = ",
                "timezone = 2026-01-01\ndefaults = ",
                "timezone: a date without quotes stands here; write a text",
            ),
            ("defaults = ", "defaults : ", "line 2: not TOML: `=` and a value must follow the key"),
            (", period = \"1m\"", "", "limits[0]: missing field `period`; add it"),
        ],
    );
}

#[test]
fn json() {
    let number = |found: &str| format!("line 3: {LIMIT}{found}{NUMBER}");
    let (quoted, huge, null) = (number("`5`") + ", without quotes", number("`1e30`"), number("nothing"));
    assert_each(
        JSON,
        Json,
        &[
            (": 5", ": \"5\"", &quoted),
            (": 5", ": 1e30", &huge),
            (": 5", ": 99999999999999999999", &number("`99999999999999999999`")),
            (": 5", ": 1e999", "line 3: domains.default.tiers[0].limits[0].limit: not JSON: `1e999` is too large"),
            (
                "\"default\": {",
                "\"default\": [], \"b\": {",
                "line 1: domains.default: a list stands here; write a table",
            ),
            (
                "[{\"id\": \"free\"",
                "[[], {\"id\": \"free\"",
                "line 2: domains.default.tiers[0]: a list stands here; write a",
            ),
            (": 5", " 5", "line 3: domains.default.tiers[0].limits[0]: not JSON: `:` and a value must follow the key"),
            (", \"limit\"", " \"limit\"", "not JSON: `,` or `}` must stand here"),
            ("\"1m\"", "\"\\q\"", "not JSON: `\\` stands in a text before a character that it has no meaning for"),
            (": 5", ": null", &null),
            (": 5", ": 5, \"limit\": 6", "line 3: domains.default.tiers[0].limits[0]: `limit` stands here twice"),
            ("\"free\"", "null", "tiers[0].id: nothing stands here; write a text"),
            ("\"free\"", "5", "tiers[0].id: `5` stands here; write a text, in quotes"),
            ("\"free\"", "free", "line 2: "),
            ("\"free\"", "'free'", "not JSON: no value stands here; put a text in double quotes"),
            ("{\"id\": \"m\"", "[5], {\"id\": \"m\"", "limits[0]: a list stands here; write a table"),
            ("\"fixed_window\"", "[]", "algorithm: a list stands here; write `token_bucket`, "),
            (", \"period\": \"1m\"", "", "limits[0]: missing field `period`; add it"),
            ("\"period\"", "period", "not JSON: a key stands here without quotes"),
            ("\"1m\"}", "\"1m\",}", "not JSON: a comma stands before the end"),
            ("\"1m\"", "\"1\tm\"", "not JSON: a line end, a tab"),
            ("}}}", "}}", "not JSON: the text ends here in the middle of a value"),
            ("}}}", "}}}}", "not JSON: something stands after the end of the document"),
        ],
    );
}

#[test]
fn other_documents_are_named_with_a_remedy() {
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: x }\ndata:\n  limits.yaml: |\n    domains: {}\n";
    for (text, format, wanted) in [
        ("", Yaml, "the document is empty; write a policy: a table with `domains`"),
        ("# nothing yet\n", Yaml, "the document is empty"),
        ("---\n", Yaml, "the document is empty"),
        ("# nothing yet\n", Toml, "the document is empty"),
        (" ", Json, "the document is empty"),
        ("{}", Json, "missing field `domains`; add it"),
        ("text", Yaml, "`text` stands here; write a table of keys and values"),
        ("[]", Json, "a list stands here; write a table of keys and values"),
        ("\0\u{1}", Toml, "line 1: a byte of value 0 stands here, which no text has; write a policy"),
        ("domains: {}\n---\ndomains: {}\n", Yaml, "not YAML: a second document begins here; write one"),
        (
            map,
            Yaml,
            "this is a Kubernetes ConfigMap; save what stands at `data[\"limits.yaml\"]` as a file of its own, and give that",
        ),
        (
            &format!("apiVersion: v1\nkind: List\nitems:\n- {}", map.trim_end().replace('\n', "\n  ")),
            Yaml,
            "this is a Kubernetes List; save what stands at `items[0].data[\"limits.yaml\"]` as a file of its own",
        ),
        ("domain: a\ndescriptors: []\n", Yaml, "tidegate policy import FILE --from envoy"),
        ("- { namespace: a, max_value: 1 }\n", Yaml, "tidegate policy import FILE --from limitador"),
        (JSON, Toml, "this is JSON, and was read as TOML; give it as a file with .json at its end"),
        (YAML, Toml, "this is YAML, and was read as TOML"),
        (TOML, Json, "this is TOML, and was read as JSON"),
        (TOML, Yaml, "this is TOML, and was read as YAML"),
    ] {
        assert_told(text, format, wanted);
    }
    assert!(Policy::parse("\u{feff}domains: {}\n", Yaml).is_ok(), "a byte order mark");
    assert!(Policy::parse("\u{feff}[domains]\n", Toml).is_ok(), "a byte order mark");
    assert!(Policy::parse("\u{feff}{\"domains\": {}}\n", Json).is_ok(), "a byte order mark");
}

#[test]
fn what_yaml_takes_without_quotes_is_not_blamed_for_another_mistake() {
    let text = YAML.replace("id: minute", "id: 42").replace("limit: 5", "limit: five");
    assert_told(&text, Yaml, "limits[0].limit: `five` stands here");
}

#[test]
fn any_type_is_read_from_yaml_with_the_same_words() {
    let problem: Problem = read_yaml::<Vec<u8>>("- 1\n- -1\n").expect_err("a negative number");
    assert_eq!(problem.to_string(), "line 2: [1]: `-1` stands here; write a whole number from 0 to 255");
}

#[test]
fn a_cost_of_0_is_refused_with_the_way_out() {
    let error = Request::exactly(&[]).and_then(|request| request.cost(0)).expect_err("no cost");
    assert_eq!(error, RequestError::Cost(0));
    assert!(
        error.to_string().starts_with("cost: 0 fits only with `peek`, which charges nothing; otherwise from 1 to "),
        "{error}"
    );
}
