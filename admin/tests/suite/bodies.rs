//! Bodies: none is read before its caller is known and has a place, and what they take is bounded for each caller. A caller
//! here often sends no more than a head: what answers it has read nothing of its body.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use serde_json::{Value, json};
use tidegate_testkit::{PATIENCE, wait_for, wait_until};
use tokio::net::TcpSocket;

use crate::{
    home::{Folder, block_on},
    simulations::made,
    support::{Client, PASSWORD, Server, fresh},
};

const IMPORT: &str = "/policy/import?dry_run=true";
const CHANGES: &str = "/policy/changes";
/// Addresses of callers.
pub(crate) const HOSTILE: [u8; 4] = [127, 0, 0, 2];
pub(crate) const OTHER: [u8; 4] = [127, 0, 0, 3];

/// An answer that was read from a socket.
struct RawAnswer {
    status: u16,
    head: String,
    text: String,
}

impl RawAnswer {
    fn code(&self) -> Value {
        serde_json::from_str::<Value>(&self.text).expect("JSON")["code"].clone()
    }
}

/// Connects from this address.
pub(crate) fn connect(server: &Server, from: [u8; 4]) -> TcpStream {
    let to: SocketAddr = server.url.strip_prefix("http://").expect("a URL").parse().expect("an address");
    let stream = block_on(async {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(SocketAddr::from((from, 0))).expect("an address of this machine");
        socket.connect(to).await.expect("it listens").into_std().expect("a socket")
    });
    stream.set_nonblocking(false).expect("a socket");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream
}

/// Returns the head of a POST with a JSON body, whose length this header says.
pub(crate) fn head(client: &Client, path: &str, length: &str) -> String {
    let bearer = &client.bearer;
    format!(
        "POST /api/v1{path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {bearer}\r\ncontent-type: application/json\r\n\
         {length}\r\n\r\n"
    )
}

/// Sends the head of a request with a JSON body of this length.
fn begin(server: &Server, client: &Client, path: &str, length: usize) -> TcpStream {
    let mut stream = connect(server, HOSTILE);
    let head = head(client, path, &format!("content-length: {length}"));
    stream.write_all(head.as_bytes()).expect("it is read");
    stream
}

fn answer(stream: &TcpStream) -> RawAnswer {
    let (mut reader, mut head) = (BufReader::new(stream), String::new());
    while !head.ends_with("\r\n\r\n") {
        let read = reader.read_line(&mut head).expect("an answer");
        assert!(read > 0, "it ends within its head: {head}");
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).expect("a length");
    let mut text = vec![0; length.parse().expect("a number")];
    reader.read_exact(&mut text).expect("a body");
    let status = head.split(' ').nth(1).expect("a status").parse().expect("a number");
    RawAnswer { status, head, text: String::from_utf8(text).expect("text") }
}

/// Sends a whole request from this address.
fn send(server: &Server, from: [u8; 4], client: &Client, path: &str, body: &[u8]) -> RawAnswer {
    let mut stream = connect(server, from);
    let head = head(client, path, &format!("content-length: {}", body.len()));
    stream.write_all(head.as_bytes()).expect("it is read");
    stream.write_all(body).expect("it is read");
    answer(&stream)
}

/// Returns whether an answer has come, of which nothing was read.
pub(crate) fn is_answered(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).expect("a socket");
    let peeked = stream.peek(&mut [0]);
    stream.set_nonblocking(false).expect("a socket");
    peeked.is_ok_and(|bytes| bytes > 0)
}

/// Waits until one of these is answered; returns it, and takes it out.
fn take_answered(streams: &mut Vec<TcpStream>) -> TcpStream {
    let index = wait_for("an answer", || streams.iter().position(is_answered));
    streams.remove(index)
}

/// Returns a JSON object with spaces after it, in so many bytes.
fn padded(object: &Value, length: usize) -> Vec<u8> {
    let mut body = object.to_string().into_bytes();
    body.resize(length, b' ');
    body
}

#[test]
fn a_call_without_a_session_takes_a_small_body() {
    let (_folder, server) = fresh();
    server.administrator();
    let stranger = server.stranger();
    for (path, body, status) in [
        ("/session", json!({ "name": "ana", "password": "wrong" }), 401),
        ("/setup", json!({ "code": "wrong", "name": "ben", "password": PASSWORD }), 404),
    ] {
        let send = |length| stranger.send("POST", &format!("/api/v1{path}"), &[], Some(padded(&body, length)));
        assert_eq!(send(8_192).status, status, "{path}");
        let large = send(8_193);
        assert_eq!((large.status, &large.json()["code"]), (413, &json!("too_large")), "{path}");
        assert!(large.json()["detail"].as_str().expect("text").contains("8192"), "{large:?}");
        // Its length is enough to refuse it.
        let early = answer(&begin(&server, &stranger, path, 8_193));
        assert_eq!((early.status, early.code()), (413, json!("too_large")), "{path}");
        assert!(early.head.contains("connection: close"), "{}", early.head);
        // One that does not say its length is refused when it is too long.
        let mut endless = connect(&server, HOSTILE);
        let head = head(&stranger, path, "transfer-encoding: chunked");
        endless.write_all(head.as_bytes()).expect("it is read");
        endless.write_all(b"2001\r\n").expect("it is read");
        endless.write_all(&[b' '; 8_193]).expect("it is read");
        assert_eq!(answer(&endless).status, 413, "{path}");
    }
}

