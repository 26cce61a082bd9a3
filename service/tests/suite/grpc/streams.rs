//! Streams of checks over gRPC.

use std::{collections::BTreeMap, num::NonZeroU32, time::Duration};

use tidegate_service::{
    ListenerSettings, Timeouts,
    grpc::proto::tidegate::v1::{
        CheckStreamRequest, CheckStreamResponse, RateLimitRequest, check_stream_response::Result as Told,
        rate_limiter_client::RateLimiterClient,
    },
};
use tidegate_testkit::PATIENCE;
use tokio::{sync::mpsc, time::timeout};
use tokio_stream::{StreamExt, iter, wrappers::ReceiverStream};
use tonic::{Code, transport::Endpoint};

use super::{
    HUNDRED,
    support::{Server, user},
};
use crate::http::failures::{NAME, Panics, hush};

fn asked(correlation_id: u64, request: Option<RateLimitRequest>) -> CheckStreamRequest {
    CheckStreamRequest { correlation_id, request }
}

fn left(told: &CheckStreamResponse) -> Option<i32> {
    match told.result.as_ref().expect("a result") {
        Told::Response(response) => Some(response.remaining_tokens),
        Told::Error(_) => None,
    }
}

#[tokio::test]
async fn messages_are_answered_in_order_with_their_correlation_ids() {
    const COUNT: u64 = 5_000;
    let server = Server::with(HUNDRED);
    let requests = (0..COUNT).map(|number| asked(number * 3, Some(user(&(number % 50).to_string()))));
    let answers = server.limiter().await.check_rate_limit_stream(iter(requests)).await.expect("a stream").into_inner();
    let answers: Vec<_> = answers.map(|answer| answer.expect("it goes on")).collect().await;
    assert_eq!(answers.len() as u64, COUNT);
    for (number, answer) in (0..).zip(&answers) {
        assert_eq!(answer.correlation_id, number * 3);
        assert_eq!(left(answer), Some(99 - (number / 50) as i32), "{number}");
    }
}

/// A policy of 100 a minute for each user, of a queue for teams, and of limits in shadow mode for robots.
const ALL_KINDS: &str = r#"
    [domains.default]
    defaults = { user = "free", team = "waits", robot = "seen" }
    [[domains.default.tiers]]
    id = "free"
    limits = [{ id = "minute", algorithm = "fixed_window", limit = 100, period = "1m" }]
    [[domains.default.tiers]]
    id = "waits"
    limits = [{ id = "queue", algorithm = "leaky_bucket", limit = 10, period = "1s" }]
    [[domains.default.tiers]]
    id = "seen"
    limits = [{ id = "shadow", algorithm = "fixed_window", limit = 20, period = "1m", mode = "shadow" }]
"#;

/// Returns checks of all kinds: 43 that the policy alone decides, and four others, some of which at the end only peek.
fn of_all_kinds() -> Vec<RateLimitRequest> {
    let request = |number: u64| {
        let kind = ["user", "user", "team", "robot"][number as usize % 4];
        let request = RateLimitRequest { identifier_type: kind.to_owned(), ..user("ada") };
        match number % 47 {
            20 => RateLimitRequest { tokens_requested: 3, ..request },
            43 => RateLimitRequest { request_id: format!("r{}", number / 94), ..user("ada") },
            44 => RateLimitRequest { peek: true, ..request },
            45 => RateLimitRequest { tokens_requested: -1, ..request },
            46 => RateLimitRequest { identifier_type: String::new(), ..request },
            _ => RateLimitRequest { peek: number > 470 && number % 8 < 4, ..request },
        }
    };
    (0..640).map(request).collect()
}

