//! Attacks on HTTP/2 and on gRPC calls, written frame by frame where no client library sends them. Each is refused as
//! it must be, while a caller at another address gets exactly its quota.

use std::{
    future::poll_fn,
    io::{ErrorKind, Read, Write},
    iter,
    net::{SocketAddr, TcpStream},
    thread,
    time::Duration,
};

use http::Request;
use http_body_util::Full;
use hyper::body::Bytes;
use prost::Message;
use tidegate_service::{ListenerSettings, Timeouts, grpc::proto::tidegate::v1::rate_limiter_client::RateLimiterClient};
use tidegate_testkit::{
    PATIENCE,
    hostile::{self, beside},
};
use tokio::runtime::{self, Runtime};
use tonic::{
    Code,
    body::Body,
    codegen::Service,
    transport::{Channel, Endpoint},
};

use super::{
    HUNDRED,
    support::{Server, user},
};
use crate::tokens::{FALSE_TOKENS, TOKEN, settings_with_token};

const CHECK: &str = "/tidegate.v1.RateLimiter/CheckRateLimit";
/// The user whose quota is checked: a charge by an attack would show there.
const GRACE: &str = "grace";

/// The preface of a connection.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Types of frames (RFC 9113).
pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

/// Flags of frames.
pub(crate) const END_STREAM: u8 = 1;
const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// Codes of errors.
const PROTOCOL_ERROR: u32 = 1;
const CANCEL: u32 = 8;
const ENHANCE_YOUR_CALM: u32 = 11;

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("it is short").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Returns a field in HPACK without indexing.
fn field(name: &str, value: &str) -> Vec<u8> {
    let length = |text: &str| u8::try_from(text.len()).ok().filter(|length| *length < 0x7f).expect("it is short");
    [&[0, length(name)], name.as_bytes(), &[length(value)], value.as_bytes()].concat()
}

/// Returns the fields of a call, and these further ones.
pub(crate) fn fields(path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let usual = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    usual.iter().chain(more).flat_map(|(name, value)| field(name, value)).collect()
}

/// Returns the frame with the head of a check, behind which its message may follow.
fn head(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, &fields(CHECK, &[]))
}

/// Returns the message of a check.
fn check_of(name: &str) -> Vec<u8> {
    let message = user(name).encode_to_vec();
    let length = u32::try_from(message.len()).expect("it is short").to_be_bytes();
    [&[0], &length[..], &message[..]].concat()
}

/// A connection on which a test writes frames.
pub(crate) struct RawConnection(TcpStream);

pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) payload: Vec<u8>,
}

impl RawConnection {
    /// Connects from the address of the hostile caller.
    fn to(address: SocketAddr) -> Self {
        Self::over(hostile::connect(address))
    }

    pub(crate) fn over(stream: TcpStream) -> Self {
        let mut connection = Self(stream);
        connection.write(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat());
        connection
    }

    pub(crate) fn write(&mut self, frames: &[u8]) {
        // An error: the server has ended the connection before all was sent.
        let _ = self.0.write_all(frames);
    }

    /// Reads a frame; `None` where the server has ended the connection.
    pub(crate) fn frame(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        if let Err(error) = self.0.read_exact(&mut head) {
            let is_end = matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset);
            assert!(is_end, "it is not ended: {error}");
            return None;
        }
        let [first, second, third, kind, ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, first, second, third]) as usize];
        self.0.read_exact(&mut payload).expect("as long as it says");
        Some(Frame { kind, payload })
    }

    /// Returns the next frame that answers a call, or ends it or the connection.
    fn answer(&mut self) -> Frame {
        let mut frames = iter::from_fn(|| self.frame());
        frames.find(|frame| matches!(frame.kind, HEADERS | RST_STREAM | GOAWAY)).expect("an answer")
    }

    /// Returns the code with which the server ends the connection; `None` where it ends without one.
    fn end(&mut self) -> Option<u32> {
        let frames = iter::from_fn(|| self.frame());
        let last = frames.filter(|frame| frame.kind == GOAWAY).last()?;
        // The number of the last stream stands before the code.
        Some(u32::from_be_bytes(last.payload[4..8].try_into().expect("four bytes")))
    }
}

