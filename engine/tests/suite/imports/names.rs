//! The names of keys and values, and keys that are joined of both.

use super::*;

#[test]
fn names_that_are_valid_stay_as_they_are() {
    let limit = "rate_limit: { unit: day, requests_per_unit: 1 }";
    let one = format!(
        "domain: Shop\ndescriptors: [{{ key: User, {limit} }}, {{ key: user, {limit} }}, {{ key: tenant_, {limit} }}]\n"
    );
    let two = format!("domain: shop\ndescriptors: [{{ key: user, {limit} }}]\n");
    let sources = [Source { name: "a.yaml", text: &one }, Source { name: "b.yaml", text: &two }];
    let ImportedPolicy { policy, notes } = envoy(&sources).expect("configurations");
    assert_eq!(policy.domains.keys().collect::<Vec<_>>(), ["shop", "shop-2"]);
    let ids = |domain: &str| policy.domains[domain].rules.iter().map(|rule| rule.id.clone()).collect::<Vec<_>>();
    // Where Envoy asks, both keys are one kind.
    assert_eq!((ids("shop-2"), ids("shop")), (vec!["user".into(), "tenant_".into()], vec!["user".into()]));
    let told = [(1, "domain", true), (2, "descriptors[0].key", false), (2, "descriptors[1].key", true)];
    assert_eq!(places(&notes), told);
    let text = "- { namespace: Shop, max_value: 1, seconds: 1, variables: [User] }\n- { namespace: shop, max_value: 1, seconds: 1, variables: [User, user] }\n";
    let ImportedPolicy { policy, notes } = from_limitador(text).expect("limits");
    assert_eq!(policy.domains["shop"].rules[0].per, tidegate::policy::Per::One("user".into()));
    assert!(notes.iter().any(|note| note.what == "`user` is the kind `user` as `User` is" && note.changes_decisions));
    assert!(policy.domains.contains_key("shop-2"));
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
    let ImportedPolicy { policy, notes } = from_envoy(&text).expect(&text);
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
    let ImportedPolicy { policy, notes } = from_envoy(&text).expect(&text);
    assert_eq!(places(&notes), [(3, "descriptors[0].value", true)]);
    assert_eq!(policy.domains["shop"].rules[0].id, "client");
}
