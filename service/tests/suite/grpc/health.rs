//! The health services, resets, and reflection.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    thread,
    time::Duration,
};

use tidegate_service::{
    ListenerSettings, Timeouts,
    grpc::proto::tidegate::v1::{
        GetHealthStatusRequest, GetMetricsRequest, ResetRateLimitRequest, get_health_status_response::Status as Level,
        rate_limiter_client::RateLimiterClient, rate_limiter_health_client::RateLimiterHealthClient,
    },
};
use tidegate_testkit::PATIENCE;
use tokio::{sync::mpsc, task::JoinSet, time::timeout};
use tokio_stream::{StreamExt, wrappers::ReceiverStream};
use tonic::{
    Code, Request, Status,
    transport::{Channel, Endpoint},
};
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};
use tonic_reflection::pb::{
    v1::{
        ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
        server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
    },
    v1alpha::{
        self, server_reflection_request::MessageRequest as EarlierRequest,
        server_reflection_response::MessageResponse as EarlierResponse,
    },
};

use super::{
    HUNDRED,
    support::{Server, user},
};
use crate::budget::GOOD;
use crate::process::LONG_DELAY;

/// The names of the services, in the order in which reflection lists them.
const SERVICES: [&str; 7] = [
    "tidegate.v1.RateLimiter",
    "tidegate.v1.RateLimiterConfig",
    "tidegate.v1.RateLimiterHealth",
    "envoy.service.ratelimit.v3.RateLimitService",
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
];

fn of(service: &str) -> HealthCheckRequest {
    HealthCheckRequest { service: service.to_owned() }
}

#[tokio::test]
async fn the_health_is_serving_from_the_first_policy_until_the_stop() {
    let timeouts = Timeouts { health_watch: Duration::from_millis(50), ..Timeouts::default() };
    let server = Server::alone(ListenerSettings { timeouts, ..ListenerSettings::default() });
    let mut health = HealthClient::new(server.channel().await);
    let mut watched = health.watch(of("tidegate.v1.RateLimiter")).await.expect("a stream").into_inner();
    let mut unknown = health.watch(of("nobody")).await.expect("a stream").into_inner();
    let next = async |stream: &mut tonic::Streaming<tonic_health::pb::HealthCheckResponse>| {
        let next = timeout(PATIENCE, stream.next()).await.expect("in time");
        next.expect("one").expect("it goes on").status()
    };
    assert_eq!(next(&mut watched).await, ServingStatus::NotServing);
    assert_eq!(next(&mut unknown).await, ServingStatus::ServiceUnknown);
    let own = server.health().await.get_health_status(GetHealthStatusRequest {}).await.expect("an answer").into_inner();
    assert_eq!((own.status(), own.policy_version), (Level::NotReady, 0));
    server.publish(HUNDRED);
    assert_eq!(next(&mut watched).await, ServingStatus::Serving);
    let own = server.health().await.get_health_status(GetHealthStatusRequest {}).await.expect("an answer").into_inner();
    assert_eq!((own.status(), own.policy_version, own.faults.len()), (Level::Ok, 1, 0));
    for service in ["", "tidegate.v1.RateLimiterConfig", "grpc.health.v1.Health"] {
        let status = health.check(of(service)).await.expect("it is known").into_inner().status();
        assert_eq!(status, ServingStatus::Serving, "{service}");
    }
    assert_eq!(health.check(of("nobody")).await.expect_err("unknown").code(), Code::NotFound);
    // The health changes at once, and calls are answered until the delay is over.
    server.drain(LONG_DELAY);
    assert_eq!(next(&mut watched).await, ServingStatus::NotServing);
    assert_eq!(health.check(of("")).await.expect("it answers").into_inner().status(), ServingStatus::NotServing);
    assert!(server.limiter().await.check_rate_limit(user("ada")).await.is_ok());
    let own = server.health().await.get_health_status(GetHealthStatusRequest {}).await.expect("an answer").into_inner();
    assert_eq!(own.status(), Level::NotReady);
}

