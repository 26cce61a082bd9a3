//! The recipe of docs/envoy.md in a real Envoy before a real server.

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
};

use tempfile::TempDir;
use tidegate_testkit::{
    PATIENCE,
    port::ReservedPort,
    proxy::{ProxyProcess, envoy},
    wait_until,
};

use crate::support::{
    proxy::{Proxy, ProxyResponse, recipe, serve_hello, signal, tries},
    server::Served,
    session::Session,
};

/// The time for which Envoy waits for a decision, in the recipe.
const TIMEOUT: &str = "timeout: 0.02s";
const DOCUMENT: &str = "docs/envoy.md";

/// Starts a server with a policy, whose gRPC API is at `grpc`; a second server in the same folder continues with its data.
fn serve(folder: &Path, policy: &str, grpc: SocketAddr) -> Served {
    let file = folder.join("policy.toml");
    fs::write(&file, policy).expect("it is ours");
    let serve = ["serve", "--admin", "127.0.0.1:0", "--http", "127.0.0.1:0", "--grpc", &grpc.to_string()];
    Served::run(&serve, &folder.join("data"), &["--policy", file.to_str().expect("text")])
}

/// Starts Envoy with the configuration of the document, after `edit` changed it.
fn before(grpc: SocketAddr, edit: impl FnOnce(String) -> String) -> Proxy {
    let folder = TempDir::new().expect("a folder");
    let own = ReservedPort::new();
    let port = |address: SocketAddr| format!("port_value: {} }}", address.port());
    let recipe = recipe(
        DOCUMENT,
        "yaml",
        &[
            ("port_value: 10000 }", &port(own.address())),
            ("port_value: 3000 }", &port(serve_hello())),
            ("port_value: 9090 }", &port(grpc)),
        ],
    );
    let file = folder.path().join("envoy.yaml");
    fs::write(&file, edit(recipe)).expect("it is ours");
    Proxy(ProxyProcess::start(envoy(&file), own, folder))
}

fn is_decided(answer: &ProxyResponse) -> bool {
    answer.header("x-ratelimit-limit").is_some()
}

fn number(answer: &ProxyResponse, name: &str) -> u64 {
    answer.header(name).expect(name).parse().expect("a number")
}

/// Sends requests until a response has a decision: Envoy may have given up waiting for the others.
fn decided(envoy: &Proxy, head: &str) -> ProxyResponse {
    let head = format!("{head} HTTP/1.1\r\nContent-Length: 0\r\n");
    let found = tries().map(|()| envoy.ask(&head)).find(|answer| is_decided(answer) || answer.is_denied());
    found.expect("some are")
}

