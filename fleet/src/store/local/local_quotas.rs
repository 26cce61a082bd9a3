//! The table of the quotas that a node holds of shared limits, by key: charges them, and starts the tasks that look after
//! them.

use std::{
    collections::VecDeque,
    hash::{BuildHasher, Hasher, RandomState},
    mem,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use hashbrown::hash_table::Entry;
use tidegate::{
    algorithm::Meter,
    internals::{Receipt, StoreAnswer, StoreCharge, Verdict},
    policy::Sharing,
};
use tokio::{
    sync::oneshot,
    time::{Instant, sleep, timeout},
};

use crate::{
    lock::lock,
    store::{
        client::{batcher::Batcher, clock_reading::ClockReading},
        local::{
            lease::{Lease, SpendResult, look_every},
            quota::{LocalAnswer, LocalQuota, QuotaKind, QuotaRef, SHARDS, Shard, find, spread_hash},
            synced::SyncedUsage,
        },
        script::{
            plan::{Intent, KeyRequest},
            record::VersionedMeter,
        },
    },
};

/// The most keys of which a node holds a quota; further keys are charged in the store.
const KEYS_MAX: usize = 1_000_000;

/// The most views with unsent charges. While there are so many, checks of other keys are charged in the store. So a
/// caller that brings new keys without end waits for the store, and the charges of other views are sent soon.
const LISTED_MAX: u64 = 131_072;

/// The most new keys of synced limits for which a node makes a view before the next exchange. Checks of further keys
/// are charged in the store until then.
const NEW_VIEWS_MAX: u64 = 8_192;

/// The interval at which quotas that are due are looked after.
pub(super) const TICK: Duration = Duration::from_millis(50);

/// The interval at which a node whose views are used checks that the store is not silent, between two exchanges.
const PROBE: Duration = Duration::from_millis(25);

pub(crate) struct LocalQuotas {
    pub(super) store: Arc<Batcher>,
    pub(super) shards: [Mutex<Shard>; SHARDS],
    keys: AtomicU64,
    /// The number of quotas that were made so far.
    generations: AtomicU64,
    /// The quotas that are looked after next, and when.
    pub(super) due: Mutex<VecDeque<(Instant, QuotaRef)>>,
    /// The number of leases that are being renewed or given back.
    pub(super) renewing: AtomicU64,
    /// The views with unsent charges, and the number of those that an exchange has taken from there and not sent yet.
    pub(super) unsent: Mutex<Vec<u64>>,
    pub(super) in_exchange: AtomicU64,
    /// The number of views that were made since the last exchange.
    pub(super) new_views: AtomicU64,
    /// Whether a view was used since this was read last. A view that only denies has nothing to send.
    is_view_used: AtomicBool,
    /// The name of this process in the keys of exchanged numbers.
    pub(super) node: String,
    pub(crate) counters: QuotaCounters,
}

/// The metrics of [`StoreStats`](crate::store::StoreStats) about leases and views.
#[derive(Debug, Default)]
pub(crate) struct QuotaCounters {
    /// The tokens on lease.
    pub(crate) out: AtomicI64,
    pub(crate) overshoot_max: AtomicU64,
    pub(crate) overshoots: AtomicU64,
    pub(crate) untold_max: AtomicU64,
    /// The lag of the oldest charge of the last exchange.
    pub(crate) lag_ns: AtomicU64,
}

impl LocalQuotas {
    /// Makes the quotas, and starts the tasks that look after them until they are dropped.
    pub(crate) fn new(store: &Arc<Batcher>) -> Arc<Self> {
        // Two processes have the same number once in 2^64 cases.
        let node = format!("{:x}", RandomState::new().build_hasher().finish());
        let quotas = Arc::new(Self {
            store: Arc::clone(store),
            shards: std::array::from_fn(|_| Mutex::default()),
            keys: AtomicU64::new(0),
            generations: AtomicU64::new(0),
            due: Mutex::default(),
            renewing: AtomicU64::new(0),
            unsent: Mutex::default(),
            in_exchange: AtomicU64::new(0),
            new_views: AtomicU64::new(0),
            is_view_used: AtomicBool::new(false),
            node,
            counters: QuotaCounters::default(),
        });
        quotas.run_every(TICK, |quotas| async move { quotas.look_after() });
        quotas.run_every(store.settings.sync_interval, |quotas| async move { quotas.run_exchange().await });
        quotas.run_every(PROBE, |quotas| async move {
            if quotas.is_view_used.swap(false, Ordering::Relaxed) {
                quotas.store.probe().await;
            }
        });
        quotas
    }

    /// Starts a task that does this work at intervals until the quotas are dropped.
    fn run_every<W>(self: &Arc<Self>, pause: Duration, mut work: impl FnMut(Arc<Self>) -> W + Send + 'static)
    where
        W: Future<Output = ()> + Send + 'static,
    {
        let quotas = Arc::downgrade(self);
        self.store.runtime.spawn(async move {
            loop {
                sleep(pause).await;
                let Some(quotas) = quotas.upgrade() else { return };
                work(quotas).await;
            }
        });
    }

    /// Charges the quota of a key, or returns what a charge would lead to. `is_patient` means that the answer may come
    /// later.
    // Long: all cases of a quota under one lock of its shard.
    pub(crate) fn charge(self: &Arc<Self>, charge: &StoreCharge<'_>, is_patient: bool) -> LocalAnswer {
        if charge.sharing == Sharing::Strict {
            return LocalAnswer::Store;
        }
        let now = self.store.clock_reading();
        let own = VersionedMeter { meter: charge.meter, version: charge.version };
        let mut shard = lock(self.shard(charge.hash));
        let quota = match shard.entry(spread_hash(charge.hash), |it| it.hash == charge.hash, |it| spread_hash(it.hash))
        {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(_) if charge.is_look && charge.sharing == Sharing::Leased => return LocalAnswer::Store,
            Entry::Vacant(_) if self.keys.load(Ordering::Relaxed) >= KEYS_MAX as u64 => return LocalAnswer::Store,
            Entry::Vacant(_)
                if charge.sharing == Sharing::Synced
                    && self.new_views.fetch_add(1, Ordering::Relaxed) >= NEW_VIEWS_MAX =>
            {
                return LocalAnswer::Store;
            }
            Entry::Vacant(entry) => {
                self.keys.fetch_add(1, Ordering::Relaxed);
                let new = self.new_quota(charge, own, now);
                self.schedule(new.reference());
                entry.insert(new).into_mut()
            }
        };
        if quota.own.meter != own.meter || !quota.is_of(charge.sharing) {
            // The numbers differ. A node with an older policy does not bring the old ones back.
            if quota.own.version > own.version {
                return LocalAnswer::Store;
            }
            self.renumber(quota, charge, own, now);
        }
        quota.own.version = quota.own.version.max(own.version);
        let meter = &own.meter;
        match &mut quota.kind {
            QuotaKind::Synced { view, .. } if charge.is_look => {
                LocalAnswer::Answer(view.look(meter, charge.cost, now.store))
            }
            QuotaKind::Synced { view, .. } if !view.is_listed() && self.has_many_unsent() => LocalAnswer::Store,
            QuotaKind::Synced { view, .. } => {
                self.note_view();
                let (answer, is_first) = view.spend(meter, charge.cost, now.store);
                if is_first {
                    drop(shard);
                    lock(&self.unsent).push(charge.hash);
                }
                LocalAnswer::Answer(answer)
            }
            QuotaKind::Leased { lease, .. } if charge.is_look => {
                lease.look(meter, charge.cost, now).map_or(LocalAnswer::Store, LocalAnswer::Answer)
            }
            QuotaKind::Leased { lease, waiters, .. } => match lease.spend(meter, charge.cost, now) {
                SpendResult::Answer(answer, false) => LocalAnswer::Answer(answer),
                SpendResult::Answer(answer, true) if !self.store.is_away() => {
                    self.renew(quota, 0, true, now);
                    LocalAnswer::Answer(answer)
                }
                // Asking a store that does not answer would give up tokens that it counts as lent.
                SpendResult::Answer(answer @ StoreAnswer::Decided { verdict: Verdict::Admit(_), .. }, true) => {
                    LocalAnswer::Answer(answer)
                }
                // While the circuit breaker is open, a check would wait in vain.
                SpendResult::Ask if is_patient && !self.store.is_open() => {
                    let (waiter, answer) = oneshot::channel();
                    waiters.push((charge.cost, waiter));
                    if !lease.is_asking {
                        self.renew(quota, charge.cost, true, now);
                    } else if waiters.len() == 1 {
                        self.store.hurry(&self.store.background_slot(&quota.name.slot), &quota.name.key);
                    }
                    LocalAnswer::Waits(answer)
                }
                // Without an answer of the store, `on_failure` of the limit decides.
                SpendResult::Answer(_, true) | SpendResult::Ask => LocalAnswer::Store,
            },
        }
    }

    fn has_many_unsent(&self) -> bool {
        self.in_exchange.load(Ordering::Relaxed) + lock(&self.unsent).len() as u64 >= LISTED_MAX
    }

    /// Takes in the state of a key for which the store was asked instead of the view.
    pub(crate) fn take_store_state(&self, hash: u64, charged: &Meter, answer: &StoreAnswer) {
        let (StoreAnswer::Decided { verdict: Verdict::Admit(word), .. } | StoreAnswer::Decided { word, .. }) = *answer
        else {
            return;
        };
        let mut shard = lock(self.shard(hash));
        if let Some(LocalQuota { own, kind: QuotaKind::Synced { view, .. }, .. }) = find(&mut shard, hash)
            && own.meter == *charged
        {
            view.merge(charged, word);
        }
    }

    /// Returns the tokens of a synced key that were spent here and that no answer of the store has covered yet.
    #[cfg(feature = "model")]
    pub(crate) fn unanswered(&self, hash: u64) -> u64 {
        match find(&mut lock(self.shard(hash)), hash) {
            Some(LocalQuota { kind: QuotaKind::Synced { view, .. }, .. }) => view.unanswered(),
            _ => 0,
        }
    }

    pub(crate) fn note_view(&self) {
        // Written once for many checks, since several threads share the cache line.
        if !self.is_view_used.load(Ordering::Relaxed) {
            self.is_view_used.store(true, Ordering::Relaxed);
        }
    }

    /// Puts back a charge of a denied request into the quota. Returns the other tokens, which the store must take back.
    pub(crate) fn put_back(&self, hash: u64, sharing: Sharing, meter: &Meter, receipt: &Receipt) -> u64 {
        let now = self.store.clock_reading();
        let mut shard = lock(self.shard(hash));
        let quota = find(&mut shard, hash).filter(|it| it.is_of(sharing) && it.own.meter == *meter);
        match quota.map(|quota| &mut quota.kind) {
            Some(QuotaKind::Leased { lease, .. }) => lease.put_back(meter, receipt, now),
            Some(QuotaKind::Synced { view, .. }) => view.put_back(meter, receipt, now.store),
            None => receipt.cost,
        }
    }

    /// Charges a view for what was used already, up to a debt of `max_debt`. `false`: the charge is for the store.
    pub(crate) fn overcharge(&self, hash: u64, tokens: u64, max_debt: u64) -> bool {
        let now = self.store.clock_reading();
        let mut shard = lock(self.shard(hash));
        let Some(LocalQuota { own, kind: QuotaKind::Synced { view, .. }, .. }) = find(&mut shard, hash) else {
            return false;
        };
        if view.overcharge(&own.meter, tokens, max_debt, now.store) {
            drop(shard);
            lock(&self.unsent).push(hash);
        }
        true
    }

    pub(crate) fn forget(&self, hash: u64) {
        let removed = self.remove(&mut lock(self.shard(hash)), hash);
        if let Some(quota) = removed {
            quota.release_waiters();
        }
    }

    pub(super) fn remove(&self, shard: &mut Shard, hash: u64) -> Option<LocalQuota> {
        let (quota, _) = shard.find_entry(spread_hash(hash), |it| it.hash == hash).ok()?.remove();
        self.keys.fetch_sub(1, Ordering::Relaxed);
        self.counters.out.fetch_sub(quota.out(), Ordering::Relaxed);
        Some(quota)
    }

    fn new_quota(&self, charge: &StoreCharge<'_>, own: VersionedMeter, now: ClockReading) -> LocalQuota {
        let kind = match charge.sharing {
            Sharing::Synced => QuotaKind::Synced { view: SyncedUsage::new(now.own), text: None },
            _ => QuotaKind::Leased { lease: Lease::new(), text: String::new(), waiters: Vec::new() },
        };
        let name = Box::new(self.store.keys.name(charge));
        let generation = self.generations.fetch_add(1, Ordering::Relaxed);
        LocalQuota { hash: charge.hash, own, kind, name, generation }
    }

    /// Switches a quota to other numbers or another sharing mode. A view goes on with its state; a lease goes back, and
    /// a new one begins.
    fn renumber(
        self: &Arc<Self>,
        quota: &mut LocalQuota,
        charge: &StoreCharge<'_>,
        own: VersionedMeter,
        now: ClockReading,
    ) {
        if let (QuotaKind::Synced { view, .. }, Sharing::Synced) = (&mut quota.kind, charge.sharing) {
            view.carry(&quota.own.meter, &own.meter, now.store);
            quota.own = own;
            return;
        }
        self.counters.out.fetch_sub(quota.out(), Ordering::Relaxed);
        let new = self.new_quota(charge, own, now);
        self.schedule(new.reference());
        let old = mem::replace(quota, new);
        self.retire(old, now);
    }

    /// Gives back all leases, sends the charges of all views, and forgets them.
    pub(crate) fn release_all(&self) {
        let now = self.store.clock_reading();
        for shard in &self.shards {
            let all: Vec<_> = lock(shard).drain().collect();
            for quota in all {
                self.keys.fetch_sub(1, Ordering::Relaxed);
                self.counters.out.fetch_sub(quota.out(), Ordering::Relaxed);
                self.retire(quota, now);
            }
        }
    }

    /// Gives back a lease, or sends the charges of a view, that this node does not go on with.
    fn retire(&self, mut old: LocalQuota, now: ClockReading) {
        let slot = self.store.background_slot(&old.name.slot);
        let key = old.name.key.clone();
        match &mut old.kind {
            QuotaKind::Leased { lease, text, .. } if lease.out() > 0 => {
                let back = Intent::Lease(lease.ask(&old.own.meter, 0, false, now));
                self.store.send_detached(slot, KeyRequest::again(key, old.own, back, Some(text)));
            }
            QuotaKind::Synced { view, text } if view.unsent() > 0 => {
                // These requests were admitted, so all of it counts.
                let unsent = Intent::Overcharge { tokens: view.unsent(), max_debt: u64::MAX };
                self.store.send_detached(slot, KeyRequest::again(key, old.own, unsent, text.as_deref()));
            }
            _ => {}
        }
        old.release_waiters();
    }

    pub(super) fn shard(&self, hash: u64) -> &Mutex<Shard> {
        &self.shards[(hash % SHARDS as u64) as usize]
    }

    pub(super) fn schedule(&self, reference: QuotaRef) {
        lock(&self.due).push_back((Instant::now() + look_every(self.store.lease_ns()), reference));
    }

    /// Returns the most tokens of one key that were spent here and that no answer of the store has covered.
    #[cfg(test)]
    pub(crate) fn unanswered_max(&self) -> u64 {
        let unanswered = |quota: &LocalQuota| {
            if let QuotaKind::Synced { view, .. } = &quota.kind { view.unanswered() } else { 0 }
        };
        self.shards.iter().filter_map(|shard| lock(shard).iter().map(unanswered).max()).max().unwrap_or(0)
    }

    /// Gives back all leases, and sends the charges of all views, before this node stops.
    pub(crate) async fn close(self: &Arc<Self>) {
        let all = async {
            let is_exchanging = || self.in_exchange.load(Ordering::Relaxed) > 0 || !lock(&self.unsent).is_empty();
            loop {
                self.exchange().await;
                if !self.give_back_all() && !is_exchanging() {
                    return;
                }
                sleep(Duration::from_millis(5)).await;
            }
        };
        drop(timeout(self.store.settings.close_timeout, all).await);
    }
}
