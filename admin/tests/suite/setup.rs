//! The first administrator, signing in and signing out.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    time::Duration,
};

use serde_json::json;
use tidegate_testkit::wait_until;

use crate::{
    home::Folder,
    provider::{Browser, Provider},
    support::{Client, PASSWORD, Server, data_of, first_start, fresh},
};

#[test]
fn the_link_makes_one_administrator_once() {
    let (_folder, server) = first_start();
    let stranger = server.stranger();
    let body = |code: &str, name: &str, password: &str| json!({ "code": code, "name": name, "password": password });
    // What is wrong does not use the link up.
    let wrong_code = stranger.post("/api/v1/setup", &body("guess", "ana", PASSWORD));
    assert_eq!((wrong_code.status, &wrong_code.json()["code"]), (404, &json!("not_found")));
    let wrong_fields = stranger.post("/api/v1/setup", &body(server.code(), "Ana", "short"));
    assert_eq!((wrong_fields.status, wrong_fields.pointers()), (422, vec!["/name".to_owned(), "/password".to_owned()]));
    let made = stranger.post("/api/v1/setup", &body(server.code(), "ana", PASSWORD));
    assert_eq!(made.status, 201, "{made:?}");
    assert_eq!((&made.json()["name"], &made.json()["role"]), (&json!("ana"), &json!("admin")));
    assert_eq!(made.json()["environment"], "test");
    let again = stranger.post("/api/v1/setup", &body(server.code(), "eve", PASSWORD));
    assert_eq!(again.status, 404);
    assert_eq!(stranger.get("/api/v1/setup").status, 404);
}

#[test]
fn a_restart_prints_a_new_link_while_there_is_no_administrator() {
    let (folder, mut server) = first_start();
    let first = server.code().to_owned();
    server.stop();
    let mut server = Server::start(&data_of(&folder));
    assert_ne!(server.code(), first);
    let old = server.stranger().post("/api/v1/setup", &json!({ "code": first, "name": "eve", "password": PASSWORD }));
    assert_eq!(old.status, 404, "the old link is dead");
    let ana = server.administrator();
    server.stop();
    let server = Server::start(&data_of(&folder));
    assert_eq!(server.setup_path, None);
    // The session outlives the restart.
    let mut later = server.stranger();
    later.token = ana.token;
    assert_eq!(later.get("/api/v1/session").json()["name"], "ana");
}

#[test]
fn signing_in_takes_the_right_name_and_password() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let stranger = server.stranger();
    for (name, password) in [("ana", "wrong horse battery"), ("eve", PASSWORD), ("", ""), ("ana", &"x".repeat(5_000))] {
        let answer = stranger.post("/api/v1/session", &json!({ "name": name, "password": password }));
        assert_eq!((answer.status, &answer.json()["code"]), (401, &json!("wrong_credentials")), "{name}");
        assert_eq!(answer.header("set-cookie"), "");
    }
    // How many tries are left is told of whomever, whether he is there or not.
    let left = |name: &str| {
        let answer = stranger.post("/api/v1/session", &json!({ "name": name, "password": "wrong" }));
        answer.json()["tries_left"].as_u64().expect("a number")
    };
    assert_eq!([left("ben"), left("nobody")], [9, 9]);
    // One comes back every six seconds.
    assert!((7..=9).contains(&left("ben")) && (1..=9).contains(&left("ana")));
    let answer = stranger.post("/api/v1/session", &json!({ "name": "ana", "password": PASSWORD }));
    assert_eq!(answer.status, 200);
    let cookie = answer.header("set-cookie");
    for part in ["tidegate_session_", "HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    assert!(!answer.text.contains(PASSWORD));
    // Signing out ends this session, and no other.
    let other = server.sign_in();
    assert_eq!(other.send("DELETE", "/api/v1/session", &[], None).status, 204);
    assert_eq!(other.get("/api/v1/session").status, 401);
    assert_eq!(ana.get("/api/v1/session").status, 200);
}

