//! The state of a worker thread of the RESP listener: metrics, `INFO`, and the queries for operators' tokens.

use std::{
    net::SocketAddr,
    str,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use tidegate::{
    KeyedLimiter, Limiter, RatedLimiter,
    clock::{Clock, SystemClock},
    time::Timestamp,
};
use tidegate_listener::PeerNetwork;
use tokio::time::timeout;

use super::{command_table::KIND, error::Error};
use crate::shared::{latency::WorkerLatencies, operators::Operators, service_state::ServiceState};

/// The longest token of an operator.
const TOKEN_BYTES_MAX: usize = 1_024;
/// The prefix of all tokens of the admin server.
const TOKEN_PREFIX: &str = "tg_";

/// The state of a worker thread, which its connections share.
pub(super) struct RespWorker<C> {
    pub(super) shared: Arc<ServiceState<C>>,
    pub(super) resp: Arc<RespState<C>>,
    pub(super) latencies: Arc<WorkerLatencies>,
    pub(super) clock: SystemClock,
}

/// The state that all worker threads of the listener share.
pub(super) struct RespState<C> {
    pub(super) throttle: Arc<RatedLimiter<C>>,
    pub(super) operators: Option<Arc<dyn Operators>>,
    /// The limit of queries about operators' tokens, for each peer.
    pub(super) peer_queries: KeyedLimiter,
    /// The limit of these queries in all.
    pub(super) queries: Limiter,
    pub(super) connections: AtomicI64,
    pub(super) started_at: Timestamp,
}

impl<C: Clock> RespWorker<C> {
    /// Returns the ID of a new connection.
    pub(super) fn next_connection_id(&self) -> i64 {
        self.resp.connections.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Counts and logs a rejected command.
    pub(super) fn count_rejection(&self, route: &'static str, error: &Error) {
        tracing::debug!(route, code = error.code(), "refused");
        self.shared.metrics.count_rejection(KIND.name, error.code());
        if matches!(error, Error::Internal) {
            self.shared.health_monitor.count_failure();
        }
    }

    /// Returns a token that the server's file does not have, if it may be an operator's and may be queried for now.
    pub(super) fn operator_token(&self, token: &[u8], peer: SocketAddr) -> Result<String, Error> {
        let RespState { operators, peer_queries, queries, .. } = &*self.resp;
        if operators.is_none() {
            return Err(if self.shared.tokens.is_some() { Error::WrongToken } else { Error::NoTokens });
        }
        let token = str::from_utf8(token).ok();
        let token = token.filter(|token| token.len() <= TOKEN_BYTES_MAX && token.starts_with(TOKEN_PREFIX));
        let token = token.ok_or(Error::WrongToken)?;
        if peer_queries.check(PeerNetwork::from(peer.ip()).address()).is_allowed() && queries.check().is_allowed() {
            Ok(token.to_owned())
        } else {
            Err(Error::TooManyTries)
        }
    }

    pub(super) async fn is_operator(&self, token: &str) -> Result<bool, String> {
        let Some(operators) = &self.resp.operators else { return Ok(false) };
        let answer = timeout(self.shared.timeouts.operator_answer, operators.has(token)).await;
        answer.unwrap_or_else(|_| Err("it did not answer in time".to_owned()))
    }

    /// Returns the reply to `INFO`: the sections that are named, or all.
    pub(super) fn info(&self, sections: &[&[u8]]) -> String {
        let engine = self.shared.decider.engine();
        let totals = engine.totals();
        let version = env!("CARGO_PKG_VERSION");
        let uptime_s = self.clock.now().duration_since(self.resp.started_at).as_secs();
        let server = format!(
            "# Server\r\nredis_version:7.0.0\r\nredis_mode:standalone\r\ntidegate_version:{version}\r\n\
             process_id:{}\r\nuptime_in_seconds:{uptime_s}\r\n",
            std::process::id()
        );
        let stats = format!(
            "# Stats\r\ntotal_connections_received:{}\r\npolicy_version:{}\r\ndecisions_allowed:{}\r\n\
             decisions_denied:{}\r\nthrottle_overflow_charges:{}\r\n",
            self.resp.connections.load(Ordering::Relaxed),
            engine.version(),
            totals.allowed,
            totals.denied,
            self.resp.throttle.overflow_charges(),
        );
        let is_named = |section: &str| {
            let names = [section, "default", "all", "everything"];
            sections.is_empty()
                || sections.iter().any(|given| names.iter().any(|name| name.as_bytes().eq_ignore_ascii_case(given)))
        };
        let parts = [("server", server), ("stats", stats)].into_iter().filter(|(name, _)| is_named(name));
        parts.map(|(_, text)| text).collect::<Vec<_>>().join("\r\n")
    }
}
