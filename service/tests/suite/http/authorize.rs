//! `/v1/authorize`: identities, path and method of the proxied request, responses, and that nothing that an end user
//! sends is an error.

use std::time::Duration;

use tidegate_service::{ListenerSettings, Timeouts};

use super::{
    HUNDRED,
    support::{HttpReply, Server, authorize},
};

const LIMITS: [&str; 3] = ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"];

/// A policy of two a minute for each address; `/search` has a limit of its own.
const TWO: &str = r#"
    [domains.default]
    defaults = { ip = "free", user = "free", token = "free" }
    [[domains.default.tiers]]
    id = "free"
    limits = [{ id = "minute", algorithm = "fixed_window", limit = 2, period = "1m" }]
    [[domains.default.rules]]
    id = "search"
    endpoint = "/search/*"
    method = "POST"
    per = "everyone"
    limits = [{ id = "search", algorithm = "fixed_window", limit = 1, period = "1m" }]
"#;

fn ask(server: &Server, query: &str, headers: &str) -> HttpReply {
    server.connect().send(format!("GET /v1/authorize{query} HTTP/1.1\r\nHost: tidegate\r\n{headers}\r\n"))
}

/// Returns the headers of a proxy for a request of this client.
fn of(address: &str) -> String {
    format!("X-Forwarded-For: {address}\r\n")
}

#[test]
fn a_request_passes_with_204_and_is_denied_with_429() {
    let server = Server::with(TWO);
    let first = ask(&server, "", &of("192.0.2.7"));
    assert_eq!((first.status, first.body.len()), (204, 0));
    assert_eq!(LIMITS.map(|name| first.header(name).is_some()), [true; 3]);
    assert_eq!((first.header("x-ratelimit-remaining"), first.header("retry-after")), (Some("1"), None));
    assert_eq!(ask(&server, "", &of("192.0.2.7")).status, 204);
    let denied = ask(&server, "", &of("192.0.2.7"));
    assert_eq!((denied.status, denied.header("x-ratelimit-remaining")), (429, Some("0")));
    assert_eq!(
        (denied.json()["allowed"].as_bool(), denied.json()["retry_after_ms"].as_u64()),
        (Some(false), Some(60_000))
    );
    let wait: u64 = denied.header("retry-after").expect("a wait").parse().expect("seconds");
    assert!((60..=66).contains(&wait), "{wait}");
    assert_eq!(ask(&server, "", &of("192.0.2.8")).status, 204, "somebody else");
}

#[test]
fn a_denial_is_403_for_proxies_that_do_not_take_429() {
    let server = Server::with(TWO);
    let statuses = [(); 3].map(|()| ask(&server, "?deny=403", &of("192.0.2.7")));
    assert_eq!(statuses.each_ref().map(|answer| answer.status), [204, 204, 403]);
    assert_eq!(LIMITS.map(|name| statuses[2].header(name).is_some()), [true; 3]);
    assert!(statuses[2].header("retry-after").is_some());
    assert_eq!(ask(&server, "?deny=429", &of("192.0.2.7")).status, 429);
}

