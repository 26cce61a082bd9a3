//! Sends any body to the gRPC API: each call ends with a documented code, never with an internal error; a rejected call charges
//! nothing, and no code panics.

use std::{
    future::poll_fn,
    net::{Ipv4Addr, TcpListener},
    sync::{Arc, LazyLock},
    thread,
};

use http::{HeaderValue, Request};
use http_body_util::{BodyExt, Full};
use prost::Message;
use tidegate::{Engine, Snapshot, clock::ManualClock, formats::Format, time::Timestamp};
use tidegate_service::{
    Decider, ListenerSettings, Listeners,
    grpc::{
        AdminApiClient, Grpc,
        proto::tidegate::v1::{BatchRateLimitResponse, CheckStreamResponse, RateLimitResponse},
    },
    http::{Authorize, Http},
};
use tokio::runtime::{Builder, Runtime};
use tonic::{
    Code,
    body::Body,
    codegen::Service,
    transport::{Channel, Endpoint},
};

const POLICY: &str = r#"
    [domains.default]
    defaults = { user = "free", ip = "none" }
    tier_hint = true
    [[domains.default.tiers]]
    id = "free"
    limits = [{ id = "second", algorithm = "token_bucket", limit = 1000000, period = "1s" }]
    [[domains.default.tiers]]
    id = "none"
    limits = [{ id = "none", algorithm = "sliding_window_log", limit = 0, period = "1s" }]
"#;

const CHECK: &str = "/tidegate.v1.RateLimiter/CheckRateLimit";
const BATCH: &str = "/tidegate.v1.RateLimiter/CheckRateLimitBatch";
const STREAM: &str = "/tidegate.v1.RateLimiter/CheckRateLimitStream";
/// The methods to which bodies are sent.
const PATHS: [&str; 16] = [
    CHECK,
    BATCH,
    STREAM,
    "/tidegate.v1.RateLimiter/Reserve",
    "/tidegate.v1.RateLimiter/Settle",
    "/tidegate.v1.RateLimiter/Refund",
    "/tidegate.v1.RateLimiterConfig/CreateRateLimit",
    "/tidegate.v1.RateLimiterHealth/ResetRateLimit",
    "/grpc.health.v1.Health/Check",
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
    "/tidegate.v1.RateLimiterConfig/UpdateRateLimit",
    "/tidegate.v1.RateLimiterConfig/DeleteRateLimit",
    "/tidegate.v1.RateLimiterConfig/ListRateLimits",
    "/tidegate.v1.RateLimiterHealth/GetHealthStatus",
    "/tidegate.v1.RateLimiterHealth/GetMetrics",
];
/// The documented codes.
const CODES: [Code; 8] = [
    Code::Ok,
    Code::InvalidArgument,
    Code::NotFound,
    Code::FailedPrecondition,
    Code::ResourceExhausted,
    Code::Unimplemented,
    Code::Unauthenticated,
    // There is no admin server.
    Code::Unavailable,
];
/// The bit of the first byte that says that the rest is a body with its framing; otherwise the rest is one message.
const IS_FRAMED: u8 = 0x80;

struct TestServer {
    engine: Arc<Engine<ManualClock>>,
    runtime: Runtime,
    channel: Channel,
}

/// The server of this process, on a thread of its own.
static SERVER: LazyLock<TestServer> = LazyLock::new(|| {
    let engine =
        Arc::new(Engine::for_simulation(10_000, ManualClock::at(Timestamp::from_nanos(1_700_000_000_000_000_000)), 7));
    engine.publish(Snapshot::parse(POLICY, Format::Toml).expect("a right policy")).expect("room for its limits");
    let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let listener = listen();
    let address = listener.local_addr().expect("bound");
    let http = Http { listener: listen(), authorize: Authorize::default() };
    let decider = Decider::new(Arc::clone(&engine)).expect("random numbers");
    // A single caller sends all requests, and may have all reservations.
    let decider = Arc::new(decider.with_caller_share(100));
    let admin = AdminApiClient::to("http://127.0.0.1:1", None).expect("a client");
    let settings = ListenerSettings { workers: 1, ..ListenerSettings::default() };
    let listeners = Listeners::new(decider, settings, http).grpc(Grpc { listener, admin });
    let current = || Builder::new_current_thread().enable_all().build().expect("a runtime");
    thread::spawn(move || {
        current().block_on(async { listeners.serve().expect("it listens").await.expect("it goes on") });
    });
    let runtime = current();
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
    let channel = runtime.block_on(async { endpoint.connect_lazy() });
    TestServer { engine, runtime, channel }
});

