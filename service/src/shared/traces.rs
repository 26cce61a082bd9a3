//! OpenTelemetry spans of requests: a sampled request has one, below the span of its sender. The span says which call
//! it was and how it was decided, and never the identities. The maker of the tracer decides where spans are exported.

use opentelemetry::{
    Context, KeyValue,
    propagation::{Extractor, TextMapPropagator},
    trace::{Span as _, SpanKind, Status, TraceContextExt, Tracer},
};
use opentelemetry_sdk::{
    propagation::TraceContextPropagator,
    trace::{SdkTracer, Span as SdkSpan},
};
use tidegate::{Decision, Degraded};

use super::decider::CheckResult;

/// The longest `tracestate` that is kept, which OpenTelemetry asks everyone to pass on. A longer one is left out, since
/// spans wait in memory.
const TRACESTATE_BYTES_MAX: usize = 512;
/// The methods that a span names, by OpenTelemetry's conventions for HTTP. Other methods are free text of the caller.
const METHODS: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];

/// Begins the spans of requests that are sampled.
#[derive(Clone, Debug)]
pub struct Traces(SdkTracer);

/// The span of one request. It ends by a call, or when its last clone is dropped.
#[derive(Clone)]
pub(crate) struct RequestSpan(Context);

impl Traces {
    /// Creates spans by a tracer, whose provider samples and exports them.
    #[must_use]
    pub fn new(tracer: SdkTracer) -> Self {
        Self(tracer)
    }

    /// Begins the span of an HTTP request; `None` where the request is not sampled. `route` is its path, if it is a known one;
    /// `header` finds the first value of a header.
    pub(crate) fn begin<'h>(
        &self,
        method: &str,
        route: Option<&'static str>,
        header: &dyn Fn(&str) -> Option<&'h str>,
    ) -> Option<RequestSpan> {
        let (parent, mut span) = self.sampled(header)?;
        let known = METHODS.into_iter().find(|known| *known == method);
        span.set_attribute(KeyValue::new("http.request.method", known.unwrap_or("_OTHER")));
        let method = known.unwrap_or("HTTP");
        match route {
            Some(route) => {
                span.update_name(format!("{method} {route}"));
                span.set_attribute(KeyValue::new("http.route", route));
            }
            None => span.update_name(method),
        }
        Some(RequestSpan(parent.with_span(span)))
    }

    /// Begins the span of a gRPC call of this service and method; `None` where the call is not sampled. `header` finds
    /// the first value of a metadata key.
    pub(crate) fn begin_call<'h>(
        &self,
        (service, method): (&'static str, &'static str),
        header: &dyn Fn(&str) -> Option<&'h str>,
    ) -> Option<RequestSpan> {
        let (parent, mut span) = self.sampled(header)?;
        span.update_name(format!("{service}/{method}"));
        span.set_attribute(KeyValue::new("rpc.system", "grpc"));
        span.set_attribute(KeyValue::new("rpc.service", service));
        span.set_attribute(KeyValue::new("rpc.method", method));
        Some(RequestSpan(parent.with_span(span)))
    }

    /// Creates a span and its parent; `None` where it is not sampled.
    fn sampled<'h>(&self, header: &dyn Fn(&str) -> Option<&'h str>) -> Option<(Context, SdkSpan)> {
        let parent = TraceContextPropagator::new().extract_with_context(&Context::new(), &Headers(header));
        let builder = self.0.span_builder("").with_kind(SpanKind::Server);
        let span = self.0.build_with_context(builder, &parent);
        span.is_recording().then_some((parent, span))
    }
}

impl RequestSpan {
    /// Records how the request was decided. The limit of a single client is left out, since its name identifies the client.
    pub(crate) fn record(&self, outcome: &CheckResult<'_>) {
        let span = self.0.span();
        span.set_attribute(KeyValue::new("tidegate.allowed", outcome.is_allowed));
        if let Some(limit) = outcome.decision.as_ref().and_then(Decision::limit_id)
            && let Some((domain, owner)) = limit.split_once('/')
        {
            span.set_attribute(KeyValue::new("tidegate.domain", domain.to_owned()));
            if !owner.starts_with("client:") {
                span.set_attribute(KeyValue::new("tidegate.limit", limit.to_owned()));
            }
        }
        if let Some(reason) = outcome.degraded.map(Degraded::name) {
            span.set_attribute(KeyValue::new("tidegate.degraded", reason));
        }
        if let Some(waited) = outcome.waited {
            span.set_attribute(KeyValue::new("tidegate.store.wait", waited.as_secs_f64()));
        }
    }

    /// Ends the span of an HTTP request with the status of its response.
    pub(crate) fn end_request(&self, status: u16) {
        self.end("http.response.status_code", status, status >= 500);
    }

    /// Ends the span of a gRPC call with its status code.
    pub(crate) fn end_call(&self, code: u16, is_server_error: bool) {
        self.end("rpc.grpc.status_code", code, is_server_error);
    }

    fn end(&self, attribute: &'static str, status: u16, is_server_error: bool) {
        let span = self.0.span();
        span.set_attribute(KeyValue::new(attribute, i64::from(status)));
        if is_server_error {
            span.set_attribute(KeyValue::new("error.type", status.to_string()));
            span.set_status(Status::error(""));
        }
        span.end();
    }
}

struct Headers<'a, 'h>(&'a dyn Fn(&str) -> Option<&'h str>);

impl Extractor for Headers<'_, '_> {
    fn get(&self, name: &str) -> Option<&str> {
        (self.0)(name).filter(|value| name != "tracestate" || value.len() <= TRACESTATE_BYTES_MAX)
    }

    fn keys(&self) -> Vec<&str> {
        Vec::new()
    }
}
