//! The body budget: how many bytes of bodies may wait for their callers, and which of them end where others need the memory.
//!
//! What waits for its caller is a body that is not whole yet, a long answer that is not read, or a long command whose replies
//! are not read. All listeners share one budget. Each peer and each connection has a share of it, so that one caller cannot take
//! what others need. The first 16 KiB of a body need none of it.
//!
//! A holder of part of the budget is never asked to give it back: the budget revokes its permit. A holder that is polled sees
//! that and says why it ends; whatever runs one that is not polled drops it, see [`Revocation`]. An answer that is kept with its
//! permit, see [`BodyPermit::keep`], goes with the permit.

use std::{
    collections::{BTreeMap, HashMap},
    convert::Infallible,
    future::poll_fn,
    mem,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use actix_web::web::Bytes;
use futures_util::task::AtomicWaker;
use tidegate_listener::{OwnerCounts, PeerNetwork};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep},
};

use crate::{
    http::error::BODY_BYTES_MAX,
    shared::{degraded::LogLimiter, timeouts::Periods},
};

/// Bytes of all listeners together. What reads a body may have twice the memory that it is charged for.
const BUDGET_BYTES: usize = 64 << 20;
/// Bytes of one peer: it takes eight to fill the budget.
const PEER_BYTES: usize = BUDGET_BYTES / 8;
/// Bytes of one peer for answers that are being worked out, or one answer that is longer. They cannot be taken back meanwhile. The
/// longest is 2.56 MB, so it takes 26 peers to keep the budget from others.
const WORK_BYTES: usize = PEER_BYTES / 4;
/// Bytes of one connection: four of the largest bodies, and two such connections of a peer side by side.
pub(crate) const CONNECTION_BYTES: usize = 4 * BODY_BYTES_MAX;
/// Bytes of a block. The budget is given out in blocks, so that it has few holders. The first block of a body is free.
pub(crate) const BLOCK_BYTES: usize = 16 << 10;
/// Bytes of the free blocks of one connection together, as many as a connection over gRPC buffers anyway. HTTP and the Redis
/// protocol read one body at a time. The number of connections is bounded.
const FREE_BYTES: usize = 16 * BLOCK_BYTES;
/// How many times the budget looks for overdue holders in the shortest period that a holder may have.
const SWEEPS: u32 = 10;

/// The reason why a body has no part of the budget, or has it no longer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BudgetRefusal {
    /// The share of its connection is taken, and nothing of it may be dropped yet.
    Connection,
    /// The same of the share of its peer.
    Peer,
    /// The same of the whole budget.
    Budget,
    /// Another one needed room, and this was the oldest holder.
    Dropped,
    /// The rest of the body did not come in time, or the answer was not read in time.
    Overdue,
}

impl BudgetRefusal {
    const ALL: [Self; 5] = [Self::Connection, Self::Peer, Self::Budget, Self::Dropped, Self::Overdue];

    /// The name in metrics and in the log.
    fn name(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Peer => "peer",
            Self::Budget => "budget",
            Self::Dropped => "dropped",
            Self::Overdue => "overdue",
        }
    }
}

/// The event that the holder of a permit waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PermitPhase {
    /// The rest of a body.
    Body,
    /// The caller reads the answer.
    Answer,
    /// The end of other work of its peer: the holder may be dropped, and is never overdue.
    Queue,
    /// The work of this process: the holder is neither dropped nor overdue.
    Work,
}

/// The bounds of a budget.
#[derive(Clone, Copy, Debug)]
struct BudgetLimits {
    budget: usize,
    peer: usize,
    connection: usize,
    /// How long a holder has waited when it may be dropped for another one.
    grace: Duration,
    /// How long a holder may wait for the rest of a body.
    body: Duration,
    /// How long a holder may wait until its answer is read.
    answer: Duration,
}

impl BudgetLimits {
    fn new(periods: &Periods) -> Self {
        Self {
            budget: BUDGET_BYTES,
            peer: PEER_BYTES,
            connection: CONNECTION_BYTES,
            grace: periods.body_grace,
            body: periods.request,
            answer: periods.unread_replies,
        }
    }
}

/// A holder of part of the budget.
#[derive(Debug)]
struct BodyHolder {
    peer: PeerNetwork,
    connection: u64,
    bytes: usize,
    phase: PermitPhase,
    /// When its phase began.
    since: Instant,
    state: Arc<PermitState>,
}