/// Sends `data` as a body: the first byte chooses the method, and whether the rest has its framing.
///
/// # Panics
///
/// If a property does not hold.
pub fn grpc(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else { return };
    let path = PATHS[usize::from(choice & !IS_FRAMED) % PATHS.len()];
    let body = if choice & IS_FRAMED == 0 {
        let length = u32::try_from(data.len()).expect("inputs are short").to_be_bytes();
        [&[0], &length[..], data].concat()
    } else {
        data.to_vec()
    };
    let allowed = || SERVER.engine.totals().allowed;
    let before = allowed();
    let (code, body) = SERVER.runtime.block_on(call(path, body));
    // The standard services come from a library, which answers malformed messages with `Internal`.
    let is_standard = path.starts_with("/grpc.");
    assert!(CODES.contains(&code) || is_standard && code == Code::Internal, "{path}: {code:?}");
    let is_for_admin = path.contains("Config/") || path.ends_with("/ResetRateLimit");
    assert!(code != Code::Unavailable || is_for_admin, "{path}");
    let messages = messages(&body);
    match (path, code) {
        (STREAM, _) => {
            for message in &messages {
                let response = CheckStreamResponse::decode(*message).expect("an answer");
                assert!(response.result.is_some());
            }
        }
        // Reflection is also a stream, and may have sent messages before the error.
        (_, code) if code != Code::Ok && path.contains("Reflection") => assert_eq!(allowed(), before),
        (_, code) if code != Code::Ok => assert_eq!((allowed(), messages.len()), (before, 0), "{path}: {code:?}"),
        (CHECK, _) => assert!(RateLimitResponse::decode(messages[0]).expect("an answer").remaining_tokens >= 0),
        (BATCH, _) => {
            let batch = BatchRateLimitResponse::decode(messages[0]).expect("answers");
            assert!(batch.responses.iter().all(|check| check.error.is_none() || !check.allowed));
        }
        _ => {}
    }
}

/// Makes a call, and returns the code and the body of the response.
async fn call(path: &str, body: Vec<u8>) -> (Code, Vec<u8>) {
    let mut channel = SERVER.channel.clone();
    poll_fn(|context| channel.poll_ready(context)).await.expect("it is open");
    let request = Request::post(path).header("content-type", "application/grpc");
    // Some methods pass the token to the admin server.
    let request = request.header("authorization", "Bearer anybody");
    let request = request.body(Body::new(Full::new(body.into()))).expect("a request");
    let (head, body) = channel.call(request).await.expect("an answer").into_parts();
    let body = body.collect().await.expect("to its end");
    let trailers = body.trailers().cloned().unwrap_or_default();
    let code = head.headers.get("grpc-status").or(trailers.get("grpc-status")).map(HeaderValue::as_bytes);
    (Code::from_bytes(code.expect("a code")), body.to_bytes().to_vec())
}

/// Splits a body into its messages.
fn messages(mut body: &[u8]) -> Vec<&[u8]> {
    let mut messages = Vec::new();
    while let Some((head, rest)) = body.split_first_chunk::<5>() {
        let [_, length @ ..] = *head;
        let (message, rest) = rest.split_at(u32::from_be_bytes(length) as usize);
        messages.push(message);
        body = rest;
    }
    assert!(body.is_empty(), "half a message");
    messages
}
