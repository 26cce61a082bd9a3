//! Entries of descriptors, read as identities, paths and methods.

use super::*;

#[test]
fn entries_are_identities_path_and_method() {
    let (decider, _) = decider(POLICY);
    let met = |entries: &[(&str, &str)]| limit_of(&decider, entries);
    let named = |name: &str, remaining| Some((name.to_owned(), remaining));
    assert_eq!(met(&[("user", "a")]), named("edge/tier:free/minute", 4));
    assert_eq!(met(&[("User", "a"), ("path", "/other")]), named("edge/tier:free/minute", 3), "its key is the same");
    assert_eq!(met(&[("X-API key", "a")]), named("edge/tier:free/minute", 4));
    // The rule is tighter, and by its method alone.
    for key in ["path", "endpoint", "PATH"] {
        let user = key;
        let search = met(&[("user", user), (key, "/search?q=1"), ("method", "get")]);
        assert_eq!(search, named("edge/rule:search/second", 1), "{key}");
        assert_eq!(met(&[("user", user), (key, "/search")]), named("edge/tier:free/minute", 3), "{key}");
    }
    // Several identities meet the rules of their set, in any order; neither a tier nor the rules of other sets apply.
    assert_eq!(met(&[("user", "b"), ("remote-address", "192.0.2.7")]), named("edge/rule:pair/day", 2));
    assert_eq!(met(&[("remote_address", "192.0.2.7"), ("user", "b")]), named("edge/rule:pair/day", 1));
    assert_eq!(met(&[("remote_address", "192.0.2.8"), ("user", "b")]), named("edge/rule:pair/day", 2));
    assert_eq!(met(&[("user", "b"), ("tenant", "x")]), None);
    assert_eq!(met(&[("user", "b"), ("tenant", "x"), ("path", "/all")]), None);
    assert_eq!(met(&[("path", "/all")]), named("edge/rule:all/hour", 6));
    assert_eq!(met(&[("user", "c"), ("path", "/all")]), named("edge/tier:free/minute", 4), "not everyone's");
    assert_eq!(met(&[("generic_key", "a")]), None);
    // Without an endpoint only rules on `*`.
    assert_eq!(met(&[("method", "GET")]), None);
    assert_eq!(met(&[("user", "d"), ("method", "GET")]), named("edge/tier:free/minute", 4));
}

#[test]
fn keys_that_come_twice_are_numbered() {
    let policy = r#"
        [domains.edge]
        [[domains.edge.rules]]
        id = "slow"
        endpoint = "*"
        per = ["generic_key", "generic_key_2"]
        where = { generic_key = "vhost-a", generic_key_2 = "slow" }
        limits = [{ id = "minute", algorithm = "fixed_window", limit = 2, period = "1m" }]
        [[domains.edge.rules]]
        id = "paths"
        endpoint = "/all"
        per = "everyone"
        where = { path_2 = "/all" }
        limits = [{ id = "minute", algorithm = "fixed_window", limit = 1, period = "1m" }]
    "#;
    let (decider, _) = decider(policy);
    let left = |entries: &[(&str, &str)]| limit_of(&decider, entries).map(|(_, left)| left);
    assert_eq!(left(&[("generic_key", "vhost-a"), ("generic_key", "slow")]), Some(1));
    assert_eq!(left(&[("generic_key", "vhost-a"), ("Generic-Key", "slow")]), Some(0));
    assert_eq!(left(&[("generic_key", "slow"), ("generic_key", "vhost-a")]), None, "in their order");
    let third = respond(&decider, &request_of(&[("generic_key", "vhost-a"), ("generic_key", "slow")]));
    assert_eq!(codes(&third), (Code::OverLimit, vec![Code::OverLimit]));
    assert_eq!(left(&[("path", "/all"), ("PATH", "/all")]), Some(0));
}

