//! Imports of limitador files.

use super::*;

#[test]
fn limits_of_limitador_hold_beside_each_other() {
    let ImportedPolicy { policy, notes } = from_limitador(
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
    let ImportedPolicy { policy, notes } = from_limitador(
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
