//! `tidegate policy test`: cases are decided in order of time and compared; the example of the documents holds.

use std::fs;

use tempfile::TempDir;

use crate::support::{Run, command, proxy::recipe};

const DOCUMENT: &str = "docs/testing-policies.md";

/// A folder with a policy and cases.
struct Files(TempDir);

impl Files {
    fn new(policy: &str, cases: &str) -> Self {
        let folder = TempDir::new().expect("a folder");
        fs::write(folder.path().join("policy.toml"), policy).expect("room for a file");
        fs::write(folder.path().join("cases.yaml"), cases).expect("room for a file");
        Self(folder)
    }

    fn test(&self) -> Run {
        let mut command = command();
        command.current_dir(self.0.path()).args(["policy", "test", "policy.toml", "cases.yaml"]);
        let output = command.output().expect("the binary runs");
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        Run { stdout: text(output.stdout), stderr: text(output.stderr), status: output.status.code() }
    }
}

/// Tests cases by the policy of the document.
fn test(cases: &str) -> Run {
    Files::new(&recipe(DOCUMENT, "toml", &[]), cases).test()
}

#[test]
fn the_example_of_the_document_holds() {
    let (policy, cases) = (recipe(DOCUMENT, "toml", &[]), recipe(DOCUMENT, "yaml", &[]));
    let run = Files::new(&policy, &cases).test();
    assert_eq!((run.status, run.stdout, run.stderr), (Some(0), recipe(DOCUMENT, "text", &[]), String::new()));
    let run = Files::new(&policy.replace("limit = 5,", "limit = 6,"), &cases).test();
    assert_eq!((run.status, run.stdout, run.stderr), (Some(1), recipe(DOCUMENT, "console", &[]), String::new()));
}