#[tokio::test]
async fn open_streams_of_health_and_reflection_end_at_a_stop() {
    let mut server = Server::with(HUNDRED);
    let channel = server.channel().await;
    let mut watched = HealthClient::new(channel.clone()).watch(of("")).await.expect("a stream").into_inner();
    let (send, asking) = mpsc::channel::<ServerReflectionRequest>(1);
    let asking = ReceiverStream::new(asking);
    let mut described =
        ServerReflectionClient::new(channel).server_reflection_info(asking).await.expect("a stream").into_inner();
    assert!(watched.next().await.expect("one").is_ok());
    server.drain(Duration::ZERO);
    let ends = async {
        let told = described.next().await.expect("an end").expect_err("nothing was asked");
        let mut last = watched.next().await;
        while let Some(Ok(_)) = last {
            last = watched.next().await;
        }
        [told.code(), last.expect("an end").expect_err("it is an error").code()]
    };
    let ends = timeout(PATIENCE, ends).await.expect("they do not go on");
    assert_eq!(ends, [Code::Unavailable; 2]);
    drop((watched, described, send));
    let ended = tokio::task::spawn_blocking(move || server.ended().map(|()| server));
    assert!(timeout(PATIENCE, ended).await.expect("it ends").expect("it runs").is_ok());
}

#[tokio::test]
async fn metrics_are_the_same_as_over_http() {
    let server = Server::with(HUNDRED);
    server.limiter().await.check_rate_limit(user("ada")).await.expect("an answer");
    let told = server.health().await.get_metrics(GetMetricsRequest {}).await.expect("an answer").into_inner();
    assert_eq!((told.allowed, told.denied, told.policy_version), (1, 0, 1));
    let line = r#"tidegate_requests_total{door="grpc",route="CheckRateLimit",status="OK"} 1"#;
    assert!(told.text.contains(line) && told.text.ends_with("# EOF\n"), "{}", told.text);
    assert_eq!(server.metric(r#"tidegate_requests_total{door="grpc",route="GetMetrics",status="OK"}"#), 1);
}

#[tokio::test]
async fn a_page_of_metrics_is_written_once_a_period() {
    let timeouts = Timeouts { metrics_page: Duration::from_mins(10), ..Timeouts::default() };
    let server = Server::listening(HUNDRED, ListenerSettings { timeouts, ..ListenerSettings::default() });
    let metrics =
        async || server.health().await.get_metrics(GetMetricsRequest {}).await.expect("an answer").into_inner();
    let first = metrics().await;
    server.limiter().await.check_rate_limit(user("ada")).await.expect("an answer");
    let second = metrics().await;
    assert_eq!((first.allowed, second.allowed), (0, 1), "what costs nothing to read is of now");
    assert_eq!(first.text, second.text);
    let over_http = tokio::task::spawn_blocking(move || server.metrics()).await.expect("it does not panic");
    assert_eq!(over_http, first.text, "all listeners have the same page");
}

#[tokio::test]
async fn a_reset_needs_a_token_with_the_right_and_an_admin_server() {
    let server = Server::with(HUNDRED);
    let mut health = server.health().await;
    let reset = ResetRateLimitRequest {
        identifier: "ada".to_owned(),
        identifier_type: "user".to_owned(),
        ..ResetRateLimitRequest::default()
    };
    let refusal = health.reset_rate_limit(reset.clone()).await.expect_err("nobody asks");
    assert_eq!(refusal.code(), Code::Unauthenticated);
    let mut request = Request::new(reset);
    request.metadata_mut().insert("authorization", "Bearer anybody".parse().expect("text"));
    assert_eq!(health.reset_rate_limit(request).await.expect_err("nobody is there").code(), Code::Unavailable);
}

/// Starts an admin server that answers only calls with this token, which it refuses.
fn refuse_only(token: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    thread::spawn(move || {
        let mut held = Vec::new();
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.expect("a connection"));
            let lines = stream.by_ref().lines().map_while(Result::ok).take_while(|line| !line.is_empty());
            if lines.collect::<Vec<_>>().concat().contains(token) {
                let refusal = b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                stream.get_mut().write_all(refusal).expect("it is read");
            }
            held.push(stream);
        }
    });
    url
}

async fn reset_with(channel: Channel, token: &str) -> Status {
    let mut request = Request::new(ResetRateLimitRequest {
        identifier: "ada".to_owned(),
        identifier_type: "user".to_owned(),
        ..ResetRateLimitRequest::default()
    });
    request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().expect("text"));
    RateLimiterHealthClient::new(channel).reset_rate_limit(request).await.expect_err("nobody may")
}

