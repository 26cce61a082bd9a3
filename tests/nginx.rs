//! The recipe of docs/proxies.md, as it stands there, in a real nginx before a real server.

#[path = "support/server.rs"]
#[expect(dead_code, reason = "other tests need more of it")]
mod server;
#[path = "support/mod.rs"]
#[expect(dead_code, reason = "other tests need more of it")]
mod support;

use std::{
    fs,
    io::{self, BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::{server::Served, support::command};

/// Everybody gets 100 a day, and nobody one path. Late answers are charged too, so there are more than a busy machine misses.
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

/// So often is asked until something shows: where this machine is busy, nginx may not have waited for an answer.
const TRIES: usize = 500;

struct Nginx {
    child: Child,
    address: SocketAddr,
    // Its folder goes after it.
    _folder: TempDir,
}

impl Nginx {
    /// With the recipe, before a service that says "hello", but for 403 under `/forbidden`.
    fn before(checks: &str) -> Self {
        let folder = TempDir::new().expect("a folder");
        let [address, service] = [free_address(), serve_hello()];
        let recipe = recipe(checks, address, service);
        let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let paths = paths.map(|of| format!("{of}_temp_path {of};")).join("\n");
        let whole = format!(
            "daemon off;\nmaster_process off;\npid nginx.pid;\nerror_log error.log;\nevents {{}}\n\
             http {{\naccess_log off;\n{paths}\n{recipe}\n}}\n"
        );
        fs::write(folder.path().join("nginx.conf"), whole).expect("it is ours");
        let child = Command::new("nginx")
            .arg("-p")
            .arg(folder.path())
            .args(["-c", "nginx.conf", "-e", "error.log"])
            .stderr(Stdio::inherit())
            .spawn()
            .expect("the Debian package nginx is there");
        let mut nginx = Self { child, address, _folder: folder };
        while TcpStream::connect(address).is_err() {
            assert_eq!(nginx.child.try_wait().expect("it is ours"), None, "nginx ended");
            thread::yield_now();
        }
        nginx
    }

    fn ask(&self, head: &str) -> Answer {
        let mut stream = TcpStream::connect(self.address).expect("nginx listens");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket");
        write!(stream, "{head}Host: service\r\nConnection: close\r\n\r\n").expect("nginx reads");
        let mut text = String::new();
        BufReader::new(stream).read_to_string(&mut text).expect("an answer");
        Answer(text)
    }

    fn get(&self, path: &str) -> Answer {
        self.ask(&format!("GET {path} HTTP/1.1\r\n"))
    }

    /// Asks until the answer is this one.
    fn until(&self, what: &str, is_it: impl Fn(&Answer) -> bool) -> Answer {
        let mut answers = (0..TRIES).map(|_| self.get("/"));
        let found = answers.find(is_it);
        assert!(found.is_some(), "{what}: not after {TRIES} requests");
        found.expect("it was found")
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Answer(String);

impl Answer {
    fn status(&self) -> &str {
        self.0.split(' ').nth(1).unwrap_or_default()
    }

    fn header(&self, name: &str) -> Option<&str> {
        let head = self.0.split("\r\n\r\n").next()?;
        head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

/// What stands in the document, with the addresses of this test.
fn recipe(checks: &str, listen: SocketAddr, service: SocketAddr) -> String {
    let document =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/proxies.md")).expect("it is there");
    let mut recipe = document
        .split_once("```nginx\n")
        .and_then(|(_, rest)| rest.split_once("```"))
        .expect("it is there")
        .0
        .to_owned();
    let checks = checks.strip_prefix("http://").expect("a URL");
    for (shown, real) in [
        ("127.0.0.1:9080", checks.to_owned()),
        ("listen 80;", format!("listen {listen};")),
        ("127.0.0.1:3000", service.to_string()),
    ] {
        assert_eq!(recipe.matches(shown).count(), 1, "{shown}");
        recipe = recipe.replace(shown, &real);
    }
    recipe
}

fn free_address() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr()).expect("a free port")
}

/// The service behind nginx.
fn serve_hello() -> SocketAddr {
    fn answer(stream: TcpStream) -> io::Result<()> {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let status = if line.contains(" /forbidden ") { "403 Forbidden" } else { "200 OK" };
        while line.trim_end() != "" {
            line.clear();
            reader.read_line(&mut line)?;
        }
        write!(reader.get_mut(), "HTTP/1.1 {status}\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("bound");
    // It ends with the process.
    thread::spawn(move || listener.incoming().flatten().for_each(|stream| drop(answer(stream))));
    address
}

fn serve(folder: &Path) -> Served {
    let policy = folder.join("policy.toml");
    fs::write(&policy, POLICY).expect("it is ours");
    Served::start_with(&folder.join("data"), &["--policy", policy.to_str().expect("text")])
}

fn signal(served: &Served, signal: &str) {
    let sent = Command::new("kill").args([signal, &served.id().to_string()]).status().expect("kill is there");
    assert!(sent.success());
}

#[test]
#[expect(clippy::disallowed_methods, reason = "that nginx does not wait for long is what this is about")]
fn the_recipe_denies_and_lets_pass_while_nobody_decides() {
    let folder = TempDir::new().expect("a folder");
    let mut served = serve(folder.path());
    let nginx = Nginx::before(&served.checks);

    let allowed = nginx.until("a decision", |answer| answer.header("X-RateLimit-Limit").is_some());
    assert_eq!((allowed.status(), allowed.header("X-RateLimit-Limit")), ("200", Some("100")));
    assert!(allowed.header("X-RateLimit-Remaining").is_some() && allowed.header("X-RateLimit-Reset").is_some());
    assert!(allowed.0.ends_with("hello") && allowed.header("Retry-After").is_none());

    let is_denied = |answer: &Answer| answer.status() == "429";
    let denied = nginx.until("a denial", is_denied);
    let wait: u64 = denied.header("Retry-After").expect("a wait").parse().expect("seconds");
    // Up to a tenth more than the rest of the day.
    assert!((1..=95_040).contains(&wait), "{wait}");
    assert_eq!((denied.header("X-RateLimit-Remaining"), denied.header("X-RateLimit-Limit")), (Some("0"), Some("100")));
    assert!(denied.0.ends_with("Too many requests.\n"));

    // Nobody gets through by what he writes.
    for headers in
        ["X-Forwarded-For: 192.0.2.7", "X-Forwarded-Uri: /free", "X-Forwarded-Method: FREE", "Forwarded: for=x"]
    {
        let lied = || nginx.ask(&format!("GET / HTTP/1.1\r\n{headers}\r\n"));
        assert!((0..TRIES).map(|_| lied()).any(|answer| is_denied(&answer)), "{headers}");
    }

    // It hangs: nginx does not wait for it.
    signal(&served, "-STOP");
    nginx.until("it passes, once the last thread has stopped", |answer| answer.status() == "200");
    let began = Instant::now();
    let passed = nginx.get("/");
    assert_eq!((passed.status(), passed.header("X-RateLimit-Limit")), ("200", None));
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    signal(&served, "-CONT");
    nginx.until("a denial, once it goes on", is_denied);

    served.kill();
    let passed = nginx.get("/");
    assert_eq!((passed.status(), passed.header("X-RateLimit-Limit")), ("200", None));
    // On the same address again.
    let address = served.checks.strip_prefix("http://").expect("a URL").to_owned();
    drop(served);
    let policy = folder.path().join("policy.toml");
    let policy = policy.to_str().expect("text");
    let serve = ["serve", "--admin", "127.0.0.1:0", "--http", &address];
    let _served = Served::run(&serve, &folder.path().join("data"), &["--policy", policy]);
    nginx.until("a denial, once it is there again", is_denied);
}

#[test]
fn path_and_method_reach_the_rules_and_the_service_may_say_403_itself() {
    let folder = TempDir::new().expect("a folder");
    let served = serve(folder.path());
    let nginx = Nginx::before(&served.checks);
    let searched = || nginx.ask("POST /search?q=1 HTTP/1.1\r\nContent-Length: 0\r\n");
    assert!((0..TRIES).map(|_| searched()).any(|answer| answer.status() == "429"));
    assert_eq!(nginx.get("/search?q=1").status(), "200", "by another method");
    let forbidden = nginx.get("/forbidden");
    assert_eq!((forbidden.status(), forbidden.0.ends_with("hello")), ("403", true));
}

#[test]
fn settings_for_proxies_that_are_wrong_stop_the_start() {
    for (arguments, says) in [
        (["--identity", "ip"], "KIND=SOURCE"),
        (["--identity", "IP=address"], "not a kind"),
        (["--identity", "user=cookie"], "not a source"),
        (["--identity", "ip=address,ip=bearer"], "given twice"),
        (["--trusted-proxy", "proxy"], "10.0.0.0/8"),
        (["--ipv6-prefix", "0"], "1 to 128"),
        (["--endpoint-header", "a b"], "name of a header"),
    ] {
        let folder = TempDir::new().expect("a folder");
        let serve = ["serve", "--admin", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data"];
        let output = command().args(serve).arg(folder.path()).args(arguments).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.code() == Some(2) && said.contains(says) && said.contains(arguments[0]),
            "{says}: {said}"
        );
    }
}
