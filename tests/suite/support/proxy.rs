//! Tests of a real proxy before a real service, with the configuration of a document.

use std::{
    fs,
    io::{self, BufRead, BufReader, Read, Write},
    iter,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;
use tidegate_testkit::{PATIENCE, proxy::ProxyProcess};

use super::server::Served;

/// A policy that gives each client 100 requests a day and denies one path to all. Decisions that come too late for the proxy are
/// charged too, so the limit is higher than the number of decisions that a busy machine misses.
const POLICY: &str = r#"
    [domains.default]
    defaults = { ip = "free" }
    [[domains.default.tiers]]
    id = "free"
    limits = [{ id = "day", algorithm = "fixed_window", limit = 100, period = "1d" }]
    [[domains.default.rules]]
    id = "search"
    endpoint = "/search"
    method = "POST"
    per = "everyone"
    limits = [{ id = "search", algorithm = "fixed_window", limit = 0, period = "1d" }]
"#;

/// Returns attempts for a minute: on a busy machine a proxy may give up before the decision comes.
#[expect(clippy::disallowed_methods, reason = "the limit of a wait is real time")]
pub(crate) fn tries() -> impl Iterator<Item = ()> {
    let began = Instant::now();
    iter::from_fn(move || (began.elapsed() < PATIENCE).then_some(()))
}

/// A proxy before a service that answers "hello", and 403 under `/forbidden`.
pub(crate) struct Proxy(pub(crate) ProxyProcess);

impl Proxy {
    pub(crate) fn ask(&self, head: impl AsRef<[u8]>) -> ProxyResponse {
        let mut stream = TcpStream::connect(self.0.address()).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        stream.write_all(head.as_ref()).expect("it reads");
        // The headers of a browser on a page of another site: the service decides about them, not the limiter.
        let browser = "Origin: https://elsewhere.example\r\nSec-Fetch-Site: cross-site\r\n";
        let rest = format!("Host: service\r\n{browser}Connection: close\r\n\r\n");
        stream.write_all(rest.as_bytes()).expect("it reads");
        let mut text = String::new();
        BufReader::new(stream).read_to_string(&mut text).expect("an answer");
        ProxyResponse(text)
    }

    /// Asserts that a request is denied with any of these forged headers.
    pub(crate) fn assert_that_headers_do_not_help(&self, request: &str, lies: &[&str]) {
        for lie in lies {
            // The proxy did not wait for the decision of a response without these headers.
            let answers = tries().map(|()| self.ask(format!("{request} HTTP/1.1\r\nContent-Length: 0\r\n{lie}\r\n")));
            let told: Vec<_> = answers.filter(|answer| answer.header("X-RateLimit-Limit").is_some()).take(5).collect();
            assert!(!told.is_empty(), "{lie}");
            assert!(told.iter().all(ProxyResponse::is_denied), "{lie}: {}", told[0].0);
        }
    }

    pub(crate) fn get(&self, path: &str) -> ProxyResponse {
        self.ask(format!("GET {path} HTTP/1.1\r\n"))
    }

    /// Sends requests until `is_it` holds for a response, and returns that response.
    pub(crate) fn until(&self, what: &str, is_it: impl Fn(&ProxyResponse) -> bool) -> ProxyResponse {
        let mut answers = tries().map(|()| self.get("/?page=1"));
        let found = answers.find(is_it);
        assert!(found.is_some(), "{what}: not within a minute");
        found.expect("it was found")
    }
}

/// The response of a proxy, as text.
pub(crate) struct ProxyResponse(pub(crate) String);

impl ProxyResponse {
    pub(crate) fn status(&self) -> &str {
        self.0.split(' ').nth(1).unwrap_or_default()
    }

    pub(crate) fn is_denied(&self) -> bool {
        self.status() == "429"
    }

    /// Returns a header. Proxies differ in the case of names.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let head = self.0.split("\r\n\r\n").next()?;
        let mut headers = head.lines().filter_map(|line| line.split_once(": "));
        headers.find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

/// Returns the example of a document in this language, with the addresses of a test.
pub(crate) fn recipe(document: &str, language: &str, addresses: &[(&str, &str)]) -> String {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join(document);
    let document = fs::read_to_string(document).expect("it is there");
    let (_, rest) = document.split_once(&format!("```{language}\n")).expect("it is there");
    let recipe = rest.split("```").next().expect("it ends").to_owned();
    addresses.iter().fold(recipe, |recipe, (shown, real)| {
        assert!(recipe.contains(shown), "{shown}");
        recipe.replace(shown, real)
    })
}

/// Starts the service behind the proxy, which repeats the rate limit headers that it gets. Returns its address.
pub(crate) fn serve_hello() -> SocketAddr {
    fn answer(stream: TcpStream) -> io::Result<()> {
        let mut reader = BufReader::new(stream);
        let mut bytes = Vec::new();
        // Clients may send bytes that are not text.
        let mut next = || {
            bytes.clear();
            reader.read_until(b'\n', &mut bytes)?;
            io::Result::Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        let mut line = next()?;
        let status = if line.contains(" /forbidden ") { "403 Forbidden" } else { "200 OK" };
        let mut body = String::new();
        while line.trim_end() != "" {
            line = next()?;
            if line.to_lowercase().starts_with("x-ratelimit") {
                body += &line;
            }
        }
        body += "hello";
        write!(
            reader.get_mut(),
            "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("bound");
    // The thread ends with the process.
    thread::spawn(move || listener.incoming().flatten().for_each(|stream| drop(answer(stream))));
    address
}

/// Starts a server with the policy, in this folder.
fn serve(folder: &Path) -> Served {
    serve_by(folder, POLICY)
}

pub(crate) fn serve_by(folder: &Path, text: &str) -> Served {
    let policy = folder.join("policy.toml");
    fs::write(&policy, text).expect("it is ours");
    Served::start_with(&folder.join("data"), &["--policy", policy.to_str().expect("text")])
}

/// Starts a server in this folder again, at this address.
fn serve_again(folder: &Path, address: &str) -> Served {
    let policy = folder.join("policy.toml");
    let serve = ["serve", "--admin", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--http", address];
    Served::run(&serve, &folder.join("data"), &["--policy", policy.to_str().expect("text")])
}

pub(crate) fn signal(served: &Served, signal: &str) {
    let sent = Command::new("kill").args([signal, &served.id().to_string()]).status().expect("kill is there");
    assert!(sent.success());
}

/// Tests the proxy that `before` starts before the service; `says` is in the body of its denials.
pub(crate) fn denies_and_lets_requests_pass_while_the_server_is_down(before: impl Fn(&str) -> Proxy, says: &str) {
    let folder = TempDir::new().expect("a folder");
    let mut served = serve(folder.path());
    let proxy = before(&served.checks);

    let allowed = proxy.until("a decision", |answer| answer.header("X-RateLimit-Limit").is_some());
    assert_eq!((allowed.status(), allowed.header("X-RateLimit-Limit")), ("200", Some("100")));
    assert!(allowed.header("X-RateLimit-Remaining").is_some() && allowed.header("X-RateLimit-Reset").is_some());
    assert!(allowed.0.ends_with("hello") && allowed.header("Retry-After").is_none());

    let denied = proxy.until("a denial", ProxyResponse::is_denied);
    let wait: u64 = denied.header("Retry-After").expect("a wait").parse().expect("seconds");
    // The wait is up to a tenth more than the rest of the day.
    assert!((1..=95_040).contains(&wait), "{wait}");
    assert_eq!((denied.header("X-RateLimit-Remaining"), denied.header("X-RateLimit-Limit")), (Some("0"), Some("100")));
    assert!(denied.0.contains(says), "{}", denied.0);

    proxy.assert_that_headers_do_not_help("GET /", &["X-Forwarded-For: 192.0.2.7", "Forwarded: for=192.0.2.7"]);

    // The server hangs: the proxy does not wait for it.
    signal(&served, "-STOP");
    proxy.until("it passes, once the last thread has stopped", |answer| answer.status() == "200");
    // A proxy without a timeout would wait for ever: the server is resumed only after this response.
    let passed = proxy.ask("POST / HTTP/1.1\r\nContent-Length: 0\r\n");
    assert_eq!((passed.status(), passed.header("X-RateLimit-Limit")), ("200", None));
    signal(&served, "-CONT");
    proxy.until("a denial, once it goes on", ProxyResponse::is_denied);

    served.kill();
    let passed = proxy.get("/");
    assert_eq!((passed.status(), passed.header("X-RateLimit-Limit")), ("200", None));
    // The server starts again at the same address.
    let address = served.checks.strip_prefix("http://").expect("a URL").to_owned();
    drop(served);
    let _served = serve_again(folder.path(), &address);
    proxy.until("a denial, once it is there again", ProxyResponse::is_denied);
}

/// A proxy answers within two seconds while the server hangs.
#[expect(clippy::disallowed_methods, reason = "the time until the request passes is measured")]
pub(crate) fn lets_requests_pass_within_two_seconds_while_the_server_hangs(before: impl Fn(&str) -> Proxy) {
    let folder = TempDir::new().expect("a folder");
    let served = serve(folder.path());
    let proxy = before(&served.checks);
    proxy.until("a denial", ProxyResponse::is_denied);
    signal(&served, "-STOP");
    proxy.until("it passes, once the last thread has stopped", |answer| answer.status() == "200");
    let began = Instant::now();
    let passed = proxy.ask("POST / HTTP/1.1\r\nContent-Length: 0\r\n");
    assert_eq!((passed.status(), passed.header("X-RateLimit-Limit")), ("200", None));
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    signal(&served, "-CONT");
}

/// Tests that rules with a path and a method hold, and that a 403 of the service reaches the client unchanged.
pub(crate) fn sends_path_and_method(before: impl Fn(&str) -> Proxy) {
    let folder = TempDir::new().expect("a folder");
    let served = serve(folder.path());
    let proxy = before(&served.checks);
    let searched = || proxy.ask("POST /search?q=1 HTTP/1.1\r\nContent-Length: 0\r\n");
    assert!(tries().map(|()| searched()).any(|answer| answer.is_denied()));
    proxy.assert_that_headers_do_not_help("POST /search", &["X-Forwarded-Uri: /free", "X-Forwarded-Method: GET"]);
    assert_eq!(proxy.get("/search?q=1").status(), "200", "by another method");
    let forbidden = proxy.get("/forbidden");
    assert_eq!((forbidden.status(), forbidden.0.ends_with("hello")), ("403", true));
}
