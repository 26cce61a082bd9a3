//! RESP connections: pipelines, malformed input, slow peers, peers that do not read, idle ones, and stops.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpStream},
    ops::Range,
    sync::Barrier,
    thread,
    time::Duration,
};

use tidegate_service::{ListenerSettings, Timeouts};
use tidegate_testkit::wait_until;
use tokio::{net::TcpSocket, time::Instant};

use super::{
    HUNDRED,
    support::{Connection, Reply, Server, array, ok},
};
use crate::process::{LONG_DELAY, resting_connections_are_closed};

/// A timeout longer than any test.
const LONG: Duration = Duration::from_mins(10);

const CHECK: &str = "TIDEGATE.CHECK user ada * 1\r\n";

/// Returns a server with these timeouts.
fn server_with(timeouts: &Timeouts) -> Server {
    Server::listening(HUNDRED, ListenerSettings { timeouts: *timeouts, ..ListenerSettings::default() }, None)
}

#[test]
fn replies_to_commands_that_came_together_are_written_together() {
    let server = Server::with(HUNDRED);
    let mut connection = server.connect();
    let throttle = array(&["CL.THROTTLE", "ada", "99", "100", "60"]);
    let bad = array(&["CL.THROTTLE", "ada", "99", "100", "x"]);
    connection.write([throttle.as_slice(), &throttle, &bad, &throttle, b"PING\r\n"].concat());
    let numbers = |left: usize, reset: usize| format!("*5\r\n:0\r\n:100\r\n:{left}\r\n:-1\r\n:{reset}\r\n");
    let said = [numbers(99, 1), numbers(98, 2), numbers(97, 2)];
    let error = "-Cell error: Couldn't parse as integer: x\r\n";
    assert_eq!(connection.read_once(), format!("{}{}{error}{}+PONG\r\n", said[0], said[1], said[2]));
}

#[test]
fn a_long_pipeline_is_answered_in_order() {
    const COMMANDS: usize = 50_000;
    let server = Server::with(HUNDRED);
    let mut connection = server.connect();
    let mut writer = connection.socket().try_clone().expect("a socket");
    let writing = thread::spawn(move || {
        let all: Vec<u8> = (0..COMMANDS).flat_map(|place| array(&["PING", &place.to_string()])).collect();
        writer.write_all(&all).expect("the server reads");
    });
    for place in 0..COMMANDS {
        assert_eq!(connection.reply(), Reply::Bulk(place.to_string()));
    }
    writing.join().expect("no panic");
    // The input is cut anywhere.
    for byte in array(&["PING", "a"]) {
        connection.write([byte]);
    }
    assert_eq!(connection.reply(), Reply::Bulk("a".to_owned()));
}

#[test]
fn concurrent_connections_are_admitted_exactly_the_limit() {
    const CONNECTIONS: usize = 8;
    const CHECKS: usize = 250;
    let server = Server::with(&HUNDRED.replace("limit = 100", "limit = 1000"));
    let together = Barrier::new(CONNECTIONS);
    for command in [CHECK, "CL.THROTTLE ada 999 1000 60\r\n"] {
        // The remaining tokens after each allowed command.
        let mut all: Vec<i64> = thread::scope(|scope| {
            let ask = || {
                let mut connection = server.connect();
                together.wait();
                let mut left = Vec::new();
                for _ in 0..CHECKS {
                    connection.write(command);
                    let Reply::Array(answer) = connection.reply() else { unreachable!("five numbers") };
                    if let (Reply::Integer(0), Reply::Integer(rest)) = (&answer[0], &answer[2]) {
                        left.push(*rest);
                    }
                }
                left
            };
            let threads: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(ask)).collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
        });
        all.sort_unstable();
        assert_eq!(all, (0..1_000).collect::<Vec<_>>(), "each token was given once: {command}");
    }
}

#[test]
fn malformed_input_has_an_error_and_ends_the_connection() {
    let server = server_with(&Timeouts { discard: LONG, ..Timeouts::default() });
    for (bytes, says) in [
        (b"*1\r\n:1\r\n".to_vec(), "ERR Protocol error: expected '$', got ':'"),
        (b"*x\r\n".to_vec(), "ERR Protocol error: invalid multibulk length"),
        (b"*1\r\n$1048577\r\n".to_vec(), "ERR Protocol error: invalid bulk length"),
        (vec![b'a'; 70_000], "ERR Protocol error: too big inline request"),
        (array(&[vec![b'a'; 600_000], vec![b'a'; 600_000]]), "ERR Protocol error: the command is too long"),
    ] {
        let mut connection = server.connect();
        // An error: the connection may have ended before all was sent.
        let _ = connection.socket().write_all(&[b"PING\r\n", &bytes[..]].concat());
        assert_eq!(connection.reply(), Reply::Simple("PONG".to_owned()), "what came before is answered");
        let reply = connection.reply();
        assert!(matches!(&reply, Reply::Error(said) if said.starts_with(says)), "{says}: {reply:?}");
    }
    let mut connection = server.connect();
    connection.write("*1\r\n:1\r\n");
    connection.reply();
    assert!(connection.is_closed());
}

