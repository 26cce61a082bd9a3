//! What is refused: it is said which field is wrong, and nothing is charged.

use tidegate_service::{
    Settings, Tokens,
    grpc::proto::tidegate::v1::{GetHealthStatusRequest, Identity, RateLimitRequest},
};
use tonic::{Code, Request};

use super::{
    HUNDRED,
    support::{Server, user},
};

#[tokio::test]
async fn the_field_that_is_wrong_is_named() {
    let server = Server::with(HUNDRED);
    let mut limiter = server.limiter().await;
    let also = |kinds: &[&str]| {
        kinds.iter().map(|kind| Identity { kind: (*kind).to_owned(), value: "x".to_owned() }).collect::<Vec<_>>()
    };
    let of = |identities| RateLimitRequest { identities, ..user("ada") };
    let long = "v".repeat(1_025);
    for (request, field, code) in [
        (RateLimitRequest::default(), "identifier_type", "bad_kind"),
        (RateLimitRequest { identifier_type: "User".to_owned(), ..user("ada") }, "identifier_type", "bad_kind"),
        (user(""), "identifier", "bad_value"),
        (user(&long), "identifier", "bad_value"),
        (of(also(&["ip", "user"])), "identities/1/kind", "repeated_kind"),
        (of(also(&["ip", "1"])), "identities/1/kind", "bad_kind"),
        (of(also(&["a", "b", "c", "d", "e", "f", "g", "h"])), "identities", "bad_identities"),
        (of(vec![Identity { kind: "ip".to_owned(), value: String::new() }]), "identities/0/value", "bad_value"),
        (RateLimitRequest { endpoint: "/".repeat(8_193), ..user("ada") }, "endpoint", "bad_endpoint"),
        (RateLimitRequest { tokens_requested: i32::MIN, ..user("ada") }, "tokens_requested", "bad_field"),
        (RateLimitRequest { request_id: "i".repeat(129), ..user("ada") }, "request_id", "bad_request_id"),
    ] {
        let refusal = limiter.check_rate_limit(request).await.expect_err(field);
        assert_eq!(refusal.code(), Code::InvalidArgument, "{refusal:?}");
        assert!(refusal.message().starts_with(&format!("{field}: ")), "{refusal:?}");
        assert_eq!(refusal.metadata().get("tidegate-code").expect("a code"), code);
    }
    let id = |user: RateLimitRequest| RateLimitRequest { request_id: "1".to_owned(), ..user };
    limiter.check_rate_limit(id(user("ada"))).await.expect("an answer");
    let refusal = limiter.check_rate_limit(id(user("bob"))).await.expect_err("another request");
    assert_eq!(refusal.code(), Code::InvalidArgument);
    assert!(refusal.message().starts_with("request_id: came with another request"), "{refusal:?}");
    let left = limiter.check_rate_limit(user("ada")).await.expect("an answer").into_inner();
    assert_eq!(left.remaining_tokens, 98);
    let all = r#"tidegate_requests_total{door="grpc",route="CheckRateLimit",status="INVALID_ARGUMENT"}"#;
    assert_eq!(server.metric(all), 12);
    assert_eq!(server.metric(r#"tidegate_requests_total{door="grpc",route="CheckRateLimit",status="OK"}"#), 2);
    assert_eq!(server.metric(r#"tidegate_bad_requests_total{door="grpc",code="bad_value"}"#), 3);
}

#[tokio::test]
async fn a_message_above_a_mebibyte_is_refused() {
    let server = Server::with(HUNDRED);
    let mut limiter = server.limiter().await;
    let of = |bytes: usize| RateLimitRequest { tier: "t".repeat(bytes), ..user("ada") };
    assert!(limiter.check_rate_limit(of((1 << 20) - 64)).await.is_ok());
    let refusal = limiter.check_rate_limit(of(1 << 20)).await.expect_err("too large");
    assert_eq!(refusal.code(), Code::ResourceExhausted, "{refusal:?}");
    assert!(limiter.check_rate_limit(user("ada")).await.is_ok(), "the connection goes on");
}

#[tokio::test]
async fn a_token_is_asked_for_where_there_are_some() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tokens");
    std::fs::write(&file, "morning-star-0001\n").expect("room for a file");
    let tokens = Some(Tokens::open(file).expect("a token"));
    let server = Server::listening(HUNDRED, Settings { tokens, ..Settings::default() });
    let mut limiter = server.limiter().await;
    let with = |name: &'static str, value: &str| {
        let mut request = Request::new(user("ada"));
        request.metadata_mut().insert(name, value.parse().expect("text"));
        request
    };
    for request in [
        Request::new(user("ada")),
        with("authorization", "Bearer morning-star-0002"),
        with("authorization", "morning-star-0001"),
        with("x-tidegate-token", "evening-star-0001"),
    ] {
        let refusal = limiter.check_rate_limit(request).await.expect_err("nobody knows him");
        assert_eq!(refusal.code(), Code::Unauthenticated);
    }
    for request in [
        with("authorization", "Bearer morning-star-0001"),
        with("authorization", "bearer morning-star-0001"),
        with("x-tidegate-token", "morning-star-0001"),
    ] {
        assert!(limiter.check_rate_limit(request).await.is_ok());
    }
    assert_eq!(server.engine.totals().allowed, 3);
    assert!(server.health().await.get_health_status(GetHealthStatusRequest {}).await.is_ok(), "it takes none");
}
