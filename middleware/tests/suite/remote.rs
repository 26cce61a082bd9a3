//! A client of servers that decide: that it decides as they do, over connections that are kept, and answers when they are
//! stopped or wrong. What it does while they are paused or slow: `remote_late.rs`; over TLS: `remote_tls.rs`.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, http::StatusCode, routing::post};
use tidegate::{Identity, Request, Retry, policy::OnError};
use tidegate_middleware::{
    decision::Ruling,
    guard::Guard,
    headers,
    remote::{Remote, RemoteError},
};
use tidegate_testkit::port::ReservedPort;
use tokio::time;

use crate::{
    server::{Server, Way},
    support::{ask, extractors, from},
    under_axum::{in_background, serve, tell},
};

/// Long enough for a machine that has much else to do.
pub(crate) const PATIENT: Duration = Duration::from_mins(1);
/// Between trials.
pub(crate) const PAUSE: Duration = Duration::from_millis(300);

pub(crate) fn remote(addresses: &[SocketAddr]) -> Remote {
    let addresses: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
    Remote::to(addresses.iter().map(String::as_str)).expect("addresses").deadline(PATIENT).breaker(5, PAUSE)
}

pub(crate) async fn check(remote: &Remote, ip: &str, cost: u64) -> Ruling {
    let who = [Identity::new("ip", ip).expect("valid")];
    let request = Request::new(&who).expect("valid").cost(cost).expect("valid");
    remote.check(&request).await.expect("a right check")
}

pub(crate) fn degraded(ruling: &Ruling) -> Option<&str> {
    ruling.degraded.as_deref()
}

/// Asks until a server decides.
pub(crate) async fn decided(remote: &Remote, ip: &str) -> Ruling {
    let asked = async {
        loop {
            let ruling = check(remote, ip, 1).await;
            if ruling.degraded.is_none() {
                return ruling;
            }
            time::sleep(Duration::from_millis(10)).await;
        }
    };
    time::timeout(PATIENT, asked).await.expect("it decides again")
}

#[tokio::test]
async fn it_decides_as_the_server_does_over_a_connection_that_is_kept() {
    let server = Server::start();
    let way = Way::to(server.address).await;
    let remote = remote(&[way.address]);
    let allowed = check(&remote, "192.0.2.1", 2).await;
    let expected = |ruling: &Ruling| (ruling.limit, ruling.remaining, ruling.reset_after, ruling.policy_version);
    assert_eq!(expected(&allowed), (Some(2), Some(0), Some(Duration::from_mins(1)), 1));
    assert_eq!((allowed.allowed, allowed.retry, degraded(&allowed)), (true, Retry::Now, None));
    let denied = check(&remote, "192.0.2.1", 1).await;
    assert_eq!((denied.allowed, denied.retry), (false, Retry::After(Duration::from_mins(1))));
    assert_eq!(denied.limit_id.as_deref(), Some("default/tier:anonymous/minute"));
    let named: Vec<&str> = denied.headers.iter().map(|(name, _)| *name).collect();
    assert_eq!(named, [headers::LIMIT, headers::REMAINING, headers::RESET, headers::RETRY_AFTER]);
    assert_eq!(check(&remote, "192.0.2.1", 3).await.retry, Retry::Never);
    let who = [Identity::new("ip", "192.0.2.1").expect("valid")];
    let look = remote.check(&Request::new(&who).expect("valid").without_cost()).await.expect("a right check");
    assert_eq!((look.allowed, look.remaining), (true, Some(0)));
    for _ in 0..20 {
        let _ = check(&remote, "192.0.2.2", 1).await;
    }
    assert_eq!(way.connections(), 1);
}

/// What the kernel says of each connection (a client that waits may have opened another): that its timer is the one of
/// keepalive, and in how many hundredths of a second it ends.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_connection_that_nothing_comes_over_is_probed_after_ten_seconds() {
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
async fn a_server_that_is_stopped_lets_requests_pass_until_it_is_back() {
    let mut server = Server::start();
    let remote = remote(&[server.address]);
    assert_eq!(check(&remote, "192.0.2.1", 2).await.remaining, Some(0));
    server.stop();
    for _ in 0..5 {
        let ruling = check(&remote, "192.0.2.1", 1).await;
        assert!(
            ruling.allowed && ["unreachable", "server_error"].contains(&degraded(&ruling).expect("why")),
            "{ruling:?}"
        );
    }
    let refused = check(&remote, "192.0.2.1", 1).await;
    assert_eq!((refused.allowed, degraded(&refused)), (true, Some("breaker_open")));
    let again = Server::start_at(server.address.port());
    assert_eq!(decided(&remote, "192.0.2.1").await.remaining, Some(1), "by a server that knows nobody");
    drop(again);
}

#[tokio::test]
async fn the_next_address_is_asked_where_one_cannot_be_reached() {
    let mut gone = Server::start();
    gone.stop();
    let servers = [Server::start(), Server::start()];
    let remote = remote(&[servers[0].address, gone.address, servers[1].address]);
    let mut left = Vec::new();
    for _ in 0..12 {
        let ruling = check(&remote, "192.0.2.1", 1).await;
        assert_eq!(degraded(&ruling), None);
        left.push(ruling.remaining);
    }
    // Each server that is there gave two: both are asked.
    assert_eq!(left.iter().filter(|left| **left == Some(1)).count(), 2, "{left:?}");
}

#[tokio::test]
async fn a_refusal_is_the_callers_mistake_and_an_error_is_the_servers() {
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

/// The same guard as with an engine, and another decider.
#[tokio::test]
async fn a_service_is_protected_by_a_server() {
    let mut server = Server::start();
    let guard = |remote| Guard::new(Arc::new(remote), extractors(&["ip=address"]));
    let (open, closed) = (guard(remote(&[server.address])), guard(remote(&[server.address]).on_error(OnError::Closed)));
    let at_open = serve(Router::new().fallback(tell).layer(open.clone())).await;
    let at_closed = serve(Router::new().fallback(tell).layer(closed.clone())).await;
    in_background(move || {
        let told: Vec<_> = (0..3).map(|_| ask(at_open, "/", &from("192.0.2.1"))).collect();
        assert_eq!(told.iter().map(|told| told.status).collect::<Vec<_>>(), [200, 200, 429]);
        assert_eq!(
            (told[2].remaining(), told[2].json()["limit_id"].as_str()),
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
async fn addresses_that_are_none_are_named() {
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
