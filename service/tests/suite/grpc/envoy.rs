//! Envoy's rate limit service over the listener: its charges, rejections, counts and tokens.

use std::fs;

use tidegate_service::{
    ListenerSettings, Tokens,
    grpc::proto::envoy::{
        extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor::Entry},
        service::ratelimit::v3::{
            RateLimitRequest, RateLimitResponse, rate_limit_response::Code,
            rate_limit_service_client::RateLimitServiceClient,
        },
    },
};
use tonic::{Request, Status, transport::Channel};

use super::{
    HUNDRED,
    support::{Server, user},
};

fn of(key: &str, value: impl Into<Vec<u8>>) -> RateLimitRequest {
    let entry = Entry { key: key.to_owned(), value: value.into() };
    let descriptor = RateLimitDescriptor { entries: vec![entry], ..RateLimitDescriptor::default() };
    RateLimitRequest { domain: "default".to_owned(), descriptors: vec![descriptor], hits_addend: 0 }
}

async fn ask(
    envoy: &mut RateLimitServiceClient<Channel>,
    request: RateLimitRequest,
) -> Result<RateLimitResponse, Status> {
    Ok(envoy.should_rate_limit(request).await?.into_inner())
}

#[tokio::test]
async fn envoy_charges_the_same_limits_as_other_callers() {
    let server = Server::with(HUNDRED);
    let (mut limiter, mut envoy) = (server.limiter().await, RateLimitServiceClient::new(server.channel().await));
    let checked = limiter.check_rate_limit(user("ada")).await.expect("an answer").into_inner();
    assert_eq!(checked.remaining_tokens, 99);
    let told = ask(&mut envoy, of("User", "ada")).await.expect("an answer");
    assert_eq!((told.overall_code(), told.statuses[0].limit_remaining), (Code::Ok, 98));
    assert_eq!(told.response_headers_to_add[1].value, "98");
    let checked = limiter.check_rate_limit(user("ada")).await.expect("an answer").into_inner();
    assert_eq!(checked.remaining_tokens, 97);
    let all = RateLimitRequest { hits_addend: 98, ..of("user", "ada") };
    assert_eq!(ask(&mut envoy, all).await.expect("an answer").overall_code(), Code::OverLimit);
    assert_eq!(
        server.metric("tidegate_requests_total{door=\"grpc\",route=\"ShouldRateLimit\",status=\"OK\"}"),
        2,
        "a denial is an answer"
    );
}

#[tokio::test]
async fn an_error_names_the_field_and_an_undecided_request_is_unavailable() {
    let server = Server::with(HUNDRED);
    let mut envoy = RateLimitServiceClient::new(server.channel().await);
    let mut many = of("a", "x");
    many.descriptors[0].entries = vec![many.descriptors[0].entries[0].clone(); 10_000];
    for (request, says) in [
        (of("", "/"), "descriptors/0/entries/0/key: is empty"),
        (many, "descriptors/0/entries: 10000 given; give one to 32"),
    ] {
        let refused = ask(&mut envoy, request).await.expect_err("it is wrong");
        assert_eq!(refused.code(), tonic::Code::InvalidArgument);
        assert!(refused.message().starts_with(says), "{refused}");
        assert_eq!(refused.metadata().get("tidegate-code").expect("a code"), "bad_field");
    }
    assert_eq!(server.metric("tidegate_bad_requests_total{door=\"grpc\",code=\"bad_field\"}"), 2);

    let told = ask(&mut envoy, of("user", b"\xff")).await.expect("end users write values");
    assert_eq!((told.overall_code(), told.statuses[0].limit_remaining), (Code::Ok, 99));

    server.break_clock(true);
    let undecided = ask(&mut envoy, of("user", "ada")).await.expect_err("the clock is broken");
    assert_eq!(undecided.code(), tonic::Code::Unavailable, "{undecided}");
    server.break_clock(false);
    let told = ask(&mut envoy, of("user", "ada")).await.expect("an answer");
    assert_eq!(told.statuses[0].limit_remaining, 99, "nothing was charged");
}

#[tokio::test]
async fn envoy_needs_a_token_where_the_server_asks_for_one() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let token = "a-token-of-the-fleet-0123456789";
    fs::write(&file, token).expect("it is ours");
    let tokens = Tokens::open(file.path().to_path_buf()).expect("tokens");
    let server = Server::listening(HUNDRED, ListenerSettings { tokens: Some(tokens), ..ListenerSettings::default() });
    let mut envoy = RateLimitServiceClient::new(server.channel().await);
    let refused = ask(&mut envoy, of("user", "ada")).await.expect_err("without one");
    assert_eq!(refused.code(), tonic::Code::Unauthenticated);
    let mut request = Request::new(of("user", "ada"));
    request.metadata_mut().insert("x-tidegate-token", token.parse().expect("ASCII"));
    let told = envoy.should_rate_limit(request).await.expect("an answer").into_inner();
    assert_eq!(told.statuses[0].limit_remaining, 99);
}
