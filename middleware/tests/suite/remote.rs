//! The client of servers: it decides as they do, keeps its connections, and has a result when they are stopped or wrong. Servers that
//! are paused or slow are in `remote_late.rs`, TLS is in `remote_tls.rs`.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, http::StatusCode, routing::post};
use tidegate::{Identity, Request, Retry, policy::OnError};
use tidegate_middleware::{
    decision::OwnedDecision,
    guard::Guard,
    headers,
    remote::{Remote, RemoteError},
};
use tidegate_testkit::port::ReservedPort;
use tokio::time;

use crate::{
    server::{DelayProxy, Server},
    support::{ask, extractors, from},
    under_axum::{in_background, respond, serve},
};

/// A deadline that a busy machine does not miss.
pub(crate) const PATIENT: Duration = Duration::from_mins(1);
/// The pause of a breaker, between two trials.
pub(crate) const PAUSE: Duration = Duration::from_millis(300);

pub(crate) fn remote(addresses: &[SocketAddr]) -> Remote {
    let addresses: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
    Remote::to(addresses.iter().map(String::as_str)).expect("addresses").deadline(PATIENT).breaker(5, PAUSE)
}

pub(crate) async fn check(remote: &Remote, ip: &str, cost: u64) -> OwnedDecision {
    let who = [Identity::new("ip", ip).expect("valid")];
    let request = Request::new(&who).expect("valid").cost(cost).expect("valid");
    remote.check(&request).await.expect("a right check")
}

pub(crate) fn degraded(decision: &OwnedDecision) -> Option<&str> {
    decision.degraded.as_deref()
}

/// Checks until a server decides.
pub(crate) async fn decided(remote: &Remote, ip: &str) -> OwnedDecision {
    let asked = async {
        loop {
            let decision = check(remote, ip, 1).await;
            if decision.degraded.is_none() {
                return decision;
            }
            time::sleep(Duration::from_millis(10)).await;
        }
    };
    time::timeout(PATIENT, asked).await.expect("it decides again")
}

#[tokio::test]
async fn the_client_decides_as_its_server_over_one_connection() {
    let server = Server::start();
    let proxy = DelayProxy::to(server.address).await;
    let remote = remote(&[proxy.address]);
    let allowed = check(&remote, "192.0.2.1", 2).await;
    let expected =
        |decision: &OwnedDecision| (decision.limit, decision.remaining, decision.reset_after, decision.policy_version);
    assert_eq!(expected(&allowed), (Some(2), Some(0), Some(Duration::from_mins(1)), 1));
    assert_eq!((allowed.is_allowed, allowed.retry, degraded(&allowed)), (true, Retry::Now, None));
    let denied = check(&remote, "192.0.2.1", 1).await;
    assert_eq!((denied.is_allowed, denied.retry), (false, Retry::After(Duration::from_mins(1))));
    assert_eq!(denied.limit_id.as_deref(), Some("default/tier:anonymous/minute"));
    let named: Vec<&str> = denied.headers.iter().map(|(name, _)| *name).collect();
    assert_eq!(named, [headers::LIMIT, headers::REMAINING, headers::RESET, headers::RETRY_AFTER]);
    assert_eq!(check(&remote, "192.0.2.1", 3).await.retry, Retry::Never);
    let who = [Identity::new("ip", "192.0.2.1").expect("valid")];
    let look = remote.check(&Request::new(&who).expect("valid").without_cost()).await.expect("a right check");
    assert_eq!((look.is_allowed, look.remaining), (true, Some(0)));
    for _ in 0..20 {
        let _ = check(&remote, "192.0.2.2", 1).await;
    }
    assert_eq!(proxy.connections(), 1);
}

/// Reads from the kernel the timer of each connection (a client that waits may have opened another): its kind is keepalive, and its
/// end is given in hundredths of a second.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn an_idle_connection_is_probed_after_ten_seconds() {
    let server = Server::start();
    let remote = remote(&[server.address]);
    let _ = check(&remote, "192.0.2.1", 1).await;
    let connections = std::fs::read_to_string("/proc/self/net/tcp").expect("Linux says");
    let peer = format!("0100007F:{:04X}", server.address.port());
    let of_it = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // Only established connections (state 01): an earlier server may have left closed ones with this port.
        (fields.get(2) == Some(&&*peer) && fields[3] == "01").then(|| fields[5].to_owned())
    };
    let timers: Vec<String> = connections.lines().filter_map(of_it).collect();
    let is_due = |timer: &String| {
        let hundredths = timer.strip_prefix("02:").map(|left| u32::from_str_radix(left, 16).expect("a number"));
        hundredths.is_some_and(|left| (500..=1_000).contains(&left))
    };
    assert!(!timers.is_empty() && timers.iter().all(is_due), "{timers:?}");
}