/// The record of who holds how much: plain data, to which the time is given.
#[derive(Debug)]
struct BudgetLedger {
    limits: BudgetLimits,
    /// The holders in the order in which they were first charged.
    holders: BTreeMap<u64, BodyHolder>,
    last_number: u64,
    /// The bytes of each peer, and of all.
    by_peer: OwnerCounts<PeerNetwork>,
    by_connection: OwnerCounts<u64>,
    /// How often each refusal was given, in the order of [`BudgetRefusal::ALL`].
    refused: [u64; BudgetRefusal::ALL.len()],
}

impl BudgetLedger {
    fn new(limits: BudgetLimits) -> Self {
        Self {
            limits,
            holders: BTreeMap::new(),
            last_number: 0,
            by_peer: OwnerCounts::default(),
            by_connection: OwnerCounts::default(),
            refused: [0; BudgetRefusal::ALL.len()],
        }
    }

    /// Charges a new holder for the bytes that it is to have. Returns its number, and how many others were dropped for it.
    fn admit(&mut self, holder: BodyHolder) -> Result<(u64, usize), BudgetRefusal> {
        let bytes = holder.bytes;
        let dropped = self.make_room((holder.peer, holder.connection), None, bytes, holder.since)?;
        self.last_number += 1;
        self.holders.insert(self.last_number, BodyHolder { bytes: 0, ..holder });
        self.set_bytes(self.last_number, bytes);
        Ok((self.last_number, dropped))
    }

    /// Charges a holder for `bytes` in all. Returns how many others were dropped for it.
    fn resize(&mut self, number: u64, bytes: usize, now: Instant) -> Result<usize, BudgetRefusal> {
        let Some(holder) = self.holders.get(&number) else { return Ok(0) };
        let (of, more) = ((holder.peer, holder.connection), bytes.saturating_sub(holder.bytes));
        let dropped = if more > 0 { self.make_room(of, Some(number), more, now)? } else { 0 };
        self.set_bytes(number, bytes);
        Ok(dropped)
    }

    /// Drops holders until there is room for `more` bytes of this peer and connection, for the holder `number` if there is one.
    /// Returns how many were dropped; where that would not be enough, none is.
    fn make_room(
        &mut self,
        of: (PeerNetwork, u64),
        number: Option<u64>,
        more: usize,
        now: Instant,
    ) -> Result<usize, BudgetRefusal> {
        match self.victims(of, number, more, now) {
            Ok(victims) => {
                for victim in &victims {
                    self.revoke(*victim, BudgetRefusal::Dropped);
                }
                Ok(victims.len())
            }
            Err(refusal) => {
                self.count(refusal);
                Err(refusal)
            }
        }
    }

    /// Returns the holders that have to go for that. The oldest go first: those of the connection while its share is exceeded,
    /// then those of the peer. Where the budget is exceeded, those of the peer that has most go first, if it has more than this
    /// peer would have, so that many peers cannot keep out one that has little; then those of this peer, then any.
    ///
    /// One that has not waited for the grace is spared, unless its peer has most.
    fn victims(
        &self,
        (peer, connection): (PeerNetwork, u64),
        number: Option<u64>,
        more: usize,
        now: Instant,
    ) -> Result<Vec<u64>, BudgetRefusal> {
        let excess = |taken: usize, bound: usize| (taken + more).saturating_sub(bound);
        let taken = self.by_peer.of(&peer);
        let of_connection = excess(self.by_connection.of(&connection), self.limits.connection);
        let of_peer = excess(taken, self.limits.peer);
        let of_all = excess(self.by_peer.sum(), self.limits.budget);
        let (mut victims, mut freed) = (Vec::new(), 0);
        if of_connection + of_peer + of_all == 0 {
            return Ok(victims);
        }
        let largest = self.by_peer.iter().max_by_key(|&(_, taken)| taken);
        let largest = largest.filter(|&(_, largest)| largest > taken + more).map(|(peer, _)| *peer);
        // What was chosen before counts: it is part of each wider choice.
        let mut choose = |missing: usize, may_go: &dyn Fn(&BodyHolder) -> bool| {
            for (&other, holder) in &self.holders {
                if freed >= missing {
                    break;
                }
                let is_left = Some(other) != number && holder.phase != PermitPhase::Work && !victims.contains(&other);
                if is_left && may_go(holder) {
                    victims.push(other);
                    freed += holder.bytes;
                }
            }
            freed >= missing
        };
        let is_old = |holder: &BodyHolder| now >= holder.since + self.limits.grace;
        let is_old_of_peer = |holder: &BodyHolder| holder.peer == peer && is_old(holder);
        if !choose(of_connection, &|holder| holder.connection == connection && is_old(holder)) {
            return Err(BudgetRefusal::Connection);
        }
        if !choose(of_peer, &is_old_of_peer) {
            return Err(BudgetRefusal::Peer);
        }
        let is_enough = (largest.is_some() && choose(of_all, &|holder| Some(holder.peer) == largest))
            || choose(of_all, &is_old_of_peer)
            || choose(of_all, &is_old);
        if is_enough { Ok(victims) } else { Err(BudgetRefusal::Budget) }
    }

