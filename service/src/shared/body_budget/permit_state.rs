//! The state of a permit that its owner and the budget share.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, atomic::AtomicBool};

use actix_web::web::Bytes;
use futures_util::task::AtomicWaker;

use super::BudgetRefusal;

/// The state of a permit: whether it was revoked, and the response that is kept with it.
#[derive(Debug, Default)]
pub(super) struct PermitState {
    pub(super) refusal: OnceLock<BudgetRefusal>,
    /// Whether the owner has seen the revocation, and ends by itself.
    pub(super) is_seen: AtomicBool,
    pub(super) waker: AtomicWaker,
    /// The rest of a response that is kept with the permit.
    response: Mutex<Bytes>,
}

impl PermitState {
    pub(super) fn revoke(&self, refusal: BudgetRefusal) {
        // An error: it was revoked before.
        let _ = self.refusal.set(refusal);
        *self.response() = Bytes::new();
        self.waker.wake();
    }

    pub(super) fn response(&self) -> MutexGuard<'_, Bytes> {
        self.response.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
