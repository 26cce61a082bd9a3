//! Connections and messages that no gRPC client would send; idle connections; TLS.

use std::{convert::Infallible, fs, thread, time::Duration};

use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::{
    body::{Bytes, Incoming},
    client::conn::http2::{self, SendRequest},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tidegate_net::tls::{Tls, TlsFiles};
use tidegate_service::{
    ListenerSettings, Timeouts,
    grpc::proto::tidegate::v1::{
        BatchRateLimitRequest, CheckStreamRequest, CheckStreamResponse, ListRateLimitsRequest,
        rate_limiter_client::RateLimiterClient,
    },
};
use tidegate_testkit::PATIENCE;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    runtime::{self, Handle, Runtime},
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_stream::StreamExt;
use tonic::{
    Code,
    body::Body,
    codegen::Service,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint},
};

use super::{
    HUNDRED,
    support::{Server, user},
};
use crate::process::resting_connections_are_closed;

const CHECK: &str = "/tidegate.v1.RateLimiter/CheckRateLimit";
const BATCH: &str = "/tidegate.v1.RateLimiter/CheckRateLimitBatch";
const HEALTH: &str = "/grpc.health.v1.Health/Check";
const STREAM: &str = "/tidegate.v1.RateLimiter/CheckRateLimitStream";

/// Returns a server with these timeouts.
fn server_with(timeouts: &Timeouts) -> Server {
    Server::listening(HUNDRED, ListenerSettings { timeouts: *timeouts, ..ListenerSettings::default() })
}

/// Sends this body, and returns the code and the message of the response.
async fn told(channel: &mut Channel, path: &str, kind: &'static str, body: Body) -> (Code, String) {
    let request = Request::post(path).header("content-type", kind).body(body).expect("a request");
    std::future::poll_fn(|context| channel.poll_ready(context)).await.expect("it is open");
    let answer = channel.call(request).await.expect("an answer");
    let (head, body) = answer.into_parts();
    let trailers = body.collect().await.map(|body| body.trailers().cloned().unwrap_or_default());
    let trailers = trailers.unwrap_or_default();
    let find = |name: &str| head.headers.get(name).or(trailers.get(name)).map(HeaderValue::as_bytes);
    let code = find("grpc-status").map_or(Code::Unknown, Code::from_bytes);
    (code, String::from_utf8_lossy(find("grpc-message").unwrap_or_default()).into_owned())
}

fn whole(bytes: &'static [u8]) -> Body {
    Body::new(Full::new(bytes.into()))
}

/// Returns a body that begins with these bytes and never ends.
fn unfinished(bytes: &'static [u8]) -> Body {
    let first = tokio_stream::once(Ok::<_, Infallible>(http_body::Frame::data(bytes.into())));
    Body::new(StreamBody::new(first.chain(tokio_stream::pending())))
}

/// Returns a body of these bytes, repeated for ever with a pause between.
fn endless(bytes: &'static [u8], pause: Duration) -> Body {
    let again = futures_util::stream::repeat(bytes).then(move |bytes| async move {
        sleep(pause).await;
        Ok::<_, Infallible>(http_body::Frame::data(bytes.into()))
    });
    Body::new(StreamBody::new(again))
}