    /// Revokes what has waited for too long.
    fn sweep(&mut self, now: Instant) {
        let BudgetLimits { body, answer, .. } = self.limits;
        let is_overdue = |holder: &BodyHolder| match holder.phase {
            PermitPhase::Body => now >= holder.since + body,
            PermitPhase::Answer => now >= holder.since + answer,
            PermitPhase::Queue | PermitPhase::Work => false,
        };
        let overdue = self.holders.iter().filter(|&(_, holder)| is_overdue(holder)).map(|(number, _)| *number);
        for number in overdue.collect::<Vec<_>>() {
            self.revoke(number, BudgetRefusal::Overdue);
        }
    }

    /// Begins another phase of a holder, whose time begins anew.
    fn enter(&mut self, number: u64, phase: PermitPhase, now: Instant) {
        if let Some(holder) = self.holders.get_mut(&number).filter(|holder| holder.phase != phase) {
            (holder.phase, holder.since) = (phase, now);
        }
    }

    fn revoke(&mut self, number: u64, refusal: BudgetRefusal) {
        if let Some(holder) = self.holders.get(&number) {
            holder.state.revoke(refusal);
            self.set_bytes(number, 0);
            self.count(refusal);
        }
    }

    /// Sets what a holder has; one that has nothing is no holder.
    fn set_bytes(&mut self, number: u64, bytes: usize) {
        let Some(holder) = self.holders.get_mut(&number) else { return };
        let before = mem::replace(&mut holder.bytes, bytes);
        let (peer, connection) = (holder.peer, holder.connection);
        if bytes == 0 {
            self.holders.remove(&number);
        }
        // Added first: an owner that keeps some stays in the map.
        self.by_peer.add(peer, bytes);
        self.by_peer.subtract(&peer, before);
        self.by_connection.add(connection, bytes);
        self.by_connection.subtract(&connection, before);
    }

    fn count(&mut self, refusal: BudgetRefusal) {
        self.refused[refusal as usize] += 1;
    }
}

/// The body budget of all listeners of a process.
#[derive(Debug)]
pub(crate) struct BodyBudget {
    ledger: Mutex<BudgetLedger>,
    /// The blocks of [`WORK_BYTES`] of each peer that works, or worked.
    work: Mutex<HashMap<PeerNetwork, Weak<Semaphore>>>,
    sweep_period: Duration,
    connections: AtomicU64,
    log: LogLimiter,
}

impl BodyBudget {
    pub(crate) fn new(periods: &Periods) -> Self {
        Self {
            ledger: Mutex::new(BudgetLedger::new(BudgetLimits::new(periods))),
            work: Mutex::default(),
            sweep_period: periods.request.min(periods.unread_replies) / SWEEPS,
            connections: AtomicU64::new(0),
            log: LogLimiter::new(),
        }
    }

    /// Revokes again and again what has waited for too long, whether it is polled or not.
    pub(crate) async fn follow(self: Arc<Self>) -> Infallible {
        loop {
            sleep(self.sweep_period).await;
            self.ledger().sweep(Instant::now());
        }
    }

    /// Returns how many bytes are taken.
    pub(crate) fn taken(&self) -> usize {
        self.ledger().by_peer.sum()
    }

    /// Returns how often each refusal was given, by its name.
    pub(crate) fn refused(&self) -> [(&'static str, u64); BudgetRefusal::ALL.len()] {
        let refused = self.ledger().refused;
        BudgetRefusal::ALL.map(|refusal| (refusal.name(), refused[refusal as usize]))
    }

    /// Returns the blocks that this peer may have for work.
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

    /// Logs that a bound is reached, once a second at most.
    fn log_full(&self, peer: PeerNetwork, bound: &'static str, dropped: usize) {
        if let Some(left_out) = self.log.is_time() {
            tracing::warn!(%peer, bound, dropped, left_out, "part of the body budget is full");
        }
    }
}

/// The share of one connection.
#[derive(Debug)]
pub(crate) struct ConnectionShare {
    budget: Arc<BodyBudget>,
    peer: PeerNetwork,
    number: u64,
    /// Bytes of its bodies that are free.
    free: AtomicUsize,
    /// Streams of gRPC that are open on it.
    streams: AtomicUsize,
}

impl ConnectionShare {
    pub(crate) fn new(budget: &Arc<BodyBudget>, peer: IpAddr) -> Arc<Self> {
        let number = budget.connections.fetch_add(1, Ordering::Relaxed);
        let (budget, peer) = (Arc::clone(budget), peer.into());
        Arc::new(Self { budget, peer, number, free: AtomicUsize::new(0), streams: AtomicUsize::new(0) })
    }

