//! Tests of tracing: spans of requests, from the server to a collector that reads OTLP over HTTP.

use std::{
    collections::HashSet,
    fs::{self, File},
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::Command,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{KeyValue, any_value::Value},
    trace::v1::{Span, span::SpanKind},
};
use prost::Message;
use tempfile::TempDir;
use ureq::Agent;

use tidegate_testkit::{PATIENCE, certificate::Authority, port::ReservedPort, redis::Redis};

use crate::support::{SERVE, command, server::Served, tidegate};

/// A token of callers and an identity, neither of which is ever exported.
const TOKEN: &str = "morning-star-0001";
const WHO: &str = "ada@lovelace.example";

/// A collector that keeps the spans that it receives.
struct Collector {
    url: String,
    requests: Arc<Mutex<Vec<Taken>>>,
}

/// A request to the collector.
struct Taken {
    head: String,
    body: Vec<u8>,
}

impl Collector {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let taken = Arc::clone(&requests);
        thread::spawn(move || {
            for connection in listener.incoming().map_while(Result::ok) {
                let taken = Arc::clone(&taken);
                thread::spawn(move || take(connection, &taken));
            }
        });
        Self { url, requests }
    }

    fn batches(&self) -> Vec<ExportTraceServiceRequest> {
        let requests = self.requests.lock().expect("no thread panics");
        requests.iter().map(|taken| ExportTraceServiceRequest::decode(&*taken.body).expect("OTLP")).collect()
    }

    fn spans(&self) -> Vec<Span> {
        let resources = self.batches().into_iter().flat_map(|batch| batch.resource_spans);
        resources.flat_map(|resource| resource.scope_spans).flat_map(|scope| scope.spans).collect()
    }
}

/// Receives the requests of a connection.
fn take(connection: TcpStream, taken: &Mutex<Vec<Taken>>) {
    let mut reader = BufReader::new(connection);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        let head = head.to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        let mut body = vec![0; length.expect("a length")];
        reader.read_exact(&mut body).expect("as long as it says");
        taken.lock().expect("no thread panics").push(Taken { head, body });
        let answer = "HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n";
        reader.get_mut().write_all(answer.as_bytes()).expect("it is read");
    }
}

fn text<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a str> {
    match attributes.iter().find(|attribute| attribute.key == key)?.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text),
        _ => None,
    }
}

/// A server in a folder of its own, with a limit of one an hour, and what it logs.
struct Traced {
    folder: TempDir,
    served: Served,
    agent: Agent,
}

impl Traced {
    fn start(arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        Self::of(&["serve", "--admin", "127.0.0.1:0", "--node", "traced"], arguments, environment)
    }

    fn of(serve: &[&str], arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let folder = TempDir::new().expect("a folder");
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("room for a file");
        write("tokens", TOKEN);
        write(
            "policy.toml",
            "[domains.default]\ndefaults = { user = \"free\", team = \"shared\" }\n[[domains.default.tiers]]\nid = \"free\"\n\
             limits = [{ id = \"hour\", algorithm = \"fixed_window\", limit = 1, period = \"1h\" }]\n\
             [[domains.default.tiers]]\nid = \"shared\"\n\
             limits = [{ id = \"hour\", algorithm = \"fixed_window\", limit = 9, period = \"1h\", sharing = \"strict\" }]\n",
        );
        let mut command = command();
        command.current_dir(folder.path()).args(serve).args(["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"]);
        command.args(["--drain-delay", "0s"]);
        command.args(["--data", "data", "--check-tokens", "tokens"]).args(arguments).envs(environment.iter().copied());
        command.stderr(log(folder.path()));
        let served = Served::started(command);
        let agent = Agent::config_builder().http_status_as_error(false).build().into();
        Self { folder, served, agent }
    }

