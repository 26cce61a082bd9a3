//! HTTP connections: kept, pipelined, concurrent, slow, idle, and at a stop.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpStream},
    sync::{Barrier, mpsc},
    thread,
    time::Duration,
};

use tidegate_service::{ListenerSettings, Timeouts};
use tidegate_testkit::wait_until;
use tokio::time::Instant;

use super::{
    HUNDRED,
    support::{HttpReply, Server, request},
    user,
};
use crate::process::{LONG_DELAY, resting_connections_are_closed};

/// A timeout longer than any test.
const LONG: Duration = Duration::from_mins(10);

/// Returns a server with these timeouts.
fn server_with(timeouts: &Timeouts) -> Server {
    let server = Server::listening(ListenerSettings { timeouts: *timeouts, ..ListenerSettings::default() });
    server.publish(HUNDRED);
    server
}

#[test]
fn a_connection_is_kept_and_requests_may_be_pipelined() {
    let server = Server::with(HUNDRED);
    let mut connection = server.connect();
    for left in [99, 98] {
        assert_eq!(connection.post("/v1/check", user("ada")).json()["remaining"], left);
    }
    let one = request("/v1/check", "", user("ada"));
    let bad = request("/v1/check", "", "{");
    connection.write([one.as_slice(), &one, &bad, &one].concat());
    let answers = [(); 4].map(|()| connection.answer());
    assert_eq!(answers.each_ref().map(|answer| answer.status), [200, 200, 400, 200]);
    assert_eq!(answers[3].json()["remaining"], 95);
}

#[test]
fn many_pipelined_requests_are_answered_in_order() {
    let server = Server::with(HUNDRED);
    let mut connection = server.connect();
    connection.write(request("/v1/check", "", user("ada")).repeat(300));
    let answers: Vec<HttpReply> = (0..300).map(|_| connection.answer()).collect();
    let statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses, [vec![200; 100], vec![429; 200]].concat());
    assert!(answers.iter().all(|answer| answer.header("connection").is_none()), "the connection is kept");
}

