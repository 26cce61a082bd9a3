//! The quotas that this node holds of shared limits, by key, and their upkeep: leases are renewed and given back, and
//! what was spent of synced limits is sent to the store.

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
        client::{batcher::Batcher, clock::ClockReading, queue::BACKGROUND},
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

/// Keys of which a node holds something, at most; others are asked for one by one.
const KEYS_MAX: usize = 1_000_000;

/// The most views that have something to tell, or are being told. While there are so many, checks of other keys are charged in
/// the store. So a caller that brings new keys without end waits for the store, and the views of others are told soon.
const LISTED_MAX: u64 = 131_072;

/// The most new keys of synced limits of which a node makes a view before it tells what it has next. Checks of further ones are
/// charged in the store until then.
const NEW_VIEWS_MAX: u64 = 8_192;

/// Views that are told at a time, in a number of scripts.
const TOLD_AT_ONCE: usize = 256;

/// How often those are looked for whose time has come.
const TICK: Duration = Duration::from_millis(50);

/// While so many leases are asked for, or given back, those whose time has come wait for the next time: what checks wait for
/// leaves them a quarter of a script.
const RENEWING_MAX: u64 = 512;

/// How often it is seen, while views are asked, whether the store has been silent for long: between two exchanges.
const PROBE: Duration = Duration::from_millis(25);

pub(crate) struct LocalQuotas {
    store: Arc<Batcher>,
    shards: [Mutex<Shard>; SHARDS],
    keys: AtomicU64,
    /// Quotas that there were so far.
    births: AtomicU64,
    /// What is to be looked at, and when.
    due: Mutex<VecDeque<(Instant, QuotaRef)>>,
    /// Leases that are being asked for, or given back.
    renewing: AtomicU64,
    /// Views with something to tell; and how many were taken from there and are not told yet.
    untold: Mutex<Vec<u64>>,
    telling: AtomicU64,
    /// Views that were made since they were told last.
    new_views: AtomicU64,
    /// Whether any view was asked since that was seen last. One that only denies has nothing to tell.
    viewed: AtomicBool,
    /// This process, as those know it that it tells.
    node: String,
    pub(crate) figures: QuotaCounters,
}

/// What is out, and how far views were wrong.
#[derive(Debug, Default)]
pub(crate) struct QuotaCounters {
    /// Tokens that the store counts as lent to this node.
    pub(crate) out: AtomicI64,
    /// The most tokens above a limit that the store has said, and how often it was above.
    pub(crate) overshoot_max: AtomicU64,
    pub(crate) overshoots: AtomicU64,
    /// The most tokens of one key that were spent from the sending of one exchange to the answer to the next.
    pub(crate) untold_max: AtomicU64,
    /// Nanoseconds for which the oldest was untold when the store had it, at the last exchange.
    pub(crate) lag_ns: AtomicU64,
}

/// By the hash of the key, which is random already.
type Shard = HashTable<LocalQuota>;

/// What each check needs comes first, in two lines of a cache, which processors fetch together.
#[repr(C, align(128))]
struct LocalQuota {
    hash: u64,
    own: VersionedMeter,
    kind: QuotaKind,
    name: Box<KeyName>,
    born: u64,
}

/// Where a holding is, and which one it must be.
#[derive(Clone, Copy)]
struct QuotaRef {
    hash: u64,
    born: u64,
}

// The place of the tag: first.
#[repr(u64)]
enum QuotaKind {
    Leased { lease: Lease, text: String, waiters: Vec<(u64, oneshot::Sender<Option<Answer>>)> },
    Synced { view: SyncedUsage, text: Option<String> },
}

/// What a node that holds something says to a charge.
pub(crate) enum LocalAnswer {
    Answer(Answer),
    /// In a moment; with `None` it is to be charged in the store.
    Waits(oneshot::Receiver<Option<Answer>>),
    /// It is to be charged in the store.
    Store,
}

