//! Spans of requests, for OpenTelemetry: a request that is sampled has one, below the span of whoever sent it. It says how the
//! request was asked and answered, and never who came. Where the spans go is the business of whoever made the tracer.

use std::fmt;

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

use crate::shared::decider::Answer;

/// What everybody passes on; a longer one is left out, since spans wait in memory.
const TRACESTATE_BYTES_MAX: usize = 512;
/// Others are anybody's words (the list of OpenTelemetry's conventions for HTTP).
const METHODS: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];

/// Begins the spans of requests that are sampled.
#[derive(Clone, Debug)]
pub struct Traces(SdkTracer);

/// The span of one request. It ends when it is told to, or when it is dropped; clones are the same.
#[derive(Clone)]
pub(crate) struct RequestSpan(Context);

impl Traces {
    /// By a tracer, whose provider samples them and sends them on.
    #[must_use]
    pub fn new(tracer: SdkTracer) -> Self {
        Self(tracer)
    }

    /// Of a request over HTTP. `route`: its path, where that is known; `header` finds the first value of a header.
    ///
    /// `None`: it is not sampled.
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

    /// Of a call over gRPC of this service and method; `header` finds the first value of its metadata.
    ///
    /// `None`: it is not sampled.
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

    /// A span, if it is sampled, and what it is below.
    fn sampled<'h>(&self, header: &dyn Fn(&str) -> Option<&'h str>) -> Option<(Context, SdkSpan)> {
        let parent = TraceContextPropagator::new().extract_with_context(&Context::new(), &Headers(header));
        let builder = self.0.span_builder("").with_kind(SpanKind::Server);
        let span = self.0.build_with_context(builder, &parent);
        span.is_recording().then_some((parent, span))
    }
}

impl RequestSpan {
    /// Says how the request was decided. The name of a limit that one client has for himself would say who that is.
    pub(crate) fn decided(&self, answer: &Answer<'_>) {
        let span = self.0.span();
        span.set_attribute(KeyValue::new("tidegate.allowed", answer.is_allowed));
        if let Some(limit) = answer.decision.as_ref().and_then(Decision::limit_id)
            && let Some((domain, owner)) = limit.split_once('/')
        {
            span.set_attribute(KeyValue::new("tidegate.domain", domain.to_owned()));
            if !owner.starts_with("client:") {
                span.set_attribute(KeyValue::new("tidegate.limit", limit.to_owned()));
            }
        }
        if let Some(reason) = answer.degraded.map(Degraded::name) {
            span.set_attribute(KeyValue::new("tidegate.degraded", reason));
        }
        if let Some(waited) = answer.waited {
            span.set_attribute(KeyValue::new("tidegate.store.wait", waited.as_secs_f64()));
        }
    }

    /// It was answered with this status.
    pub(crate) fn end(&self, status: u16) {
        let span = self.0.span();
        span.set_attribute(KeyValue::new("http.response.status_code", i64::from(status)));
        if status >= 500 {
            span.set_attribute(KeyValue::new("error.type", status.to_string()));
            span.set_status(Status::error(""));
        }
        span.end();
    }

    /// A call was answered with this code of gRPC.
    pub(crate) fn end_call(&self, code: u16, is_ours: bool) {
        let span = self.0.span();
        span.set_attribute(KeyValue::new("rpc.grpc.status_code", i64::from(code)));
        if is_ours {
            span.set_attribute(KeyValue::new("error.type", code.to_string()));
            span.set_status(Status::error(""));
        }
        span.end();
    }
}

impl fmt::Debug for RequestSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RequestSpan")
    }
}

/// Headers as the propagator reads them.
struct Headers<'a, 'h>(&'a dyn Fn(&str) -> Option<&'h str>);

impl Extractor for Headers<'_, '_> {
    fn get(&self, name: &str) -> Option<&str> {
        (self.0)(name).filter(|value| name != "tracestate" || value.len() <= TRACESTATE_BYTES_MAX)
    }

    fn keys(&self) -> Vec<&str> {
        Vec::new()
    }
}