#[test]
fn the_clock_advances_and_each_field_is_compared() {
    let right = "\
start: 2026-03-01T00:00:30Z
cases:
  - { identities: { user: ada, api_key: 42 }, endpoint: /search, cost: 5, expect: allowed, remaining: 0 }
  - { identities: { user: ada }, endpoint: /search, peek: true, expect: denied, retry_after: 30s }
  - { at: 0.5, identities: { user: ada }, endpoint: /search, expect: denied, retry_after: 29500ms }
  - { at: 29, identities: { user: ada }, endpoint: /search, expect: denied, retry_after: 1s }
  - { at: 30s, identities: { user: ada }, endpoint: /search, cost: 6, expect: denied, retry_after: never }
  - { identities: { user: ada }, endpoint: /search, peek: true, cost: 0, expect: allowed, remaining: 5 }
  - { identities: { tenant: x }, expect: allowed, limit: none }
";
    let run = test(right);
    assert_eq!((run.status, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    assert_eq!(run.stdout, "cases.yaml: 7 cases, 7 requests: all as expected\n");
    for (from, to, line, expected, found) in [
        ("remaining: 0", "remaining: 1", 3, "allowed, 1 left", "allowed by default/rule:search/minute, 0 left"),
        (
            "29500ms",
            "29501ms",
            5,
            "denied, retry after 29501ms",
            "denied by default/rule:search/minute, 0 left, retry after 30s",
        ),
        ("at: 29,", "at: 30,", 6, "denied, retry after 1s", "allowed by default/rule:search/minute, 4 left"),
        ("never", "1m", 7, "denied, retry after 1m", "denied by default/rule:search/minute, 5 left, never allowed"),
        ("limit: none", "limit: a/b", 9, "allowed by a/b", "allowed by no limit"),
    ] {
        assert!(right.contains(from), "{from}");
        let run = test(&right.replacen(from, to, 1));
        assert_eq!((run.status, run.stderr.as_str()), (Some(1), ""), "{run:?}");
        let told = format!("\n  expected  {expected}\n  found     {found}\n");
        assert!(run.stdout.starts_with(&format!("cases.yaml:{line}: cases[")), "{to}: {run:?}");
        assert!(run.stdout.contains(&told), "{to}: {run:?}");
    }
}

#[test]
fn limits_that_nodes_share_are_counted_in_one_place() {
    let shared = recipe(DOCUMENT, "toml", &[])
        .replace("period = \"1s\"", "period = \"1s\", sharing = \"strict\", on_failure = \"open\"");
    let run = Files::new(&shared, &recipe(DOCUMENT, "yaml", &[])).test();
    assert_eq!(run.status, Some(0), "{run:?}");
}

#[test]
fn all_spellings_of_an_address_count_as_one() {
    let policy = "\
[domains.default.defaults]
ip = \"ip\"
[[domains.default.tiers]]
id = \"ip\"
limits = [{ id = \"day\", limit = 2, period = \"1d\", algorithm = \"fixed_window\" }]
";
    let cases = "\
cases:
  - { identities: { ip: '192.0.2.1' }, expect: allowed, remaining: 1 }
  - { identities: { ip: '::ffff:192.0.2.1' }, expect: allowed, remaining: 0 }
  - { identities: { ip: '2001:DB8::1' }, repeat: 2, expect: allowed, remaining: 0 }
  - { identities: { ip: '2001:db8::7' }, expect: denied }
";
    let run = Files::new(policy, cases).test();
    assert_eq!((run.status, run.stderr.as_str()), (Some(0), ""), "{run:?}");
}

#[test]
fn each_descriptor_may_have_its_own_hits_and_verdict() {
    let of = |first: &str| {
        format!(
            "cases:\n  - domain: edge\n    expect: denied\n    descriptors:\n      - {{ entries: [{{ key: generic_key, value: a }}], expect: {first} }}\n      - {{ entries: [{{ key: generic_key, value: b }}], hits_addend: 2, expect: denied }}\n"
        )
    };
    let run = test(&of("allowed"));
    assert_eq!((run.status, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    let run = test(&of("denied"));
    assert_eq!(run.status, Some(1), "{run:?}");
    let compared = "expected  denied, descriptors[0] denied, descriptors[1] denied\n  found     denied by edge/rule:slow/second, 1 left, never allowed, descriptors[0] allowed, descriptors[1] denied\n";
    assert!(run.stdout.contains(compared), "{run:?}");
}

#[test]
fn ipv6_networks_are_those_of_the_server() {
    let policy = recipe(DOCUMENT, "toml", &[]).replace("user", "ip");
    let cases = "cases:\n  - { identities: { ip: '2001:db8::1' }, endpoint: /search, cost: 5, expect: allowed }\n  - { identities: { ip: '2001:db8::2' }, endpoint: /search, expect: allowed }\n";
    let files = Files::new(&policy, cases);
    let status = |options: &[&str]| {
        let mut command = command();
        command.current_dir(files.0.path()).args(["policy", "test", "policy.toml", "cases.yaml"]).args(options);
        command.output().expect("the binary runs").status.code()
    };
    assert_eq!([status(&[]), status(&["--ipv6-prefix", "128"])], [Some(1), Some(0)]);
}

/// The importer makes cases from the files of the other limiter: they hold for the policy but where its report says so.
#[test]
fn cases_that_an_importer_makes_hold() {
    let folder = TempDir::new().expect("a folder");
    let run = |arguments: &[&str]| {
        let mut command = command();
        command.current_dir(folder.path()).arg("policy").args(arguments);
        let output = command.output().expect("the binary runs");
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        Run { stdout: text(output.stdout), stderr: text(output.stderr), status: output.status.code() }
    };
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("room for a file");
    let document = "domain: shop\ndescriptors:\n- key: PATH\n  value: /login\n  rate_limit: { unit: minute, requests_per_unit: 5 }\n- key: user\n  value: \"*@example.com\"\n  rate_limit: { unit: day, requests_per_unit: 10 }\n";
    write("shop.yaml", document);
    let imported = run(&["import", "shop.yaml", "--from", "envoy", "--out", "shop.toml", "--cases", "cases.yaml"]);
    assert_eq!(imported.status, Some(1), "{imported:?}");
    let tested = run(&["test", "shop.toml", "cases.yaml"]);
    assert_eq!(tested.status, Some(1), "{tested:?}");
    assert!(tested.stdout.contains("shop.yaml:6: one more\n  expected  denied\n"), "{tested:?}");
    assert!(tested.stdout.ends_with("cases.yaml: 6 cases, 6 requests: 1 case differs\n"), "{tested:?}");
    write(
        "limits.yaml",
        "- { namespace: shop, max_value: 18446744073709551615, seconds: 60 }\n- { namespace: shop, max_value: 3, seconds: 60, conditions: [\"descriptors[0].plan == 'free'\"], variables: [\"descriptors[0].user\"] }\n",
    );
    run(&["import", "limits.yaml", "--from", "limitador", "--out", "limits.toml", "--cases", "cases.yaml"]);
    let tested = run(&["test", "limits.toml", "cases.yaml"]);
    assert_eq!(
        (tested.status, tested.stdout.as_str()),
        (Some(0), "cases.yaml: 2 cases, 2 requests: all as expected\n"),
        "{tested:?}"
    );
    let refused = run(&["import", "shop.toml", "--from", "tidegate", "--cases", "cases.yaml"]);
    assert_eq!((refused.status, refused.stderr.contains("--cases: ")), (Some(2), true), "{refused:?}");
}

#[test]
fn unreadable_input_is_status_2_with_line_and_field() {
    let case = |fields: &str| format!("cases:\n  - identities: {{ user: ada }}\n    expect: allowed\n    {fields}\n");
    let of = |fields: &str| format!("cases:\n  - expect: allowed\n    {fields}\n");
    for (cases, says) in [
        (String::new(), "cases.yaml:1: "),
        ("cases: []\n".to_owned(), "cases: the list is empty; give at least one case"),
        (of("name: x"), "cases.yaml:2: cases[0]: the case has no request; give `identities` or `descriptors`"),
        (
            of("identities: [a]"),
            "cases[0].identities: a list stands here; write kinds with their values, such as { user: ada",
        ),
        (of("identities: { User: ada }"), "cases.yaml:2: cases[0]: kind: `User` is not a kind"),
        (of("identities: { ip: home }"), "cases.yaml:2: cases[0]: value: `home` "),
        (
            case("domain: edges"),
            "cases.yaml:2: cases[0].domain: the policy has no domain `edges`; it has default, edge",
        ),
        (case("tier: gold"), "cases.yaml:2: cases[0].tier: domain `default` has no tier `gold`"),
        (of("identities: { user: a, user: b }"), "cases.yaml:3: cases[0].identities: `user` stands here twice"),
        (of("descriptors: [{ entries: [] }]"), "cases[0]: descriptors/0/entries: there are none"),
        (of("descriptors: [{ entries: [{ key: '', value: x }] }]"), "cases[0]: descriptors/0/entries/0/key: "),
        (case("descriptors: []"), "cases[0].descriptors: is given beside `identities`"),
        (case("expects: denied"), "cases[0].expects: unknown field `expects`; write `name`, "),
        (case("at: -1"), "cases.yaml:4: cases[0].at: -1 is before the start"),
        (case("at: soon"), "cases.yaml:4: cases[0].at: `soon` is not a period"),
        (case("cost: 0"), "cases[0].cost: is 0, which only a peek may have; add `peek: true`"),
        (case("cost: -1"), "cases.yaml:4: cases[0].cost: `-1` stands here; write a whole number from 0"),
        (case("repeat: 0"), "cases[0].repeat: is out of range; give a number from 1 to 1000000"),
        (case("retry_after: 1s"), "cases[0].retry_after: is given beside `expect: allowed`"),
        (
            case("").replace("allowed", "maybe"),
            "cases.yaml:3: cases[0].expect: `maybe` stands here; write `allowed` or `denied`",
        ),
        (format!("start: soon\n{}", case("")), "cases.yaml:1: start: `soon` is not a time after 1970"),
        (
            format!("{}  - {{ identities: {{ user: ada }}, at: 1, expect: allowed }}\n", case("at: 2")),
            "cases[1].at: is earlier than the case above, which is at 2s",
        ),
    ] {
        let run = test(&cases);
        assert_eq!((run.status, run.stdout.as_str()), (Some(2), ""), "{cases}: {run:?}");
        assert!(run.stderr.contains(says), "{cases}: {run:?}");
    }
    let files = Files::new(&recipe(DOCUMENT, "toml", &[]), "");
    fs::write(files.0.path().join("cases.yaml"), [0xff, 0xfe, b'c', 0]).expect("room for a file");
    let run = files.test();
    assert_eq!((run.status, run.stdout.as_str()), (Some(2), ""), "{run:?}");
    assert!(run.stderr.contains("cases.yaml: the file of cases is not UTF-8 text"), "{run:?}");
    let run = Files::new("", &case("")).test();
    assert_eq!((run.status, run.stdout.as_str()), (Some(2), ""), "{run:?}");
    assert!(
        run.stderr.contains("policy.toml: the document is empty; write a policy: a table with `domains`"),
        "{run:?}"
    );
}