#[tokio::test]
async fn checks_that_come_together_have_the_same_responses_as_one_by_one() {
    let (together, single) = (Server::with(ALL_KINDS), Server::with(ALL_KINDS));
    let requests = || (0..).zip(of_all_kinds()).map(|(id, request)| asked(id, Some(request)));
    let stream = together.limiter().await.check_rate_limit_stream(iter(requests())).await;
    let answers: Vec<_> = stream.expect("a stream").into_inner().collect().await;
    let (send, requests_of_single) = mpsc::channel(1);
    let stream = single.limiter().await.check_rate_limit_stream(ReceiverStream::new(requests_of_single)).await;
    let mut stream = stream.expect("a stream").into_inner();
    let (mut denied, mut waits, mut seen) = (0, 0, 0);
    for (request, answer) in requests().zip(&answers) {
        send.send(request).await.expect("it is read");
        let alone = timeout(PATIENCE, stream.next()).await.expect("at once").expect("one").expect("it goes on");
        assert_eq!(answer.as_ref().expect("it goes on"), &alone);
        if let Some(Told::Response(response)) = alone.result {
            denied += u32::from(!response.allowed);
            waits += u32::from(response.delay_ms.is_some_and(|delay_ms| delay_ms > 0));
            seen += u32::from(!response.shadow_denied.is_empty());
        }
    }
    assert_eq!(answers.len(), requests().count());
    assert!(denied > 100 && waits > 5 && seen > 50, "{denied}, {waits}, {seen}");
}

#[tokio::test]
async fn a_panic_affects_only_its_own_check() {
    hush();
    let server = Server::with(HUNDRED);
    server.engine.observe(NonZeroU32::MIN, Panics);
    let names = (0..300).map(|number| if number % 50 == 7 { NAME } else { "ada" });
    let requests = (0..).zip(names).map(|(id, name)| asked(id, Some(user(name))));
    let stream = server.limiter().await.check_rate_limit_stream(iter(requests)).await.expect("a stream").into_inner();
    let answers: Vec<_> = stream.map(|answer| answer.expect("it goes on")).collect().await;
    let mut others = 0;
    for (number, answer) in (0..).zip(&answers) {
        let Some(Told::Response(response)) = &answer.result else { panic!("{answer:?}") };
        let is_degraded = response.degraded == "internal_error";
        assert_eq!((answer.correlation_id, is_degraded), (number, number % 50 == 7));
        if !is_degraded {
            others += 1;
            assert_eq!(response.allowed, others <= 100);
        }
    }
    assert_eq!((answers.len(), others), (300, 294));
}

