//! Imports of the files of other limiters: the policies that well-known files become, the report, and the errors.

mod errors;
mod limitador;
mod names;
mod overlaps;

use std::fmt::Write;

use tidegate::{
    Engine, Identity, Request, Snapshot,
    clock::ManualClock,
    formats::Format,
    import::{ImportError, ImportedPolicy, Note, Source, envoy, limitador},
    policy::{DescriptorPaths, Descriptors, Policy},
    time::{SECOND_NS, Timestamp},
};

fn from_envoy(text: &str) -> Result<ImportedPolicy, ImportError> {
    envoy(&[Source { name: "envoy.yaml", text }])
}

fn from_limitador(text: &str) -> Result<ImportedPolicy, ImportError> {
    limitador(&[Source { name: "limits.yaml", text }])
}

/// Returns the limit that decides a request with these identities, and its period in seconds.
fn decides(policy: &Policy, domain: &str, entries: &[(&str, &str)]) -> Option<(u64, u64)> {
    let engine = Engine::for_simulation(256, ManualClock::at(Timestamp::from_nanos(1_790_035_200 * SECOND_NS)), 1);
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
// Long because the configuration and the decisions that it leads to stand side by side.
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
// Long because the configuration and its whole report stand side by side.
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

/// Values that YAML does not read as text, and several files of one domain.
#[test]
fn values_are_text_and_domains_may_have_several_files() {
    let one = "domain: shop\ndescriptors:\n- key: status\n  value: 404\n  rate_limit: { unit: day, requests_per_unit: 1 }\n- key: version\n  value: 1.10\n  rate_limit: { unit: day, requests_per_unit: 2 }\n- key: flag\n  value: true\n  rate_limit: { unit: day, requests_per_unit: 3 }\n";
    let two = "domain: shop\ndescriptors:\n- key: other\n  rate_limit: { unit: day, requests_per_unit: 4 }\n";
    let three = "domain: web\n";
    let sources = [("1.yaml", one), ("2.yaml", two), ("3.yaml", three)].map(|(name, text)| Source { name, text });
    let ImportedPolicy { policy, notes } = envoy(&sources).expect("configurations");
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
    let ImportedPolicy { policy, notes } = envoy(&[Source { name: "ratelimit.yaml", text }]).expect("a configuration");
    assert_eq!(
        (kind, blocks.next()),
        ("yaml", Some(("toml", policy.write(Format::Toml).expect("a document").as_str())))
    );
    let report: Vec<String> = notes.iter().map(|note| format!("{note}\n")).collect();
    assert_eq!(blocks.next(), Some(("", report.concat().as_str())));
}

#[test]
fn what_the_original_takes_is_taken() {
    let limit = "rate_limit: { unit: day, requests_per_unit: 1 }";
    let text = format!(
        "domain: shop\ndescriptors:\n- {{ key: a, rate_limit: {{ unlimited: true, unit: \"\" }} }}\n- {{ key: method, value: POST, {limit} }}\n- {{ key: method, value: post, {limit} }}\n- {{ key: ip, value: \"2001:db8::1\", {limit} }}\n- {{ key: ip, value: \"2001:DB8:0::1\", {limit} }}\n"
    );
    let ImportedPolicy { policy, notes } = from_envoy(&text).expect(&text);
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
    let ImportedPolicy { policy, notes } = from_limitador(text).expect(text);
    let limits: Vec<usize> = policy.domains["shop"].rules.iter().map(|rule| rule.limits.len()).collect();
    assert_eq!(
        (limits, places(&notes)),
        (vec![1, 1, 2], vec![(3, "[2].conditions[0]", true), (4, "[3].conditions[0]", true)]),
        "{notes:#?}"
    );
}

#[test]
fn clamped_numbers_are_reported_with_both_values() {
    let text = "- { namespace: a, max_value: 18446744073709551615, seconds: 60 }";
    let ImportedPolicy { policy, notes } = from_limitador(text).expect(text);
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
    let ImportedPolicy { policy, notes } =
        from_envoy(&(of("one", "user") + &of("two", "X-User"))).expect("two domains");
    assert_eq!(policy.domains.keys().collect::<Vec<_>>(), ["one", "two"]);
    assert_eq!(places(&notes), [(9, "descriptors[0].key", false)], "the line is that of the file");
    let error =
        from_envoy(&(of("one", "user") + "---\ndomain: two\nfoo: 1\n")).expect_err("a field too many").to_string();
    assert!(error.starts_with("envoy.yaml: line 8: foo: unknown field"), "{error}");
    let text =
        "---\n- { namespace: a, max_value: 1, seconds: 60 }\n---\n- { namespace: b, max_value: 2, seconds: 60 }\n";
    assert_eq!(from_limitador(text).expect(text).policy.domains.len(), 2);
}
