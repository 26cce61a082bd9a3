//! Tests of the fair division of a thread's time over real sockets: a peer that keeps many connections busy over HTTP,
//! gRPC or the Redis protocol, beside a peer with a single connection.
//!
//! All of them charge one limit, so the remaining tokens show the order of the decisions.

use std::{
    convert::Infallible,
    net::SocketAddr,
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::Sender,
    },
};

use prost::Message;
use tidegate::{Identity, Request};
use tidegate_service::{
    ConnectionCaps, ListenerSettings, Timeouts,
    grpc::proto::tidegate::v1::{
        BatchRateLimitRequest, BatchRateLimitResponse, rate_limiter_client::RateLimiterClient,
    },
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
};
use tonic::transport::Endpoint;

use crate::{
    budget::{BATCH, GOOD, HOSTILE, LONG, Server, blocking, check_of, connect, eventually, framed},
    grpc::attacks::{DATA, END_HEADERS, END_STREAM, Frame, HEADERS, PREFACE, RawConnection, SETTINGS, fields, frame},
    http::{
        HUNDRED,
        support::{Connection as HttpConnection, request},
        user,
    },
    resp::support::{Reply, array},
};

/// Connections of the hostile peer over HTTP and the Redis protocol.
const CONNECTIONS: usize = 300;
/// Checks of each batch of the hostile peer, which one turn decides.
const TURN: usize = 64;
/// Batches of the hostile peer on each connection.
const BATCHES: usize = 12;
/// Connections of the hostile peer over gRPC, where each call has turns of its own.
const GRPC_CONNECTIONS: usize = 20;
/// Calls of the hostile peer on each gRPC connection.
const CALLS: usize = 50;
/// Concurrent calls of the hostile peer on each gRPC connection, where it waits for their responses.
const CALLS_AT_ONCE: usize = 10;
/// Concurrent batches of the hostile peer on each HTTP connection, where it waits for their responses.
const AHEAD: usize = 4;
/// Checks of the well-behaved peer, which it sends at once. After each 128 of them others have their turns.
const CHECKS: usize = 1_000;
/// The limit, which is not used up.
const LIMIT: u64 = 1_000_000;

/// A server with one thread at each listener.
struct Target(Server);

impl Deref for Target {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.0
    }
}

impl Target {
    fn start() -> Self {
        // Only the threads of the listeners read the clock.
        let timeouts = Timeouts { idle: LONG, health_sample: LONG, ..Timeouts::default() };
        let connections = ConnectionCaps { peer: CONNECTIONS, ..ConnectionCaps::default() };
        let server =
            Server::listening(ListenerSettings { workers: 1, timeouts, connections, ..ListenerSettings::default() });
        server.publish(&HUNDRED.replace("100", &LIMIT.to_string()));
        Self(server)
    }

    /// Returns how many checks were decided.
    fn decided(&self) -> u64 {
        let ada = [Identity::new("user", "ada").expect("valid")];
        let left = self.engine.peek(&Request::new(&ada).expect("valid")).remaining();
        LIMIT - left.expect("a limit")
    }

    /// Opens this many connections of the hostile peer. Each sends `opening`, and waits for a response if that is not empty.
    async fn connect_hostile(to: SocketAddr, count: usize, opening: &[u8]) -> Vec<TcpStream> {
        let mut connections = Vec::new();
        for _ in 0..count {
            let mut connection = connect(HOSTILE, to).await;
            if !opening.is_empty() {
                connection.write_all(opening).await.expect("it is read");
                assert_ne!(connection.read(&mut [0; 1_000]).await.expect("an answer"), 0);
            }
            connections.push(connection);
        }
        connections
    }

    /// Blocks the thread of a listener at its next check, until the returned value is dropped, and meanwhile sends
    /// `requests` on all connections. They have less than 48 KiB, so the system buffers them.
    async fn flood(&self, connections: &mut [TcpStream], requests: &[u8]) -> Sender<Infallible> {
        let held = self.hold_next_reading();
        for connection in connections {
            connection.write_all(requests).await.expect("the system takes them");
        }
        eventually("the thread stands still", || self.is_reading_held()).await;
        held
    }

