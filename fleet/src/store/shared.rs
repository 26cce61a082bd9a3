//! `SharedEngine`: an engine that keeps the state of its shared limits in a store, Redis or Valkey.

use std::{
    cmp::Ordering,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use redis::RedisError;
use tidegate::{
    Decide, Decision, Engine, Request, Reservation,
    algorithm::NUMBER_MAX,
    clock::Clock,
    internals::{BeginResult, Pending, Receipt, StoreAnswer, StoreCharge, Verdict},
    policy::{ResponseSettings, Sharing},
};
use tokio::time::{Instant, timeout};

use crate::store::{
    address::{self, StoreAddress},
    client::{batcher::Batcher, redis_client::CONNECT_IN, store_connection::StoreConnection},
    config::StoreSettings,
    error::StoreError,
    fault::StoreFault,
    key::{KeyName, KeyNames},
    local::{local_quotas::LocalQuotas, quota::LocalAnswer},
    script::{
        decode::KeyReply,
        plan::{Intent, KeyRequest},
        record::VersionedMeter,
    },
    stats::StoreStats,
};

/// The time for which the fault of a missing secret is reported: longer than it can last.
const NO_SECRET_FOR: Duration = Duration::from_hours(24 * 365 * 10);

/// An engine that keeps the state of its shared limits in a store: see [`Decide`]. [`close`](Self::close) gives back
/// its leases and sends what the store does not know yet.
pub struct SharedEngine<C> {
    engine: Arc<Engine<C>>,
    store: Arc<Batcher>,
    pub(super) quotas: Arc<LocalQuotas>,
}

impl<C> fmt::Debug for SharedEngine<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedEngine").finish_non_exhaustive()
    }
}

impl<C: Clock> SharedEngine<C> {
    /// Shares the limits of an engine through the store at an address. Probes the store for at most a second. A store
    /// that does not answer is connected to later; until then `on_failure` of each limit decides.
    ///
    /// # Errors
    ///
    /// The address is invalid.
    pub async fn new(
        engine: Arc<Engine<C>>,
        address: &StoreAddress,
        settings: StoreSettings,
    ) -> Result<Self, StoreError> {
        let StoreAddress { urls, prefix, tls, secret } = address;
        let unusable = |error: RedisError| StoreError::Address { place: 0, of: urls.len(), why: error.to_string() };
        let keys = KeyNames::with(prefix, secret)?;
        let servers = address::parse(urls)?;
        let tls = tls.check(servers.use_tls())?;
        let connection = StoreConnection::to(servers, tls, prefix).map_err(unusable)?;
        Ok(Self::over(engine, connection, keys, settings).await)
    }

    /// Shares the limits of an engine over this connection.
    pub(super) async fn over(
        engine: Arc<Engine<C>>,
        connection: StoreConnection,
        keys: KeyNames,
        settings: StoreSettings,
    ) -> Self {
        let store = Arc::new(Batcher::new(connection, keys, settings));
        if store.keys.are_awaited() {
            store.faults.note(StoreFault::NoSecret, NO_SECRET_FOR, String::new);
        }
        let greeted = store.greet(CONNECT_IN).await;
        if let Err(fault) = greeted {
            tracing::warn!(%fault, "the store does not answer yet; limits that nodes share are decided without it");
        }
        store.runtime.spawn(Batcher::watch(Arc::downgrade(&store), greeted.is_ok()));
        let quotas = LocalQuotas::new(&store);
        Self { engine, store, quotas }
    }

    /// Returns a number below 2^53 that identifies the store: the same for the same addresses and prefix.
    #[must_use]
    pub fn store_id(&self) -> u64 {
        self.store.connection.id
    }

    /// Takes the secret from which the admin server's fleet derives the names of keys; `None`: the server has none. It
    /// is ignored if a secret was [given](super::KeySecret::Given). Where keys had other names before, leases are given
    /// back and views are sent under the old names, and each limit starts anew, as with keys of another version.
    pub fn take_key_secret(&self, sent: Option<&[u8]>) {
        if self.store.keys.take(sent) {
            tracing::warn!("the names of keys in the store are derived with another secret: shared limits start anew");
            self.quotas.release_all();
        }
        if !self.store.keys.are_awaited() {
            self.store.faults.end(StoreFault::NoSecret);
        }
    }

    /// Returns the engine.
    #[must_use]
    pub fn engine(&self) -> &Arc<Engine<C>> {
        &self.engine
    }
}