#[tokio::test]
async fn an_error_is_reported_and_the_stream_goes_on() {
    let server = Server::with(HUNDRED);
    let (send, requests) = mpsc::channel(8);
    let mut limiter = server.limiter().await;
    let mut answers =
        limiter.check_rate_limit_stream(ReceiverStream::new(requests)).await.expect("a stream").into_inner();
    for (request, field) in [
        (None, Some("request/identifier_type: ")),
        (Some(user("")), Some("request/identifier: ")),
        (Some(user("ada")), None),
        (Some(RateLimitRequest { tokens_requested: -3, ..user("ada") }), Some("request/tokens_requested: ")),
        (Some(user("ada")), None),
    ] {
        // Each message is answered before the next is sent.
        send.send(asked(7, request)).await.expect("it is read");
        let answer = timeout(PATIENCE, answers.next()).await.expect("at once").expect("one");
        match (answer.expect("it goes on").result.expect("a result"), field) {
            (Told::Response(response), None) => assert!(response.allowed),
            (Told::Error(error), Some(field)) => {
                assert_eq!(error.code, Code::InvalidArgument as i32);
                assert!(error.message.starts_with(field), "{error:?}");
            }
            (result, field) => panic!("{result:?}, not {field:?}"),
        }
    }
    drop(send);
    assert!(answers.next().await.is_none());
    assert_eq!(server.metric(r#"tidegate_bad_requests_total{door="grpc",code="bad_kind"}"#), 1);
}

/// The client reads the responses slowly: the number of unread ones is bounded by what the connection buffers.
#[tokio::test]
async fn a_stream_with_unread_responses_is_not_read_further() {
    let server = Server::with(HUNDRED);
    let (send, requests) = mpsc::channel(1);
    // With the default window the client's own HTTP/2 may end the connection over too many small frames that were not taken.
    let endpoint = Endpoint::from_shared(format!("http://{}", server.address)).expect("an address");
    let channel = endpoint.initial_stream_window_size(65_535).connect().await.expect("it listens");
    let mut limiter = RateLimiterClient::new(channel);
    let mut answers =
        limiter.check_rate_limit_stream(ReceiverStream::new(requests)).await.expect("a stream").into_inner();
    let decided = || {
        let totals = server.engine.totals();
        totals.allowed + totals.denied
    };
    let (mut taken, mut decided_before) = (0_u64, 0);
    loop {
        let sending = send.send(asked(taken, Some(user(&"v".repeat(1_000)))));
        match timeout(Duration::from_millis(500), sending).await {
            Ok(Ok(())) => {
                taken += 1;
                assert!(taken < 1_000_000, "it reads for ever");
            }
            Ok(Err(_)) => {
                let mut end = None;
                while let Some(answer) = answers.next().await {
                    end = answer.err();
                }
                panic!("the stream ended after {taken} requests: {end:?}");
            }
            // A busy machine may only be slow to read, and then all that was sent is decided later.
            Err(_) if decided() == taken || decided() > decided_before => decided_before = decided(),
            Err(_) => break,
        }
    }
    assert!(decided() < taken, "what is not read is not decided");
    drop(send);
    let mut seen = BTreeMap::new();
    while let Some(answer) = answers.next().await {
        *seen.entry(answer.expect("it goes on").correlation_id).or_insert(0) += 1;
    }
    // The message that waited was dropped.
    assert_eq!(seen.len() as u64, taken);
    assert!(seen.values().all(|count| *count == 1));
}

/// The stream always has a message to answer.
#[tokio::test]
async fn a_busy_stream_ends_when_the_server_stops() {
    let timeouts = Timeouts { stream_end: Duration::from_millis(300), ..Timeouts::default() };
    let mut server = Server::listening(HUNDRED, ListenerSettings { timeouts, ..ListenerSettings::default() });
    let mut limiter = server.limiter().await;
    let requests = iter(0..).map(|number| asked(number, Some(user("ada"))));
    let mut answers = limiter.check_rate_limit_stream(requests).await.expect("a stream").into_inner();
    assert!(answers.next().await.expect("one").is_ok());
    server.drain(Duration::ZERO);
    let end = async {
        loop {
            if let Err(status) = answers.next().await.expect("it is told why it ends") {
                return status;
            }
        }
    };
    let end = timeout(PATIENCE, end).await.expect("it does not go on for ever");
    assert_eq!(end.code(), Code::Unavailable, "{end:?}");
    let ended = tokio::task::spawn_blocking(move || server.ended().map(|()| server));
    assert!(timeout(PATIENCE, ended).await.expect("it ends").expect("it runs").is_ok());
}

#[tokio::test]
async fn a_stream_ends_when_the_server_stops() {
    let mut server = Server::with(HUNDRED);
    let (send, requests) = mpsc::channel(8);
    let mut limiter = server.limiter().await;
    let mut answers =
        limiter.check_rate_limit_stream(ReceiverStream::new(requests)).await.expect("a stream").into_inner();
    send.send(asked(1, Some(user("ada")))).await.expect("it is read");
    assert_eq!(answers.next().await.expect("one").expect("it goes on").correlation_id, 1);
    server.drain(Duration::ZERO);
    let end = timeout(PATIENCE, answers.next()).await.expect("it does not wait for us");
    assert_eq!(end.expect("an end").expect_err("no answer").code(), Code::Unavailable);
    drop((send, answers, limiter));
    let ended = tokio::task::spawn_blocking(move || server.ended().map(|()| server));
    assert!(timeout(PATIENCE, ended).await.expect("it ends").expect("it runs").is_ok());
}