#[tokio::test]
async fn requests_pass_while_the_server_is_stopped() {
    let mut server = Server::start();
    let remote = remote(&[server.address]);
    assert_eq!(check(&remote, "192.0.2.1", 2).await.remaining, Some(0));
    server.stop();
    for _ in 0..5 {
        let decision = check(&remote, "192.0.2.1", 1).await;
        assert!(
            decision.is_allowed && ["unreachable", "server_error"].contains(&degraded(&decision).expect("why")),
            "{decision:?}"
        );
    }
    let refused = check(&remote, "192.0.2.1", 1).await;
    assert_eq!((refused.is_allowed, degraded(&refused)), (true, Some("breaker_open")));
    let again = Server::start_at(server.address.port());
    assert_eq!(decided(&remote, "192.0.2.1").await.remaining, Some(1), "the new server has counted nothing");
    drop(again);
}

#[tokio::test]
async fn the_next_address_decides_where_one_cannot_be_reached() {
    let mut gone = Server::start();
    gone.stop();
    let servers = [Server::start(), Server::start()];
    let remote = remote(&[servers[0].address, gone.address, servers[1].address]);
    let mut left = Vec::new();
    for _ in 0..12 {
        let decision = check(&remote, "192.0.2.1", 1).await;
        assert_eq!(degraded(&decision), None);
        left.push(decision.remaining);
    }
    // Each running server allowed two, so both were asked.
    assert_eq!(left.iter().filter(|left| **left == Some(1)).count(), 2, "{left:?}");
}

#[tokio::test]
async fn a_client_error_is_returned_and_a_server_error_counts_as_a_failure() {
    const REFUSAL: &str = r#"{"code":"bad_value","detail":"value: no"}"#;
    let refusing = Router::new().route("/v1/check", post(|| async { (StatusCode::BAD_REQUEST, REFUSAL) }));
    let failing = Router::new().route("/v1/check", post(|| async { StatusCode::INTERNAL_SERVER_ERROR }));
    let other = Router::new().route("/v1/check", post(|| async { "hello" }));
    let who = [Identity::new("ip", "192.0.2.1").expect("valid")];
    let request = Request::new(&who).expect("valid");
    let refused = remote(&[serve(refusing).await]);
    for _ in 0..12 {
        let expected = RemoteError::Refused { status: 400, code: "bad_value".into(), message: "value: no".into() };
        assert_eq!(refused.check(&request).await, Err(expected));
    }
    for wrong in [failing, other] {
        let wrong = remote(&[serve(wrong).await]).breaker(3, PATIENT);
        let mut reasons = Vec::new();
        for _ in 0..4 {
            reasons.push(wrong.check(&request).await.expect("the server's mistake").degraded.expect("why"));
        }
        assert_eq!(reasons, ["server_error", "server_error", "server_error", "breaker_open"]);
    }
}

/// The guard is the same as with an engine.
#[tokio::test]
async fn a_guard_protects_a_service_by_a_server() {
    let mut server = Server::start();
    let guard = |remote| Guard::new(Arc::new(remote), extractors(&["ip=address"]));
    let (open, closed) = (guard(remote(&[server.address])), guard(remote(&[server.address]).on_error(OnError::Closed)));
    let at_open = serve(Router::new().fallback(respond).layer(open.clone())).await;
    let at_closed = serve(Router::new().fallback(respond).layer(closed.clone())).await;
    in_background(move || {
        let responses: Vec<_> = (0..3).map(|_| ask(at_open, "/", &from("192.0.2.1"))).collect();
        assert_eq!(responses.iter().map(|response| response.status).collect::<Vec<_>>(), [200, 200, 429]);
        assert_eq!(
            (responses[2].remaining(), responses[2].json()["limit_id"].as_str()),
            (Some("0"), Some("default/tier:anonymous/minute"))
        );
        server.stop();
        let reasons = ["unreachable", "server_error"];
        let passed = ask(at_open, "/", &from("192.0.2.1"));
        assert_eq!((passed.status, passed.remaining()), (200, None));
        assert!(reasons.contains(&&*passed.body), "{passed:?}");
        let refused = ask(at_closed, "/", &from("192.0.2.1"));
        assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
        let reason = refused.json()["degraded"].as_str().expect("why").to_owned();
        assert!(reasons.contains(&&*reason), "{reason}");
    })
    .await;
    assert_eq!((open.counts().undecided(), closed.counts().undecided()), (1, 1));
}

#[tokio::test]
async fn a_text_that_is_no_address_is_quoted_in_the_error() {
    for text in [
        "",
        "127.0.0.1",
        "https://127.0.0.1",
        "ftp://127.0.0.1:9080",
        "http://127.0.0.1:9080/v1",
        "user@127.0.0.1:9080",
        "a b:1",
        "x:99999",
    ] {
        let error = Remote::to([text]).expect_err("no address");
        assert!(error.to_string().starts_with(&format!("`{text}` is no address")), "{error}");
    }
    assert_eq!(Remote::to([]).map(drop), Err(RemoteError::NoAddress));
    for text in ["localhost:9080", "http://[::1]:9080/", "https://tidegate.internal:9080"] {
        assert!(Remote::to([text]).is_ok(), "{text}");
    }
    let dead = ReservedPort::new();
    assert_eq!(degraded(&check(&remote(&[dead.address()]), "192.0.2.1", 1).await), Some("unreachable"));
}
