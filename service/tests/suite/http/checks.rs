//! Single checks over HTTP: bodies and headers of decisions, and the fields that reach the engine.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use serde_json::json;

use super::{
    HUNDRED,
    support::{START, Server},
    user,
};

/// All headers of a decision.
const HEADERS: [&str; 4] = ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "retry-after"];

#[test]
fn an_allowed_check_is_200_with_the_decision() {
    let server = Server::with(HUNDRED);
    let answer = server.check(&user("ada"));
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let expected = json!({
        "allowed": true, "limit": 100, "remaining": 99, "reset_after_ms": 60_000, "retry_after_ms": 0, "delay_ms": 0,
        "limit_id": "default/tier:free/minute", "policy_version": 1,
    });
    assert_eq!(answer.json(), expected);
    let reset = (START + 60).to_string();
    assert_eq!(HEADERS.map(|name| answer.header(name)), [Some("100"), Some("99"), Some(reset.as_str()), None]);
}

#[test]
fn a_denied_check_is_429_with_the_decision() {
    let server = Server::with(HUNDRED);
    server.check(&user("ada").replace("]}", r#"],"cost":100}"#));
    server.clock.advance(Duration::from_millis(500));
    let answer = server.check(&user("ada"));
    assert_eq!(answer.status, 429);
    let expected = json!({
        "allowed": false, "limit": 100, "remaining": 0, "reset_after_ms": 59_500, "retry_after_ms": 59_500, "delay_ms": 0,
        "limit_id": "default/tier:free/minute", "policy_version": 1,
    });
    assert_eq!(answer.json(), expected);
    let reset = (START + 60).to_string();
    assert_eq!(
        HEADERS[..3].iter().map(|name| answer.header(name)).collect::<Vec<_>>(),
        [Some("100"), Some("0"), Some(reset.as_str())]
    );
    let wait: u64 = answer.header("retry-after").expect("a denial says when").parse().expect("seconds");
    assert!((60..=66).contains(&wait), "up to a tenth later than 59.5 s: {wait}");
}

#[test]
fn times_are_rounded_up_and_a_wait_is_never_zero() {
    let server = Server::with(&HUNDRED.replace("fixed_window", "token_bucket").replace("1m", "1s"));
    server.clock.advance(Duration::from_nanos(1));
    server.check(&user("ada").replace("]}", r#"],"cost":100}"#));
    server.clock.advance(Duration::from_nanos(9_999_999));
    // A token comes back one nanosecond later, so the wait is rounded up to the next millisecond.
    let answer = server.check(&user("ada"));
    assert_eq!(answer.status, 429);
    assert_eq!(answer.json()["retry_after_ms"], 1);
    assert_eq!(answer.json()["reset_after_ms"], 991);
    assert_eq!(answer.header("retry-after"), Some("1"));
    // All tokens are back a nanosecond after the second.
    assert_eq!(answer.header("x-ratelimit-reset"), Some((START + 2).to_string().as_str()));
}

#[test]
fn a_check_that_no_limit_meets_is_allowed_without_numbers() {
    let server = Server::with(HUNDRED);
    let answer = server.check(r#"{"identities":[{"kind":"ip","value":"192.0.2.7"}]}"#);
    assert_eq!(answer.status, 200);
    let expected = json!({
        "allowed": true, "limit": null, "remaining": null, "reset_after_ms": null, "retry_after_ms": null,
        "delay_ms": null, "limit_id": null, "policy_version": 1,
    });
    assert_eq!(answer.json(), expected);
    assert_eq!(HEADERS.map(|name| answer.header(name)), [None; 4]);
    assert_eq!(server.metric("tidegate_no_limit_checks_total"), 1);
    assert_eq!(server.metric("tidegate_unknown_domain_checks_total"), 0);
}

#[test]
fn an_unknown_domain_has_no_limits_and_is_counted() {
    let server = Server::with(HUNDRED);
    let answer = server.check(&user("ada").replace("]}", r#"],"domain":"shop"}"#));
    assert_eq!((answer.status, answer.json()["limit_id"].is_null()), (200, true));
    assert_eq!(server.metric("tidegate_unknown_domain_checks_total"), 1);
}

#[test]
fn a_cost_that_never_fits_has_no_retry_time() {
    let server = Server::with(&format!(
        r#"{HUNDRED}
        [[domains.default.clients]]
        kind = "user"
        value = "mallory"
        override = {{ blocked = true, reason = "abuse" }}"#
    ));
    for body in [user("mallory"), user("ada").replace("]}", r#"],"cost":101}"#)] {
        let answer = server.check(&body);
        assert_eq!(answer.status, 429, "{body}");
        assert!(answer.json()["retry_after_ms"].is_null(), "{body}");
        assert_eq!(answer.header("retry-after"), None, "{body}");
        assert!(answer.header("x-ratelimit-limit").is_some(), "{body}");
    }
    assert_eq!(server.remaining("ada"), 100, "a denial charges nothing");
}

#[test]
fn every_field_reaches_the_engine() {
    let server = Server::with(
        r#"
        [domains.shop]
        defaults = { user = "free" }
        tier_hint = true
        [[domains.shop.tiers]]
        id = "free"
        limits = [{ id = "minute", algorithm = "fixed_window", limit = 100, period = "1m" }]
        [[domains.shop.tiers]]
        id = "pro"
        limits = [{ id = "minute", algorithm = "fixed_window", limit = 500, period = "1m" }]
        [[domains.shop.rules]]
        id = "search"
        endpoint = "/search/*"
        method = "PUT"
        per = "ip"
        limits = [{ id = "search", algorithm = "fixed_window", limit = 7, period = "1m" }]
        "#,
    );
    let check = |more: &str| {
        let identities = r#"[{"kind":"user","value":"ada"},{"kind":"ip","value":"192.0.2.7"}]"#;
        let answer = server.check(&format!(r#"{{"domain":"shop","identities":{identities}{more}}}"#)).json();
        (answer["limit_id"].as_str().map(str::to_owned), answer["remaining"].clone())
    };
    assert_eq!(check(""), (Some("shop/tier:free/minute".to_owned()), json!(99)));
    assert_eq!(check(r#","cost":9"#), (Some("shop/tier:free/minute".to_owned()), json!(90)));
    assert_eq!(check(r#","tier":"pro""#), (Some("shop/tier:pro/minute".to_owned()), json!(499)));
    assert_eq!(check(r#","endpoint":"/search/a","method":"GET""#).0.as_deref(), Some("shop/tier:free/minute"));
    assert_eq!(
        check(r#","endpoint":"/search/a?b","method":"PUT""#),
        (Some("shop/rule:search/search".to_owned()), json!(6))
    );
    // Nothing is as good as absent.
    assert_eq!(check(r#","cost":null,"tier":null,"request_id":null,"peek":false"#).1, json!(87));
}

#[test]
fn a_peek_charges_nothing_and_may_have_cost_0() {
    let server = Server::with(HUNDRED);
    let peek = |cost: u64| {
        let answer = server.check(&user("ada").replace("]}", &format!(r#"],"peek":true,"cost":{cost}}}"#)));
        (answer.status, answer.json()["remaining"].clone())
    };
    assert_eq!(peek(0), (200, json!(100)));
    assert_eq!(peek(30), (200, json!(70)), "as the check would answer");
    assert_eq!(peek(101).0, 429);
    assert_eq!(server.remaining("ada"), 100);
}

#[test]
fn a_response_has_the_delay_of_a_leaky_bucket_and_the_shadow_denials() {
    let server = Server::with(
        r#"
        [domains.default]
        defaults = { user = "free" }
        [[domains.default.tiers]]
        id = "free"
        limits = [
          { id = "queue", algorithm = "leaky_bucket", limit = 10, period = "1s" },
          { id = "trial", algorithm = "fixed_window", limit = 1, period = "1d", mode = "shadow" },
        ]
        "#,
    );
    let first = server.check(&user("ada")).json();
    assert_eq!((&first["delay_ms"], first.get("shadow_denied")), (&json!(0), None));
    let second = server.check(&user("ada")).json();
    assert_eq!(second["delay_ms"], 100);
    assert_eq!(second["shadow_denied"], json!(["default/tier:free/trial"]));
}

#[test]
fn text_with_escapes_is_the_same_text() {
    let server = Server::with(HUNDRED);
    server.check(&user("ada"));
    let answer = server.check(r#"{"identities":[{"\u006bind":"us\u0065r","value":"\u0061da"}]}"#);
    assert_eq!(answer.json()["remaining"], 98);
}

#[test]
fn a_publish_under_traffic_keeps_what_was_used() {
    let server = Server::with(HUNDRED);
    let (done, asked) = (AtomicBool::new(false), AtomicU64::new(0));
    let wait_for = |checks: u64| {
        let from = asked.load(Ordering::SeqCst);
        while asked.load(Ordering::SeqCst) < from + checks {
            thread::yield_now();
        }
    };
    thread::scope(|scope| {
        for other in ["bob", "eve"] {
            let (server, done, asked) = (&server, &done, &asked);
            scope.spawn(move || {
                let mut connection = server.connect();
                while !done.load(Ordering::SeqCst) {
                    connection.post("/v1/check", user(other));
                    asked.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let mut connection = server.connect();
        for left in (0..100).rev() {
            assert_eq!(connection.post("/v1/check", user("ada")).json()["remaining"], left);
        }
        assert_eq!(connection.post("/v1/check", user("ada")).status, 429);
        wait_for(50);
        server.publish(&HUNDRED.replace("100", "1000"));
        let answer = connection.post("/v1/check", user("ada"));
        assert_eq!((answer.status, answer.json()["remaining"].clone()), (200, json!(899)));
        assert_eq!(answer.json()["policy_version"], 2);
        wait_for(50);
        done.store(true, Ordering::SeqCst);
    });
}
