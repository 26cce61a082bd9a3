//! Rejected calls: an error names the wrong field, and nothing is charged; tokens and their rights.

use std::path::PathBuf;

use tidegate_service::{
    ListenerSettings, Tokens, TokensError,
    grpc::proto::{
        envoy::{
            extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor::Entry},
            service::ratelimit::v3::{
                RateLimitRequest as EnvoyRequest, rate_limit_service_client::RateLimitServiceClient,
            },
        },
        tidegate::v1::{
            BatchRateLimitRequest, CheckStreamRequest, GetHealthStatusRequest, GetMetricsRequest, Identity,
            RateLimitRequest, ResetRateLimitRequest, SettleRequest, check_stream_response::Result as Told,
            rate_limiter_client::RateLimiterClient,
        },
    },
};
use tokio_stream::StreamExt;
use tonic::{Code, Request, Status, transport::Channel};
use tonic_reflection::pb::v1::{ServerReflectionRequest, server_reflection_client::ServerReflectionClient};

use super::{
    HUNDRED,
    support::{Server, user},
};

#[tokio::test]
async fn an_error_names_the_wrong_field() {
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
        (of(also(&["team", "user"])), "identities/1/kind", "repeated_kind"),
        (of(also(&["team", "1"])), "identities/1/kind", "bad_kind"),
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
async fn a_token_is_required_where_the_server_has_tokens() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tokens");
    std::fs::write(&file, "morning-star-0001\n").expect("room for a file");
    let tokens = Some(Tokens::open(file).expect("a token"));
    let server = Server::listening(HUNDRED, ListenerSettings { tokens, ..ListenerSettings::default() });
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

/// Opens the tokens of a file with this text. The file is removed, and its tokens stay valid.
fn tokens_of(text: &str, open: fn(PathBuf) -> Result<Tokens, TokensError>) -> Tokens {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tokens");
    std::fs::write(&file, text).expect("room for a file");
    open(file).expect("they are good")
}

/// Returns a call with this token.
fn by<T>(token: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("x-tidegate-token", token.parse().expect("ASCII"));
    request
}

fn in_shop(request: RateLimitRequest) -> RateLimitRequest {
    RateLimitRequest { domain: "shop".to_owned(), ..request }
}

/// Returns the code of an error; `None` where the call was answered.
fn code<T>(answer: Result<T, Status>) -> Option<Code> {
    answer.err().map(|refusal| {
        assert!(
            refusal.code() != Code::PermissionDenied
                || refusal.metadata().get("tidegate-code").is_some_and(|code| code == "forbidden"),
            "{refusal:?}"
        );
        refusal.code()
    })
}

const CHECKS: &str = "checks-alone-0001";
const RESERVES: &str = "reserves-alone-01";
const OF_SHOP: &str = "of-the-shop-00001";
const RESETS: &str = "resets-alone-0001";

fn with_rights() -> Server {
    let text =
        format!("{CHECKS} check\n{RESERVES} reserve\n{OF_SHOP} domain=shop\n{RESETS} check reset domain=default\n");
    Server::listening(
        HUNDRED,
        ListenerSettings { tokens: Some(tokens_of(&text, Tokens::open)), ..ListenerSettings::default() },
    )
}

#[tokio::test]
async fn a_token_permits_the_calls_of_its_rights_and_no_others() {
    let server = with_rights();
    let mut limiter = server.limiter().await;
    let settle = || SettleRequest { reservation: "4PAiuPiZD2sVHnYQAqVNK5vH".to_owned(), actual: 1 };
    let denied = Some(Code::PermissionDenied);
    for (token, check, reserve, settled, shop) in [
        (CHECKS, None, denied, denied, None),
        (RESERVES, denied, None, Some(Code::NotFound), denied),
        (OF_SHOP, denied, denied, Some(Code::NotFound), None),
        (RESETS, None, denied, denied, denied),
    ] {
        let codes = [
            code(limiter.check_rate_limit(by(token, user("ada"))).await),
            code(limiter.reserve(by(token, user("ada"))).await),
            code(limiter.settle(by(token, settle())).await),
            code(limiter.check_rate_limit(by(token, in_shop(user("ada")))).await),
        ];
        assert_eq!(codes, [check, reserve, settled, shop], "{token}");
    }
    let batch = |requests| by(OF_SHOP, BatchRateLimitRequest { requests });
    let refusal = limiter.check_rate_limit_batch(batch(vec![in_shop(user("ada")), user("ada")])).await;
    let refusal = refusal.expect_err("the second is of another domain");
    assert!(refusal.message().starts_with("requests/1/domain: this token has no rights in `default`"), "{refusal:?}");
    assert_eq!(code(limiter.check_rate_limit_batch(batch(vec![in_shop(user("ada"))])).await), None);
    let asked = |request| CheckStreamRequest { correlation_id: 1, request: Some(request) };
    let stream = tokio_stream::iter([asked(user("ada")), asked(in_shop(user("ada")))]);
    let answers = limiter.check_rate_limit_stream(by(OF_SHOP, stream)).await.expect("a stream").into_inner();
    let answers: Vec<_> = answers.map(|answer| answer.expect("it goes on").result.expect("a result")).collect().await;
    let [Told::Error(error), Told::Response(response)] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!((error.code, response.allowed), (Code::PermissionDenied as i32, true));
    assert!(error.message.starts_with("request/domain: "), "{error:?}");
    let mut envoy = RateLimitServiceClient::new(server.channel().await);
    let of = |domain: &str| {
        let entry = Entry { key: "user".to_owned(), value: b"ada".to_vec() };
        let descriptor = RateLimitDescriptor { entries: vec![entry], ..RateLimitDescriptor::default() };
        by(OF_SHOP, EnvoyRequest { domain: domain.to_owned(), descriptors: vec![descriptor], hits_addend: 0 })
    };
    assert_eq!(code(envoy.should_rate_limit(of("shop")).await), None);
    assert_eq!(code(envoy.should_rate_limit(of("default")).await), denied);
}

/// The admin server of this test cannot be reached.
#[tokio::test]
async fn a_token_with_the_right_resets_this_server_without_the_admin_server() {
    let server = with_rights();
    let (mut limiter, mut health) = (server.limiter().await, server.health().await);
    // The rest of a hundred after one more check.
    let left = async |limiter: &mut RateLimiterClient<Channel>| {
        let peek = RateLimitRequest { peek: true, ..user("ada") };
        limiter.check_rate_limit(by(CHECKS, peek)).await.expect("an answer").into_inner().remaining
    };
    limiter.check_rate_limit(by(CHECKS, user("ada"))).await.expect("an answer");
    assert_eq!(left(&mut limiter).await, Some(98));
    let reset = |domain: &str| ResetRateLimitRequest {
        identifier: "ada".to_owned(),
        identifier_type: "user".to_owned(),
        domain: domain.to_owned(),
        ..ResetRateLimitRequest::default()
    };
    assert_eq!(code(health.reset_rate_limit(by(RESETS, reset("shop"))).await), Some(Code::PermissionDenied));
    assert_eq!(code(health.reset_rate_limit(by(CHECKS, reset(""))).await), Some(Code::Unauthenticated));
    assert_eq!(left(&mut limiter).await, Some(98), "what is refused resets nothing");
    let told = health.reset_rate_limit(by(RESETS, reset(""))).await.expect("it may").into_inner();
    assert_eq!((told.keys, told.nodes.len(), &told.missing[..]), (1, 0, &["the other nodes".to_owned()][..]));
    assert_eq!(left(&mut limiter).await, Some(99));
    // With a token of the admin server beside one without the right, the admin server is called.
    let mut both = by(CHECKS, reset(""));
    both.metadata_mut().insert("authorization", "Bearer anybody".parse().expect("ASCII"));
    assert_eq!(code(health.reset_rate_limit(both).await), Some(Code::Unavailable));
}

#[tokio::test]
async fn metrics_and_reflection_require_tokens_where_the_server_has_some() {
    let tokens = Some(tokens_of("checks-0000000001 domain=shop\n", Tokens::open));
    let metrics_tokens = Some(tokens_of("scrapes-000000001\n", Tokens::open_without_rights));
    let server = Server::listening(HUNDRED, ListenerSettings { tokens, metrics_tokens, ..ListenerSettings::default() });
    let mut health = server.health().await;
    let metrics = || GetMetricsRequest {};
    assert_eq!(code(health.get_metrics(metrics()).await), Some(Code::Unauthenticated));
    assert_eq!(code(health.get_metrics(by("checks-0000000001", metrics())).await), Some(Code::Unauthenticated));
    assert_eq!(code(health.get_metrics(by("scrapes-000000001", metrics())).await), None);
    let mut reflection = ServerReflectionClient::new(server.channel().await);
    let nothing = || tokio_stream::empty::<ServerReflectionRequest>();
    assert_eq!(code(reflection.server_reflection_info(nothing()).await), Some(Code::Unauthenticated));
    assert_eq!(code(reflection.server_reflection_info(by("checks-0000000001", nothing())).await), None);
}