#[test]
fn cookies_go_over_tls_alone_but_on_loopback() {
    let provider = Provider::start();
    for (address, url, is_secure) in [
        ("127.0.0.1:0", None, false),
        ("0.0.0.0:0", Some("http://127.0.0.1:8080"), false),
        ("127.0.0.1:0", Some("http://localhost:8080"), false),
        ("127.0.0.1:0", Some("http://[::1]:8080"), false),
        ("127.0.0.1:0", Some("http://limits.example"), true),
        ("127.0.0.1:0", Some("http://127.0.0.1.example"), true),
        ("127.0.0.1:0", Some("https://limits.example"), true),
        ("127.0.0.1:0", Some("https://127.0.0.1:8443"), true),
        ("0.0.0.0:0", None, true),
    ] {
        let listener = TcpListener::bind(address).expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let folder = Folder::new();
        let server = Server::start_with(folder.home(), |settings| {
            settings.listener = listener;
            settings.url = url.map(str::to_owned);
            // Without an address that browsers come back to it has no provider.
            settings.access.oidc = url.map(|_| provider.settings());
        });
        let stranger = Client { url: format!("http://127.0.0.1:{port}"), ..Browser::of(&server).client };
        let body = json!({ "code": server.code(), "name": "ana", "password": PASSWORD });
        let session = stranger.post("/api/v1/setup", &body);
        let mut answers = vec![session];
        answers.extend(url.map(|_| stranger.get("/api/v1/session/oidc")));
        let is_https = url.is_some_and(|url| url.starts_with("https:"));
        let names = [format!("tidegate_session_{port}"), format!("tidegate_browser_{port}_")];
        let cookies = answers.iter().flat_map(|answer| answer.headers.get_all("set-cookie"));
        let cookies: Vec<&str> = cookies.map(|cookie| cookie.to_str().expect("text")).collect();
        assert_eq!(cookies.len(), if url.is_some() { 3 } else { 2 }, "{cookies:?}");
        for cookie in cookies {
            assert!(names.iter().any(|name| cookie.contains(name.as_str())), "{cookie}");
            assert_eq!(cookie.contains("; Secure"), is_secure, "{url:?}: {cookie}");
            assert_eq!(cookie.starts_with("__Host-"), is_https, "{url:?}: {cookie}");
            assert!(cookie.contains("; Path=/;") && !cookie.contains("Domain"), "{cookie}");
        }
    }
}

