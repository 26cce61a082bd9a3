//! Attacks over HTTP/1.1, most of them with bytes that no client library sends. Each is refused as it must be, while a
//! caller at another address gets exactly its quota.

use std::net::SocketAddr;

use tidegate_testkit::hostile::{beside, connect, exchange};

use super::{
    HUNDRED,
    support::{Connection, Server, authorize, request},
    user,
};
use crate::tokens::{FALSE_TOKENS, TOKEN, settings_with_token};

/// The user whose quota is checked: a charge by an attack would show there.
const GRACE: &str = "grace";

/// Asserts that [`GRACE`] is decided by its limit alone, on connections of both workers.
fn gets_its_quota(address: SocketAddr) {
    let check = request("/v1/check", &format!("X-Tidegate-Token: {TOKEN}\r\n"), user(GRACE));
    let mut connections = [(); 4].map(|()| Connection::to(address));
    for (status, left) in (0..100).rev().map(|left| (200, left)).chain([(429, 0); 10]) {
        connections.rotate_left(1);
        let answer = connections[0].send(&check);
        assert_eq!((answer.status, answer.json()["remaining"].as_u64()), (status, Some(left)));
    }
}

/// Returns the statuses of all responses.
fn statuses(received: &str) -> Vec<u16> {
    received.split("HTTP/1.1 ").skip(1).map(|answer| answer[..3].parse().expect("a status")).collect()
}

#[test]
fn no_spelling_of_a_path_passes_without_the_token() {
    let server = Server::listening(settings_with_token());
    server.publish(HUNDRED);
    let targets = [
        ("/v1/check", 401),
        ("//v1/check", 401),
        ("/./v1/check", 401),
        ("/healthz/../v1/check", 401),
        ("/metrics/%2e%2e/v1/check", 401),
        ("/readyz/..%2fv1%2fcheck", 401),
        ("/healthz/..\\v1\\check", 401),
        ("/healthz;/v1/check", 401),
        ("/healthz%00", 401),
        ("/healthz%20", 401),
        ("/HEALTHZ", 401),
        ("/%68ealthz", 401),
        ("/v1/check;/healthz", 401),
        ("/v1/check?/healthz", 401),
        ("/v1/check#/healthz", 401),
        ("/v1/check/../../healthz", 401),
        ("healthz", 401),
        ("*", 401),
        ("http://tidegate/v1/check", 401),
        ("http://tidegate/healthz/../v1/check", 401),
        ("http://healthz/v1/check", 401),
        ("http:///healthz", 400),
        ("/healthz /v1/check", 400),
        ("/healthz\t/v1/check", 400),
        ("/healthz\0", 400),
        // The paths without a token do not check, either.
        ("/healthz?/../v1/check", 405),
        ("/healthz#/../v1/check", 405),
    ];
    let body = user(GRACE);
    let attack = || {
        for (target, status) in targets {
            let head = format!("POST {target} HTTP/1.1\r\nHost: tidegate\r\nContent-Length: {}\r\n\r\n", body.len());
            let received = exchange(server.address, head + &body);
            assert_eq!(statuses(&received), [status], "{target:?}: {received}");
        }
    };
    beside(|| gets_its_quota(server.address), attack);
    assert_eq!(server.engine.totals().allowed, 100);
}

#[test]
fn a_value_that_resembles_a_token_is_refused() {
    let server = Server::listening(settings_with_token());
    server.publish(HUNDRED);
    let wrong = FALSE_TOKENS[0];
    let mut headers = vec![
        "X-Tidegate-Token:".to_owned(),
        // Of several tokens the first counts.
        format!("X-Tidegate-Token: {wrong}\r\nX-Tidegate-Token: {TOKEN}"),
        format!("Authorization: Bearer {wrong}\r\nAuthorization: Bearer {TOKEN}"),
        format!("Authorization: Bearer {TOKEN}, Bearer {wrong}"),
        format!("Authorization: {TOKEN}"),
        format!("Authorization: Basic {TOKEN}"),
        format!("Authorization: Token {TOKEN}"),
        format!("Authorization: Bearer{TOKEN}"),
        format!("Authorization: Bearer\t{TOKEN}"),
        format!("Proxy-Authorization: Bearer {TOKEN}"),
        format!("X_Tidegate_Token: {TOKEN}"),
        format!("Cookie: x-tidegate-token={TOKEN}"),
    ];
    for like in FALSE_TOKENS {
        headers.extend([format!("X-Tidegate-Token: {like}"), format!("Authorization: Bearer {like}")]);
    }
    let body = user(GRACE);
    let mut requests: Vec<Vec<u8>> =
        headers.iter().map(|headers| request("/v1/check", &format!("{headers}\r\n"), &body)).collect();
    requests.push(request(&format!("/v1/check?token={TOKEN}&access_token={TOKEN}"), "", &body));
    // A token in a trailer.
    let head = "POST /v1/check HTTP/1.1\r\nHost: tidegate\r\nTransfer-Encoding: chunked\r\nTrailer: X-Tidegate-Token";
    let chunks = format!("{:x}\r\n{body}\r\n0\r\nX-Tidegate-Token: {TOKEN}\r\n\r\n", body.len());
    requests.push(format!("{head}\r\n\r\n{chunks}").into_bytes());
    let attack = || {
        for request in &requests {
            let received = exchange(server.address, request);
            assert_eq!(statuses(&received), [401], "{}: {received}", request.escape_ascii());
        }
    };
    beside(|| gets_its_quota(server.address), attack);
    assert_eq!(server.engine.totals().allowed, 100);
}

