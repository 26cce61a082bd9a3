//! Permits of the body budget: what the reader of a body, or the writer of a response, holds, and how it is revoked.

use std::{
    future::poll_fn,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll, ready},
};

use actix_web::web::Bytes;
use tokio::{sync::OwnedSemaphorePermit, time::Instant};

use super::{
    BLOCK_BYTES, BudgetRefusal, ConnectionShare, PermitPhase, WORK_BYTES, ledger::BodyHolder, permit_state::PermitState,
};

/// A part of the budget for one body, or for the response to it. Dropping the permit gives the part back.
#[derive(Debug)]
pub(crate) struct BodyPermit {
    pub(crate) connection: Arc<ConnectionShare>,
    free: usize,
    charged: usize,
    /// The number of the holder in the ledger, while bytes are charged.
    number: u64,
    /// The shared state; `None` where no bytes were ever charged and there is no [`Revocation`].
    pub(super) state: Option<Arc<PermitState>>,
    /// The blocks of its peer for work, while a response is being made.
    work: Option<OwnedSemaphorePermit>,
}

impl BodyPermit {
    pub(crate) fn new(connection: &Arc<ConnectionShare>) -> Self {
        Self { connection: Arc::clone(connection), free: 0, charged: 0, number: 0, state: None, work: None }
    }

    /// Holds `bytes` of a body in all from now on. Returns an error where there is no room for them, or the permit was revoked.
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

    /// Pends while the permit holds `bytes` of a body in all, whose sender is waited for. It is ready where there is no
    /// room for the bytes, or the permit was revoked: then the owner is to end.
    pub(crate) fn poll_wait(&mut self, bytes: usize, context: &mut Context<'_>) -> Poll<BudgetRefusal> {
        let refusal = match self.hold(bytes) {
            Ok(()) => ready!(self.poll_revoked(context)),
            Err(refusal) => refusal,
        };
        self.acknowledge();
        Poll::Ready(refusal)
    }

    /// Waits for `future`. Returns an error where the permit was revoked meanwhile: then the owner is to end.
    async fn wait_for<F: Future>(&self, future: F) -> Result<F::Output, BudgetRefusal> {
        tokio::select! {
            biased;
            refusal = poll_fn(|context| self.poll_revoked(context)) => {
                self.acknowledge();
                Err(refusal)
            }
            output = future => Ok(output),
        }
    }

    /// Notes that the owner has seen the revocation.
    fn acknowledge(&self) {
        if let Some(state) = &self.state {
            state.is_seen.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn poll_revoked(&self, context: &mut Context<'_>) -> Poll<BudgetRefusal> {
        if self.charged > 0
            && let Some(state) = &self.state
        {
            state.waker.register(context.waker());
        }
        self.refusal().map_or(Poll::Pending, Poll::Ready)
    }

    /// Begins to make a response of `bytes`; meanwhile the permit is not revoked. While other such responses of the
    /// peer leave no room, it waits, holds `queue_bytes`, and may be revoked. Returns an error where there is no room,
    /// or the permit was revoked.
    pub(crate) async fn begin_work(&mut self, queue_bytes: usize, bytes: usize) -> Result<(), BudgetRefusal> {
        if bytes > BLOCK_BYTES {
            let blocks = bytes.min(WORK_BYTES).div_ceil(BLOCK_BYTES) as u32;
            let peer_blocks = self.connection.budget.work_blocks(self.connection.peer);
            self.work = if let Ok(work) = Arc::clone(&peer_blocks).try_acquire_many_owned(blocks) {
                Some(work)
            } else {
                self.hold(queue_bytes)?;
                self.enter(PermitPhase::Queue);
                // An error would mean that the semaphore is closed, which it never is.
                self.wait_for(peer_blocks.acquire_many_owned(blocks)).await?.ok()
            };
        }
        self.hold(bytes)?;
        self.enter(PermitPhase::Work);
        Ok(())
    }

    /// Begins a phase, and its time, unless the permit is in that phase.
    pub(crate) fn enter(&mut self, phase: PermitPhase) {
        if phase != PermitPhase::Work {
            self.work = None;
        }
        if self.charged > 0 {
            self.connection.budget.ledger().enter(self.number, phase, Instant::now());
        }
    }

    /// Keeps a response until it is taken, or the permit is revoked. Where there is no room for all of it, the permit
    /// holds what it held before, so that the caller learns what was decided.
    pub(crate) fn keep(&mut self, response: Vec<u8>) {
        let _ = self.hold(response.capacity());
        self.enter(PermitPhase::Response);
        let state = self.state.get_or_insert_default();
        *state.response() = response.into();
        // It may have been revoked meanwhile.
        if state.refusal.get().is_some() {
            *state.response() = Bytes::new();
        }
    }

    /// Takes the next piece of the response that is kept; `None` where there is no more, or the permit was revoked.
    pub(crate) fn take_piece(&self) -> Option<Bytes> {
        let mut response = self.state.as_ref()?.response();
        let bytes = response.len().min(BLOCK_BYTES);
        Some(response.split_to(bytes)).filter(|piece| !piece.is_empty())
    }

    /// Returns a view of this permit with which the runner of an owner that is not polled ends it.
    pub(crate) fn revocation(&mut self) -> Revocation {
        Revocation(Arc::clone(self.state.get_or_insert_default()))
    }

    /// Returns the reason of the revocation, if the permit was revoked.
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

/// A view of a permit for the task that runs its owner. An owner that is not polled, such as a call whose response is
/// not read, does not see that its permit was revoked.
#[derive(Debug)]
pub(crate) struct Revocation(Arc<PermitState>);

impl Revocation {
    /// Resolves once the permit is revoked and its owner does not end by itself. Only the task that polls the owner may
    /// poll this.
    pub(crate) fn poll_unseen(&self, context: &mut Context<'_>) -> Poll<BudgetRefusal> {
        self.0.waker.register(context.waker());
        match self.0.refusal.get() {
            Some(refusal) if !self.0.is_seen.load(Ordering::Relaxed) => Poll::Ready(*refusal),
            _ => Poll::Pending,
        }
    }
}
