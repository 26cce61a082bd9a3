//! Imports of the files of other limiters: the policies that well-known files become, the report, and the errors.

use std::fmt::Write;

use tidegate::{
    Engine, Identity, Request, Snapshot,
    clock::ManualClock,
    formats::Format,
    import::{ImportError, Imported, Note, Source, envoy, limitador},
    policy::{DescriptorPaths, Descriptors, Policy},
    time::SECOND_NS,
};

fn from_envoy(text: &str) -> Result<Imported, ImportError> {
    envoy(&[Source { name: "envoy.yaml", text }])
}

fn from_limitador(text: &str) -> Result<Imported, ImportError> {
    limitador(&[Source { name: "limits.yaml", text }])
}

/// Returns the limit that decides a request with these identities, and its period in seconds.
fn decides(policy: &Policy, domain: &str, entries: &[(&str, &str)]) -> Option<(u64, u64)> {
    let engine = Engine::for_simulation(256, ManualClock::at(1_790_035_200 * SECOND_NS), 1);
    engine.publish(Snapshot::compile(policy).expect("a right policy")).expect("room");
    let identities: Vec<_> =
        entries.iter().map(|(kind, value)| Identity::new(kind, value).expect("an identity")).collect();
    let decision = engine.check(&Request::new(&identities).expect("a request").domain(domain));
    decision.limit().map(|limit| (limit, decision.period().map_or(0, |period| period.as_secs())))
}

/// The entries of a request, and the limit that decides it.
type Row<'a> = (&'a [(&'a str, &'a str)], Option<(u64, u64)>);

