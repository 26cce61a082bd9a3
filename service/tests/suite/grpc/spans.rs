//! Spans of gRPC calls: their attributes, none of which is an identity.

use std::sync::{Arc, Mutex};

use opentelemetry::{
    Value,
    trace::{Status, TracerProvider},
};
use opentelemetry_sdk::{
    error::OTelSdkResult,
    trace::{Sampler, SdkTracerProvider, SpanData, SpanExporter},
};
use tidegate_service::{ListenerSettings, Traces, grpc::proto::tidegate::v1::GetMetricsRequest};
use tonic::Request;

use super::{
    HUNDRED,
    support::{Server, user},
};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// A name that no identifier of a span contains by chance: it is not made of hexadecimal digits.
const USER: &str = "olga";

/// An exporter that keeps ended spans.
#[derive(Clone, Debug, Default)]
struct Kept(Arc<Mutex<Vec<SpanData>>>);

impl SpanExporter for Kept {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.lock().expect("nobody panics").extend(batch);
        Ok(())
    }
}

fn sampled<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    let parent = format!("00-{TRACE}-{PARENT}-01");
    request.metadata_mut().insert("traceparent", parent.parse().expect("text"));
    request
}

#[tokio::test]
async fn a_span_has_the_decision_and_the_status_of_a_call() {
    let kept = Kept::default();
    let sampler = Sampler::ParentBased(Box::new(Sampler::AlwaysOff));
    let provider = SdkTracerProvider::builder().with_sampler(sampler).with_simple_exporter(kept.clone()).build();
    let traces = Some(Traces::new(provider.tracer("tidegate")));
    let server = Server::listening(HUNDRED, ListenerSettings { traces, ..ListenerSettings::default() });
    let mut limiter = server.limiter().await;
    limiter.check_rate_limit(user(USER)).await.expect("nobody traces it");
    server.health().await.get_metrics(sampled(GetMetricsRequest {})).await.expect("scrapes have none");
    assert_eq!(kept.0.lock().expect("nobody panics").len(), 0);
    limiter.check_rate_limit(sampled(user(USER))).await.expect("an answer");
    limiter.check_rate_limit(sampled(user(""))).await.expect_err("no identifier");
    let spans = std::mem::take(&mut *kept.0.lock().expect("nobody panics"));
    let [decided, refused] = &spans[..] else { return assert_eq!(spans.len(), 2) };
    for (span, code) in [(decided, 0), (refused, 3)] {
        assert_eq!(span.name, "tidegate.v1.RateLimiter/CheckRateLimit");
        assert_eq!(span.span_context.trace_id().to_string(), TRACE);
        assert_eq!(span.parent_span_id.to_string(), PARENT);
        assert_eq!(span.status, Status::Unset);
        let get = |key: &str| span.attributes.iter().find(|of| of.key.as_str() == key).map(|of| of.value.clone());
        assert_eq!(get("rpc.grpc.status_code"), Some(Value::I64(code)));
        assert_eq!(get("tidegate.allowed"), (code == 0).then_some(Value::Bool(true)));
        assert!(!format!("{span:?}").contains(USER), "{span:?}");
    }
}
