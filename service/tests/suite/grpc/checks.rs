//! Single checks over gRPC, and the fields of their responses.

use std::time::Duration;

use tidegate_service::grpc::proto::tidegate::v1::{Identity, RateLimitRequest, RateLimitResponse};

use super::{
    HUNDRED,
    support::{START, Server, user},
};

#[tokio::test]
async fn a_response_has_the_numbers_in_both_widths() {
    let server = Server::with(HUNDRED);
    let mut limiter = server.limiter().await;
    server.clock.advance(Duration::from_millis(500));
    let told = limiter.check_rate_limit(user("ada")).await.expect("an answer").into_inner();
    let first = RateLimitResponse {
        allowed: true,
        remaining_tokens: 99,
        reset_time: START.cast_signed() + 60,
        retry_after_seconds: 0,
        limit: Some(100),
        remaining: Some(99),
        reset_after_ms: Some(59_500),
        retry_after_ms: Some(0),
        delay_ms: Some(0),
        limit_id: Some("default/tier:free/minute".to_owned()),
        policy_version: 1,
        degraded: String::new(),
        shadow_denied: Vec::new(),
        error: None,
    };
    assert_eq!(told, first);
    let all = RateLimitRequest { tokens_requested: 99, timestamp: i64::MAX, ..user("ada") };
    assert_eq!(limiter.check_rate_limit(all).await.expect("an answer").into_inner().remaining_tokens, 0);
    let denied = limiter.check_rate_limit(user("ada")).await.expect("an answer").into_inner();
    let wait = RateLimitResponse {
        allowed: false,
        remaining_tokens: 0,
        remaining: Some(0),
        retry_after_seconds: 60,
        retry_after_ms: Some(59_500),
        ..first
    };
    assert_eq!(denied, wait);
    let never = RateLimitRequest { tokens_requested: 101, ..user("bob") };
    let never = limiter.check_rate_limit(never).await.expect("an answer").into_inner();
    assert!(!never.allowed);
    assert_eq!((never.retry_after_seconds, never.retry_after_ms, never.remaining), (i32::MAX, None, Some(100)));
}

#[tokio::test]
async fn numbers_out_of_range_are_clamped_and_given_in_full() {
    const LIMIT: u64 = 1 << 34;
    let policy = HUNDRED
        .replace("limit = 100", &format!("limit = {LIMIT}"))
        .replace("fixed_window", "token_bucket")
        .replace("1m", "1d");
    let server = Server::with(&policy);
    let mut limiter = server.limiter().await;
    let cost = RateLimitRequest { tokens_requested: i32::MAX, ..user("ada") };
    let told = limiter.check_rate_limit(cost).await.expect("an answer").into_inner();
    let left = LIMIT - u64::from(i32::MAX.unsigned_abs());
    assert_eq!((told.remaining_tokens, told.remaining), (i32::MAX, Some(left)));
}

#[tokio::test]
async fn a_peek_charges_nothing_and_a_repeat_is_charged_once() {
    let server = Server::with(HUNDRED);
    let mut limiter = server.limiter().await;
    let mut left = async |request: RateLimitRequest| {
        limiter.check_rate_limit(request).await.expect("an answer").into_inner().remaining_tokens
    };
    let peek = || RateLimitRequest { peek: true, tokens_requested: 40, ..user("ada") };
    assert_eq!([left(peek()).await, left(peek()).await], [60, 60]);
    let repeated = || RateLimitRequest { request_id: "1".to_owned(), ..user("ada") };
    assert_eq!([left(repeated()).await, left(repeated()).await, left(user("ada")).await], [99, 99, 98]);
}

#[tokio::test]
async fn a_request_has_all_the_fields_of_one_over_http() {
    let server = Server::with(
        r#"
        [domains.shop]
        tier_hint = true
        defaults = { user = "free" }
        [[domains.shop.tiers]]
        id = "free"
        limits = [{ id = "minute", algorithm = "fixed_window", limit = 10, period = "1m" }]
        [[domains.shop.tiers]]
        id = "pro"
        limits = [{ id = "minute", algorithm = "fixed_window", limit = 1000, period = "1m" }]
        [[domains.shop.rules]]
        id = "search"
        endpoint = "/search/{what}"
        method = "POST"
        per = ["user", "ip"]
        limits = [
            { id = "few", algorithm = "fixed_window", limit = 3, period = "1m" },
            { id = "none", algorithm = "fixed_window", limit = 0, period = "1m", mode = "shadow" },
        ]
        "#,
    );
    let mut limiter = server.limiter().await;
    let mut told =
        async |request: RateLimitRequest| limiter.check_rate_limit(request).await.expect("an answer").into_inner();
    let ip = Identity { kind: "ip".to_owned(), value: "192.0.2.7".to_owned() };
    let full = || RateLimitRequest {
        domain: "shop".to_owned(),
        endpoint: "/search/hats?page=2".to_owned(),
        method: "POST".to_owned(),
        identities: vec![ip.clone()],
        ..user("ada")
    };
    let answer = told(full()).await;
    assert_eq!((answer.limit_id.as_deref(), answer.remaining_tokens), (Some("shop/rule:search/few"), 2));
    assert_eq!(answer.shadow_denied, ["shop/rule:search/none"]);
    let tier = |tier: &str| RateLimitRequest { tier: tier.to_owned(), method: "GET".to_owned(), ..full() };
    assert_eq!(told(tier("")).await.limit, Some(10));
    assert_eq!(told(tier("pro")).await.limit, Some(1_000));
    let none = told(RateLimitRequest { domain: String::new(), ..full() }).await;
    let without_limit = RateLimitResponse {
        allowed: true,
        remaining_tokens: i32::MAX,
        policy_version: 1,
        ..RateLimitResponse::default()
    };
    assert_eq!(none, without_limit, "no such domain");
}

#[tokio::test]
async fn the_domain_decides_the_response_where_there_is_no_decision() {
    let policy = format!(
        "{HUNDRED}\n[domains.shop]\non_error = \"closed\"\n[[domains.shop.tiers]]\nid = \"all\"\nunlimited = true"
    );
    let server = Server::with(&policy);
    let mut limiter = server.limiter().await;
    server.break_clock(true);
    let shop = RateLimitRequest { domain: "shop".to_owned(), ..user("ada") };
    let open = limiter.check_rate_limit(user("ada")).await.expect("an answer").into_inner();
    let closed = limiter.check_rate_limit(shop).await.expect("an answer").into_inner();
    server.break_clock(false);
    assert_eq!((open.allowed, &*open.degraded), (true, "internal_error"));
    assert_eq!((closed.allowed, &*closed.degraded), (false, "internal_error"));
    assert_eq!((closed.retry_after_seconds, closed.retry_after_ms, closed.remaining_tokens), (1, Some(1_000), 0));
    assert_eq!(limiter.check_rate_limit(user("ada")).await.expect("an answer").into_inner().remaining_tokens, 99);
}
