//! Commands of the RESP listener, their replies, and their counts.

use std::time::Duration;

use super::{
    HUNDRED,
    support::{KEYS_MAX, Reply, Server, array, bulk, ok},
};

#[test]
fn cl_throttle_answers_as_redis_cell_does() {
    let server = Server::with(HUNDRED);
    let mut connection = server.connect();
    // The example of its README.
    assert_eq!(connection.numbers("CL.THROTTLE user123 15 30 60 1"), [0, 16, 15, -1, 2]);
    assert_eq!(connection.numbers("cl.throttle user123 15 30 60"), [0, 16, 14, -1, 4]);
    assert_eq!(connection.numbers("CL.THROTTLE user123 15 30 60 14"), [0, 16, 0, -1, 32]);
    assert_eq!(connection.numbers("CL.THROTTLE user123 15 30 60"), [1, 16, 0, 2, 32]);
    assert_eq!(connection.numbers("CL.THROTTLE user123 15 30 60 0"), [0, 16, 0, -1, 32], "only asked");
    assert_eq!(connection.numbers("CL.THROTTLE user123 15 30 60 17"), [1, 16, 0, -1, 32], "it never will be");
    server.clock.advance(Duration::from_secs(3));
    assert_eq!(connection.numbers("CL.THROTTLE user123 15 30 60 0"), [0, 16, 1, -1, 29], "a second and a half");
    // Another command with the same table.
    assert_eq!(connection.numbers("THROTTLE user123 16 30 60"), [1, 16, 0, 31, 0]);
    assert_eq!(connection.numbers("THROTTLE user123 16 30 60"), [0, 16, 0, 31, 1]);
    assert_eq!(
        connection.refused("CL.THROTTLE user123 15 30"),
        "Cell error: Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]"
    );
    assert_eq!(connection.refused("CL.THROTTLE user123 15 x 60"), "Cell error: Couldn't parse as integer: x");
    assert_eq!(connection.refused("THROTTLE"), "ERR wrong number of arguments for 'throttle' command");
    for (series, count) in [
        (r#"tidegate_requests_total{door="resp",route="cl.throttle",status="ok"}"#, 5),
        (r#"tidegate_requests_total{door="resp",route="cl.throttle",status="denied"}"#, 2),
        (r#"tidegate_requests_total{door="resp",route="cl.throttle",status="error"}"#, 2),
        (r#"tidegate_requests_total{door="resp",route="throttle",status="ok"}"#, 1),
        (r#"tidegate_request_duration_seconds_count{door="resp",route="cl.throttle"}"#, 9),
        (r#"tidegate_bad_requests_total{door="resp",code="bad_arguments"}"#, 2),
        (r#"tidegate_bad_requests_total{door="resp",code="bad_number"}"#, 1),
    ] {
        assert_eq!(server.metric(series), count, "{series}");
    }
}

#[test]
fn keys_are_any_bytes() {
    let server = Server::with(HUNDRED);
    let mut connection = server.connect();
    let mut left = |key: &[u8]| {
        connection.write(array(&[b"CL.THROTTLE", key, b"9", b"1", b"60"]));
        let Reply::Array(reply) = connection.reply() else { return Reply::Null };
        reply[2].clone()
    };
    let long = vec![b'k'; 100_000];
    let keys: [&[u8]; 6] = [b"", b"\r\n", b"\xff\xfe", b"\0", b"a b", &long];
    for key in keys {
        assert_eq!((left(key), left(key)), (Reply::Integer(9), Reply::Integer(8)), "{}", key.len());
    }
}

/// Returns a reply with the five numbers of redis-cell and the limit.
fn decision(numbers: [i64; 5], limit: Reply) -> Reply {
    Reply::Array(numbers.map(Reply::Integer).into_iter().chain([limit]).collect())
}

#[test]
fn tidegate_check_is_decided_by_the_policy() {
    let server = Server::with(HUNDRED);
    let mut connection = server.connect();
    let minute = || bulk("default/tier:free/minute");
    for endpoint in ["*", "/anywhere"] {
        let left = if endpoint == "*" { 99 } else { 98 };
        let answer = connection.ask(&format!("TIDEGATE.CHECK user ada {endpoint}"));
        assert_eq!(answer, decision([0, 100, left, -1, 60], minute()));
    }
    assert_eq!(connection.ask("TIDEGATE.CHECK user ada "), decision([0, 100, 97, -1, 60], minute()), "an empty one");
    assert_eq!(connection.ask("tidegate.check user ada * 97"), decision([0, 100, 0, -1, 60], minute()));
    assert_eq!(connection.ask("TIDEGATE.CHECK user ada * 1"), decision([1, 100, 0, 60, 60], minute()));
    assert_eq!(connection.ask("TIDEGATE.CHECK user ada * 101"), decision([1, 100, 0, -1, 60], minute()), "never");
    assert_eq!(connection.ask("TIDEGATE.CHECK user ada * 0"), decision([0, 100, 0, -1, 60], minute()), "only asked");
    let search = |answer| decision(answer, bulk("default/rule:search/search"));
    assert_eq!(connection.ask("TIDEGATE.CHECK ip 192.0.2.7 /search?q=1"), search([0, 2, 1, -1, 30]));
    assert_eq!(connection.ask("TIDEGATE.CHECK ip 192.0.2.7 /search 2"), search([1, 2, 1, 30, 30]));
    assert_eq!(connection.ask("TIDEGATE.CHECK ip 192.0.2.7 /"), decision([0, -1, -1, -1, 0], Reply::Null), "no limit");
    let series =
        r#"tidegate_limit_decisions_total{domain="default",limit_id="default/tier:free/minute",result="denied"}"#;
    assert_eq!(server.metric(series), 2);
    let series = r#"tidegate_requests_total{door="resp",route="tidegate.check",status="denied"}"#;
    assert_eq!(server.metric(series), 3);
}

#[test]
fn a_check_with_a_request_id_is_charged_once() {
    let server = Server::with(HUNDRED);
    let (mut connection, mut other) = (server.connect(), server.connect());
    let first = connection.ask("TIDEGATE.CHECK user ada * 2 id-1");
    assert_eq!(connection.ask("TIDEGATE.CHECK user ada * 2 id-1"), first);
    assert_eq!(other.ask("TIDEGATE.CHECK user ada * 2 id-1"), first, "on another connection");
    assert_eq!(connection.numbers("TIDEGATE.CHECK user ada * 0")[2], 98);
    let said = connection.refused("TIDEGATE.CHECK user ada * 3 id-1");
    assert!(said.starts_with("ERR request_id: came with another request"), "{said}");
    assert_eq!(connection.numbers("TIDEGATE.CHECK user ada * 0")[2], 98);
    assert_eq!(server.metric("tidegate_repeated_requests_total"), 2);
}

#[test]
fn a_wrong_check_has_an_error_with_the_field_and_charges_nothing() {
    let server = Server::with(HUNDRED);
    let mut connection = server.connect();
    let long = "v".repeat(1_025);
    let path = format!("/{}", "p".repeat(8_192));
    let id = "i".repeat(129);
    for (command, says) in [
        ("TIDEGATE.CHECK user ada".to_owned(), "ERR wrong number of arguments for 'tidegate.check' command"),
        ("TIDEGATE.CHECK user ada * 1 id more".to_owned(), "ERR wrong number of arguments"),
        ("TIDEGATE.CHECK User ada *".to_owned(), "ERR kind: `User`"),
        ("TIDEGATE.CHECK user  *".to_owned(), "ERR value: "),
        (format!("TIDEGATE.CHECK user {long} *"), "ERR value: that of `user` has 1025 bytes"),
        (format!("TIDEGATE.CHECK user ada {path}"), "ERR endpoint: 8193 bytes"),
        ("TIDEGATE.CHECK user ada * -1".to_owned(), "ERR cost: `-1` is no whole number"),
        ("TIDEGATE.CHECK user ada * many".to_owned(), "ERR cost: `many`"),
        ("TIDEGATE.CHECK user ada * 9007199254740992".to_owned(), "ERR cost: 9007199254740992 is out of range"),
        ("TIDEGATE.CHECK user ada * 1 ".to_owned(), "ERR request_id: 0 bytes"),
        (format!("TIDEGATE.CHECK user ada * 1 {id}"), "ERR request_id: 129 bytes"),
    ] {
        let said = connection.refused(&command);
        assert!(said.starts_with(says), "{command}: {said}");
    }
    connection.write(array(&[&b"TIDEGATE.CHECK"[..], b"user", b"\xff", b"*"]));
    assert_eq!(connection.reply(), Reply::Error("ERR value: it is not UTF-8".to_owned()));
    assert_eq!(connection.numbers("TIDEGATE.CHECK user ada * 0")[2], 100);
    assert_eq!(server.metric(r#"tidegate_bad_requests_total{door="resp",code="bad_cost"}"#), 3);
}

#[test]
fn the_first_commands_of_client_libraries_are_answered() {
    let server = Server::with(HUNDRED);
    let mut connection = server.connect();
    assert_eq!(connection.ask("PING"), Reply::Simple("PONG".to_owned()));
    assert_eq!(connection.ask("ping hello"), bulk("hello"));
    assert_eq!(connection.ask("ECHO hello"), bulk("hello"));
    assert_eq!(connection.refused("PING a b"), "ERR wrong number of arguments for 'ping' command");
    assert_eq!(connection.ask("CLIENT SETINFO LIB-NAME mine"), ok());
    assert_eq!(connection.ask("CLIENT SETNAME me"), ok());
    assert!(matches!(connection.ask("CLIENT ID"), Reply::Integer(1..)));
    assert_eq!(connection.ask("CLIENT GETNAME"), Reply::Null);
    assert_eq!(connection.refused("CLIENT KILL"), "ERR unknown subcommand 'KILL' of 'client'");
    assert_eq!(connection.ask("SELECT 0"), ok());
    assert_eq!(connection.refused("SELECT 1"), "ERR DB index is out of range; there is 0 alone");
    let said = connection.refused("GET a");
    assert!(said.starts_with("ERR unknown command 'GET'; there are CL.THROTTLE"), "{said}");
    let said = connection.refused("\x1b[31m\r\nINJECTED");
    assert!(said.starts_with("ERR unknown command ' [31m  INJECTED'"), "{said}");
    let said = connection.refused("AUTH somebody");
    assert!(said.starts_with("ERR AUTH <password> called without any password configured"), "{said}");

    assert_eq!(connection.ask("COMMAND COUNT"), Reply::Integer(13));
    let Reply::Array(names) = connection.ask("COMMAND LIST") else { unreachable!("a list") };
    assert!(names.len() == 13 && names.contains(&bulk("tidegate.check")));
    for all in ["COMMAND", "COMMAND INFO"] {
        let Reply::Array(all) = connection.ask(all) else { unreachable!("a list") };
        assert!(all.iter().all(|one| matches!(one, Reply::Array(parts) if parts.len() == 10)) && all.len() == 13);
    }
    let Reply::Array(two) = connection.ask("COMMAND INFO ping get") else { unreachable!("a list") };
    assert!(matches!(&two[0], Reply::Array(parts) if parts[0] == bulk("ping")) && two[1] == Reply::Null);
    let Reply::Array(docs) = connection.ask("COMMAND DOCS DEL nothing") else { unreachable!("a list") };
    assert!(docs.len() == 2 && docs[0] == bulk("del"), "{docs:?}");

    let Reply::Bulk(info) = connection.ask("INFO") else { unreachable!("a text") };
    for part in ["# Server\r\n", "redis_version:", "tidegate_version:0", "\r\n\r\n# Stats\r\n", "policy_version:1\r\n"]
    {
        assert!(info.contains(part), "{part}: {info}");
    }
    assert!(matches!(connection.ask("INFO stats"), Reply::Bulk(info) if !info.contains("# Server")));
    assert_eq!(connection.ask("INFO nothing"), bulk(""));
    assert_eq!(connection.ask("QUIT"), ok());
    assert!(connection.is_closed());
}

/// The default of redis-py sends a pipeline as a transaction.
#[test]
fn commands_in_a_transaction_are_refused_and_charge_nothing() {
    let server = Server::with(HUNDRED);
    let mut connection = server.connect();
    let throttle = array(&["CL.THROTTLE", "ada", "9", "1", "60"]);
    let sent = [array(&["MULTI"]), throttle.clone(), array(&["PING"]), array(&["EXEC"]), throttle];
    connection.write(sent.concat());
    assert_eq!(connection.reply(), ok());
    for says in ["ERR there are no transactions"; 2].into_iter().chain(["EXECABORT "]) {
        let reply = connection.reply();
        assert!(matches!(&reply, Reply::Error(said) if said.starts_with(says)), "{says}: {reply:?}");
    }
    assert!(matches!(connection.reply(), Reply::Array(answer) if answer[2] == Reply::Integer(9)), "the first charge");
    assert_eq!((connection.ask("MULTI"), connection.ask("DISCARD")), (ok(), ok()));
    assert!(connection.refused("EXEC").starts_with("ERR unknown command 'EXEC'"), "there is none");
    assert_eq!(server.metric(r#"tidegate_bad_requests_total{door="resp",code="transaction"}"#), 3);
}

#[test]
fn denials_by_the_share_of_a_caller_show_in_the_metrics() {
    let server = Server::with(HUNDRED);
    let mut connection = server.connect();
    let overflow = |server: &Server| server.metric("tidegate_throttle_overflow_charges_total");
    let fault = r#"tidegate_health_degraded{reason="overflow"}"#;
    connection.numbers("CL.THROTTLE ada 9 1 60");
    assert_eq!((overflow(&server), server.metric(fault)), (0, 0));
    for some in (0..4 * KEYS_MAX).collect::<Vec<_>>().chunks(1_000) {
        let key = |key: &usize| array(&["CL.THROTTLE", &format!("key-{key}"), "999999", "999999", "60"]);
        connection.write(some.iter().flat_map(key).collect::<Vec<_>>());
        for _ in some {
            connection.reply();
        }
    }
    let denied = server.metric("tidegate_throttle_denied_by_share_total");
    assert!(denied > 4 * KEYS_MAX as u64 - 11_000, "{denied}");
    // It is no fault of the server, which has room for others.
    assert_eq!((overflow(&server), server.metric("tidegate_throttle_denied_without_room_total")), (0, 0));
    assert_eq!((server.metric(fault), server.metric(r#"tidegate_health_degraded{reason="full"}"#)), (0, 0));
}

#[test]
fn version_3_has_its_own_maps_and_null() {
    let server = Server::with(HUNDRED);
    let mut connection = server.connect();
    let Reply::Array(greeting) = connection.ask("HELLO") else { unreachable!("pairs, one after the other") };
    assert!(greeting.len() == 14 && greeting[4..6] == [bulk("proto"), Reply::Integer(2)], "{greeting:?}");
    assert_eq!(connection.refused("HELLO 4"), "NOPROTO unsupported protocol version; 2 and 3 are spoken");
    assert_eq!(connection.refused("HELLO 3 AUTH me"), "ERR Syntax error in HELLO option 'AUTH'");
    connection.write("HELLO 3 SETNAME me\r\n");
    let Reply::Map(greeting) = connection.reply() else { unreachable!("a map") };
    assert!(
        greeting.contains(&(bulk("server"), bulk("tidegate")))
            && greeting.contains(&(bulk("proto"), Reply::Integer(3)))
    );
    connection.write("CLIENT GETNAME\r\n");
    assert_eq!(connection.read_once(), "_\r\n");
    assert!(matches!(connection.ask("COMMAND DOCS ping"), Reply::Map(docs) if matches!(docs[0].1, Reply::Map(_))));
    let Reply::Array(answer) = connection.ask("TIDEGATE.CHECK ip 192.0.2.7 *") else { unreachable!("a decision") };
    assert_eq!(answer[5], Reply::Null);
    assert!(matches!(connection.ask("HELLO 2"), Reply::Array(_)));
    connection.write("CLIENT GETNAME\r\n");
    assert_eq!(connection.read_once(), "$-1\r\n");
}
