//! Tests of responses that are not read, over real sockets: peers that send requests and read nothing, over HTTP, gRPC
//! and the Redis protocol, beside a well-behaved one.

use std::{convert::Infallible, future::pending, io, net::SocketAddr, time::Duration};

use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Incoming};
use tidegate_service::Timeouts;
use tidegate_testkit::PATIENCE;
use tokio::{io::AsyncWriteExt, sync::mpsc, task::JoinHandle, time::timeout};
use tokio_stream::{StreamExt, wrappers::ReceiverStream};
use tonic::{Code, body::Body};

use crate::{
    budget::{HOSTILE, LONG, MIB, STREAM, Server, call, connect, end_of, eventually, framed, padded_check, unfinished},
    http::{support::request, user},
    resp::support::array,
};

const METRICS: &str = "/tidegate.v1.RateLimiterHealth/GetMetrics";
const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
/// The most open calls of a connection.
const CALLS_MAX: usize = 128;

/// Returns timeouts of which a test reaches only this one, of unread replies.
fn unread_for(unread_replies: Duration) -> Timeouts {
    let (idle, request_head, request) = (LONG, LONG, LONG);
    Timeouts { idle, request_head, request, ping: LONG, ping_answer: LONG, unread_replies, ..Timeouts::default() }
}

