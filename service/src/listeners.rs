//! The doors of a process: what they share, how they are opened, and how they end.

use std::{
    io,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use tidegate::clock::Clock;
use tidegate_listener::{ConnectionCaps, ConnectionLimiter, PeerNetwork};
use tidegate_net::tls::Tls;
use tokio::{sync::watch, task::JoinSet};

use crate::{
    grpc::{self, Grpc},
    http::{
        error::Error,
        {self, Browsers, Http},
    },
    resp::{self, Resp},
    running::Running,
    shared::{
        body_budget::BodyBudget,
        caller_shares::Caller,
        decider::Decider,
        health_monitor::{Source, Watch},
        latency::DoorLatencies,
        metrics::Metrics,
        rejection_counts::{Errors, Refusals},
        timeouts::Periods,
        tokens::{CHECK_TOKENS, Tokens},
        traces::Traces,
    },
};

/// How long a stop may take at most, with its delay. Whatever ends after the doors has five seconds more.
const DRAIN: Duration = Duration::from_secs(25);
/// The longest delay of a stop: what is left is for the requests under way.
pub const DRAIN_DELAY_MAX: Duration = Duration::from_secs(20);

/// The doors of a process, by which others ask one decider.
#[derive(Debug)]
pub struct Doors<C> {
    decider: Arc<Decider<C>>,
    settings: Settings,
    http: Http,
    grpc: Option<Grpc>,
    resp: Option<Resp<C>>,
    refusals: Arc<Refusals>,
}

/// How doors listen, and to whom.
#[derive(Debug, Default)]
pub struct Settings {
    /// How many threads answer at each door; one at least.
    pub workers: usize,
    /// The certificate of the listeners; without one they speak no TLS.
    pub tls: Option<Tls>,
    /// Tokens, one of which callers have to bring; without them everybody may ask.
    pub tokens: Option<Tokens>,
    /// Tokens, one of which a scrape of the metrics has to bring; without them everybody may read those.
    pub metrics_tokens: Option<Tokens>,
    /// Which pages in browsers may call over HTTP, and under which names.
    pub browsers: Browsers,
    /// How long they go on when they are to stop, saying that they are not ready; at most [`DRAIN_DELAY_MAX`].
    pub drain_delay: Duration,
    /// Where policies come from, if that is another process.
    pub source: Option<Arc<dyn Source>>,
    /// Begins the spans of requests; without it there are none.
    pub traces: Option<Traces>,
    /// How long the listeners wait for their peers.
    pub periods: Periods,
    /// The caps of connections, of each listener by itself.
    pub connections: ConnectionCaps,
}

/// What all doors know.
#[derive(Debug)]
pub(crate) struct Shared<C> {
    pub(crate) decider: Arc<Decider<C>>,
    pub(crate) metrics: Metrics,
    pub(crate) body_budget: Arc<BodyBudget>,
    pub(crate) watch: Arc<Watch<C>>,
    pub(crate) tokens: Option<Tokens>,
    pub(crate) metrics_tokens: Option<Tokens>,
    pub(crate) browsers: Browsers,
    pub(crate) traces: Option<Traces>,
    pub(crate) periods: Periods,
    /// Others are to ask elsewhere.
    pub(crate) is_leaving: Arc<AtomicBool>,
}

impl<C> Shared<C> {
    /// Finds the caller at this peer that brings these tokens. Where the server has none, every caller has the usual rights. An
    /// error: none of them is known.
    pub(crate) fn caller<'t>(
        &self,
        peer: PeerNetwork,
        brought: impl IntoIterator<Item = &'t [u8]>,
    ) -> Result<Caller, Error> {
        if self.tokens.is_none() {
            return Ok(Caller::without_token(peer));
        }
        self.caller_by_token(peer, brought).ok_or(Error::Token(CHECK_TOKENS))
    }

    /// Finds the caller at this peer by the first of these tokens that is known; `None`: none of them is.
    pub(crate) fn caller_by_token<'t>(
        &self,
        peer: PeerNetwork,
        brought: impl IntoIterator<Item = &'t [u8]>,
    ) -> Option<Caller> {
        let tokens = self.tokens.as_ref()?;
        let good = brought.into_iter().find_map(|token| tokens.find(token))?;
        Some(Caller::with_token(peer, &good))
    }

    /// Returns whether a scrape that brings these tokens may read the metrics.
    pub(crate) fn may_scrape<'t>(&self, brought: impl IntoIterator<Item = &'t [u8]>) -> bool {
        self.metrics_tokens.as_ref().is_none_or(|tokens| brought.into_iter().any(|token| tokens.has(token)))
    }
}

