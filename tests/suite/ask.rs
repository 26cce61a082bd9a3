//! `tidegate check` against a real server, and against addresses without one.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::Arc,
    thread,
};

use tidegate::{Engine, Snapshot, formats::Format};
use tidegate_net::tls::{Tls, TlsFiles};
use tidegate_service::{
    Decider, ListenerSettings, Listeners, Tokens,
    http::{Authorize, Http},
};

use tidegate_testkit::{certificate::Authority, port::ReservedPort};

use crate::support::{Run, command, tidegate};

const POLICY: &str = r#"
    [domains.default]
    defaults = { user = "free" }
    [[domains.default.tiers]]
    id = "free"
    limits = [{ id = "day", algorithm = "token_bucket", limit = 100, period = "1d" }]
    [domains.shop]
    defaults = { user = "free" }
    tier_hint = true
    [[domains.shop.tiers]]
    id = "free"
    limits = [{ id = "day", algorithm = "token_bucket", limit = 100, period = "1d" }]
    [[domains.shop.tiers]]
    id = "pro"
    limits = [{ id = "day", algorithm = "token_bucket", limit = 500, period = "1d" }]
    [[domains.shop.rules]]
    id = "search"
    endpoint = "/search"
    method = "GET"
    per = "ip"
    limits = [{ id = "search", algorithm = "token_bucket", limit = 5, period = "1d" }]
"#;

/// A server that lasts as long as the tests.
fn server() -> String {
    server_with(ListenerSettings::default())
}

fn server_with(settings: ListenerSettings) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("bound");
    let engine = Arc::new(Engine::with_max_keys(1_000));
    engine.publish(Snapshot::parse(POLICY, Format::Toml).expect("a right policy")).expect("room for its limits");
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let decider = Arc::new(Decider::new(engine).expect("random numbers"));
        let http = Http { listener, authorize: Authorize::default() };
        runtime.block_on(async { Listeners::new(decider, settings, http).serve().expect("a server").await })
    });
    url(address)
}

/// Starts a server that is not Tidegate, and sends `says` to its first client. Returns its address.
fn stranger(says: &'static str) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("bound");
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client connects");
        let _ = stream.read(&mut [0; 4_096]);
        stream.write_all(says.as_bytes()).expect("it is heard");
        // Until the other side hangs up.
        let _ = io::copy(&mut stream, &mut io::sink());
    });
    url(address)
}

fn url(address: SocketAddr) -> String {
    format!("http://{address}")
}

fn check<'a>(server: &'a str, arguments: impl IntoIterator<Item = &'a str>) -> Run {
    tidegate(["check", "--server", server].into_iter().chain(arguments))
}

#[test]
fn an_allowed_request_is_printed_in_one_line_and_charged() {
    let server = server();
    for told in [
        "allowed  default/tier:free/day  99 of 100 left, all back in 14m 24s\n",
        "allowed  default/tier:free/day  98 of 100 left, all back in 28m 48s\n",
    ] {
        let run = check(&server, ["user=ada"]);
        assert_eq!((run.stdout.as_str(), run.stderr.as_str(), run.status), (told, "", Some(0)));
    }
}

#[test]
fn the_first_token_of_a_file_that_may_check_is_sent() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tokens");
    let text = "reserves-alone-01 reserve\nmorning-star-0001 check domain=default\nevening-star-0002\n";
    std::fs::write(&file, text).expect("room for a file");
    let tokens = Tokens::open(file.clone()).expect("they are good");
    let server = server_with(ListenerSettings { tokens: Some(tokens), ..ListenerSettings::default() });
    let run = check(&server, ["user=ada"]);
    assert!(run.status == Some(2) && run.stderr.contains("this server asks for a token"), "{run:?}");
    let file = file.to_str().expect("text");
    assert_eq!(check(&server, ["user=ada", "--check-tokens", file]).status, Some(0));
    let of_shop = ["user=ada", "--domain", "shop", "--check-tokens", file];
    assert_eq!(check(&server, of_shop).status, Some(0), "the last of them may check there");
    let run = check(&server, ["user=ada", "--check-tokens", "nowhere"]);
    assert!(run.status == Some(2) && run.stderr.contains("--check-tokens: nowhere: "), "{run:?}");
}

#[test]
fn a_server_without_a_trusted_certificate_gets_no_request() {
    let folder = tempfile::tempdir().expect("a folder");
    let [certificate, key, ca] = ["cert.pem", "key.pem", "ca.pem"].map(|name| folder.path().join(name));
    let authority = Authority::new();
    authority.write(&certificate, &key);
    std::fs::write(&ca, &authority.pem).expect("room for a file");
    let tls = Tls::open(TlsFiles { certificate, key, clients: None }).expect("they are good");
    let server =
        server_with(ListenerSettings { tls: Some(tls), ..ListenerSettings::default() }).replace("http:", "https:");
    let ca = ca.to_str().expect("text");
    let run = check(&server, ["user=ada", "--ca", ca]);
    assert_eq!((run.stderr.as_str(), run.status), ("", Some(0)));
    let run = check(&server, ["user=ada"]);
    assert!(run.status == Some(2) && run.stderr.contains("--ca names the authorities to trust"), "{run:?}");
}