/// The steps of a check over the store, for the crates of this repository. They may change in any version; other programs ask
/// by [`Decide`].
#[doc(hidden)]
impl<C: Clock> SharedEngine<C> {
    /// Begins a check: see [`Engine::begin`]. Charges this node's leases and views at once; where they suffice, the
    /// check is decided.
    pub fn begin<'r>(&self, request: &'r Request<'r>) -> BeginResult<'_, 'r> {
        let held = |charge: &StoreCharge<'_>| match self.charge(charge, false) {
            LocalAnswer::Answer(answer) => Some(answer),
            LocalAnswer::Waits(_) | LocalAnswer::Store => None,
        };
        let (begun, in_vain) = self.engine.begin_with(request, held);
        if let Some(in_vain) = in_vain {
            self.take_back(in_vain.charges().filter_map(|charge| charged(self.keys(), &charge)));
        }
        begun
    }

    /// Begins a check, or a look, without charging anything: see [`Engine::begin_if_shared`].
    #[must_use]
    pub fn begin_if_shared<'r>(&self, request: &'r Request<'r>, is_look: bool) -> Option<BeginResult<'_, 'r>> {
        self.engine.begin_if_shared(request, is_look)
    }

    /// Charges what a pending check needs, in the store and in this node's leases and views, within the timeout. The
    /// answers are for [`finish`](Self::finish).
    pub fn ask(&self, pending: &Pending<'_>) -> impl Future<Output = Vec<StoreAnswer>> + Send + use<C> {
        let mut answers = Vec::new();
        let mut waits = Vec::new();
        let mut requests_by_slot: Vec<(String, Vec<KeyRequest>, Vec<usize>)> = Vec::new();
        let mut views = Vec::new();
        for (place, charge) in pending.charges().enumerate() {
            answers.push(charge.answered.unwrap_or(StoreAnswer::Failed));
            if charge.answered.is_some() {
                continue;
            }
            match self.charge(&charge, true) {
                LocalAnswer::Answer(answer) => answers[place] = answer,
                LocalAnswer::Waits(answer) => waits.push((place, answer, request_of(self.keys(), &charge))),
                LocalAnswer::Store => {
                    add(&mut requests_by_slot, request_of(self.keys(), &charge), place);
                    if charge.sharing == Sharing::Synced {
                        views.push((place, charge.hash, charge.meter));
                    }
                }
            }
        }
        let (store, quotas) = (Arc::clone(&self.store), Arc::clone(&self.quotas));
        async move {
            if waits.is_empty() && requests_by_slot.is_empty() {
                return answers;
            }
            let began = Instant::now();
            // Checks that wait for a lease come first: what the lease does not cover goes out with the other requests.
            for (place, answer, request) in waits {
                let left = store.settings.timeout.saturating_sub(began.elapsed());
                match timeout(left, answer).await {
                    Ok(Ok(Some(answer))) => answers[place] = answer,
                    // The lease did not cover all checks that waited.
                    Ok(Ok(None)) => add(&mut requests_by_slot, request, place),
                    _ => {}
                }
            }
            // A request that cannot be answered in time is not sent, and so not charged.
            if !requests_by_slot.is_empty() && began.elapsed() < store.settings.timeout {
                let by_slot = requests_by_slot.into_iter().map(|(slot, requests, places)| ((slot, requests), places));
                let (asked, places): (Vec<_>, Vec<_>) = by_slot.unzip();
                for (places, replies) in places.iter().zip(store.ask(asked, began).await) {
                    for (&place, reply) in places.iter().zip(replies.into_iter().flatten()) {
                        answers[place] = reply.answer;
                    }
                }
            }
            for (place, hash, meter) in views {
                quotas.take_store_state(hash, &meter, &answers[place]);
            }
            store.counts.waits.count(began.elapsed());
            answers
        }
    }

    /// Returns what the store has of the limits of each inspection, whatever this node holds of them, for
    /// [`Engine::inspect_with`]. Waits longer than a check, half a second, since an operator asks.
    pub async fn look(&self, pending: &[&Pending<'_>]) -> Vec<Vec<StoreAnswer>> {
        if self.store.keys.are_awaited() {
            return pending.iter().map(|pending| vec![StoreAnswer::Failed; pending.charges().count()]).collect();
        }
        let charges = pending.iter().flat_map(|pending| pending.charges());
        let asked = charges.map(|charge| request_of(self.keys(), &charge)).collect();
        let mut replies = self.store.ask_for_operators(asked).await.into_iter();
        let answer = |reply: Option<KeyReply>| reply.map_or(StoreAnswer::Failed, |reply| reply.answer);
        let of = |pending: &&Pending<'_>| replies.by_ref().take(pending.charges().count()).map(answer).collect();
        pending.iter().map(of).collect()
    }

    /// Finishes a check: see [`Engine::finish`]. Gives back charges of a request that was denied.
    pub fn finish(&self, pending: Pending<'_>, answers: &[StoreAnswer]) -> Decision<'_> {
        let (decision, in_vain) = self.engine.finish(pending, answers);
        if let Some(in_vain) = in_vain {
            self.take_back(in_vain.charges().filter_map(|charge| charged(self.keys(), &charge)));
        }
        decision
    }

    /// Finishes a check as [`finish`](Self::finish) does; what was charged can be settled later.
    pub fn finish_reserved(
        &self,
        pending: Pending<'_>,
        answers: &[StoreAnswer],
    ) -> (Decision<'_>, Option<SharedReservation>) {
        let (stored, estimate) = (all_charged(self.keys(), &pending, answers), pending.cost());
        let (decision, here, in_vain) = self.engine.finish_reserved(pending, answers);
        if in_vain.is_some() {
            self.take_back(stored);
            return (decision, None);
        }
        (decision, here.map(|here| SharedReservation { here, estimate, stored }))
    }

    /// Gives back the charges of a check that is not finished after all.
    pub fn abandon(&self, pending: &Pending<'_>, answers: &[StoreAnswer]) {
        self.take_back(all_charged(self.keys(), pending, answers));
    }
}

impl<C: Clock> SharedEngine<C> {
    /// Settles a reservation: see [`Engine::settle`].
    pub fn settle(&self, reserved: SharedReservation, actual: u64) {
        let SharedReservation { here, estimate, stored } = reserved;
        self.engine.settle(here, actual);
        for charged in stored {
            let whole = u128::from(charged.receipt.cost) * u128::from(actual.min(NUMBER_MAX));
            let actual = u64::try_from(whole.div_ceil(u128::from(estimate.max(1)))).unwrap_or(u64::MAX);
            let cost = charged.receipt.cost.abs_diff(actual);
            match actual.cmp(&charged.receipt.cost) {
                Ordering::Less => {
                    let receipt = Receipt { cost, ..charged.receipt };
                    self.take_back([AppliedCharge { receipt, ..charged }]);
                }
                Ordering::Equal => {}
                Ordering::Greater => self.overcharge(charged, cost),
            }
        }
    }

    /// Clears the limits of a request in the store, as [`Engine::reset`] does for those of this node. Each node must
    /// then [`forget`](Self::forget) what it holds of them. Returns the number of limits.
    ///
    /// # Errors
    ///
    /// The store did not answer.
    pub async fn clear(&self, request: &Request<'_>) -> Result<usize, StoreError> {
        let Some(pending) = self.engine.begin_inspection(request) else { return Ok(0) };
        if self.store.keys.are_awaited() {
            return Err(StoreError::Silent);
        }
        let cleared = |charge: StoreCharge<'_>| {
            let KeyName { slot, key } = self.keys().name(&charge);
            (slot, KeyRequest::new(key, &charge, Intent::Reset))
        };
        let asked: Vec<_> = pending.charges().map(cleared).collect();
        let count = asked.len();
        if self.store.ask_for_operators(asked).await.iter().any(Option::is_none) {
            return Err(StoreError::Silent);
        }
        Ok(count)
    }

    /// Forgets the leases and views that this node holds of the shared limits of a request, with what a view has not
    /// sent yet. The store still counts the leases as out unless it was [cleared](Self::clear) before.
    pub fn forget(&self, request: &Request<'_>) {
        if let Some(pending) = self.engine.begin_inspection(request) {
            pending.charges().for_each(|charge| self.quotas.forget(charge.hash));
        }
    }

    /// Returns the statistics of the store and of this node's leases and views.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        let (counts, held) = (&self.store.counts, &self.quotas.counters);
        let read = |count: &AtomicU64| count.load(Relaxed);
        StoreStats {
            is_open: self.store.is_open(),
            opened: read(&counts.opened),
            asked: read(&counts.asked),
            failed: read(&counts.failed),
            faults: self.store.faults.current(self.store.is_open()),
            fault_counts: self.store.faults.counts(),
            took: Duration::from_nanos(read(&counts.took_ns)),
            waits: counts.waits.read(),
            leased_out: u64::try_from(held.out.load(Relaxed)).unwrap_or(0),
            overshoots: read(&held.overshoots),
            overshoot_max: read(&held.overshoot_max),
            untold_max: read(&held.untold_max),
            sync_lag: Duration::from_nanos(read(&held.lag_ns)),
        }
    }

    /// Returns the store's time as this node knows it, never ahead of the store, and the tokens of the synced limits of a
    /// request that this node spent and that no answer of the store has covered yet.
    #[cfg(feature = "model")]
    #[doc(hidden)]
    #[must_use]
    pub fn unanswered(&self, request: &Request<'_>) -> (u64, u64) {
        let pending = self.engine.begin_inspection(request);
        let charges = pending.iter().flat_map(Pending::charges);
        (self.store.clock_reading().store, charges.map(|charge| self.quotas.unanswered(charge.hash)).sum())
    }

    /// Gives back leases and sends what the store does not know yet, before the process ends. Takes at most a second.
    pub async fn close(&self) {
        self.quotas.close().await;
    }

    pub(super) fn keys(&self) -> &KeyNames {
        &self.store.keys
    }

    fn charge(&self, charge: &StoreCharge<'_>, is_patient: bool) -> LocalAnswer {
        // The name of the key is not known yet.
        if self.store.keys.are_awaited() {
            return LocalAnswer::Answer(StoreAnswer::Failed);
        }
        // Without its store a view is not corrected, so `on_failure` of the limit decides.
        if charge.sharing == Sharing::Synced && self.store.is_away() {
            self.quotas.note_view();
            return LocalAnswer::Answer(StoreAnswer::Failed);
        }
        self.quotas.charge(charge, is_patient)
    }

    fn take_back(&self, charged: impl IntoIterator<Item = AppliedCharge>) {
        for AppliedCharge { hash, name, receipt, own, sharing, .. } in charged {
            let left = match sharing {
                Sharing::Strict => receipt.cost,
                _ => self.quotas.put_back(hash, sharing, &own.meter, &receipt),
            };
            if left > 0 {
                let intent = Intent::GiveBack(Receipt { cost: left, ..receipt });
                self.store.send_detached(name.slot, KeyRequest::again(name.key, own, intent, None));
            }
        }
    }

    fn overcharge(&self, charged: AppliedCharge, tokens: u64) {
        let AppliedCharge { hash, sharing, name: KeyName { slot, key }, own, max_debt, .. } = charged;
        if sharing != Sharing::Synced || !self.quotas.overcharge(hash, tokens, max_debt) {
            self.store.send_detached(slot, KeyRequest::again(key, own, Intent::Overcharge { tokens, max_debt }, None));
        }
    }
}

