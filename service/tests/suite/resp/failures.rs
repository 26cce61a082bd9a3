//! Panics over the Redis protocol: `on_error` of the domain decides the outcome, they are counted, and other commands go on.

use std::{panic, sync::Once};

use super::{
    HUNDRED,
    support::{Reply, Server},
};

/// Silences the reports of intended panics.
fn hush() {
    static HUSH: Once = Once::new();
    HUSH.call_once(|| {
        let tell = panic::take_hook();
        panic::set_hook(Box::new(move |what| {
            if !what.payload_as_str().unwrap_or_default().contains("the clock is broken") {
                tell(what);
            }
        }));
    });
}

#[test]
fn a_panic_while_deciding_has_the_outcome_of_the_domain() {
    hush();
    for (on_error, is_denied) in [("", 0), ("on_error = \"closed\"", 1)] {
        let server = Server::with(&HUNDRED.replacen("[domains.default]", &format!("[domains.default]\n{on_error}"), 1));
        let mut connection = server.connect();
        server.break_clock(true);
        let wait = if is_denied == 1 { 1 } else { -1 };
        for _ in 0..10 {
            assert_eq!(connection.numbers("CL.THROTTLE ada 9 10 60"), [is_denied, 10, 0, wait, 0]);
            assert_eq!(connection.numbers("THROTTLE ada 9 10 60"), [1 - is_denied, 9, 0, 0, is_denied]);
            let Reply::Array(answer) = connection.ask("TIDEGATE.CHECK user ada *") else { unreachable!("a decision") };
            let numbers = [is_denied, -1, -1, wait, 0].map(Reply::Integer);
            assert_eq!((&answer[..5], &answer[5]), (&numbers[..], &Reply::Null));
        }
        assert_eq!(connection.ask("PING"), Reply::Simple("PONG".to_owned()));
        server.break_clock(false);
        assert_eq!(server.metric(r#"tidegate_degraded_total{reason="internal_error"}"#), 30);
        assert_eq!(connection.numbers("CL.THROTTLE ada 9 10 60"), [0, 10, 9, -1, 6], "nothing was charged");
        assert_eq!(connection.numbers("TIDEGATE.CHECK user ada *")[2], 99);
    }
}