#[test]
fn any_method_is_accepted_and_no_body_is_read() {
    let timeouts = Timeouts { linger: Duration::from_secs(2), ..Timeouts::default() };
    let server = Server::listening(ListenerSettings { timeouts, ..ListenerSettings::default() });
    server.publish(&HUNDRED.replace("user", "ip"));
    let mut connection = server.connect();
    for (left, method) in [(99, "POST"), (98, "PUT"), (97, "DELETE"), (96, "OPTIONS"), (95, "PATCH"), (94, "GET")] {
        let answer = connection.send(format!("{method} /v1/authorize HTTP/1.1\r\nHost: tidegate\r\n\r\n"));
        let told = (answer.status, answer.header("x-ratelimit-remaining"));
        assert_eq!(told, (204, Some(left.to_string().as_str())), "{method}");
    }
    assert_eq!(connection.head("HEAD /v1/authorize HTTP/1.1\r\nHost: tidegate\r\n\r\n").status, 204);
    // A body that is announced and never comes is not waited for.
    let answer = server.connect().send("POST /v1/authorize HTTP/1.1\r\nHost: tidegate\r\nContent-Length: 10\r\n\r\n");
    assert_eq!((answer.status, answer.header("x-ratelimit-remaining")), (204, Some("92")));
    // Chunks are not waited for, either, and the connection ends.
    let mut connection = server.connect();
    let chunks = "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n";
    let answer = connection.send(format!("POST /v1/authorize HTTP/1.1\r\nHost: tidegate\r\n{chunks}"));
    assert_eq!((answer.status, answer.header("connection")), (204, Some("close")));
    let mut chunked = connection;
    // A body that comes is not taken for the next request.
    let inner = "GET /v1/authorize HTTP/1.1\r\nHost: tidegate\r\n\r\n";
    let outer =
        format!("POST /v1/authorize HTTP/1.1\r\nHost: tidegate\r\nContent-Length: {}\r\n\r\n{inner}", inner.len());
    let mut connection = server.connect();
    let answer = connection.send(&outer);
    assert_eq!((answer.header("x-ratelimit-remaining"), answer.header("connection")), (Some("90"), Some("close")));
    assert!(chunked.is_closed() && connection.is_closed());
    assert_eq!(server.connect().send(inner).header("x-ratelimit-remaining"), Some("89"));
    assert_eq!(server.metric(r#"tidegate_requests_total{door="http",route="/v1/authorize",status="204"}"#), 11);
}

#[test]
fn path_and_method_come_from_the_headers_of_the_proxy() {
    let server = Server::with(TWO);
    let ask = |uri: &str, method: &str, client: &str| {
        let headers = format!("X-Forwarded-Uri: {uri}\r\nX-Forwarded-Method: {method}\r\n{}", of(client));
        ask(&server, "", &headers).status
    };
    assert_eq!(ask("/search/a?q=1", "POST", "192.0.2.1"), 204);
    assert_eq!(ask("/search/b?q=2", "POST", "192.0.2.2"), 429);
    assert_eq!(ask("/x/../search//%62#c", "POST", "192.0.2.3"), 429, "as rules see it");
    assert_eq!(ask("/search/a", "GET", "192.0.2.4"), 204);
    assert_eq!(ask("/searching", "POST", "192.0.2.5"), 204);
    let (much, slashes) = ("x".repeat(20_000), "/".repeat(20_000));
    for long in [format!("/search/{much}"), format!("{slashes}search/a"), format!("/{much}/../search/a?{much}")] {
        assert_eq!(ask(&long, "POST", "192.0.2.6"), 429, "a path that is too long keeps its rule");
    }
}

#[test]
fn the_headers_of_path_and_method_can_be_set() {
    let settings = authorize(&["ip=address"], &["127.0.0.1"]);
    let (endpoint_header, method_header) = ("x-original-uri".parse(), "x-original-method".parse());
    let settings = tidegate_service::http::Authorize {
        endpoint_header: endpoint_header.expect("a name"),
        method_header: method_header.expect("a name"),
        ..settings
    };
    let server = Server::asked_by_proxies(TWO, settings);
    // Headers of a client under other names are ignored.
    let headers =
        "X-Original-URI: /search/a\r\nX-Original-Method: POST\r\nX-Forwarded-Uri: /\r\nX-Forwarded-Method: GET\r\n";
    let told = ["192.0.2.1", "192.0.2.2"].map(|client| ask(&server, "", &(headers.to_owned() + &of(client))).status);
    assert_eq!(told, [204, 429]);
}

#[test]
fn the_client_is_the_rightmost_address_that_is_no_trusted_proxy() {
    let remaining = |server: &Server, line: &str| {
        let answer = ask(server, "", &of(line));
        answer.header("x-ratelimit-remaining").map(str::to_owned)
    };
    let server = Server::asked_by_proxies(TWO, authorize(&["ip=address"], &["127.0.0.1", "198.51.100.0/24"]));
    for (left, line) in [
        (1, "192.0.2.7"),
        (0, "203.0.113.9, 192.0.2.7"),
        (1, "192.0.2.7, 203.0.113.9, 198.51.100.4"),
        (1, "2001:db8:0:1::7"),
        (0, "2001:db8:0:1:ffff::1"),
        (1, "2001:db8:0:2::7"),
    ] {
        assert_eq!(remaining(&server, line), Some(left.to_string()), "{line}");
    }
    // An untrusted peer is counted by its own address, whatever its headers say.
    let server = Server::asked_by_proxies(TWO, authorize(&["ip=address"], &["198.51.100.0/24"]));
    let left = ["192.0.2.7", "192.0.2.8"].map(|line| remaining(&server, line));
    assert_eq!(left, [Some("1".to_owned()), Some("0".to_owned())]);
}

#[test]
fn identities_are_read_from_the_headers_of_the_settings() {
    let settings = authorize(&["ip=address", "user=header:X-User-Id", "token=bearer"], &["127.0.0.1"]);
    let server = Server::asked_by_proxies(TWO, settings);
    let ask = |client: &str, headers: &str| ask(&server, "", &(of(client) + headers)).status;
    let user = "X-User-Id: ada\r\n";
    assert_eq!([1, 2, 3].map(|client| ask(&format!("192.0.2.{client}"), user)), [204, 204, 429]);
    let token = "Authorization: Bearer secret\r\n";
    assert_eq!([4, 5, 6].map(|client| ask(&format!("192.0.2.{client}"), token)), [204, 204, 429]);
    assert_eq!(ask("192.0.2.3", ""), 204, "a denial charged nothing");
}

#[test]
fn a_request_without_any_identity_passes_and_is_counted() {
    let server = Server::asked_by_proxies(TWO, authorize(&["user=header:X-User-Id"], &["127.0.0.1"]));
    let answer = ask(&server, "?deny=403", "");
    assert_eq!((answer.status, answer.header("x-ratelimit-limit")), (204, None));
    assert_eq!(server.metric("tidegate_http_unidentified_requests_total"), 1);
}

#[test]
fn nothing_that_an_end_user_sends_is_an_error() {
    let settings = authorize(&["ip=address", "user=header:X-User-Id", "token=bearer"], &["127.0.0.1"]);
    let server = Server::asked_by_proxies(&HUNDRED.replace("user", "ip"), settings);
    let long = "x".repeat(20_000);
    for headers in [
        format!("X-Forwarded-Uri: {long}\r\n"),
        format!("X-Forwarded-Method: {long}\r\n"),
        format!("X-User-Id: {long}\r\n"),
        format!("Authorization: Bearer {long}\r\n"),
        format!("X-Forwarded-For: {long}\r\n"),
        "X-Forwarded-Uri:\r\nX-Forwarded-Method:\r\nX-User-Id:\r\nAuthorization:\r\nX-Forwarded-For:\r\n".to_owned(),
        "X-Forwarded-Uri: ?\r\nX-User-Id: a\r\nX-User-Id: b\r\nAuthorization: Bearer\r\n".to_owned(),
        "X-Request-Id: 7\r\nX-Forwarded-Uri: /%ff%\r\n".to_owned(),
    ] {
        let answer = ask(&server, "", &headers);
        assert_eq!(answer.status, 204, "{headers:.80}: {}", answer.text());
    }
    let bytes = b"GET /v1/authorize HTTP/1.1\r\nHost: t\r\nX-Forwarded-Uri: /\xff\xe9\r\nX-User-Id: \xff\r\nX-Forwarded-For: \xff\r\n\r\n";
    assert_eq!(server.connect().send(bytes).status, 204);
}

#[test]
fn the_query_takes_domain_cost_and_deny_and_nothing_else() {
    let server = Server::with(&TWO.replace("domains.default", "domains.shop"));
    let statuses = [1, 2, 3].map(|_| ask(&server, "?domain=shop&deny=403", &of("192.0.2.7")).status);
    assert_eq!(statuses, [204, 204, 403]);
    let statuses = [1, 2].map(|_| ask(&server, "?cost=2&domain=shop", &of("192.0.2.8")).status);
    assert_eq!(statuses, [204, 429]);
    assert_eq!(ask(&server, "", &of("192.0.2.7")).header("x-ratelimit-limit"), None, "another domain");
    for (query, code, field) in [
        ("?dmain=shop", "bad_query", "dmain"),
        ("?deny=404", "bad_query", "deny"),
        ("?deny", "bad_query", "deny"),
        ("?cost=x", "bad_query", "cost"),
        ("?cost=-1", "bad_query", "cost"),
        ("?cost=0", "bad_cost", "cost"),
        ("?cost=9007199254740992", "bad_cost", "cost"),
        ("?domain=shop&domain=default", "bad_query", "domain"),
    ] {
        let answer = ask(&server, query, &of("192.0.2.9"));
        let problem = answer.json();
        let parameter = problem["errors"][0]["parameter"].as_str();
        assert_eq!((answer.status, problem["code"].as_str(), parameter), (400, Some(code), Some(field)));
        assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    }
}

#[test]
fn a_degraded_outcome_is_marked_in_a_header() {
    let shared = TWO.replace("period", "sharing = \"strict\", period");
    let server = Server::with(&shared);
    assert_eq!(ask(&server, "", &of("192.0.2.7")).header("x-tidegate-degraded"), Some("no_store"));
    let server = Server::with(TWO);
    assert_eq!(ask(&server, "", &of("192.0.2.7")).header("x-tidegate-degraded"), None);
}
