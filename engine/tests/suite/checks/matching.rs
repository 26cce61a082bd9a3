//! The limits that a request meets: tiers, rules, combinations, overrides and hints.

use std::time::Duration;

use super::*;

const LAYERED: &str = r#"
    [domains.default]
    defaults = { ip = "anonymous", user = "free" }
    tier_hint = true
    [[domains.default.tiers]]
    id = "anonymous"
    limits = [{ id = "minute", algorithm = "token_bucket", limit = 60, period = "1m" }]
    [[domains.default.tiers]]
    id = "free"
    limits = [
      { id = "second", algorithm = "token_bucket", limit = 10, period = "1s" },
      { id = "minute", algorithm = "token_bucket", limit = 100, period = "1m" },
    ]
    [[domains.default.tiers]]
    id = "pro"
    limits = [{ id = "minute", algorithm = "token_bucket", limit = 1000, period = "1m" }]
    [[domains.default.tiers]]
    id = "internal"
    unlimited = true
    [[domains.default.clients]]
    kind = "user"
    value = "ada"
    tier = "pro"
    [[domains.default.clients]]
    kind = "user"
    value = "bot-*"
    override = { limits = [
      { id = "minute", algorithm = "token_bucket", limit = 5, period = "1m" },
      { id = "day", algorithm = "token_bucket", limit = 50, period = "1d" },
    ] }
    [[domains.default.clients]]
    kind = "ip"
    value = "10.0.0.0/8"
    tier = "internal"
    [[domains.default.clients]]
    kind = "ip"
    value = "10.6.6.6"
    override = { blocked = true, until = "2026-09-22T00:01:00Z", reason = "abuse" }
    [[domains.default.rules]]
    id = "all"
    endpoint = "*"
    per = "everyone"
    limits = [{ id = "second", algorithm = "token_bucket", limit = 1000, period = "1s" }]
    [[domains.default.rules]]
    id = "api"
    endpoint = "/api/*"
    per = "ip"
    limits = [{ id = "second", algorithm = "token_bucket", limit = 50, period = "1s" }]
    [[domains.default.rules]]
    id = "search"
    endpoint = "/api/search"
    method = "GET"
    per = "ip"
    limits = [{ id = "second", algorithm = "token_bucket", limit = 5, period = "1s" }]
    [[domains.default.rules]]
    id = "trial"
    endpoint = "/api/search"
    method = "GET"
    per = "ip"
    where = { plan = "trial*" }
    limits = [{ id = "second", algorithm = "token_bucket", limit = 1, period = "1s" }]
    [[domains.default.rules]]
    id = "export"
    endpoint = "/api/users/{id}/export"
    per = ["user", "ip"]
    tiers = ["free"]
    cost = 10
    limits = [{ id = "hour", algorithm = "token_bucket", limit = 20, period = "1h" }]
    [[domains.default.rules]]
    id = "off"
    endpoint = "/api/*"
    per = "user"
    enabled = false
    limits = [{ id = "second", algorithm = "token_bucket", limit = 1, period = "1s" }]
"#;