#[test]
fn kinds_of_conditions_count_as_named() {
    let policy = r#"
        [domains.edge]
        DESCRIPTORS
        [[domains.edge.rules]]
        id = "free"
        endpoint = "*"
        per = "user"
        where = { plan = "free" }
        limits = [{ id = "day", algorithm = "fixed_window", limit = 1, period = "1d" }]
        [[domains.edge.rules]]
        id = "all"
        endpoint = "*"
        per = "everyone"
        limits = [{ id = "day", algorithm = "fixed_window", limit = 9, period = "1d" }]
    "#;
    let (exact, _) = decider(&policy.replace("DESCRIPTORS", ""));
    let free = request_of(&[("user", "a"), ("plan", "free")]);
    assert_eq!([0; 2].map(|_| respond(&exact, &free).overall_code()), [Code::Ok, Code::OverLimit]);
    assert_eq!(limit_of(&exact, &[("user", "b"), ("plan", "free"), ("tenant", "x")]), None);
    let (subset, _) = decider(&policy.replace("DESCRIPTORS", "descriptors = \"subset\""));
    let named = |name: &str, left| Some((format!("edge/rule:{name}/day"), left));
    assert_eq!(limit_of(&subset, &[("user", "b"), ("plan", "free"), ("tenant", "x")]), named("free", 0));
    assert_eq!(limit_of(&subset, &[("tenant", "x")]), named("all", 7));
    assert_eq!(limit_of(&subset, &[("path", "/")]), named("all", 6));
}

/// A descriptor may have more entries than a request has identities: only the kinds that the domain names matter.
#[test]
fn entries_of_kinds_that_no_rule_names_are_no_error() {
    let rule = |id: &str, kinds: &str, settings: &str| {
        format!(
            "[domains.edge]\n{settings}\n[[domains.edge.rules]]\nid = \"{id}\"\nendpoint = \"*\"\nper = {kinds}\nlimits = [{{ id = \"day\", algorithm = \"fixed_window\", limit = 9, period = \"1d\" }}]"
        )
    };
    let keys: Vec<String> = (0..16).map(|number| format!("k{number}")).collect();
    let entries: Vec<(&str, &str)> = keys.iter().map(|key| (&**key, "x")).collect();
    let (exact, _) = decider(&rule("two", "[\"k1\", \"k12\"]", ""));
    assert_eq!((limit_of(&exact, &entries[1..2]), limit_of(&exact, &entries)), (None, None));
    let (subset, _) = decider(&rule("two", "[\"k1\", \"k12\"]", "descriptors = \"subset\""));
    assert_eq!(limit_of(&subset, &entries), Some(("edge/rule:two/day".to_owned(), 8)));
    // Of nine that the domain names, the first eight count; none of them is a rule of exactly nine.
    let rules = |settings: &str| {
        rule("last", "\"k8\"", settings) + &rule("rest", &format!("{:?}", &keys[..8]), "")["[domains.edge]\n".len()..]
    };
    let (subset, _) = decider(&rules("descriptors = \"subset\""));
    assert_eq!(limit_of(&subset, &entries[..9]), Some(("edge/rule:rest/day".to_owned(), 8)));
    let (exact, _) = decider(&rules(""));
    assert_eq!(limit_of(&exact, &entries[..8]), Some(("edge/rule:rest/day".to_owned(), 8)));
    assert_eq!(limit_of(&exact, &entries[..9]), None);
}

/// A condition on a prefix holds for a value that is longer than an identity may be.
#[test]
fn no_value_is_too_long_for_its_rule() {
    let (decider, _) = decider(
        r#"
        [[domains.edge.rules]]
        id = "bad"
        endpoint = "*"
        per = "user_agent"
        where = { user_agent = "bad*" }
        limits = [{ id = "day", algorithm = "fixed_window", limit = 9, period = "1d" }]
    "#,
    );
    let long = |end: &str| format!("bad{}{end}", "x".repeat(2_000));
    let left = |value: &str| limit_of(&decider, &[("user_agent", value)]).map(|(_, left)| left);
    assert_eq!([left(&long("1")), left(&long("2")), left(&long("1"))], [Some(8), Some(8), Some(7)]);
    assert_eq!([left("bad"), left("bad "), left(" bad"), left("good")], [Some(8), Some(8), None, None]);
    let entry = Entry { key: "user_agent".to_owned(), value: b"bad \xff".to_vec() };
    let no_text = message(vec![RateLimitDescriptor { entries: vec![entry], ..descriptor(&[]) }]);
    assert_eq!(respond(&decider, &no_text).statuses[0].limit_remaining, 8);
}