#[test]
fn a_request_of_a_browser_ends_the_connection() {
    let server = Server::with(HUNDRED);
    let mut connection = server.connect();
    connection.write(format!("POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n{CHECK}"));
    let reply = connection.reply();
    assert!(matches!(&reply, Reply::Error(said) if said.starts_with("ERR unknown command 'POST'")), "{reply:?}");
    assert_eq!(server.connect().numbers("TIDEGATE.CHECK user ada * 0")[2], 100, "nothing was charged");
}

#[test]
fn too_many_arguments_are_refused_and_the_connection_goes_on() {
    let server = Server::with(HUNDRED);
    let mut connection = server.connect();
    connection.write([array(&vec!["DEL"; 100_000]), b"PING\r\n".to_vec()].concat());
    let many = "ERR too many arguments; 64 fit, with the name of the command";
    assert_eq!(connection.reply(), Reply::Error(many.to_owned()));
    assert_eq!(connection.reply(), Reply::Simple("PONG".to_owned()));
    connection.write("PING \"a\r\nPING\r\n");
    assert!(matches!(connection.reply(), Reply::Error(said) if said.starts_with("ERR unbalanced quotes")));
    assert_eq!(connection.reply(), Reply::Simple("PONG".to_owned()));
}

#[test]
fn an_unfinished_command_ends_the_connection() {
    let server = server_with(&Timeouts { request: Duration::from_millis(300), ..Timeouts::default() });
    for begun in ["*2\r\n$4\r\nPING\r\n$3\r\nab", "PIN", "*100\r\n$1\r\na\r\n"] {
        let mut connection = server.connect();
        connection.write(format!("PING\r\n{begun}"));
        assert_eq!(connection.reply(), Reply::Simple("PONG".to_owned()));
        let reply = connection.reply();
        assert!(matches!(&reply, Reply::Error(said) if said.contains("did not come to its end")), "{begun}: {reply:?}");
        assert!(connection.is_closed());
    }
    assert_eq!(server.metric(r#"tidegate_bad_requests_total{door="resp",code="too_slow"}"#), 3);
    assert_eq!(server.metric(r#"tidegate_requests_total{door="resp",route="other",status="error"}"#), 3);
}

#[test]
fn a_broken_off_command_charges_nothing() {
    let server = Server::with(HUNDRED);
    let whole = array(&["TIDEGATE.CHECK", "user", "ada", "*"]);
    let mut connection = server.connect();
    connection.write(&whole[..whole.len() - 1]);
    connection.socket().shutdown(Shutdown::Write).expect("a socket");
    assert!(connection.is_closed());
    assert_eq!(server.connect().numbers("TIDEGATE.CHECK user ada * 0")[2], 100);
}

/// The server stops reading from a peer that does not read, and answers others.
#[test]
fn a_peer_that_does_not_read_takes_no_memory() {
    let server = Server::with(HUNDRED);
    // The system buffers little input, so that answering all of it in the end does not take long.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut stream = runtime.block_on(async {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_send_buffer_size(16 << 10).expect("a size");
        let stream = socket.connect(server.address).await.expect("it listens");
        stream.into_std().expect("it is registered")
    });
    stream.set_nonblocking(false).expect("a socket");
    stream.set_write_timeout(Some(Duration::from_secs(1))).expect("a socket");
    let much = b"COMMAND\r\n".repeat(1_000);
    let mut sent = 0_usize;
    // Each reply has some 100 times the bytes of its command.
    while let Ok(bytes) = stream.write(&much[sent % much.len()..]) {
        sent += bytes;
        assert!(sent < 64 << 20, "it is read from, though it does not read");
    }
    assert_eq!(server.connect().ask("PING"), Reply::Simple("PONG".to_owned()));
    // The peer gets all replies when it reads.
    stream.set_nonblocking(false).expect("a socket");
    stream.shutdown(Shutdown::Write).expect("a socket");
    let (mut stream, mut line, mut answers) = (BufReader::new(stream), Vec::new(), 0);
    while stream.read_until(b'\n', &mut line).expect("to its end") > 0 {
        answers += usize::from(line == b"cl.throttle\r\n");
        line.clear();
    }
    assert!(answers >= sent / 9 - 1, "{answers} answers to {} commands", sent / 9);
}

#[test]
fn long_commands_have_their_share_of_the_budget_and_no_more() {
    let server = server_with(&Timeouts { request: LONG, discard: LONG, body_grace: LONG, ..Timeouts::default() });
    let long = array(&[b"PING".to_vec(), vec![b'a'; 1_000_000]]);
    let (head, tail) = long.split_at(600_000);
    // A peer has 8 MiB for its long commands, and each of these takes a MiB for its 600 kB.
    let begun = || {
        let connection = server.connect();
        let _ = connection.socket().write_all(head);
        connection
    };
    let mut connections: Vec<_> = (0..20).map(|_| begun()).collect();
    let refused = r#"tidegate_bad_requests_total{door="resp",code="overload"}"#;
    wait_until("one finds no room", || server.metric_if_counted(refused).is_some_and(|count| count > 0));
    let mut overload = 0;
    for connection in &mut connections {
        let _ = connection.socket().write_all(tail);
        match connection.reply() {
            Reply::Bulk(text) => assert_eq!(text.len(), 1_000_000),
            Reply::Error(said) if said.contains("too many long commands") => overload += 1,
            other => unreachable!("{other:?}"),
        }
    }
    assert!((1..20).contains(&overload), "{overload} of 20 had no room");
    assert_eq!(server.metric(refused), overload);
    drop(connections);
    let mut connection = server.connect();
    connection.write(&long);
    assert!(matches!(connection.reply(), Reply::Bulk(_)), "the room was given back");
}

/// The budget of a long command is given back although further commands keep the connection alive.
#[test]
fn a_connection_that_goes_on_gives_its_budget_back() {
    // The budget does not come back by the end of the connection.
    let server = server_with(&Timeouts { request: LONG, idle: LONG, unread_replies: LONG, ..Timeouts::default() });
    let mut connection = server.connect();
    connection.write([array(&[b"PING".to_vec(), vec![b'a'; 600_000]]), b"P".to_vec()].concat());
    assert!(matches!(connection.reply(), Reply::Bulk(_)));
    for _ in 0..3 {
        connection.write("ING\r\nP");
        assert_eq!(connection.reply(), Reply::Simple("PONG".to_owned()));
    }
    // The last reply may come a little before the budget is given back.
    wait_until("the room is given back", || server.metric("tidegate_body_budget_bytes") == 0);
    connection.write("ING\r\n");
    assert_eq!(connection.reply(), Reply::Simple("PONG".to_owned()));
}

/// More commands come than are answered, and the replies are read late.
#[test]
fn at_a_stop_the_replies_to_received_commands_arrive() {
    const CAME: usize = 1_000;
    // This thread may come late to read the replies.
    let mut server = server_with(&Timeouts { discard: LONG, ..Timeouts::default() });
    let (mut idle, mut busy) = (server.connect(), server.connect());
    assert_eq!((idle.ask("CLIENT SETNAME me"), busy.ask("CLIENT SETNAME me")), (ok(), ok()));
    let pings = |numbers: Range<usize>| -> Vec<u8> {
        numbers.flat_map(|number| array(&["PING", &number.to_string()])).collect()
    };
    busy.write(pings(0..CAME));
    server.drain(Duration::ZERO);
    for batch in 1..3 {
        // The server may have ended the connection by then.
        thread::sleep(Duration::from_millis(400));
        busy.write(pings(batch * CAME..(batch + 1) * CAME));
    }
    let mut said = String::new();
    busy.socket().read_to_string(&mut said).expect("an end, no reset");
    let replies = said.matches('$').count();
    let all: Vec<_> = (0..replies).map(|number| format!("${}\r\n{number}\r\n", number.to_string().len())).collect();
    assert!(replies >= CAME && said == all.concat(), "each in turn, and whole: {said}");
    assert!(idle.is_closed());
    drop((idle, busy));
    server.stop().expect("it ends well");
    TcpStream::connect(server.address).expect_err("no server listens");
}

#[test]
fn commands_are_answered_during_the_delay_of_a_stop() {
    let server = Server::with(HUNDRED);
    let mut connection = server.connect();
    assert_eq!(connection.ask("PING"), Reply::Simple("PONG".to_owned()));
    server.drain(LONG_DELAY);
    wait_until("it is leaving", || server.is_leaving());
    assert_eq!(connection.ask("PING"), Reply::Simple("PONG".to_owned()));
    assert_eq!(server.connect().ask("PING"), Reply::Simple("PONG".to_owned()), "also to newcomers");
}

#[test]
fn the_listener_stops_when_the_delay_is_over() {
    const DELAY: Duration = Duration::from_millis(500);
    let server = Server::with(HUNDRED);
    let mut connection = server.connect();
    assert_eq!(connection.ask("PING"), Reply::Simple("PONG".to_owned()));
    let begun = Instant::now();
    server.drain(DELAY);
    assert!(connection.is_closed(), "in the end");
    assert!(begun.elapsed() >= DELAY, "{:?}", begun.elapsed());
}

fn idle_connections_are_closed(timeouts: &Timeouts) {
    let server = server_with(timeouts);
    resting_connections_are_closed(
        timeouts.idle,
        || server.connect(),
        Connection::is_alive,
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
