//! Reservations over HTTP: an estimate is charged, and settled or refunded once.

use std::{sync::Barrier, thread, time::Duration};

use serde_json::{Value, json};
use tidegate::{Identity, Request, time::SECOND_NS};

use super::{
    HUNDRED,
    support::{HttpReply, Server},
    user,
};

const HOUR_NS: u64 = 3_600 * SECOND_NS;

/// A policy of 10 a minute for everyone together.
const EVERYONE: &str = r#"
    [domains.default]
    [[domains.default.rules]]
    id = "all"
    endpoint = "*"
    per = "everyone"
    limits = [{ id = "minute", algorithm = "token_bucket", limit = 10, period = "1m" }]
"#;

/// Returns a server whose limit has a period of a day, so that a charge still counts when it is settled an hour later.
fn server() -> Server {
    Server::with(&HUNDRED.replace("1m", "1d"))
}

fn reserve(server: &Server, cost: u64) -> (HttpReply, String) {
    let answer = server.connect().post("/v1/reserve", user("ada").replace("]}", &format!(r#"],"cost":{cost}}}"#)));
    let id = answer.json()["reservation"].as_str().unwrap_or_default().to_owned();
    (answer, id)
}

fn settle(server: &Server, id: &str, actual: impl Into<Value>) -> HttpReply {
    server.connect().post("/v1/settle", json!({"reservation": id, "actual": actual.into()}).to_string())
}

fn refund(server: &Server, id: &str) -> HttpReply {
    server.connect().post("/v1/refund", json!({"reservation": id}).to_string())
}

fn told(answer: &HttpReply) -> (u16, String, String) {
    let problem = answer.json();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (answer.status, text(&problem["code"]), text(&problem["errors"][0]["pointer"]))
}

fn expect(answer: &HttpReply, status: u16, code: &str, pointer: &str) {
    assert_eq!(told(answer), (status, code.to_owned(), pointer.to_owned()));
}

#[test]
fn an_estimate_is_charged_and_the_rest_is_given_back() {
    let server = server();
    let (answer, id) = reserve(&server, 60);
    assert_eq!((answer.status, id.len()), (200, 24));
    assert_eq!((answer.json()["remaining"].as_u64(), answer.header("x-ratelimit-remaining")), (Some(40), Some("40")));
    let settled = settle(&server, &id, 25);
    assert_eq!((settled.status, settled.body.len()), (204, 0));
    assert_eq!(server.remaining("ada"), 75);
    let (_, id) = reserve(&server, 10);
    assert_eq!(refund(&server, &id).status, 204);
    assert_eq!(server.remaining("ada"), 75);
    // A cost above the estimate is charged whether it fits or not.
    let (_, id) = reserve(&server, 10);
    assert_eq!(settle(&server, &id, 80).status, 204);
    assert_eq!(server.remaining("ada"), 0);
    assert_eq!(server.metric("tidegate_open_reservations"), 0);
    assert_eq!(server.metric(r#"tidegate_requests_total{door="http",route="/v1/settle",status="204"}"#), 2);
    assert_eq!(server.metric(r#"tidegate_requests_total{door="http",route="/v1/refund",status="204"}"#), 1);
}

#[test]
fn a_denied_reservation_reserves_nothing() {
    let server = server();
    let (answer, _) = reserve(&server, 101);
    assert_eq!((answer.status, answer.json().get("reservation")), (429, None));
    assert_eq!(server.metric("tidegate_open_reservations"), 0);
    assert_eq!(server.remaining("ada"), 100);
}

#[test]
fn no_reservation_is_kept_where_no_limit_applies() {
    let server = server();
    let unlimited = user("ada").replace("]}", r#"],"domain":"shop","request_id":"r-1"}"#);
    for _ in 0..2 {
        let answer = server.connect().post("/v1/reserve", &unlimited);
        let told = answer.json();
        assert_eq!((answer.status, &told["allowed"], &told["limit_id"]), (200, &json!(true), &Value::Null));
        assert_eq!((told.get("reservation"), told.get("degraded")), (None, None));
    }
    for table in ["tidegate_open_reservations", "tidegate_remembered_requests"] {
        assert_eq!(server.metric(table), 0, "{table}");
    }
}

#[test]
fn a_reservation_is_settled_once() {
    let server = server();
    for (first, again) in [(true, true), (true, false), (false, true), (false, false)] {
        let (_, id) = reserve(&server, 10);
        let end = |is_settle| if is_settle { settle(&server, &id, 5) } else { refund(&server, &id) };
        assert_eq!(end(first).status, 204);
        let left = server.remaining("ada");
        expect(&end(again), 409, "settled_before", "/reservation");
        assert_eq!(server.remaining("ada"), left, "nothing was changed");
    }
    assert_eq!(server.remaining("ada"), 90);
}

#[test]
fn of_concurrent_settlements_one_succeeds() {
    const CONNECTIONS: usize = 8;
    let server = server();
    for _ in 0..20 {
        let (_, id) = reserve(&server, 100);
        let together = Barrier::new(CONNECTIONS);
        let mut statuses: Vec<u16> = thread::scope(|scope| {
            let settle = || {
                let mut connection = server.connect();
                together.wait();
                connection.post("/v1/refund", json!({"reservation": id}).to_string()).status
            };
            let threads: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(settle)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        statuses.sort_unstable();
        assert_eq!((statuses[0], &statuses[1..]), (204, &[409; CONNECTIONS - 1][..]));
        assert_eq!(server.remaining("ada"), 100);
    }
}

#[test]
fn an_unknown_reservation_is_404_as_is_one_that_is_an_hour_old() {
    let server = server();
    for id in ["", "x", "AAAAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAAAAA", "ä", "AAAAAAAAAAAAAAAAAAAAAAA="] {
        expect(&settle(&server, id, 1), 404, "unknown_reservation", "/reservation");
        expect(&refund(&server, id), 404, "unknown_reservation", "/reservation");
    }
    let message = refund(&server, "x").json()["detail"].clone();
    assert!(message.as_str().is_some_and(|message| message.contains("another node")), "{message}");
    let [(_, settled), (_, old), (_, in_time)] = [10, 10, 10].map(|cost| reserve(&server, cost));
    assert_eq!(settle(&server, &settled, 0).status, 204);
    server.clock.advance(Duration::from_nanos(HOUR_NS - 1));
    assert_eq!(refund(&server, &in_time).status, 204);
    expect(&refund(&server, &settled), 409, "settled_before", "/reservation");
    server.clock.advance(Duration::from_nanos(1));
    expect(&refund(&server, &old), 404, "unknown_reservation", "/reservation");
    expect(&refund(&server, &settled), 404, "unknown_reservation", "/reservation");
    assert_eq!(server.remaining("ada"), 90, "the old one stands");
    assert_eq!(server.metric("tidegate_expired_reservations_total"), 1);
}

#[test]
fn wrong_bodies_change_nothing() {
    let server = server();
    let (_, id) = reserve(&server, 10);
    let post = |path: &str, body: &str| server.connect().post(path, body.replace("ID", &id));
    for (path, body, code, pointer) in [
        ("/v1/settle", r#"{"reservation":"ID"}"#, "bad_field", ""),
        ("/v1/settle", r#"{"reservation":"ID","actual":-1}"#, "bad_field", "/actual"),
        ("/v1/settle", r#"{"reservation":"ID","actual":1.5}"#, "bad_field", "/actual"),
        ("/v1/settle", r#"{"reservation":"ID","actual":9007199254740992}"#, "bad_cost", "/actual"),
        ("/v1/settle", r#"{"actual":1}"#, "bad_field", ""),
        ("/v1/settle", r#"{"reservation":7,"actual":1}"#, "bad_field", "/reservation"),
        ("/v1/settle", r#"{"reservation":"ID","actual":1,"cost":1}"#, "bad_field", "/cost"),
        ("/v1/settle", "", "bad_json", ""),
        ("/v1/refund", r#"{"reservation":"ID","actual":0}"#, "bad_field", "/actual"),
        ("/v1/refund", "{}", "bad_field", ""),
    ] {
        expect(&post(path, body), 400, code, pointer);
    }
    for (more, code, pointer) in [
        (r#""peek":true"#, "bad_field", "/peek"),
        (r#""cost":0"#, "bad_cost", "/cost"),
        (r#""cost":9007199254740992"#, "bad_cost", "/cost"),
        (r#""actual":1"#, "bad_field", "/actual"),
    ] {
        let body = user("ada").replace("]}", &format!("],{more}}}"));
        expect(&post("/v1/reserve", &body), 400, code, pointer);
    }
    for path in ["/v1/reserve", "/v1/settle", "/v1/refund"] {
        let answer = server.get(path);
        expect(&answer, 405, "method_not_allowed", "");
        assert_eq!(answer.header("allow"), Some("POST"));
    }
    assert_eq!(server.remaining("ada"), 90);
    assert_eq!(settle(&server, &id, 160).status, 204);
    assert_eq!(server.remaining("ada"), 0);
}

#[test]
fn an_implausibly_large_cost_is_refused_and_the_reservation_stays_open() {
    let server = Server::with(EVERYONE);
    let (_, id) = reserve(&server, 1);
    // One burst is 10; 16 times the estimate is more.
    for actual in [17, 9_007_199_254_740_991_u64] {
        let refused = settle(&server, &id, actual);
        expect(&refused, 400, "bad_cost", "/actual");
        let message = refused.json()["detail"].clone();
        assert!(message.as_str().is_some_and(|message| message.contains("is above 16, the most")), "{message}");
    }
    assert_eq!(server.remaining("bob"), 9, "nothing but the estimate is charged");
    assert_eq!(server.metric("tidegate_open_reservations"), 1);
    assert_eq!(settle(&server, &id, 5).status, 204);
    assert_eq!(server.remaining("bob"), 5);
    let (_, id) = reserve(&server, 1);
    server.clock.advance(Duration::from_nanos(HOUR_NS));
    expect(&settle(&server, &id, 17), 404, "unknown_reservation", "/reservation");
}

#[test]
fn a_debt_of_a_settlement_denies_for_one_period_or_until_a_reset() {
    let server = Server::with(EVERYONE);
    let settle_at_the_most = || {
        let ids = [1, 1, 1].map(|cost| reserve(&server, cost).1);
        for id in &ids {
            assert_eq!(settle(&server, id, 16).status, 204);
        }
    };
    settle_at_the_most();
    server.clock.advance(Duration::from_nanos(60 * SECOND_NS - 1));
    let denied = server.check(&user("bob"));
    // The last nanosecond, and the time that one token takes.
    assert_eq!((denied.status, denied.json()["retry_after_ms"].clone()), (429, json!(6_001)));
    server.clock.advance(Duration::from_nanos(6 * SECOND_NS + 1));
    assert_eq!(server.check(&user("bob")).status, 200);

    server.clock.advance(Duration::from_mins(1));
    settle_at_the_most();
    assert_eq!(server.check(&user("bob")).status, 429);
    let ada = [Identity::new("user", "ada").expect("valid")];
    assert_eq!(server.engine.reset(&Request::new(&ada).expect("valid")), 1);
    assert_eq!(server.check(&user("bob")).json()["remaining"], 9, "all of it is there at once");
}

#[test]
fn a_repeat_of_a_reservation_is_the_same_reservation() {
    let server = server();
    let body = user("ada").replace("]}", r#"],"cost":10,"request_id":"r-1"}"#);
    let first = server.connect().post("/v1/reserve", &body);
    let again = server.connect().post("/v1/reserve", &body);
    assert!(first.status == 200 && first.body == again.body, "{first:?} {again:?}");
    expect(&server.check(&body), 400, "request_id_reused", "/request_id");
    assert_eq!((server.remaining("ada"), server.metric("tidegate_open_reservations")), (json!(90), 1));
    assert_eq!(refund(&server, first.json()["reservation"].as_str().expect("an id")).status, 204);
    assert_eq!(server.remaining("ada"), 100);
}
