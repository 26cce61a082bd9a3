//! Charges a key whose tokens are striped over threads by a lease, and begins and ends leases.

use super::{Account, ChargeResult};
use crate::{
    algorithm::Verdict,
    base::{clock::Clock, thread_id::thread_number, time::Nanos},
    engine::{
        active_policy::{Attempt, StaleSnapshot},
        buckets::Buckets,
    },
    storage::{
        layout::BucketState,
        striping::{StripedKey, StripedOutcome},
    },
};

impl Account<'_> {
    #[cold]
    #[expect(clippy::redundant_closure_for_method_calls, reason = "the method alone is of one lifetime")]
    pub(super) fn look_at_lease<C: Clock>(&self, buckets: &Buckets<C>, word: u64, now: Nanos) -> Attempt<ChargeResult> {
        let looked = self.with_lease(buckets, |lease| lease.look(word, now)).flatten().map(ChargeResult::in_slot);
        let looked = looked.ok_or(StaleSnapshot)?;
        // A denial first takes back all tokens that are out and pays for what was spent: time does not repay it before
        // that.
        let is_denied = matches!(looked.verdict, Verdict::Later { .. });
        if is_denied && self.with_lease(buckets, |lease| lease.close()) == Some(true) {
            return self.look(buckets, buckets.clock.now()).map(|preview| preview.charged);
        }
        Ok(looked)
    }

    /// Charges a key with a lease; `word` is that of its slot. Out of line, so that keys without a lease do not pay for
    /// it.
    #[inline(never)]
    pub(super) fn charge_leased<C: Clock>(self, buckets: &Buckets<C>, now: Nanos, word: u64) -> Attempt<ChargeResult> {
        match self.with_lease(buckets, |lease| lease.spend(word, now)).flatten() {
            Some(stepped) => Ok(ChargeResult::in_slot(stepped)),
            None => self.charge_slow_path(buckets, now, 0),
        }
    }

    /// Charges a key with a lease in every case that [`charge_leased`](Self::charge_leased) leaves. Returns `None` if
    /// the lease has ended.
    #[cold]
    pub(super) fn charge_lease<C: Clock>(
        &self,
        buckets: &Buckets<C>,
        now: Nanos,
        word: u64,
    ) -> Option<Attempt<ChargeResult>> {
        self.with_lease(buckets, |lease| match lease.charge(word, now) {
            StripedOutcome::Decided(stepped) => Some(Ok(ChargeResult::in_slot(stepped))),
            StripedOutcome::Stale => Some(Err(StaleSnapshot)),
            StripedOutcome::Ended => None,
        })?
    }

    /// Calls `then` with the terms of the key's lease. Returns `None` if limits with these numbers have no leases.
    #[inline(always)]
    pub(super) fn with_lease<C: Clock, T>(
        &self,
        buckets: &Buckets<C>,
        then: impl FnOnce(&StripedKey<'_>) -> T,
    ) -> Option<T> {
        let meter = self.limit.meter.as_ref().filter(|_| self.limit.can_lease)?;
        let terms = buckets.leases.terms(meter)?;
        Some(then(&StripedKey {
            leases: &buckets.leases,
            table: &buckets.table,
            moves: &buckets.refund_log,
            key: self.key,
            meter,
            generation: self.limit.generation,
            terms,
            cost: self.cost,
            thread: thread_number(),
            read_clock: &|| buckets.clock.now(),
            is_stale: &|| self.is_stale(buckets),
        }))
    }

    /// Returns whether the key has a lease under the numbers of the snapshot.
    #[inline(always)]
    pub(super) fn is_striped(&self, held: BucketState) -> bool {
        held.is_striped && held.generation == self.limit.generation
    }

    /// Ends the key's lease, if it has one and no other thread is about to begin or end it.
    pub(super) fn end_striping<C: Clock>(&self, buckets: &Buckets<C>) {
        if buckets.table.get(self.key).is_some_and(|held| self.is_striped(held)) {
            self.with_lease(buckets, |lease| {
                lease.close();
            });
        }
    }
}
