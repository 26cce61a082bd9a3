//! The RESP listener: its settings, and its start.

use std::{
    future::Future,
    io,
    net::TcpListener,
    sync::{Arc, atomic::AtomicI64},
};

use tidegate::{
    KeyedLimiter, Limiter, Rate, RatedLimiter,
    clock::{Clock, SystemClock},
};

use super::{
    command_table::{Status, THROTTLING},
    worker::{RespState, RespWorker},
};
use crate::shared::{
    latency::ListenerLatencies, operators::Operators, service_state::ServiceState, throttle_metrics::ThrottleMetrics,
    worker_threads::WorkerThreads,
};

/// Queries about operators' tokens a second for one peer.
const PEER_QUERIES: u64 = 5;
/// Queries about operators' tokens a second in all.
const QUERIES: u64 = 50;
/// The most peers whose queries are counted separately.
const PEERS_MAX: usize = 10_000;

/// The reply to a client whose connection is refused, in the words of Redis.
const REFUSAL: &[u8] = b"-ERR max number of clients reached\r\n";

/// The RESP listener, before it starts.
#[derive(Debug)]
pub struct Resp<C> {
    /// The socket that accepts connections.
    pub listener: TcpListener,
    /// The limiter of the keys whose limits come with the command; with groups, so that each caller has a share of their places.
    pub throttle: Arc<RatedLimiter<C>>,
    /// The verifier of operators' tokens; without it no such token resets keys.
    pub operators: Option<Arc<dyn Operators>>,
}

impl<C: Clock> Resp<C> {
    /// Returns the metrics of the limits that come with the command.
    pub(crate) fn throttle_metrics(&self, latencies: &ListenerLatencies) -> ThrottleMetrics<C> {
        ThrottleMetrics {
            limiter: Arc::clone(&self.throttle),
            latencies: latencies.clone(),
            routes: &THROTTLING,
            statuses: [Status::Done as u16, Status::Denied as u16],
        }
    }

    /// Starts the listener. The future that it returns resolves when all connections have ended after `stop`.
    pub(crate) fn serve(
        self,
        shared: &Arc<ServiceState<C>>,
        threads: WorkerThreads,
    ) -> io::Result<impl Future<Output = ()> + Send + 'static> {
        let Self { listener, throttle, operators } = self;
        let resp = Arc::new(RespState {
            throttle,
            operators,
            peer_queries: KeyedLimiter::with_max_keys(Rate::per_second(PEER_QUERIES), PEERS_MAX),
            queries: Limiter::new(Rate::per_second(QUERIES)),
            connections: AtomicI64::new(0),
            started_at: SystemClock::new().now(),
        });
        let shared = Arc::clone(shared);
        threads.start(listener, REFUSAL, move |latencies| RespWorker {
            shared: Arc::clone(&shared),
            resp: Arc::clone(&resp),
            latencies: latencies.worker(),
            clock: SystemClock::new(),
        })
    }
}