#[test]
fn envoy_denies_after_the_limit_sends_its_headers_and_takes_a_publish_during_traffic() {
    let folder = TempDir::new().expect("a folder");
    let port = ReservedPort::new();
    let grpc = port.address();
    let served = serve(folder.path(), &recipe(DOCUMENT, "toml", &[]), grpc);
    let envoy = before(grpc, |recipe| recipe);

    let allowed = envoy.until("a decision", is_decided);
    let limit = "100, 100;w=86400;name=\"default/tier:free/day\"";
    assert_eq!((allowed.status(), allowed.header("x-ratelimit-limit")), ("200", Some(limit)));
    assert!(number(&allowed, "x-ratelimit-remaining") < 100);
    assert!((1..=86_400).contains(&number(&allowed, "x-ratelimit-reset")));
    assert!(allowed.0.ends_with("hello") && allowed.header("retry-after").is_none());

    let denied = envoy.until("a denial", ProxyResponse::is_denied);
    assert_eq!((denied.header("x-ratelimit-limit"), denied.header("x-ratelimit-remaining")), (Some(limit), Some("0")));
    assert_eq!(denied.header("x-envoy-ratelimited"), Some("true"));
    // Up to a tenth more than the rest of the day.
    assert!((1..=95_040).contains(&number(&denied, "retry-after")));
    assert!(!denied.0.ends_with("hello"));
    envoy.assert_that_headers_do_not_help("GET /", &["X-Forwarded-For: 192.0.2.7", "Forwarded: for=192.0.2.7"]);

    let is_over = AtomicBool::new(false);
    let (begun, has_begun) = mpsc::channel();
    thread::scope(|scope| {
        let traffic = scope.spawn(|| {
            let (mut answers, mut after) = (Vec::new(), 0);
            while after < 20 {
                after += u32::from(is_over.load(Ordering::Relaxed));
                let answer = envoy.get("/");
                if is_decided(&answer) {
                    // It may be told often, and is heard once.
                    let _ = begun.send(());
                }
                answers.push(answer);
            }
            answers
        });
        has_begun.recv_timeout(PATIENCE).expect("some are decided before");
        let ana = Session::of_first_administrator(&served);
        let etag = ana.get(&served, "/tiers/free")["etag"].as_str().expect("a tag").to_owned();
        let version = ana.get(&served, "/policy")["version"].as_u64().expect("a version");
        assert_eq!(ana.publish(&served.admin, version, &etag, 100_000), Some(version + 1));
        let is_raised = |answer: &ProxyResponse| {
            answer.header("x-ratelimit-limit") == Some("100000, 100000;w=60;name=\"default/tier:free/minute\"")
        };
        envoy.until("the limit that was published", is_raised);
        is_over.store(true, Ordering::Relaxed);
        let answers = traffic.join().expect("it ends");
        assert!(answers.iter().all(|answer| matches!(answer.status(), "200" | "429")));
        // By the old limit, which is used up, and from some answer on by the new one; few go by without a decision.
        let decided: Vec<bool> = answers.iter().filter(|answer| is_decided(answer)).map(is_raised).collect();
        assert!(decided.is_sorted() && decided.first() == Some(&false) && decided.last() == Some(&true), "{decided:?}");
        assert!(answers.iter().filter(|it| is_decided(it)).all(|it| it.is_denied() != is_raised(it)));
        assert!(2 * decided.len() > answers.len(), "{} of {} were decided", decided.len(), answers.len());
    });
}

#[test]
fn envoy_lets_requests_pass_while_the_server_is_down_and_enforces_again() {
    let folder = TempDir::new().expect("a folder");
    let port = ReservedPort::new();
    let grpc = port.address();
    let policy = recipe(DOCUMENT, "toml", &[]);
    let mut served = serve(folder.path(), &policy, grpc);
    let envoy = before(grpc, |recipe| recipe);
    envoy.until("a denial", ProxyResponse::is_denied);

    // It hangs: Envoy does not wait for it.
    signal(&served, "-STOP");
    let passed = envoy.until("it passes, once the last thread has stopped", |answer| answer.status() == "200");
    assert!(passed.0.ends_with("hello") && !is_decided(&passed));
    signal(&served, "-CONT");
    envoy.until("a denial, once it goes on", ProxyResponse::is_denied);

    served.kill();
    for _ in 0..5 {
        let passed = envoy.get("/");
        assert_eq!((passed.status(), is_decided(&passed)), ("200", false));
    }
    let _served = serve(folder.path(), &policy, grpc);
    // It begins anew, and Envoy may wait a while before it connects again.
    wait_until("it enforces again", || is_decided(&envoy.get("/")));
    envoy.until("a denial, once it is back", ProxyResponse::is_denied);
}

#[test]
fn a_rule_for_everyone_denies_its_path_and_charges_nothing_else() {
    let folder = TempDir::new().expect("a folder");
    let port = ReservedPort::new();
    let grpc = port.address();
    let _served = serve(folder.path(), &recipe(DOCUMENT, "toml", &[]), grpc);
    let envoy = before(grpc, |recipe| recipe);

    let search = decided(&envoy, "POST /search?q=1");
    // All limits are told, the tightest first.
    let limits = search.header("x-ratelimit-limit").expect("it was decided");
    assert!(
        limits.starts_with("5, 100;w=86400;") && limits.contains("name=\"default/rule:search/search\""),
        "{limits}"
    );
    assert!(tries().any(|()| envoy.ask("POST /search?q=2 HTTP/1.1\r\nContent-Length: 0\r\n").is_denied()));
    let before = number(&decided(&envoy, "GET /search"), "x-ratelimit-remaining");
    for _ in 0..10 {
        let _ = decided(&envoy, "POST /x/../search");
    }
    let after = decided(&envoy, "GET /search");
    assert_eq!(after.status(), "200", "by another method");
    // Those that Envoy did not wait for are charged too.
    let after = number(&after, "x-ratelimit-remaining");
    assert!(after < before && before - after <= 5, "ten denials charged nothing: {before}, {after}");
}