// Long because it is a table: one row for each kind of request.
#[test]
fn a_request_meets_its_limits_in_the_stated_order() {
    let bench = Bench::new(LAYERED);
    let everyone = "default/rule:all/second";
    for (identities, to, expected) in [
        (&["ip=192.0.2.1"][..], "", vec!["default/tier:anonymous/minute", everyone]),
        (&["user=u"], "/", vec!["default/tier:free/second", "default/tier:free/minute", everyone]),
        (&["user=ada"], "/", vec!["default/tier:pro/minute", everyone]),
        (&["ip=10.1.2.3"], "/api/x", vec!["default/rule:api/second", everyone]),
        // Only the closest rule of each counted set applies. A set is at the place of its last kind; everyone comes last.
        (
            &["ip=192.0.2.1"],
            "GET /api/search",
            vec!["default/tier:anonymous/minute", "default/rule:search/second", everyone],
        ),
        (
            &["ip=192.0.2.1"],
            "POST /api/search",
            vec!["default/tier:anonymous/minute", "default/rule:api/second", everyone],
        ),
        (
            &["ip=192.0.2.1", "plan=trial-7"],
            "GET /api//./search?q",
            vec!["default/tier:anonymous/minute", "default/rule:trial/second", everyone],
        ),
        (
            &["plan=gold", "ip=192.0.2.1"],
            "GET /api/search",
            vec!["default/tier:anonymous/minute", "default/rule:search/second", everyone],
        ),
        (
            &["ip=192.0.2.1", "user=u"],
            "/api/users/7/export",
            vec![
                "default/tier:anonymous/minute",
                "default/rule:api/second",
                "default/tier:free/second",
                "default/tier:free/minute",
                "default/rule:export/hour",
                everyone,
            ],
        ),
        // Not of the tier that the rule is for.
        (
            &["user=ada", "ip=10.1.2.3"],
            "/api/users/7/export",
            vec!["default/tier:pro/minute", "default/rule:api/second", everyone],
        ),
        // Its own limits replace the tier's of the same id, in their place, and the others are added.
        (
            &["user=bot-7"],
            "/",
            vec![
                "default/tier:free/second",
                "default/client:user:bot-*/minute",
                "default/client:user:bot-*/day",
                everyone,
            ],
        ),
    ] {
        let (decision, met) = bench.met(identities, to, 1);
        assert_eq!(met, expected, "{identities:?} {to}");
        assert!(decision.is_allowed());
    }
}

#[test]
fn a_combination_counts_the_same_in_any_order_and_costs_its_factor() {
    let bench = Bench::new(LAYERED);
    assert!(bench.check(&["ip=192.0.2.1", "user=u"], "/api/users/7/export", 1).is_allowed());
    assert!(bench.check(&["user=u", "ip=192.0.2.1"], "/api/users/8/export", 1).is_allowed());
    let denied = bench.check(&["ip=192.0.2.1", "user=u"], "/api/users/9/export", 1);
    assert_eq!((denied.limit_id(), denied.is_allowed()), (Some("default/rule:export/hour"), false));
    assert!(bench.check(&["ip=192.0.2.1", "user=v"], "/api/users/7/export", 1).is_allowed());
    assert!(bench.check(&["ip=192.0.2.2", "user=u"], "/api/users/7/export", 1).is_allowed());
}

#[test]
fn an_override_ends_by_the_engines_clock() {
    let bench = Bench::new(LAYERED);
    assert_eq!(NOW + 60 * SECOND, 1_790_035_260 * SECOND);
    let denied = bench.check(&["ip=10.6.6.6"], "/", 1);
    assert_eq!((denied.retry(), denied.limit_id()), (Retry::Never, Some("default/client:ip:10.6.6.6/blocked")));
    bench.clock.advance(Duration::from_mins(1));
    let decision = bench.check(&["ip=10.6.6.6"], "/", 1);
    assert!(decision.is_allowed());
    assert_eq!(bench.met(&["ip=10.6.6.6"], "/", 1).1, ["default/tier:anonymous/minute", "default/rule:all/second"]);
}

#[test]
fn a_tier_hint_applies_only_where_allowed_and_to_clients_without_a_tier() {
    let limit_of = |policy: &str, user: &str| {
        let bench = Bench::new(policy);
        let who = [Identity::new("user", user).expect("valid")];
        let request = Request::new(&who).expect("valid");
        bench.engine.check(&request.tier("anonymous")).limit()
    };
    assert_eq!(limit_of(LAYERED, "u"), Some(60));
    assert_eq!(limit_of(LAYERED, "ada"), Some(1_000));
    assert_eq!(limit_of(&LAYERED.replace("tier_hint = true", ""), "u"), Some(10));
}

#[test]
fn an_unknown_domain_has_no_limits() {
    let bench = Bench::new(&one_tier(&bucket("one", 1, "1s")));
    let who = [Identity::new("ip", "a").expect("valid")];
    let request = Request::new(&who).expect("valid").domain("elsewhere");
    assert!((0..3).all(|_| bench.engine.check(&request).is_allowed()));
    assert_eq!(bench.engine.check(&request).limit_id(), None);
}
