//! The body budget of the listeners for checks: bounds the memory of bodies and responses that wait for their callers, and
//! revokes the parts of some where others need the memory.
//!
//! A body waits for its caller until it is whole, a long response until it is read, and a long command until its
//! replies are read. All listeners share one budget. Each peer and each connection has a share of it, so that one
//! caller cannot take what others need. The first 16 KiB of a body need none of it.
//!
//! An owner of part of the budget is not asked to give it back: the budget revokes its permit. An owner that is polled
//! sees that and ends with the reason; the task that runs an owner that is not polled drops it, see [`Revocation`]. A
//! response that is kept with its permit, see [`BodyPermit::keep`], is dropped with the revocation.

use std::{
    collections::HashMap,
    convert::Infallible,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tidegate_listener::PeerNetwork;
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep},
};

mod ledger;
mod permit;
mod permit_state;

use self::ledger::{BudgetLedger, BudgetLimits};
pub(crate) use self::permit::{BodyPermit, Revocation};
use super::{log_limiter::LogLimiter, timeouts::Timeouts};

/// Bytes of all listeners together. The reader of a body may have twice the memory that it is charged for.
const BUDGET_BYTES: usize = 64 << 20;
/// Bytes of one peer: it takes eight to fill the budget.
const PEER_BYTES: usize = BUDGET_BYTES / 8;
/// Bytes of one peer for responses that are being made, or for one longer response. They cannot be taken back
/// meanwhile. The longest response has 2.56 MB, so it takes 26 peers to keep the budget from others.
const WORK_BYTES: usize = PEER_BYTES / 4;
/// Bytes of one connection: four of the largest bodies, and two such connections of a peer side by side.
pub(crate) const CONNECTION_BYTES: usize = 4 * BODY_BYTES_MAX;
/// The largest HTTP body or gRPC message, in bytes.
pub(crate) const BODY_BYTES_MAX: usize = 1 << 20;
/// Bytes of a block. The budget is given out in blocks, so that it has few holders. The first block of a body is free.
pub(crate) const BLOCK_BYTES: usize = 16 << 10;
/// Bytes of the free blocks of one connection together, as many as a connection over gRPC buffers anyway. HTTP and the Redis
/// protocol read one body at a time. The number of connections is bounded.
const FREE_BYTES: usize = 16 * BLOCK_BYTES;
/// Sweeps for overdue holders within the shortest timeout of a holder.
const SWEEPS: u32 = 10;

/// The reason why a body has no part of the budget, or no longer has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BudgetRefusal {
    /// The share of the connection is taken, and none of its holders may be dropped yet.
    Connection,
    /// The share of the peer is taken, and none of its holders may be dropped yet.
    Peer,
    /// The whole budget is taken, and no holder may be dropped yet.
    Budget,
    /// Another body needed room, and this was the oldest holder.
    Dropped,
    /// The rest of the body did not come in time, or the response was not read in time.
    Overdue,
}

impl BudgetRefusal {
    pub(super) const ALL: [Self; 5] = [Self::Connection, Self::Peer, Self::Budget, Self::Dropped, Self::Overdue];

    /// The name in metrics and in the log.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Peer => "peer",
            Self::Budget => "budget",
            Self::Dropped => "dropped",
            Self::Overdue => "overdue",
        }
    }
}

/// The event that the owner of a permit waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PermitPhase {
    /// The rest of a body.
    Body,
    /// The caller reads the response.
    Response,
    /// The end of other work for its peer: the owner may be dropped, and is never overdue.
    Queue,
    /// The work of this process: the owner is neither dropped nor overdue.
    Work,
}

/// The body budget of all listeners of a process.
#[derive(Debug)]
pub(crate) struct BodyBudget {
    ledger: Mutex<BudgetLedger>,
    /// The blocks of [`WORK_BYTES`] of each peer whose responses are being made, or were.
    work: Mutex<HashMap<PeerNetwork, Weak<Semaphore>>>,
    sweep_period: Duration,
    connections: AtomicU64,
    log: LogLimiter,
}

impl BodyBudget {
    pub(crate) fn new(timeouts: &Timeouts) -> Self {
        Self {
            ledger: Mutex::new(BudgetLedger::new(BudgetLimits::new(timeouts))),
            work: Mutex::default(),
            sweep_period: timeouts.request.min(timeouts.unread_replies) / SWEEPS,
            connections: AtomicU64::new(0),
            log: LogLimiter::new(),
        }
    }

    /// Revokes permits of holders that have waited for too long, whether they are polled or not. It never ends.
    pub(crate) async fn revoke_overdue(self: Arc<Self>) -> Infallible {
        loop {
            sleep(self.sweep_period).await;
            self.ledger().sweep(Instant::now());
        }
    }

    pub(crate) fn taken(&self) -> usize {
        self.ledger().by_peer.sum()
    }

    /// Returns the count of each refusal, with its name.
    pub(crate) fn refused(&self) -> [(&'static str, u64); BudgetRefusal::ALL.len()] {
        let refused = self.ledger().refused;
        BudgetRefusal::ALL.map(|refusal| (refusal.name(), refused[refusal as usize]))
    }

    /// Returns the blocks that this peer may have for responses that are being made.
    fn work_blocks(&self, peer: PeerNetwork) -> Arc<Semaphore> {
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(blocks) = work.get(&peer).and_then(Weak::upgrade) {
            return blocks;
        }
        if work.len() == work.capacity() {
            work.retain(|_, blocks| blocks.strong_count() > 0);
        }
        let blocks = Arc::new(Semaphore::new(WORK_BYTES / BLOCK_BYTES));
        work.insert(peer, Arc::downgrade(&blocks));
        blocks
    }

    fn ledger(&self) -> MutexGuard<'_, BudgetLedger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Logs that a bound is reached, at most once a second.
    fn log_full(&self, peer: PeerNetwork, bound: &'static str, dropped: usize) {
        if let Some(left_out) = self.log.admit() {
            tracing::warn!(%peer, bound, dropped, left_out, "part of the body budget is full");
        }
    }
}

/// The share that one connection has of the budget.
#[derive(Debug)]
pub(crate) struct ConnectionShare {
    budget: Arc<BodyBudget>,
    pub(crate) peer: PeerNetwork,
    number: u64,
    /// Bytes of its bodies that are not charged.
    free: AtomicUsize,
    /// Open gRPC streams of the connection.
    streams: AtomicUsize,
}

impl ConnectionShare {
    pub(crate) fn new(budget: &Arc<BodyBudget>, peer: IpAddr) -> Arc<Self> {
        let number = budget.connections.fetch_add(1, Ordering::Relaxed);
        let (budget, peer) = (Arc::clone(budget), peer.into());
        Arc::new(Self { budget, peer, number, free: AtomicUsize::new(0), streams: AtomicUsize::new(0) })
    }

    pub(crate) fn streams(&self) -> usize {
        self.streams.load(Ordering::Relaxed)
    }

    /// Counts a stream until [`close_stream`](Self::close_stream).
    pub(crate) fn open_stream(&self) {
        self.streams.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn close_stream(&self) {
        self.streams.fetch_sub(1, Ordering::Relaxed);
    }

    /// Replaces the free bytes of a body. Returns how many it gets: all that it wants, as long as its connection has them.
    fn set_free(&self, before: usize, wanted: usize) -> usize {
        let mut granted = before;
        if wanted != before {
            let set = |free: usize| {
                granted = wanted.min(FREE_BYTES - (free - before));
                Some(free - before + granted)
            };
            // The closure always returns `Some`.
            let _ = self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, set);
        }
        granted
    }
}

#[cfg(test)]
mod tests;
