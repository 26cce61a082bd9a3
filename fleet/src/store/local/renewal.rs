//! The upkeep of quotas in the background: leases in use are renewed, others go back, and idle quotas are forgotten.

use std::{
    collections::VecDeque,
    mem,
    sync::{Arc, atomic::Ordering},
};

use tidegate::internals::{Receipt, StoreAnswer, Verdict};
use tokio::time::Instant;

use crate::{
    lock::lock,
    store::{
        client::clock_reading::ClockReading,
        local::{
            lease::{SpendResult, Upkeep},
            local_quotas::LocalQuotas,
            quota::{LocalQuota, QuotaKind, QuotaRef, answer_all, find_same},
        },
        script::{
            decode::KeyReply,
            grant::LeaseRequest,
            plan::{Intent, KeyRequest},
        },
    },
};

/// The most leases that are being renewed or given back. While there are so many, others that are due wait, since
/// requests of checks leave them only a quarter of a script.
const RENEWING_MAX: u64 = 512;

impl LocalQuotas {
    /// Requests tokens in the background, or gives back those that are left.
    pub(super) fn renew(self: &Arc<Self>, quota: &mut LocalQuota, need: u64, keep: bool, now: ClockReading) {
        let (out, own, reference) = (quota.out(), quota.own, quota.reference());
        let QuotaKind::Leased { lease, text, waiters } = &mut quota.kind else { return };
        let Some(permit) = self.store.permit() else {
            // The request is not sent, so the store counts as before.
            answer_all(waiters, Some(StoreAnswer::Failed));
            return;
        };
        let ask = lease.ask(&own.meter, need, keep, now);
        let request = KeyRequest::again(quota.name.key.clone(), own, Intent::Lease(ask), Some(text));
        let slot = self.store.background_slot(&quota.name.slot);
        self.counters.out.fetch_sub(out, Ordering::Relaxed);
        self.renewing.fetch_add(1, Ordering::Relaxed);
        let quotas = Arc::clone(self);
        // The request is queued at once, so that a check that comes to wait for it can make it urgent.
        let asked = self.store.ask_in_background(slot, request, self.store.patience_of_leases(), need > 0);
        self.store.runtime.spawn(async move {
            let reply = quotas.store.wait_for(permit, asked).await;
            quotas.renewing.fetch_sub(1, Ordering::Relaxed);
            quotas.renewed(reference, &ask, reply);
        });
    }

    fn renewed(self: &Arc<Self>, reference: QuotaRef, ask: &LeaseRequest, reply: Option<KeyReply>) {
        let now = self.store.clock_reading();
        let mut shard = lock(self.shard(reference.hash));
        let Some(LocalQuota { own, name, kind: QuotaKind::Leased { lease, text, waiters }, .. }) =
            find_same(&mut shard, reference)
        else {
            return;
        };
        let Some(KeyReply { answer, grant: Some(grant), text: found, now: heard_at, .. }) = reply else {
            lease.failed();
            answer_all(waiters, Some(StoreAnswer::Failed));
            return;
        };
        let mut waiting: VecDeque<_> = mem::take(waiters).into();
        lease.granted(&own.meter, ask, &grant, (heard_at, now), self.store.lease_ns());
        *text = found;
        self.counters.out.fetch_add(i64::try_from(lease.out()).unwrap_or(i64::MAX), Ordering::Relaxed);
        // The check for which the lease was requested takes this answer, which is not right for a check that came
        // later.
        if ask.need > 0
            && (grant.is_charged || !matches!(answer, StoreAnswer::Decided { verdict: Verdict::Admit(_), .. }))
            && let Some((cost, first)) = waiting.pop_front()
            && let Err(Some(StoreAnswer::Decided { verdict: Verdict::Admit(word), now: charged_at, .. })) =
                first.send(Some(answer))
        {
            let receipt = Receipt { cost, charged_at, word, moved_ns: u64::MAX };
            let slot = self.store.background_slot(&name.slot);
            self.store.send_detached(slot, KeyRequest::again(name.key.clone(), *own, Intent::GiveBack(receipt), None));
        }
        for (cost, waiter) in waiting {
            let before = *lease;
            let answer = match lease.spend(&own.meter, cost, now) {
                SpendResult::Answer(answer, _) => Some(answer),
                SpendResult::Ask => None,
            };
            if waiter.send(answer).is_err() {
                // The check has given up.
                *lease = before;
            }
        }
    }

    /// Looks after the quotas that are due: leases in use are renewed, others go back, and idle quotas are forgotten.
    pub(super) fn look_after(self: &Arc<Self>) {
        let at = Instant::now();
        while self.renewing.load(Ordering::Relaxed) < RENEWING_MAX {
            let next = lock(&self.due).pop_front_if(|(when, _)| *when <= at);
            let Some((_, reference)) = next else { return };
            if self.look_after_quota(reference) {
                self.schedule(reference);
            }
        }
    }

    /// Looks after one quota. Returns `false` if it is gone.
    fn look_after_quota(self: &Arc<Self>, reference: QuotaRef) -> bool {
        let now = self.store.clock_reading();
        let mut shard = lock(self.shard(reference.hash));
        let Some(quota) = find_same(&mut shard, reference) else { return false };
        let meter = quota.own.meter;
        let care = match &mut quota.kind {
            QuotaKind::Synced { view, .. } if view.is_idle(&meter, now.store) => Upkeep::Forget,
            QuotaKind::Synced { .. } => Upkeep::Keep,
            QuotaKind::Leased { lease, .. } => lease.look_after(now, self.store.lease_ns()),
        };
        match care {
            // Asking a store that does not answer would give up tokens that it counts as lent.
            Upkeep::Renew | Upkeep::GiveBack if self.store.is_away() => {}
            Upkeep::Renew => self.renew(quota, 0, true, now),
            Upkeep::GiveBack => self.renew(quota, 0, false, now),
            Upkeep::Keep => {}
            // No check waits for an idle quota.
            Upkeep::Forget => drop(self.remove(&mut shard, reference.hash)),
        }
        care != Upkeep::Forget
    }

    /// Gives back the leases without a request under way. Returns `false` when no lease is left.
    pub(super) fn give_back_all(self: &Arc<Self>) -> bool {
        let now = self.store.clock_reading();
        let mut is_any = false;
        for shard in &self.shards {
            for quota in lock(shard).iter_mut() {
                let QuotaKind::Leased { lease, .. } = &quota.kind else { continue };
                let (is_asking, is_out) = (lease.is_asking, lease.out() > 0);
                is_any |= is_asking || is_out;
                if is_out && !is_asking {
                    self.renew(quota, 0, false, now);
                }
            }
        }
        is_any
    }
}
