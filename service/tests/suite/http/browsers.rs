//! Requests of pages in browsers: pages of other origins charge nothing, and DNS rebinding gets nothing. Headers that
//! proxies pass on from their clients are accepted.

use serde_json::Value;
use tidegate_service::{ListenerSettings, http::BrowserAccess};

use super::{
    HUNDRED,
    support::{HttpReply, Server, authorize},
    user,
};

/// The headers that browsers add to a request of a page of another origin.
const CROSS_SITE: &str = "Origin: https://evil.example\r\nSec-Fetch-Site: cross-site\r\n";

/// The paths that charge, settle or refund.
const CALLS: [&str; 5] = ["/v1/check", "/v1/check/batch", "/v1/reserve", "/v1/settle", "/v1/refund"];

/// Sends a POST with this `Host`, or without one, as HTTP/1.0 allows.
fn post(server: &Server, path: &str, host: Option<&str>, headers: &str) -> HttpReply {
    let body = user("ada");
    let (version, host) = host.map_or(("1.0", String::new()), |host| ("1.1", format!("Host: {host}\r\n")));
    let length = body.len();
    let head = format!("POST {path} HTTP/{version}\r\n{host}Content-Length: {length}\r\n{headers}\r\n");
    server.connect().send(format!("{head}{body}"))
}

fn get(server: &Server, path: &str, host: &str, headers: &str) -> HttpReply {
    server.connect().send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n"))
}

