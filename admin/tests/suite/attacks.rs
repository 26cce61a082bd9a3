//! Attacks on the admin server, most of them by bytes that no client library sends: each gets what it must, and meanwhile users
//! at another address are answered.

use std::net::SocketAddr;

use serde_json::json;
use tidegate_testkit::{
    hostile::{ADDRESS, beside, exchange},
    wait_until,
};

use crate::support::{Client, Server, fresh};

/// Returns where a server listens.
pub(crate) fn address(server: &Server) -> SocketAddr {
    server.url.strip_prefix("http://").expect("a URL").parse().expect("an address")
}

/// Shows that this user is answered.
fn gets_answers(user: &Client) {
    for _ in 0..50 {
        assert_eq!(user.get("/api/v1/tiers").status, 200);
    }
}

/// The statuses of all answers.
fn statuses(received: &str) -> Vec<u16> {
    received.split("HTTP/1.1 ").skip(1).map(|answer| answer[..3].parse().expect("a status")).collect()
}

#[test]
fn no_spelling_of_a_path_passes_by_the_guard() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let targets = [
        "/api/v1/tiers",
        "/api/v1/tiers/",
        "/api/v1//tiers",
        "/api//v1/tiers",
        "//api/v1/tiers",
        "/./api/v1/tiers",
        "/API/v1/tiers",
        "/api/v1/%74iers",
        "/api%2fv1%2ftiers",
        "/%61pi/v1/tiers",
        "/api/v1/tiers%00",
        "/api/v1/tiers;/api/v1/setup",
        "/api/v1/tiers?/api/v1/setup",
        "/api/v1/tiers#/api/v1/setup",
        "/api/v1/setup/../tiers",
        "/api/v1/openapi.json/../tiers",
        "/api/v1/openapi.json%2f..%2ftiers",
        "/api/v1/session/provider/../../tiers",
        "/docs/../api/v1/tiers",
        "/assets/../api/v1/tiers",
        "/assets/..%2fapi%2fv1%2ftiers",
        "/assets/../../../../../../etc/passwd",
        "/assets/..%2f..%2f..%2f..%2f..%2f..%2fetc%2fpasswd",
        "/../../../../../../etc/passwd",
        "http://x/api/v1/tiers",
        "http://x/docs/../api/v1/tiers",
        "http://x//api/v1/tiers",
        "*",
        "api/v1/tiers",
    ];
    let attack = || {
        for target in targets {
            let received = exchange(address(&server), format!("GET {target} HTTP/1.1\r\nhost: x\r\n\r\n"));
            let [status] = statuses(&received)[..] else { unreachable!("{target}: {received}") };
            // Where the dashboard is built in, other paths answer its page.
            let is_page = status == 200 && received.contains("\r\ncontent-type: text/html");
            assert!(is_page || [400, 401, 404].contains(&status), "{target}: {received}");
            assert!(!received.contains("root:x:"), "{target}: {received}");
        }
    };
    beside(|| gets_answers(&ana), attack);
}

#[test]
fn a_credential_counts_only_where_it_belongs() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let ben = ana.add("editor", &server);
    let secret = ana.script(&json!({ "role": "admin" })).0.bearer;
    let name = format!("tidegate_session_{}", address(&server).port());
    let Client { token, csrf, .. } = &ana;
    let forms = [
        format!("authorization: Bearer {token}"),
        format!("authorization: Bearer tg_{token}"),
        format!("authorization: Bearer {csrf}"),
        format!("authorization: {secret}"),
        format!("authorization: Basic {secret}"),
        format!("authorization: Bearer {secret}, Bearer {secret}"),
        // Of several the first counts.
        format!("authorization: Bearer tg_none\r\nauthorization: Bearer {secret}"),
        format!("proxy-authorization: Bearer {secret}"),
        format!("x-tidegate-token: {secret}"),
        format!("x-csrf-token: {csrf}"),
        format!("cookie: {name}={secret}"),
        format!("cookie: {name}={csrf}"),
        format!("cookie: {name}1={token}"),
        format!("cookie: {}={token}", name.to_uppercase()),
        format!("x-forwarded-cookie: {name}={token}"),
    ];
    let attack = || {
        for form in &forms {
            let received =
                exchange(address(&server), format!("GET /api/v1/tiers HTTP/1.1\r\nhost: x\r\n{form}\r\n\r\n"));
            assert_eq!(statuses(&received), [401], "{form}: {received}");
        }
        // One session, and what changes need of another.
        let head = format!("host: x\r\ncookie: {}\r\nx-csrf-token: {csrf}", ben.cookie());
        let received = exchange(address(&server), format!("DELETE /api/v1/session HTTP/1.1\r\n{head}\r\n\r\n"));
        assert_eq!(statuses(&received), [403], "{received}");
    };
    beside(|| gets_answers(&ana), attack);
    gets_answers(&ben);
}

