//! Sends any bytes to the HTTP API: each request has a documented response, a rejected request charges nothing, and no code
//! panics.

use std::{
    cell::RefCell,
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, LazyLock},
    thread,
    time::Duration,
};

use serde_json::Value;
use tidegate::{Engine, Snapshot, clock::ManualClock, formats::Format, time::Timestamp};
use tidegate_api::{BatchBody, BatchItem, ProblemDetails};
use tidegate_middleware::{address::AddressReader, extract::Extractors};
use tidegate_service::{
    Decider, ListenerSettings, Listeners,
    http::{Authorize, Http},
};

const POLICY: &str = r#"
    [domains.default]
    defaults = { user = "free", ip = "free" }
    tier_hint = true
    [[domains.default.tiers]]
    id = "free"
    limits = [{ id = "second", algorithm = "token_bucket", limit = 1000000, period = "1s" }]
    [[domains.default.tiers]]
    id = "pro"
    limits = [{ id = "day", algorithm = "fixed_window", limit = 5, period = "day" }]
    [[domains.default.rules]]
    id = "search"
    endpoint = "/search/{what}"
    method = "GET"
    per = ["user", "ip"]
    limits = [{ id = "queue", algorithm = "leaky_bucket", limit = 2, period = "1s", mode = "shadow" }]
    [domains.shop]
    on_error = "closed"
    headers = "ietf"
    defaults = { user = "none" }
    [[domains.shop.tiers]]
    id = "none"
    limits = [{ id = "none", algorithm = "sliding_window_log", limit = 0, period = "1s" }]
"#;

/// The paths to which bodies are sent.
const PATHS: [&str; 5] = ["/v1/check", "/v1/check/batch", "/v1/reserve", "/v1/settle", "/v1/refund"];

struct TestServer {
    engine: Arc<Engine<ManualClock>>,
    address: SocketAddr,
}

/// The server of this process, on a thread of its own.
static SERVER: LazyLock<TestServer> = LazyLock::new(|| {
    let engine =
        Arc::new(Engine::for_simulation(10_000, ManualClock::at(Timestamp::from_nanos(1_700_000_000_000_000_000)), 7));
    engine.publish(Snapshot::parse(POLICY, Format::Toml).expect("a right policy")).expect("room for its limits");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("bound");
    let identities = "ip=address, user=header:X-User, key=bearer, path=path";
    let identities = identities.split(", ").map(|text| text.parse().expect("one"));
    let trusted = AddressReader::default().trusting(["127.0.0.0/8".parse().expect("a network")]);
    let authorize = Authorize::new(Extractors::new(identities, trusted).expect("they differ"));
    let decider = Decider::new(Arc::clone(&engine)).expect("random numbers");
    // A single caller sends all requests, and may have all reservations.
    let decider = Arc::new(decider.with_caller_share(100));
    let listeners = Listeners::new(decider, ListenerSettings::default(), Http { listener, authorize });
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async { listeners.serve().expect("it listens").await.expect("it goes on") });
    });
    TestServer { engine, address }
});

thread_local! {
    static CONNECTION: RefCell<Option<BufReader<TcpStream>>> = const { RefCell::new(None) };
}

/// Sends `data`: the first byte chooses the call, the rest is its body, or the headers of a proxy's request.
///
/// # Panics
///
/// If a property does not hold.
pub fn http(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else { return };
    let before = SERVER.engine.totals();
    let charged = || SERVER.engine.totals().allowed - before.allowed;
    if let Some(path) = PATHS.get(usize::from(*choice) % (PATHS.len() + 1)) {
        let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", data.len());
        let (status, answer) = send(&[head.as_bytes(), data].concat()).expect("an answer");
        match status {
            200 if *path == "/v1/check/batch" => {
                let BatchBody { decisions } = serde_json::from_slice(&answer).expect("decisions");
                let is_right = |item: &BatchItem| match item {
                    BatchItem::Decision(_) => true,
                    BatchItem::Problem(problem) => is_whole(problem),
                };
                assert!(decisions.iter().all(is_right), "{decisions:?}");
            }
            200 | 429 => assert_eq!(parse_json(&answer)["allowed"], status == 200),
            204 => assert!(path.ends_with("settle") || path.ends_with("refund"), "{path}"),
            400 | 404 | 409 => {
                let problem: ProblemDetails = serde_json::from_slice(&answer).expect("problem details");
                assert!(problem.status == status && is_whole(&problem), "{problem:?}");
                assert_eq!(charged(), 0, "{path}");
            }
            _ => fail_with(status, &answer),
        }
    } else {
        let head = [b"GET /v1/authorize HTTP/1.1\r\nHost: localhost\r\n", data, b"\r\n\r\n"].concat();
        // A malformed head ends the connection, so the next input gets a new one.
        let answer = send(&head);
        CONNECTION.take();
        match answer {
            Some((204 | 429, _)) | None => {}
            Some((status @ (400 | 403 | 404 | 405 | 408 | 431), _)) => assert_eq!(charged(), 0, "{status}"),
            Some((status, answer)) => fail_with(status, &answer),
        }
    }
}

/// Fails with the body of an unexpected response.
fn fail_with(status: u16, answer: &[u8]) {
    assert_eq!(status, 0, "{}", String::from_utf8_lossy(answer));
}

fn parse_json(answer: &[u8]) -> Value {
    serde_json::from_slice(answer).expect("JSON")
}

/// Returns whether an error has its code and its detail.
fn is_whole(problem: &ProblemDetails) -> bool {
    !problem.code.is_empty() && !problem.detail.is_empty()
}

/// Sends a request and returns the status and body of the response, or `None` if the connection ended without one.
fn send(request: &[u8]) -> Option<(u16, Vec<u8>)> {
    let mut connection = CONNECTION.take().unwrap_or_else(|| {
        let stream = TcpStream::connect(SERVER.address).expect("it listens");
        stream.set_nodelay(true).expect("a socket");
        stream.set_read_timeout(Some(Duration::from_mins(1))).expect("a socket");
        BufReader::new(stream)
    });
    connection.get_mut().write_all(request).ok()?;
    let (mut status, mut length, mut is_kept) = (None, 0, true);
    loop {
        let mut line = String::new();
        if connection.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if status.is_none() {
            status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
        } else if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.parse().expect("a length");
        } else if line == "connection: close" {
            is_kept = false;
        }
    }
    let mut body = vec![0; length];
    connection.read_exact(&mut body).ok()?;
    if is_kept {
        CONNECTION.set(Some(connection));
    }
    Some((status.expect("a status line"), body))
}