impl LocalQuotas {
    /// Looks after itself until it is dropped.
    pub(crate) fn new(store: &Arc<Batcher>, interval: Duration) -> Arc<Self> {
        // Two processes have the same once in 2^64.
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

    /// Charges what this node holds, or says what that would come to. `is_patient`: may the answer come later?
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
            // Other numbers. A node that is behind does not bring the old ones back.
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
                // What the store counts is not to be lost for a question that nobody answers.
                SpendResult::Answer(answer @ Answer::Decided { verdict: Verdict::Admit(_), .. }, true) => {
                    LocalAnswer::Answer(answer)
                }
                // Whoever would wait for it would wait in vain.
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
                // Without an answer, what the limit says for that case decides.
                SpendResult::Answer(_, true) | SpendResult::Ask => LocalAnswer::Store,
            },
        }
    }

    fn is_telling_much(&self) -> bool {
        self.telling.load(Ordering::Relaxed) + lock(&self.untold).len() as u64 >= LISTED_MAX
    }

    /// Takes in what the store has of a key for which it was asked instead of the view.
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

    /// A view is asked.
    pub(crate) fn note_view(&self) {
        // Written once for many checks: they are of several threads.
        if !self.viewed.load(Ordering::Relaxed) {
            self.viewed.store(true, Ordering::Relaxed);
        }
    }

    /// Puts back what was taken of what this node holds; what it does not hold any more is the store's.
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

    /// Charges a view what was used already, up to a debt of `max_debt`. `false`: it is to be charged in the store.
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

    /// Forgets what this node holds of a key.
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

    /// Goes on by other numbers, or by another way to share: a view with what it has, a lease anew, after the old one went back.
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

    /// Gives back all leases and tells all views, and forgets them.
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

    /// Gives back a lease, or tells a view, that this node does not go on with.
    fn retire(&self, mut old: LocalQuota, now: ClockReading) {
        let slot = self.store.background_slot(&old.name.slot);
        let key = old.name.key.clone();
        match &mut old.kind {
            QuotaKind::Leased { lease, text, .. } if lease.out() > 0 => {
                let back = Intent::Lease(lease.ask(&old.own.meter, 0, false, now));
                self.store.tell(slot, KeyRequest::again(key, old.own, back, Some(text)));
            }
            QuotaKind::Synced { view, text } if view.untold() > 0 => {
                // It was admitted, so all of it counts.
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

    /// Asks for tokens in the background, or gives back those that are left.
    fn renew(self: &Arc<Self>, holding: &mut LocalQuota, need: u64, keep: bool, now: ClockReading) {
        let (out, own, place) = (holding.out(), holding.own, holding.place());
        let QuotaKind::Leased { lease, text, waiters } = &mut holding.kind else { return };
        let Some(permit) = self.store.permit() else {
            // It is not asked, so what it counts is what it did.
            fail(waiters);
            return;
        };
        let ask = lease.ask(&own.meter, need, keep, now);
        let part = KeyRequest::again(holding.name.key.clone(), own, Intent::Lease(ask), Some(text));
        let slot = self.store.background_slot(&holding.name.slot);
        self.figures.out.fetch_sub(out, Ordering::Relaxed);
        self.renewing.fetch_add(1, Ordering::Relaxed);
        let holdings = Arc::clone(self);
        // At once: a check that comes to wait for it finds it there, to hurry it.
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
        // The check for which the lease was asked has the answer. It is of that moment, so it is not right for one that came later.
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
                // The check has gone.
                *lease = before;
            }
        }
    }

    /// Those whose time has come: leases in use are renewed, others go back, and what is idle is forgotten.
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

    /// `false`: it is gone.
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
            // What the store counts is not to be lost for a question that nobody answers.
            Upkeep::Renew | Upkeep::GiveBack if self.store.is_away() => {}
            Upkeep::Renew => self.renew(holding, 0, true, now),
            Upkeep::GiveBack => self.renew(holding, 0, false, now),
            Upkeep::Keep => {}
            // Nobody waits for it.
            Upkeep::Forget => drop(self.remove(&mut shard, place.hash)),
        }
        care != Upkeep::Forget
    }

    /// Tells what is untold. A store that does not answer is asked again at once, until it is left alone: views that nobody
    /// corrects are wrong for no longer.
    async fn tell_all(self: &Arc<Self>) {
        let mut pause = Duration::from_millis(2);
        while !self.tell().await && !self.store.is_away() {
            // It may have failed at once.
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(TICK);
        }
    }

    /// Tells the store what was spent of views, and takes in what it has. `false`: there was no answer.
    async fn tell(self: &Arc<Self>) -> bool {
        // First, so that there is no moment in which nothing seems to be left.
        self.telling.fetch_add(1, Ordering::Relaxed);
        let untold = mem::take(&mut *lock(&self.untold));
        self.new_views.store(0, Ordering::Relaxed);
        // What is left of them counts until it is told.
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

    /// Starts to tell what was spent of a view, if anything was. The task returns whether the store answered.
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

    /// Of what was told by these numbers.
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

    /// Gives back what is left, and tells what is untold, before this node goes.
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

    /// Gives back the leases that nothing is asked for just now. `false`: there are none any more.
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

/// There was no answer for those that wait.
fn fail(waiters: &mut Vec<(u64, oneshot::Sender<Option<Answer>>)>) {
    for (_, waiter) in waiters.drain(..) {
        // Whoever went meanwhile learns it by nobody.
        let _ = waiter.send(Some(Answer::Failed));
    }
}

fn held(shard: &mut Shard, hash: u64) -> Option<&mut LocalQuota> {
    shard.find_mut(spread(hash), |it| it.hash == hash)
}

/// The same one: not another that came in its place.
fn held_at(shard: &mut Shard, place: QuotaRef) -> Option<&mut LocalQuota> {
    held(shard, place.hash).filter(|it| it.born == place.born)
}

/// Those of one shard have their lowest bits in common.
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

    /// Whoever waits for it is charged in the store.
    fn let_go(self) {
        if let QuotaKind::Leased { waiters, .. } = self.kind {
            for (_, waiter) in waiters {
                // Whoever went meanwhile learns it by nobody.
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

/// Does something again and again, until what it is done to is gone.
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
