//! Files that an import refuses.

use super::*;

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

/// Errors say where a mistake is, what was found, and what is right, in the terms of policies.
// Long because it is a table: one row for each mistake.
#[test]
fn errors_of_envoy_files_are_in_plain_words() {
    let config_map = |indent: &str| {
        ["apiVersion: v1", "kind: ConfigMap", "data:", "  shop.yaml: |", "    domain: shop"]
            .join(&format!("\n{indent}"))
    };
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
    assert!(from_envoy("domain: a\n...\ndomain: b\n").is_ok_and(|imported| imported.policy.domains.len() == 2));
}

/// Errors in files of limitador are as those in files of envoyproxy/ratelimit.
#[test]
fn errors_of_limitador_files_are_in_plain_words() {
    let limitador = "apiVersion: limitador.kuadrant.io/v1alpha1\nkind: Limitador\nspec:\n  limits:\n  - { namespace: a, max_value: 1, seconds: 60 }\n";
    let table = "a table of keys and values";
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
}
