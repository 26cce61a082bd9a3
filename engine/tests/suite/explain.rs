//! Explanations against what the engine enforces, and warnings against what can happen.

use std::{
    collections::BTreeSet,
    time::{Duration, UNIX_EPOCH},
};

use proptest::{
    collection::{btree_map, vec},
    option,
    prelude::*,
    sample::select,
};
use serde_json::{Value, json};
use tidegate::{
    Engine, Identity, Request, RuleMatch, Snapshot, TierOrigin, WarningCode,
    clock::ManualClock,
    policy::Policy,
    time::{SECOND_NS, Timestamp},
};

fn policy(domain: &Value) -> Policy {
    serde_json::from_value(json!({ "domains": { "default": domain } })).expect("a policy")
}

fn limit(id: &str, algorithm: &str, tokens: u64, period: &str) -> Value {
    json!({ "id": id, "algorithm": algorithm, "limit": tokens, "period": period })
}

const KINDS: [&str; 3] = ["ip", "user", "plan"];
const TIERS: [&str; 3] = ["a", "b", "c"];

fn value_of(kind: &str, pick: usize) -> &'static str {
    match kind {
        "ip" => ["10.1.2.3", "10.9.0.1", "192.0.2.1"][pick],
        _ => ["ada", "adam", "bob"][pick],
    }
}

fn matcher_of(kind: &str, pick: usize) -> &'static str {
    match kind {
        "ip" => ["10.1.2.3", "10.0.0.0/8", "10.1.*", "*"][pick],
        _ => ["ada", "ad*", "a*", "*"][pick],
    }
}

prop_compose! {
    fn rule()(
        endpoint in select(vec!["*", "/*", "/api/*", "/api/{x}", "/api/search", "/{a}/search", "/api/"]),
        method in option::of(select(vec!["GET", "POST"])),
        per in select(vec![json!("everyone"), json!("ip"), json!("user"), json!(["user", "ip"]), json!(["plan"])]),
        tiers in option::of(vec(select(TIERS.to_vec()), 1..3)),
        condition in btree_map(select(KINDS.to_vec()), 0_usize..4, 0..2),
        enabled in prop::bool::weighted(0.9),
    ) -> Value {
        let condition: serde_json::Map<_, _> =
            condition.iter().map(|(kind, pick)| ((*kind).to_owned(), json!(matcher_of(kind, *pick)))).collect();
        let mut rule = json!({
            "endpoint": endpoint, "per": per, "where": condition, "enabled": enabled,
            "limits": [limit("l", "token_bucket", 5, "1s")],
        });
        if let Some(method) = method { rule["method"] = json!(method); }
        if let Some(tiers) = tiers { rule["tiers"] = json!(tiers); }
        rule
    }
}

