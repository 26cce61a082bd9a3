//! Tests of the body budget over real sockets: peers that hold all that they can get over HTTP, gRPC and the Redis
//! protocol, beside a well-behaved one.

use std::{
    convert::Infallible,
    io::Write,
    net::{self, Ipv4Addr, SocketAddr},
    ops::Deref,
    sync::Arc,
    time::Duration,
};

use futures_util::future::select_all;
use http::{HeaderValue, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::{
    body::{Bytes, Incoming},
    client::conn::http2::{self, SendRequest},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tidegate::RatedLimiter;
use tidegate_service::{
    DEFAULT_CALLER_SHARE, ListenerSettings, Timeouts,
    grpc::{
        AdminApiClient, Grpc,
        proto::tidegate::v1::{
            BatchRateLimitRequest, CheckStreamRequest, CheckStreamResponse, RateLimitRequest,
            rate_limiter_client::RateLimiterClient,
        },
    },
    http::Authorize,
    resp::Resp,
};
use tidegate_testkit::{PATIENCE, port::ReservedPort};
use tokio::{
    net::{TcpSocket, TcpStream},
    sync::mpsc,
    time::{sleep, timeout},
};
use tokio_stream::{StreamExt, wrappers::ReceiverStream};
use tonic::{Code, body::Body, transport::Endpoint};

use crate::{
    http::{
        HUNDRED,
        support::{Connection as HttpConnection, HttpReply, request},
        user,
    },
    process::{KEYS_MAX, Process, listen},
    resp::support::{Connection as RespConnection, Reply, array},
};

/// A period longer than any test.
pub(crate) const LONG: Duration = Duration::from_mins(10);

pub(crate) const MIB: usize = 1 << 20;
/// The size of a block of the budget. The first block of each body is free.
const BLOCK: usize = 16 << 10;
/// The part of the budget that a body of nearly a mebibyte holds. The share of a peer is enough for eight of them.
const NEARLY_MIB: usize = MIB - BLOCK;

/// A peer that takes all that it can get.
pub(crate) const HOSTILE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// A well-behaved peer.
pub(crate) const GOOD: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

const CHECK: &str = "/tidegate.v1.RateLimiter/CheckRateLimit";
const RESERVE: &str = "/tidegate.v1.RateLimiter/Reserve";
pub(crate) const BATCH: &str = "/tidegate.v1.RateLimiter/CheckRateLimitBatch";
pub(crate) const STREAM: &str = "/tidegate.v1.RateLimiter/CheckRateLimitStream";
const ENVOY: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// A server with all listeners, which ends with the test.
pub(crate) struct Server {
    process: Process,
    pub(crate) grpc: SocketAddr,
    pub(crate) resp: SocketAddr,
    _absent_admin: ReservedPort,
}

impl Deref for Server {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl Server {
    pub(crate) fn with(timeouts: &Timeouts) -> Self {
        Self::listening(ListenerSettings { timeouts: *timeouts, ..ListenerSettings::default() })
    }

    pub(crate) fn listening(settings: ListenerSettings) -> Self {
        Self::sharing(DEFAULT_CALLER_SHARE, settings)
    }

    /// Starts a server with this share for each caller.
    pub(crate) fn sharing(caller_share: u8, settings: ListenerSettings) -> Self {
        let absent_admin = ReservedPort::new();
        let admin = AdminApiClient::to(&format!("http://{}", absent_admin.address()), None).expect("a client");
        let ((listener, grpc), (resp_listener, resp)) = (listen(), listen());
        let process = Process::start_with(caller_share, settings, Authorize::default(), |doors, clock| {
            let throttle = Arc::new(RatedLimiter::with_groups(KEYS_MAX, clock));
            let of_resp = Resp { listener: resp_listener, throttle, operators: None };
            doors.grpc(Grpc { listener, admin }).resp(of_resp)
        });
        process.publish(HUNDRED);
        Self { process, grpc, resp, _absent_admin: absent_admin }
    }

    /// Returns how many bytes of the budget are taken.
    pub(crate) fn taken(&self) -> usize {
        usize::try_from(self.metric("tidegate_body_budget_bytes")).expect("a number of bytes")
    }

    /// Returns how many bodies were refused for this reason.
    pub(crate) fn refused(&self, reason: &str) -> u64 {
        self.metric(&format!(r#"tidegate_refused_bodies_total{{reason="{reason}"}}"#))
    }

    pub(crate) async fn resp_from(&self, source: Ipv4Addr) -> RespConnection {
        RespConnection::over(blocking(connect(source, self.resp).await))
    }

    /// Begins a check over HTTP whose body has this length. All of it is sent but the last byte, a blank.
    async fn begin_body(&self, source: Ipv4Addr, path: &str, bytes: usize) -> HttpConnection {
        let mut body = user("ada").into_bytes();
        body.resize(bytes, b' ');
        let whole = request(path, "", body);
        let mut stream = blocking(connect(source, self.http).await);
        // An error: a connection that is refused may have ended before all was sent.
        let _ = stream.write_all(&whole[..whole.len() - 1]);
        HttpConnection::over(stream)
    }

    /// Begins this many bodies of a mebibyte, which all have room.
    async fn begin_bodies(&self, source: Ipv4Addr, count: usize) -> Vec<HttpConnection> {
        let before = self.taken();
        let mut begun = Vec::new();
        for number in 1..=count {
            begun.push(self.begin_body(source, "/v1/check", MIB).await);
            eventually("a body is read", || self.taken() == before + number * NEARLY_MIB).await;
        }
        begun
    }

    /// Begins a command over the Redis protocol that holds as much of the budget as a body of a mebibyte. Returns its rest, too.
    async fn begin_command(&self, source: Ipv4Addr) -> (RespConnection, Vec<u8>) {
        let mut command = array(&[b"PING".to_vec(), vec![b'a'; 1_000_000]]);
        let rest = command.split_off(600_000);
        let connection = self.resp_from(source).await;
        // An error: a connection that is refused may have ended before all was sent.
        let _ = connection.socket().write_all(&command);
        (connection, rest)
    }

    /// Returns an HTTP/2 client with this flow-control window for each response.
    pub(crate) async fn calls_from(&self, source: Ipv4Addr, window_bytes: u32) -> SendRequest<Body> {
        let stream = TokioIo::new(connect(source, self.grpc).await);
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(window_bytes);
        let (calls, connection) = builder.handshake(stream).await.expect("it speaks HTTP/2");
        drop(tokio::spawn(connection));
        calls
    }

    /// Asserts that the well-behaved peer is decided by its limit, over HTTP and over gRPC, also with bodies that need room.
    pub(crate) async fn gives_others_their_quota(&self) {
        self.gives_others_their_quota_over_http().await;
        self.gives_others_their_quota_over_grpc().await;
        assert_eq!(self.metric(r#"tidegate_degraded_total{reason="overload"}"#), 0);
    }

    pub(crate) async fn gives_others_their_quota_over_http(&self) {
        let long = self.begin_body(GOOD, "/v1/check", 4 * BLOCK).await.send(" ");
        assert_eq!((long.status, long.json()["remaining"].as_u64()), (200, Some(99)), "a long body has room");
        let mut connection = HttpConnection::over(blocking(connect(GOOD, self.http).await));
        let answers: Vec<HttpReply> = (0..110).map(|_| connection.post("/v1/check", user("grace"))).collect();
        let [allowed, denied] =
            [200, 429].map(|status| answers.iter().filter(|answer| answer.status == status).count());
        assert_eq!((allowed, denied), (100, 10));
        assert!(answers.iter().all(|answer| answer.json()["degraded"].is_null()));
    }

    pub(crate) async fn gives_others_their_quota_over_grpc(&self) {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.grpc)).expect("an address");
        let channel = endpoint.local_address(Some(GOOD.into())).connect().await.expect("the server listens");
        let mut limiter = RateLimiterClient::new(channel);
        let (mut allowed, padding) = (0, "t".repeat(4 * BLOCK));
        for number in 0..110 {
            // Some bodies need room.
            let tier = if number % 10 == 0 { padding.clone() } else { String::new() };
            let answer = limiter.check_rate_limit(RateLimitRequest { tier, ..check_of("heidi") }).await;
            let answer = answer.expect("it is decided").into_inner();
            assert_eq!(answer.degraded, "");
            allowed += u32::from(answer.allowed);
        }
        assert_eq!(allowed, 100);
    }
}

/// Connects from an address of this machine.
pub(crate) async fn connect(source: Ipv4Addr, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind((source, 0).into()).expect("an address of this machine");
    let stream = socket.connect(to).await.expect("the server listens");
    stream.set_nodelay(true).expect("a socket");
    stream
}

pub(crate) fn blocking(stream: TcpStream) -> net::TcpStream {
    let stream = stream.into_std().expect("it is registered");
    stream.set_nonblocking(false).expect("a socket");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream
}

/// Waits until `is_so` returns true, while the clients of this test go on.
pub(crate) async fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let waiting = timeout(PATIENCE, async {
        while !is_so() {
            sleep(Duration::from_millis(20)).await;
        }
    });
    assert!(waiting.await.is_ok(), "waited a minute in vain: {what}");
}

pub(crate) fn check_of(user: &str) -> RateLimitRequest {
    RateLimitRequest { identifier: user.to_owned(), identifier_type: "user".to_owned(), ..RateLimitRequest::default() }
}

/// Returns the head of a message of this length.
fn head(length: usize) -> Vec<u8> {
    [&[0], &u32::try_from(length).expect("it is short").to_be_bytes()[..]].concat()
}

pub(crate) fn framed(message: &[u8]) -> Vec<u8> {
    [&head(message.len())[..], message].concat()
}

/// Returns a check on a stream, with this many bytes of padding.
pub(crate) fn padded_check(padding: usize) -> Vec<u8> {
    let asked = CheckStreamRequest { correlation_id: 1, request: Some(check_of("mallory")) };
    let mut message = asked.encode_to_vec();
    prost::encoding::bytes::encode(99, &vec![7; padding], &mut message);
    framed(&message)
}

/// Returns a body that begins with these bytes and does not end.
pub(crate) fn unfinished(bytes: Vec<u8>) -> Body {
    let first = tokio_stream::once(Ok::<_, Infallible>(Frame::data(Bytes::from(bytes))));
    Body::new(StreamBody::new(first.chain(tokio_stream::pending())))
}

pub(crate) async fn call(calls: &mut SendRequest<Body>, path: &str, body: Body) -> Response<Incoming> {
    calls.ready().await.expect("it is open");
    let request = Request::post(format!("http://localhost{path}")).header("content-type", "application/grpc");
    let request = request.header("te", "trailers").body(body).expect("a request");
    timeout(PATIENCE, calls.send_request(request)).await.expect("in time").expect("an answer")
}

/// Returns the code of a call, and the stable code of its error.
pub(crate) async fn end_of(answer: Response<Incoming>) -> (Code, String) {
    let (head, body) = answer.into_parts();
    let body = timeout(PATIENCE, body.collect()).await.expect("in time").expect("an end");
    let trailers = body.trailers().cloned().unwrap_or_default();
    let find = |name: &str| head.headers.get(name).or(trailers.get(name)).map(HeaderValue::as_bytes);
    let code = find("tidegate-code").unwrap_or_default();
    (Code::from_bytes(find("grpc-status").expect("a status")), String::from_utf8_lossy(code).into_owned())
}

/// Returns whether an HTTP request was refused for want of budget.
fn is_overload(answer: &HttpReply) -> bool {
    answer.status == 503 && answer.json()["code"] == "overload"
}

/// Returns whether a command was refused for want of budget.
fn is_overload_error(reply: &Reply) -> bool {
    matches!(reply, Reply::Error(said) if said.starts_with("ERR too many long commands"))
}

/// Returns the codes of a gRPC call that is refused for want of budget.
fn overload() -> (Code, String) {
    (Code::Unavailable, "overload".to_owned())
}

/// Returns the beginning of a message that holds as much of the budget as a body of a mebibyte.
fn nearly_a_message() -> Body {
    unfinished([head(MIB), vec![7; 1_040_000]].concat())
}

#[tokio::test]
async fn calls_with_unread_responses_leave_other_peers_their_quota() {
    const CONNECTIONS: usize = 305;
    let server = Server::with(&Timeouts { request: LONG, ..Timeouts::default() });
    let (mut clients, mut open) = (Vec::new(), Vec::new());
    for _ in 0..CONNECTIONS {
        let mut calls = server.calls_from(HOSTILE, 0).await;
        for _ in 0..2 {
            // The response to the check waits, and no more of the stream is read.
            let begun = [padded_check(0), head(MIB), vec![7; 130_000]].concat();
            open.push(call(&mut calls, STREAM, unfinished(begun)).await);
        }
        clients.push(calls);
    }
    eventually("the share of the peer is full", || server.refused("peer") + server.refused("dropped") > 0).await;
    assert!(server.taken() <= 8 * MIB, "{}", server.taken());
    server.gives_others_their_quota().await;
    assert!(server.taken() <= 8 * MIB, "{}", server.taken());
    drop((clients, open));
}

#[tokio::test]
async fn slow_bodies_leave_other_peers_their_quota() {
    const BODIES: usize = 67;
    let server = Server::with(&Timeouts { request: LONG, ..Timeouts::default() });
    let mut slow = Vec::new();
    for _ in 0..BODIES {
        slow.push(server.begin_body(HOSTILE, "/v1/check", MIB).await);
    }
    eventually("the share of the peer is full", || server.refused("peer") + server.refused("dropped") > 0).await;
    assert!(server.taken() <= 8 * MIB, "{}", server.taken());
    server.gives_others_their_quota().await;
}

/// First blocks take nothing of the budget: each connection has its own.
#[tokio::test]
async fn first_blocks_of_bodies_on_many_connections_leave_other_peers_their_quota() {
    const CONNECTIONS: usize = 200;
    const CALLS: usize = 120;
    let server = Server::with(&Timeouts { request: LONG, ..Timeouts::default() });
    let command = array(&[b"PING".to_vec(), vec![b'a'; BLOCK - 100]]);
    let (mut bodies, mut commands, mut clients, mut calls) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for number in 0..CONNECTIONS {
        bodies.push(server.begin_body(HOSTILE, "/v1/check", BLOCK).await);
        let connection = server.resp_from(HOSTILE).await;
        connection.socket().write_all(&command[..command.len() - 1]).expect("it is read");
        commands.push(connection);
        if number % 10 == 0 {
            let client = server.calls_from(HOSTILE, 65_535).await;
            for _ in 0..CALLS {
                let mut of_client = client.clone();
                let begun = [head(BLOCK), vec![7; 2_000]].concat();
                calls.push(tokio::spawn(async move { call(&mut of_client, CHECK, unfinished(begun)).await }));
            }
            clients.push(client);
        }
    }
    server.gives_others_their_quota().await;
    assert_eq!(server.taken(), 0, "they hold nothing of the budget");
    assert!(calls.iter().all(|call| !call.is_finished()), "they wait for the rest");
    assert!(bodies.iter_mut().all(|connection| [200, 429].contains(&connection.send(" ").status)), "they are decided");
}

#[tokio::test]
async fn a_stream_with_unread_responses_ends_when_its_message_is_overdue() {
    let server = Server::with(&Timeouts { request: Duration::from_millis(500), ..Timeouts::default() });
    let (mut clients, mut ends) = (Vec::new(), Vec::new());
    // How much of a message is read before its response waits is random.
    for _ in 0..20 {
        let mut calls = server.calls_from(HOSTILE, 0).await;
        let begun = [padded_check(0), head(MIB), vec![7; 60_000]].concat();
        let mut answer = call(&mut calls, STREAM, unfinished(begun)).await.into_body();
        clients.push(calls);
        ends.push(Box::pin(async move { answer.frame().await }));
    }
    let (end, _, others) = timeout(PATIENCE, select_all(ends)).await.expect("one is overdue");
    assert!(end.is_some_and(|frame| frame.is_err()), "it is reset, since it has no room for an answer");
    eventually("all that they held is given back", || server.taken() == 0).await;
    assert!(server.refused("overdue") > 0);
    let too_slow = r#"tidegate_bad_requests_total{door="grpc",code="too_slow"}"#;
    eventually("it is counted", || server.metric_if_counted(too_slow).is_some_and(|count| count > 0)).await;
    drop((clients, others));
}

#[tokio::test]
async fn a_batch_with_an_unread_response_ends_when_that_is_overdue() {
    let server = Server::with(&Timeouts { unread_replies: Duration::from_millis(500), ..Timeouts::default() });
    let requests = (0..10_000).map(|number| check_of(&(number % 100).to_string())).collect();
    let message = framed(&BatchRateLimitRequest { requests }.encode_to_vec());
    let mut calls = server.calls_from(HOSTILE, 1).await;
    let answer = call(&mut calls, BATCH, Body::new(Full::new(Bytes::from(message)))).await;
    eventually("it is overdue", || server.refused("overdue") == 1).await;
    let rest = timeout(PATIENCE, answer.into_body().collect()).await.expect("in time");
    assert!(rest.is_err(), "it is reset");
    eventually("what it held is given back", || server.taken() == 0).await;
}

#[tokio::test]
async fn a_peer_has_its_share_while_another_has_its_own() {
    let server = Server::with(&Timeouts { request: LONG, body_grace: LONG, ..Timeouts::default() });
    let mut held = server.begin_bodies(HOSTILE, 8).await;
    assert!(is_overload(&server.begin_body(HOSTILE, "/v1/check", MIB).await.answer()));
    let mut calls = server.calls_from(HOSTILE, 65_535).await;
    assert_eq!(end_of(call(&mut calls, CHECK, nearly_a_message()).await).await, overload());
    let (mut connection, _) = server.begin_command(HOSTILE).await;
    assert!(is_overload_error(&connection.reply()));
    assert_eq!((server.refused("peer"), server.refused("dropped")), (3, 0));
    let mut other = server.begin_bodies(GOOD, 1).await;
    assert_eq!((other[0].send(" ").status, held[0].send(" ").status), (200, 200));
}

#[tokio::test]
async fn a_connection_has_its_share_while_another_of_its_peer_has_its_own() {
    let server = Server::with(&Timeouts { request: LONG, body_grace: LONG, ..Timeouts::default() });
    let mut calls = server.calls_from(HOSTILE, 65_535).await;
    let mut held = Vec::new();
    for number in 1..=4 {
        held.push(call(&mut calls, STREAM, nearly_a_message()).await);
        eventually("a message is read", || server.taken() == number * NEARLY_MIB).await;
    }
    assert_eq!(end_of(call(&mut calls, STREAM, nearly_a_message()).await).await, overload());
    assert_eq!(server.refused("connection"), 1);
    let mut other = server.begin_bodies(HOSTILE, 1).await;
    assert_eq!(other[0].send(" ").status, 200);
}

#[tokio::test]
async fn the_oldest_body_of_a_peer_is_dropped_for_its_next_one_and_reports_it() {
    let server = Server::with(&Timeouts { request: LONG, body_grace: Duration::ZERO, ..Timeouts::default() });
    let (mut command, _) = server.begin_command(HOSTILE).await;
    eventually("a command is read", || server.taken() == NEARLY_MIB).await;
    let mut calls = server.calls_from(HOSTILE, 65_535).await;
    let stream = call(&mut calls, STREAM, nearly_a_message()).await;
    eventually("a message is read", || server.taken() == 2 * NEARLY_MIB).await;
    let check = tokio::spawn(async move { end_of(call(&mut calls, CHECK, nearly_a_message()).await).await });
    eventually("another message is read", || server.taken() == 3 * NEARLY_MIB).await;
    let mut bodies = server.begin_bodies(HOSTILE, 5).await;

    let mut next = vec![server.begin_body(HOSTILE, "/v1/check", MIB).await];
    assert!(is_overload_error(&command.reply()));
    next.push(server.begin_body(HOSTILE, "/v1/check", MIB).await);
    assert_eq!(end_of(stream).await, overload());
    next.push(server.begin_body(HOSTILE, "/v1/check", MIB).await);
    assert_eq!(check.await.expect("no panic"), overload());
    next.push(server.begin_body(HOSTILE, "/v1/check", MIB).await);
    assert!(is_overload(&bodies[0].answer()));
    assert_eq!(bodies[1].send(" ").status, 200, "it was not the oldest");
    assert!(next.iter_mut().all(|connection| connection.send(" ").status == 200), "they have the room");
    assert_eq!((server.refused("dropped"), server.refused("peer")), (4, 0));
}

#[tokio::test]
async fn eight_peers_that_fill_the_budget_make_room_for_a_peer_with_less() {
    let server = Server::with(&Timeouts { request: LONG, body_grace: LONG, ..Timeouts::default() });
    let mut crowd = Vec::new();
    for host in 20..28 {
        crowd.extend(server.begin_bodies(Ipv4Addr::new(127, 0, 0, host), 8).await);
    }
    let mut good = Vec::new();
    for _ in 0..4 {
        good.push(server.begin_body(GOOD, "/v1/check", MIB).await);
    }
    assert!(good.iter_mut().all(|connection| connection.send(" ").status == 200), "each has room");
    assert!(server.refused("dropped") > 0);
    assert_eq!(server.refused("budget"), 0);
    drop(crowd);
}

#[tokio::test]
async fn small_bodies_are_read_while_the_budget_is_full_and_long_ones_are_refused() {
    let server = Server::with(&Timeouts { request: LONG, body_grace: LONG, ..Timeouts::default() });
    let mut crowd = Vec::new();
    for host in 20..35 {
        crowd.extend(server.begin_bodies(Ipv4Addr::new(127, 0, 0, host), 4).await);
    }
    // No other peer has as much as this one, so none makes room for it. Less than two blocks are left.
    crowd.extend(server.begin_bodies(GOOD, 5).await);

    for path in ["/v1/check", "/v1/reserve", "/v1/check/batch", "/v1/settle", "/v1/refund"] {
        let mut connection = server.begin_body(GOOD, path, 4 * BLOCK).await;
        assert!(is_overload(&connection.answer()), "{path}");
    }
    let mut calls = server.calls_from(GOOD, 65_535).await;
    for path in [CHECK, RESERVE, BATCH, STREAM, ENVOY] {
        assert_eq!(end_of(call(&mut calls, path, nearly_a_message()).await).await, overload(), "{path}");
    }
    let (mut connection, _) = server.begin_command(GOOD).await;
    assert!(is_overload_error(&connection.reply()));
    assert_eq!(server.refused("budget"), 11);

    let mut connection = server.begin_body(GOOD, "/v1/check", BLOCK).await;
    assert_eq!(connection.send(" ").status, 200);
    let check = framed(&check_of("ada").encode_to_vec());
    let answer = call(&mut calls, CHECK, Body::new(Full::new(Bytes::from(check)))).await;
    assert_eq!(end_of(answer).await, (Code::Ok, String::new()));
    let (send, pieces) = mpsc::channel(1);
    let pieces = ReceiverStream::new(pieces).map(|piece: Vec<u8>| Ok::<_, Infallible>(Frame::data(Bytes::from(piece))));
    let mut message = padded_check(10_000);
    let rest = message.split_off(9_000);
    send.send(message).await.expect("it is read");
    let mut answer = call(&mut calls, STREAM, Body::new(StreamBody::new(pieces))).await.into_body();
    send.send(rest).await.expect("it is read");
    let frame = timeout(PATIENCE, answer.frame()).await.expect("in time").expect("one").expect("it goes on");
    let answer = CheckStreamResponse::decode(&frame.into_data().expect("an answer")[5..]).expect("a message");
    assert_eq!(answer.correlation_id, 1);
    let mut connection = server.resp_from(GOOD).await;
    let command = array(&[b"PING".to_vec(), vec![b'a'; 10_000]]);
    connection.write(&command[..9_000]);
    connection.write(&command[9_000..]);
    assert_eq!(connection.reply(), Reply::Bulk("a".repeat(10_000)));

    assert_eq!(server.metric(r#"tidegate_degraded_total{reason="overload"}"#), 0);
    assert_eq!(server.taken(), 65 * NEARLY_MIB, "they needed none of it");
    assert_eq!(crowd[0].send(" ").status, 200);
}