/// Returns a batch of as many checks as fit.
fn batch() -> Vec<u8> {
    let checks: Vec<String> = (0..10_000).map(|number| user(&(number % 100).to_string())).collect();
    request("/v1/check/batch", "", format!(r#"{{"checks":[{}]}}"#, checks.join(",")))
}

/// Sends `first`, then `again` this many times, and reads nothing. It ends with the connection.
fn send(to: SocketAddr, first: &'static [u8], again: Vec<u8>, times: usize) -> JoinHandle<io::Result<()>> {
    tokio::spawn(async move {
        let mut stream = connect(HOSTILE, to).await;
        stream.write_all(first).await?;
        for _ in 0..times {
            stream.write_all(&again).await?;
        }
        pending().await
    })
}

/// Returns a body with this message.
fn whole(message: &[u8]) -> Body {
    Body::new(Full::new(Bytes::from(framed(message))))
}

/// Returns whether the next part of a stream comes.
async fn is_answered(stream: &mut Incoming) -> bool {
    let frame = timeout(PATIENCE, stream.frame()).await.expect("in time");
    frame.is_some_and(|frame| frame.is_ok_and(|frame| frame.is_data()))
}

#[tokio::test]
async fn a_peer_that_reads_nothing_is_dropped() {
    let server = Server::with(&unread_for(Duration::from_secs(3)));
    let short = b"GET /healthz HTTP/1.1\r\nHost: tidegate\r\n\r\n".repeat(100);
    let without_body = b"GET /v1/authorize HTTP/1.1\r\nHost: tidegate\r\n\r\n".repeat(100);
    let ping = array(&[b"PING".to_vec(), vec![b'a'; 10_000]]);
    // The preface of HTTP/2 and empty settings, then pings, which are all answered.
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let http_ping = b"\0\0\x08\x06\0\0\0\0\0abcdefgh".repeat(100);
    let sending = [
        ("batches over HTTP", send(server.http, b"", batch(), usize::MAX)),
        ("short answers over HTTP", send(server.http, b"", short, usize::MAX)),
        ("answers without a body over HTTP", send(server.http, b"", without_body, usize::MAX)),
        ("the Redis protocol", send(server.resp, b"", ping, usize::MAX)),
        ("HTTP/2", send(server.grpc, preface, http_ping, usize::MAX)),
    ];
    eventually("the answer to a batch is held", || server.taken() > 2 * MIB).await;
    server.gives_others_their_quota().await;
    for (what, sending) in sending {
        let ended = timeout(PATIENCE, sending).await;
        assert!(ended.is_ok_and(|ended| ended.expect("no panic").is_err()), "it is not dropped: {what}");
    }
    eventually("what they held is given back", || server.taken() == 0).await;
}

#[tokio::test]
async fn batches_over_http_with_unread_responses_leave_other_peers_their_quota() {
    let server = Server::with(&Timeouts { body_grace: LONG, ..unread_for(LONG) });
    // The system buffers the first responses of each connection; of the next ones, eight fit into the share.
    let sending: Vec<_> = (0..12).map(|_| send(server.http, b"", batch(), 16)).collect();
    eventually("the share of the peer is full", || server.refused("peer") > 0 && server.taken() > 4 * MIB).await;
    server.gives_others_their_quota().await;
    assert!(server.taken() <= 8 * MIB, "{}", server.taken());
    for sending in sending {
        sending.abort();
    }
    eventually("what they held is given back", || server.taken() == 0).await;
}

#[tokio::test]
async fn all_calls_of_a_connection_may_be_streams_of_checks() {
    let server = Server::with(&unread_for(LONG));
    let mut calls = server.calls_from(HOSTILE, 65_535).await;
    let mut streams = Vec::new();
    for _ in 0..CALLS_MAX - 1 {
        streams.push(call(&mut calls, STREAM, unfinished(padded_check(0))).await.into_body());
    }
    let refused = call(&mut calls, REFLECTION, unfinished(Vec::new())).await;
    assert_eq!(end_of(refused).await, (Code::ResourceExhausted, "too_many_streams".to_owned()));
    let mut last = call(&mut calls, STREAM, unfinished(padded_check(0).repeat(1_000))).await.into_body();
    for stream in &mut streams {
        assert!(is_answered(stream).await);
    }
    let first = timeout(PATIENCE, last.frame()).await.expect("in time").expect("a part").expect("it is no error");
    let bytes = first.into_data().expect("answers").len();
    assert!((2 << 10..4 << 10).contains(&bytes), "each has its part of what is sent at a time: {bytes}");
    server.gives_others_their_quota().await;
}

#[tokio::test]
async fn streams_over_grpc_with_unread_responses_are_reset() {
    const STREAMS: usize = 3;
    let server = Server::with(&unread_for(Duration::from_secs(1)));
    let mut other = server.calls_from(HOSTILE, 65_535).await;
    let (send, pieces) = mpsc::channel(1);
    let pieces = ReceiverStream::new(pieces).map(|piece: Vec<u8>| Ok::<_, Infallible>(Frame::data(Bytes::from(piece))));
    send.send(padded_check(0)).await.expect("it is open");
    let mut read = call(&mut other, STREAM, Body::new(StreamBody::new(pieces))).await.into_body();
    assert!(is_answered(&mut read).await);
    let mut calls = server.calls_from(HOSTILE, 0).await;
    let mut answers = Vec::new();
    for _ in 0..STREAMS {
        answers.push(call(&mut calls, STREAM, unfinished(padded_check(0))).await);
    }
    for answer in answers {
        let rest = timeout(PATIENCE, answer.into_body().collect()).await.expect("it ends in time");
        assert!(rest.is_err(), "it is reset");
    }
    assert_eq!(server.metric(r#"tidegate_bad_requests_total{door="grpc",code="too_slow"}"#), STREAMS as u64);
    send.send(padded_check(0)).await.expect("it is open");
    assert!(is_answered(&mut read).await, "one that is read goes on, however long it is quiet");
}

#[tokio::test]
async fn metrics_over_grpc_that_are_not_read_hold_part_of_the_budget_until_they_are_overdue() {
    let server = Server::with(&unread_for(Duration::from_secs(1)));
    let mut calls = server.calls_from(HOSTILE, 0).await;
    let mut answers = Vec::new();
    // More calls than have a free first block of 16 KiB.
    for _ in 0..20 {
        answers.push(call(&mut calls, METRICS, whole(&[])).await);
    }
    eventually("one is overdue", || server.refused("overdue") > 0).await;
    eventually("all is given back", || server.taken() == 0).await;
    let last = answers.pop().expect("an answer").into_body();
    let rest = timeout(PATIENCE, last.collect()).await.expect("it ends in time");
    assert!(rest.is_err(), "it is reset");
}

#[tokio::test]
async fn pages_of_metrics_that_are_not_read_leave_other_peers_their_quota() {
    let metrics_page = Duration::from_millis(100);
    let server = Server::with(&Timeouts { metrics_page, body_grace: LONG, ..unread_for(LONG) });
    let scrape = b"GET /metrics HTTP/1.1\r\nHost: tidegate\r\n\r\n".repeat(100);
    let sending: Vec<_> = (0..100).map(|_| send(server.http, b"", scrape.clone(), usize::MAX)).collect();
    let mut clients = Vec::new();
    for _ in 0..10 {
        let mut calls = server.calls_from(HOSTILE, 0).await;
        let mut answers = Vec::new();
        for _ in 0..CALLS_MAX {
            answers.push(call(&mut calls, METRICS, whole(&[])).await);
        }
        clients.push((calls, answers));
    }
    eventually("the share of the peer is full", || server.refused("peer") > 0).await;
    server.gives_others_their_quota().await;
    assert!(server.taken() <= 8 * MIB, "{}", server.taken());
    for sending in sending {
        sending.abort();
    }
}

/// A connection may have sixteen such streams.
#[tokio::test]
async fn silent_streams_of_reflection_leave_other_peers_their_quota() {
    const CONNECTIONS: usize = 20;
    let server = Server::with(&unread_for(LONG));
    let (mut clients, mut streams) = (Vec::new(), Vec::new());
    for _ in 0..CONNECTIONS {
        let mut calls = server.calls_from(HOSTILE, 0).await;
        let refused = loop {
            let answer = call(&mut calls, REFLECTION, unfinished(Vec::new())).await;
            if answer.headers().contains_key("grpc-status") {
                break answer;
            }
            streams.push(answer);
        };
        assert_eq!(end_of(refused).await, (Code::ResourceExhausted, "too_many_streams".to_owned()));
        clients.push(calls);
    }
    assert_eq!(streams.len(), 16 * CONNECTIONS);
    server.gives_others_their_quota().await;
}