#[test]
fn a_peek_is_not_charged() {
    let server = server();
    for _ in 0..2 {
        let run = check(&server, ["user=ada", "--cost", "30", "--peek"]);
        assert!(run.status == Some(0) && run.stdout.contains(" 70 of 100 left"), "{run:?}");
    }
    let run = check(&server, ["user=ada", "--cost", "0", "--peek"]);
    assert!(run.status == Some(0) && run.stdout.contains(" 100 of 100 left"), "{run:?}");
}

#[test]
fn a_denied_request_ends_with_status_1() {
    let server = server();
    assert_eq!(check(&server, ["user=ada", "--cost", "100"]).status, Some(0));
    let run = check(&server, ["user=ada"]);
    assert_eq!(run.status, Some(1), "{run:?}");
    assert!(run.stdout.starts_with("denied  default/tier:free/day  0 of 100 left, retry in 14m 24s"), "{run:?}");
    let run = check(&server, ["user=ada", "--cost", "101"]);
    assert_eq!(run.status, Some(1), "{run:?}");
    assert_eq!(run.stdout, "denied  default/tier:free/day  0 of 100 left, this will never be allowed\n");
}

#[test]
fn every_part_of_the_request_reaches_the_server() {
    let server = server();
    for (arguments, told) in [
        (&["ip=192.0.2.7"][..], "allowed  no limit applies\n"),
        (&["user=a=b", "--domain", "shop"], "allowed  shop/tier:free/day  99 of 100 left"),
        (&["user=eve", "--domain", "shop", "--tier", "pro"], "allowed  shop/tier:pro/day  499 of 500 left"),
        (
            &[
                "user=eve",
                "ip=192.0.2.7",
                "--domain",
                "shop",
                "--endpoint",
                "/search",
                "--method",
                "GET",
                "--cost",
                "2",
            ],
            "allowed  shop/rule:search/search  3 of 5 left",
        ),
    ] {
        let run = check(&server, arguments.iter().copied());
        assert!(run.stdout.starts_with(told), "{arguments:?}: {run:?}");
    }
}

#[test]
fn the_server_and_the_output_format_may_come_from_the_environment() {
    let output = command()
        .args(["check", "user=ada"])
        .env("TIDEGATE_SERVER", server())
        .env("TIDEGATE_OUTPUT", "json")
        .output()
        .expect("the binary runs");
    assert!(output.status.success(), "{output:?}");
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((answer["allowed"].as_bool(), answer["remaining"].as_u64()), (Some(true), Some(99)));
    assert!(output.stdout.ends_with(b"}\n"));
}

#[test]
fn without_a_decision_the_status_is_2_and_the_reason_is_printed() {
    let server = server();
    let port = ReservedPort::new();
    let unreachable = url(port.address());
    let page = stranger("HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n<html></html>");
    let missing = stranger("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    let elsewhere = stranger("HTTP/1.1 302 Found\r\nLocation: http://example.com/\r\nContent-Length: 0\r\n\r\n");
    let mail = stranger("220 mail.example.com ESMTP\r\n");
    let silent = stranger("");
    for (server, arguments, says) in [
        (&server, &["User=ada"][..], "`User` is not a kind"),
        (&server, &["user="], "value: that of `user` has 0 bytes"),
        (&server, &["user=ada", "user=eve"], "`user` is given twice"),
        (&server, &["ada"], "invalid value 'ada'"),
        (&server, &["=ada"], "user=ada"),
        (&server, &[], "<KIND=VALUE>"),
        (&server, &["user=ada", "--cost", "0"], "cost: 0 fits only with `peek`"),
        (&server, &["user=ada", "--timeout", "5"], "has no unit"),
        (&unreachable, &["user=ada"], "is `tidegate serve` running? --server names its URL"),
        (&page, &["user=ada"], "not a Tidegate server"),
        (&missing, &["user=ada"], "has the status 404"),
        (&elsewhere, &["user=ada"], "has the status 302"),
        (&mail, &["user=ada"], "not a Tidegate server"),
        (&silent, &["user=ada", "--timeout", "100ms"], "--timeout waits longer"),
        (&"ftp://localhost".to_owned(), &["user=ada"], "write http:// or https://"),
        (&"localhost:9080".to_owned(), &["user=ada"], "http://127.0.0.1:9080"),
    ] {
        let run = check(server, arguments.iter().copied());
        assert_eq!((run.status, run.stdout.as_str()), (Some(2), ""), "{arguments:?}: {run:?}");
        assert!(run.stderr.contains(says), "{arguments:?}: {run:?}");
    }
    let run = check(&unreachable, ["user=ada"]);
    assert!(run.stderr.contains(&unreachable), "it names the address: {run:?}");
}
