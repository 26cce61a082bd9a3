//! Tests of the caps of connections over real sockets: peers that hold all that they can get over HTTP, gRPC and the
//! Redis protocol, beside a well-behaved one.

use std::{
    fs,
    io::{ErrorKind, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    time::Duration,
};

use tempfile::TempDir;
use tidegate_service::{ConnectionCaps, ListenerSettings, Timeouts, Tokens};

use crate::{
    budget::{GOOD, HOSTILE, LONG, Server, blocking, connect, eventually},
    http::support::Connection as HttpConnection,
    resp::support::{Connection as RespConnection, Reply, ok},
};

const CAPS: ConnectionCaps = ConnectionCaps { listener: 40, peer: 8, unauthenticated: 3 };
const TOKEN: &str = "morning-star-0001";
const HEALTH: &str = "GET /healthz HTTP/1.1\r\nHost: tidegate\r\n\r\n";
/// The refusal over the Redis protocol.
const MAX_CLIENTS: &str = "-ERR max number of clients reached\r\n";

/// Returns timeouts that no test reaches.
fn patient() -> Timeouts {
    Timeouts { idle: LONG, request_head: LONG, authentication: LONG, ..Timeouts::default() }
}

/// Returns the settings of a server that asks for a token.
fn asking_for_a_token(timeouts: &Timeouts) -> ListenerSettings {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("tokens");
    fs::write(&file, TOKEN).expect("room for a file");
    // The file is removed, and its tokens stay valid.
    let tokens = Some(Tokens::open(file).expect("they are good"));
    ListenerSettings { tokens, timeouts: *timeouts, connections: CAPS, ..ListenerSettings::default() }
}

/// Returns the bytes that the server sends on a new connection until it closes it.
async fn refusal(source: Ipv4Addr, to: SocketAddr) -> String {
    let mut said = String::new();
    if let Err(error) = blocking(connect(source, to).await).read_to_string(&mut said) {
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "it is not closed: {said}");
    }
    said
}

fn open_at(server: &Server, door: &str) -> u64 {
    server.metric(&format!(r#"tidegate_open_connections{{door="{door}"}}"#))
}

fn refused_at(server: &Server, door: &str, reason: &str) -> u64 {
    server.metric(&format!(r#"tidegate_refused_connections_total{{door="{door}",reason="{reason}"}}"#))
}

/// Asserts that a caller over the Redis protocol is decided by its limit of a hundred.
fn gets_its_quota(connection: &mut RespConnection, user: &str) {
    let check = format!("TIDEGATE.CHECK user {user} *");
    let allowed = (0..110).filter(|_| connection.numbers(&check).first() == Some(&0)).count();
    assert_eq!(allowed, 100);
}

#[tokio::test]
async fn a_peer_with_all_the_connections_that_it_can_get_leaves_others_their_quota() {
    let server =
        Server::listening(ListenerSettings { timeouts: patient(), connections: CAPS, ..ListenerSettings::default() });
    let (mut http, mut others) = (Vec::new(), Vec::new());
    for _ in 0..CAPS.peer {
        let mut connection = HttpConnection::over(blocking(connect(HOSTILE, server.http).await));
        assert_eq!(connection.send(HEALTH).status, 200);
        http.push(connection);
        others.push(connect(HOSTILE, server.grpc).await);
        others.push(connect(HOSTILE, server.resp).await);
    }
    for _ in 0..3 {
        let said = refusal(HOSTILE, server.http).await;
        assert!(said.starts_with("HTTP/1.1 503 ") && said.ends_with("\r\n\r\ntoo many connections\n"), "{said}");
        assert_eq!(refusal(HOSTILE, server.grpc).await, "");
        assert_eq!(refusal(HOSTILE, server.resp).await, MAX_CLIENTS);
    }
    assert_eq!(["http", "grpc", "resp"].map(|door| refused_at(&server, door, "peer")), [3; 3]);
    assert_eq!(["grpc", "resp"].map(|door| open_at(&server, door)), [8; 2]);
    assert!(open_at(&server, "http") >= 8);

    server.gives_others_their_quota().await;
    gets_its_quota(&mut server.resp_from(GOOD).await, "ivan");
    assert!(http.iter_mut().all(|connection| connection.send(HEALTH).status == 200), "those that were taken go on");

    drop((http, others));
    let is_given_back = || ["grpc", "resp"].map(|door| open_at(&server, door)) == [0; 2];
    eventually("their places are given back", is_given_back).await;
    assert_eq!(server.resp_from(HOSTILE).await.ask("PING"), Reply::Simple("PONG".to_owned()));
}

#[tokio::test]
async fn a_full_listener_refuses_connections_at_once() {
    let connections = ConnectionCaps::new(12, 6);
    let server =
        Server::listening(ListenerSettings { timeouts: patient(), connections, ..ListenerSettings::default() });
    let mut held = Vec::new();
    for number in 0..12 {
        held.push(connect(Ipv4Addr::new(127, 0, 0, 20 + number % 2), server.resp).await);
    }
    assert_eq!(refusal(GOOD, server.resp).await, MAX_CLIENTS);
    assert_eq!(refused_at(&server, "resp", "listener"), 1);
    server.gives_others_their_quota().await;
    held.pop();
    eventually("a place is given back", || open_at(&server, "resp") == 11).await;
    gets_its_quota(&mut server.resp_from(GOOD).await, "ivan");
}

#[tokio::test]
async fn connections_that_have_not_authenticated_leave_room_for_those_that_have() {
    let server = Server::listening(asking_for_a_token(&patient()));
    let auth = format!("AUTH {TOKEN}");
    let mut known = server.resp_from(HOSTILE).await;
    assert_eq!(known.ask(&auth), ok());
    let mut strangers = Vec::new();
    for _ in 0..CAPS.unauthenticated {
        strangers.push(server.resp_from(HOSTILE).await);
    }
    for _ in 0..2 {
        assert_eq!(refusal(HOSTILE, server.resp).await, MAX_CLIENTS);
    }
    assert_eq!(refused_at(&server, "resp", "unauthenticated"), 2);
    gets_its_quota(&mut known, "ivan");
    let mut other = server.resp_from(GOOD).await;
    assert_eq!(other.ask(&auth), ok());
    gets_its_quota(&mut other, "judy");

    assert!(matches!(strangers[0].ask(&format!("HELLO 2 AUTH default {TOKEN}")), Reply::Array(_)));
    let mut next = server.resp_from(HOSTILE).await;
    assert_eq!(next.ask(&auth), ok(), "one that authenticates makes room");
}

#[tokio::test]
async fn a_connection_that_does_not_authenticate_in_time_is_closed() {
    let authentication = Duration::from_secs(2);
    let server = Server::listening(asking_for_a_token(&Timeouts { authentication, ..patient() }));
    let mut known = server.resp_from(GOOD).await;
    assert_eq!(known.ask(&format!("AUTH {TOKEN}")), ok());
    let (mut silent, busy) = (server.resp_from(HOSTILE).await, server.resp_from(HOSTILE).await);
    assert!(silent.is_closed());
    let goes_on = |mut socket: &TcpStream| {
        socket.write_all(b"PING\r\n").is_ok() && socket.read(&mut [0; 512]).is_ok_and(|bytes| bytes > 0)
    };
    eventually("one that asks all the time is closed, too", || !goes_on(busy.socket())).await;
    assert_eq!(refused_at(&server, "resp", "overdue"), 2);
    gets_its_quota(&mut known, "ivan");
}
