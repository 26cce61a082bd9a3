//! The quotas that a node holds of shared limits, by key, and their upkeep: leases are renewed and given back, and what
//! was spent of synced limits is sent to the store.

use std::{
    collections::VecDeque,
    hash::{BuildHasher, Hasher, RandomState},
    mem,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use hashbrown::{HashTable, hash_table::Entry};
use tidegate::{
    Answer, StoreCharge,
    algorithm::{Carry, Meter, Receipt, Verdict},
    policy::Sharing,
    time::Nanos,
};
use tokio::{
    sync::oneshot,
    task::JoinHandle,
    time::{Instant, timeout},
};

use crate::{
    lock::lock,
    store::{
        client::{batcher::Batcher, clock_reading::ClockReading, queue::BACKGROUND},
        key::KeyName,
        local::{
            lease::{Lease, SpendResult, Upkeep, look_every},
            synced::SyncedUsage,
        },
        script::{
            decode::KeyReply,
            grant::LeaseRequest,
            plan::{Intent, KeyRequest, excess},
            record::VersionedMeter,
        },
    },
};

const SHARDS: usize = 64;

/// The most keys of which a node holds a quota; further keys are charged in the store.
const KEYS_MAX: usize = 1_000_000;

/// The most views with unsent charges. While there are so many, checks of other keys are charged in the store. So a
/// caller that brings new keys without end waits for the store, and the charges of other views are sent soon.
const LISTED_MAX: u64 = 131_072;

/// The most new keys of synced limits for which a node makes a view before the next exchange. Checks of further keys
/// are charged in the store until then.
const NEW_VIEWS_MAX: u64 = 8_192;

/// The most views of one batch of an exchange, which takes several scripts.
const TOLD_AT_ONCE: usize = 256;

/// The interval at which quotas that are due are looked after.
const TICK: Duration = Duration::from_millis(50);

/// The most leases that are being renewed or given back. While there are so many, others that are due wait, since
/// requests of checks leave them only a quarter of a script.
const RENEWING_MAX: u64 = 512;

/// The interval at which a node whose views are used checks that the store is not silent, between two exchanges.
const PROBE: Duration = Duration::from_millis(25);

pub(crate) struct LocalQuotas {
    store: Arc<Batcher>,
    shards: [Mutex<Shard>; SHARDS],
    keys: AtomicU64,
    /// The number of quotas that were made so far.
    births: AtomicU64,
    /// The quotas that are looked after next, and when.
    due: Mutex<VecDeque<(Instant, QuotaRef)>>,
    /// The number of leases that are being renewed or given back.
    renewing: AtomicU64,
    /// The views with unsent charges, and the number of those that an exchange has taken from there and not sent yet.
    untold: Mutex<Vec<u64>>,
    telling: AtomicU64,
    /// The number of views that were made since the last exchange.
    new_views: AtomicU64,
    /// Whether a view was used since this was read last. A view that only denies has nothing to send.
    viewed: AtomicBool,
    /// The name of this process in the keys of exchanged numbers.
    node: String,
    pub(crate) figures: QuotaCounters,
}

/// Metrics of leases and views.
#[derive(Debug, Default)]
pub(crate) struct QuotaCounters {
    /// The tokens that the store counts as lent to this node.
    pub(crate) out: AtomicI64,
    /// The most tokens above a limit that the store has had, and the number of times that it had more than the limit.
    pub(crate) overshoot_max: AtomicU64,
    pub(crate) overshoots: AtomicU64,
    /// The most tokens of one key that were spent from the sending of one exchange to the answer to the next.
    pub(crate) untold_max: AtomicU64,
    /// The nanoseconds for which the oldest charge of the last exchange had waited when the store had it.
    pub(crate) lag_ns: AtomicU64,
}

/// A shard of the quotas, by the hash of the key, which is random already.
type Shard = HashTable<LocalQuota>;

/// The quota of one key. The fields that each check needs come first, in two cache lines, which processors fetch
/// together.
#[repr(C, align(128))]
struct LocalQuota {
    hash: u64,
    own: VersionedMeter,
    kind: QuotaKind,
    name: Box<KeyName>,
    born: u64,
}

/// A reference to one quota: its key, and its generation.
#[derive(Clone, Copy)]
struct QuotaRef {
    hash: u64,
    born: u64,
}

// The tag comes first.
#[repr(u64)]
enum QuotaKind {
    Leased { lease: Lease, text: String, waiters: Vec<(u64, oneshot::Sender<Option<Answer>>)> },
    Synced { view: SyncedUsage, text: Option<String> },
}

/// The answer of a node's quotas to a charge.
pub(crate) enum LocalAnswer {
    Answer(Answer),
    /// The answer arrives soon; `None` means that the charge is for the store.
    Waits(oneshot::Receiver<Option<Answer>>),
    /// The charge is for the store.
    Store,
}

impl LocalQuotas {
    /// Makes the quotas, and starts the tasks that look after them until they are dropped.
    pub(crate) fn new(store: &Arc<Batcher>, interval: Duration) -> Arc<Self> {
        // Two processes have the same number once in 2^64 cases.
        let node = format!("{:x}", RandomState::new().build_hasher().finish());
        let holdings = Arc::new(Self {
            store: Arc::clone(store),
            shards: std::array::from_fn(|_| Mutex::default()),
            keys: AtomicU64::new(0),
            births: AtomicU64::new(0),
            due: Mutex::default(),
            renewing: AtomicU64::new(0),
            untold: Mutex::default(),
            telling: AtomicU64::new(0),
            new_views: AtomicU64::new(0),
            viewed: AtomicBool::new(false),
            node,
            figures: QuotaCounters::default(),
        });
        store.runtime().spawn(every(TICK, Arc::downgrade(&holdings), |holdings| async move { holdings.look_after() }));
        store
            .runtime()
            .spawn(every(interval, Arc::downgrade(&holdings), |holdings| async move { holdings.tell_all().await }));
        store.runtime().spawn(every(PROBE, Arc::downgrade(&holdings), |holdings| async move {
            if holdings.viewed.swap(false, Ordering::Relaxed) {
                holdings.store.probe().await;
            }
        }));
        holdings
    }

    /// Charges the quota of a key, or returns what a charge would lead to. `is_patient` means that the answer may come
    /// later.
    pub(crate) fn charge(self: &Arc<Self>, charge: &StoreCharge<'_>, is_patient: bool) -> LocalAnswer {
        if charge.sharing == Sharing::Strict {
            return LocalAnswer::Store;
        }
        let now = self.store.moment();
        let own = VersionedMeter { meter: charge.meter, version: charge.version };
        let mut shard = lock(self.shard(charge.hash));
        let holding = match shard.entry(spread(charge.hash), |it| it.hash == charge.hash, |it| spread(it.hash)) {
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
                let new = self.born(charge, own, now);
                self.look_at(new.place());
                entry.insert(new).into_mut()
            }
        };
        if holding.own.meter != own.meter || !holding.is_of(charge.sharing) {
            // The numbers differ. A node with an older policy does not bring the old ones back.
            if holding.own.version > own.version {
                return LocalAnswer::Store;
            }
            self.renumber(holding, charge, own, now);
        }
        holding.own.version = holding.own.version.max(own.version);
        let meter = &own.meter;
        match &mut holding.kind {
            QuotaKind::Synced { view, .. } if charge.is_look => {
                LocalAnswer::Answer(view.look(meter, charge.cost, now.store))
            }
            QuotaKind::Synced { view, .. } if !view.is_listed() && self.is_telling_much() => LocalAnswer::Store,
            QuotaKind::Synced { view, .. } => {
                self.note_view();
                let (answer, is_first) = view.spend(meter, charge.cost, now.store);
                if is_first {
                    drop(shard);
                    lock(&self.untold).push(charge.hash);
                }
                LocalAnswer::Answer(answer)
            }
            QuotaKind::Leased { lease, .. } if charge.is_look => {
                lease.look(meter, charge.cost, now).map_or(LocalAnswer::Store, LocalAnswer::Answer)
            }
            QuotaKind::Leased { lease, waiters, .. } => match lease.spend(meter, charge.cost, now) {
                SpendResult::Answer(answer, false) => LocalAnswer::Answer(answer),
                SpendResult::Answer(answer, true) if !self.store.is_away() => {
                    self.renew(holding, 0, true, now);
                    LocalAnswer::Answer(answer)
                }
                // Asking a store that does not answer would give up tokens that it counts as lent.
                SpendResult::Answer(answer @ Answer::Decided { verdict: Verdict::Admit(_), .. }, true) => {
                    LocalAnswer::Answer(answer)
                }
                // While the circuit breaker is open, a check would wait in vain.
                SpendResult::Ask if is_patient && !self.store.is_open() => {
                    let (waiter, answer) = oneshot::channel();
                    waiters.push((charge.cost, waiter));
                    if !lease.is_asking {
                        self.renew(holding, charge.cost, true, now);
                    } else if waiters.len() == 1 {
                        self.store.hurry(&self.store.background_slot(&holding.name.slot), &holding.name.key);
                    }
                    LocalAnswer::Waits(answer)
                }
                // Without an answer of the store, `on_failure` of the limit decides.
                SpendResult::Answer(_, true) | SpendResult::Ask => LocalAnswer::Store,
            },
        }
    }

    fn is_telling_much(&self) -> bool {
        self.telling.load(Ordering::Relaxed) + lock(&self.untold).len() as u64 >= LISTED_MAX
    }

    /// Takes in the state of a key for which the store was asked instead of the view.
    pub(crate) fn heard(&self, hash: u64, charged: &Meter, answer: &Answer) {
        let (Answer::Decided { verdict: Verdict::Admit(word), .. } | Answer::Decided { word, .. }) = *answer else {
            return;
        };
        let mut shard = lock(self.shard(hash));
        if let Some(LocalQuota { own, kind: QuotaKind::Synced { view, .. }, .. }) = held(&mut shard, hash)
            && own.meter == *charged
        {
            view.heard(charged, word);
        }
    }

    /// Returns the tokens of a synced key that were spent here and that no answer of the store has covered yet.
    #[cfg(feature = "model")]
    pub(crate) fn unanswered(&self, hash: u64) -> u64 {
        match held(&mut lock(self.shard(hash)), hash) {
            Some(LocalQuota { kind: QuotaKind::Synced { view, .. }, .. }) => view.unanswered(),
            _ => 0,
        }
    }

    /// Records that a view is used.
    pub(crate) fn note_view(&self) {
        // Written once for many checks, since several threads share the cache line.
        if !self.viewed.load(Ordering::Relaxed) {
            self.viewed.store(true, Ordering::Relaxed);
        }
    }

    /// Puts back a charge of a denied request into the quota. Returns the other tokens, which the store must take back.
    pub(crate) fn put_back(&self, hash: u64, sharing: Sharing, meter: &Meter, receipt: &Receipt) -> u64 {
        let now = self.store.moment();
        let mut shard = lock(self.shard(hash));
        let holding = held(&mut shard, hash).filter(|it| it.is_of(sharing) && it.own.meter == *meter);
        match holding.map(|holding| &mut holding.kind) {
            Some(QuotaKind::Leased { lease, .. }) => lease.put_back(meter, receipt, now),
            Some(QuotaKind::Synced { view, .. }) => view.put_back(meter, receipt, now.store),
            None => receipt.cost,
        }
    }

    /// Charges a view for what was used already, up to a debt of `max_debt`. `false`: the charge is for the store.
    pub(crate) fn overcharge(&self, hash: u64, tokens: u64, max_debt: u64) -> bool {
        let now = self.store.moment();
        let mut shard = lock(self.shard(hash));
        let Some(LocalQuota { own, kind: QuotaKind::Synced { view, .. }, .. }) = held(&mut shard, hash) else {
            return false;
        };
        if view.overcharge(&own.meter, tokens, max_debt, now.store) {
            drop(shard);
            lock(&self.untold).push(hash);
        }
        true
    }

    /// Forgets the quota of a key.
    pub(crate) fn forget(&self, hash: u64) {
        let removed = self.remove(&mut lock(self.shard(hash)), hash);
        if let Some(holding) = removed {
            holding.let_go();
        }
    }

    fn remove(&self, shard: &mut Shard, hash: u64) -> Option<LocalQuota> {
        let (holding, _) = shard.find_entry(spread(hash), |it| it.hash == hash).ok()?.remove();
        self.keys.fetch_sub(1, Ordering::Relaxed);
        self.figures.out.fetch_sub(holding.out(), Ordering::Relaxed);
        Some(holding)
    }

    fn born(&self, charge: &StoreCharge<'_>, own: VersionedMeter, now: ClockReading) -> LocalQuota {
        let name = self.store.keys.name(charge);
        LocalQuota::new(charge, own, name, now, self.births.fetch_add(1, Ordering::Relaxed))
    }

    /// Switches a quota to other numbers or another sharing mode. A view goes on with its state; a lease goes back, and
    /// a new one begins.
    fn renumber(
        self: &Arc<Self>,
        holding: &mut LocalQuota,
        charge: &StoreCharge<'_>,
        own: VersionedMeter,
        now: ClockReading,
    ) {
        if let (QuotaKind::Synced { view, .. }, Sharing::Synced) = (&mut holding.kind, charge.sharing) {
            view.carry(&holding.own.meter, &own.meter, now.store);
            holding.own = own;
            return;
        }
        self.figures.out.fetch_sub(holding.out(), Ordering::Relaxed);
        let new = self.born(charge, own, now);
        self.look_at(new.place());
        let old = mem::replace(holding, new);
        self.retire(old, now);
    }

    /// Gives back all leases, sends the charges of all views, and forgets them.
    pub(crate) fn release_all(&self) {
        let now = self.store.moment();
        for shard in &self.shards {
            let all: Vec<_> = lock(shard).drain().collect();
            for holding in all {
                self.keys.fetch_sub(1, Ordering::Relaxed);
                self.figures.out.fetch_sub(holding.out(), Ordering::Relaxed);
                self.retire(holding, now);
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
                self.store.tell(slot, KeyRequest::again(key, old.own, back, Some(text)));
            }
            QuotaKind::Synced { view, text } if view.untold() > 0 => {
                // These requests were admitted, so all of it counts.
                let untold = Intent::Overcharge { tokens: view.untold(), max_debt: u64::MAX };
                self.store.tell(slot, KeyRequest::again(key, old.own, untold, text.as_deref()));
            }
            _ => {}
        }
        old.let_go();
    }

    fn shard(&self, hash: u64) -> &Mutex<Shard> {
        &self.shards[(hash % SHARDS as u64) as usize]
    }

    fn look_at(&self, place: QuotaRef) {
        lock(&self.due).push_back((Instant::now() + look_every(self.store.lease_ns()), place));
    }

    /// Requests tokens in the background, or gives back those that are left.
    fn renew(self: &Arc<Self>, holding: &mut LocalQuota, need: u64, keep: bool, now: ClockReading) {
        let (out, own, place) = (holding.out(), holding.own, holding.place());
        let QuotaKind::Leased { lease, text, waiters } = &mut holding.kind else { return };
        let Some(permit) = self.store.permit() else {
            // The request is not sent, so the store counts as before.
            fail(waiters);
            return;
        };
        let ask = lease.ask(&own.meter, need, keep, now);
        let part = KeyRequest::again(holding.name.key.clone(), own, Intent::Lease(ask), Some(text));
        let slot = self.store.background_slot(&holding.name.slot);
        self.figures.out.fetch_sub(out, Ordering::Relaxed);
        self.renewing.fetch_add(1, Ordering::Relaxed);
        let holdings = Arc::clone(self);
        // The request is queued at once, so that a check that comes to wait for it can make it urgent.
        let asked = self.store.ask_in_background(slot, part, self.store.patience_of_leases(), need > 0);
        self.store.runtime().spawn(async move {
            let told = holdings.store.hear(permit, asked).await;
            holdings.renewing.fetch_sub(1, Ordering::Relaxed);
            holdings.renewed(place, &ask, told);
        });
    }

    fn renewed(self: &Arc<Self>, place: QuotaRef, ask: &LeaseRequest, told: Option<KeyReply>) {
        let now = self.store.moment();
        let mut shard = lock(self.shard(place.hash));
        let Some(LocalQuota { own, name, kind: QuotaKind::Leased { lease, text, waiters }, .. }) =
            held_at(&mut shard, place)
        else {
            return;
        };
        let Some(KeyReply { answer, grant: Some(grant), text: found, now: heard_at, .. }) = told else {
            lease.failed();
            fail(waiters);
            return;
        };
        let mut waiting: VecDeque<_> = mem::take(waiters).into();
        lease.granted(&own.meter, ask, &grant, (heard_at, now), self.store.lease_ns());
        *text = found;
        self.figures.out.fetch_add(i64::try_from(lease.out()).unwrap_or(i64::MAX), Ordering::Relaxed);
        // The check for which the lease was requested takes this answer, which is not right for a check that came
        // later.
        if ask.need > 0
            && (grant.is_charged || !matches!(answer, Answer::Decided { verdict: Verdict::Admit(_), .. }))
            && let Some((cost, first)) = waiting.pop_front()
            && let Err(Some(Answer::Decided { verdict: Verdict::Admit(word), now: charged_at, .. })) =
                first.send(Some(answer))
        {
            let receipt = Receipt { cost, charged_at, word, moved_ns: u64::MAX };
            let slot = self.store.background_slot(&name.slot);
            self.store.tell(slot, KeyRequest::again(name.key.clone(), *own, Intent::GiveBack(receipt), None));
        }
        for (cost, waiter) in waiting {
            let before = *lease;
            let said = match lease.spend(&own.meter, cost, now) {
                SpendResult::Answer(answer, _) => Some(answer),
                SpendResult::Ask => None,
            };
            if waiter.send(said).is_err() {
                // The check has given up.
                *lease = before;
            }
        }
    }

    /// Looks after the quotas that are due: leases in use are renewed, others go back, and idle quotas are forgotten.
    fn look_after(self: &Arc<Self>) {
        let at = Instant::now();
        while self.renewing.load(Ordering::Relaxed) < RENEWING_MAX {
            let place = {
                let mut due = lock(&self.due);
                match due.front() {
                    Some((when, place)) if *when <= at => {
                        let place = *place;
                        due.pop_front();
                        place
                    }
                    _ => return,
                }
            };
            if self.look_after_one(place) {
                self.look_at(place);
            }
        }
    }

    /// Looks after one quota. Returns `false` if it is gone.
    fn look_after_one(self: &Arc<Self>, place: QuotaRef) -> bool {
        let now = self.store.moment();
        let mut shard = lock(self.shard(place.hash));
        let Some(holding) = held_at(&mut shard, place) else { return false };
        let meter = holding.own.meter;
        let care = match &mut holding.kind {
            QuotaKind::Synced { view, .. } if view.is_idle(&meter, now.store) => Upkeep::Forget,
            QuotaKind::Synced { .. } => Upkeep::Keep,
            QuotaKind::Leased { lease, .. } => lease.look_after(now, self.store.lease_ns()),
        };
        match care {
            // Asking a store that does not answer would give up tokens that it counts as lent.
            Upkeep::Renew | Upkeep::GiveBack if self.store.is_away() => {}
            Upkeep::Renew => self.renew(holding, 0, true, now),
            Upkeep::GiveBack => self.renew(holding, 0, false, now),
            Upkeep::Keep => {}
            // No check waits for an idle quota.
            Upkeep::Forget => drop(self.remove(&mut shard, place.hash)),
        }
        care != Upkeep::Forget
    }

    /// Runs an exchange: sends the charges of all views. If the store does not answer, tries again soon, until the
    /// circuit breaker opens, so that views are not wrong for longer than necessary.
    async fn tell_all(self: &Arc<Self>) {
        let mut pause = Duration::from_millis(2);
        while !self.tell().await && !self.store.is_away() {
            // A store may refuse at once.
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(TICK);
        }
    }

    /// Sends the charges of views, and takes in the store's state of their keys. Returns `false` if an answer was
    /// missing.
    async fn tell(self: &Arc<Self>) -> bool {
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

    /// Returns the most tokens of one key that were spent here and that no answer of the store has covered.
    #[cfg(test)]
    pub(crate) fn unanswered_max(&self) -> u64 {
        let unanswered = |holding: &LocalQuota| {
            if let QuotaKind::Synced { view, .. } = &holding.kind { view.unanswered() } else { 0 }
        };
        self.shards.iter().filter_map(|shard| lock(shard).iter().map(unanswered).max()).max().unwrap_or(0)
    }

    /// Gives back all leases, and sends the charges of all views, before this node stops.
    pub(crate) async fn close(self: &Arc<Self>, within: Duration) {
        let all = async {
            let is_telling = || self.telling.load(Ordering::Relaxed) > 0 || !lock(&self.untold).is_empty();
            loop {
                self.tell().await;
                if !self.give_back_all() && !is_telling() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        drop(timeout(within, all).await);
    }

    /// Gives back the leases without a request under way. Returns `false` when no lease is left.
    fn give_back_all(self: &Arc<Self>) -> bool {
        let now = self.store.moment();
        let mut is_any = false;
        for shard in &self.shards {
            for holding in lock(shard).iter_mut() {
                let QuotaKind::Leased { lease, .. } = &holding.kind else { continue };
                let (is_asking, is_out) = (lease.is_asking, lease.out() > 0);
                is_any |= is_asking || is_out;
                if is_out && !is_asking {
                    self.renew(holding, 0, false, now);
                }
            }
        }
        is_any
    }
}

/// Answers the checks that wait: the store did not answer.
fn fail(waiters: &mut Vec<(u64, oneshot::Sender<Option<Answer>>)>) {
    for (_, waiter) in waiters.drain(..) {
        // A send error is ignored: the check may have given up.
        let _ = waiter.send(Some(Answer::Failed));
    }
}

fn held(shard: &mut Shard, hash: u64) -> Option<&mut LocalQuota> {
    shard.find_mut(spread(hash), |it| it.hash == hash)
}

/// Returns the quota of a reference, unless another one has taken its place.
fn held_at(shard: &mut Shard, place: QuotaRef) -> Option<&mut LocalQuota> {
    held(shard, place.hash).filter(|it| it.born == place.born)
}

/// Spreads the hashes of a shard, which have their lowest bits in common.
fn spread(hash: u64) -> u64 {
    hash.rotate_right(SHARDS.trailing_zeros())
}

impl LocalQuota {
    fn new(charge: &StoreCharge<'_>, own: VersionedMeter, name: KeyName, now: ClockReading, born: u64) -> Self {
        let kind = match charge.sharing {
            Sharing::Synced => QuotaKind::Synced { view: SyncedUsage::new(now.own), text: None },
            _ => QuotaKind::Leased { lease: Lease::new(), text: String::new(), waiters: Vec::new() },
        };
        Self { hash: charge.hash, own, kind, name: Box::new(name), born }
    }

    fn place(&self) -> QuotaRef {
        QuotaRef { hash: self.hash, born: self.born }
    }

    /// Drops the quota. Checks that wait for it are charged in the store.
    fn let_go(self) {
        if let QuotaKind::Leased { waiters, .. } = self.kind {
            for (_, waiter) in waiters {
                // A send error is ignored: the check may have given up.
                let _ = waiter.send(None);
            }
        }
    }

    fn is_of(&self, sharing: Sharing) -> bool {
        matches!(
            (&self.kind, sharing),
            (QuotaKind::Leased { .. }, Sharing::Leased) | (QuotaKind::Synced { .. }, Sharing::Synced)
        )
    }

    fn out(&self) -> i64 {
        match &self.kind {
            QuotaKind::Leased { lease, .. } => i64::try_from(lease.out()).unwrap_or(i64::MAX),
            QuotaKind::Synced { .. } => 0,
        }
    }
}

/// Runs a task at intervals until the quotas are dropped.
async fn every<W: Future<Output = ()>>(
    pause: Duration,
    to: Weak<LocalQuotas>,
    mut work: impl FnMut(Arc<LocalQuotas>) -> W,
) {
    loop {
        tokio::time::sleep(pause).await;
        let Some(to) = to.upgrade() else { return };
        work(to).await;
    }
}
