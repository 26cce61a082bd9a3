//! Whatever body is sent to the gRPC door is answered with a code that its document has, never with a fault of the server; what
//! is refused charges nothing, and nothing panics.

use std::{
    future::poll_fn,
    net::{Ipv4Addr, TcpListener},
    sync::{Arc, LazyLock},
    thread,
};

use http::{HeaderValue, Request};
use http_body_util::{BodyExt, Full};
use prost::Message;
use tidegate::{Engine, Snapshot, clock::ManualClock, formats::Format};
use tidegate_service::{
    Decider, Doors, Settings,
    grpc::{
        Admin, Grpc,
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
/// Where bodies go.
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
/// What a caller may be told.
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
/// Of the first byte: the rest is a body as it stands, its framing too; else it is one message.
const IS_FRAMED: u8 = 0x80;

struct Door {
    engine: Arc<Engine<ManualClock>>,
    runtime: Runtime,
    channel: Channel,
}

/// One for the process, on a thread of its own.
static DOOR: LazyLock<Door> = LazyLock::new(|| {
    let engine = Arc::new(Engine::for_simulation(10_000, ManualClock::at(1_700_000_000_000_000_000), 7));
    engine.publish(Snapshot::parse(POLICY, Format::Toml).expect("a right policy")).expect("room for its limits");
    let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let listener = listen();
    let address = listener.local_addr().expect("bound");
    let http = Http { listener: listen(), authorize: Authorize::default() };
    let decider = Decider::new(Arc::clone(&engine)).expect("random numbers");
    // One caller sends everything, and may have all places for reservations.
    let decider = Arc::new(decider.with_caller_share(100));
    let admin = Admin::to("http://127.0.0.1:1", None).expect("a client");
    let settings = Settings { workers: 1, ..Settings::default() };
    let doors = Doors::new(decider, settings, http).grpc(Grpc { listener, admin });
    let current = || Builder::new_current_thread().enable_all().build().expect("a runtime");
    thread::spawn(move || current().block_on(async { doors.serve().expect("it listens").await.expect("it goes on") }));
    let runtime = current();
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
    let channel = runtime.block_on(async { endpoint.connect_lazy() });
    Door { engine, runtime, channel }
});

/// Sends `data` as a body: the first byte chooses to which call, and whether it has its framing.
///
/// # Panics
///
/// Where something does not hold.
pub fn grpc(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else { return };
    let path = PATHS[usize::from(choice & !IS_FRAMED) % PATHS.len()];
    let body = if choice & IS_FRAMED == 0 {
        let length = u32::try_from(data.len()).expect("inputs are short").to_be_bytes();
        [&[0], &length[..], data].concat()
    } else {
        data.to_vec()
    };
    let allowed = || DOOR.engine.totals().allowed;
    let before = allowed();
    let (code, said) = DOOR.runtime.block_on(ask(path, body));
    // The standard services are a library's, which says so of bytes that are no message.
    let is_standard = path.starts_with("/grpc.");
    assert!(CODES.contains(&code) || is_standard && code == Code::Internal, "{path}: {code:?}");
    let is_for_admin = path.contains("Config/") || path.ends_with("/ResetRateLimit");
    assert!(code != Code::Unavailable || is_for_admin, "{path}");
    let messages = messages(&said);
    match (path, code) {
        (STREAM, _) => {
            for message in &messages {
                let told = CheckStreamResponse::decode(*message).expect("an answer");
                assert!(told.result.is_some());
            }
        }
        // A stream too: it may have answered some.
        (_, code) if code != Code::Ok && path.contains("Reflection") => assert_eq!(allowed(), before),
        (_, code) if code != Code::Ok => assert_eq!((allowed(), messages.len()), (before, 0), "{path}: {code:?}"),
        (CHECK, _) => assert!(RateLimitResponse::decode(messages[0]).expect("an answer").remaining_tokens >= 0),
        (BATCH, _) => {
            let told = BatchRateLimitResponse::decode(messages[0]).expect("answers");
            assert!(told.responses.iter().all(|told| told.error.is_none() || !told.allowed));
        }
        _ => {}
    }
}

/// The code of the answer, and its body.
async fn ask(path: &str, body: Vec<u8>) -> (Code, Vec<u8>) {
    let mut channel = DOOR.channel.clone();
    poll_fn(|context| channel.poll_ready(context)).await.expect("it is open");
    let request = Request::post(path).header("content-type", "application/grpc");
    // Which some calls take to the admin server.
    let request = request.header("authorization", "Bearer anybody");
    let request = request.body(Body::new(Full::new(body.into()))).expect("a request");
    let (head, body) = channel.call(request).await.expect("an answer").into_parts();
    let body = body.collect().await.expect("to its end");
    let trailers = body.trailers().cloned().unwrap_or_default();
    let code = head.headers.get("grpc-status").or(trailers.get("grpc-status")).map(HeaderValue::as_bytes);
    (Code::from_bytes(code.expect("a code")), body.to_bytes().to_vec())
}

/// The messages of a body.
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