    /// Returns the status of a check of `user` with these headers.
    fn check(&self, user: &str, headers: &[(&str, &str)]) -> u16 {
        self.post("/v1/check", &format!(r#"{{"identities":[{{"kind":"user","value":"{user}"}}]}}"#), headers)
    }

    fn post(&self, path: &str, body: &str, headers: &[(&str, &str)]) -> u16 {
        let request = self.agent.post(format!("{}{path}", self.served.checks)).header("X-Tidegate-Token", TOKEN);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        request.send(body).expect("an answer").status().as_u16()
    }

    /// Stops the server by SIGTERM. Returns how long that took, and the log.
    #[expect(clippy::disallowed_methods, reason = "how long a stop takes is what this is about")]
    fn stop(self) -> (Duration, String) {
        let began = Instant::now();
        let told = Command::new("kill").args(["-TERM", &self.served.id().to_string()]).status();
        assert!(told.expect("kill is there").success());
        assert_eq!(self.served.wait(), Some(0));
        (began.elapsed(), fs::read_to_string(self.folder.path().join("log")).expect("text"))
    }
}

fn log(folder: &Path) -> File {
    File::create(folder.join("log")).expect("room for a file")
}

fn traceparent(trace: u128, parent: u64, flags: &str) -> String {
    format!("00-{trace:032x}-{parent:016x}-{flags}")
}

/// The spans wait in the queue until the server stops, because it would send them after a minute.
#[test]
fn sampled_requests_are_exported_without_identities() {
    let collector = Collector::start();
    let environment = [
        ("OTEL_BSP_SCHEDULE_DELAY", "60000"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-api-key=of-the-vendor"),
        ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test"),
    ];
    let arguments = ["--policy", "policy.toml", "--traces", &collector.url, "--traces-sample", "off"];
    let traced = Traced::start(&arguments, &environment);
    let sent = |parent: u64, flags: &str| traceparent(77, parent, flags);
    assert_eq!(traced.check(WHO, &[("traceparent", &sent(1, "01")), ("tracestate", "vendor=1")]), 200);
    assert_eq!(traced.check(WHO, &[("traceparent", &sent(2, "01"))]), 429);
    assert_eq!(traced.post("/v1/check", &format!("{{\"{WHO}\":1}}"), &[("traceparent", &sent(3, "01"))]), 400);
    assert_eq!(traced.post(&format!("/v1/{WHO}"), WHO, &[("traceparent", &sent(4, "01"))]), 404);
    // A caller without a token, whose caller samples.
    let stranger = traced.agent.post(format!("{}/v1/check", traced.served.checks));
    assert_eq!(stranger.header("traceparent", sent(5, "01")).send("{}").expect("an answer").status(), 401);
    // Not sampled by its caller, and not sampled by the server.
    assert_eq!(traced.check(WHO, &[("traceparent", &sent(6, "00"))]), 429);
    assert_eq!(traced.check(WHO, &[]), 429);
    assert!(collector.spans().is_empty(), "they wait");
    let (_, log) = traced.stop();
    assert!(!log.contains("/v1/check") && !log.contains("spans"), "{log}");

    let mut spans = collector.spans();
    spans.sort_by(|one, other| one.parent_span_id.cmp(&other.parent_span_id));
    let told = |span: &Span| {
        let status = span.attributes.iter().find(|attribute| attribute.key == "http.response.status_code");
        let status = status.and_then(|status| status.value.clone()?.value);
        (span.parent_span_id.clone(), span.name.clone(), status)
    };
    let expected =
        [(1_u64, "POST /v1/check", 200), (2, "POST /v1/check", 429), (3, "POST /v1/check", 400), (4, "POST", 404)];
    assert_eq!(
        spans.iter().map(told).collect::<Vec<_>>(),
        expected.map(|(parent, name, status)| {
            (parent.to_be_bytes().to_vec(), name.to_owned(), Some(Value::IntValue(status)))
        })
    );
    for span in &spans {
        assert_eq!((&*span.trace_id, span.kind()), (&77_u128.to_be_bytes()[..], SpanKind::Server));
        assert!(span.end_time_unix_nano >= span.start_time_unix_nano && span.start_time_unix_nano > 0);
    }
    assert_eq!(spans[0].trace_state, "vendor=1");
    assert_eq!(text(&spans[1].attributes, "tidegate.limit"), Some("default/tier:free/hour"));

    assert_service_and_no_secret(&collector);
}

/// Asserts that the spans name the service, and that no request to the collector has the token or the identity.
fn assert_service_and_no_secret(collector: &Collector) {
    let resource =
        collector.batches().swap_remove(0).resource_spans.swap_remove(0).resource.expect("it says who it is");
    let of_resource = |key| text(&resource.attributes, key);
    assert_eq!(of_resource("service.name"), Some("tidegate"));
    assert_eq!(of_resource("service.version"), Some(env!("CARGO_PKG_VERSION")));
    assert_eq!(of_resource("service.instance.id"), Some("traced"));
    assert_eq!(of_resource("deployment.environment.name"), Some("test"));
    let requests = collector.requests.lock().expect("no thread panics");
    for Taken { head, body } in requests.iter() {
        assert!(head.starts_with("post /v1/traces http/1.1\r\n"), "{head}");
        assert!(head.contains("content-type: application/x-protobuf") && head.contains("x-api-key: of-the-vendor"));
        for secret in [TOKEN, WHO] {
            assert!(!body.windows(secret.len()).any(|bytes| bytes == secret.as_bytes()), "{secret}");
        }
    }
}

#[test]
fn the_span_of_a_check_has_the_time_that_the_store_took() {
    let (collector, redis) = (Collector::start(), Redis::start());
    let url = redis.url();
    let arguments = ["--policy", "policy.toml", "--traces", &collector.url, "--traces-sample", "1/1", "--redis", &url];
    let traced = Traced::start(&arguments, &[]);
    for kind in ["user", "team"] {
        let body = format!(r#"{{"identities":[{{"kind":"{kind}","value":"{WHO}"}}]}}"#);
        assert_eq!(traced.post("/v1/check", &body, &[]), 200);
    }
    traced.stop();
    let mut spans = collector.spans();
    spans.sort_by_key(|span| span.start_time_unix_nano);
    let waited = |span: &Span| {
        let found = span.attributes.iter().find(|attribute| attribute.key == "tidegate.store.wait");
        match found?.value.as_ref()?.value.as_ref()? {
            Value::DoubleValue(seconds) => Some(*seconds),
            _ => None,
        }
    };
    assert_eq!(spans.len(), 2);
    let took = |span: &Span| (span.end_time_unix_nano - span.start_time_unix_nano) as f64 / 1e9;
    assert_eq!(waited(&spans[0]), None);
    assert!(waited(&spans[1]).is_some_and(|waited| 0.0 < waited && waited <= took(&spans[1])));
}

#[test]
fn requests_without_a_trace_are_sampled_at_the_configured_rate() {
    for (sample, times, expected) in
        [(None, 2_000, 1..=100), (Some("off"), 100, 0..=0), (Some("1/1"), 100, 100..=100), (Some("1/4"), 400, 40..=160)]
    {
        let collector = Collector::start();
        let share: Vec<&str> = sample.into_iter().flat_map(|sample| ["--traces-sample", sample]).collect();
        let traced = Traced::start(&[&["--traces", &collector.url], &*share].concat(), &[]);
        for _ in 0..times {
            assert!(matches!(traced.check(WHO, &[]), 200 | 429));
        }
        traced.stop();
        let spans = collector.spans();
        assert!(expected.contains(&spans.len()), "{sample:?}: {}", spans.len());
        let ids: HashSet<&[u8]> = spans.iter().map(|span| &*span.trace_id).collect();
        assert!(ids.len() == spans.len() && spans.iter().all(|span| span.parent_span_id.is_empty()), "{sample:?}");
    }
}

/// A node reads its settings from a file.
#[test]
fn a_node_sends_its_spans_under_its_name() {
    let collector = Collector::start();
    let folder = TempDir::new().expect("a folder");
    let config = folder.path().join("tidegate.toml");
    fs::write(&config, format!("traces = \"{}\"\ntraces_sample = \"1/1\"\n", collector.url)).expect("room for a file");
    let config = config.to_str().expect("text");
    let node = ["node", "--admin", "http://127.0.0.1:1", "--token-file", "tokens", "--name", "edge-1"];
    let traced = Traced::of(&node, &["--config", config], &[]);
    assert_eq!(traced.check(WHO, &[]), 200);
    traced.stop();
    let resource =
        collector.batches().swap_remove(0).resource_spans.swap_remove(0).resource.expect("it says who it is");
    assert_eq!((text(&resource.attributes, "service.instance.id"), collector.spans().len()), (Some("edge-1"), 1));
}

/// Asserts that checks are not delayed, the log has one warning, and a stop takes at most `stops_within`.
fn a_collector_takes_nothing(stops_within: Duration) {
    let port = ReservedPort::new();
    let away = port.address();
    // The system accepts connections, but the test does not.
    let hangs = TcpListener::bind("127.0.0.1:0").expect("a free port");
    // Asks for a token.
    let other = Traced::start(&[], &[]);
    for (url, says) in [
        (format!("http://{away}"), "why=\"Connection refused"),
        (format!("http://{}", hangs.local_addr().expect("bound")), "did not accept the last spans in time"),
        (other.served.checks.clone(), "why=\"its response has the status 401 Unauthorized\""),
    ] {
        // More than wait in the queue.
        let environment = [
            ("OTEL_BSP_SCHEDULE_DELAY", "50"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "256"),
            ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "32"),
        ];
        let arguments = ["--policy", "policy.toml", "--traces", &url, "--traces-sample", "1/1"];
        let traced = Traced::start(&arguments, &environment);
        for time in 0..500 {
            assert!(matches!(traced.check(WHO, &[]), 200 | 429), "check {time}");
        }
        let others = ["grace", "heidi"].map(|user| [(); 3].map(|()| traced.check(user, &[])));
        assert_eq!(others, [[200, 429, 429]; 2], "others have their quota of one");
        let (took, log) = traced.stop();
        assert!(took < stops_within, "{took:?}");
        assert!(log.contains(says) && log.matches("does not accept spans").count() <= 1, "{log}");
    }
}

#[test]
fn a_collector_that_accepts_nothing_delays_no_request() {
    a_collector_takes_nothing(PATIENCE);
}

/// The test server answers every client that trusts its certificate, and requires a token.
#[test]
fn a_collector_is_checked_by_the_authorities_of_the_machine() {
    let folder = TempDir::new().expect("a folder");
    let [ca, certificate, key] = ["ca.pem", "cert.pem", "key.pem"].map(|name| folder.path().join(name));
    let authority = Authority::new();
    authority.write(&certificate, &key);
    fs::write(&ca, &authority.pem).expect("room for a file");
    let [ca, certificate, key] = [&ca, &certificate, &key].map(|file| file.to_str().expect("text"));
    let other = Traced::start(&["--tls-cert", certificate, "--tls-key", key], &[]);
    let stranger = folder.path().join("stranger.pem");
    fs::write(&stranger, Authority::new().pem).expect("room for a file");
    for (trusted, says) in [(ca, "the status 401"), (stranger.to_str().expect("text"), "invalid peer certificate")] {
        let arguments = ["--traces", &other.served.checks, "--traces-sample", "1/1"];
        let traced = Traced::start(&arguments, &[("SSL_CERT_FILE", trusted)]);
        assert_eq!(traced.check(WHO, &[]), 200);
        let (_, log) = traced.stop();
        assert!(log.contains(says), "{says}: {log}");
    }
}

#[test]
fn without_the_setting_nothing_is_traced() {
    let collector = Collector::start();
    let environment = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &*collector.url),
        ("OTEL_BSP_SCHEDULE_DELAY", "10"),
        ("OTEL_TRACES_SAMPLER", "always_on"),
    ];
    let traced = Traced::start(&["--log", "trace", "--traces-sample", "1/1"], &environment);
    let parent = traceparent(0x1234_5678_9abc_def0_1234_5678_9abc_def0, 1, "01");
    for _ in 0..10 {
        assert!(matches!(traced.check(WHO, &[("traceparent", &parent)]), 200 | 429));
    }
    let (_, log) = traced.stop();
    assert!(collector.requests.lock().expect("no thread panics").is_empty());
    assert!(!log.contains("123456789abcdef0") && !log.to_lowercase().contains("opentelemetry"), "{log}");
}

#[test]
fn an_invalid_collector_url_is_rejected_with_what_to_do() {
    for (arguments, says) in [
        (["--traces", "localhost:4318"], "http://127.0.0.1:4318"),
        (["--traces", "grpc://localhost:4317"], "http://127.0.0.1:4318"),
        (["--traces-sample", "0.01"], "1/N"),
    ] {
        let run = tidegate([&SERVE[..], &arguments[..]].concat());
        assert_eq!(run.status, Some(2), "{run:?}");
        assert!(run.stderr.contains(arguments[0]) && run.stderr.contains(says), "{run:?}");
    }
}

mod long {
    use super::*;

    #[test]
    #[ignore = "long: bounds the time of a stop, which a busy machine does not keep"]
    fn a_collector_that_accepts_nothing_delays_a_stop_by_less_than_five_seconds() {
        a_collector_takes_nothing(Duration::from_secs(5));
    }
}