    /// Returns how many streams are open.
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

    pub(crate) fn peer(&self) -> PeerNetwork {
        self.peer
    }

    /// Replaces the free bytes of a body. Returns how many it has: all that it wants, as long as its connection has them.
    fn set_free(&self, before: usize, wanted: usize) -> usize {
        let mut has = before;
        if wanted != before {
            let set = |free: usize| {
                has = wanted.min(FREE_BYTES - (free - before));
                Some(free - before + has)
            };
            // It is never refused.
            let _ = self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, set);
        }
        has
    }
}

/// The state of a permit that its holder and the budget share: whether it was revoked.
#[derive(Debug, Default)]
struct PermitState {
    refusal: OnceLock<BudgetRefusal>,
    /// Whether the holder has seen that, and ends by itself.
    is_seen: AtomicBool,
    waker: AtomicWaker,
    /// What is left of an answer that is kept with the permit.
    answer: Mutex<Bytes>,
}

impl PermitState {
    fn revoke(&self, refusal: BudgetRefusal) {
        // An error: it was revoked before.
        let _ = self.refusal.set(refusal);
        *self.answer() = Bytes::new();
        self.waker.wake();
    }

    fn answer(&self) -> MutexGuard<'_, Bytes> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A part of the budget for what one body takes, or its answer. It is given back when the permit is dropped.
#[derive(Debug)]
pub(crate) struct BodyPermit {
    connection: Arc<ConnectionShare>,
    free: usize,
    charged: usize,
    /// The number of the holder, while it is charged.
    number: u64,
    /// `None`: it was never charged, and has no [`Revocation`].
    state: Option<Arc<PermitState>>,
    /// The part of what its peer may have for work, while it works.
    work: Option<OwnedSemaphorePermit>,
}

impl BodyPermit {
    /// A permit that holds nothing.
    pub(crate) fn new(connection: &Arc<ConnectionShare>) -> Self {
        Self { connection: Arc::clone(connection), free: 0, charged: 0, number: 0, state: None, work: None }
    }

    /// Returns the share of its connection.
    pub(crate) fn connection(&self) -> &ConnectionShare {
        &self.connection
    }

    /// Holds `bytes` of a body in all from now on. An error: there is no room for them, or the permit was revoked.
    pub(crate) fn hold(&mut self, bytes: usize) -> Result<(), BudgetRefusal> {
        if let Some(refusal) = self.refusal() {
            return Err(refusal);
        }
        self.free = self.connection.set_free(self.free, bytes.min(BLOCK_BYTES));
        let charged = (bytes - self.free).next_multiple_of(BLOCK_BYTES);
        if charged == self.charged { Ok(()) } else { self.charge(charged) }
    }

    fn charge(&mut self, bytes: usize) -> Result<(), BudgetRefusal> {
        let (now, ConnectionShare { budget, peer, number: connection, .. }) = (Instant::now(), &*self.connection);
        let state = self.state.get_or_insert_default();
        let mut ledger = budget.ledger();
        // It may have been revoked meanwhile.
        if let Some(refusal) = state.refusal.get() {
            return Err(*refusal);
        }
        let charged = if self.charged > 0 {
            ledger.resize(self.number, bytes, now).map(|dropped| (self.number, dropped))
        } else {
            let (peer, connection, state) = (*peer, *connection, Arc::clone(state));
            ledger.admit(BodyHolder { peer, connection, bytes, phase: PermitPhase::Body, since: now, state })
        };
        drop(ledger);
        match charged {
            Ok((number, dropped)) => {
                (self.number, self.charged) = (number, bytes);
                if dropped > 0 {
                    budget.log_full(*peer, BudgetRefusal::Dropped.name(), dropped);
                }
                Ok(())
            }
            Err(refusal) => {
                budget.log_full(*peer, refusal.name(), 0);
                Err(refusal)
            }
        }
    }

    /// Waits for the caller while the permit holds `bytes` of its body in all. Ready: there is no room for them, or the permit
    /// was revoked, and its holder is to end.
    pub(crate) fn poll_wait(&mut self, bytes: usize, context: &mut Context<'_>) -> Poll<BudgetRefusal> {
        let refusal = match self.hold(bytes) {
            Ok(()) => ready!(self.poll_revoked(context)),
            Err(refusal) => refusal,
        };
        self.see();
        Poll::Ready(refusal)
    }