/// A policy that gives each client three requests a day, `/search` three for all clients, and all clients together many in ten
/// seconds.
const FEW: &str = r#"
    [domains.default]
    defaults = { user = "few" }
    headers = "none"
    [[domains.default.tiers]]
    id = "few"
    limits = [{ id = "day", algorithm = "fixed_window", limit = 3, period = "1d" }]
    [[domains.default.rules]]
    id = "all"
    endpoint = "*"
    per = "everyone"
    limits = [{ id = "ten", algorithm = "token_bucket", limit = 10_000, period = "10s" }]
    [[domains.default.rules]]
    id = "search"
    endpoint = "/search"
    per = "everyone"
    limits = [
        { id = "ten", algorithm = "token_bucket", limit = 10_000, period = "10s" },
        { id = "day", algorithm = "fixed_window", limit = 3, period = "1d" },
    ]
"#;

#[test]
fn no_header_of_an_end_user_disables_a_limit() {
    let folder = TempDir::new().expect("a folder");
    let port = ReservedPort::new();
    let grpc = port.address();
    let _served = serve(folder.path(), FEW, grpc);
    let envoy = before(grpc, |recipe| {
        let (address, user) = (
            "masked_remote_address: { v6_prefix_mask_len: 64 }",
            "request_headers: { header_name: x-user-id, descriptor_key: user }",
        );
        assert!(recipe.contains(address) && recipe.contains(TIMEOUT));
        // A decision that Envoy does not wait for is charged too, and the limit is three.
        recipe.replace(address, user).replace(TIMEOUT, "timeout: 30s")
    });
    for user in [&b"ada"[..], b"\xff", b"\xfe\xff"] {
        let mut answers = tries().map(|()| envoy.ask([b"GET / HTTP/1.1\r\nX-User-Id: ", user, b"\r\n"].concat()));
        let decided = answers.find(is_decided).expect("some are");
        // Windows that are no unit of Envoy's have their seconds.
        let limits = "3, 3;w=86400;name=\"default/tier:few/day\", 10000;w=10;name=\"default/rule:all/ten\"";
        assert_eq!((decided.status(), decided.header("x-ratelimit-limit")), ("200", Some(limits)));
        assert!(answers.any(|answer| answer.is_denied()), "{user:?}");
    }
    let path = format!("GET {}search?{} HTTP/1.1\r\n", "/".repeat(9_000), "q".repeat(9_000));
    let mut answers = tries().map(|()| envoy.ask(&path));
    assert!(answers.any(|answer| answer.is_denied()), "by its rule");
    assert_eq!(envoy.get("/").status(), "200");
}

#[test]
fn envoy_forwards_our_headers_and_denies_without_the_server_if_configured() {
    let folder = TempDir::new().expect("a folder");
    let port = ReservedPort::new();
    let grpc = port.address();
    let policy = recipe(DOCUMENT, "toml", &[]).replace("headers = \"none\"", "headers = \"x-ratelimit\"");
    let mut served = serve(folder.path(), &policy, grpc);
    let envoy = before(grpc, |recipe| {
        recipe.replace("enable_x_ratelimit_headers: DRAFT_VERSION_03", "failure_mode_deny: true")
    });
    let allowed = envoy.until("a decision", is_decided);
    assert_eq!((allowed.status(), allowed.header("x-ratelimit-limit")), ("200", Some("100")));
    let denied = envoy.until("a denial", |answer| answer.is_denied() && is_decided(answer));
    assert_eq!(denied.header("x-ratelimit-remaining"), Some("0"));
    assert!(number(&denied, "x-ratelimit-reset") > 1_700_000_000 && number(&denied, "retry-after") > 0);
    served.kill();
    assert_eq!(envoy.get("/").status(), "500");
}
