//! Request IDs over HTTP: a repeat is not charged, within bounds.

use std::{sync::Barrier, thread, time::Duration};

use serde_json::{Value, json};
use tidegate::time::SECOND_NS;

use super::{HUNDRED, support::Server, user};

/// Returns a check of one user with a request ID and further fields.
fn named(user: &str, id: &str, more: &str) -> String {
    format!(r#"{{"identities":[{{"kind":"user","value":"{user}"}}],"request_id":"{id}"{more}}}"#)
}

#[test]
fn a_repeat_is_not_charged_and_has_the_same_outcome_for_a_minute() {
    let server = Server::with(&HUNDRED.replace("1m", "2m"));
    let first = server.check(&named("ada", "r-1", ""));
    assert_eq!((first.status, &first.json()["remaining"]), (200, &json!(99)));
    server.clock.advance(Duration::from_nanos(60 * SECOND_NS - 1));
    let repeat = server.check(&named("ada", "r-1", ""));
    assert_eq!((repeat.status, repeat.body.as_slice()), (200, first.body.as_slice()));
    for name in ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"] {
        assert!(first.header(name).is_some() && repeat.header(name) == first.header(name), "{name}");
    }
    assert_eq!(server.remaining("ada"), 99);
    server.clock.advance(Duration::from_nanos(1));
    assert_eq!(server.check(&named("ada", "r-1", "")).json()["remaining"], 98, "its minute is over");
    assert_eq!(server.metric("tidegate_repeated_requests_total"), 1);
    assert_eq!(server.metric("tidegate_remembered_requests"), 1);
    for reason in ["caller", "table"] {
        assert_eq!(server.metric(&format!(r#"tidegate_forgotten_requests_total{{reason="{reason}"}}"#)), 0);
    }
}

#[test]
fn the_same_id_with_another_request_is_refused_and_charges_nothing() {
    let server = Server::with(HUNDRED);
    server.check(&named("ada", "r-1", ""));
    for other in [
        named("bob", "r-1", ""),
        named("ada", "r-1", r#","cost":2"#),
        named("ada", "r-1", r#","endpoint":"/a""#),
        named("ada", "r-1", r#","method":"GET""#),
        named("ada", "r-1", r#","tier":"pro""#),
    ] {
        let answer = server.check(&other);
        let problem = answer.json();
        let told = (answer.status, problem["code"].as_str(), problem["errors"][0]["pointer"].as_str());
        assert_eq!(told, (400, Some("request_id_reused"), Some("/request_id")), "{other}");
    }
    assert_eq!((server.remaining("ada"), server.remaining("bob")), (json!(99), json!(100)));
    // Requests that mean the same are equal; the IDs of domains are separate.
    assert_eq!(
        server.check(&named("ada", "r-1", r#","cost":1,"domain":"default","peek":false"#)).json()["remaining"],
        99
    );
    assert_eq!(server.check(&named("bob", "r-1", r#","domain":"shop""#)).status, 200);
}

#[test]
fn requests_that_charged_nothing_are_not_remembered() {
    let server = Server::with(HUNDRED);
    server.check(&named("ada", "r-1", r#","cost":100"#));
    assert_eq!(server.check(&named("ada", "r-2", "")).status, 429);
    server.clock.advance(Duration::from_nanos(60 * SECOND_NS - 1));
    server.clock.advance(Duration::from_nanos(1));
    assert_eq!(server.check(&named("ada", "r-2", "")).status, 200, "the limit's next minute");
    assert_eq!(server.check(&named("bob", "r-3", r#","peek":true"#)).json()["remaining"], 99);
    assert_eq!(server.check(&named("bob", "r-3", r#","cost":7"#)).json()["remaining"], 93, "the id is free");
    let remembered = server.metric("tidegate_remembered_requests");
    for _ in 0..2 {
        let unlimited = server.check(&named("bob", "r-4", r#","domain":"shop""#));
        assert_eq!((unlimited.status, &unlimited.json()["limit_id"]), (200, &Value::Null));
    }
    assert_eq!(server.metric("tidegate_remembered_requests"), remembered, "nothing was charged");
}

#[test]
fn request_ids_work_in_batches() {
    let server = Server::with(HUNDRED);
    let checks = [
        named("ada", "r-1", ""),
        named("ada", "r-1", ""),
        named("ada", "r-1", r#","cost":2"#),
        user("ada"),
        named("ada", "r-1", ""),
    ];
    let body = format!(r#"{{"checks":[{}]}}"#, checks.join(","));
    let told = |answer: Value| {
        let decisions = answer["decisions"].as_array().expect("a list").clone();
        decisions
            .iter()
            .map(|it| (it["remaining"].as_u64(), it["code"].as_str().map(str::to_owned)))
            .collect::<Vec<_>>()
    };
    let reused = || (None, Some("request_id_reused".to_owned()));
    let first = [(Some(99), None), (Some(99), None), reused(), (Some(98), None), (Some(99), None)];
    assert_eq!(told(server.connect().post("/v1/check/batch", &body).json()), first);
    let again = [(Some(99), None), (Some(99), None), reused(), (Some(97), None), (Some(99), None)];
    assert_eq!(told(server.connect().post("/v1/check/batch", &body).json()), again);
}

#[test]
fn concurrent_connections_with_one_id_are_charged_once() {
    const CONNECTIONS: usize = 4;
    const IDS: usize = 100;
    let server = Server::with(HUNDRED);
    let together = Barrier::new(CONNECTIONS);
    let told: Vec<Vec<Value>> = thread::scope(|scope| {
        let ask = || {
            let mut connection = server.connect();
            let each = (0..IDS).map(|number| {
                together.wait();
                connection.post("/v1/check", named("ada", &number.to_string(), "")).json()["remaining"].clone()
            });
            each.collect()
        };
        let threads: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let expected: Vec<Value> = (0..IDS).rev().map(|left| json!(left)).collect();
    assert!(told.iter().all(|told| *told == expected), "{told:?}");
    assert_eq!(server.metric("tidegate_repeated_requests_total"), (IDS * (CONNECTIONS - 1)) as u64);
}