prop_compose! {
    fn domain()(
        defaults in btree_map(select(KINDS.to_vec()), select(TIERS.to_vec()), 0..3),
        clients in btree_map((select(vec!["ip", "user"]), 0_usize..4), (option::of(select(TIERS.to_vec())), 0_u8..4), 0..5),
        rules in vec(rule(), 0..7),
        tier_hint in any::<bool>(),
    ) -> Value {
        let tiers = TIERS.map(|id| json!({ "id": id, "limits": [limit("m", "token_bucket", 9, "1s")] }));
        let clients: Vec<Value> = clients.iter().map(|((kind, pick), (tier, made))| {
            let mut client = json!({ "kind": kind, "value": matcher_of(kind, *pick) });
            if let Some(tier) = tier { client["tier"] = json!(tier); }
            match made {
                0 if tier.is_some() => {}
                0 | 1 => client["override"] = json!({ "limits": [limit("own", "token_bucket", 3, "1s")] }),
                2 => client["override"] = json!({ "unlimited": true }),
                _ => client["override"] = json!({ "blocked": true, "until": "1970-01-01T00:00:05Z" }),
            }
            client
        }).collect();
        let mut rules = rules;
        for (place, rule) in rules.iter_mut().enumerate() { rule["id"] = json!(format!("r{place}")); }
        json!({ "defaults": defaults, "tier_hint": tier_hint, "tiers": tiers, "clients": clients, "rules": rules })
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// An explanation of the document, rule by rule, names exactly the tiers and rules whose limits a check meets.
    #[test]
    fn explanations_match_what_is_enforced(
        domain in domain(),
        who in btree_map(select(vec!["ip", "user", "plan", "other"]), 0_usize..3, 1..4),
        path in option::of(select(vec!["/", "/api/", "/api/search", "/api/a/../search?q", "/x/search", "x"])),
        method in option::of(select(vec!["GET", "get", "PUT"])),
        hint in option::of(select(vec!["a", "none"])),
        seconds in 0_u64..10,
    ) {
        let policy = policy(&domain);
        // The engine refuses rules that no request can distinguish.
        let Ok(snapshot) = Snapshot::compile(&policy) else { return Ok(()) };
        let clock = ManualClock::default();
        clock.set(Timestamp::from_nanos(seconds * SECOND_NS));
        let engine = Engine::for_simulation(1_000, clock, 1);
        engine.publish(snapshot).expect("it fits");
        let who: Vec<_> = who.iter().map(|(kind, pick)| Identity::new(kind, value_of(kind, *pick)).expect("valid")).collect();
        let mut request = Request::new(&who).expect("valid");
        if let Some(path) = path { request = request.endpoint(path).expect("short"); }
        if let Some(method) = method { request = request.method(method); }
        if let Some(hint) = hint { request = request.tier(hint); }
        let explained = policy.domains["default"].explain(&request, UNIX_EPOCH + Duration::from_secs(seconds));
        let mut expected = BTreeSet::new();
        for who in &explained.identities {
            let made = who.client.filter(|_| !who.has_ended).and_then(|client| client.exception.as_ref());
            let owner = who.client.map(|client| format!("client:{}:{}", client.kind, client.value));
            if let Some(made) = made {
                if made.blocked || !made.limits.is_empty() { expected.insert(owner.expect("a client")); }
                // What stands behind a block is looked at too.
                if made.unlimited { continue }
            }
            expected.extend(who.tier.map(|(tier, _)| format!("tier:{tier}")));
        }
        let applied = explained.rules.iter().filter(|(_, fit)| *fit == RuleMatch::Applies);
        expected.extend(applied.map(|(rule, _)| format!("rule:{}", rule.id)));
        let inspected = engine.inspect(&request);
        let met: BTreeSet<String> = inspected.limits.iter()
            .map(|limit| limit.limit_id.split('/').nth(1).expect("an owner").to_owned())
            .collect();
        // A client's value may have a slash in it.
        let expected: BTreeSet<String> = expected.iter().map(|owner| owner.split('/').next().expect("a part").to_owned()).collect();
        prop_assert_eq!(met, expected);
        prop_assert_eq!(inspected.decision.is_allowed(), inspected.limits.iter().all(|limit| limit.outcome.is_none_or(|outcome| outcome.is_allowed())));
        let warned = policy.lint();
        for (rule, fit) in &explained.rules {
            let never = warned.iter().any(|warning| warning.code == WarningCode::NeverMatches && warning.id == rule.id);
            prop_assert!(!never || *fit != RuleMatch::Applies, "{} applied: {:?}", rule.id, warned);
        }
    }
}

const ALGORITHMS: [&str; 5] =
    ["token_bucket", "leaky_bucket", "fixed_window", "sliding_window_counter", "sliding_window_log"];

prop_compose! {
    fn any_limit()(
        algorithm in select(ALGORITHMS.to_vec()),
        tokens in 0_u64..13,
        period in select(vec!["1s", "2s", "3s", "5s", "10s"]),
        burst in option::of(1_u64..13),
    ) -> Value {
        let mut limit = limit("", algorithm, tokens, period);
        if let Some(burst) = burst.filter(|_| algorithm.ends_with("bucket")) { limit["burst"] = json!(burst); }
        limit
    }
}

/// Limits of a tier, and of a rule for everything with this cost.
fn tier_and_rule(tier: &[Value], rule: &[Value], cost: u64) -> Policy {
    let tier =
        if tier.is_empty() { json!({ "id": "t", "unlimited": true }) } else { json!({ "id": "t", "limits": tier }) };
    let rules = if rule.is_empty() {
        json!([])
    } else {
        json!([{ "id": "r", "endpoint": "*", "per": "user", "cost": cost, "limits": rule }])
    };
    policy(&json!({ "defaults": { "user": "t" }, "tiers": [tier], "rules": rules }))
}

proptest! {
    #![proptest_config(ProptestConfig { max_global_rejects: 100_000, ..ProptestConfig::with_cases(1_000) })]

    /// Every request is decided alike with and without the limits that the warnings call never binding.
    #[test]
    fn a_limit_that_never_binds_changes_no_decision(
        tier in vec(any_limit(), 1..4),
        rule in vec(any_limit(), 0..3),
        rule_cost in 1_u64..4,
        // Many at the very edges of periods.
        traffic in vec((prop_oneof![0_u64..1_500, (0_u64..9).prop_map(|quarters| 250 * quarters), Just(999), Just(1_001)], 1_u64..4), 1..120),
    ) {
        let named = |limits: &[Value]| {
            let mut limits = limits.to_vec();
            for (place, limit) in limits.iter_mut().enumerate() { limit["id"] = json!(format!("l{place}")); }
            limits
        };
        let (tier, rule) = (named(&tier), named(&rule));
        let warned = tier_and_rule(&tier, &rule, rule_cost).lint();
        let is_idle = |kind: &str, limit: &Value| {
            warned.iter().any(|warning| warning.kind == kind && warning.limit.as_deref() == limit["id"].as_str())
        };
        let kept = |kind: &str, limits: &[Value]| limits.iter().filter(|limit| !is_idle(kind, limit)).cloned().collect::<Vec<_>>();
        let (tier_kept, rule_kept) = (kept("tier", &tier), kept("rule", &rule));
        prop_assume!(tier_kept.len() < tier.len() || rule_kept.len() < rule.len());
        prop_assert!(!tier_kept.is_empty(), "one binds");
        let decided = |policy: &Policy| {
            let clock = ManualClock::default();
            let engine = Engine::for_simulation(100, clock.clone(), 1);
            engine.publish(Snapshot::compile(policy).expect("valid")).expect("it fits");
            let who = [Identity::new("user", "ada").expect("valid")];
            let mut now = 1_000_000 * SECOND_NS;
            traffic.iter().map(|(wait_ms, cost)| {
                now += wait_ms * 1_000_000;
                clock.set(Timestamp::from_nanos(now));
                engine.check(&Request::new(&who).expect("valid").cost(*cost).expect("small")).is_allowed()
            }).collect::<Vec<_>>()
        };
        let (all, without) = (tier_and_rule(&tier, &rule, rule_cost), tier_and_rule(&tier_kept, &rule_kept, rule_cost));
        prop_assert_eq!(decided(&all), decided(&without), "{:?}", warned);
    }
}

#[test]
fn uncertain_findings_are_not_reported() {
    let said = |domain: Value| {
        let policy = policy(&domain);
        Snapshot::compile(&policy).expect("valid");
        let unsure = [WarningCode::NeverBinds, WarningCode::ShadowsRule];
        policy
            .lint()
            .iter()
            .filter(|warning| unsure.contains(&warning.code))
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    let tier = |limits: Value| json!({ "defaults": { "user": "t" }, "tiers": [{ "id": "t", "limits": limits }] });
    let with = |mut limit: Value, field: &str, value: Value| {
        limit[field] = value;
        limit
    };
    let bucket = |id: &str, tokens: u64, period: &str| limit(id, "token_bucket", tokens, period);
    let window = |id: &str, tokens: u64, period: &str| limit(id, "fixed_window", tokens, period);
    let none: [String; 0] = [];
    // Without a store, one that is shared may not deny at all.
    let open = with(with(bucket("second", 10, "1s"), "sharing", json!("strict")), "on_failure", json!("open"));
    assert_eq!(said(tier(json!([open, window("minute", 1_000, "1m")]))), none);
    // For some client something else stands in its place.
    let mut replaced = tier(json!([bucket("second", 10, "1s"), window("hour", 60_000, "1h")]));
    assert_eq!(said(replaced.clone()).len(), 1);
    replaced["clients"] = json!([{ "kind": "user", "value": "big", "tier": "t", "override": { "limits": [bucket("second", 1_000, "1s")] } }]);
    assert_eq!(said(replaced), none);
    // A bucket comes back more slowly than its numbers say: by a nanosecond a token, or a call.
    assert_eq!(said(tier(json!([limit("log", "sliding_window_log", 3, "1s"), bucket("bucket", 3, "1s")]))), none);
    let fast = [
        with(bucket("slow", 1_000, "1s"), "burst", json!(100)),
        with(bucket("fast", 3_000_000, "1s"), "burst", json!(100)),
    ];
    assert_eq!(said(tier(json!(fast))), none);
    // Numbers beyond all arithmetic.
    let huge = (1_u64 << 53) - 1;
    let mut beyond = tier(json!([with(bucket("most", huge, "1ms"), "burst", json!(1))]));
    beyond["rules"] =
        json!([{ "id": "r", "endpoint": "*", "per": "user", "cost": huge, "limits": [bucket("l", huge, "366d")] }]);
    assert_eq!(said(beyond), none);
    // A rule that takes requests away, and is no looser for that.
    let rules = |wide: Value, wide_cost: u64, close: Value, close_cost: u64| {
        json!({ "rules": [
            { "id": "wide", "endpoint": "/api/*", "per": "user", "cost": wide_cost, "limits": [wide] },
            { "id": "close", "endpoint": "/api/search", "per": "user", "cost": close_cost, "limits": [close] },
        ] })
    };
    let counter = || limit("l", "sliding_window_counter", 10, "1m");
    for domain in [
        rules(counter(), 1, counter(), 1),
        rules(window("l", 1_000, "day"), 1, window("l", 1_000, "day"), 1),
        rules(bucket("l", 0, "1s"), 1, bucket("l", 0, "1s"), 1),
        rules(bucket("l", 20, "1s"), 1, bucket("l", 100, "1s"), 10),
        rules(bucket("l", 100, "1s"), 10, bucket("l", 5, "1s"), 1),
    ] {
        assert_eq!(said(domain), none);
    }
    assert_eq!(said(rules(bucket("l", 20, "1s"), 1, bucket("l", 100, "1s"), 4)).len(), 1);
}

#[test]
fn each_rule_says_what_keeps_it_from_applying() {
    let rule = |id: &str, endpoint: &str, more: Value| {
        let mut rule =
            json!({ "id": id, "endpoint": endpoint, "per": "user", "limits": [limit("l", "token_bucket", 5, "1s")] });
        rule.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        rule
    };
    let policy = policy(&json!({
        "defaults": { "user": "free" },
        "tiers": [{ "id": "free", "unlimited": true }, { "id": "pro", "unlimited": true }],
        "clients": [{ "kind": "user", "value": "a*", "override": { "blocked": true, "until": "1970-01-01T00:00:01Z" } }],
        "rules": [
            rule("applies", "/api/search", json!({})),
            rule("closer", "/api/*", json!({})),
            rule("off", "/api/{x}", json!({ "enabled": false })),
            rule("elsewhere", "/other", json!({})),
            rule("posts", "/api/search", json!({ "method": "POST" })),
            rule("pros", "/api/search", json!({ "tiers": ["pro"] })),
            rule("bobs", "/api/search", json!({ "where": { "user": "bob" } })),
            rule("keys", "/api/search", json!({ "per": ["user", "api_key"] })),
        ],
    }));
    let who = [Identity::new("user", "ada").expect("valid")];
    let request = Request::new(&who).expect("valid").endpoint("/api/search").expect("short").method("GET");
    let explained = policy.domains["default"].explain(&request, UNIX_EPOCH + Duration::from_secs(1));
    let fit = |id: &str| explained.rules.iter().find(|(rule, _)| rule.id == id).expect("a rule").1.clone();
    for (id, expected) in [
        ("applies", RuleMatch::Applies),
        ("closer", RuleMatch::Closer("applies")),
        ("off", RuleMatch::Disabled),
        ("elsewhere", RuleMatch::Endpoint),
        ("posts", RuleMatch::Method),
        ("pros", RuleMatch::Tiers),
        ("bobs", RuleMatch::Where("user")),
        ("keys", RuleMatch::NoIdentity("api_key")),
    ] {
        assert_eq!(fit(id), expected, "{id}");
    }
    let ada = &explained.identities[0];
    assert_eq!((ada.tier, ada.has_ended), (Some(("free", TierOrigin::Default)), true));
    assert_eq!(ada.client.map(|client| client.value.as_str()), Some("a*"));
}

#[test]
fn likely_mistakes_are_reported() {
    let policy = policy(&json!({
        "defaults": { "user": "free", "ip": "free" },
        "tiers": [
            { "id": "free", "limits": [
                limit("second", "token_bucket", 10, "1s"), limit("minute", "fixed_window", 1_000, "1m"),
                limit("hour", "fixed_window", 60_000, "1h"), limit("day", "fixed_window", 60_000, "day"),
            ] },
            { "id": "gone", "unlimited": true },
        ],
        "clients": [{ "kind": "user", "value": "eve", "override": { "blocked": true } }],
        "rules": [
            { "id": "api", "endpoint": "/api/*", "per": "ip", "limits": [limit("l", "token_bucket", 5, "1s")] },
            { "id": "search", "endpoint": "/api/search", "per": "ip", "limits": [limit("l", "token_bucket", 50, "1s")] },
            { "id": "login", "endpoint": "/api/login", "per": "ip", "limits": [limit("l", "token_bucket", 1, "1s")] },
            { "id": "two", "endpoint": "/x", "per": "user", "tiers": ["free", "gone"], "limits": [limit("l", "token_bucket", 1, "1s")] },
            { "id": "one", "endpoint": "/x", "per": "user", "tiers": ["gone"], "limits": [limit("l", "token_bucket", 1, "1s")] },
        ],
    }));
    let told: Vec<String> = policy.lint().iter().map(|warning| format!("{} {warning}", warning.code.name())).collect();
    assert_eq!(
        told,
        [
            "never_binds default/tier:free/minute: it never denies what `second` lets through",
            "never_binds default/tier:free/hour: it never denies what `second` lets through",
            "unused_tier default/tier:gone: no kind has it as its default, and no client is in it",
            "never_binds default/rule:search/l: it never denies what the tiers of `ip` let through",
            "never_matches default/rule:one: it is for tiers that nobody can be in",
            "shadows default/rule:search: its requests are no longer counted by rule `api`, and it allows more than `l` there",
            "never_matches default/rule:one: rule `two` is closer to every request that it is for",
            "no_end default/client:user:eve: its override has no end",
        ]
    );
}