fn hold(policy: &Policy, domain: &str, rows: &[Row<'_>]) {
    for (entries, limit) in rows {
        assert_eq!(decides(policy, domain, entries), *limit, "{entries:?}\n{policy:#?}");
    }
}

/// Returns the notes on single descriptors and limits, not those on every file of its kind.
fn of_lines(notes: &[Note]) -> Vec<&Note> {
    notes.iter().filter(|note| note.line > 0).collect()
}

/// Line, path, and whether decisions change.
fn places(notes: &[Note]) -> Vec<(usize, &str, bool)> {
    of_lines(notes).into_iter().map(|note| (note.line, note.path.as_str(), note.changes_decisions)).collect()
}

/// Returns all notes as text: line, path, whether decisions change, and the subject.
fn told(notes: &[Note]) -> Vec<String> {
    notes.iter().map(|it| format!("{} {} {} {}", it.line, it.path, it.changes_decisions, it.what)).collect()
}

#[test]
fn exact_values_come_before_wildcards_and_those_before_the_rest() {
    let imported = from_envoy(
        r#"
domain: shop
descriptors:
  - key: api_key
    value: "gold-*"
    rate_limit: { name: gold, unit: minute, requests_per_unit: 600 }
  - key: api_key
    value: gold-9
    rate_limit: { unit: hour, requests_per_unit: 9 }
  - key: api_key
    rate_limit: { unit: MINUTE, requests_per_unit: 60 }
  - key: ldap
    rate_limit: { unlimited: true }
  - key: banned
    rate_limit: { unit: second, requests_per_unit: 0 }
  - key: every
    rate_limit: { unit: month, requests_per_unit: 5 }
  - key: long
    rate_limit: { unit: year, requests_per_unit: 5 }
  - key: weekly
    rate_limit: { unit: week, requests_per_unit: 5 }
"#,
    )
    .expect("a configuration");
    assert_eq!(of_lines(&imported.notes), [] as [&Note; 0]);
    hold(
        &imported.policy,
        "shop",
        &[
            (&[("api_key", "gold-1")], Some((600, 60))),
            (&[("api_key", "gold-9")], Some((9, 3_600))),
            (&[("api_key", "gold-91")], Some((600, 60))),
            (&[("api_key", "iron")], Some((60, 60))),
            (&[("ldap", "x")], None),
            (&[("other", "x")], None),
            (&[("banned", "x")], Some((0, 1))),
            (&[("every", "x")], Some((5, 30 * 86_400))),
            (&[("long", "x")], Some((5, 365 * 86_400))),
            (&[("weekly", "x")], Some((5, 7 * 86_400))),
        ],
    );
    let ids: Vec<&str> = imported.policy.domains["shop"].rules.iter().map(|rule| rule.id.as_str()).collect();
    assert_eq!(ids, ["gold", "api_key-gold-9", "api_key", "banned", "every", "long", "weekly"]);
}

/// The example that envoyproxy/ratelimit comes with, without `foo` alone (see
/// [`a_limit_of_few_keys_that_others_meet_too_is_reported`]).
#[test]
fn nested_descriptors_count_combinations() {
    let imported = from_envoy(
        r"---
domain: rl
descriptors:
  - key: source_cluster
    value: proxy
    descriptors:
      - key: destination_cluster
        value: mock
        rate_limit:
          unit: minute
          requests_per_unit: 1
  - key: foo
    descriptors:
      - key: bar
        rate_limit:
          unit: minute
          requests_per_unit: 3
      - key: bar
        value: banned
        rate_limit:
          unit: minute
          requests_per_unit: 0
      - key: baz
        rate_limit:
          unit: second
          requests_per_unit: 1
      - key: bay
        rate_limit:
          unlimited: true
      - key: baz
        value: shady
        rate_limit:
          unit: minute
          requests_per_unit: 1
        shadow_mode: true
  - key: qux
    rate_limit:
      unlimited: true
",
    )
    .expect("a configuration");
    assert_eq!(of_lines(&imported.notes), [] as [&Note; 0]);
    hold(
        &imported.policy,
        "rl",
        &[
            (&[("source_cluster", "proxy"), ("destination_cluster", "mock")], Some((1, 60))),
            (&[("source_cluster", "proxy"), ("destination_cluster", "x")], None),
            (&[("source_cluster", "x"), ("destination_cluster", "mock")], None),
            (&[("source_cluster", "proxy")], None),
            (&[("foo", "x")], None),
            (&[("foo", "x"), ("bar", "y")], Some((3, 60))),
            (&[("foo", "x"), ("bar", "banned")], Some((0, 60))),
            (&[("foo", "x"), ("baz", "y")], Some((1, 1))),
            // In the shadow.
            (&[("foo", "x"), ("baz", "shady")], None),
            (&[("foo", "x"), ("bay", "y")], None),
            (&[("qux", "x")], None),
        ],
    );
}

#[test]
fn matching_never_leaves_a_branch() {
    let imported = from_envoy(
        r"
domain: shop
descriptors:
  - key: plan
    value: free
    descriptors:
      - key: user
        value: ada
        rate_limit: { unit: minute, requests_per_unit: 1 }
  - key: plan
    descriptors:
      - key: user
        rate_limit: { unit: minute, requests_per_unit: 2 }
",
    )
    .expect("a configuration");
    hold(
        &imported.policy,
        "shop",
        &[
            (&[("plan", "free"), ("user", "ada")], Some((1, 60))),
            // The branch of `free` knows no other user.
            (&[("plan", "free"), ("user", "eve")], None),
            (&[("plan", "pro"), ("user", "ada")], Some((2, 60))),
        ],
    );
    assert_eq!(places(&imported.notes), [(7, "descriptors[0].descriptors[0]", false)], "{:?}", imported.notes);
    assert!(of_lines(&imported.notes)[0].instead.contains("shadow"));
}

/// Upstream compares values as they are written, also those of paths and methods.
#[test]
fn a_path_and_a_method_are_identities() {
    let imported = from_envoy(
        r"
domain: shop
descriptors:
  - key: path
    value: /login
    rate_limit: { unit: minute, requests_per_unit: 5 }
  - key: path
    value: /files/*
    share_threshold: true
    rate_limit: { unit: minute, requests_per_unit: 6 }
  - key: METHOD
    value: get
    descriptors:
      - key: user
        rate_limit: { unit: minute, requests_per_unit: 7 }
  - key: path
    rate_limit: { unit: minute, requests_per_unit: 8 }
  - key: path
    value: /?a=1
    rate_limit: { unit: minute, requests_per_unit: 9 }
  - key: endpoint
    value: /users/{id}
    rate_limit: { unit: minute, requests_per_unit: 10 }
",
    )
    .expect("a configuration");
    hold(
        &imported.policy,
        "shop",
        &[
            (&[("path", "/login")], Some((5, 60))),
            (&[("path", "/login?a=1")], Some((8, 60))),
            (&[("path", "/files/a/b")], Some((6, 60))),
            (&[("path", "/?a=1")], Some((9, 60))),
            (&[("path", "/")], Some((8, 60))),
            (&[("path", "//")], Some((8, 60))),
            (&[("method", "get"), ("user", "ada")], Some((7, 60))),
            (&[("method", "GET"), ("user", "ada")], None),
            (&[("endpoint", "/users/{id}")], Some((10, 60))),
            (&[("endpoint", "/users/7")], None),
        ],
    );
    let reported = [(4, "descriptors[0]", false), (11, "descriptors[2].key", false)];
    assert_eq!(places(&imported.notes), reported, "{:#?}", imported.notes);
    assert_eq!(imported.policy.domains["shop"].descriptor_paths, DescriptorPaths::Identity);
}

/// The report has everything that the import changes, each with its line, and with a mark where decisions change.
#[test]
fn the_report_leaves_nothing_out() {
    let imported = from_envoy(
        r#"
domain: Shop.example
descriptors:
  - key: User-Agent
    value: "bot*crawler"
    rate_limit: { unit: minute, requests_per_unit: 1 }
  - key: A.key
    rate_limit: { unit: minute, requests_per_unit: 1 }
  - key: a
    quota_mode: true
    detailed_metric: true
    value_to_metric: true
    metadata: { team: [x, { y: 1 }] }
    rate_limit: { name: "My Limit", unit: minute, requests_per_unit: 2, replaces: [{ name: other }] }
    descriptors:
      - key: b
        value: x*
        rate_limit: { unit: minute, requests_per_unit: 3 }
      - key: b
        value: xy*
        rate_limit: { unit: minute, requests_per_unit: 4 }
  - key: b
    descriptors:
      - key: a
        rate_limit: { unit: minute, requests_per_unit: 5 }
  - key: big
    rate_limit: { unit: second, requests_per_unit: 4000000000 }
  - key: c
    descriptors:
      - key: c
        rate_limit: { unit: minute, requests_per_unit: 6 }
  - key: ip
    value: everywhere
    rate_limit: { unit: year, requests_per_unit: 7 }
"#,
    )
    .expect("a configuration");
    let told = told(&imported.notes);
    assert_eq!(
        told,
        [
            "0  false counters that the servers of that limiter share, where they have a store",
            "0  false requests that are denied count too, which matters where they cost more than 1 or have several descriptors",
            "0  false keys, which are compared letter by letter",
            "0  false keys and values with `_` or `*`, which match an entry that is divided at another `_` too",
            "0  false descriptors of several entries, whose order counts there",
            "2 domain true `Shop.example` is not a name for a domain here",
            "4 descriptors[0].value true a `*` before the end of a value",
            "7 descriptors[1].key false `A.key` is not a kind of identity",
            "9 descriptors[2].rate_limit.replaces true a limit that replaces others in the same request",
            "9 descriptors[2].rate_limit.name false `My Limit` is not an id",
            "9 descriptors[2].quota_mode true a quota, which denies only when all quotas of a request are used up",
            "9 descriptors[2].detailed_metric false a setting of its metrics",
            "9 descriptors[2].value_to_metric false a setting of its metrics",
            "9 descriptors[2].metadata false metadata of answers",
            "9 descriptors[2] false a limit of descriptors without `b`, which others have beside its keys",
            "19 descriptors[2].descriptors[1] false no request comes to it: another descriptor takes them all",
            "24 descriptors[3].descriptors[0] true the keys of descriptors[2].descriptors[0] in another order",
            "26 descriptors[4].rate_limit true a limit of 4000000000; at most 16777216 fit in a fixed window",
            "30 descriptors[5].descriptors[0].key false a second `c`",
            "32 descriptors[6].value true `everywhere` is neither an address nor a CIDR block",
        ],
        "{told:#?}"
    );
    assert_eq!(
        imported.notes[5].to_string(),
        "envoy.yaml:2: domain: `Shop.example` is not a name for a domain here; it is `shop-example`: requests say so [changes decisions]"
    );
    let domain = &imported.policy.domains["shop-example"];
    let ids: Vec<&str> = domain.rules.iter().map(|rule| rule.id.as_str()).collect();
    assert_eq!(ids, ["a_key", "my-limit", "a-b-x", "big", "c-c_2"]);
}

#[test]
fn what_envoy_refuses_is_refused_with_its_line() {
    let limit = "rate_limit: { unit: minute, requests_per_unit: 1 }";
    for (text, says) in [
        ("descriptors: []".to_owned(), "domain"),
        ("domain: ''".to_owned(), "line 1: domain: a domain has a name"),
        ("domain: a\nfoo: 1".to_owned(), "line 2: foo: unknown field `foo`"),
        (format!("domain: a\ndescriptors:\n- key: x\n  {limit}\n- key: x\n  {limit}"), "line 5: descriptors[1].key: `x` stands in this list twice"),
        (format!("domain: a\ndescriptors:\n- key: x\n  value: y\n  {limit}\n- key: x\n  value: y"), "`x_y` stands in this list twice"),
        ("domain: a\ndescriptors:\n- key: x\n  ratelimit: {}".to_owned(), "line 4: descriptors[0].ratelimit: unknown field"),
        ("domain: a\ndescriptors:\n- key: x\n  rate_limit: { unit: fortnight, requests_per_unit: 1 }".to_owned(), "`fortnight` is not a unit; second, minute"),
        ("domain: a\ndescriptors:\n- key: x\n  rate_limit: { requests_per_unit: 1 }".to_owned(), "rate_limit.unit"),
        ("domain: a\ndescriptors:\n- key: x\n  rate_limit: { unlimited: true, unit: day }".to_owned(), "what is unlimited has no unit"),
        ("domain: a\ndescriptors:\n- key: x\n  rate_limit: { unit: day, requests_per_unit: -1 }".to_owned(), "requests_per_unit"),
        ("domain: a\ndescriptors:\n- key: x\n  rate_limit: { unit: day, requests_per_unit: 5000000000 }".to_owned(), "requests_per_unit"),
        ("domain: a\ndescriptors:\n- key: x\n  rate_limit: { unit: day, unit_multiplier: 2, requests_per_unit: 1 }".to_owned(), "line 4: descriptors[0].rate_limit.unit_multiplier: unknown field `unit_multiplier`"),
        ("domain: a\ndescriptors:\n- key: x\n  rate_limit: { name: n, unit: day, requests_per_unit: 1, replaces: [{ name: n }] }".to_owned(), "rate_limit.replaces"),
        (format!("domain: a\ndescriptors:\n- key: x\n  value: y\n  share_threshold: true\n  {limit}"), "share_threshold"),
        ("domain: a\ndescriptors:\n- value: x".to_owned(), "key"),
        ("- domain: a".to_owned(), ""),
    ] {
        let error = from_envoy(&text).expect_err(&text).to_string();
        assert!(error.starts_with("envoy.yaml: ") && error.contains(says), "{text}\n{error}");
    }
}

/// Values that YAML does not read as text, and several files of one domain.
#[test]
fn values_are_text_and_domains_may_have_several_files() {
    let one = "domain: shop\ndescriptors:\n- key: status\n  value: 404\n  rate_limit: { unit: day, requests_per_unit: 1 }\n- key: version\n  value: 1.10\n  rate_limit: { unit: day, requests_per_unit: 2 }\n- key: flag\n  value: true\n  rate_limit: { unit: day, requests_per_unit: 3 }\n";
    let two = "domain: shop\ndescriptors:\n- key: other\n  rate_limit: { unit: day, requests_per_unit: 4 }\n";
    let three = "domain: web\n";
    let sources = [("1.yaml", one), ("2.yaml", two), ("3.yaml", three)].map(|(name, text)| Source { name, text });
    let Imported { policy, notes } = envoy(&sources).expect("configurations");
    assert_eq!(policy.domains.keys().collect::<Vec<_>>(), ["shop", "web"]);
    let day = |limit| Some((limit, 86_400));
    hold(
        &policy,
        "shop",
        &[
            (&[("status", "404")], day(1)),
            (&[("version", "1.10")], day(2)),
            (&[("flag", "true")], day(3)),
            (&[("other", "x")], day(4)),
        ],
    );
    assert_eq!(places(&notes), [(1, "domain", false)]);
    assert_eq!(of_lines(&notes)[0].file, "2.yaml");
    let files: Vec<&str> = notes.iter().filter(|note| note.line == 0).map(|note| note.file.as_str()).collect();
    assert_eq!(files, ["1.yaml", "1.yaml", "1.yaml", "2.yaml", "2.yaml", "2.yaml"], "the third has no limits");
    let twice = envoy(&[sources[1], sources[1]]).expect_err("one key twice").to_string();
    assert!(twice.contains("`other` stands in this list twice"), "{twice}");
}

#[test]
fn limits_of_limitador_hold_beside_each_other() {
    let Imported { policy, notes } = from_limitador(
        r#"---
-
  namespace: shop
  max_value: 1000
  seconds: 60
  conditions:
  variables:
- namespace: shop
  max_value: 5
  seconds: 3600
  name: writes
  conditions:
    - "descriptors[0].req_method == 'POST'"
  variables: ["descriptors[0].user_id"]
- { namespace: shop, max_value: 3, seconds: 60, conditions: ["req_method == 'POST'"], variables: [user_id] }
- { namespace: shop, max_value: 4, seconds: 60, conditions: [], variables: [user_id] }
- { namespace: shop, max_value: 2, seconds: 86400, conditions: ["descriptors[0]['user_id'] == \"ada\""], variables: [user_id] }
"#,
    )
    .expect("limits");
    assert_eq!(
        told(&notes),
        [
            "0  false counters that the servers of that limiter share, where they have a store",
            "0  true windows that begin with the first request of a key",
            "0  true values of `descriptors[0]`, which only calls by RLS have, in their first descriptor",
            "0  true a key that one descriptor has twice, of which the last value counts",
            "0  true values without `descriptors[0]`, which only calls by HTTP have",
        ]
    );
    let rules = &policy.domains["shop"].rules;
    let limits: Vec<(&str, Vec<&str>)> = rules
        .iter()
        .map(|rule| (rule.id.as_str(), rule.limits.iter().map(|limit| limit.id.as_str()).collect()))
        .collect();
    assert_eq!(
        limits,
        [
            ("everyone", vec!["per-1m"]),
            ("writes", vec!["writes", "per-1m"]),
            ("user_id", vec!["per-1m"]),
            ("user_id-ada", vec!["per-1m", "per-1d"]),
        ]
    );
    // The tightest limit that applies decides.
    hold(
        &policy,
        "shop",
        &[
            (&[("other", "x")], Some((1_000, 60))),
            (&[("user_id", "eve")], Some((4, 60))),
            (&[("user_id", "eve"), ("req_method", "POST")], Some((3, 60))),
            (&[("user_id", "eve"), ("req_method", "GET")], Some((4, 60))),
            (&[("user_id", "ada")], Some((2, 86_400))),
        ],
    );
}

#[test]
fn what_limitador_can_and_rules_cannot_is_reported() {
    let Imported { policy, notes } = from_limitador(
        r#"
- { namespace: example.org, max_value: 10, seconds: 60, conditions: ["descriptors[0]['req.path'] != '/json'"], variables: [] }
- { namespace: example.org, max_value: 10, seconds: 60, conditions: ["descriptors[1].a == 'b'"] }
- { namespace: example.org, max_value: 10, seconds: 60, variables: ["size(descriptors[0].a)"] }
- { namespace: example.org, max_value: 10, seconds: 60, variables: [path] }
- { namespace: example.org, max_value: 20000000, seconds: 60, conditions: ["path == '/a'"], variables: [path, "descriptors[0]['user.id']"] }
- { namespace: example.org, max_value: 10, seconds: 60, conditions: ["a == 'x*'"] }
- { namespace: example.org, max_value: 10, seconds: 60, conditions: ["a == 'x'", "a == 'y'"] }
- { namespace: example.org, max_value: 10, seconds: 0 }
- { namespace: example.org, max_value: 10, seconds: 60, variables: ["descriptors[0]['user.id']"] }
"#,
    )
    .expect("limits");
    let told = told(&notes);
    let rest: Vec<&String> =
        told.iter().filter(|told| !told.contains("namespace true") && !told.starts_with('0')).collect();
    let told: Vec<&String> = told.iter().filter(|told| !told.starts_with('0')).collect();
    assert_eq!(told.len() - rest.len(), 9, "each says that it is another domain: {told:#?}");
    assert_eq!(
        rest,
        [
            "2 [0].conditions[0] true `descriptors[0]['req.path'] != '/json'`: only a value of `descriptors[0]` that equals a text in quotes, several joined by `&&`, can be imported",
            "3 [1].conditions[0] true `descriptors[1].a == 'b'`: a value of the descriptor 1, which is asked by itself",
            "4 [2].variables[0] true `size(descriptors[0].a)`: only a value of `descriptors[0]` that equals a text in quotes, several joined by `&&`, can be imported",
            "6 [4].variables[1] false `user.id` is not a kind of identity",
            "6 [4].max_value true a limit of 20000000; at most 16777216 fit in a fixed window",
            "7 [5].conditions[0] true `x*`, which means something else as a value here",
            "8 [6].conditions[1] false two values for one key, which no request has",
            "9 [7].max_value true a period of 0 s; from 1 s to 31622400 s fit",
        ],
        "{told:#?}"
    );
    let domain = &policy.domains["example-org"];
    let ids: Vec<&str> = domain.rules.iter().map(|rule| rule.id.as_str()).collect();
    assert_eq!(ids, ["path", "path-a-user_id", "user_id"]);
    for (text, says) in [
        ("- { namespace: a, max_value: 1, seconds: 1, foo: 1 }", "line 1: [0].foo: unknown field `foo`"),
        ("- { namespace: '', max_value: 1, seconds: 1 }", "a limit has a namespace"),
        ("- { namespace: a, max_value: -1, seconds: 1 }", "max_value"),
        ("namespace: a", ""),
    ] {
        let error = from_limitador(text).expect_err(text).to_string();
        assert!(error.starts_with("limits.yaml: ") && error.contains(says), "{text}\n{error}");
    }
}

#[test]
fn what_was_imported_can_be_kept_in_every_format() {
    let text = "domain: shop\ndescriptors:\n- key: a\n  value: x*\n  rate_limit: { unit: day, requests_per_unit: 1 }\n";
    let policy = from_envoy(text).expect("a configuration").policy;
    for format in [Format::Toml, Format::Yaml, Format::Json] {
        let written = policy.write(format).expect("it can be written");
        assert_eq!(Policy::parse(&written, format), Ok(policy.clone()));
    }
}

/// `docs/import-and-export.md` shows a configuration, the policy that it becomes, and the report.
#[test]
fn the_example_of_the_document_is_what_comes_out() {
    let document = include_str!("../../../docs/import-and-export.md");
    let (_, document) = document.split_once("### envoyproxy/ratelimit\n").expect("its heading");
    let mut blocks = document.split("```").skip(1).step_by(2).map(|block| block.split_once('\n').expect("a block"));
    let (kind, text) = blocks.next().expect("a configuration");
    let Imported { policy, notes } = envoy(&[Source { name: "ratelimit.yaml", text }]).expect("a configuration");
    assert_eq!(
        (kind, blocks.next()),
        ("yaml", Some(("toml", policy.write(Format::Toml).expect("a document").as_str())))
    );
    let report: Vec<String> = notes.iter().map(|note| format!("{note}\n")).collect();
    assert_eq!(blocks.next(), Some(("", report.concat().as_str())));
}

/// A limit of few keys, beside descriptors of more.
#[test]
fn a_limit_of_few_keys_that_others_meet_too_is_reported() {
    let limit = |count: u64| format!("rate_limit: {{ unit: minute, requests_per_unit: {count} }}");
    // The text below `key: user` with a limit of 10, whether a note names the wider limit, and the limits that requests meet.
    for (below, is_told, with, decided) in [
        // It counts other keys, so both hold, but not for a descriptor.
        (
            "{ key: plan, value: gold, rate_limit: { unlimited: true } }".to_owned(),
            true,
            ("plan", "gold"),
            Some((10, 60)),
        ),
        (format!("{{ key: plan, {} }}", limit(20)), true, ("plan", "x"), Some((10, 60))),
        // It counts the same, so the closer one holds alone.
        (
            format!("{{ key: plan, value: g*, share_threshold: true, {} }}", limit(20)),
            false,
            ("plan", "gold"),
            Some((20, 60)),
        ),
        (
            "{ key: plan, value: g*, share_threshold: true, rate_limit: { unlimited: true } }".to_owned(),
            false,
            ("plan", "gold"),
            None,
        ),
        // Nothing is said of these on purpose.
        ("{ key: plan, value: gold }".to_owned(), false, ("plan", "gold"), Some((10, 60))),
    ] {
        let text = format!("domain: shop\ndescriptors:\n- key: user\n  {}\n  descriptors:\n  - {below}\n", limit(10));
        let Imported { policy, notes } = from_envoy(&text).expect(&text);
        let overlap: Vec<_> =
            notes.iter().filter(|note| note.instead.ends_with("meets this limit as well, unless Envoy asks")).collect();
        assert_eq!(
            overlap.iter().map(|note| (note.line, note.changes_decisions)).collect::<Vec<_>>(),
            if is_told { vec![(3, false)] } else { vec![] },
            "{text}\n{notes:#?}"
        );
        hold(&policy, "shop", &[(&[("user", "ada"), with], decided), (&[("user", "ada")], Some((10, 60)))]);
    }
    // Values that no request has at once do not overlap; each limit that overlaps has a note of its own.
    let text = format!(
        "domain: shop\ndescriptors:\n- {{ key: plan, value: free, {0} }}\n- {{ key: plan, value: gold, {0} }}\n- {{ key: plan, value: pro, {0} }}\n- key: plan\n  value: g*\n  descriptors: [{{ key: user, {0} }}]\n- {{ key: plan, {0}, descriptors: [{{ key: user, {0} }}] }}\n",
        limit(1)
    );
    let notes = from_envoy(&text).expect(&text).notes;
    let lines: Vec<usize> =
        of_lines(&notes).iter().filter(|note| note.what.contains("`user`")).map(|note| note.line).collect();
    assert_eq!(lines, [3, 4, 5, 9], "{notes:#?}");
}

#[test]
fn what_is_more_than_a_domain_can_have_is_left_out() {
    let envoy_of = |keys: usize| {
        let mut text = "domain: shop\ndescriptors:\n".to_owned();
        for key in 0..keys {
            writeln!(text, "- {{ key: k{key}, rate_limit: {{ unit: day, requests_per_unit: 1 }} }}").expect("a string");
        }
        from_envoy(&text).expect("a configuration")
    };
    assert_eq!(places(&envoy_of(64).notes), []);
    let Imported { policy, notes } = envoy_of(66);
    assert_eq!(places(&notes), [(67, "descriptors[64]", true), (68, "descriptors[65]", true)]);
    assert!(of_lines(&notes)[0].what.contains("more than 64 keys in one domain"), "{notes:?}");
    assert_eq!(policy.domains["shop"].rules.len(), 64);
    // Twelve keys in twos and threes: no more keys than fit, but more sets of them.
    let mut text = "domain: shop\ndescriptors:\n".to_owned();
    let pairs = (0..12).flat_map(|one| (one + 1..12).map(move |other| (one, other)));
    for (one, other) in pairs {
        let below = format!("descriptors: [{{ key: k{other}, rate_limit: {{ unit: day, requests_per_unit: 1 }} }}]");
        writeln!(text, "- {{ key: k{one}, value: v{other}, {below} }}").expect("a string");
    }
    let Imported { policy, notes } = from_envoy(&text).expect("a configuration");
    assert_eq!((policy.domains["shop"].rules.len(), of_lines(&notes).len()), (64, 2), "{notes:?}");
    assert!(of_lines(&notes).iter().all(|note| note.what.contains("64 limits") && note.changes_decisions), "{notes:?}");
    // The same for files of limitador.
    let of = |variables: &dyn Fn(usize) -> String, limits: usize| {
        let item = |place| {
            format!(
                "- {{ namespace: shop, max_value: 1, seconds: {}, variables: [{}] }}\n",
                place + 1,
                variables(place)
            )
        };
        from_limitador(&(0..limits).map(item).collect::<String>()).expect("limits")
    };
    assert_eq!(places(&of(&|place| format!("k{place}"), 8).notes), []);
    let Imported { policy, notes } = of(&|place| format!("k{place}"), 65);
    // A descriptor has eight of the keys at most.
    assert_eq!((policy.domains["shop"].rules.len(), places(&notes)), (64, vec![(1, "[0]", true), (65, "[64]", true)]));
    assert_eq!(places(&of(&|_| "user".to_owned(), 64).notes), []);
    let Imported { policy, notes } = of(&|_| "user".to_owned(), 66);
    assert_eq!(policy.domains["shop"].rules[0].limits.len(), 64);
    assert_eq!(places(&notes), [(65, "[64]", true), (66, "[65]", true)]);
}

/// A file has a key for each route, as some tools write them. A key that is left out costs a note, not a search of all before.
#[test]
fn ten_thousands_of_keys_are_read() {
    let keys = 35_000;
    let mut text = "domain: shop\ndescriptors:\n".to_owned();
    for key in (0x3400..).filter_map(char::from_u32).filter(|key| key.is_alphabetic()).take(keys) {
        // All of them are written the same here.
        writeln!(text, "- {{ key: k{key}, rate_limit: {{ unit: day, requests_per_unit: 1 }} }}").expect("a string");
    }
    let Imported { policy, notes } = from_envoy(&text).expect("a configuration");
    let rules = &policy.domains["shop"].rules;
    assert_eq!((rules.len(), rules[0].per.clone()), (1, tidegate::policy::Per::One("k_".to_owned())));
    let left_out = notes.iter().filter(|note| note.what == "a descriptor of this list in another spelling").count();
    let renamed = notes.iter().filter(|note| note.instead.starts_with("it is the kind")).count();
    assert_eq!((left_out, renamed), (keys - 1, 1));
    // Keys that stay apart, of which a domain has room for few.
    let mut text = "domain: shop\ndescriptors:\n".to_owned();
    for key in 0..keys {
        writeln!(text, "- {{ key: K{key}, rate_limit: {{ unit: day, requests_per_unit: 1 }} }}").expect("a string");
    }
    let Imported { policy, notes } = from_envoy(&text).expect("a configuration");
    let left_out = notes.iter().filter(|note| note.instead == "the limit is left out").count();
    assert_eq!((policy.domains["shop"].rules.len(), left_out), (64, keys - 64));
}

#[test]
fn the_first_of_equal_limits_holds() {
    let text = "\
- { namespace: shop, max_value: 10, seconds: 60, conditions: [\"descriptors[0].plan == 'free'\"], variables: [\"descriptors[0].user\"] }
- { namespace: shop, max_value: 5, seconds: 60, name: other, conditions: [\"descriptors[0].plan == 'free'\"], variables: [\"descriptors[0].user\"] }
- { namespace: web, max_value: 7, seconds: 60, conditions: [\"descriptors[0].plan == 'free'\"], variables: [\"descriptors[0].user\"] }
- { namespace: shop, seconds: 60, variables: [\"descriptors[0].banned\"] }
";
    let Imported { policy, notes } = from_limitador(text).expect("limits");
    hold(
        &policy,
        "shop",
        &[
            (&[("user", "ada"), ("plan", "free")], Some((10, 60))),
            // No most is none at all.
            (&[("banned", "x")], Some((0, 60))),
        ],
    );
    hold(&policy, "web", &[(&[("user", "ada"), ("plan", "free")], Some((7, 60)))]);
    assert_eq!(places(&notes), [(2, "[1]", false)]);
}

#[test]
fn what_the_original_takes_is_taken() {
    let limit = "rate_limit: { unit: day, requests_per_unit: 1 }";
    let text = format!(
        "domain: shop\ndescriptors:\n- {{ key: a, rate_limit: {{ unlimited: true, unit: \"\" }} }}\n- {{ key: method, value: POST, {limit} }}\n- {{ key: method, value: post, {limit} }}\n- {{ key: ip, value: \"2001:db8::1\", {limit} }}\n- {{ key: ip, value: \"2001:DB8:0::1\", {limit} }}\n"
    );
    let Imported { policy, notes } = from_envoy(&text).expect(&text);
    assert_eq!(policy.domains["shop"].rules.len(), 3);
    let reported =
        [(6, "descriptors[3].key", true), (7, "descriptors[4].value", true), (7, "descriptors[4].key", true)];
    assert_eq!(places(&notes), reported, "{notes:#?}");
    let of = |value: &str| {
        places(
            &from_envoy(&format!(
                "domain: shop\ndescriptors:\n- {{ key: remote_address, value: \"{value}\", {limit} }}\n"
            ))
            .expect(value)
            .notes,
        )
        .into_iter()
        .map(|(line, path, changes)| (line, path.to_owned(), changes))
        .collect::<Vec<_>>()
    };
    assert_eq!(of("2001:db8::1"), []);
    assert_eq!(of("2001:DB8::1"), [(3, "descriptors[0].value".to_owned(), true)]);
    let text = "\
- { namespace: shop, max_value: 1, seconds: 60, conditions: [\"method == 'POST'\"], variables: [user] }
- { namespace: shop, max_value: 1, seconds: 60, conditions: [\"method == 'post'\"], variables: [user] }
- { namespace: shop, max_value: 1, seconds: 60, conditions: [\"ip == '2001:db8::1'\"] }
- { namespace: shop, max_value: 1, seconds: 60, conditions: [\"ip == '2001:DB8::1'\"] }
";
    let Imported { policy, notes } = from_limitador(text).expect(text);
    let limits: Vec<usize> = policy.domains["shop"].rules.iter().map(|rule| rule.limits.len()).collect();
    assert_eq!(
        (limits, places(&notes)),
        (vec![1, 1, 2], vec![(3, "[2].conditions[0]", true), (4, "[3].conditions[0]", true)]),
        "{notes:#?}"
    );
}

#[test]
fn names_that_are_valid_stay_as_they_are() {
    let limit = "rate_limit: { unit: day, requests_per_unit: 1 }";
    let one = format!(
        "domain: Shop\ndescriptors: [{{ key: User, {limit} }}, {{ key: user, {limit} }}, {{ key: tenant_, {limit} }}]\n"
    );
    let two = format!("domain: shop\ndescriptors: [{{ key: user, {limit} }}]\n");
    let sources = [Source { name: "a.yaml", text: &one }, Source { name: "b.yaml", text: &two }];
    let Imported { policy, notes } = envoy(&sources).expect("configurations");
    assert_eq!(policy.domains.keys().collect::<Vec<_>>(), ["shop", "shop-2"]);
    let ids = |domain: &str| policy.domains[domain].rules.iter().map(|rule| rule.id.clone()).collect::<Vec<_>>();
    // Where Envoy asks, both keys are one kind.
    assert_eq!((ids("shop-2"), ids("shop")), (vec!["user".into(), "tenant_".into()], vec!["user".into()]));
    let told = [(1, "domain", true), (2, "descriptors[0].key", false), (2, "descriptors[1].key", true)];
    assert_eq!(places(&notes), told);
    let text = "- { namespace: Shop, max_value: 1, seconds: 1, variables: [User] }\n- { namespace: shop, max_value: 1, seconds: 1, variables: [User, user] }\n";
    let Imported { policy, notes } = from_limitador(text).expect("limits");
    assert_eq!(policy.domains["shop"].rules[0].per, tidegate::policy::Per::One("user".into()));
    assert!(notes.iter().any(|note| note.what == "`user` is the kind `user` as `User` is" && note.changes_decisions));
    assert!(policy.domains.contains_key("shop-2"));
}

#[test]
fn an_error_names_its_file_by_its_place() {
    let right = Source { name: "a.yaml", text: "domain: a\n" };
    let wrong = Source { name: "a.yaml", text: "domain: a\nfoo: 1\n" };
    let error = envoy(&[right, wrong]).expect_err("a field that nobody knows");
    assert_eq!((error.place, error.file.as_str()), (Some(1), "a.yaml"));
    let empty = Source { name: "a.yaml", text: "[]" };
    let error = limitador(&[empty, empty, wrong]).expect_err("no list");
    assert_eq!(error.place, Some(2));
    // The notes of two files with one name are in the order of the files.
    let [one, two] = ["1", "2"].map(|key| {
        format!("domain: a\ndescriptors: [{{ key: {key}, rate_limit: {{ unit: day, requests_per_unit: 1 }} }}]\n")
    });
    let notes =
        envoy(&[Source { name: "a", text: &one }, Source { name: "a", text: &two }]).expect("configurations").notes;
    let lines: Vec<usize> = notes.iter().map(|note| note.line).collect();
    assert_eq!(lines, [0, 0, 0, 2, 0, 0, 0, 1, 2], "{notes:#?}");
}

#[test]
fn expressions_need_quotes_only_in_brackets() {
    let block = "- namespace: shop\n  max_value: 1\n  seconds: 60\n  conditions:\n    - descriptors[0].plan == 'free'\n  variables:\n    - descriptors[0]['varA']\n";
    let policy = from_limitador(block).expect("limits").policy;
    hold(&policy, "shop", &[(&[("plan", "free"), ("vara", "x")], Some((1, 60)))]);
    for list in ["[descriptors[0].user_id]", "[a, descriptors[0].user_id]", "[descriptors[0]['x']]"] {
        let text = format!("- namespace: shop\n  max_value: 1\n  seconds: 60\n  variables: {list}\n");
        let error = from_limitador(&text).expect_err(list).to_string();
        assert!(error.ends_with("`,` or `]` must stand here; put a text that has brackets in quotes"), "{error}");
    }
}

#[test]
fn keys_that_are_part_and_value_are_reported_where_there_are_some() {
    let of = |key: &str| {
        let text =
            format!("domain: a\ndescriptors: [{{ key: {key}, rate_limit: {{ unit: day, requests_per_unit: 1 }} }}]\n");
        told(&from_envoy(&text).expect("a configuration").notes)
    };
    assert_eq!(of("user").len(), 3);
    assert_eq!(
        of("remote_address")[3..],
        ["0  false keys and values with `_` or `*`, which match an entry that is divided at another `_` too"]
    );
}

/// Upstream joins key and value to one text. Decisions change where that text is another key of the file.
#[test]
fn a_key_and_a_value_that_join_to_another_key_are_reported() {
    let limit = "rate_limit: { unit: day, requests_per_unit: 1 }";
    for (first, second, joined) in [
        ("key: user, value: \"*\"", "key: user_id", Some("`user_*`")),
        ("key: plan, value: id_5", "key: plan_id", Some("`plan_id_5`")),
        ("key: a_b", "key: a", Some("`a_b`")),
        ("key: user, value: \"i*\"", "key: user_id", Some("`user_i*`")),
        ("key: user, value: \"x*\"", "key: user_id", Some("`user_id`")),
        ("key: user, value: x", "key: plan, value: \"*\"", None),
    ] {
        let text = format!("domain: shop\ndescriptors:\n- {{ {first}, {limit} }}\n- {{ {second}, {limit} }}\n");
        let notes = from_envoy(&text).expect(&text).notes;
        let changing: Vec<&str> =
            notes.iter().filter(|note| note.changes_decisions).map(|note| note.what.as_str()).collect();
        assert_eq!(changing.len(), usize::from(joined.is_some()), "{text}\n{changing:?}");
        assert!(joined.is_none_or(|name| changing[0].starts_with(name)), "{changing:?}");
    }
}

/// One function says what a key is, here and where Envoy asks.
#[test]
fn keys_mean_what_they_mean_where_envoy_asks() {
    let limit = "rate_limit: { unit: minute, requests_per_unit: 1 }";
    let text = format!(
        "name: dump\ndomain: mesh\ndescriptors:\n- {{ key: PATH, value: /products, name: x, {limit} }}\n- {{ key: PATH, {limit} }}\n- key: generic_key\n  value: a\n  descriptors: [{{ key: generic_key, value: b, {limit} }}]\n"
    );
    let Imported { policy, notes } = from_envoy(&text).expect(&text);
    let [products, each, slow] = &policy.domains["mesh"].rules[..] else { panic!("{policy:#?}") };
    let conditions = (products.condition["path"].as_str(), slow.condition["generic_key_2"].as_str());
    assert_eq!((conditions, each.condition.len()), (("/products", "b"), 0));
    assert_eq!(
        places(&notes),
        [(4, "descriptors[0].key", false), (8, "descriptors[2].descriptors[0].key", false)],
        "{notes:#?}"
    );
    assert_eq!(policy.domains["mesh"].descriptors, Descriptors::Exact);
    let policy = from_limitador("- { namespace: a, max_value: 1, seconds: 60 }").expect("a limit").policy;
    assert_eq!(policy.domains["a"].descriptors, Descriptors::Subset);
}

#[test]
fn values_with_a_star_inside_may_share_their_threshold() {
    let limit = "rate_limit: { unit: minute, requests_per_unit: 1 }";
    let text = format!(
        "domain: shop\ndescriptors:\n- {{ key: host, value: \"api-*.example.net\", share_threshold: true, {limit} }}\n- {{ key: client, {limit} }}\n"
    );
    let Imported { policy, notes } = from_envoy(&text).expect(&text);
    assert_eq!(places(&notes), [(3, "descriptors[0].value", true)]);
    assert_eq!(policy.domains["shop"].rules[0].id, "client");
}

#[test]
fn clamped_numbers_are_reported_with_both_values() {
    let text = "- { namespace: a, max_value: 18446744073709551615, seconds: 60 }";
    let Imported { policy, notes } = from_limitador(text).expect(text);
    let told = told(&notes);
    let what = "1 [0].max_value true a limit of 18446744073709551615; at most 16777216 fit in a fixed window";
    assert_eq!(told[2..], [what], "{told:#?}");
    assert_eq!(
        notes[2].instead,
        "it is a token bucket of 9007199254740991, the most that fits, which gives tokens back one by one"
    );
    assert_eq!(policy.domains["a"].rules[0].limits[0].limit, 9_007_199_254_740_991);
}

#[test]
fn documents_of_one_file_are_read_one_by_one() {
    let of = |domain: &str, key: &str| {
        format!(
            "---\ndomain: {domain}\ndescriptors:\n- key: {key}\n  rate_limit: {{ unit: day, requests_per_unit: 1 }}\n"
        )
    };
    let Imported { policy, notes } = from_envoy(&(of("one", "user") + &of("two", "X-User"))).expect("two domains");
    assert_eq!(policy.domains.keys().collect::<Vec<_>>(), ["one", "two"]);
    assert_eq!(places(&notes), [(9, "descriptors[0].key", false)], "the line is that of the file");
    let error =
        from_envoy(&(of("one", "user") + "---\ndomain: two\nfoo: 1\n")).expect_err("a field too many").to_string();
    assert!(error.starts_with("envoy.yaml: line 8: foo: unknown field"), "{error}");
    let text =
        "---\n- { namespace: a, max_value: 1, seconds: 60 }\n---\n- { namespace: b, max_value: 2, seconds: 60 }\n";
    assert_eq!(from_limitador(text).expect(text).policy.domains.len(), 2);
}

/// Errors say where a mistake is, what was found, and what is right, in the terms of policies.
#[test]
fn errors_are_in_plain_words() {
    let config_map = |indent: &str| {
        ["apiVersion: v1", "kind: ConfigMap", "data:", "  shop.yaml: |", "    domain: shop"]
            .join(&format!("\n{indent}"))
    };
    let limitador = "apiVersion: limitador.kuadrant.io/v1alpha1\nkind: Limitador\nspec:\n  limits:\n  - { namespace: a, max_value: 1, seconds: 60 }\n";
    let of = |value: &str| format!("domain: shop\ndescriptors:\n- key: user\n  {value}\n");
    let limit = |value: &str| of(&format!("rate_limit: {{ unit: day, {value} }}"));
    let number = "write a whole number from 0 to 4294967295";
    let field = "write `key`, `name`, `value`, `rate_limit`, `descriptors`, `shadow_mode`, `quota_mode`, `detailed_metric`, `value_to_metric`, `share_threshold` or `metadata`";
    let root = "a mapping with the fields `domain` and `descriptors`";
    let table = "a table of keys and values";
    for (text, wanted) in [
        (String::new(), format!("the document is empty; write {root}")),
        ("# nothing\n".to_owned(), format!("the document is empty; write {root}")),
        ("a\0b".to_owned(), format!("line 1: a byte of value 0 stands here, which no text has; write {root}")),
        (config_map(""), "this is a Kubernetes ConfigMap; save what stands at `data[\"shop.yaml\"]` as a file of its own, and give that".to_owned()),
        (config_map("") + "\n  b: x", "this is a Kubernetes ConfigMap; save what stands at `data[\"b\"]` or `data[\"shop.yaml\"]` as a file of its own, and give that".to_owned()),
        (format!("apiVersion: v1\nkind: List\nitems:\n- {}", config_map("  ")), "this is a Kubernetes List; save what stands at `items[0].data[\"shop.yaml\"]` as a file of its own, and give that".to_owned()),
        ("apiVersion: kuadrant.io/v1\nkind: RateLimitPolicy\nspec: { limits: {} }\n".to_owned(), format!("this is a Kubernetes RateLimitPolicy; write {root}")),
        (limit("requests_per_unit: -1"), format!("line 4: descriptors[0].rate_limit.requests_per_unit: `-1` stands here; {number}")),
        (limit("requests_per_unit: many"), format!("line 4: descriptors[0].rate_limit.requests_per_unit: `many` stands here; {number}")),
        (limit("requests_per_unit: [1]"), format!("line 4: descriptors[0].rate_limit.requests_per_unit: a list stands here; {number}")),
        (limit("requests_per_unit: 5000000000"), format!("line 4: descriptors[0].rate_limit.requests_per_unit: `5000000000` stands here; {number}")),
        (limit("requests_per_unit: 1, unlimited: maybe"), "line 4: descriptors[0].rate_limit.unlimited: `maybe` stands here; write true or false".to_owned()),
        (of("descriptors: x"), "line 4: descriptors[0].descriptors: `x` stands here; write a list".to_owned()),
        (of("rate_limit: 5"), format!("line 4: descriptors[0].rate_limit: `5` stands here; write {table}")),
        (of("value: { a: b }"), format!("line 4: descriptors[0].value: {table} stands here; write a text")),
        (of("value: [a]"), "line 4: descriptors[0].value: a list stands here; write a text".to_owned()),
        (of("value: a\n  value: b"), "line 5: descriptors[0]: `value` stands here twice; keep one".to_owned()),
        (of("value: 5\n  a: true"), format!("line 5: descriptors[0].a: unknown field `a`; {field}")),
        ("domain: shop\ndescriptors:\n- value: a\n".to_owned(), "line 3: descriptors[0]: missing field `key`; add it".to_owned()),
        ("domain: shop\ndescriptors:\n-\n".to_owned(), format!("line 3: descriptors[0]: nothing stands here; write {table}")),
        ("- domain: shop\n".to_owned(), format!("line 1: a list stands here; write {root}")),
        ("domain: [shop]\n".to_owned(), "line 1: domain: a list stands here; write a text".to_owned()),
        ("domain: 5\nfoo: 1\n".to_owned(), "line 2: foo: unknown field `foo`; write `domain`, `name` or `descriptors`".to_owned()),
        ("domain: a\ndomain: b\n".to_owned(), "line 2: `domain` stands here twice; keep one".to_owned()),
        ("domain: *b\n".to_owned(), "line 1: not YAML: `*` begins an alias of an anchor, which is not there; put a text that begins with it in quotes".to_owned()),
        ("domain: a\n<<: 5\n".to_owned(), "line 2: not YAML: `<<` takes a table, or an alias of one".to_owned()),
        ("domain: shop\ndescriptors: [user]\n".to_owned(), format!("line 2: descriptors[0]: `user` stands here; write {table}")),
        ("domain: shop\ndescriptors: [\n".to_owned(), "line 2: descriptors: not YAML: a list or a table in brackets does not end; add the closing bracket".to_owned()),
        ("domain: \"shop\n".to_owned(), "line 2: not YAML: the quotes of a text do not end".to_owned()),
        ("domain: shop\ndescriptors:\n\t- key: a\n".to_owned(), "line 3: not YAML: a tab stands here; indent with spaces".to_owned()),
        ("domain: |x\n  a\n".to_owned(), "line 1: not YAML: this cannot be read; look at the quotes and brackets here and before".to_owned()),
    ] {
        assert_eq!(from_envoy(&text).expect_err(&text).to_string(), format!("envoy.yaml: {wanted}"), "{text}");
    }
    let of = |fields: &str| format!("- {{ namespace: a, {fields} }}");
    let number = "write a whole number from 0 to 18446744073709551615";
    for (text, wanted) in [
        (
            limitador.to_owned(),
            "this is a Kubernetes Limitador; save what stands at `spec.limits` as a file of its own, and give that"
                .to_owned(),
        ),
        (of("max_value: -1, seconds: 60"), format!("line 1: [0].max_value: `-1` stands here; {number}")),
        (
            of("max_value: 18446744073709551616, seconds: 1"),
            format!("line 1: [0].max_value: `18446744073709551616` stands here; {number}"),
        ),
        (of("max_value: 1, seconds: -60"), format!("line 1: [0].seconds: `-60` stands here; {number}")),
        (of("max_value: 1.50, seconds: 60"), format!("line 1: [0].max_value: `1.50` stands here; {number}")),
        (of("seconds: 60, variables: user"), "line 1: [0].variables: `user` stands here; write a list".to_owned()),
        (
            of("seconds: 60, conditions: [{ a: b }]"),
            format!("line 1: [0].conditions[0]: {table} stands here; write a text"),
        ),
        (
            of("seconds: 60, conditions: [descriptors[0].a == 'b']"),
            "line 1: [0].conditions: not YAML: `,` or `]` must stand here; put a text that has brackets in quotes"
                .to_owned(),
        ),
        (of("seconds: 60, name: [x]"), "line 1: [0].name: a list stands here; write a text".to_owned()),
        ("namespace: a\n".to_owned(), format!("line 1: {table} stands here; write a list of limits")),
        ("- text\n".to_owned(), format!("line 1: [0]: `text` stands here; write {table}")),
        ("- [a, {}]\n".to_owned(), format!("line 1: [0]: a list stands here; write {table}")),
    ] {
        assert_eq!(from_limitador(&text).expect_err(&text).to_string(), format!("limits.yaml: {wanted}"), "{text}");
    }
    assert!(from_envoy("domain: a\n...\ndomain: b\n").is_ok_and(|imported| imported.policy.domains.len() == 2));
}
