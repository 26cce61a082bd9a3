//! Batches of checks over HTTP: order, errors in their place, bounds.

use std::{fmt::Display, thread};

use serde_json::{Value, json};

use super::{
    HUNDRED,
    support::{HttpReply, Server},
    user,
};

fn post(server: &Server, checks: &[String]) -> HttpReply {
    server.connect().post("/v1/check/batch", format!(r#"{{"checks":[{}]}}"#, checks.join(",")))
}

fn with_cost(value: &str, cost: impl Display) -> String {
    user(value).replace("]}", &format!(r#"],"cost":{cost}}}"#))
}

#[test]
fn later_checks_see_the_charges_of_earlier_ones() {
    let server = Server::with(HUNDRED);
    let answer = post(&server, &[with_cost("ada", 60), user("bob"), with_cost("ada", 60), with_cost("ada", 40)]);
    assert_eq!(answer.status, 200);
    let answer = answer.json();
    let decisions = answer["decisions"].as_array().expect("a list");
    let told = |decision: &Value| (decision["allowed"].clone(), decision["remaining"].clone());
    let expected =
        [(true, 40), (true, 99), (false, 40), (true, 0)].map(|(allowed, left)| (json!(allowed), json!(left)));
    assert_eq!(decisions.iter().map(told).collect::<Vec<_>>(), expected);
    let fields = decisions[0].as_object().expect("an object").keys().cloned().collect::<Vec<_>>();
    let alone = server.check(&user("ada")).json();
    assert_eq!(fields, alone.as_object().expect("an object").keys().cloned().collect::<Vec<_>>());
}

#[test]
fn a_wrong_check_is_reported_in_its_place_and_the_others_are_decided() {
    let server = Server::with(HUNDRED);
    let bad = [
        ("17".to_owned(), "bad_field", "/checks/1"),
        (with_cost("ada", 0), "bad_cost", "/checks/2/cost"),
        (user("ada").replace("user", "USER"), "bad_kind", "/checks/3/identities/0/kind"),
        (user("ada").replace("]}", r#"],"speed":1}"#), "bad_field", "/checks/4/speed"),
        (user("ada").replace("]}", r#"],"request_id":""}"#), "bad_request_id", "/checks/5/request_id"),
        (with_cost("ada", "1e999"), "bad_json", "/checks/6"),
    ];
    let mut checks = vec![user("ada")];
    checks.extend(bad.iter().map(|(check, ..)| check.clone()));
    checks.push(user("ada"));
    let answer = post(&server, &checks);
    assert_eq!(answer.status, 200);
    let decisions = answer.json()["decisions"].clone();
    assert_eq!(decisions[0]["remaining"], 99);
    for (place, (check, code, field)) in (1..).zip(&bad) {
        let error = &decisions[place];
        assert_eq!(
            (error["code"].as_str(), error["errors"][0]["pointer"].as_str()),
            (Some(*code), Some(*field)),
            "{check}: {error}"
        );
    }
    assert_eq!(decisions[7]["remaining"], 98);
    assert_eq!(decisions.as_array().map(Vec::len), Some(8));
    assert_eq!(server.metric(r#"tidegate_bad_requests_total{door="http",code="bad_field"}"#), 2);
    assert_eq!(server.metric(r#"tidegate_requests_total{door="http",route="/v1/check/batch",status="200"}"#), 1);
}

#[test]
fn a_malformed_document_is_refused_whole() {
    let server = Server::with(HUNDRED);
    let good = user("ada");
    for (body, code, pointer) in [
        (String::new(), "bad_json", ""),
        (format!(r#"{{"checks":[{good},{{]}}"#), "bad_json", ""),
        (format!("[{good}]"), "bad_field", ""),
        ("{}".to_owned(), "bad_field", ""),
        (r#"{"checks":{}}"#.to_owned(), "bad_field", "/checks"),
        (format!(r#"{{"checks":[{good}],"atomic":true}}"#), "bad_field", "/atomic"),
    ] {
        let answer = server.connect().post("/v1/check/batch", &body);
        let error = answer.json();
        assert_eq!(
            (answer.status, error["code"].as_str(), error["errors"][0]["pointer"].as_str()),
            (400, Some(code), Some(pointer)),
            "{body}"
        );
    }
    assert_eq!(server.remaining("ada"), 100, "nothing was charged");
}

#[test]
fn a_batch_has_ten_thousand_checks_at_most() {
    let server = Server::with(&HUNDRED.replace("100", "50000"));
    assert_eq!(post(&server, &[]).json(), json!({"decisions": []}));
    let answer = post(&server, &vec![user("ada"); 10_000]).json();
    assert_eq!(answer["decisions"][9_999]["remaining"], 40_000);
    let answer = post(&server, &vec![user("ada"); 10_001]);
    assert_eq!(answer.status, 400);
    let error = answer.json();
    assert_eq!(
        (error["code"].as_str(), error["errors"][0]["pointer"].as_str()),
        (Some("too_many_checks"), Some("/checks"))
    );
    assert!(error["detail"].as_str().expect("text").contains("at most 10000 fit"), "{error}");
    assert_eq!(server.remaining("ada"), 40_000, "nothing was charged");
}

/// The memory for responses cannot be taken back while they are made: a peer has 2 MiB of it, and a response to 3,000
/// checks 0.77 MB.
#[test]
fn long_batches_of_one_peer_are_decided_two_at_a_time() {
    const CHECKS: usize = 3_000;
    let server = Server::with(&HUNDRED.replace("100", &(6 * CHECKS).to_string()));
    let batch = || {
        let answer = post(&server, &vec![user("ada"); CHECKS]).json();
        [0, CHECKS - 1].map(|place| answer["decisions"][place]["remaining"].as_u64().expect("a number"))
    };
    // The remaining tokens after the first and the last check of each batch.
    let left: Vec<_> = thread::scope(|scope| {
        let batches: Vec<_> = (0..6).map(|_| scope.spawn(batch)).collect();
        batches.into_iter().map(|batch| batch.join().expect("no panic")).collect()
    });
    for [begin, _] in &left {
        let under_way = left.iter().filter(|[first, last]| (last..=first).contains(&begin)).count();
        assert!(under_way <= 2, "{left:?}");
    }
    assert_eq!(server.remaining("ada"), 0);
}
