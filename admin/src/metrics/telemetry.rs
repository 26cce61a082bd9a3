//! What the admin server counts of itself, in the text format of `OpenMetrics`. Labels have a fixed number of values: no
//! names of people, limits or keys.

use std::{fmt, sync::Arc};

use prometheus_client::{
    encoding::{EncodeLabelSet, text},
    metrics::{counter::Counter, family::Family, gauge::Gauge, info::Info},
    registry::Registry,
};
use tidegate_listener::{ConnectionCollector, ConnectionLimiter};

use crate::{domain::error::Problem, store::database_metrics::Meter};

/// The media type of [`Telemetry::text`].
pub(crate) const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All of it.
#[derive(Debug)]
pub(crate) struct Telemetry {
    registry: Registry,
    requests: Family<Status, Counter>,
    publishes: Family<Outcome, Counter>,
    sign_ins: Family<Outcome, Counter>,
    /// Tries to sign in that were refused because of those before them for the same name, from whatever addresses.
    pub(crate) limited_by_name: Counter,
    pub(crate) policy_version: Gauge,
    pub(crate) sessions: Gauge,
    pub(crate) streams: Gauge,
    pub(crate) alerts: Gauge,
    figures: Family<Outcome, Gauge>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct Status {
    status: u16,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct Outcome {
    result: &'static str,
}

impl Telemetry {
    pub(crate) fn new(meter: &Meter, connections: &Arc<ConnectionLimiter>) -> Self {
        let (requests, publishes, figures) = (Family::default(), Family::default(), Family::default());
        let (sign_ins, limited_by_name): (_, Counter) = (Family::default(), Counter::default());
        let gauges: [Gauge; 4] = std::array::from_fn(|_| Gauge::default());
        let mut registry = Registry::with_prefix("tidegate_admin");
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "This build of Tidegate", build);
        let [policy_version, sessions, streams, alerts] = gauges.clone();
        registry.register("policy_version", "Version of the policy in force", policy_version);
        registry.register("sessions", "Sessions that have not ended", sessions);
        registry.register("streams", "Event streams that are open", streams);
        registry.register_collector(Box::new(ConnectionCollector(vec![Arc::clone(connections)])));
        registry.register("alerts", "Alerts that are open", alerts);
        registry.register("http_requests", "Requests over HTTP by status", Family::clone(&requests));
        registry.register("publishes", "Publishes by result", Family::clone(&publishes));
        registry.register("sign_ins", "Tries to sign in by a password, by result", Family::clone(&sign_ins));
        let help = "Tries to sign in that were refused because of those before them for the same name, from anywhere";
        registry.register("sign_ins_limited_by_name", help, limited_by_name.clone());
        let help = "Minutes of figures since the start: written, given up, and tries that failed";
        registry.register("figure_minutes", help, Family::clone(&figures));
        let help = "What the database took: the wait for one's turn to change something, a commit, reading a session";
        registry.register("store_seconds", help, Family::clone(&meter.seconds));
        registry.register("store_errors", "What of that failed", Family::clone(&meter.errors));
        let [policy_version, sessions, streams, alerts] = gauges;
        Self {
            registry,
            requests,
            publishes,
            sign_ins,
            limited_by_name,
            policy_version,
            sessions,
            streams,
            alerts,
            figures,
        }
    }

    /// A request was answered.
    pub(crate) fn answered(&self, status: u16) {
        self.requests.get_or_create(&Status { status }).inc();
    }

    /// A publish came to its end.
    pub(crate) fn published<T>(&self, outcome: &Result<T, Problem>) {
        let result = match outcome {
            Ok(_) => "published",
            Err(Problem::Conflict(_) | Problem::PreconditionRequired(_)) => "conflict",
            Err(Problem::Internal(_) | Problem::Storage(_)) => "failed",
            Err(_) => "refused",
        };
        self.publishes.get_or_create(&Outcome { result }).inc();
    }

    /// A try to sign in by a password came to its end.
    pub(crate) fn signed_in<T>(&self, outcome: &Result<T, Problem>) {
        let result = match outcome {
            Ok(_) => "done",
            Err(Problem::WrongCredentials { .. }) => "wrong",
            Err(Problem::CodeNeeded) => "code_needed",
            Err(Problem::WrongCode { .. }) => "wrong_code",
            Err(Problem::TooMany { .. }) => "limited",
            Err(_) => "failed",
        };
        self.sign_ins.get_or_create(&Outcome { result }).inc();
    }

    /// Minutes of figures, as of now.
    pub(crate) fn figures(&self, result: &'static str, count: u64) {
        self.figures.get_or_create(&Outcome { result }).set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// All of it, as a scrape reads it.
    pub(crate) fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

/// What the publisher and the server share.
pub(crate) type Shared = Arc<Telemetry>;