impl<C: Clock> Doors<C> {
    /// Of a decider: HTTP, and those that are added.
    #[must_use]
    pub fn new(decider: Arc<Decider<C>>, settings: Settings, http: Http) -> Self {
        Self { decider, settings, http, grpc: None, resp: None, refusals: Arc::default() }
    }

    /// With gRPC.
    #[must_use]
    pub fn grpc(self, grpc: Grpc) -> Self {
        Self { grpc: Some(grpc), ..self }
    }

    /// With the Redis protocol.
    #[must_use]
    pub fn resp(self, resp: Resp<C>) -> Self {
        Self { resp: Some(resp), ..self }
    }

    /// What will be counted of their errors, also while they are open.
    #[must_use]
    pub fn errors(&self) -> Errors {
        Errors::of(&self.decider, &self.refusals)
    }

    /// Opens them, on a runtime of tokio. An error: one cannot listen.
    pub fn serve(self) -> io::Result<Running> {
        let Self { decider, settings, http, grpc, resp, refusals } = self;
        let Settings {
            workers,
            tls,
            tokens,
            metrics_tokens,
            browsers,
            drain_delay,
            source,
            traces,
            periods,
            connections,
        } = settings;
        let (workers, drain) = (workers.max(1), DRAIN.saturating_sub(drain_delay));
        let of_http = DoorLatencies::new(&http::KIND);
        let grpc = grpc.map(|grpc| (grpc, DoorLatencies::new(&grpc::KIND)));
        let resp = resp.map(|resp| (resp, DoorLatencies::new(&resp::KIND)));
        let mut latencies = vec![of_http.clone()];
        latencies.extend(grpc.as_ref().map(|(_, of_grpc)| of_grpc.clone()));
        latencies.extend(resp.as_ref().map(|(_, of_resp)| of_resp.clone()));
        let http_connections = ConnectionLimiter::new(http::KIND.name, connections, false);
        let grpc_connections = ConnectionLimiter::new(grpc::KIND.name, connections, false);
        let resp_connections = ConnectionLimiter::new(resp::KIND.name, connections, tokens.is_some());
        let mut limiters = vec![Arc::clone(&http_connections)];
        limiters.extend(grpc.is_some().then(|| Arc::clone(&grpc_connections)));
        limiters.extend(resp.is_some().then(|| Arc::clone(&resp_connections)));
        let body_budget = Arc::new(BodyBudget::new(&periods));
        let throttled = resp.as_ref().map(|(resp, of_resp)| resp.throttled(of_resp));
        let watch = Arc::new(Watch::new(Arc::clone(&decider), latencies.clone(), throttled.clone(), source));
        let metrics = Metrics::new(&decider, &body_budget, limiters, latencies, throttled.as_ref(), &watch, refusals);
        let is_leaving = Arc::new(AtomicBool::new(false));
        let mut beside = JoinSet::new();
        beside.spawn(Arc::clone(&watch).follow(periods.health_sample));
        beside.spawn(Arc::clone(&body_budget).follow());
        for tokens in [&tokens, &metrics_tokens].into_iter().flatten() {
            beside.spawn(tokens.clone().follow(periods.files));
        }
        let config = || tls.as_ref().map(Tls::config).transpose();
        let for_http = config()?;
        let shared = Arc::new(Shared {
            decider,
            metrics,
            body_budget,
            watch: Arc::clone(&watch),
            tokens,
            metrics_tokens,
            browsers,
            traces,
            periods,
            is_leaving: Arc::clone(&is_leaving),
        });
        let (stop, _) = watch::channel(false);
        let http = http.serve(&shared, &of_http, workers, for_http, drain, http_connections)?;
        let mut lanes = JoinSet::new();
        if let Some((grpc, of_grpc)) = grpc {
            let until = (stop.subscribe(), drain);
            lanes.spawn(grpc.serve(&shared, &of_grpc, workers, config()?, until, grpc_connections)?);
        }
        if let Some((resp, of_resp)) = resp {
            let until = (stop.subscribe(), drain);
            lanes.spawn(resp.serve(&shared, &of_resp, workers, config()?, until, resp_connections)?);
        }
        if let Some(tls) = tls {
            beside.spawn(async move { tls.follow_every(periods.files, &watch.certificate).await });
        }
        Ok(Running { http_handle: http.handle(), http: Some(http), lanes, beside, stop, is_leaving })
    }
}
