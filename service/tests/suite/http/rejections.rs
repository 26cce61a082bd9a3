//! Rejected requests over HTTP: each has a status, a code and the wrong field, and charges nothing.

use std::{fmt::Write, io};

use serde_json::{Value, json};

use super::{
    HUNDRED,
    support::{Connection, HttpReply, Server, request},
    user,
};

#[test]
fn every_code_is_documented() {
    let source = include_str!("../../../src/shared/error.rs");
    let table = include_str!("../../../../docs/http.md").split_once("## Errors").expect("a part").1;
    let told = source.lines().filter(|line| line.contains("(StatusCode::") || line.contains("RequestError::"));
    let codes: Vec<&str> = told.filter_map(|line| line.split('"').nth(1)).collect();
    assert!(codes.len() > 20, "{codes:?}");
    for code in codes {
        assert!(table.contains(&format!("`{code}`")), "{code}");
    }
}

/// Bodies that are refused with 400: what is wrong, the body, its code, the JSON pointer to the part that is wrong, and what the
/// detail says.
fn bad_bodies() -> Vec<(&'static str, Vec<u8>, &'static str, &'static str, &'static str)> {
    let user = user("ada");
    let with = |field: &str| user.replace("]}", &format!("],{field}}}")).into_bytes();
    let identities = |list: &str| format!(r#"{{"identities":[{list}]}}"#).into_bytes();
    let identity = |kind: &str, value: &str| format!(r#"{{"kind":"{kind}","value":"{value}"}}"#);
    let value = |value: &str| identities(&identity("user", value));
    let nine = (b'a'..=b'i').map(|kind| identity(&char::from(kind).to_string(), "x")).collect::<Vec<_>>().join(",");
    let twice = [identity("user", "ada"), identity("ip", "192.0.2.7"), identity("user", "bob")].join(",");
    let latin = user.replace("ada", "ad\u{e9}").chars().map(|c| c as u8).collect();
    let deep = [vec![b'['; 100_000], vec![b']'; 100_000]].concat();
    let range = "9007199254740991";
    vec![
        ("no identity", identities(""), "bad_identities", "/identities", "give one to 8"),
        ("identities absent", b"{}".to_vec(), "bad_identities", "/identities", "give one to 8"),
        ("nine identities", identities(&nine), "bad_identities", "/identities", "give one to 8"),
        ("a repeated kind", identities(&twice), "repeated_kind", "/identities/2/kind", "`user` is given twice"),
        ("a kind in capitals", identities(&identity("IP", "x")), "bad_kind", "/identities/0/kind", "`IP`"),
        ("no value", value(""), "bad_value", "/identities/0/value", "0 bytes"),
        ("a long value", value(&"v".repeat(5_000)), "bad_value", "/identities/0/value", "5000 bytes; from 1 to 1024"),
        (
            "a long endpoint",
            with(&format!(r#""endpoint":"/{}""#, "e".repeat(8_192))),
            "bad_endpoint",
            "/endpoint",
            "8192",
        ),
        ("cost 0", with(r#""cost":0"#), "bad_cost", "/cost", "cost: 0 fits only with `peek`"),
        ("cost 2^53", with(r#""cost":9007199254740992"#), "bad_cost", "/cost", range),
        ("cost 2^63", with(r#""cost":9223372036854775808"#), "bad_cost", "/cost", range),
        ("cost 2^64", with(r#""cost":18446744073709551616"#), "bad_field", "/cost", "`18446744073709551616`"),
        ("cost -1", with(r#""cost":-1"#), "bad_field", "/cost", range),
        ("cost 1.5", with(r#""cost":1.5"#), "bad_field", "/cost", range),
        ("cost x", with(r#""cost":"x""#), "bad_field", "/cost", range),
        ("no body", vec![], "bad_json", "", "send an object such as"),
        ("broken JSON", user.as_bytes()[..20].to_vec(), "bad_json", "", "line 1: the text ends here"),
        ("more than JSON", format!("{user}{user}").into_bytes(), "bad_json", "", "line 1: something stands after"),
        ("half a character", value(r"\ud800"), "bad_json", "", "and no character stand in a text"),
        ("not UTF-8", latin, "bad_json", "", "not UTF-8 from byte 41"),
        ("a list", format!("[{user}]").into_bytes(), "bad_field", "", "a list stands here; write"),
        ("lists upon lists", deep, "bad_field", "", "nested too deep"),
        (
            "an identity as a list",
            identities(r#"["user","ada"]"#),
            "bad_field",
            "/identities/0",
            "a list stands here; write",
        ),
        (
            "a kind that is a number",
            identities(r#"{"kind":7,"value":"x"}"#),
            "bad_field",
            "/identities/0/kind",
            "write a text, in quotes",
        ),
        ("no kind", identities(r#"{"value":"x"}"#), "bad_field", "/identities/0", "`kind`; add it"),
        ("identities as an object", br#"{"identities":{}}"#.to_vec(), "bad_field", "/identities", "write a list"),
        ("a domain that is a number", with(r#""domain":7"#), "bad_field", "/domain", "write a text, in quotes"),
        ("a field twice", with(r#""cost":1,"cost":2"#), "bad_field", "", "`cost` stands here twice; keep one"),
        ("an unknown field", with(r#""speed":7"#), "bad_field", "/speed", "`speed`; write `domain`"),
        (
            "an unknown field inside",
            identities(r#"{"kind":"user","value":"ada","name":1}"#),
            "bad_field",
            "/identities/0/name",
            "unknown field `name`; write `kind` or `value`",
        ),
        ("no request id", with(r#""request_id":"""#), "bad_request_id", "/request_id", "0 bytes; from 1 to 128 fit"),
        (
            "a long request id",
            with(&format!(r#""request_id":"{}""#, "7".repeat(129))),
            "bad_request_id",
            "/request_id",
            "129 bytes",
        ),
    ]
}

#[test]
fn wrong_bodies_are_refused_with_their_field_and_charge_nothing() {
    let server = Server::with(HUNDRED);
    let mut connection = server.connect();
    for (what, body, code, pointer, says) in bad_bodies() {
        let answer = connection.post("/v1/check", body);
        expect(&answer, 400, code, pointer, says, what);
        // The connection goes on.
        assert_eq!(connection.post("/v1/check", user("bob")).status, 200, "{what}");
    }
    assert_eq!(server.remaining("ada"), 100, "nothing was charged");
    assert_eq!(server.remaining("bob"), 100 - bad_bodies().len());
}

#[test]
fn messages_quote_only_the_beginning_of_what_was_sent() {
    let server = Server::with(HUNDRED);
    for name in ["x".repeat(500_000), "ö".repeat(200_000)] {
        let answer = server.check(&format!(r#"{{"{name}":1}}"#));
        assert_eq!((answer.status, answer.body.len() < 5_000), (400, true));
    }
}

#[test]
fn a_body_that_says_it_is_not_json_is_refused() {
    let server = Server::with(HUNDRED);
    let post = |headers: &str| server.connect().send(request("/v1/check", headers, user("ada")));
    for (headers, says) in [
        ("Content-Type: text/plain\r\n", "Content-Type: `text/plain`"),
        ("Content-Type: application/x-www-form-urlencoded\r\n", "application/json"),
        ("Content-Type: application/jsonp\r\n", "application/json"),
        ("Content-Type:\r\n", "Content-Type: ``"),
        ("Content-Encoding: gzip\r\n", "Content-Encoding: `gzip`"),
    ] {
        expect(&post(headers), 415, "unsupported_media_type", "", says, headers);
    }
    assert_eq!(server.remaining("ada"), 100, "nothing was charged");
    for (left, headers) in [
        (99, ""),
        (98, "Content-Type: application/json\r\n"),
        (97, "Content-Type: Application/JSON; charset=utf-8\r\n"),
        (96, "Content-Encoding: identity\r\n"),
    ] {
        assert_eq!(post(headers).json()["remaining"], left, "{headers}");
    }
}

#[test]
fn a_wrong_method_is_405_with_what_is_allowed() {
    let server = Server::with(HUNDRED);
    for (method, path, allowed) in [
        ("GET", "/v1/check", "POST"),
        ("PUT", "/v1/check", "POST"),
        ("OPTIONS", "/v1/check/batch", "POST"),
        ("POST", "/healthz", "GET, HEAD"),
        ("DELETE", "/readyz", "GET, HEAD"),
        ("POST", "/metrics", "GET, HEAD"),
    ] {
        let body = user("ada");
        let answer = server.connect().send(format!(
            "{method} {path} HTTP/1.1\r\nHost: tidegate\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ));
        expect(&answer, 405, "method_not_allowed", "", &format!("{method} is not for this path"), path);
        assert_eq!(answer.header("allow"), Some(allowed), "{method} {path}");
    }
    assert_eq!(server.remaining("ada"), 100, "nothing was charged");
}

#[test]
fn an_unknown_path_is_404() {
    let server = Server::with(HUNDRED);
    for path in ["/", "/v1", "/v1/check/", "/v1/checks", "/V1/check", "/v1/reserve/", "/%ff"] {
        let answer = server.connect().post(path, user("ada"));
        expect(&answer, 404, "not_found", "", "POST /v1/check", path);
    }
    assert_eq!(server.remaining("ada"), 100, "nothing was charged");
}

/// Returns a check that is right except for its length.
fn large() -> String {
    format!("{}{}", user("ada"), " ".repeat(4 << 20))
}

#[test]
fn a_large_body_is_413_for_a_client_that_sends_all_of_it_first() {
    let server = Server::with(HUNDRED);
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let large = large();
    let url = format!("http://{}/v1/check", server.address);
    for what in ["Content-Length", "chunked"] {
        let post = agent.post(&url).content_type("application/json");
        let answer = match what {
            "chunked" => post.send(ureq::SendBody::from_reader(&mut io::Cursor::new(&large))),
            _ => post.send(&large),
        };
        let mut answer = answer.unwrap_or_else(|error| panic!("{what}: no answer: {error}"));
        assert_eq!(answer.status(), 413, "{what}");
        let body: Value = answer.body_mut().read_json().expect("JSON");
        assert_eq!(body["code"], "too_large", "{what}");
    }
    assert_eq!(server.remaining("ada"), 100, "nothing was charged");
}

#[test]
fn a_large_body_is_413_for_a_client_that_reads_early() {
    let server = Server::with(HUNDRED);
    // The client announces a gigabyte, and sends nothing of it.
    let mut connection = server.connect();
    let answer = connection.send("POST /v1/check HTTP/1.1\r\nHost: tidegate\r\nContent-Length: 1073741824\r\n\r\n");
    expect(&answer, 413, "too_large", "", "1048576 bytes", "announced");
    assert_eq!(answer.header("connection"), Some("close"));

    let mut connection = server.connect();
    let answer = send_chunked(&mut connection, large().as_bytes());
    expect(&answer, 413, "too_large", "", "1048576 bytes", "chunked");
    assert_eq!(server.remaining("ada"), 100, "nothing was charged");
}

#[test]
fn a_body_of_exactly_the_bound_is_read() {
    let server = Server::with(HUNDRED);
    let mut body = user("ada");
    body.push_str(&" ".repeat((1 << 20) - body.len()));
    assert_eq!(server.check(&body).json()["remaining"], 99);
    assert_eq!(send_chunked(&mut server.connect(), body.as_bytes()).json()["remaining"], 98);
    body.push(' ');
    assert_eq!(server.check(&body).status, 413);
    assert_eq!(send_chunked(&mut server.connect(), body.as_bytes()).status, 413);
}

#[test]
fn malformed_chunks_are_refused() {
    let server = Server::with(HUNDRED);
    let mut connection = server.connect();
    let answer = connection
        .send("POST /v1/check HTTP/1.1\r\nHost: tidegate\r\nTransfer-Encoding: chunked\r\n\r\nfive\r\n{}\r\n");
    assert_eq!(answer.status, 400);
    assert_eq!(server.remaining("ada"), 100, "nothing was charged");
}

fn send_chunked(connection: &mut Connection, body: &[u8]) -> HttpReply {
    connection.write("POST /v1/check HTTP/1.1\r\nHost: tidegate\r\nTransfer-Encoding: chunked\r\n\r\n");
    for chunk in body.chunks(60_000) {
        let mut head = String::new();
        write!(head, "{:x}\r\n", chunk.len()).expect("a string takes it");
        connection.write([head.as_bytes(), chunk, b"\r\n"].concat());
    }
    connection.send("0\r\n\r\n")
}

fn expect(answer: &HttpReply, status: u16, code: &str, pointer: &str, says: &str, what: &str) {
    let problem = answer.json();
    assert_eq!(
        (answer.status, problem["code"].as_str(), problem["errors"][0]["pointer"].as_str().unwrap_or_default()),
        (status, Some(code), pointer),
        "{what}: {problem}"
    );
    let is_of_no_field =
        ["bad_json", "bad_field", "unsupported_media_type", "unknown_host", "cross_origin"].contains(&code);
    assert_eq!(problem.get("errors").is_some(), !pointer.is_empty() || is_of_no_field, "{what}: {problem}");
    assert_eq!((&problem["type"], &problem["status"]), (&json!("about:blank"), &json!(status)), "{what}");
    assert!(problem["title"].as_str().is_some_and(|title| !title.is_empty()), "{what}: {problem}");
    assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains(says)), "{what}: {problem}");
    assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{what}");
}
