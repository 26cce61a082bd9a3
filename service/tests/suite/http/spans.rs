//! Spans of HTTP requests: their attributes, none of which is an identity.

use std::{
    num::NonZeroU32,
    sync::{Arc, Mutex},
    time::Duration,
};

use opentelemetry::{
    Value,
    trace::{SpanId, SpanKind, Status, TraceId, TracerProvider},
};
use opentelemetry_sdk::{
    error::OTelSdkResult,
    trace::{Sampler, SdkTracerProvider, SpanData, SpanExporter},
};
use tidegate_service::{ListenerSettings, Timeouts, Traces};
use tidegate_testkit::wait_until;

use super::{
    failures::{self, Panics},
    support::{Connection, Server, request},
    user,
};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// A policy of one a minute for each user, with an own limit for olga.
const ONE: &str = r#"
    [domains.default]
    defaults = { user = "free", ip = "free" }
    [[domains.default.tiers]]
    id = "free"
    limits = [{ id = "minute", algorithm = "fixed_window", limit = 1, period = "1m" }]
    [[domains.default.clients]]
    kind = "user"
    value = "olga/of/crimea"
    override = { limits = [{ id = "own", algorithm = "fixed_window", limit = 9, period = "1m" }] }
"#;

/// An exporter that keeps ended spans.
#[derive(Clone, Debug, Default)]
struct Kept(Arc<Mutex<Vec<SpanData>>>);

impl SpanExporter for Kept {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.lock().expect("nobody panics").extend(batch);
        Ok(())
    }
}

struct Traced {
    server: Server,
    kept: Kept,
}

impl Traced {
    /// Starts a server that samples the requests that their senders sample.
    fn start() -> Self {
        let kept = Kept::default();
        let sampler = Sampler::ParentBased(Box::new(Sampler::AlwaysOff));
        let provider = SdkTracerProvider::builder().with_sampler(sampler).with_simple_exporter(kept.clone()).build();
        let traces = Some(Traces::new(provider.tracer("tidegate")));
        let timeouts = Timeouts { request: Duration::from_mins(10), ..Timeouts::default() };
        let server = Server::listening(ListenerSettings { traces, timeouts, ..ListenerSettings::default() });
        server.publish(ONE);
        Self { server, kept }
    }

    /// Returns the span of a request, which a server ends before its response.
    fn span(&self) -> Span {
        let mut kept = self.kept.0.lock().expect("nobody panics");
        assert_eq!(kept.len(), 1, "{kept:?}");
        Span(kept.swap_remove(0))
    }

    fn post(&self, path: &str, body: &str) -> (u16, Span) {
        let answer = self.server.connect().send(request(path, &sampled(), body));
        (answer.status, self.span())
    }
}

#[derive(Debug)]
struct Span(SpanData);

impl Span {
    fn get(&self, key: &str) -> Option<&Value> {
        self.0.attributes.iter().find(|attribute| attribute.key.as_str() == key).map(|attribute| &attribute.value)
    }

    fn text(&self, key: &str) -> Option<String> {
        self.get(key).map(ToString::to_string)
    }

    /// Returns the keys of the attributes, in order.
    fn keys(&self) -> Vec<&str> {
        self.0.attributes.iter().map(|attribute| attribute.key.as_str()).collect()
    }
}

fn sampled() -> String {
    format!("traceparent: 00-{TRACE}-{PARENT}-01\r\n")
}

fn get(connection: &mut Connection, method: &str, path: &str, headers: &str) -> u16 {
    connection.send(format!("{method} {path} HTTP/1.1\r\nHost: tidegate\r\n{headers}\r\n")).status
}