impl<C: Clock> Decide for SharedEngine<C> {
    async fn decide<'a>(&'a self, request: &'a Request<'a>) -> Decision<'a> {
        match self.begin(request) {
            BeginResult::Decided(decision) => decision,
            BeginResult::Pending(pending) => {
                let answers = self.ask(&pending).await;
                self.finish(pending, &answers)
            }
        }
    }

    fn response_settings(&self, domain: &str) -> ResponseSettings {
        self.engine.response_settings(domain)
    }
}

/// A reservation that the store, or a lease or view of this node, charged in part.
#[derive(Debug)]
#[must_use = "a reservation that is not settled stands as charged"]
pub struct SharedReservation {
    here: Reservation,
    estimate: u64,
    stored: Vec<AppliedCharge>,
}

impl SharedReservation {
    /// Returns whether nothing was charged: see [`Reservation::is_empty`].
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.here.is_empty() && self.stored.is_empty()
    }

    /// Returns the largest cost at which it should be settled: see [`Reservation::actual_max`].
    #[must_use]
    pub fn actual_max(&self, multiple: u64) -> u64 {
        self.here.actual_max(multiple)
    }
}

/// A charge, with what is needed to take it back.
#[derive(Debug)]
struct AppliedCharge {
    hash: u64,
    sharing: Sharing,
    name: KeyName,
    own: VersionedMeter,
    max_debt: u64,
    receipt: Receipt,
}

