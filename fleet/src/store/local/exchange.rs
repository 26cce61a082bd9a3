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
            quota::{LocalQuota, QuotaKind, QuotaRef, held, held_at},
        },
        script::{
            decode::KeyReply,
            plan::{Intent, KeyRequest, excess},
        },
    },
};

/// The most views of one batch of an exchange, which takes several scripts.
const TOLD_AT_ONCE: usize = 256;

impl LocalQuotas {
    /// Runs an exchange: sends the charges of all views. If the store does not answer, tries again soon, until the
    /// circuit breaker opens, so that views are not wrong for longer than necessary.
    pub(super) async fn tell_all(self: &Arc<Self>) {
        let mut pause = Duration::from_millis(2);
        while !self.tell().await && !self.store.is_away() {
            // A store may refuse at once.
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(TICK);
        }
    }

    /// Sends the charges of views, and takes in the store's state of their keys. Returns `false` if an answer was
    /// missing.
    pub(super) async fn tell(self: &Arc<Self>) -> bool {
        // Counted first, so that at no moment everything seems to be sent.
        self.telling.fetch_add(1, Ordering::Relaxed);
        let untold = mem::take(&mut *lock(&self.untold));
        self.new_views.store(0, Ordering::Relaxed);
        // Each of them counts until it is sent.
        self.telling.fetch_add(untold.len() as u64, Ordering::Relaxed);
        let mut is_told = true;
        for part in untold.chunks(TOLD_AT_ONCE) {
            let told: Vec<_> = part.iter().filter_map(|&hash| self.tell_one(hash)).collect();
            for task in told {
                is_told &= task.await.unwrap_or(true);
            }
            self.telling.fetch_sub(part.len() as u64, Ordering::Relaxed);
        }
        self.telling.fetch_sub(1, Ordering::Relaxed);
        is_told
    }

    /// Starts to send the charges of a view, if it has any. The task returns whether the store answered.
    fn tell_one(self: &Arc<Self>, hash: u64) -> Option<JoinHandle<bool>> {
        let mut shard = lock(self.shard(hash));
        let holding = held(&mut shard, hash)?;
        let (place, meter) = (holding.place(), holding.own.meter);
        let LocalQuota { name, own, kind: QuotaKind::Synced { view, text }, .. } = holding else { return None };
        let since = view.since();
        let (number, tokens) = view.tell()?;
        let sent = format!("{}:sent:{}", name.key, self.node);
        let intent = Intent::Delta { sent, number, tokens };
        let part = KeyRequest::again(name.key.clone(), *own, intent, text.as_deref());
        let slot = self.store.background_slot(&name.slot);
        let holdings = Arc::clone(self);
        Some(self.store.runtime().spawn(async move {
            let told = match holdings.store.permit() {
                Some(permit) => {
                    let asked = holdings.store.ask_in_background(slot, part, BACKGROUND, false);
                    holdings.store.hear(permit, asked).await
                }
                None => None,
            };
            let is_told = told.is_some();
            holdings.told(place, &meter, since, told);
            is_told
        }))
    }

    /// Takes in the reply to the charges that a view sent under the numbers `meter`.
    fn told(&self, place: QuotaRef, meter: &Meter, since: Option<Nanos>, told: Option<KeyReply>) {
        let now = self.store.moment();
        let mut shard = lock(self.shard(place.hash));
        let Some(LocalQuota { own, kind: QuotaKind::Synced { view, text }, .. }) = held_at(&mut shard, place) else {
            return;
        };
        self.figures.untold_max.fetch_max(view.unanswered(), Ordering::Relaxed);
        let is_more = match told {
            Some(told) => {
                let carried = || meter.carry_over(told.word, told.now, &own.meter, Carry::Keep);
                let word = if own.meter == *meter { told.word } else { carried() };
                let over = excess(&own.meter, word, told.now);
                if over > 0 {
                    self.figures.overshoots.fetch_add(1, Ordering::Relaxed);
                    self.figures.overshoot_max.fetch_max(over, Ordering::Relaxed);
                }
                let lag_ns = since.map_or(0, |since| now.store.saturating_sub(since));
                self.figures.lag_ns.store(lag_ns, Ordering::Relaxed);
                *text = Some(told.text);
                view.told(&own.meter, word, now.store)
            }
            None => true,
        };
        drop(shard);
        if is_more {
            lock(&self.untold).push(place.hash);
        }
    }
}
