//! The exporter of spans: it sends the spans of requests to an OpenTelemetry collector (OTLP over HTTP), from its own thread.

use std::{num::NonZeroU32, pin::Pin, time::Duration};

use clap::Args;
use opentelemetry::{KeyValue, trace::TracerProvider};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::{
    Resource,
    trace::{Sampler, SdkTracerProvider},
};
use reqwest::{Url, blocking::Client};
use tidegate::Limiter;
use tidegate_service::Traces;

use crate::{
    client::http_client::{HttpResponse, http_client, root_cause, send},
    output::CommandError,
    value_parsers::{SampleRate, sample_rate},
};

/// The timeout of one request to the collector.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// The timeout of the last spans when the process stops.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);
/// The largest body of a response; collectors answer with next to nothing.
const BODY_BYTES_MAX: u64 = 1 << 20;

#[derive(Debug, Args)]
pub(crate) struct TracesArguments {
    #[arg(long, value_name = "URL", env = "TIDEGATE_TRACES", value_parser = endpoint,
        help = "The URL of the OpenTelemetry collector that receives spans of requests, by OTLP over HTTP (protobuf), such as \
                http://127.0.0.1:4318. The path /v1/traces is added if it is missing. OTEL_EXPORTER_OTLP_HEADERS has the headers \
                that the collector requires. Without this option nothing is traced")]
    traces: Option<String>,
    /// The share of requests that get a span, for requests without the header `traceparent`: 1/N, such as 1/100, or off. With that
    /// header, the caller decides.
    #[arg(long, value_name = "SHARE", env = "TIDEGATE_TRACES_SAMPLE", default_value = "1/100", value_parser = sample_rate)]
    traces_sample: SampleRate,
}

impl TracesArguments {
    pub(crate) fn is_on(&self) -> bool {
        self.traces.is_some()
    }

    /// Starts the exporter, if there is a collector. `instance` tells this process from others. It must not be called on a thread of an
    /// asynchronous runtime.
    pub(crate) fn start(&self, instance: &str) -> Result<Option<TraceExporter>, CommandError> {
        let Some(url) = &self.traces else { return Ok(None) };
        let failure = |why: String| CommandError(format!("--traces: {why}"));
        let client = http_client(url, None, EXPORT_TIMEOUT).map_err(|CommandError(why)| failure(why))?;
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(CollectorClient { client, log: Limiter::per_minute(1) });
        let exporter =
            exporter.with_endpoint(url).with_protocol(Protocol::HttpBinary).with_timeout(EXPORT_TIMEOUT).build();
        let ratio = self.traces_sample.0.map_or(0.0, |one_in: NonZeroU32| 1.0 / f64::from(one_in.get()));
        let resource = Resource::builder().with_service_name("tidegate").with_attributes([
            KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
            KeyValue::new("service.instance.id", instance.to_owned()),
        ]);
        let provider = SdkTracerProvider::builder()
            .with_resource(resource.build())
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(ratio))))
            .with_batch_exporter(exporter.map_err(|error| failure(error.to_string()))?)
            .build();
        Ok(Some(TraceExporter(provider)))
    }
}

/// The running exporter. Dropping it waits up to two seconds until the remaining spans are sent.
pub(crate) struct TraceExporter(SdkTracerProvider);

impl TraceExporter {
    pub(crate) fn traces(&self) -> Traces {
        Traces::new(self.0.tracer("tidegate"))
    }
}

impl Drop for TraceExporter {
    fn drop(&mut self) {
        if self.0.shutdown_with_timeout(SHUTDOWN_TIMEOUT).is_err() {
            tracing::warn!("the collector did not accept the last spans in time, so they are lost");
        }
    }
}

/// The HTTP client of the exporter, which blocks the thread of the exporter.
#[derive(Debug)]
struct CollectorClient {
    client: Client,
    log: Limiter,
}

impl CollectorClient {
    fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (head, body) = request.into_parts();
        let request = self.client.request(head.method, head.uri.to_string()).headers(head.headers).body(body);
        let HttpResponse { status, headers, body } = send(request, BODY_BYTES_MAX)?;
        let mut response = Response::new(body.into());
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        Ok(response)
    }
}

impl HttpClient for CollectorClient {
    fn send_bytes<'a, 'b>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async {
            let response = self.send(request);
            let why = match &response {
                Ok(response) if response.status().is_success() => None,
                Ok(response) => Some(format!("its response has the status {}", response.status())),
                Err(error) => Some(root_cause(&**error).to_string()),
            };
            if let Some(why) = why
                && self.log.check().is_allowed()
            {
                tracing::warn!(
                    why,
                    "the collector of --traces does not accept spans, so they are lost after some attempts; this is logged at most once a minute"
                );
            }
            response
        })
    }
}

/// Parses the URL of a collector. Returns it with the path for spans.
fn endpoint(text: &str) -> Result<String, String> {
    const PATH: &str = "/v1/traces";
    let url = Url::parse(text).ok();
    let url = url.filter(|url| matches!(url.scheme(), "http" | "https") && url.query().is_none());
    // A user and a password would appear in messages.
    match url.filter(|url| url.username().is_empty() && url.password().is_none()) {
        Some(_) => Ok(format!("{}{PATH}", text.trim_end_matches('/').trim_end_matches(PATH))),
        None => Err("write http:// or https:// and the address, such as http://127.0.0.1:4318".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_collector_is_added() {
        for (given, read) in [
            ("http://127.0.0.1:4318", Some("http://127.0.0.1:4318/v1/traces")),
            ("https://traces.example/", Some("https://traces.example/v1/traces")),
            ("https://traces.example/otlp", Some("https://traces.example/otlp/v1/traces")),
            ("http://[::1]:4318/v1/traces", Some("http://[::1]:4318/v1/traces")),
            ("http://[::1]:4318/v1/traces/", Some("http://[::1]:4318/v1/traces")),
            ("127.0.0.1:4318", None),
            ("grpc://127.0.0.1:4317", None),
            ("http://", None),
            ("http://127.0.0.1:4318?a=b", None),
            ("http://user:secret@127.0.0.1:4318", None),
            ("", None),
        ] {
            assert_eq!(endpoint(given).ok().as_deref(), read, "{given}");
        }
    }
}