fn charged(keys: &KeyNames, charge: &StoreCharge<'_>) -> Option<AppliedCharge> {
    let Some(StoreAnswer::Decided { verdict: Verdict::Admit(word), now, .. }) = charge.answered else { return None };
    Some(AppliedCharge {
        hash: charge.hash,
        sharing: charge.sharing,
        name: keys.name(charge),
        own: VersionedMeter { meter: charge.meter, version: charge.version },
        max_debt: charge.max_debt,
        receipt: Receipt { cost: charge.cost, charged_at: now, word, moved_ns: u64::MAX },
    })
}

fn all_charged(keys: &KeyNames, pending: &Pending<'_>, answers: &[StoreAnswer]) -> Vec<AppliedCharge> {
    let each = pending.charges().zip(answers);
    each.filter_map(|(mut charge, &answer)| {
        charge.answered = Some(answer);
        charged(keys, &charge)
    })
    .collect()
}

fn request_of(keys: &KeyNames, charge: &StoreCharge<'_>) -> (String, KeyRequest) {
    let KeyName { slot, key } = keys.name(charge);
    let intent = if charge.is_look { Intent::Look(charge.cost) } else { Intent::Charge(charge.cost) };
    (slot, KeyRequest::new(key, charge, intent))
}

/// Adds a request to those of its slot.
fn add(
    requests_by_slot: &mut Vec<(String, Vec<KeyRequest>, Vec<usize>)>,
    (slot, request): (String, KeyRequest),
    place: usize,
) {
    match requests_by_slot.iter_mut().find(|(of, ..)| *of == slot) {
        Some((_, requests, places)) => {
            requests.push(request);
            places.push(place);
        }
        None => requests_by_slot.push((slot, vec![request], vec![place])),
    }
}