#[test]
fn a_body_that_says_it_is_too_long_is_not_waited_for() {
    let (_folder, server) = fresh();
    let (script, _) = server.administrator().script(&json!({ "role": "editor" }));
    for (path, bytes_max) in [(CHANGES, 1 << 20), (IMPORT, 32 << 20), ("/simulations", 32 << 20)] {
        let refused = answer(&begin(&server, &script, path, bytes_max + 1));
        assert_eq!((refused.status, refused.code()), (413, json!("too_large")), "{path}");
        assert!(refused.text.contains(&bytes_max.to_string()), "{path}: {}", refused.text);
    }
}

#[test]
fn a_body_is_not_read_before_its_caller_is_known() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let (node, _) = ana.script(&json!({ "scope": "node" }));
    for (client, status) in [(server.stranger(), 401), (node, 403)] {
        for path in [CHANGES, "/policy/import", "/clients/import", "/simulations", "/uploads", "/drafts"] {
            assert_eq!(answer(&begin(&server, &client, path, 1 << 20)).status, status, "{path}");
        }
    }
}

#[test]
fn files_are_not_taken_in_before_there_is_a_place_for_them() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let ben = ana.add("editor", &server);
    let (script, _) = ana.script(&json!({ "role": "editor" }));
    let policy = ana.get("/api/v1/policy/export").text;
    let body = json!({ "files": [{ "name": "policy.toml", "text": policy }] }).to_string().into_bytes();
    // Ana has two places, with her tokens.
    let mut begun: Vec<TcpStream> = (0..3).map(|_| begin(&server, &script, IMPORT, body.len())).collect();
    let refused = answer(&take_answered(&mut begun));
    assert_eq!((refused.status, refused.code()), (503, json!("busy")), "{}", refused.text);
    assert!(refused.head.contains("retry-after: "), "{}", refused.head);
    // They are not those of others.
    let import = |client: &Client| client.send("POST", &format!("/api/v1{IMPORT}"), &[], Some(body.clone()));
    let of_ben = import(&ben);
    assert_eq!(of_ben.status, 200, "{of_ben:?}");
    server.gives_others_their_quota(&ben);
    assert!(!begun.iter().any(is_answered), "they wait for their bodies");
    for mut stream in begun {
        stream.write_all(&body).expect("it is read");
        let answered = answer(&stream);
        assert_eq!(answered.status, 200, "{}", answered.text);
    }
    assert_eq!(import(&script).status, 200, "the places are free again");
}

#[test]
fn a_question_is_not_read_before_its_run_has_a_place() {
    let (_folder, server) = fresh();
    let (script, _) = server.administrator().script(&json!({ "role": "viewer" }));
    let body = json!({ "b": "live", "traffic": made() }).to_string().into_bytes();
    let mut begun: Vec<TcpStream> = (0..2).map(|_| begin(&server, &script, "/simulations", body.len())).collect();
    let refused = answer(&take_answered(&mut begun));
    assert_eq!((refused.status, refused.code()), (409, json!("already_running")), "{}", refused.text);
    let mut first = begun.remove(0);
    first.write_all(&body).expect("it is read");
    let answered = answer(&first);
    assert_eq!(answered.status, 202, "{}", answered.text);
}

#[test]
fn files_that_do_not_come_give_their_places_back() {
    let folder = Folder::new();
    let server = Server::start_with(folder.home(), |settings| {
        settings.periods.file_timeout = Duration::from_millis(100);
    });
    let (script, _) = server.administrator().script(&json!({ "role": "editor" }));
    // More of them than the user has places.
    for path in [IMPORT, "/simulations", IMPORT, "/simulations", IMPORT] {
        let slow = answer(&begin(&server, &script, path, 100));
        assert_eq!((slow.status, slow.code()), (408, json!("too_slow")), "{path}: {}", slow.text);
    }
}

#[test]
fn the_bodies_of_one_address_leave_room_for_others() {
    let folder = Folder::new();
    let server = Server::start_with(folder.home(), |settings| {
        settings.periods.body_timeout = Duration::from_mins(5);
    });
    let ana = server.administrator();
    let (script, _) = ana.script(&json!({ "role": "editor" }));
    // Each is whole but for its last byte, and nine are more than the share of an address.
    let length = 1 << 20;
    let mut held: Vec<TcpStream> = (0..9)
        .map(|_| {
            let mut stream = begin(&server, &script, CHANGES, length);
            // The one that is refused is closed.
            let _ = stream.write_all(&vec![b' '; length - 1]);
            stream
        })
        .collect();
    let refused = answer(&take_answered(&mut held));
    assert_eq!((refused.status, refused.code()), (503, json!("overload")), "{}", refused.text);
    assert!(refused.head.contains("retry-after: ") && refused.head.contains("connection: close"), "{}", refused.head);
    // The bodies of another address are read, and answered by what is in them.
    let credentials = json!({ "name": "ana", "password": PASSWORD }).to_string();
    let signed_in = send(&server, OTHER, &server.stranger(), "/session", credentials.as_bytes());
    assert_eq!(signed_in.status, 200, "{}", signed_in.text);
    let large = padded(&json!({}), 64 << 10);
    assert_eq!(send(&server, OTHER, &script, CHANGES, &large).status, 400);
    server.gives_others_their_quota(&ana);
    // Small bodies of the same address are read too.
    assert_eq!(send(&server, HOSTILE, &script, CHANGES, b"{}").status, 400);
    drop(held);
    wait_until("the room is given back", || send(&server, HOSTILE, &script, CHANGES, &large).status == 400);
}