#[test]
fn bodies_that_cannot_be_read_are_refused_with_the_field() {
    let (_folder, server) = fresh();
    let stranger = server.stranger();
    let send = |body: &[u8]| stranger.send("POST", "/api/v1/session", &[], Some(body.to_vec()));
    for (body, pointer) in [
        (b"".as_slice(), ""),
        (b"{", ""),
        (b"[]", ""),
        (br#"["ana", "x"]"#, ""),
        (br#"{"name": 1, "password": "x"}"#, "/name"),
        (br#"{"name": "ana", "password": "x", "remember": true}"#, "/remember"),
        (br#"{"name": "ana"}"#, ""),
        (br#"{"name": "ana", "password": "x"} x"#, ""),
        (b"{\"name\": \"\xff\", \"password\": \"x\"}", ""),
    ] {
        let answer = send(body);
        let text = String::from_utf8_lossy(body);
        assert_eq!((answer.status, &answer.json()["code"]), (400, &json!("bad_json")), "{text}: {answer:?}");
        assert_eq!(answer.pointers(), [pointer], "{text}: {answer:?}");
    }
}

#[test]
fn tries_are_limited_and_say_when_to_come_again() {
    let (_folder, server) = fresh();
    server.administrator();
    let stranger = server.stranger();
    let try_with = |name: &str| stranger.post("/api/v1/session", &json!({ "name": name, "password": "wrong" }));
    // Ten at once: the administrator was made by the link, which is no try of a name. One comes back every six seconds.
    let tried: Vec<_> = (0..30).map(|_| try_with("ana")).take_while(|answer| answer.status == 401).collect();
    assert!((10..20).contains(&tried.len()), "{}", tried.len());
    let limited = try_with("ana");
    assert_eq!((limited.status, &limited.json()["code"]), (429, &json!("too_many")));
    assert!((1..=6).contains(&limited.header("retry-after").parse::<u64>().expect("seconds")), "{limited:?}");
    assert_eq!(try_with("ben").status, 401, "another name has its own");
}

/// A crowd that tries the name of the first administrator does not keep the link from making them.
#[test]
fn the_link_is_no_try_of_its_name() {
    let (_folder, server) = fresh();
    let stranger = server.stranger();
    let attempt = || stranger.post("/api/v1/session", &json!({ "name": "ana", "password": "wrong" })).status;
    assert!((0..40).any(|_| attempt() == 429));
    server.administrator();
}

/// Behind a proxy everybody has his own address, where the proxy is trusted to say it.
#[test]
fn a_trusted_proxy_says_who_asks() {
    let folder = Folder::new();
    let server = Server::start_with(folder.home(), |settings| {
        settings.access.trusted_proxies = vec!["127.0.0.0/8".parse().expect("a network")];
    });
    let ana = server.administrator();
    let try_from = |server: &Server, forwarded: &str, password: &str| {
        let body = json!({ "name": "ana", "password": password }).to_string().into_bytes();
        let headers = [("x-forwarded-for", forwarded)];
        server.stranger().send("POST", "/api/v1/session", &headers, Some(body)).status
    };
    // What stands to the left he has made up; one try comes back every six seconds.
    let made_up =
        |n: u32| format!("203.0.113.{n}, 198.51.100.7{}", if n.is_multiple_of(2) { ", 127.0.0.2" } else { "" });
    assert!((0..40).any(|n| try_from(&server, &made_up(n), "wrong") == 429));
    assert_eq!(try_from(&server, "198.51.100.8", PASSWORD), 200, "another address");
    let sessions = ana.get("/api/v1/me/sessions").json();
    let addresses: Vec<_> = sessions["items"].as_array().expect("items").iter().map(|item| &item["address"]).collect();
    assert!(addresses.contains(&&json!("198.51.100.8")), "{sessions}");
    // The lines are written beside the answers.
    wait_until("the lines are written", || {
        ana.get("/api/v1/audit?q=198.51.100.7").json()["items"].as_array().expect("items").len() >= 11
    });
    assert!(!ana.get("/api/v1/audit?limit=500").text.contains("203.0.113"));
    // Nobody else is asked.
    let (_folder, server) = fresh();
    let ana = server.administrator();
    assert_eq!(try_from(&server, "198.51.100.8", PASSWORD), 200);
    assert!(!ana.get("/api/v1/me/sessions").text.contains("198.51.100.8"));
}

/// Whoever has a token that is none asks for another; whoever has a good one comes in from the same address.
#[test]
fn secrets_that_are_none_are_limited_by_address() {
    let (_folder, server) = fresh();
    let ana = server.administrator();
    let made_up = Client { bearer: "tg_made-up".to_owned(), ..server.stranger() };
    // Answers are not looked at, so that tries come sooner than the twenty a second that come back.
    let is_limited = |client: &Client, name: &str, value: &str| {
        let me = client.agent.get(format!("{}/api/v1/me", server.url)).header(name, value);
        let status = me.call().expect("an answer").status().as_u16();
        assert!(matches!(status, 401 | 429), "{status}");
        status == 429
    };
    wait_until("a limit", || (0..100).any(|_| is_limited(&made_up, "authorization", "Bearer tg_made-up")));
    let limited =
        tidegate_testkit::wait_for("a limit", || Some(made_up.get("/api/v1/me")).filter(|answer| answer.status != 401));
    assert_eq!((limited.status, &limited.json()["code"]), (429, &json!("too_many")));
    // Those of sessions are counted with them.
    let session = Client { token: "x".repeat(43), ..server.stranger() };
    let cookie = session.cookie();
    wait_until("a limit", || (0..100).any(|_| is_limited(&session, "cookie", &cookie)));
    assert_eq!((ana.get("/api/v1/me").status, server.sign_in().get("/api/v1/me").status), (200, 200));
}

/// A viewer may have been added on the machine, with the name that the link is used for.
#[test]
fn a_name_that_is_taken_does_not_use_the_link_up() {
    let (folder, server) = fresh();
    folder
        .home()
        .execute("INSERT INTO users (name, role, password_hash, created_at) VALUES ('ben', 'viewer', 'no hash', 1)");
    let make = |name: &str| {
        let body = json!({ "code": server.code(), "name": name, "password": PASSWORD });
        server.stranger().post("/api/v1/setup", &body)
    };
    let taken = make("ben");
    assert_eq!((taken.status, taken.pointers()), (422, vec!["/name".to_owned()]), "{taken:?}");
    assert_eq!(server.stranger().get("/api/v1/setup").status, 200);
    assert_eq!((make("ana").status, make("eve").status), (201, 404));
}

#[test]
fn a_body_that_is_no_json_or_does_not_come_is_refused() {
    let folder = Folder::new();
    let server = Server::start_with(folder.home(), |settings| {
        settings.periods.body_timeout = Duration::from_millis(500);
    });
    let address = server.url.strip_prefix("http://").expect("a URL");
    let answer = |head: &str| {
        let mut stream = TcpStream::connect(address).expect("it listens");
        write!(stream, "POST /api/v1/session HTTP/1.1\r\nhost: x\r\n{head}").expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it ends");
        answer
    };
    let body = r#"{"name": "ana", "password": "x"}"#;
    for content_type in ["", "content-type: text/plain\r\n", "content-type: application/x-www-form-urlencoded\r\n"] {
        let head = format!("{content_type}connection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        assert!(answer(&head).starts_with("HTTP/1.1 415 "), "{content_type}");
    }
    let slow = answer("content-type: application/json\r\ncontent-length: 100\r\n\r\n{");
    assert!(slow.starts_with("HTTP/1.1 408 ") && slow.contains("too_slow"), "{slow}");
}
