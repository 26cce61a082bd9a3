//! Limits that overlap, and descriptors that a domain has no room for.

use super::*;

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
        let ImportedPolicy { policy, notes } = from_envoy(&text).expect(&text);
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
    let ImportedPolicy { policy, notes } = envoy_of(66);
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
    let ImportedPolicy { policy, notes } = from_envoy(&text).expect("a configuration");
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
    let ImportedPolicy { policy, notes } = of(&|place| format!("k{place}"), 65);
    // A descriptor has eight of the keys at most.
    assert_eq!((policy.domains["shop"].rules.len(), places(&notes)), (64, vec![(1, "[0]", true), (65, "[64]", true)]));
    assert_eq!(places(&of(&|_| "user".to_owned(), 64).notes), []);
    let ImportedPolicy { policy, notes } = of(&|_| "user".to_owned(), 66);
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
    let ImportedPolicy { policy, notes } = from_envoy(&text).expect("a configuration");
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
    let ImportedPolicy { policy, notes } = from_envoy(&text).expect("a configuration");
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
    let ImportedPolicy { policy, notes } = from_limitador(text).expect("limits");
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
