//! Charges a key whose tokens are striped over threads, and begins and ends its striping.

use super::{Account, ChargeResult};
use crate::{
    algorithm::Verdict,
    base::{clock::Clock, thread_id::thread_number, time::Nanos},
    engine::{
        active_policy::{SnapshotResult, StaleSnapshot},
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
    pub(super) fn look_striped<C: Clock>(
        &self,
        buckets: &Buckets<C>,
        word: u64,
        now: Nanos,
    ) -> SnapshotResult<ChargeResult> {
        let looked =
            self.with_striped_key(buckets, |striped| striped.look(word, now)).flatten().map(ChargeResult::in_slot);
        let looked = looked.ok_or(StaleSnapshot)?;
        // A denial first takes back all tokens that are out and pays for what was spent: time does not repay it before
        // that.
        let is_denied = matches!(looked.verdict, Verdict::Later { .. });
        if is_denied && self.with_striped_key(buckets, |striped| striped.close()) == Some(true) {
            return self.look(buckets, buckets.now()).map(|preview| preview.charged);
        }
        Ok(looked)
    }

    /// Charges a striped key; `word` is that of its slot. Out of line, so that keys that are not striped do not pay for
    /// it.
    #[inline(never)]
    pub(super) fn charge_striped<C: Clock>(
        self,
        buckets: &Buckets<C>,
        now: Nanos,
        word: u64,
    ) -> SnapshotResult<ChargeResult> {
        match self.with_striped_key(buckets, |striped| striped.spend(word, now)).flatten() {
            Some(stepped) => Ok(ChargeResult::in_slot(stepped)),
            None => self.charge_slow_path(buckets, now, 0),
        }
    }

    /// Charges a striped key in every case that [`charge_striped`](Self::charge_striped) leaves. Returns `None` if
    /// the striping has ended.
    #[cold]
    pub(super) fn charge_striped_slow_path<C: Clock>(
        &self,
        buckets: &Buckets<C>,
        now: Nanos,
        word: u64,
    ) -> Option<SnapshotResult<ChargeResult>> {
        self.with_striped_key(buckets, |striped| match striped.charge(word, now) {
            StripedOutcome::Decided(stepped) => Some(Ok(ChargeResult::in_slot(stepped))),
            StripedOutcome::Stale => Some(Err(StaleSnapshot)),
            StripedOutcome::Ended => None,
        })?
    }

    /// Calls `then` with the striped key. Returns `None` if keys of limits with these numbers are not striped.
    #[inline(always)]
    pub(super) fn with_striped_key<C: Clock, T>(
        &self,
        buckets: &Buckets<C>,
        then: impl FnOnce(&StripedKey<'_>) -> T,
    ) -> Option<T> {
        let meter = self.limit.meter.as_ref().filter(|_| self.limit.can_stripe)?;
        let terms = buckets.stripes.terms(meter)?;
        Some(then(&StripedKey {
            stripes: &buckets.stripes,
            table: &buckets.table,
            refund_log: &buckets.refund_log,
            key: self.key,
            meter,
            generation: self.limit.generation,
            terms,
            cost: self.cost,
            thread: thread_number(),
            read_clock: &|| buckets.now(),
            is_stale: &|| self.is_stale(buckets),
        }))
    }

    /// Returns whether the key is striped under the numbers of the snapshot.
    #[inline(always)]
    pub(super) fn is_striped(&self, held: BucketState) -> bool {
        held.is_striped && held.generation == self.limit.generation
    }

    /// Ends the key's striping, if it is striped and no other thread is about to begin or end that.
    pub(super) fn end_striping<C: Clock>(&self, buckets: &Buckets<C>) {
        if buckets.table.get(self.key).is_some_and(|held| self.is_striped(held)) {
            self.with_striped_key(buckets, |striped| {
                striped.close();
            });
        }
    }
}