/// Envoy passes values on as they came, although its messages declare them as text.
#[test]
fn values_that_are_not_utf8_count_by_their_digest() {
    let (decider, _) = decider(POLICY);
    let told = |entries: &[(&str, &[u8])]| {
        let entry = |&(key, value): &(&str, &[u8])| Entry { key: key.to_owned(), value: value.to_vec() };
        let descriptor = RateLimitDescriptor { entries: entries.iter().map(entry).collect(), ..descriptor(&[]) };
        respond(&decider, &message(vec![descriptor])).statuses.remove(0).limit_remaining
    };
    assert_eq!([told(&[("user", b"\xff")]), told(&[("user", b"\xff")]), told(&[("user", b"\xfe")])], [4, 3, 4]);
    assert_eq!(told(&[("user", b"a"), ("path", b"/search\xff"), ("method", b"GET")]), 4, "no rule");
    assert_eq!(told(&[("user", b"b"), ("path", b"/\xff/../search"), ("method", b"GET")]), 1, "the rule for the path");
    assert_eq!(told(&[("user", b"c"), ("path", b"/search"), ("method", b"G\xffT")]), 4);
}

/// Rules hold for paths that are longer than the engine's bound.
#[test]
fn no_path_is_too_long_for_its_rule() {
    let (decider, _) = decider(POLICY);
    let much = "x".repeat(20_000);
    for (number, path) in
        [format!("{}search", "/".repeat(9_000)), format!("/search?{much}"), format!("/{much}/../search")]
            .iter()
            .enumerate()
    {
        let user = number.to_string();
        let met = limit_of(&decider, &[("user", &user), ("path", path), ("method", "GET")]);
        assert_eq!(met, Some(("edge/rule:search/second".to_owned(), 1)), "{number}");
    }
}

/// Limits of descriptors are counted separately.
#[test]
fn limits_of_descriptors_with_the_same_key_leave_each_other_alone() {
    let (decider, _) = decider(POLICY);
    let limit = |requests_per_unit, unit: RateLimitUnit| RateLimitDescriptor {
        limit: Some(RateLimitOverride { requests_per_unit, unit: unit.into(), unit_multiplier: None }),
        ..descriptor(&[("user", "a")])
    };
    let both = message(vec![limit(100, RateLimitUnit::Second), limit(1_000, RateLimitUnit::Hour)]);
    for number in 1..=100 {
        let response = respond(&decider, &both);
        let left: Vec<_> = response.statuses.iter().map(|status| status.limit_remaining).collect();
        assert_eq!((response.overall_code(), left), (Code::Ok, vec![100 - number, 1_000 - number]));
    }
    let response = respond(&decider, &both);
    assert_eq!(codes(&response), (Code::OverLimit, vec![Code::OverLimit, Code::Ok]));
    assert_eq!(response.statuses[1].limit_remaining, 900, "untouched");
    assert!(response.response_headers_to_add.iter().any(|header| header.key == "retry-after"), "it ends");
}

proptest! {
    /// Envoy lets requests pass on errors, and end users write values.
    #[test]
    fn no_value_is_an_error_or_goes_uncounted(value in prop_oneof![".{0,20}", "[ä/?#]{2000,9000}"]) {
        for (entries, left) in [
            (vec![("user", &*value)], Some(4)),
            (vec![("user", &*value), ("remote_address", &*value)], Some(2)),
            (vec![("user", "a"), ("path", &*value)], Some(4)),
            (vec![("user", "b"), ("method", &*value)], Some(4)),
        ] {
            let (decider, _) = decider(POLICY);
            prop_assert_eq!(limit_of(&decider, &entries).map(|(_, left)| left), left, "{:?}", entries);
        }
    }

    /// Envoy lets requests pass on errors, and some of its configurations make such keys.
    #[test]
    fn no_key_is_an_error(keys in proptest::collection::vec(".{1,40}", 1..8)) {
        let (decider, _) = decider(POLICY);
        let entries: Vec<(&str, &str)> = keys.iter().map(|key| (&**key, "x")).collect();
        prop_assert_eq!(codes(&respond(&decider, &request_of(&entries))), (Code::Ok, vec![Code::Ok]));
    }
}
