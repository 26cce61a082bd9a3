//! Connections: how many an address may have, how long the head of a request may take, and how long an answer may wait to be read.

use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    thread,
    time::Duration,
};

use serde_json::json;
use tidegate_admin::ConnectionCaps;
use tidegate_testkit::{PATIENCE, wait_until};

use crate::{
    bodies::{HOSTILE, OTHER, connect},
    home::Folder,
    stream::Events,
    support::Server,
};

/// Asks whether the server is alive, and returns whether it answers that.
fn is_answered(mut stream: &TcpStream) -> bool {
    let mut answer = [0; 4_096];
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").is_ok()
        && stream.read(&mut answer).is_ok_and(|bytes| answer[..bytes].starts_with(b"HTTP/1.1 200 "))
}

#[test]
fn an_address_has_its_connections_and_leaves_others_theirs() {
    let folder = Folder::new();
    let server = Server::start_with(folder.home(), |settings| settings.connections = ConnectionCaps::new(20, 4));
    let ana = server.administrator();
    let held: Vec<TcpStream> = (0..4).map(|_| connect(&server, HOSTILE)).collect();
    assert!(held.iter().all(is_answered));
    let mut refusal = String::new();
    connect(&server, HOSTILE).read_to_string(&mut refusal).expect("an end");
    assert!(refusal.starts_with("HTTP/1.1 503 "), "{refusal}");
    assert!(is_answered(&connect(&server, OTHER)));
    server.gives_others_their_quota(&ana);
    let metrics = server.stranger().get("/metrics").text;
    let refused = "tidegate_admin_refused_connections_total{door=\"admin\",reason=\"peer\"} 1\n";
    assert!(metrics.contains(refused), "{metrics}");
    assert!(metrics.contains("tidegate_admin_open_connections{door=\"admin\"} "), "{metrics}");
    assert!(held.iter().all(is_answered), "those that were taken go on");
    drop(held);
    wait_until("their places are given back", || is_answered(&connect(&server, HOSTILE)));
}

#[test]
fn a_caller_that_asks_and_reads_nothing_is_dropped() {
    let folder = Folder::new();
    let server = Server::start_with(folder.home(), |settings| settings.periods.unread_answers = Duration::from_secs(2));
    let (script, _) = server.administrator().script(&json!({ "role": "viewer" }));
    let asked =
        format!("GET /api/v1/openapi.json HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n", script.bearer);
    let mut stream = connect(&server, HOSTILE);
    stream.set_write_timeout(Some(PATIENCE)).expect("a socket");
    let asking = thread::spawn(move || {
        loop {
            if let Err(error) = stream.write_all(asked.as_bytes()) {
                return error.kind();
            }
        }
    });
    assert!(is_answered(&connect(&server, OTHER)));
    let end = asking.join().expect("no panic");
    assert!(matches!(end, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{end}");
    assert_eq!(script.get("/api/v1/openapi.json").status, 200);
}

#[test]
fn a_later_head_that_does_not_come_ends_the_connection() {
    let folder = Folder::new();
    let server = Server::start_with(folder.home(), |settings| settings.periods.request_head = Duration::from_secs(2));
    let mut events = Events::open(&server.url, &server.administrator(), "metrics");
    let [mut connection, resting] = [(); 2].map(|()| connect(&server, OTHER));
    assert!(is_answered(&connection) && is_answered(&resting));
    connection.write_all(b"GET /healthz HT").expect("it is read");
    assert_eq!(connection.read(&mut [0; 64]).expect("an end"), 0);
    assert!(is_answered(&resting), "where no head has begun none is late");
    for _ in 0..5 {
        // One a second, from the beginning of the stream.
        events.next_called("metrics");
    }
}