#[tokio::test]
async fn a_peer_with_calls_that_wait_for_the_admin_server_leaves_others_their_calls() {
    let server = Server::beside(&refuse_only("known"), ListenerSettings::default());
    server.publish(HUNDRED);
    let channel = server.channel().await;
    let mut calls = JoinSet::new();
    for _ in 0..17 {
        let channel = channel.clone();
        calls.spawn(async move { reset_with(channel, "held").await });
    }
    let first = timeout(PATIENCE, calls.join_next()).await.expect("one is told at once");
    let first = first.expect("there are 17").expect("it does not panic");
    assert!(first.message().starts_with("too many calls from this address wait"), "{first:?}");
    assert_eq!((first.code(), calls.len()), (Code::Unavailable, 16));
    let endpoint = Endpoint::from_shared(format!("http://{}", server.address)).expect("an address");
    let other = endpoint.local_address(Some(GOOD.into())).connect().await.expect("the server listens");
    assert_eq!(reset_with(other.clone(), "known").await.code(), Code::Unauthenticated, "the admin server said so");
    let (mut limiter, mut allowed) = (RateLimiterClient::new(other), 0);
    for _ in 0..110 {
        let answer = limiter.check_rate_limit(user("ada")).await.expect("it is decided");
        allowed += u32::from(answer.into_inner().allowed);
    }
    assert_eq!(allowed, 100);
    assert!(calls.try_join_next().is_none(), "the others still wait");
}

#[tokio::test]
async fn reflection_lists_the_services() {
    let server = Server::with(HUNDRED);
    let mut reflection = ServerReflectionClient::new(server.channel().await);
    let ask = |message: MessageRequest| ServerReflectionRequest { host: String::new(), message_request: Some(message) };
    let requests = [
        ask(MessageRequest::ListServices(String::new())),
        ask(MessageRequest::FileContainingSymbol("tidegate.v1.RateLimiter".to_owned())),
    ];
    let answers = reflection.server_reflection_info(tokio_stream::iter(requests)).await.expect("a stream").into_inner();
    let answers: Vec<_> =
        answers.map(|answer| answer.expect("it goes on").message_response.expect("one")).collect().await;
    let [MessageResponse::ListServicesResponse(services), MessageResponse::FileDescriptorResponse(file)] = &answers[..]
    else {
        panic!("{answers:?}");
    };
    let names: Vec<&str> = services.service.iter().map(|service| &*service.name).collect();
    for name in SERVICES {
        assert!(names.contains(&name), "{names:?}");
    }
    assert!(!file.file_descriptor_proto.is_empty());
}

/// Many tools know the earlier version alone.
#[tokio::test]
async fn reflection_lists_the_services_in_its_earlier_version() {
    let server = Server::with(HUNDRED);
    let mut reflection = v1alpha::server_reflection_client::ServerReflectionClient::new(server.channel().await);
    let ask = |message| v1alpha::ServerReflectionRequest { host: String::new(), message_request: Some(message) };
    let requests = [
        ask(EarlierRequest::ListServices(String::new())),
        ask(EarlierRequest::FileContainingSymbol("tidegate.v1.RateLimiter".to_owned())),
    ];
    let answers = reflection.server_reflection_info(tokio_stream::iter(requests)).await.expect("a stream").into_inner();
    let answers: Vec<_> =
        answers.map(|answer| answer.expect("it goes on").message_response.expect("one")).collect().await;
    let [EarlierResponse::ListServicesResponse(services), EarlierResponse::FileDescriptorResponse(file)] = &answers[..]
    else {
        panic!("{answers:?}");
    };
    let names: Vec<&str> = services.service.iter().map(|service| &*service.name).collect();
    for name in SERVICES {
        assert!(names.contains(&name), "{names:?}");
    }
    assert!(!file.file_descriptor_proto.is_empty());
    let metrics = tokio::task::spawn_blocking(move || server.metrics()).await.expect("it does not panic");
    let histogram = r#"tidegate_request_duration_seconds_count{door="grpc",route="ServerReflectionInfo"}"#;
    assert_eq!(metrics.lines().filter(|line| line.starts_with(histogram)).count(), 1, "a series is there once");
}