#[test]
fn no_request_is_smuggled_in_another() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let hidden = "GET /api/v1/setup HTTP/1.1\r\nhost: x\r\n\r\n";
    let length = hidden.len();
    let with = |target: &str, headers: &str| {
        format!("{target} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n{headers}\r\n")
    };
    let sign_in = |headers: &str| (with("POST /api/v1/session", headers) + "0\r\n\r\n", 400);
    let fixed = format!("content-length: {length}\r\n");
    let chunked = "transfer-encoding: chunked\r\n";
    let forms = [
        sign_in("content-length: 5\r\ntransfer-encoding: chunked\r\n"),
        sign_in("transfer-encoding: chunked\r\ncontent-length: 0\r\n"),
        sign_in("content-length: 0\r\ncontent-length: 5\r\n"),
        sign_in("content-length: 5, 5\r\n"),
        sign_in("content-length: +5\r\n"),
        sign_in("content-length : 5\r\n"),
        sign_in("transfer-encoding: chunked, identity\r\n"),
        sign_in("transfer-encoding: xchunked\r\n"),
        sign_in("transfer-encoding:\r\n chunked\r\n"),
        sign_in("host: other\r\ncontent-length: 5\r\n"),
        // Bodies that are not read: what follows is theirs.
        (with("POST /api/v1/policy/changes", &fixed), 401),
        (with("POST /api/v1/policy/changes", chunked) + &format!("{length:x}\r\n"), 401),
        (with("POST /api/v1/none", &fixed), 401),
        (with("GET /api/v1/tiers", &fixed), 401),
        (with("GET /healthz", &fixed), 200),
    ];
    let attack = || {
        for (form, status) in &forms {
            let received = exchange(address(&server), format!("{form}{hidden}"));
            assert_eq!(statuses(&received), [*status], "{form:?}: {received}");
        }
    };
    beside(|| gets_answers(&ana), attack);
    // One that does not hide is answered.
    assert_eq!(statuses(&exchange(address(&server), hidden.repeat(2))), [404, 404]);
}

#[test]
fn an_address_that_a_stranger_names_does_not_hide_its_tries() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let body = json!({ "name": "eve", "password": "wrong" }).to_string();
    let try_as = |n: u32| {
        let named =
            format!("x-forwarded-for: 203.0.113.{n}\r\nforwarded: for=203.0.113.{n}\r\nx-real-ip: 203.0.113.{n}");
        let head = format!("host: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n{named}", body.len());
        let received = exchange(address(&server), format!("POST /api/v1/session HTTP/1.1\r\n{head}\r\n\r\n{body}"));
        let [status] = statuses(&received)[..] else { unreachable!("{received}") };
        assert!([401, 429].contains(&status), "{received}");
        status
    };
    let caller = || {
        gets_answers(&ana);
        gets_answers(&server.sign_in());
    };
    beside(caller, || assert!((0..40).any(|n| try_as(n) == 429), "it has one address after the other"));
    server.gives_others_their_quota(&ana);
    // The lines are written beside the answers.
    wait_until("the tries are written", || {
        let lines = ana.get(&format!("/api/v1/audit?q={ADDRESS}")).json();
        lines["items"].as_array().is_some_and(|lines| !lines.is_empty())
    });
    assert!(!ana.get("/api/v1/audit?limit=500").text.contains("203.0.113"));
}