/// Returns the status of a response, and the code of its error.
fn refusal(answer: &HttpReply) -> (u16, String) {
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    (answer.status, body["code"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn pages_of_other_origins_charge_nothing() {
    let server = Server::with(HUNDRED);
    let own = server.address.to_string();
    for headers in [
        CROSS_SITE,
        "Sec-Fetch-Site: cross-site\r\n",
        "Sec-Fetch-Site: same-site\r\nOrigin: http://localhost:3000\r\n",
        "Origin: https://evil.example\r\n",
        "Origin: null\r\n",
        "Origin: http://127.0.0.1:1\r\n",
    ] {
        for path in CALLS {
            let answer = post(&server, path, Some(&own), headers);
            assert_eq!(refusal(&answer), (403, "cross_origin".to_owned()), "{path} {headers}");
        }
    }
    assert_eq!(server.remaining("ada"), 100, "nothing was charged");
    assert_eq!(server.metric(r#"tidegate_bad_requests_total{door="http",code="cross_origin"}"#), 30);
    // A page may send a body without a type without a preflight.
    let answer = post(&server, "/v1/check", Some("evil.example"), CROSS_SITE);
    assert_eq!(answer.status, 403);
}

#[test]
fn requests_that_no_page_of_another_origin_sent_are_answered() {
    let browsers = BrowserAccess { origins: vec!["https://app.example".to_owned()], ..BrowserAccess::default() };
    let server = Server::listening(ListenerSettings { browsers, ..ListenerSettings::default() });
    server.publish(HUNDRED);
    let own = server.address.to_string();
    let of_own_origin = format!("Origin: http://{own}\r\n");
    for headers in [
        // Programs send none of these headers.
        "",
        // A page of the same origin, behind this server's proxy.
        "Origin: https://limits.example\r\nSec-Fetch-Site: same-origin\r\n",
        &*of_own_origin,
        // An address that a user types.
        "Sec-Fetch-Site: none\r\n",
        // An allowed origin.
        "Origin: https://app.example\r\nSec-Fetch-Site: cross-site\r\n",
        "Origin: https://App.Example\r\n",
    ] {
        assert_eq!(post(&server, "/v1/check", Some(&own), headers).status, 200, "{headers}");
    }
    for origin in ["https://app.example.evil.example", "http://app.example", "https://app.example:8443"] {
        let headers = format!("Origin: {origin}\r\nSec-Fetch-Site: cross-site\r\n");
        assert_eq!(post(&server, "/v1/check", Some(&own), &headers).status, 403, "{origin}");
    }
}

#[test]
fn dns_rebinding_gets_nothing_on_loopback() {
    let browsers = BrowserAccess { hosts: vec!["limits.internal".to_owned()], ..BrowserAccess::default() };
    let server = Server::listening(ListenerSettings { browsers, ..ListenerSettings::default() });
    server.publish(HUNDRED);
    let port = server.address.port();
    let evil = format!("evil.example:{port}");
    // The page has the same origin as the URL that it calls.
    let headers = format!("Origin: http://{evil}\r\nSec-Fetch-Site: same-origin\r\n");
    for path in CALLS {
        for host in [&*evil, "evil.example", "192.0.2.7", "localhost.evil.example", ""] {
            let answer = post(&server, path, Some(host), &headers);
            assert_eq!(refusal(&answer), (403, "unknown_host".to_owned()), "{path} {host}");
        }
    }
    assert_eq!(refusal(&get(&server, "/metrics", &evil, "")), (403, "unknown_host".to_owned()));
    let proxied = "X-Forwarded-For: 192.0.2.7\r\n";
    assert_eq!(refusal(&get(&server, "/v1/authorize", &evil, proxied)), (403, "unknown_host".to_owned()));
    assert_eq!(server.remaining("ada"), 100, "nothing was charged");
    for path in ["/healthz", "/readyz"] {
        assert_eq!(get(&server, path, &evil, CROSS_SITE).status, 200, "probes come under any name: {path}");
    }
    for host in [
        format!("localhost:{port}"),
        "LOCALHOST".to_owned(),
        format!("127.0.0.1:{port}"),
        format!("[::1]:{port}"),
        "limits.internal".to_owned(),
        format!("Limits.Internal:{port}"),
    ] {
        assert_eq!(post(&server, "/v1/check", Some(&host), "").status, 200, "{host}");
        assert_eq!(get(&server, "/metrics", &host, CROSS_SITE).status, 200, "nothing is charged: {host}");
    }
    assert_eq!(post(&server, "/v1/check", None, "").status, 200, "HTTP/1.0");
}

/// Proxies pass on the headers of their clients, and add the path and the address.
#[test]
fn requests_of_proxies_are_answered_whatever_their_clients_sent() {
    let settings = authorize(&["user=header:X-User-Id"], &["127.0.0.1"]);
    let server = Server::asked_by_proxies(HUNDRED, settings);
    let own = server.address.to_string();
    let whose = "X-User-Id: ada\r\n";
    for (host, added) in [
        // nginx names its upstream, Caddy the host of its client, Traefik the address of this server.
        ("limits", "X-Forwarded-Uri: /a\r\nX-Forwarded-Method: GET\r\nX-Forwarded-For: 192.0.2.7\r\n"),
        ("shop.example", "X-Forwarded-Uri: /a\r\nX-Forwarded-Method: GET\r\nX-Forwarded-For: 192.0.2.7\r\n"),
        (&*own, "X-Forwarded-Uri: /a\r\n"),
        (&*own, "X-Forwarded-Method: GET\r\n"),
        (&*own, "X-Forwarded-For: 192.0.2.7\r\n"),
    ] {
        let headers = format!("{CROSS_SITE}{added}{whose}");
        assert_eq!(get(&server, "/v1/authorize", host, &headers).status, 204, "{host} {added}");
    }
    assert_eq!(server.engine.totals().allowed, 5);
    // A page cannot make a browser send any of these headers to another origin.
    let page = format!("{CROSS_SITE}{whose}");
    assert_eq!(refusal(&get(&server, "/v1/authorize", &own, &page)), (403, "cross_origin".to_owned()));
    // A request for an image of a page.
    let image = format!("Sec-Fetch-Site: cross-site\r\n{whose}");
    assert_eq!(refusal(&get(&server, "/v1/authorize?cost=9", &own, &image)), (403, "cross_origin".to_owned()));
    assert_eq!(server.engine.totals().allowed, 5, "nothing was charged");
    assert_eq!(get(&server, "/v1/authorize", &own, whose).status, 204, "a proxy that adds nothing, of no browser");
}
