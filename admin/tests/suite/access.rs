//! What is open, and what is not.

use serde_json::json;
use ureq::Agent;

use crate::support::{Client, fresh};

/// Every call, and some that do not exist.
const CLOSED: [(&str, &str); 16] = [
    ("GET", "/api/v1/session"),
    ("DELETE", "/api/v1/session"),
    ("GET", "/api/v1/meta"),
    ("GET", "/api/v1/metrics"),
    ("GET", "/api/v1/stream"),
    ("GET", "/api/v1/policy"),
    ("GET", "/api/v1/policy/versions"),
    ("POST", "/api/v1/policy/changes"),
    ("GET", "/api/v1/tiers"),
    ("GET", "/api/v1/tiers/free"),
    ("GET", "/api/v1/rules"),
    ("GET", "/api/v1/rules/sign-in"),
    ("PATCH", "/api/v1/tiers"),
    ("GET", "/api/v1/no-such-thing"),
    ("GET", "/api/v1/"),
    ("PUT", "/api/v1/setup"),
];

fn assert_all_closed(client: &Client) {
    for (method, path) in CLOSED {
        let answer = client.send(method, path, &[], None);
        assert_eq!(answer.status, 401, "{method} {path}");
        assert_eq!(answer.json()["code"], "unauthorized");
        assert_eq!(answer.header("content-type"), "application/problem+json");
        assert!(answer.header("content-security-policy").starts_with("default-src 'none'"), "{answer:?}");
        assert!(!answer.header("x-request-id").is_empty());
    }
}

#[test]
fn without_a_session_nothing_but_sign_in_and_health_is_open() {
    let (_folder, server) = fresh();
    let mut stranger = server.stranger();
    assert_all_closed(&stranger);
    // Neither a made-up cookie nor one of another life opens anything.
    stranger.token = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA".to_owned();
    assert_all_closed(&stranger);
    for (method, path, status) in [
        ("GET", "/healthz", 200),
        ("GET", "/readyz", 200),
        ("GET", "/api/v1/setup", 200),
        ("POST", "/api/v1/session", 400),
        ("POST", "/api/v1/setup", 400),
    ] {
        assert_eq!(stranger.send(method, path, &[], None).status, status, "{method} {path}");
    }
}

#[test]
fn a_change_needs_the_sessions_token_in_a_header() {
    let (_folder, server) = fresh();
    let mut ana = server.administrator();
    let token = std::mem::take(&mut ana.csrf);
    for forged in ["", "x", &token[1..]] {
        let answer = ana.send("DELETE", "/api/v1/session", &[("x-csrf-token", forged)], None);
        assert_eq!((answer.status, &answer.json()["code"]), (403, &json!("csrf")), "{forged}");
    }
    assert_eq!(ana.get("/api/v1/session").status, 200, "reading needs none");
    ana.csrf = token;
    assert_eq!(ana.send("DELETE", "/api/v1/session", &[], None).status, 204);
}

#[test]
fn signed_in_what_does_not_exist_is_said_not_to_exist() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    for (method, path, status) in [
        ("GET", "/api/v1/no-such-thing", 404),
        ("GET", "/api/v1/tiers/none", 404),
        ("GET", "/api/v1/tiers?domain=none", 404),
        ("GET", "/api/v1/rules/none", 404),
        ("PATCH", "/api/v1/tiers", 405),
        ("GET", "/api/v1/policy/changes", 405),
        ("GET", "/api/v1/policy/versions?limit=-1", 422),
        ("GET", "/assets/none.js", 404),
    ] {
        let answer = ana.send(method, path, &[], None);
        assert_eq!(answer.status, status, "{method} {path}");
        assert!(answer.json()["detail"].is_string(), "{answer:?}");
    }
}

/// The head of an answer, as of the answer itself; of one that never ends, too.
/// Browsers hold a cookie to the prefix of its name as it is written.
#[test]
fn a_cookie_whose_name_is_encoded_is_none() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let cookie = ana.cookie();
    let agent: Agent = Agent::config_builder().http_status_as_error(false).build().into();
    let status = |cookie: &str| {
        let answer = agent.get(format!("{}/api/v1/session", server.url)).header("cookie", cookie).call();
        answer.expect("an answer").status().as_u16()
    };
    assert_eq!(status(&cookie), 200);
    assert_eq!(status(&cookie.replace("session", "%73ession")), 401);
}

#[test]
fn what_can_be_read_has_a_head() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    for path in ["tiers", "tiers/free", "tiers/none", "policy/versions", "openapi.json"] {
        let path = format!("/api/v1/{path}");
        let (whole, head) = (ana.get(&path), ana.send("HEAD", &path, &[], None));
        assert_eq!((head.status, head.text.as_str()), (whole.status, ""), "{path}");
        for name in ["content-type", "content-length", "etag"] {
            assert_eq!(head.header(name), whole.header(name), "{path}: {name}");
        }
    }
    let stream = ana.send("HEAD", "/api/v1/stream", &[], None);
    assert_eq!((stream.status, stream.header("content-type")), (200, "text/event-stream"), "{stream:?}");
    assert_eq!(server.stranger().send("HEAD", "/api/v1/tiers", &[], None).status, 401);
}

#[test]
fn every_answer_says_what_a_page_may() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let asked = [
        ("GET", "/docs/api", 200),
        ("GET", "/docs/api.css", 200),
        ("GET", "/healthz", 200),
        ("GET", "/api/v1/openapi.json", 200),
        ("GET", "/api/v1/tiers", 200),
        ("GET", "/api/v1/audit/export", 200),
        ("GET", "/api/v1/tiers/none", 404),
        ("GET", "/assets/none.js", 404),
        ("PATCH", "/api/v1/tiers", 405),
        ("POST", "/api/v1/drafts", 400),
        ("GET", "/api/v1/tiers?x", 422),
    ];
    let answers = asked.map(|(method, path, status)| {
        let answer = ana.send(method, path, &[], None);
        assert_eq!(answer.status, status, "{method} {path}");
        answer
    });
    for answer in answers.iter().chain([&server.stranger().get("/api/v1/tiers"), &server.stranger().get("/")]) {
        let policy = answer.header("content-security-policy");
        let says: Vec<&str> = policy.split(';').map(str::trim).collect();
        let expected = [
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "img-src 'self' data:",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'self'",
            "frame-ancestors 'none'",
        ];
        assert_eq!(says, expected, "{answer:?}");
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("x-frame-options", "DENY"),
            ("referrer-policy", "no-referrer"),
            ("cross-origin-opener-policy", "same-origin"),
            ("cross-origin-resource-policy", "same-origin"),
            ("permissions-policy", "camera=(), geolocation=(), microphone=()"),
            // Only where browsers come by TLS.
            ("strict-transport-security", ""),
        ] {
            assert_eq!(answer.header(name), value, "{answer:?}");
        }
        assert!(!answer.header("cache-control").is_empty() && !answer.header("x-request-id").is_empty());
    }
}