#[tokio::test]
async fn a_malformed_message_is_an_error_of_its_sender() {
    let server = Server::with(HUNDRED);
    let mut channel = server.channel().await;
    let grpc = "application/grpc";
    for (path, kind, body, code) in [
        // A field of an unknown wire type.
        (CHECK, grpc, whole(&[0, 0, 0, 0, 2, 0x0f, 0x01]), Code::InvalidArgument),
        // A text that is not UTF-8.
        (CHECK, grpc, whole(&[0, 0, 0, 0, 3, 0x0a, 0x01, 0xff]), Code::InvalidArgument),
        // No message; one with the flag of compression; one shorter than its length.
        (CHECK, grpc, whole(&[]), Code::InvalidArgument),
        (CHECK, grpc, whole(&[1, 0, 0, 0, 0]), Code::Unimplemented),
        (STREAM, grpc, whole(&[7, 0, 0, 0, 0]), Code::Unimplemented),
        (CHECK, grpc, whole(&[0, 0, 0, 0, 9, 0x0a]), Code::InvalidArgument),
        // Two messages; one, and the beginning of another; messages without end.
        (CHECK, grpc, whole(&[0; 10]), Code::InvalidArgument),
        (CHECK, grpc, whole(&[0; 6]), Code::InvalidArgument),
        (CHECK, grpc, endless(&[0; 16_000], Duration::ZERO), Code::InvalidArgument),
        (CHECK, "application/json", whole(b"{}"), Code::InvalidArgument),
        // A message whose head has a length above the bound.
        (CHECK, grpc, unfinished(&[0, 0, 0x10, 0, 1]), Code::ResourceExhausted),
        (STREAM, grpc, unfinished(&[0, 0, 0x10, 0, 1]), Code::ResourceExhausted),
        ("/tidegate.v1.RateLimiter/Guess", grpc, whole(&[0; 5]), Code::Unimplemented),
        // The content types of gRPC-Web and of other codecs.
        (HEALTH, "application/grpc-web+proto", whole(&[0; 5]), Code::InvalidArgument),
        (HEALTH, "application/grpc+json", whole(&[0; 5]), Code::InvalidArgument),
        (HEALTH, "application/grpc+proto; charset=utf-8", whole(&[0; 5]), Code::Ok),
        ("/nobody/at.all", grpc, whole(&[0; 5]), Code::Unimplemented),
        ("/", grpc, whole(&[0; 5]), Code::Unimplemented),
    ] {
        let (code_told, why) = told(&mut channel, path, kind, body).await;
        assert_eq!(code_told, code, "{path} {kind}: {why}");
    }
    assert_eq!(server.metric(r#"tidegate_requests_total{door="grpc",route="other",status="UNIMPLEMENTED"}"#), 3);
    let streams = |status: &str| {
        format!(r#"tidegate_requests_total{{door="grpc",route="CheckRateLimitStream",status="{status}"}}"#)
    };
    assert_eq!(server.metric(&streams("UNIMPLEMENTED")), 1, "by how it ended");
    assert_eq!(server.metric(&streams("RESOURCE_EXHAUSTED")), 1, "by how it ended");
    for (code, count) in [("unsupported_media_type", 2), ("too_large", 2)] {
        assert_eq!(
            server.metric(&format!(r#"tidegate_bad_requests_total{{door="grpc",code="{code}"}}"#)),
            count,
            "{code}"
        );
    }
    let long = format!("/{}", "p".repeat(5_000));
    let (_, why) = told(&mut channel, &long, grpc, whole(&[0; 5])).await;
    assert!(why.len() < 1_000 && why.starts_with("nothing%20is%20called%20/ppp"), "{why}");
    // None of these counts as an error of the server.
    let own = r#"tidegate_health_degraded{reason="errors"}"#;
    assert_eq!(server.metric(own), 0);
    assert_eq!(server.metric(r#"tidegate_bad_requests_total{door="grpc",code="bad_message"}"#), 2);
    assert_eq!(server.engine.totals().allowed, 0);
    assert!(server.limiter().await.check_rate_limit(user("ada")).await.is_ok());
}

#[tokio::test]
async fn an_unfinished_message_is_refused_after_its_timeout() {
    let server = server_with(&Timeouts { request: Duration::from_millis(500), ..Timeouts::default() });
    let (mut channel, mut other) = (server.channel().await, server.channel().await);
    let [mut third, mut fourth] = [other.clone(), other.clone()];
    let grpc = "application/grpc";
    let trickle = || endless(&[1], Duration::from_millis(100));
    // A message of a mebibyte at most, of which ten bytes a second come: a first byte of 1 would be the flag of compression.
    let begun = |rest: Body| {
        let head = tokio_stream::once(Ok::<_, Infallible>(http_body::Frame::data([0, 0, 0, 9, 0].as_slice().into())));
        let rest = http_body_util::BodyStream::new(rest).map(|frame| Ok(frame.expect("it is made here")));
        Body::new(StreamBody::new(head.chain(rest)))
    };
    let slow = async {
        tokio::join!(
            told(&mut channel, CHECK, grpc, unfinished(&[0, 0, 0, 0, 9])),
            told(&mut other, STREAM, grpc, unfinished(&[0, 0, 0, 0, 9])),
            told(&mut third, CHECK, grpc, begun(trickle())),
            told(&mut fourth, STREAM, grpc, begun(trickle())),
        )
    };
    let told = timeout(PATIENCE, slow).await.expect("half a second");
    let codes = [told.0.0, told.1.0, told.2.0, told.3.0];
    assert_eq!(codes, [Code::DeadlineExceeded; 4]);
    // The bytes of unfinished messages are given back.
    assert_eq!(server.metric("tidegate_body_budget_bytes"), 0);
}

#[tokio::test]
async fn an_unread_response_holds_its_part_of_the_budget() {
    let server = Server::with(HUNDRED);
    let requests = (0..10_000).map(|number| user(&(number % 100).to_string())).collect();
    let message = BatchRateLimitRequest { requests }.encode_to_vec();
    let body = framed(&message);
    let endpoint = Endpoint::from_shared(format!("http://{}", server.address)).expect("an address");
    // With a window of a single byte, the connection would buffer all of a response that is sent as a whole.
    let mut channel = endpoint.initial_stream_window_size(1).connect().await.expect("it listens");
    let request = Request::post(BATCH).header("content-type", "application/grpc");
    let request = request.body(Body::new(Full::new(body.into()))).expect("a request");
    std::future::poll_fn(|context| channel.poll_ready(context)).await.expect("it is open");
    let answer = channel.call(request).await.expect("an answer");
    let held = server.metric("tidegate_body_budget_bytes");
    assert!((200_000..4_000_000).contains(&held), "{held}");
    drop(answer);
    let given_back = timeout(PATIENCE, async {
        while server.metric("tidegate_body_budget_bytes") > 0 {
            sleep(Duration::from_millis(10)).await;
        }
    });
    given_back.await.expect("it is given back");
}

/// Returns a message with its head.
fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).expect("it is short").to_be_bytes();
    [&[0], &length[..], message].concat()
}

#[tokio::test]
async fn messages_of_a_stream_are_answered_however_they_are_cut_until_one_is_malformed() {
    let server = Server::with(HUNDRED);
    let mut channel = server.channel().await;
    let check =
        |correlation_id| framed(&CheckStreamRequest { correlation_id, request: Some(user("ada")) }.encode_to_vec());
    let right: Vec<u8> = (1..=20).flat_map(check).collect();
    for (round, size) in [1, 7, right.len() + 10].into_iter().enumerate() {
        // The last but one is malformed, and the one behind it is not read.
        let bytes = [&right[..], &framed(&[0x12, 2, 0x0a, 9]), &check(21)].concat();
        let pieces: Vec<_> = bytes
            .chunks(size)
            .map(|piece| Ok::<_, Infallible>(http_body::Frame::data(piece.to_vec().into())))
            .collect();
        let request = Request::post(STREAM).header("content-type", "application/grpc");
        let request = request.body(Body::new(StreamBody::new(tokio_stream::iter(pieces)))).expect("a request");
        std::future::poll_fn(|context| channel.poll_ready(context)).await.expect("it is open");
        let body = channel.call(request).await.expect("an answer").into_body().collect().await.expect("to its end");
        let code = body.trailers().and_then(|trailers| trailers.get("grpc-status")).map(HeaderValue::as_bytes);
        assert_eq!(code.map(Code::from_bytes), Some(Code::InvalidArgument));
        let (mut rest, mut ids) = (&body.to_bytes()[..], Vec::new());
        while let Some((&[0, length @ ..], after)) = rest.split_first_chunk::<5>() {
            let (message, after) = after.split_at(u32::from_be_bytes(length) as usize);
            ids.push(CheckStreamResponse::decode(message).expect("an answer").correlation_id);
            rest = after;
        }
        assert_eq!(ids, (1..=20).collect::<Vec<u64>>(), "in pieces of {size}");
        let count = round as u64 + 1;
        assert_eq!(server.metric(r#"tidegate_bad_requests_total{door="grpc",code="bad_message"}"#), count);
        assert_eq!(server.engine.totals().allowed, 20 * count);
    }
}

#[tokio::test]
async fn a_quiet_stream_holds_no_budget_for_answered_messages() {
    // The timeout is long, so that it does not give the budget back.
    let server = server_with(&Timeouts { request: Duration::from_mins(10), ..Timeouts::default() });
    let mut channel = server.channel().await;
    // A message with a long unknown field, which comes in two parts, so that the second must be waited for.
    let mut message = CheckStreamRequest { correlation_id: 1, request: Some(user("ada")) }.encode_to_vec();
    prost::encoding::bytes::encode(99, &vec![7; 500_000], &mut message);
    let mut first = framed(&message);
    let rest = first.split_off(300_000);
    let (send, pieces) = tokio::sync::mpsc::channel(1);
    let body = StreamBody::new(
        tokio_stream::wrappers::ReceiverStream::new(pieces)
            .map(|piece: Vec<u8>| Ok::<_, Infallible>(http_body::Frame::data(piece.into()))),
    );
    let request = Request::post(STREAM).header("content-type", "application/grpc");
    let request = request.body(Body::new(body)).expect("a request");
    std::future::poll_fn(|context| channel.poll_ready(context)).await.expect("it is open");
    send.send(first).await.expect("it is read");
    let mut answer = channel.call(request).await.expect("an answer").into_body();
    let held = || server.metric("tidegate_body_budget_bytes");
    let looked = timeout(PATIENCE, async {
        while held() < 100_000 {
            sleep(Duration::from_millis(10)).await;
        }
    });
    looked.await.expect("what has begun takes room");
    send.send(rest).await.expect("it is read");
    let frame = timeout(PATIENCE, answer.frame()).await.expect("at once").expect("one");
    assert!(frame.expect("it goes on").is_data());
    assert_eq!(held(), 0, "and nothing more when it is answered");
    drop(send);
    assert!(answer.frame().await.expect("an end").expect("all went well").is_trailers());
}

#[tokio::test]
async fn bytes_that_are_not_http2_end_the_connection() {
    let server = Server::with(HUNDRED);
    let mut stream = TcpStream::connect(server.address).await.expect("it listens");
    stream.write_all(b"GET / HTTP/1.1\r\nHost: tidegate\r\n\r\n").await.expect("it reads");
    let mut rest = Vec::new();
    let end = timeout(PATIENCE, stream.read_to_end(&mut rest)).await;
    assert!(end.is_ok(), "it is closed");
}

#[tokio::test]
async fn large_heads_are_not_read() {
    let server = Server::with(HUNDRED);
    let mut limiter = server.limiter().await;
    let with = |bytes: usize| {
        let mut request = tonic::Request::new(user("ada"));
        request.metadata_mut().insert("x-much", "m".repeat(bytes).parse().expect("text"));
        request
    };
    assert!(limiter.check_rate_limit(with(15 << 10)).await.is_ok());
    assert!(limiter.check_rate_limit(with(17 << 10)).await.is_err());
    assert_eq!(server.engine.totals().allowed, 1);
    assert!(limiter.check_rate_limit(user("ada")).await.is_ok(), "the connection goes on");
}

#[tokio::test]
async fn rules_need_a_token_and_an_admin_server() {
    let server = Server::with(HUNDRED);
    let mut config = server.config().await;
    let refusal = config.list_rate_limits(ListRateLimitsRequest {}).await.expect_err("nobody asks");
    assert_eq!(refusal.code(), Code::Unauthenticated);
    let mut request = tonic::Request::new(ListRateLimitsRequest {});
    request.metadata_mut().insert("authorization", "Bearer anybody".parse().expect("text"));
    let refusal = config.list_rate_limits(request).await.expect_err("nobody is there");
    assert_eq!(refusal.code(), Code::Unavailable);
}

#[tokio::test]
async fn the_listener_speaks_http2_over_tls() {
    let folder = tempfile::tempdir().expect("a folder");
    let [certificate, key] = ["cert.pem", "key.pem"].map(|name| folder.path().join(name));
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    fs::write(&certificate, made.cert.pem()).expect("room for a file");
    fs::write(&key, made.signing_key.serialize_pem()).expect("room for a file");
    let tls = Tls::open(TlsFiles { certificate, key, clients: None }).expect("they fit");
    let server = Server::listening(HUNDRED, ListenerSettings { tls: Some(tls), ..ListenerSettings::default() });
    let known = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(made.cert.pem())).domain_name("localhost");
    let endpoint = Endpoint::from_shared(format!("https://{}", server.address)).expect("an address");
    let channel = endpoint.tls_config(known).expect("it is right").connect().await.expect("it is believed");
    let told = RateLimiterClient::new(channel).check_rate_limit(user("ada")).await.expect("an answer").into_inner();
    assert_eq!(told.remaining_tokens, 99);
    let endpoint = Endpoint::from_shared(format!("http://{}", server.address)).expect("an address");
    let clear = endpoint.connect().await.map(RateLimiterClient::new);
    if let Ok(mut clear) = clear {
        assert!(clear.check_rate_limit(user("ada")).await.is_err(), "it does not speak without");
    }
}

/// An HTTP/2 connection that is not reopened when it ends.
struct Connection {
    runtime: Handle,
    calls: SendRequest<Full<Bytes>>,
    ended: JoinHandle<hyper::Result<()>>,
}

impl Connection {
    fn to(server: &Server, runtime: &Runtime) -> Self {
        let (calls, ended) = runtime.block_on(async {
            let stream = TcpStream::connect(server.address).await.expect("it listens");
            let (calls, connection) =
                http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("it speaks HTTP/2");
            (calls, tokio::spawn(connection))
        });
        Self { runtime: runtime.handle().clone(), calls, ended }
    }

    /// Calls a method of the standard health service without waiting for the end of its response; `None` where the connection has
    /// ended.
    fn call(&mut self, method: &str) -> Option<Response<Incoming>> {
        let path = format!("http://localhost/grpc.health.v1.Health/{method}");
        let request = Request::post(path).header("content-type", "application/grpc").header("te", "trailers");
        let request = request.body(Full::new(Bytes::from_static(&[0; 5]))).expect("a request");
        self.runtime.block_on(async {
            self.calls.ready().await.ok()?;
            self.calls.send_request(request).await.ok()
        })
    }

    /// Makes a call, and returns whether all of its response came.
    fn is_alive(&mut self) -> bool {
        let Some(answer) = self.call("Check") else { return false };
        let Ok(answer) = self.runtime.block_on(answer.into_body().collect()) else { return false };
        answer.trailers().and_then(|trailers| trailers.get("grpc-status")).is_some_and(|code| code == "0")
    }

    /// Waits until the server has closed the connection, and returns whether it closed it gracefully.
    fn wait_for_close(self) -> bool {
        let ended = self.runtime.block_on(async { timeout(2 * PATIENCE, self.ended).await });
        ended.is_ok_and(|ended| ended.expect("it does not panic").is_ok())
    }
}

fn runtime() -> Runtime {
    runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

fn idle_connections_are_closed(timeouts: &Timeouts) {
    let (server, runtime) = (server_with(timeouts), runtime());
    resting_connections_are_closed(
        timeouts.idle,
        || Connection::to(&server, &runtime),
        Connection::is_alive,
        Connection::wait_for_close,
    );
}

/// Responses to pings do not count as use.
#[test]
fn an_idle_connection_is_closed_and_a_used_one_is_not() {
    let (idle, ping) = (Duration::from_millis(600), Duration::from_millis(100));
    idle_connections_are_closed(&Timeouts { idle, ping, ..Timeouts::default() });
}

#[test]
fn a_connection_with_an_open_stream_is_not_idle() {
    // Pings show that the peer of a silent stream is alive.
    let (idle, ping) = (Duration::from_secs(3), Duration::from_millis(100));
    let (server, runtime) = (server_with(&Timeouts { idle, ping, ..Timeouts::default() }), runtime());
    let mut watching = Connection::to(&server, &runtime);
    let mut watched = watching.call("Watch").expect("it is open").into_body();
    assert!(runtime.block_on(watched.frame()).is_some_and(|frame| frame.is_ok_and(|frame| frame.is_data())));
    let mut resting = Connection::to(&server, &runtime);
    assert!(resting.is_alive() && resting.wait_for_close(), "it is younger than the other one");
    thread::sleep(idle / 2);
    assert!(!watching.ended.is_finished() && watching.is_alive(), "a stream is open");
    drop(watched);
    assert!(watching.wait_for_close(), "no stream is open any more");
}

/// A peer that is gone answers nothing, not even pings.
#[tokio::test]
async fn a_peer_that_answers_no_pings_is_cut_off() {
    let ping = Duration::from_millis(200);
    let server = server_with(&Timeouts { ping, ping_answer: ping, ..Timeouts::default() });
    let mut stream = TcpStream::connect(server.address).await.expect("it listens");
    // The preface, and empty settings.
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.expect("it reads");
    let mut said = Vec::new();
    let end = timeout(PATIENCE / 2, stream.read_to_end(&mut said)).await;
    assert!(end.is_ok() && !said.is_empty(), "long before it is idle: {end:?}");
}

/// Tests of the real timeouts.
mod long {
    use super::*;

    #[test]
    #[ignore = "long: a connection rests for a minute"]
    fn a_connection_is_closed_after_an_idle_minute() {
        idle_connections_are_closed(&Timeouts::default());
    }
}