    /// Waits for `future`. An error: the permit was revoked meanwhile, and its holder is to end.
    async fn wait_for<F: Future>(&self, future: F) -> Result<F::Output, BudgetRefusal> {
        tokio::select! {
            biased;
            refusal = poll_fn(|context| self.poll_revoked(context)) => {
                self.see();
                Err(refusal)
            }
            output = future => Ok(output),
        }
    }

    /// Notes that the holder has seen why it ends.
    fn see(&self) {
        if let Some(state) = &self.state {
            state.is_seen.store(true, Ordering::Relaxed);
        }
    }

    /// Resolves when the permit was revoked.
    pub(crate) fn poll_revoked(&self, context: &mut Context<'_>) -> Poll<BudgetRefusal> {
        if self.charged > 0
            && let Some(state) = &self.state
        {
            state.waker.register(context.waker());
        }
        self.refusal().map_or(Poll::Pending, Poll::Ready)
    }

    /// Begins to work out an answer of so many bytes, for which the permit is not revoked. While other such answers of its peer
    /// leave no room, it waits, holds `queue_bytes`, and may be revoked. An error: there is no room, or it was revoked.
    pub(crate) async fn begin_work(&mut self, queue_bytes: usize, bytes: usize) -> Result<(), BudgetRefusal> {
        if bytes > BLOCK_BYTES {
            let blocks = bytes.min(WORK_BYTES).div_ceil(BLOCK_BYTES) as u32;
            let of_peer = self.connection.budget.work_blocks(self.connection.peer);
            self.work = if let Ok(work) = Arc::clone(&of_peer).try_acquire_many_owned(blocks) {
                Some(work)
            } else {
                self.hold(queue_bytes)?;
                self.enter(PermitPhase::Queue);
                // An error: it is closed, which it never is.
                self.wait_for(of_peer.acquire_many_owned(blocks)).await?.ok()
            };
        }
        self.hold(bytes)?;
        self.enter(PermitPhase::Work);
        Ok(())
    }

    /// Begins a phase, and its time, unless the permit is in it.
    pub(crate) fn enter(&mut self, phase: PermitPhase) {
        if phase != PermitPhase::Work {
            self.work = None;
        }
        if self.charged > 0 {
            self.connection.budget.ledger().enter(self.number, phase, Instant::now());
        }
    }

    /// Keeps an answer until it is taken, or the permit is revoked. Where there is no room for all of it the permit holds what it
    /// did: what was decided is told.
    pub(crate) fn keep(&mut self, answer: Vec<u8>) {
        let _ = self.hold(answer.capacity());
        self.enter(PermitPhase::Answer);
        let state = self.state.get_or_insert_default();
        *state.answer() = answer.into();
        // It may have been revoked meanwhile.
        if state.refusal.get().is_some() {
            *state.answer() = Bytes::new();
        }
    }

    /// Takes the next piece of the answer that is kept. `None`: there is no more, or the permit was revoked.
    pub(crate) fn take_piece(&self) -> Option<Bytes> {
        let mut answer = self.state.as_ref()?.answer();
        let bytes = answer.len().min(BLOCK_BYTES);
        Some(answer.split_to(bytes)).filter(|piece| !piece.is_empty())
    }

    /// Returns what ends the holder of this permit where it is not polled.
    pub(crate) fn revocation(&mut self) -> Revocation {
        Revocation(Arc::clone(self.state.get_or_insert_default()))
    }

    /// Returns why the permit was revoked.
    fn refusal(&self) -> Option<BudgetRefusal> {
        self.state.as_ref()?.refusal.get().copied()
    }
}

impl Drop for BodyPermit {
    fn drop(&mut self) {
        self.connection.set_free(self.free, 0);
        if self.charged > 0 {
            self.connection.budget.ledger().set_bytes(self.number, 0);
        }
    }
}

/// A view of a permit for what runs its holder. A holder that is not polled, such as a call whose answer is not read, cannot
/// see that its permit was revoked.
#[derive(Debug)]
pub(crate) struct Revocation(Arc<PermitState>);

impl Revocation {
    /// Resolves when the permit was revoked and its holder does not end by itself. The task that polls the holder is to poll
    /// this.
    pub(crate) fn poll_unseen(&self, context: &mut Context<'_>) -> Poll<BudgetRefusal> {
        self.0.waker.register(context.waker());
        match self.0.refusal.get() {
            Some(refusal) if !self.0.is_seen.load(Ordering::Relaxed) => Poll::Ready(*refusal),
            _ => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests;
