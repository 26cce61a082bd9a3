//! The Redis protocol: `CL.THROTTLE` as redis-cell answers it, `THROTTLE` as throttlecrab does, and `TIDEGATE.CHECK` by the
//! policy; and what clients and people at a terminal need besides. Versions 2 and 3 of the protocol.
//!
//! Its parts, from the ground up: `command` (reads commands), `reply` (writes replies), `throttle` (limits whose numbers come
//! with the command), `error` (what is refused, and how that is told), `commands` (which there are), `session` (runs them),
//! `door` (a connection).

use std::{
    fmt,
    future::Future,
    io,
    net::TcpListener,
    pin::Pin,
    sync::{Arc, atomic::AtomicI64},
    time::Duration,
};

mod command_table;
mod connection;
mod error;
mod frame_reader;
mod reply_writer;
mod session;
mod throttle;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter},
};
use rustls::ServerConfig;
use tidegate::{
    KeyedLimiter, Limiter, Rate, RatedLimiter,
    clock::{Clock, SystemClock},
};
use tidegate_listener::ConnectionLimiter;
use tokio::sync::watch;

use self::{
    command_table::{DECIDING, ROUTES, THROTTLING},
    connection::{Door, Whole},
    session::Status,
};
use crate::{
    listeners::Shared,
    shared::{
        latency::{DoorKind, DoorLatencies},
        worker_threads::Lanes,
    },
};

/// How often a second others are asked about tokens: for one address, and in all.
const TRIES_OF_ONE: u64 = 5;
const TRIES: u64 = 50;
/// Addresses whose tries are counted by themselves.
const ADDRESSES_MAX: usize = 10_000;

/// What a client is told whose connection is refused, as Redis says it.
const REFUSAL: &[u8] = b"-ERR max number of clients reached\r\n";

/// As metrics know this door.
pub(crate) static KIND: DoorKind = DoorKind {
    name: "resp",
    routes: &ROUTES,
    deciding: &DECIDING,
    statuses: &[
        (Status::Done as u16, "ok"),
        (Status::Denied as u16, "denied"),
        (Status::Refused as u16, "error"),
        (Status::Failed as u16, "internal_error"),
    ],
};

/// The door of the Redis protocol.
#[derive(Debug)]
pub struct Resp<C> {
    /// Where connections come in.
    pub listener: TcpListener,
    /// Counts the keys whose limits come with the command; with groups, so that each caller has a share of their places.
    pub throttle: Arc<RatedLimiter<C>>,
    /// Who may reset keys; `None`: nobody.
    pub operators: Option<Arc<dyn Operators>>,
}

/// What becomes of a question about a token.
pub type IsOperator<'a> = Pin<Box<dyn Future<Output = Result<bool, String>> + Send + 'a>>;

/// Knows the tokens of operators: whoever gave them out, or asks him.
pub trait Operators: fmt::Debug + Send + Sync {
    /// Is this the token of an operator, or of somebody who may more? An error: it could not be found out; why.
    fn has<'a>(&'a self, token: &'a str) -> IsOperator<'a>;
}

/// What is counted of the limits that come with the command.
pub(crate) struct Throttled<C> {
    limiter: Arc<RatedLimiter<C>>,
    latencies: DoorLatencies,
}

impl<C> Clone for Throttled<C> {
    fn clone(&self) -> Self {
        Self { limiter: Arc::clone(&self.limiter), latencies: self.latencies.clone() }
    }
}

impl<C> fmt::Debug for Throttled<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Throttled")
    }
}

/// What [`Throttled`] counts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ThrottleCounts {
    /// Decisions.
    pub(crate) decided: u64,
    /// New keys that found no slot in the table.
    pub(crate) overflow: u64,
    /// Those that were denied.
    pub(crate) without_room: u64,
}

impl<C: Clock> Throttled<C> {
    pub(crate) fn counts(&self) -> ThrottleCounts {
        let decided = [Status::Done as u16, Status::Denied as u16];
        ThrottleCounts {
            decided: self.latencies.count(&THROTTLING, &decided),
            overflow: self.limiter.overflow_charges(),
            without_room: self.limiter.denied_without_room(),
        }
    }
}

impl<C: Clock> Collector for Throttled<C> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for (name, help, count) in [
            (
                "throttle_overflow_charges",
                "New keys of limits that come with the command for which their table had no slot",
                self.limiter.overflow_charges(),
            ),
            (
                "throttle_denied_without_room",
                "Those of these keys that were denied, because the overflow buckets were in use too",
                self.limiter.denied_without_room(),
            ),
            (
                "throttle_denied_by_share",
                "New keys of limits that come with the command that were denied because their caller had its share of the places",
                self.limiter.denied_by_share(),
            ),
        ] {
            ConstCounter::new(count).encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)?;
        }
        Ok(())
    }
}

impl<C: Clock> Resp<C> {
    /// What is counted of its limits.
    pub(crate) fn throttled(&self, latencies: &DoorLatencies) -> Throttled<C> {
        Throttled { limiter: Arc::clone(&self.throttle), latencies: latencies.clone() }
    }

    /// Opens the door; what it returns takes connections until all is over.
    pub(crate) fn serve(
        self,
        shared: &Arc<Shared<C>>,
        latencies: &DoorLatencies,
        workers: usize,
        tls: Option<ServerConfig>,
        (stop, drain): (watch::Receiver<bool>, Duration),
        connections: Arc<ConnectionLimiter>,
    ) -> io::Result<impl Future<Output = ()> + Send + 'static> {
        let Self { listener, throttle, operators } = self;
        let clock = SystemClock::new();
        let whole = Arc::new(Whole {
            throttle,
            operators,
            tries_of_one: KeyedLimiter::with_max_keys(Rate::per_second(TRIES_OF_ONE), ADDRESSES_MAX),
            tries: Limiter::new(Rate::per_second(TRIES)),
            connections: AtomicI64::new(0),
            started: clock.now(),
        });
        let (shared, latencies) = (Arc::clone(shared), latencies.clone());
        let (name, periods) = (KIND.name, shared.periods);
        let lanes = Lanes { listener, tls, connections, refusal: REFUSAL, name, count: workers, stop, drain, periods };
        lanes.open(move || Door {
            shared: Arc::clone(&shared),
            whole: Arc::clone(&whole),
            latencies: latencies.worker(),
            clock: SystemClock::new(),
        })
    }
}
