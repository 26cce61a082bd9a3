//! Tests of long batches that wait while others of their peer are decided: refused meanwhile, or abandoned by their callers.

use std::{convert::Infallible, net::Ipv4Addr, sync::mpsc::Sender, time::Duration};

use http::Response;
use http_body_util::Full;
use hyper::{
    body::{Bytes, Incoming},
    client::conn::http2::SendRequest,
};
use prost::Message;
use tidegate_service::{Timeouts, grpc::proto::tidegate::v1::BatchRateLimitRequest};
use tokio::task::JoinHandle;
use tonic::{Code, body::Body};

use crate::{
    budget::{BATCH, GOOD, HOSTILE, LONG, MIB, Server, blocking, call, check_of, connect, end_of, eventually, framed},
    http::{
        support::{Connection as HttpConnection, request},
        user,
    },
};

/// Checks of a batch whose response takes all that a peer has for responses that are being made.
const CHECKS: usize = 10_000;

/// A server with two threads for gRPC, one of which is blocked while it decides a long batch of the hostile peer.
struct Target {
    server: Server,
    held: Sender<Infallible>,
    deciding: JoinHandle<Response<Incoming>>,
    _calls: SendRequest<Body>,
}

impl Target {
    async fn start() -> Self {
        let server = Server::with(&Timeouts {
            request: LONG,
            body_grace: Duration::ZERO,
            health_sample: LONG,
            ..Timeouts::default()
        });
        let calls = server.calls_from(HOSTILE, 4 << 20).await;
        let held = server.hold_next_reading();
        let deciding = tokio::spawn(begin(&calls, 0));
        eventually("a batch is decided", || server.is_reading_held()).await;
        Self { server, held, deciding, _calls: calls }
    }

    /// Lets the first batch be decided after its caller has gone, and asserts that nothing is left of any batch.
    async fn go_on(self) {
        self.deciding.abort();
        drop(self.held);
        eventually("nothing is held", || self.server.taken() == 0).await;
        assert_eq!(connection(&self.server, HOSTILE).await.send(batch()).status, 200);
    }
}

/// Begins a batch over gRPC with this many bytes of padding.
fn begin(calls: &SendRequest<Body>, padding: usize) -> impl Future<Output = Response<Incoming>> + use<> {
    let mut calls = calls.clone();
    let mut message = BatchRateLimitRequest { requests: vec![check_of("ada"); CHECKS] }.encode_to_vec();
    prost::encoding::bytes::encode(99, &vec![7; padding], &mut message);
    async move { call(&mut calls, BATCH, Body::new(Full::new(Bytes::from(framed(&message))))).await }
}

/// Returns a batch over HTTP of nearly a mebibyte.
fn batch() -> Vec<u8> {
    let checks = vec![user("ada"); CHECKS].join(",");
    let mut body = format!(r#"{{"checks":[{checks}]}}"#).into_bytes();
    body.resize(MIB, b' ');
    request("/v1/check/batch", "Content-Type: application/json\r\n", body)
}

async fn connection(server: &Server, source: Ipv4Addr) -> HttpConnection {
    HttpConnection::over(blocking(connect(source, server.http).await))
}

/// Sends a batch over HTTP that waits, or for which another one is dropped.
async fn wait_with_a_batch(server: &Server) -> HttpConnection {
    let before = server.taken();
    let mut waiting = connection(server, HOSTILE).await;
    waiting.write(batch());
    wait_for_more(server, before).await;
    waiting
}

/// Waits until a batch holds budget, or has taken that of another one.
async fn wait_for_more(server: &Server, before: usize) {
    eventually("a batch waits", || server.taken() > before + MIB / 4 || server.refused("dropped") > 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_oldest_batch_is_refused_for_the_next_of_its_peer_over_http() {
    let target = Target::start().await;
    let mut waiting = Vec::new();
    while target.server.refused("dropped") == 0 {
        waiting.push(wait_with_a_batch(&target.server).await);
    }
    let refused = waiting.remove(0).answer();
    assert_eq!((refused.status, &refused.json()["code"]), (503, &"overload".into()));
    target.server.gives_others_their_quota_over_http().await;
    let decided = connection(&target.server, GOOD).await.send(batch());
    assert_eq!(decided.status, 200, "another peer has its own part");
    drop(waiting);
    target.go_on().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_oldest_batch_is_refused_for_the_next_of_its_connection_over_grpc() {
    let target = Target::start().await;
    // Connections go to both threads in turn.
    let calls = target.server.calls_from(HOSTILE, 4 << 20).await;
    let mut waiting = Vec::new();
    while target.server.refused("dropped") == 0 {
        let before = target.server.taken();
        waiting.push(tokio::spawn(begin(&calls, MIB * 7 / 10)));
        wait_for_more(&target.server, before).await;
    }
    let refused = waiting.remove(0).await.expect("no panic");
    assert_eq!(end_of(refused).await, (Code::Unavailable, "overload".to_owned()));
    // A connection on the blocked thread, so that the next one is on the other.
    let _still = connect(GOOD, target.server.grpc).await;
    target.server.gives_others_their_quota_over_grpc().await;
    waiting.iter().for_each(JoinHandle::abort);
    target.go_on().await;
}

/// Over HTTP the server notices that a caller has gone when it writes the response, so the batch keeps its place in the queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn callers_that_disconnect_leave_their_places_to_others() {
    let target = Target::start().await;
    let calls = target.server.calls_from(HOSTILE, 4 << 20).await;
    let waiting = [wait_with_a_batch(&target.server).await, wait_with_a_batch(&target.server).await];
    let before = target.server.taken();
    let over_grpc = tokio::spawn(begin(&calls, MIB / 2));
    wait_for_more(&target.server, before).await;
    over_grpc.abort();
    drop((waiting, calls));
    eventually("the call holds nothing", || target.server.taken() == before).await;
    target.go_on().await;
}
