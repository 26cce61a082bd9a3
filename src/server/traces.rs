//! Where the spans of requests go: to a collector of OpenTelemetry (OTLP over HTTP), from a thread of their own.

use std::{num::NonZeroU32, pin::Pin, time::Duration};

use clap::Args;
use opentelemetry::{KeyValue, trace::TracerProvider};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::{
    Resource,
    trace::{Sampler, SdkTracerProvider},
};
use tidegate::Limiter;
use tidegate_service::Traces;
use ureq::{
    Agent,
    http::{Uri, uri::Authority},
};

use crate::{
    cli::{Share, share},
    client::session,
    output::Failure,
};

/// How long the collector may take to take spans.
const PATIENCE: Duration = Duration::from_secs(10);
/// What is left when the process stops has this long.
const LAST_PATIENCE: Duration = Duration::from_secs(2);
/// Collectors answer next to nothing.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

#[derive(Debug, Args)]
pub(crate) struct TracesArguments {
    #[arg(long, value_name = "URL", env = "TIDEGATE_TRACES", value_parser = endpoint,
        help = "The collector that spans of requests are sent to, by OTLP over HTTP (protobuf), such as http://127.0.0.1:4318. \
                The path /v1/traces is added where it is not there. Headers that the collector asks for are in \
                OTEL_EXPORTER_OTLP_HEADERS. Without it nothing is traced")]
    traces: Option<String>,
    /// Of requests without `traceparent`, so many have a span: 1/N or off. Of those with one, whoever sent it says so.
    #[arg(long, value_name = "SHARE", env = "TIDEGATE_TRACES_SAMPLE", default_value = "1/100", value_parser = share)]
    traces_sample: Share,
}

impl TracesArguments {
    pub(crate) fn is_on(&self) -> bool {
        self.traces.is_some()
    }

    /// Begins to send, if it is asked for; `instance` tells this process from others.
    pub(crate) fn start(&self, instance: &str) -> Result<Option<Sending>, Failure> {
        let Some(url) = &self.traces else { return Ok(None) };
        let failure = |why: String| Failure(format!("--traces: {why}"));
        let tls = session::tls(url, None).map_err(|Failure(why)| failure(why))?;
        let agent = Agent::config_builder().tls_config(tls).http_status_as_error(false).timeout_global(Some(PATIENCE));
        let agent = agent.max_redirects(0).proxy(None).build().new_agent();
        let exporter =
            SpanExporter::builder().with_http().with_http_client(Collector { agent, log: Limiter::per_minute(1) });
        let exporter = exporter.with_endpoint(url).with_protocol(Protocol::HttpBinary).with_timeout(PATIENCE).build();
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
        Ok(Some(Sending(provider)))
    }
}

/// Spans are sent while it lives. Its end waits for those that are left, for two seconds.
pub(crate) struct Sending(SdkTracerProvider);

impl Sending {
    pub(crate) fn traces(&self) -> Traces {
        Traces::new(self.0.tracer("tidegate"))
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        if self.0.shutdown_with_timeout(LAST_PATIENCE).is_err() {
            tracing::warn!("the last spans were not taken in time, and are lost");
        }
    }
}

/// How the exporter asks: from its own thread, which may wait.
#[derive(Debug)]
struct Collector {
    agent: Agent,
    log: Limiter,
}

impl Collector {
    fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, ureq::Error> {
        let (head, body) = request.into_parts();
        let (head, mut body) = self.agent.run(Request::from_parts(head, &*body))?.into_parts();
        let body = body.with_config().limit(ANSWER_BYTES_MAX).read_to_vec()?;
        Ok(Response::from_parts(head, body.into()))
    }
}

impl HttpClient for Collector {
    fn send_bytes<'a, 'b>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async {
            let answer = self.send(request);
            let why = match &answer {
                Ok(answer) if answer.status().is_success() => None,
                Ok(answer) => Some(format!("it answers {}", answer.status())),
                Err(error) => Some(error.to_string()),
            };
            if let Some(why) = why
                && self.log.check().is_allowed()
            {
                tracing::warn!(
                    why,
                    "the collector of --traces takes no spans: they are lost, after some tries; this is said once a minute"
                );
            }
            Ok(answer?)
        })
    }
}

/// Where a collector takes spans.
fn endpoint(text: &str) -> Result<String, String> {
    const PATH: &str = "/v1/traces";
    let uri = text.parse::<Uri>().ok();
    let uri = uri.filter(|uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.query().is_none());
    match uri.as_ref().and_then(Uri::authority).map(Authority::as_str) {
        // A secret here would be in messages.
        Some(authority) if !authority.is_empty() && !authority.contains('@') => {
            Ok(format!("{}{PATH}", text.trim_end_matches('/').trim_end_matches(PATH)))
        }
        _ => Err("write http:// or https:// and where it listens, such as http://127.0.0.1:4318".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_go_to_the_path_that_collectors_know() {
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