/// Returns heads whose length or coding other parsers may read differently.
fn ambiguous_heads() -> Vec<String> {
    let post = |headers: &str, body: &str| format!("POST /v1/check HTTP/1.1\r\nHost: tidegate\r\n{headers}\r\n{body}");
    let end = "0\r\n\r\n";
    let headers = [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Transfer-Encoding\t: chunked\r\n",
        " Transfer-Encoding: chunked\r\n",
        "Transfer-Encoding:\r\n chunked\r\n",
        "X: a\r\n Transfer-Encoding: chunked\r\n",
        "X: a\rTransfer-Encoding: chunked\r\n",
        "X: a\0\r\nTransfer-Encoding: chunked\r\n",
        "X\0: a\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 0\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nContent-Length: 5\r\n",
        "Content-Length : 5\r\n",
        " Content-Length: 5\r\n",
        // A target on another host.
        "Host: other\r\nContent-Length: 5\r\n",
    ];
    let mut heads = Vec::from(headers.map(|headers| post(headers, end)));
    for length in ["", "5, 5", "5,", "+5", "-5", "0x5", "5 5", "5;", "5e0", "18446744073709551616"] {
        heads.push(post(&format!("Content-Length: {length}\r\n"), end));
    }
    for coding in [
        "",
        "identity",
        "gzip",
        "gzip, chunked",
        "chunked, gzip",
        "chunked, identity",
        "chunked, chunked",
        "xchunked",
        "\"chunked\"",
        "chunked;q=1",
        "\u{b}chunked",
    ] {
        heads.push(post(&format!("Transfer-Encoding: {coding}\r\n"), end));
    }
    heads.extend(
        [
            "POST /v1/check HTTP/1.1\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
            "POST /v1/check HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "POST /v1/check HTTP/1.0\r\nHost: tidegate\r\n\r\n",
            "POST /v1/check HTTP/2.0\r\nHost: tidegate\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
            "POST /v1/check\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        ]
        .map(str::to_owned),
    );
    heads
}

/// Returns bodies in chunks that other parsers may read differently.
fn ambiguous_chunks() -> [String; 15] {
    let head = "POST /v1/check HTTP/1.1\r\nHost: tidegate\r\nTransfer-Encoding: chunked\r\n\r\n";
    [
        "\r\n",
        "x\r\n",
        "+1\r\n{\r\n0\r\n\r\n",
        "-1\r\n{\r\n0\r\n\r\n",
        " 1\r\n{\r\n0\r\n\r\n",
        "0x1\r\n{\r\n0\r\n\r\n",
        "1 1\r\n{\r\n0\r\n\r\n",
        "1\n{\n0\n\n",
        "1\r\r\n{\r\n0\r\n\r\n",
        "1;a\nb\r\n{\r\n0\r\n\r\n",
        "1;a\0\r\n{\r\n0\r\n\r\n",
        // Chunks that are longer, and shorter, than their length.
        "1\r\n{}\r\n0\r\n\r\n",
        "2\r\n{}0\r\n\r\n",
        "FFFFFFFFFFFFFFFF\r\n",
        "FFFFFFFFFFFFFFFFF\r\n",
    ]
    .map(|chunks| format!("{head}{chunks}"))
}

/// Returns the heads of requests with bodies that are not read, or do not end. The next request, of this length,
/// follows as the body.
fn bodies_that_are_no_requests(length: usize) -> [(String, u16); 6] {
    let with = |target: &str, headers: &str| format!("{target} HTTP/1.1\r\nHost: tidegate\r\n{headers}\r\n");
    let fixed = format!("Content-Length: {length}\r\n");
    [
        (with("GET /healthz", &fixed), 200),
        (with("GET /healthz", "Transfer-Encoding: chunked\r\n") + &format!("{length:x}\r\n"), 200),
        (with("POST /healthz", &fixed), 405),
        (with("POST /v1/else", &fixed), 404),
        (with("CONNECT tidegate:80", ""), 404),
        (with("POST /v1/check", "Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 2\r\n") + "{}", 400),
    ]
}

#[test]
fn no_request_is_smuggled_in_another() {
    let server = Server::with(HUNDRED);
    let hidden = request("/v1/check", "", user(GRACE));
    let refused = ambiguous_heads().into_iter().chain(ambiguous_chunks()).map(|form| (form, 400));
    let forms: Vec<(String, u16)> = refused.chain(bodies_that_are_no_requests(hidden.len())).collect();
    let attack = || {
        for (form, status) in &forms {
            let received = exchange(server.address, [form.as_bytes(), &hidden].concat());
            assert_eq!(statuses(&received), [*status], "{form:?}: {received}");
        }
    };
    beside(|| gets_its_quota(server.address), attack);
    // A request that is not hidden is answered.
    let two = request("/v1/check", "", user("mallory")).repeat(2);
    assert_eq!(statuses(&exchange(server.address, two)), [200, 200]);
    assert_eq!(server.engine.totals().allowed, 102);
}

#[test]
fn an_oversized_head_ends_only_its_own_connection() {
    let server = Server::with(HUNDRED);
    let much = "x".repeat(70_000);
    // The first name is longer than the types of the crate http can hold.
    let headers = [format!("{much}: a\r\n"), format!("X: {much}\r\n"), "X: a\r\n".repeat(200), much.repeat(3)];
    let attack = || {
        for headers in &headers {
            let received = exchange(server.address, request("/v1/check", headers, user(GRACE)));
            assert!(statuses(&received).iter().all(|status| [400, 431].contains(status)), "{headers:.20}: {received}");
        }
    };
    beside(|| gets_its_quota(server.address), attack);
    assert_eq!(server.engine.totals().allowed, 100);
}

#[test]
fn an_address_named_by_an_untrusted_peer_is_not_counted() {
    const VICTIM: &str = "192.0.2.7";
    let server = Server::asked_by_proxies(&HUNDRED.replace("user", "ip"), authorize(&["ip=address"], &["127.0.0.1"]));
    let ask = |connection: &mut Connection, headers: &str| {
        connection.send(format!("GET /v1/authorize HTTP/1.1\r\nHost: tidegate\r\n{headers}\r\n")).status
    };
    // The proxy sends a request for the victim, and one for itself.
    let proxy = || {
        let mut connection = Connection::to(server.address);
        for headers in [format!("X-Forwarded-For: {VICTIM}\r\n"), String::new()] {
            let statuses: Vec<u16> = (0..110).map(|_| ask(&mut connection, &headers)).collect();
            assert_eq!(statuses, [[204_u16; 100].as_slice(), &[429; 10]].concat());
        }
    };
    let mut allowed = 0;
    let attack = || {
        let mut stranger = Connection::over(connect(server.address));
        for number in 0..10 {
            for headers in [
                format!("X-Forwarded-For: 198.51.100.{number}\r\n"),
                format!("X-Forwarded-For: {VICTIM}\r\n"),
                format!("X-Forwarded-For: {VICTIM}, 127.0.0.1\r\n"),
                format!("X-Forwarded-For: 127.0.0.1\r\nX-Forwarded-For: {VICTIM}\r\n"),
                "X-Forwarded-For: 127.0.0.1\r\n".to_owned(),
                format!("Forwarded: for={VICTIM}\r\n"),
                format!("X-Real-IP: {VICTIM}\r\n"),
                format!("X-Client-IP: {VICTIM}\r\n"),
                format!("X-Cluster-Client-IP: {VICTIM}\r\n"),
                format!("True-Client-IP: {VICTIM}\r\n"),
                format!("CF-Connecting-IP: {VICTIM}\r\n"),
            ] {
                let status = ask(&mut stranger, &headers);
                assert!([204, 429].contains(&status), "{headers}: {status}");
                allowed += usize::from(status == 204);
            }
        }
    };
    beside(proxy, attack);
    assert_eq!(allowed, 100, "it has the quota of its own address");
}