#[test]
fn a_span_has_the_route_and_the_decision_of_a_check() {
    let traced = Traced::start();
    for (status, is_allowed) in [(200, true), (429, false)] {
        let (answered, span) = traced.post("/v1/check", &user("bob"));
        assert_eq!(answered, status);
        assert_eq!(
            (&*span.0.name, &span.0.span_kind, &span.0.status),
            ("POST /v1/check", &SpanKind::Server, &Status::Unset)
        );
        assert_eq!(span.0.span_context.trace_id(), TraceId::from_hex(TRACE).expect("an id"));
        assert_eq!(span.0.parent_span_id, SpanId::from_hex(PARENT).expect("an id"));
        assert!(span.0.parent_span_is_remote && span.0.end_time >= span.0.start_time);
        let keys = ["http.request.method", "http.route", "tidegate.allowed", "tidegate.domain", "tidegate.limit"];
        assert_eq!(span.keys(), [&keys[..], &["http.response.status_code"]].concat());
        assert_eq!(span.get("tidegate.allowed"), Some(&Value::Bool(is_allowed)));
        assert_eq!(span.get("http.response.status_code"), Some(&Value::I64(status.into())));
        let texts = keys.map(|key| span.text(key).expect("it is there"));
        assert_eq!(texts, ["POST", "/v1/check", &is_allowed.to_string(), "default", "default/tier:free/minute"]);
    }
    let (_, span) = traced.post("/v1/reserve", &user("eve"));
    assert_eq!((&*span.0.name, span.get("tidegate.allowed")), ("POST /v1/reserve", Some(&Value::Bool(true))));
    let (_, span) = traced.post("/v1/check/batch", &format!(r#"{{"checks":[{}]}}"#, user("eve")));
    assert_eq!((&*span.0.name, span.get("tidegate.allowed")), ("POST /v1/check/batch", None));
    // A request that meets no limit.
    let (_, span) = traced.post("/v1/check", r#"{"identities":[{"kind":"api_key","value":"k"}]}"#);
    assert_eq!((span.text("tidegate.allowed").as_deref(), span.get("tidegate.domain")), (Some("true"), None));
}

#[test]
fn a_limit_of_a_single_client_is_not_in_the_span() {
    let traced = Traced::start();
    let (status, span) = traced.post("/v1/check", &user("olga/of/crimea"));
    assert_eq!((status, span.text("tidegate.domain").as_deref()), (200, Some("default")));
    assert!(!format!("{span:?}").contains("olga"), "{span:?}");
}

#[test]
fn a_rejected_request_has_a_span_without_its_content() {
    let traced = Traced::start();
    let (status, span) = traced.post("/v1/check", r#"{"mallory":1}"#);
    assert_eq!((status, span.text("http.response.status_code").as_deref()), (400, Some("400")));
    assert_eq!((span.0.status.clone(), span.get("tidegate.allowed")), (Status::Unset, None));
    let (status, span) = traced.post("/v1/mallory?mallory=1", "{}");
    assert_eq!((status, &*span.0.name), (404, "POST"));
    assert_eq!(span.keys(), ["http.request.method", "http.response.status_code"]);
    let mut connection = traced.server.connect();
    assert_eq!(get(&mut connection, "MALLORY", "/v1/check", &sampled()), 405);
    let span = traced.span();
    assert_eq!((&*span.0.name, span.text("http.request.method").as_deref()), ("HTTP /v1/check", Some("_OTHER")));
    assert!(!format!("{span:?}").contains("MALLORY"), "{span:?}");
}

#[test]
fn a_request_of_a_proxy_has_a_span() {
    let traced = Traced::start();
    let mut connection = traced.server.connect();
    for status in [204, 429] {
        let headers = format!("{}X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Uri: /mallory\r\n", sampled());
        assert_eq!(get(&mut connection, "GET", "/v1/authorize", &headers), status);
        let span = traced.span();
        assert_eq!(
            (&*span.0.name, span.text("tidegate.allowed")),
            ("GET /v1/authorize", Some((status == 204).to_string()))
        );
        assert!(!format!("{span:?}").contains("mallory") && !format!("{span:?}").contains("192.0.2.7"), "{span:?}");
    }
}

#[test]
fn an_error_of_the_server_is_in_the_span() {
    let traced = Traced::start();
    failures::hush();
    traced.server.engine.observe(NonZeroU32::MIN, Panics);
    let (status, span) = traced.post("/v1/check", &user(failures::NAME));
    assert_eq!((status, span.text("tidegate.degraded").as_deref()), (200, Some("internal_error")));
    traced.server.break_clock(true);
    let (status, span) = traced.post("/v1/refund", r#"{"reservation":"4PAiuPiZD2sVHnYQAqVNK5vH"}"#);
    assert_eq!((status, span.text("error.type").as_deref()), (500, Some("500")));
    assert_eq!(span.0.status, Status::error(""));
}

#[test]
fn the_sender_of_a_request_decides_whether_it_is_sampled() {
    let traced = Traced::start();
    let mut connection = traced.server.connect();
    for headers in [
        String::new(),
        format!("traceparent: 00-{TRACE}-{PARENT}-00\r\n"),
        format!("traceparent: 00-{}-{PARENT}-01\r\n", "0".repeat(32)),
        format!("traceparent: 00-{TRACE}-{PARENT}\r\n"),
        "traceparent: mallory\r\n".to_owned(),
    ] {
        assert_eq!(connection.send(request("/v1/check", &headers, user("eve"))).header("connection"), None);
    }
    // Probes and scrapes have no spans.
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(get(&mut connection, "GET", path, &sampled()), 200);
    }
    assert!(traced.kept.0.lock().expect("nobody panics").is_empty());
    let state = |text: &str| {
        let headers = format!("{}tracestate: {text}\r\n", sampled());
        traced.server.connect().send(request("/v1/check", &headers, user("eve")));
        traced.span().0.span_context.trace_state().header()
    };
    assert_eq!(state("vendor=1,other=2"), "vendor=1,other=2");
    // A long tracestate would wait in memory.
    let long: Vec<String> = (0..4).map(|number| format!("vendor{number}={}", "1".repeat(200))).collect();
    assert_eq!(state(&long.join(",")), "");
}

/// The span of a caller that does not wait for the response has no status.
#[test]
fn an_abandoned_request_has_a_span() {
    let mut traced = Traced::start();
    // The metrics show these bytes when the body is read.
    let body = format!("{}{}", user("eve"), " ".repeat(100_000));
    let whole = request("/v1/check", &sampled(), &body);
    let mut connection = traced.server.connect();
    connection.write(&whole[..whole.len() - 1]);
    wait_until("the body is read", || traced.server.metric("tidegate_body_budget_bytes") > 0);
    drop(connection);
    traced.server.stop().expect("it ends well");
    let span = traced.span();
    let status = span.text("http.response.status_code");
    assert!(matches!(status.as_deref(), None | Some("400")), "{status:?}");
}
