//! Starts the listeners of a process: HTTP, and gRPC and the Redis protocol where they are set.

use std::{
    io, iter,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use tidegate::clock::Clock;
use tidegate_listener::ConnectionCaps;
use tidegate_net::tls::Tls;
use tokio::{sync::watch, task::JoinSet};

use crate::{
    grpc::{self, Grpc},
    http::{self, BrowserAccess, Http},
    resp::{self, Resp},
    running::RunningListeners,
    shared::{
        body_budget::BodyBudget,
        decider::Decider,
        health_monitor::{HealthMonitor, PolicyFeed},
        listener_counts::ListenerCounts,
        metrics::Metrics,
        rejection_counts::{ListenerErrors, RejectionCounts},
        service_state::ServiceState,
        timeouts::Timeouts,
        tokens::Tokens,
        traces::Traces,
        worker_threads::WorkerThreads,
    },
};

/// The longest time of a stop, with its delay. What ends after the listeners has five seconds more.
const DRAIN: Duration = Duration::from_secs(25);
/// The longest delay of a stop, which leaves the rest of the time for the requests under way.
pub const DRAIN_DELAY_MAX: Duration = Duration::from_secs(20);

/// The listeners of a process before they start. They share one decider.
#[derive(Debug)]
pub struct Listeners<C> {
    decider: Arc<Decider<C>>,
    settings: ListenerSettings,
    http: Http,
    grpc: Option<Grpc>,
    resp: Option<Resp<C>>,
    rejections: Arc<RejectionCounts>,
}

/// The settings of all listeners of a process.
#[derive(Debug, Default)]
pub struct ListenerSettings {
    /// The number of threads of each listener; at least one.
    pub workers: usize,
    /// The certificate of the listeners; without one they have no TLS.
    pub tls: Option<Tls>,
    /// The tokens, one of which callers must send; without them all callers may check.
    pub tokens: Option<Tokens>,
    /// The tokens, one of which a scrape of the metrics must send; without them all callers may read the metrics.
    pub metrics_tokens: Option<Tokens>,
    /// The pages in browsers that may call over HTTP, and the host names under which they may.
    pub browsers: BrowserAccess,
    /// The time for which the listeners go on before a stop, reporting that they are not ready; at most [`DRAIN_DELAY_MAX`].
    pub drain_delay: Duration,
    /// The source of policies, if that is another process.
    pub source: Option<Arc<dyn PolicyFeed>>,
    /// The maker of the spans of requests; without it there are none.
    pub traces: Option<Traces>,
    /// The timeouts of the listeners.
    pub timeouts: Timeouts,
    /// The caps of connections, which each listener has for itself.
    pub connections: ConnectionCaps,
}

impl<C: Clock> Listeners<C> {
    /// Creates the listeners of a decider: HTTP, and those that are added.
    #[must_use]
    pub fn new(decider: Arc<Decider<C>>, settings: ListenerSettings, http: Http) -> Self {
        Self { decider, settings, http, grpc: None, resp: None, rejections: Arc::default() }
    }

    /// Adds a listener for gRPC.
    #[must_use]
    pub fn grpc(self, grpc: Grpc) -> Self {
        Self { grpc: Some(grpc), ..self }
    }

    /// Adds a listener for the Redis protocol.
    #[must_use]
    pub fn resp(self, resp: Resp<C>) -> Self {
        Self { resp: Some(resp), ..self }
    }

    /// Returns the counts of errors, which go on being counted while the listeners run.
    #[must_use]
    pub fn errors(&self) -> ListenerErrors {
        ListenerErrors::of(&self.decider, &self.rejections)
    }

    /// Starts the listeners, on a runtime of tokio.
    ///
    /// # Errors
    ///
    /// A socket cannot be listened on, or the certificate cannot be used.
    pub fn serve(self) -> io::Result<RunningListeners> {
        let Self { decider, settings, http, grpc, resp, rejections } = self;
        let ListenerSettings { tls, tokens, metrics_tokens, source, traces, timeouts, connections, .. } = settings;
        let (workers, drain) = (settings.workers.max(1), DRAIN.saturating_sub(settings.drain_delay));
        let http_listener = ListenerCounts::new(&http::KIND, connections, false);
        let grpc = grpc.map(|grpc| (grpc, ListenerCounts::new(&grpc::KIND, connections, false)));
        let resp = resp.map(|resp| (resp, ListenerCounts::new(&resp::KIND, connections, tokens.is_some())));
        let others = grpc.iter().map(|(_, listener)| listener).chain(resp.iter().map(|(_, listener)| listener));
        let all: Vec<&ListenerCounts> = iter::once(&http_listener).chain(others).collect();
        let latencies: Vec<_> = all.iter().map(|listener| listener.latencies.clone()).collect();
        let limiters = all.iter().map(|listener| Arc::clone(&listener.connections)).collect();
        let throttle = resp.as_ref().map(|(resp, listener)| resp.throttle_metrics(&listener.latencies));
        let body_budget = Arc::new(BodyBudget::new(&timeouts));
        let health_monitor =
            Arc::new(HealthMonitor::new(Arc::clone(&decider), latencies.clone(), throttle.clone(), source));
        let metrics =
            Metrics::new(&decider, &body_budget, limiters, latencies, throttle.as_ref(), &health_monitor, rejections);
        let is_draining = Arc::new(AtomicBool::new(false));
        let mut background = JoinSet::new();
        background.spawn(Arc::clone(&health_monitor).run(timeouts.health_sample));
        background.spawn(Arc::clone(&body_budget).revoke_overdue());
        for tokens in [&tokens, &metrics_tokens].into_iter().flatten() {
            background.spawn(tokens.clone().follow(timeouts.files));
        }
        let config = || tls.as_ref().map(Tls::config).transpose();
        let http_tls = config()?;
        let shared = Arc::new(ServiceState {
            decider,
            metrics,
            body_budget,
            health_monitor: Arc::clone(&health_monitor),
            tokens,
            metrics_tokens,
            traces,
            timeouts,
            is_draining: Arc::clone(&is_draining),
        });
        let (stop, _) = watch::channel(false);
        let http = http.serve(&shared, http_listener, settings.browsers, workers, http_tls, drain)?;
        let mut on_threads = JoinSet::new();
        let threads = |counts| -> io::Result<WorkerThreads> {
            let (tls, stop) = (config()?, stop.subscribe());
            Ok(WorkerThreads { counts, tls, count: workers, stop, drain, timeouts })
        };
        if let Some((grpc, counts)) = grpc {
            on_threads.spawn(grpc.serve(&shared, threads(counts)?)?);
        }
        if let Some((resp, counts)) = resp {
            on_threads.spawn(resp.serve(&shared, threads(counts)?)?);
        }
        if let Some(tls) = tls {
            let follow = async move { tls.follow_every(timeouts.files, &health_monitor.certificate).await };
            background.spawn(follow);
        }
        Ok(RunningListeners { http_handle: http.handle(), http: Some(http), on_threads, background, stop, is_draining })
    }
}