    /// Asserts that another peer did not wait for the hostile one, all of whose checks came first: few of those were
    /// decided before the other peer's last one. `left` has the remaining tokens after each check of the other peer,
    /// and `hostile` is the number of checks of the hostile peer.
    async fn assert_fair(&self, left: &[u64], hostile: usize) {
        let hostile = hostile as u64;
        assert_eq!(left.len(), CHECKS);
        let (first, last) = (left[0], left[CHECKS - 1]);
        let meanwhile = first - last - (CHECKS as u64 - 1);
        let before = LIMIT - first;
        assert!(before > 1, "the hostile peer had its turns, too");
        assert!(before < hostile / 2, "{before} of {hostile} were decided before the first");
        assert!(meanwhile < hostile / 8, "{meanwhile} of {hostile} were decided meanwhile");
        eventually("the hostile peer had no less", || self.decided() >= hostile + CHECKS as u64).await;
    }
}

fn batch(name: &str, checks: usize) -> Vec<u8> {
    let checks = vec![user(name); checks].join(",");
    request("/v1/check/batch", "Content-Type: application/json\r\n", format!(r#"{{"checks":[{checks}]}}"#))
}

/// Returns a call for a batch on this stream of a connection. Its message fits into a frame of 16 KiB.
fn grpc_batch(stream: u32, checks: usize) -> Vec<u8> {
    let message = framed(&BatchRateLimitRequest { requests: vec![check_of("ada"); checks] }.encode_to_vec());
    let head = frame(HEADERS, END_HEADERS, stream, &fields(BATCH, &[]));
    [head, frame(DATA, END_STREAM, stream, &message)].concat()
}

#[tokio::test]
async fn busy_connections_leave_another_peer_its_turns_over_http() {
    let target = Target::start();
    let mut good = HttpConnection::over(blocking(connect(GOOD, target.http).await));
    assert_eq!(good.send(batch("ada", 1)).status, 200);
    let mut attack = Target::connect_hostile(target.http, CONNECTIONS, b"").await;
    let held = target.flood(&mut attack, &batch("ada", TURN).repeat(BATCHES)).await;
    good.write(batch("ada", CHECKS));
    drop(held);
    let answer = good.answer().json();
    let decisions = answer["decisions"].as_array().expect("a list");
    let left: Vec<u64> = decisions.iter().map(|told| told["remaining"].as_u64().expect("a number")).collect();
    target.assert_fair(&left, CONNECTIONS * BATCHES * TURN).await;
}

#[tokio::test]
async fn busy_connections_leave_another_peer_its_turns_over_grpc() {
    let target = Target::start();
    let opening = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
    let mut good = RawConnection::over(blocking(connect(GOOD, target.grpc).await));
    assert_eq!(good.frame().expect("its settings").kind, SETTINGS);
    let mut attack = Target::connect_hostile(target.grpc, GRPC_CONNECTIONS, &opening).await;
    let calls: Vec<u8> = (0..CALLS as u32).flat_map(|number| grpc_batch(2 * number + 1, TURN)).collect();
    let held = target.flood(&mut attack, &calls).await;
    good.write(&grpc_batch(1, CHECKS));
    drop(held);
    let (mut message, mut heads) = (Vec::new(), 0);
    // The last frame has the status.
    while heads < 2 {
        let Frame { kind, payload } = good.frame().expect("an answer");
        match kind {
            HEADERS => heads += 1,
            DATA => message.extend(payload),
            _ => {}
        }
    }
    let told = BatchRateLimitResponse::decode(&message[5..]).expect("a message").responses;
    let left: Vec<u64> = told.iter().map(|told| told.remaining_tokens.try_into().expect("no debt")).collect();
    target.assert_fair(&left, GRPC_CONNECTIONS * CALLS * TURN).await;
}

#[tokio::test]
async fn busy_connections_leave_another_peer_its_turns_over_the_redis_protocol() {
    let target = Target::start();
    let check = array(&["TIDEGATE.CHECK", "user", "ada", "*"]);
    let mut good = target.resp_from(GOOD).await;
    good.ask("PING");
    let mut attack = Target::connect_hostile(target.resp, CONNECTIONS, b"").await;
    let held = target.flood(&mut attack, &check.repeat(TURN * BATCHES)).await;
    good.write(check.repeat(CHECKS));
    drop(held);
    let left = (0..CHECKS).map(|_| match good.reply() {
        // The reply of `CL.THROTTLE`: whether it is limited, the limit, and the remaining tokens.
        Reply::Array(told) if let [_, _, Reply::Integer(left), ..] = told[..] => u64::try_from(left).expect("no debt"),
        other => panic!("{other:?}"),
    });
    target.assert_fair(&left.collect::<Vec<_>>(), CONNECTIONS * BATCHES * TURN).await;
}

/// A connection that is to be refused does not wait for the turns of those that are open.
#[tokio::test]
async fn a_busy_peer_is_refused_more_connections_at_once() {
    let target = Target::start();
    let mut attack = Target::connect_hostile(target.http, CONNECTIONS, b"").await;
    let held = target.flood(&mut attack, &batch("ada", TURN).repeat(BATCHES)).await;
    drop(held);
    let mut meanwhile = Vec::new();
    for _ in 0..5 {
        let begin = target.decided();
        let refusal = HttpConnection::over(blocking(connect(HOSTILE, target.http).await)).answer();
        assert_eq!(refusal.status, 503);
        meanwhile.push(target.decided() - begin);
    }
    assert!(target.decided() < (CONNECTIONS * BATCHES * TURN) as u64, "its connections are busy");
    // This thread may wait for a processor in some of the attempts. In the queue of the peer it would wait for all connections.
    let least = meanwhile.iter().min().expect("some");
    assert!(*least < (CONNECTIONS * TURN / 4) as u64, "{least} checks were decided meanwhile");
}

/// Writes these requests repeatedly and reads the responses, on many connections of the hostile peer.
async fn keep_busy(to: SocketAddr, count: usize, requests: &Arc<[u8]>, answers: &Arc<AtomicUsize>) -> JoinSet<()> {
    let mut busy = JoinSet::new();
    for _ in 0..count {
        let (mut connection, requests, answers) =
            (connect(HOSTILE, to).await, Arc::clone(requests), Arc::clone(answers));
        busy.spawn(async move {
            let mut room = vec![0; 64 << 10];
            while connection.write_all(&requests).await.is_ok() {
                match connection.read(&mut room).await {
                    Ok(bytes) if bytes > 0 => answers.fetch_add(1, Ordering::Relaxed),
                    _ => break,
                };
            }
        });
    }
    busy
}

/// Sends one batch after the other over gRPC, by several concurrent calls on many connections of the hostile peer.
async fn keep_busy_over_grpc(to: SocketAddr, answers: &Arc<AtomicUsize>) -> JoinSet<()> {
    let batch = BatchRateLimitRequest { requests: vec![check_of("mallory"); TURN] };
    let mut busy = JoinSet::new();
    for _ in 0..GRPC_CONNECTIONS {
        let endpoint = Endpoint::from_shared(format!("http://{to}")).expect("an address");
        let channel = endpoint.local_address(Some(HOSTILE.into())).connect().await.expect("the server listens");
        for _ in 0..CALLS_AT_ONCE {
            let mut limiter = RateLimiterClient::new(channel.clone());
            let (batch, answers) = (batch.clone(), Arc::clone(answers));
            busy.spawn(async move {
                while limiter.check_rate_limit_batch(batch.clone()).await.is_ok() {
                    answers.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    }
    busy
}

/// Over HTTP and the Redis protocol the hostile peer sends further requests before it has the responses.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn busy_connections_leave_another_peer_its_quota() {
    let target = Target::start();
    target.publish(HUNDRED);
    let [answers, calls] = [Arc::default(), Arc::default()];
    let batch = batch("mallory", TURN).repeat(AHEAD);
    let command = array(&["TIDEGATE.CHECK", "user", "mallory", "*"]).repeat(TURN);
    let mut busy = [
        keep_busy(target.http, CONNECTIONS / 3, &batch.into(), &answers).await,
        keep_busy(target.resp, CONNECTIONS / 3, &command.into(), &answers).await,
        keep_busy_over_grpc(target.grpc, &calls).await,
    ];
    let count = || [&answers, &calls].map(|count| count.load(Ordering::Relaxed));
    eventually("its connections are busy", || count().into_iter().all(|answered| answered > CONNECTIONS)).await;
    let before = count();
    target.gives_others_their_quota().await;
    let go_on = || count().into_iter().zip(before).all(|(answered, before)| answered > before + CONNECTIONS);
    eventually("they go on", go_on).await;
    assert!(busy.iter_mut().all(|busy| busy.try_join_next().is_none()), "none was closed");
}
