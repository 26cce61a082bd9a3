//! Attacks over the Redis protocol. Each is refused as it must be, while a caller at another address gets exactly its quota.

use std::{net::SocketAddr, time::Duration};

use tidegate_service::{ListenerSettings, Timeouts};
use tidegate_testkit::hostile::{self, beside, exchange};

use super::{
    HUNDRED,
    support::{Connection, KEYS_MAX, Reply, Server, array, ok},
};
use crate::tokens::{FALSE_TOKENS, TOKEN, settings_with_token};

/// A timeout longer than any test.
const LONG: Duration = Duration::from_mins(10);

/// A check of the user whose quota is checked: a charge by an attack would show there.
const CHECK: [&str; 4] = ["TIDEGATE.CHECK", "user", "grace", "*"];

/// Asserts that this user is decided by its limit alone, on connections of both worker threads, which send `token` if
/// there is one.
fn gets_its_quota(address: SocketAddr, token: Option<&str>) {
    let mut connections = [(); 4].map(|()| {
        let mut connection = Connection::to(address);
        if let Some(token) = token {
            assert_eq!(connection.ask(&format!("AUTH {token}")), ok());
        }
        connection
    });
    for numbers in (0..100).rev().map(|left| [0_i64, 100, left]).chain([[1, 100, 0]; 10]) {
        connections.rotate_left(1);
        assert_eq!(connections[0].numbers(&CHECK.join(" "))[..3], numbers);
    }
}

#[test]
fn an_invalid_count_ends_only_its_own_connection() {
    let server = Server::with(HUNDRED);
    let counts = [
        "*1048577",
        "*2147483648",
        "*4294967296",
        "*9999999999",
        "*9223372036854775807",
        "*18446744073709551617",
        "*-9223372036854775808",
        "*+1",
        "* 1",
        "*0x1",
        "*1e3",
        "*1.0",
        "*",
    ];
    let lengths = [
        "$1048577",
        "$2147483647",
        "$4294967297",
        "$9999999999",
        "$9223372036854775807",
        "$18446744073709551617",
        "$-1",
        "$-2147483648",
        "$+4",
        "$ 4",
        "$0x4",
        "$",
    ];
    let mut forms: Vec<(String, &str)> = Vec::new();
    forms.extend(counts.map(|count| (format!("{count}\r\n"), "invalid multibulk length")));
    forms.extend(lengths.map(|length| (format!("*1\r\n{length}\r\n"), "invalid bulk length")));
    // The same holds behind too many arguments, which are discarded.
    forms.extend(lengths.map(|length| (format!("*65\r\n$1\r\na\r\n{length}\r\n"), "invalid bulk length")));
    forms.push(("*1\r\n".repeat(10_000), "expected '$', got '*'"));
    forms.push(("*2\r\n$4\r\nPING\r\n*2\r\n".to_owned(), "expected '$', got '*'"));
    forms.push((
        "*2\r\n$4\r\nPING\r\n$1\r\nPING\r\n".to_owned(),
        "an argument does not end with CR and LF after its length",
    ));
    let attack = || {
        for (form, why) in &forms {
            // Nothing behind it is read as a command.
            let received = exchange(server.address, [form.as_bytes(), &array(&CHECK)].concat());
            assert_eq!(received, format!("-ERR Protocol error: {why}\r\n"), "{form:?}");
        }
    };
    beside(|| gets_its_quota(server.address, None), attack);
    assert_eq!(server.engine.totals().allowed, 100);
}

#[test]
fn an_announced_argument_that_does_not_come_takes_no_memory() {
    const CONNECTIONS: usize = 50;
    // The connections do not end during the test.
    let timeouts = Timeouts { request: LONG, ..Timeouts::default() };
    let server = Server::listening(HUNDRED, ListenerSettings { timeouts, ..ListenerSettings::default() }, None);
    let announced = ["*1048576\r\n", "*64\r\n$1048576\r\n", "*65\r\n$1048576\r\n", "*2\r\n$4\r\nPING\r\n$1048576\r\na"];
    let mut held = Vec::new();
    for bytes in announced.iter().cycle().take(CONNECTIONS) {
        let mut connection = Connection::over(hostile::connect(server.address));
        connection.write(format!("PING\r\n{bytes}"));
        assert_eq!(connection.reply(), Reply::Simple("PONG".to_owned()));
        held.push(connection);
    }
    gets_its_quota(server.address, None);
    assert_eq!(server.metric("tidegate_body_budget_bytes"), 0);
    drop(held);
}

#[test]
fn a_value_that_resembles_a_token_is_refused() {
    let server = Server::listening(HUNDRED, settings_with_token(), None);
    let mut logins: Vec<Vec<u8>> = Vec::new();
    for like in FALSE_TOKENS.into_iter().chain(["", "default"]) {
        logins.push(array(&["AUTH", like]));
        logins.push(array(&["AUTH", "default", like]));
        logins.push(array(&["HELLO", "3", "AUTH", "default", like]));
    }
    // The token in the place of the user name.
    logins.push(array(&["AUTH", TOKEN, "default"]));
    logins.push(array(&["HELLO", "3", "AUTH", TOKEN, "default"]));
    let attack = || {
        for login in &logins {
            // Commands in the same input do not pass, be they before or behind it.
            let received = exchange(server.address, [&array(&CHECK)[..], login, &array(&CHECK)].concat());
            let replies: Vec<&str> = received.lines().map(|line| line.split(' ').next().unwrap_or_default()).collect();
            assert_eq!(replies, ["-NOAUTH", "-WRONGPASS", "-NOAUTH"], "{}: {received}", login.escape_ascii());
        }
    };
    beside(|| gets_its_quota(server.address, Some(TOKEN)), attack);
    assert_eq!(server.engine.totals().allowed, 100);
}

/// Sends `CL.THROTTLE` for many keys, which take their places for a year.
fn take_places(address: SocketAddr) {
    let mut connection = Connection::over(hostile::connect(address));
    for some in (0..2 * KEYS_MAX).collect::<Vec<_>>().chunks(1_000) {
        let key = |key: &usize| array(&["CL.THROTTLE", &format!("taken-{key}"), "0", "1", "31536000"]);
        connection.write(some.iter().flat_map(key).collect::<Vec<_>>());
        for _ in some {
            connection.reply();
        }
    }
}

#[test]
fn keys_without_end_leave_places_to_the_keys_of_others() {
    let server = Server::with(HUNDRED);
    take_places(server.address);
    let denied = server.metric("tidegate_throttle_denied_by_share_total");
    assert!(denied > 0, "the caller has its share");
    let keys_of_another = || {
        let mut connection = server.connect();
        for key in 0..1_000 {
            for is_denied in [0, 0, 0, 1] {
                assert_eq!(
                    connection.numbers(&format!("CL.THROTTLE user-{key} 2 3 86400"))[0],
                    is_denied,
                    "user-{key}"
                );
            }
        }
    };
    beside(keys_of_another, || take_places(server.address));
    assert!(server.metric("tidegate_throttle_denied_by_share_total") > denied);
}