fn runtime() -> Runtime {
    runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn endpoint(address: SocketAddr) -> Endpoint {
    Endpoint::from_shared(format!("http://{address}")).expect("an address").timeout(PATIENCE)
}

/// Asserts that [`GRACE`] is decided by its limit alone, on connections of both worker threads.
fn gets_its_quota(address: SocketAddr) {
    runtime().block_on(async {
        let mut limiters = Vec::new();
        for _ in 0..4 {
            limiters.push(RateLimiterClient::new(endpoint(address).connect().await.expect("the server listens")));
        }
        for number in 0..110 {
            limiters.rotate_left(1);
            let mut check = tonic::Request::new(user(GRACE));
            check.metadata_mut().insert("x-tidegate-token", TOKEN.parse().expect("text"));
            let answer = limiters[0].check_rate_limit(check).await.expect("it is decided").into_inner();
            assert_eq!((answer.allowed, answer.degraded.as_str()), (number < 100, ""), "check {number}");
        }
    });
}

/// Returns the heads of `count` calls, each followed by the frame that `then` makes for its stream.
fn heads(count: u32, then: impl Fn(u32) -> Vec<u8>) -> Vec<u8> {
    (0..count).map(|number| 2 * number + 1).flat_map(|stream| [head(stream), then(stream)].concat()).collect()
}

/// Returns floods of frames, each with the code with which the server ends its connection.
fn floods() -> [(&'static str, Vec<u8>, u32); 7] {
    let reset = |stream| frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes());
    let overflow = |stream| frame(WINDOW_UPDATE, 0, stream, &0x7fff_ffff_u32.to_be_bytes());
    let open_head = frame(HEADERS, 0, 1, &fields(CHECK, &[]));
    let small = frame(CONTINUATION, 0, 1, &field("x-more", "more"));
    let large = frame(CONTINUATION, 0, 1, &field("x-more", &"m".repeat(100)).repeat(140));
    // A field of 3,000 bytes, which is added to the table and then named by its index.
    let bomb =
        [&fields(CHECK, &[])[..], &[0x40, 1, b'x', 0x7f, 0xb9, 0x16], "m".repeat(3_000).as_bytes(), &[0xbe; 10_000]]
            .concat();
    [
        ("calls that are reset at once", heads(400, reset), ENHANCE_YOUR_CALM),
        ("calls that the server has to reset", heads(1_100, overflow), ENHANCE_YOUR_CALM),
        ("a head that goes on and on", [open_head.clone(), small.repeat(1_000)].concat(), ENHANCE_YOUR_CALM),
        ("a long head that goes on and on", [open_head, large.repeat(20)].concat(), ENHANCE_YOUR_CALM),
        ("a head that is long when it is read", frame(HEADERS, END_HEADERS, 1, &bomb), ENHANCE_YOUR_CALM),
        ("data without any", [head(1), frame(DATA, 0, 1, &[]).repeat(1_000)].concat(), ENHANCE_YOUR_CALM),
        ("acknowledgements of nothing", frame(SETTINGS, ACK, 0, &[]).repeat(1_000), PROTOCOL_ERROR),
    ]
}

#[test]
fn a_flood_ends_only_its_own_connection() {
    let server = Server::with(HUNDRED);
    let floods = floods();
    let attack = || {
        for (what, frames, code) in &floods {
            let mut connection = RawConnection::to(server.address);
            connection.write(frames);
            assert_eq!(connection.end(), Some(*code), "{what}");
        }
    };
    beside(|| gets_its_quota(server.address), attack);
    assert_eq!(server.engine.totals().allowed, 100);
}

/// The server acknowledges each of these frames before it reads on. A connection without a call is not kept, either.
#[test]
fn a_flood_whose_acknowledgements_are_not_read_stops_and_ends() {
    /// More bytes than the system buffers in both directions.
    const BYTES_MAX: usize = 64 << 20;
    // The floods end with this timeout, for which the connections of the caller beside them must not be idle.
    let timeouts = Timeouts { idle: Duration::from_secs(5), linger: Duration::from_secs(1), ..Timeouts::default() };
    let server = Server::listening(HUNDRED, ListenerSettings { timeouts, ..ListenerSettings::default() });
    let address = server.address;
    let flood = |frame: Vec<u8>| {
        let mut stream = hostile::connect_narrow(address);
        stream.write_all(PREFACE).expect("it is read");
        let (much, mut sent) = (frame.repeat(1_000), 0);
        loop {
            match stream.write(&much[sent % much.len()..]) {
                Ok(bytes) => sent += bytes,
                Err(error) => break error.kind(),
            }
            assert!(sent < BYTES_MAX, "it is read on");
        }
    };
    let settings = frame(SETTINGS, 0, 0, &[]);
    let pings = [settings.clone(), frame(PING, 0, 0, &[0; 8])].concat();
    thread::scope(|scope| {
        let floods = [settings, pings].map(|frames| scope.spawn(move || flood(frames)));
        gets_its_quota(address);
        for flood in floods {
            let end = flood.join().expect("it is not read on");
            assert!(matches!(end, ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{end}");
        }
    });
}

#[test]
fn a_call_that_http_1_would_read_differently_is_refused() {
    let server = Server::with(HUNDRED);
    let message = |name| frame(DATA, END_STREAM, 1, &check_of(name));
    let length = check_of(GRACE).len().to_string();
    let forms = [
        fields(CHECK, &[("transfer-encoding", "chunked")]),
        fields(CHECK, &[("connection", "keep-alive")]),
        fields(CHECK, &[("proxy-connection", "keep-alive")]),
        fields(CHECK, &[("keep-alive", "timeout=5")]),
        fields(CHECK, &[("upgrade", "h2c")]),
        fields(CHECK, &[("te", "gzip")]),
        fields(CHECK, &[("content-length", "0")]),
        fields(CHECK, &[("content-length", "1")]),
        fields(CHECK, &[("content-length", "1000")]),
        fields(CHECK, &[("content-length", "+5")]),
        fields(CHECK, &[("content-length", &*length), ("content-length", "1")]),
        fields(CHECK, &[("X-Capital", "a")]),
        fields(CHECK, &[("x-a", "b\r\ncontent-length: 0")]),
        fields(CHECK, &[("x-a: b\r\nx-c", "d")]),
        fields(CHECK, &[("x a", "b")]),
        fields(CHECK, &[(":path", CHECK)]),
        fields(CHECK, &[(":authority", "tidegate")]),
        fields(CHECK, &[(":status", "200")]),
        fields(&format!("{CHECK} HTTP/1.1\r\nx-a: b"), &[]),
        fields(&format!("{CHECK} "), &[]),
        fields("", &[]),
    ];
    let attack = || {
        for fields in &forms {
            let mut connection = RawConnection::to(server.address);
            connection.write(&[frame(HEADERS, END_HEADERS, 1, fields), message(GRACE)].concat());
            assert_ne!(connection.answer().kind, HEADERS, "{}", fields.escape_ascii());
        }
    };
    beside(|| gets_its_quota(server.address), attack);
    // A correct call is answered.
    let mut connection = RawConnection::to(server.address);
    connection.write(&[head(1), message("mallory")].concat());
    assert_eq!(connection.answer().kind, HEADERS);
    assert_eq!(server.engine.totals().allowed, 101);
}

/// Sends a check of the hostile caller to this path with these headers, and returns the code with which it is refused.
async fn refusal(channel: &mut Channel, path: &str, headers: &[(&str, &str)]) -> Code {
    let request = Request::post(path).header("content-type", "application/grpc");
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    let request = request.body(Body::new(Full::new(Bytes::from(check_of(GRACE))))).expect("a request");
    poll_fn(|context| channel.poll_ready(context)).await.expect("it is open");
    let answer = channel.call(request).await.expect("an answer");
    let code = answer.headers().get("grpc-status").expect("a refusal, which has no body");
    Code::from_bytes(code.as_bytes())
}

#[test]
fn no_spelling_of_a_path_or_a_token_passes_without_the_token() {
    let server = Server::listening(HUNDRED, settings_with_token());
    let paths = [
        (CHECK, Code::Unauthenticated),
        ("/tidegate.v1.RateLimiter/CheckRateLimit?/grpc.health.v1.Health/Check", Code::Unauthenticated),
        ("//tidegate.v1.RateLimiter/CheckRateLimit", Code::Unimplemented),
        ("/tidegate.v1.RateLimiter//CheckRateLimit", Code::Unimplemented),
        ("/tidegate.v1.RateLimiter/CheckRateLimit/", Code::Unimplemented),
        ("/tidegate.v1.RateLimiter/CheckRateLimit%00", Code::Unimplemented),
        ("/tidegate.v1.RateLimiter/CheckRateLimit;/grpc.health.v1.Health/Check", Code::Unimplemented),
        ("/tidegate.v1.RateLimiter%2FCheckRateLimit", Code::Unimplemented),
        ("/%74idegate.v1.RateLimiter/CheckRateLimit", Code::Unimplemented),
        ("/tidegate.v1.ratelimiter/checkratelimit", Code::Unimplemented),
        ("/grpc.health.v1.Health/../tidegate.v1.RateLimiter/CheckRateLimit", Code::Unimplemented),
        ("/tidegate.v1.RateLimiter/../grpc.health.v1.Health/Check", Code::Unimplemented),
        // A method of another service.
        ("/tidegate.v1.RateLimiter/Check", Code::Unimplemented),
        ("/grpc.health.v1.Health/CheckRateLimit", Code::Unimplemented),
    ];
    let (bearer, wrong) = (format!("Bearer {TOKEN}"), format!("Bearer {}", FALSE_TOKENS[0]));
    let (two, basic, cookie) =
        (format!("{bearer}, {wrong}"), format!("Basic {TOKEN}"), format!("x-tidegate-token={TOKEN}"));
    let bearers = FALSE_TOKENS.map(|like| format!("Bearer {like}"));
    let mut headers = vec![
        // Of several tokens the first counts.
        vec![("authorization", &*wrong), ("authorization", &*bearer)],
        vec![("x-tidegate-token", FALSE_TOKENS[0]), ("x-tidegate-token", TOKEN)],
        vec![("authorization", &*two)],
        vec![("authorization", &*basic)],
        vec![("authorization", TOKEN)],
        vec![("proxy-authorization", &*bearer)],
        vec![("cookie", &*cookie)],
        // The token in base64, as gRPC encodes binary metadata.
        vec![("x-tidegate-token-bin", "bW9ybmluZy1zdGFyLTAwMDE")],
    ];
    headers.extend(FALSE_TOKENS.map(|like| vec![("x-tidegate-token", like)]));
    headers.extend(bearers.iter().map(|like| vec![("authorization", &**like)]));
    let runtime = runtime();
    let from_there = endpoint(server.address).local_address(Some(hostile::ADDRESS.into()));
    let mut channel = runtime.block_on(from_there.connect()).expect("the server listens");
    let attack = || {
        runtime.block_on(async {
            for (path, code) in paths {
                assert_eq!(refusal(&mut channel, path, &[]).await, code, "{path}");
            }
            for headers in &headers {
                assert_eq!(refusal(&mut channel, CHECK, headers).await, Code::Unauthenticated, "{headers:?}");
            }
        });
    };
    beside(|| gets_its_quota(server.address), attack);
    assert_eq!(server.engine.totals().allowed, 100);
}