#[test]
fn long_pipelined_requests_are_answered_in_order() {
    let server = Server::with(HUNDRED);
    let mut connection = server.connect();
    // A batch of many checks on lines with blank lines between them, in a body of known length or in chunks; and a request
    // without a body, after blank lines.
    let checks = format!(r#"{{"checks":[{}]}}"#, vec![user("ada"); 2_000].join(",\r\n\r\n"));
    let of_known_length = request("/v1/check/batch", "", &checks);
    let (first, second) = checks.split_at(50_000);
    let chunks = [first, second, ""].map(|chunk| format!("{:x}\r\n{chunk}\r\n", chunk.len())).concat();
    let head = "POST /v1/check/batch HTTP/1.1\r\nHost: tidegate\r\nTransfer-Encoding: chunked\r\n\r\n";
    let bodyless = "\r\n\r\nGET /readyz HTTP/1.1\r\nHost: tidegate\r\n\r\n";
    let requests = [&of_known_length, head.as_bytes(), chunks.as_bytes(), bodyless.as_bytes()].concat().repeat(4);
    let mut writer = connection.writer();
    thread::scope(|scope| {
        let writing = scope.spawn(move || {
            writer.write_all(&requests)?;
            // All requests are answered that came before the end.
            writer.shutdown(Shutdown::Write)
        });
        for place in 0..12 {
            let answer = connection.answer();
            assert_eq!((answer.status, answer.header("connection")), (200, None), "{place}");
            if place % 3 < 2 {
                assert_eq!(answer.json()["decisions"].as_array().map(Vec::len), Some(2_000), "{place}");
            }
        }
        writing.join().expect("no panic").expect("all of them are read");
    });
    assert!(connection.is_closed());
}

#[test]
fn a_request_that_expects_100_continue_gets_it_also_behind_others() {
    let server = Server::with(HUNDRED);
    let mut connection = server.connect();
    let body = user("ada");
    let expecting = request("/v1/check", "Expect: 100-continue\r\n", &body);
    let head = &expecting[..expecting.len() - body.len()];
    connection.write([&request("/v1/check", "", &body), head].concat());
    let statuses = [(); 2].map(|()| connection.answer().status);
    assert_eq!(statuses, [200, 100]);
    let answer = connection.send(&body);
    assert_eq!((answer.status, answer.json()["remaining"].as_u64()), (200, Some(98)));
}

#[test]
fn concurrent_connections_are_admitted_exactly_the_limit() {
    const CONNECTIONS: usize = 8;
    const CHECKS: usize = 250;
    let server = Server::with(&HUNDRED.replace("100", "1000"));
    let together = Barrier::new(CONNECTIONS);
    // The remaining tokens after each allowed check, by connection.
    let left: Vec<Vec<u64>> = thread::scope(|scope| {
        let ask = || {
            let mut connection = server.connect();
            together.wait();
            let answers = (0..CHECKS).map(|_| connection.post("/v1/check", user("ada")));
            let allowed = answers.filter(|answer| answer.status == 200);
            allowed.map(|answer| answer.json()["remaining"].as_u64().expect("a number")).collect()
        };
        let threads: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let mut all = left.concat();
    all.sort_unstable();
    assert_eq!(all, (0..1_000).collect::<Vec<_>>(), "each token was given once");
    assert_eq!(server.metric(r#"tidegate_decisions_total{result="denied"}"#), 1_000);
    // The connections were concurrent: no connection had the limit to itself, and others came between two checks of one.
    assert!(left.iter().all(|left| !left.is_empty()), "a connection came too late");
    let gaps = left.iter().flat_map(|left| left.windows(2)).filter(|pair| pair[0] != pair[1] + 1).count();
    assert!(gaps > 0, "the connections took turns");
}

#[test]
fn a_missing_body_is_answered_after_its_timeout() {
    let server = server_with(&Timeouts {
        request: Duration::from_millis(300),
        linger: Duration::from_secs(2),
        ..Timeouts::default()
    });
    let mut connection = server.connect();
    let answer = connection.send("POST /v1/check HTTP/1.1\r\nHost: tidegate\r\nContent-Length: 50\r\n\r\n{");
    assert_eq!((answer.status, answer.json()["code"].as_str()), (408, Some("too_slow")));
    assert_eq!(answer.header("connection"), Some("close"));
    // A body in chunks ends the connection, too.
    let mut connection = server.connect();
    let chunk = "1\r\n{\r\n";
    let answer = connection
        .send(format!("POST /v1/check HTTP/1.1\r\nHost: tidegate\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}"));
    assert_eq!((answer.status, answer.header("connection")), (408, Some("close")));
    assert!(connection.is_closed());
    // The beginning of the body may have come before its turn.
    let mut connection = server.connect();
    let readiness = "GET /readyz HTTP/1.1\r\nHost: tidegate\r\n\r\n";
    let head = "POST /v1/check HTTP/1.1\r\nHost: tidegate\r\nContent-Length: 50\r\n\r\n";
    connection.write(format!("{readiness}{head}{{"));
    assert_eq!((connection.answer().status, connection.answer().status), (200, 408));
}

/// The head of a request whose body has fifty bytes.
const HEAD_OF_FIFTY: &str = "POST /v1/check HTTP/1.1\r\nHost: tidegate\r\nContent-Length: 50\r\n\r\n";
/// A timeout far longer than that of a body.
const LATE: Duration = Duration::from_secs(20);

#[track_caller]
fn assert_is_too_slow(answer: &HttpReply, begun: Instant, period: Duration) {
    let took = begun.elapsed();
    assert_eq!((answer.status, answer.json()["code"].as_str()), (408, Some("too_slow")));
    assert!((period..LATE).contains(&took), "{took:?}");
}

#[test]
fn a_body_without_a_byte_is_answered_also_behind_other_requests() {
    let period = Duration::from_millis(300);
    let server = server_with(&Timeouts { request: period, linger: Duration::from_secs(2), ..Timeouts::default() });
    let check = request("/v1/check", "", user("ada"));
    for before in [0, 1, 3] {
        let (mut connection, begun) = (server.connect(), Instant::now());
        connection.write([&check.repeat(before), HEAD_OF_FIFTY.as_bytes()].concat());
        for _ in 0..before {
            assert_eq!(connection.answer().status, 200);
        }
        assert_is_too_slow(&connection.answer(), begun, period);
    }
    // The response before it has been read when its head comes.
    let mut connection = server.connect();
    assert_eq!(connection.send(&check).status, 200);
    let begun = Instant::now();
    assert_is_too_slow(&connection.send(HEAD_OF_FIFTY), begun, period);
}

#[test]
fn a_body_that_comes_byte_by_byte_has_no_longer_timeout() {
    let period = Duration::from_millis(300);
    let server = server_with(&Timeouts { request: period, linger: Duration::from_secs(2), ..Timeouts::default() });
    let (mut connection, begun) = (server.connect(), Instant::now());
    connection.write(HEAD_OF_FIFTY.replace("50", "100000"));
    let mut writer = connection.writer();
    let (answered, waiting) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            let pause = Duration::from_millis(50);
            while waiting.recv_timeout(pause) == Err(mpsc::RecvTimeoutError::Timeout) && writer.write_all(b" ").is_ok()
            {
            }
        });
        let answer = connection.answer();
        drop(answered);
        assert_is_too_slow(&answer, begun, period);
    });
}

#[test]
fn a_missing_head_ends_the_connection() {
    let server = server_with(&Timeouts { request_head: Duration::from_secs(2), ..Timeouts::default() });
    let mut connection = server.connect();
    let answer = connection.send("POST /v1/check HTTP/1.1\r\nHo");
    assert_eq!(answer.status, 408);
    assert!(connection.is_closed());
}

#[test]
fn an_unfinished_later_head_ends_the_connection() {
    let server = server_with(&Timeouts { request_head: Duration::from_secs(2), idle: LONG, ..Timeouts::default() });
    let check = request("/v1/check", "", user("ada"));
    let [mut resting, mut connection] = [(); 2].map(|()| server.connect());
    assert_eq!([resting.send(&check).status, connection.send(&check).status], [200; 2]);
    for _ in 0..2 {
        // The bytes of one head do not begin the timeout of the next.
        let (begun, rest) = check.split_at(20);
        connection.write(begun);
        assert_eq!(connection.send(rest).status, 200);
    }
    connection.write("POST /v1/check HTTP/1.1\r\nHo");
    assert!(connection.is_closed());
    // A head that comes byte by byte ends the connection, too.
    let mut slow = TcpStream::connect(server.address).expect("the server listens");
    slow.write_all(&check).expect("it is read");
    assert!(slow.read(&mut [0; 1_024]).expect("an answer") > 0);
    wait_until("a slow head ends its connection", || slow.write_all(b"a").is_err());
    assert_eq!(resting.send(&check).status, 200, "where no head has begun none is late");
}

#[test]
fn a_head_that_begins_with_the_request_before_has_the_idle_timeout() {
    let server = server_with(&Timeouts { request_head: LONG, idle: Duration::from_secs(1), ..Timeouts::default() });
    let mut connection = server.connect();
    let check = request("/v1/check", "", user("ada"));
    let answer = connection.send([&check[..], b"POST /v1/check HTTP/1.1\r\nHo"].concat());
    assert_eq!(answer.status, 200);
    assert!(connection.is_closed());
}

#[test]
fn a_broken_off_body_charges_nothing_and_affects_no_other_connection() {
    let server = Server::with(HUNDRED);
    let body = user("ada");
    let mut whole = request("/v1/check", "", &body);
    whole.pop();
    let mut connection = server.connect();
    connection.write(&whole);
    drop(connection);
    assert_eq!(server.check(&user("bob")).status, 200);
    assert_eq!(server.remaining("ada"), 100);
}

#[test]
fn the_server_reports_that_it_is_not_ready_before_it_stops() {
    let server = Server::with(HUNDRED);
    let (mut ready, mut checks) = (server.connect(), server.connect());
    server.drain(LONG_DELAY);
    let asked = || ready.send("GET /readyz HTTP/1.1\r\nHost: tidegate\r\n\r\n");
    let left = std::iter::repeat_with(asked).find(|answer| answer.status == 503).expect("it leaves");
    assert_eq!(left.text(), "stopping: send requests elsewhere\n");
    assert_eq!(checks.post("/v1/check", user("ada")).status, 200, "checks are answered on");
    assert_eq!(server.check(&user("bob")).status, 200, "also of newcomers");
}

fn idle_connections_are_closed(timeouts: &Timeouts) {
    let server = server_with(timeouts);
    let check = request("/v1/check", "", user("ada").replace("]}", r#"],"peek":true}"#));
    resting_connections_are_closed(
        timeouts.idle,
        || server.connect(),
        |connection| connection.send_or_end(&check).is_ok_and(|answer| answer.status == 200),
        |mut connection| connection.is_closed(),
    );
}

#[test]
fn an_idle_connection_is_closed_and_a_used_one_is_not() {
    idle_connections_are_closed(&Timeouts { idle: Duration::from_millis(600), ..Timeouts::default() });
}

/// Tests of the real timeouts.
mod long {
    use super::*;

    #[test]
    #[ignore = "long: a connection rests for a minute"]
    fn a_connection_is_closed_after_an_idle_minute() {
        idle_connections_are_closed(&Timeouts::default());
    }
}

#[test]
fn a_stopped_server_frees_its_address() {
    let mut server = Server::with(HUNDRED);
    let mut connection = server.connect();
    assert_eq!(connection.post("/v1/check", user("ada")).status, 200);
    server.stop().expect("it ends well");
    assert!(connection.is_closed());
    TcpStream::connect(server.address).expect_err("no server listens");
}
