//! Panics over HTTP: `on_error` of the domain decides the outcome, they are counted, and other requests go on.

use std::{num::NonZeroU32, panic, sync::Once};

use serde_json::{Value, json};
use tidegate::{Observed, Observer};

use super::{HUNDRED, support::Server, user};

/// An observer that panics at users with this name.
pub(crate) struct Panics;

pub(crate) const NAME: &str = "mallory";
const ADDRESS: &str = "192.0.2.66";

impl Observer for Panics {
    fn observe(&self, observed: &Observed<'_>) {
        let is_named = |(_, value): (&str, &[u8])| [NAME, ADDRESS].map(str::as_bytes).contains(&value);
        assert!(!observed.identities().any(is_named), "{NAME} was seen");
    }
}

/// Silences the reports of intended panics.
pub(crate) fn hush() {
    static HUSH: Once = Once::new();
    HUSH.call_once(|| {
        let tell = panic::take_hook();
        panic::set_hook(Box::new(move |what| {
            let said = what.payload_as_str().unwrap_or_default();
            if !said.contains(NAME) && !said.contains("the clock is broken") {
                tell(what);
            }
        }));
    });
}

fn server(on_error: &str) -> Server {
    hush();
    let server = Server::with(&HUNDRED.replacen("[domains.default]", &format!("[domains.default]\n{on_error}"), 1));
    server.engine.observe(NonZeroU32::MIN, Panics);
    server
}

fn undecided(is_allowed: bool, reason: &str) -> Value {
    json!({
        "allowed": is_allowed, "limit": null, "remaining": null, "reset_after_ms": null,
        "retry_after_ms": if is_allowed { Value::Null } else { 1_000.into() }, "delay_ms": null, "limit_id": null,
        "policy_version": 1, "degraded": reason,
    })
}

#[test]
fn a_panic_while_deciding_lets_the_request_pass_and_others_go_on() {
    const TIMES: u64 = 200;
    let server = server("");
    let (mut connection, mut other) = (server.connect(), server.connect());
    for time in 0..TIMES {
        let answer = connection.post("/v1/check", user(NAME));
        assert_eq!((answer.status, answer.json()), (200, undecided(true, "internal_error")));
        assert_eq!((answer.header("retry-after"), answer.header("x-ratelimit-limit")), (None, None));
        // The same connection goes on, as does another.
        let name = time.to_string();
        assert_eq!(connection.post("/v1/check", user(&name)).json()["remaining"], 99);
        assert_eq!(other.post("/v1/check", user(&name)).json()["remaining"], 98);
    }
    assert_eq!(server.metric(r#"tidegate_degraded_total{reason="internal_error"}"#), TIMES);
}

#[test]
fn a_proxy_gets_the_outcome_of_the_domain() {
    for (on_error, query, status) in
        [("", "", 204), ("on_error = \"closed\"", "", 429), ("on_error = \"closed\"", "?deny=403", 403)]
    {
        let server = server(on_error);
        let head = format!("GET /v1/authorize{query} HTTP/1.1\r\nHost: tidegate\r\nX-Forwarded-For: {ADDRESS}\r\n\r\n");
        let answer = server.connect().send(head);
        assert_eq!((answer.status, answer.header("x-tidegate-degraded")), (status, Some("internal_error")));
        assert_eq!(answer.header("retry-after"), (status != 204).then_some("1"));
    }
}

#[test]
fn a_panic_denies_where_the_domain_is_closed() {
    let server = server("on_error = \"closed\"");
    let answer = server.check(&user(NAME));
    assert_eq!((answer.status, answer.json()), (429, undecided(false, "internal_error")));
    assert_eq!(answer.header("retry-after"), Some("1"));
    let reserve = server.connect().post("/v1/reserve", user(NAME));
    assert_eq!((reserve.status, reserve.json()), (429, undecided(false, "internal_error")));
    // Another domain lets requests pass.
    let other = server.check(&user(NAME).replace("]}", r#"],"domain":"shop"}"#));
    assert_eq!((other.status, other.json()["allowed"].as_bool()), (200, Some(true)));
    assert_eq!(server.check(&user("ada")).json()["remaining"], 99);
}

#[test]
fn charges_before_a_panic_stand_and_the_request_id_stays_free() {
    let server = server("");
    let body = user(NAME).replace("]}", r#"],"request_id":"r-1"}"#);
    for _ in 0..3 {
        assert_eq!(server.check(&body).json()["degraded"], "internal_error");
    }
    let peek = server.check(&user(NAME).replace("]}", r#"],"peek":true,"cost":0}"#));
    assert_eq!(peek.json()["remaining"], 97, "an observer sees a charge that was made");
    assert_eq!(server.metric("tidegate_remembered_requests"), 0);
    let other = server.check(&user("ada").replace("]}", r#"],"request_id":"r-1"}"#));
    assert_eq!(other.json()["remaining"], 99, "the shard of the id goes on");
}

#[test]
fn a_panic_in_a_batch_affects_only_its_own_check() {
    let server = server("");
    let body = format!(r#"{{"checks":[{},{},{}]}}"#, user("ada"), user(NAME), user("ada"));
    let answer = server.connect().post("/v1/check/batch", body).json();
    let decisions = answer["decisions"].as_array().expect("a list");
    let told = |decision: &Value| (decision["remaining"].as_u64(), decision["degraded"].as_str().map(str::to_owned));
    let internal = (None, Some("internal_error".to_owned()));
    assert_eq!(decisions.iter().map(told).collect::<Vec<_>>(), [(Some(99), None), internal, (Some(98), None)]);
}

#[test]
fn a_panic_anywhere_else_is_500_and_the_connection_goes_on() {
    let server = server("");
    let reserved = server.connect().post("/v1/reserve", user("ada")).json();
    let body = json!({"reservation": reserved["reservation"]}).to_string();
    let mut connection = server.connect();
    for _ in 0..100 {
        server.break_clock(true);
        let answer = connection.post("/v1/refund", &body);
        assert_eq!((answer.status, answer.json()["code"].as_str()), (500, Some("internal_error")));
        server.break_clock(false);
        assert_eq!(connection.post("/v1/check", user("bob").replace("]}", r#"],"peek":true}"#)).status, 200);
    }
    assert_eq!(server.metric(r#"tidegate_requests_total{door="http",route="/v1/refund",status="500"}"#), 100);
    assert_eq!(connection.post("/v1/refund", &body).status, 204);
}
