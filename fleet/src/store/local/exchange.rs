//! The exchange of views with the store: what was spent of synced limits is sent, and what the store has is taken in.

use std::{
    mem,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tidegate::{
    algorithm::{Carry, Meter},
    time::Nanos,
};
use tokio::task::JoinHandle;

use crate::{
    lock::lock,
    store::{
        client::queue::BACKGROUND,
        local::{
            local_quotas::{LocalQuotas, TICK},
            quota::{LocalQuota, QuotaKind, QuotaRef, find, find_same},
        },
        script::{
            decode::KeyReply,
            plan::{Intent, KeyRequest, excess},
        },
    },
};

/// The most views of one batch of an exchange, which takes several scripts.
const EXCHANGE_BATCH: usize = 256;

impl LocalQuotas {
    /// Runs an exchange: sends the charges of all views. If the store does not answer, tries again soon, until the
    /// circuit breaker opens, so that views are not wrong for longer than necessary.
    pub(super) async fn run_exchange(self: &Arc<Self>) {
        let mut pause = Duration::from_millis(2);
        while !self.exchange().await && !self.store.is_away() {
            // A store may refuse at once.
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(TICK);
        }
    }

    /// Sends the charges of views, and takes in the store's state of their keys. Returns `false` if an answer was
    /// missing.
    pub(super) async fn exchange(self: &Arc<Self>) -> bool {
        // Counted first, so that at no moment everything seems to be sent.
        self.in_exchange.fetch_add(1, Ordering::Relaxed);
        let unsent = mem::take(&mut *lock(&self.unsent));
        self.new_views.store(0, Ordering::Relaxed);
        // Each of them counts until it is sent.
        self.in_exchange.fetch_add(unsent.len() as u64, Ordering::Relaxed);
        let mut is_answered = true;
        for batch in unsent.chunks(EXCHANGE_BATCH) {
            let tasks: Vec<_> = batch.iter().filter_map(|&hash| self.send_view(hash)).collect();
            for task in tasks {
                is_answered &= task.await.unwrap_or(true);
            }
            self.in_exchange.fetch_sub(batch.len() as u64, Ordering::Relaxed);
        }
        self.in_exchange.fetch_sub(1, Ordering::Relaxed);
        is_answered
    }

    /// Starts to send the charges of a view, if it has any. The task returns whether the store answered.
    fn send_view(self: &Arc<Self>, hash: u64) -> Option<JoinHandle<bool>> {
        let mut shard = lock(self.shard(hash));
        let quota = find(&mut shard, hash)?;
        let (reference, meter) = (quota.reference(), quota.own.meter);
        let LocalQuota { name, own, kind: QuotaKind::Synced { view, text }, .. } = quota else { return None };
        let since = view.since();
        let (number, tokens) = view.next_delta()?;
        let sent = format!("{}:sent:{}", name.key, self.node);
        let intent = Intent::Delta { sent, number, tokens };
        let request = KeyRequest::again(name.key.clone(), *own, intent, text.as_deref());
        let slot = self.store.background_slot(&name.slot);
        let quotas = Arc::clone(self);
        Some(self.store.runtime.spawn(async move {
            let reply = match quotas.store.permit() {
                Some(permit) => {
                    let asked = quotas.store.ask_in_background(slot, request, BACKGROUND, false);
                    quotas.store.wait_for(permit, asked).await
                }
                None => None,
            };
            let is_answered = reply.is_some();
            quotas.take_reply(reference, &meter, since, reply);
            is_answered
        }))
    }

    /// Takes in the reply to the charges that a view sent under the numbers `meter`.
    fn take_reply(&self, reference: QuotaRef, meter: &Meter, since: Option<Nanos>, reply: Option<KeyReply>) {
        let now = self.store.clock_reading();
        let mut shard = lock(self.shard(reference.hash));
        let Some(LocalQuota { own, kind: QuotaKind::Synced { view, text }, .. }) = find_same(&mut shard, reference)
        else {
            return;
        };
        self.counters.untold_max.fetch_max(view.unanswered(), Ordering::Relaxed);
        let is_more = match reply {
            Some(reply) => {
                let carried = || meter.carry_over(reply.word, reply.now, &own.meter, Carry::Keep);
                let word = if own.meter == *meter { reply.word } else { carried() };
                let over = excess(&own.meter, word, reply.now);
                if over > 0 {
                    self.counters.overshoots.fetch_add(1, Ordering::Relaxed);
                    self.counters.overshoot_max.fetch_max(over, Ordering::Relaxed);
                }
                let lag_ns = since.map_or(0, |since| now.store.saturating_sub(since));
                self.counters.lag_ns.store(lag_ns, Ordering::Relaxed);
                *text = Some(reply.text);
                view.take_reply(&own.meter, word, now.store)
            }
            None => true,
        };
        drop(shard);
        if is_more {
            lock(&self.unsent).push(reference.hash);
        }
    }
}
