//! What all doors of a process share: the engine and its store, what was answered to request ids, open reservations; and what
//! is answered when something goes wrong. It knows no protocol.
//!
//! Without a store nothing here waits: each of its futures is ready when it is first asked.

use std::{
    hash::RandomState,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use futures_util::stream::{self, StreamExt};
use tidegate::{Begun, Decision, Degraded, Engine, Inspected, Pending, Rate, Request, clock::Clock, policy::OnError};
use tidegate_fleet::store::{Reserved, Shared};
use tokio::{task::yield_now, time::Instant};

use crate::shared::{
    caller_shares::{Caller, CallerKey, CallerShare, NoRoom},
    degraded::{DegradedCounts, LogLimiter},
    request_id_cache::{Call, Decided, RequestId, Retries, Reused},
    reservations::{Gone, Held, ReservationId, ReservationOutcome, Reservations, ShareTaken},
    store_concurrency::StorePlaces,
};

/// Decides for the doors of a process: one for all of them, since ids of requests and of reservations are known to the one
/// that was told of them.
#[derive(Debug)]
pub struct Decider<C> {
    engine: Arc<Engine<C>>,
    /// Where limits are kept that nodes share.
    store: Option<Arc<Shared<C>>>,
    store_places: StorePlaces,
    retries: Retries,
    reservations: Reservations,
    /// The multiple of its estimate at which a reservation may be settled, where that is more than one burst.
    settle_multiple: u64,
    /// By which callers are hashed.
    caller_secret: RandomState,
    degraded: Arc<DegradedCounts>,
    log: LogLimiter,
}

/// The multiple of its estimate at which a reservation may be settled, unless another is set.
pub const DEFAULT_SETTLE_MULTIPLE: u64 = 16;

/// The part of the places for open reservations and for request ids that one caller may have while no other has any, unless
/// another is set: in percent.
pub const DEFAULT_CALLER_SHARE: u8 = 50;

/// Checks that came together and wait at once: for the store, or for a [place](StorePlaces) there, of which a peer has as many. Each
/// takes a kilobyte, and one peer may have 1,250 batches over HTTP and 128 times as many streams over gRPC.
pub(crate) const TOGETHER: usize = 16;
/// Checks of a batch that are decided in one turn of their task: 0.1 ms. A batch of 10,000 would keep all other connections of its
/// thread waiting.
pub(crate) const TURN_CHECKS: usize = 128;

/// What a door answers.
#[derive(Debug)]
pub(crate) struct Answer<'e> {
    pub(crate) is_allowed: bool,
    /// `None`: the engine was not asked, or did not come to one.
    pub(crate) decision: Option<Decision<'e>>,
    pub(crate) degraded: Option<Degraded>,
    pub(crate) policy_version: u64,
    /// Of an estimate that was charged and can be settled.
    pub(crate) reservation: Option<ReservationId>,
    /// How long the store was waited for, of a check that asked it.
    pub(crate) waited: Option<Duration>,
}

impl Answer<'_> {
    /// When to come again after a denial that no limit decided.
    pub(crate) const CLOSED_WAIT: Duration = Duration::from_secs(1);
}

/// The reason why nothing was reserved, and nothing was charged.
#[derive(Debug)]
pub(crate) enum Unreserved {
    Reused(Reused),
    ShareTaken(ShareTaken),
}

impl From<Reused> for Unreserved {
    fn from(reused: Reused) -> Self {
        Self::Reused(reused)
    }
}

/// Why a reservation was not settled.
#[derive(Debug)]
pub(crate) enum Unsettled {
    Gone(Gone),
    /// The cost is above the most that this reservation can be settled at; it stays open.
    AboveMax {
        actual: u64,
        max: u64,
    },
    /// Something went wrong on the way; it is settled, as far as it was.
    Panicked,
}

impl<C: Clock> Decider<C> {
    /// Of this engine. An error: the system gives no random numbers.
    pub fn new(engine: Arc<Engine<C>>) -> io::Result<Self> {
        let mut secret = [0; 16];
        getrandom::fill(&mut secret).map_err(|error| io::Error::other(error.to_string()))?;
        let share = CallerShare::percent(DEFAULT_CALLER_SHARE);
        Ok(Self {
            engine,
            store: None,
            store_places: StorePlaces::default(),
            retries: Retries::new(secret, share),
            reservations: Reservations::new(share),
            settle_multiple: DEFAULT_SETTLE_MULTIPLE,
            caller_secret: RandomState::new(),
            degraded: Arc::new(DegradedCounts::new()),
            log: LogLimiter::new(),
        })
    }

    /// With the store of limits that nodes share; it is of the same engine.
    #[must_use]
    pub fn with_store(self, store: Option<Arc<Shared<C>>>) -> Self {
        Self { store, ..self }
    }

    /// Sets the multiple of its estimate at which a reservation may be settled, where that is more than one burst of the
    /// largest limit that it met: [`DEFAULT_SETTLE_MULTIPLE`] otherwise.
    #[must_use]
    pub fn with_settle_multiple(self, settle_multiple: u64) -> Self {
        Self { settle_multiple, ..self }
    }

    /// Sets the part of the places for open reservations and for request ids that one caller may have while no other has any,
    /// in percent from 1 to 100: [`DEFAULT_CALLER_SHARE`] otherwise. It is set before anything is decided.
    #[must_use]
    pub fn with_caller_share(self, percent: u8) -> Self {
        let share = CallerShare::percent(percent);
        Self { retries: self.retries.with_share(share), reservations: Reservations::new(share), ..self }
    }

    /// The store, to close it when the doors have ended.
    #[must_use]
    pub fn store(&self) -> Option<&Arc<Shared<C>>> {
        self.store.as_ref()
    }

    /// May a check wait?
    pub(crate) fn waits(&self) -> bool {
        self.store.is_some()
    }

    pub(crate) fn engine(&self) -> &Arc<Engine<C>> {
        &self.engine
    }

    pub(crate) fn retries(&self) -> &Retries {
        &self.retries
    }

    pub(crate) fn reservations(&self) -> &Reservations {
        &self.reservations
    }

    pub(crate) fn degraded(&self) -> &Arc<DegradedCounts> {
        &self.degraded
    }

    /// What a check would answer. Charges nothing.
    pub(crate) async fn peek(&self, request: &Request<'_>, caller: &Caller) -> Answer<'_> {
        let decision = self.look(request, caller).await;
        self.told(request, decision.map(unreserved))
    }

    /// Decides a request, and charges it when it is allowed; a repeat is told what the first was told.
    pub(crate) async fn check(
        &self,
        request: &Request<'_>,
        id: Option<RequestId<'_>>,
        caller: &Caller,
    ) -> Result<Answer<'_>, Reused> {
        let mut waited = None;
        let decided = self.once((id, Call::Check), caller, request, &mut waited).await?;
        Ok(Answer { waited, ..self.told(request, decided) })
    }

    /// Returns every limit that a request meets, as this node counts it; none where something went wrong.
    pub(crate) fn limits_of(&self, request: &Request<'_>) -> Vec<Inspected<'_>> {
        caught(|| self.engine.inspect(request).limits).unwrap_or_default()
    }

    /// Decides requests together, all or nothing; some bring their own numbers. `None`: it could not be done.
    pub(crate) async fn check_together(
        &self,
        requests: &[(Request<'_>, Option<Rate>)],
        caller: &Caller,
    ) -> Option<Vec<Answer<'_>>> {
        let is_stored = |store: &Shared<C>| {
            // Without a cost nothing of it is counted.
            let meets = |(request, rate): &(Request<'_>, Option<Rate>)| {
                rate.is_none() && store.pend(&request.without_cost(), true).is_some()
            };
            requests.iter().any(meets)
        };
        let decided = match &self.store {
            Some(store) if caught(|| is_stored(store)).unwrap_or(false) => {
                self.one_by_one(store, requests, caller).await
            }
            _ => self.at_once(requests),
        };
        if decided.is_none() {
            self.degraded.failed(Degraded::InternalError);
        }
        Some(decided?.into_iter().map(|decision| self.answer(unreserved(decision))).collect())
    }

    /// The same of a cost that is an estimate, which can be settled for an hour. A caller that has its share of the places for
    /// reservations is refused, and nothing is charged. Where there is no room since others have the places, the estimate is
    /// charged all the same, and the answer says so: the request may go on, and what it was charged stands.
    pub(crate) async fn reserve(
        &self,
        request: &Request<'_>,
        id: Option<RequestId<'_>>,
        caller: &Caller,
    ) -> Result<Answer<'_>, Unreserved> {
        if let Some(share_taken) = self.share_taken(caller) {
            // A repeat needs no place, nor does what is not charged.
            if let Some(id) = id
                && let Some(known) = self.retries.known(&self.engine, (id, Call::Reserve), request)?
            {
                return Ok(self.answer(known));
            }
            if self.engine.has_limit(request) {
                self.reservations.refuse();
                self.log_full(caller, NoRoom::Caller);
                return Err(Unreserved::ShareTaken(share_taken));
            }
        }
        let mut waited = None;
        let decided = self.once((id, Call::Reserve), caller, request, &mut waited).await?;
        Ok(Answer { waited, ..self.told(request, decided) })
    }

    /// Decides several in their order, later ones after the charges of earlier ones, and tells each answer.
    pub(crate) async fn check_batch<'e>(
        &'e self,
        requests: &[Request<'_>],
        caller: &Caller,
        mut tell: impl FnMut(Answer<'e>),
    ) {
        if self.store.is_some() {
            // Without an id there is none that was used before.
            let decide = |request| async move {
                let decided = self.once((None, Call::Check), caller, request, &mut None).await;
                self.told(request, decided.ok().flatten())
            };
            return self.each(requests, decide, tell).await;
        }
        for (turn, requests) in requests.chunks(TURN_CHECKS).enumerate() {
            if turn > 0 {
                yield_now().await;
            }
            let mut told = 0;
            let each = |decision| {
                told += 1;
                tell(self.answer(unreserved(decision)));
            };
            let decided = caught(|| self.engine.check_batch(requests, &mut Each(each)));
            // Deciding the next one panicked, which may have been charged: it is not decided again. The panic may also be of a
            // broken clock, before any of the next 16 was charged. Those after it are decided each alone, so that no panic is of
            // others, and no plan is made for others in vain.
            if decided.is_none()
                && let Some((panicked, later)) = requests[told..].split_first()
            {
                tell(self.undecided(panicked.parts().domain));
                for request in later {
                    tell(self.told(request, caught(|| unreserved(self.engine.check(request)))));
                }
            }
        }
    }

    /// Has each decided, and tells what it came to, in their order. Where there is a store they begin in order, and several
    /// wait for it at once, of which as many begin in the first turn. After each [`TURN_CHECKS`] other tasks of the thread have a
    /// turn.
    pub(crate) async fn each<T, F: Future>(
        &self,
        all: impl IntoIterator<Item = T>,
        decide: impl Fn(T) -> F,
        mut tell: impl FnMut(F::Output),
    ) {
        if self.store.is_none() {
            for (place, one) in (1..).zip(all) {
                tell(decide(one).await);
                end_turn(place).await;
            }
            return;
        }
        let mut decided = pin!(stream::iter(all).map(decide).buffered(TOGETHER).zip(stream::iter(1..)));
        while let Some((one, place)) = decided.next().await {
            tell(one);
            end_turn(place).await;
        }
    }

    /// Says what a reservation really cost; 0 gives all of it back. One wrong cost must not deny everyone of a shared limit
    /// for as long as it takes to repay, so what is too large to be believed is refused.
    pub(crate) fn settle(&self, id: ReservationId, actual: u64) -> Result<(), Unsettled> {
        let now = self.engine.clock().now();
        if let Some(max) = self.reservations.actual_max(&id, self.settle_multiple, now)
            && actual > max
        {
            return Err(Unsettled::AboveMax { actual, max });
        }
        let held = self.reservations.take(id, now).map_err(Unsettled::Gone)?;
        self.settle_held(held, actual).ok_or(Unsettled::Panicked)
    }

    /// Forgets what was used of the limits that a request meets, here and in the store: there first, so that this node takes
    /// nothing from it that is forgotten then. Returns for how many keys, and whether the store was reached, if there is one.
    pub(crate) async fn reset(&self, request: &Request<'_>) -> (usize, bool) {
        let cleared = match &self.store {
            Some(store) => {
                let cleared = store.clear(request).await.ok();
                caught(|| store.forget(request));
                cleared
            }
            None => Some(0),
        };
        let here = caught(|| self.engine.reset(request)).unwrap_or(0);
        (here + cleared.unwrap_or(0), cleared.is_some())
    }

    /// Returns the answer where something went wrong while it was decided: as the domain says for that case.
    pub(crate) fn undecided(&self, domain: &str) -> Answer<'_> {
        let reason = Degraded::InternalError;
        self.degraded.failed(reason);
        let is_allowed = self.engine.door_settings(domain).on_error == OnError::Open;
        let policy_version = self.engine.version();
        Answer { is_allowed, decision: None, degraded: Some(reason), policy_version, reservation: None, waited: None }
    }

    /// `None`: it panicked.
    async fn once<'e>(
        &'e self,
        (id, call): (Option<RequestId<'_>>, Call),
        caller: &Caller,
        request: &Request<'_>,
        waited: &mut Option<Duration>,
    ) -> Result<Option<Decided<'e>>, Reused> {
        let here = || self.charge_here(request, call);
        let Some(store) = &self.store else { return self.once_by((id, call), caller, request, here) };
        if let Some(id) = id
            && let Some(known) = self.retries.known(&self.engine, (id, call), request)?
        {
            return Ok(Some(known));
        }
        let begun = caught(|| match (call, id) {
            (Call::Check, None) => Some(store.begin(request)),
            // Nothing is charged before it is known whether it can be settled, or is a repeat.
            _ => store.pend(request, false),
        });
        let pending = match begun {
            None => return Ok(None),
            Some(None) => return self.once_by((id, call), caller, request, here),
            Some(Some(Begun::Decided(decision))) => return Ok(Some(unreserved(decision))),
            Some(Some(Begun::Pending(pending))) => pending,
        };
        let asked_at = Instant::now();
        let answers = self.ask_store(store, &pending, caller).await;
        *waited = Some(asked_at.elapsed());
        let mut pending = Some(pending);
        let decided = self.once_by((id, call), caller, request, || match pending.take() {
            Some(pending) if call == Call::Reserve => reserved(store.finish_reserved(pending, &answers)),
            Some(pending) => (store.finish(pending, &answers), None),
            None => here(),
        });
        // The same came meanwhile, and was charged.
        if let Some(pending) = pending {
            caught(|| store.abandon(&pending, &answers));
        }
        decided
    }

    /// The same by `decide`, which gives what it charged if that is to be settled later.
    fn once_by<'e>(
        &'e self,
        (id, call): (Option<RequestId<'_>>, Call),
        caller: &Caller,
        request: &Request<'_>,
        decide: impl FnOnce() -> (Decision<'e>, Option<Held>),
    ) -> Result<Option<Decided<'e>>, Reused> {
        let decide = || {
            let (decision, held) = decide();
            (decision, held.map_or(ReservationOutcome::None, |held| self.keep(held, caller)))
        };
        match id {
            Some(id) => {
                let caller = self.key_of(caller);
                caught(|| self.retries.once(&self.engine, (id, call), caller, request, decide)).transpose()
            }
            // The most: as straight as can be.
            None => Ok(caught(decide)),
        }
    }

    /// Keeps what was charged, as far as there is room, to settle it later.
    fn keep(&self, held: Held, caller: &Caller) -> ReservationOutcome {
        if held.is_empty() {
            return ReservationOutcome::None;
        }
        let now = self.engine.clock().now();
        let Ok(id) = ReservationId::random() else { return ReservationOutcome::NoRoom };
        match self.reservations.put(id, held, self.key_of(caller), now) {
            Ok(()) => ReservationOutcome::Kept(id),
            Err(reason) => {
                self.log_full(caller, reason);
                ReservationOutcome::NoRoom
            }
        }
    }

    /// Returns whether a caller has its share of the places for reservations; `None`, too, where looking panicked.
    fn share_taken(&self, caller: &Caller) -> Option<ShareTaken> {
        caught(|| self.reservations.share_taken(self.key_of(caller), self.engine.clock().now())).flatten()
    }

    pub(crate) fn key_of(&self, caller: &Caller) -> CallerKey {
        CallerKey::new(&self.caller_secret, caller)
    }

    /// Logs that there is no room for a reservation, once a second at most.
    fn log_full(&self, caller: &Caller, reason: NoRoom) {
        if let Some(left_out) = self.log.is_time() {
            tracing::warn!(peer = %caller.peer, full = reason.name(), left_out, "a reservation has no room");
        }
    }

    /// Charges a request by the engine alone.
    fn charge_here(&self, request: &Request<'_>, call: Call) -> (Decision<'_>, Option<Held>) {
        match call {
            Call::Check => (self.engine.check(request), None),
            Call::Reserve => {
                let (decision, here) = self.engine.reserve(request);
                (decision, here.map(Held::Here))
            }
        }
    }

    /// `None`: it panicked.
    async fn look(&self, request: &Request<'_>, caller: &Caller) -> Option<Decision<'_>> {
        let here = || caught(|| self.engine.peek(request));
        let Some(store) = &self.store else { return here() };
        match caught(|| store.pend(request, true))? {
            None => here(),
            Some(Begun::Decided(decision)) => Some(decision),
            Some(Begun::Pending(pending)) => {
                let answers = self.ask_store(store, &pending, caller).await;
                caught(|| store.finish(pending, &answers))
            }
        }
    }

    /// Asks the store what a check needs, when there is a place for its caller.
    async fn ask_store(&self, store: &Shared<C>, pending: &Pending<'_>, caller: &Caller) -> Vec<tidegate::Answer> {
        // Boxed once there is a place: the future of a check that waits for one is half as large.
        self.store_places.ask(caller.peer, || Box::pin(store.ask(pending))).await
    }

    /// Decides requests together by the engine alone. `None`: it panicked.
    fn at_once(&self, requests: &[(Request<'_>, Option<Rate>)]) -> Option<Vec<Decision<'_>>> {
        caught(|| {
            let mut decisions = Vec::with_capacity(requests.len());
            self.engine.check_together(requests, &mut decisions);
            decisions
        })
    }

    /// The same with the store: one after the other, and when one is refused those before it are given back; what those after
    /// it would come to is looked at. Those with their own numbers, which this node alone counts, come last.
    async fn one_by_one<'e>(
        &'e self,
        store: &'e Shared<C>,
        requests: &[(Request<'_>, Option<Rate>)],
        caller: &Caller,
    ) -> Option<Vec<Decision<'e>>> {
        let (rated, by_policy): (Vec<_>, Vec<_>) = (0..requests.len()).partition(|&place| requests[place].1.is_some());
        let mut decisions = vec![None; requests.len()];
        let mut charged = Vec::with_capacity(requests.len());
        let (mut is_refused, mut is_broken) = (false, false);
        for place in by_policy {
            let request = &requests[place].0;
            let decided = if is_refused || request.parts().cost == 0 {
                self.look(request, caller).await.map(|decision| (decision, None))
            } else {
                self.hold(store, request, caller).await
            };
            let Some((decision, held)) = decided else {
                is_broken = true;
                break;
            };
            is_refused |= !decision.is_allowed();
            decisions[place] = Some(decision);
            charged.extend(held);
        }
        if !rated.is_empty() && !is_broken {
            let asked = rated.iter().map(|&place| {
                let (request, rate) = &requests[place];
                (if is_refused { request.without_cost() } else { *request }, *rate)
            });
            let asked: Vec<_> = asked.collect();
            match self.at_once(&asked) {
                Some(decided) => {
                    is_refused |= decided.iter().any(|decision| !decision.is_allowed());
                    rated.into_iter().zip(decided).for_each(|(place, decision)| decisions[place] = Some(decision));
                }
                None => is_broken = true,
            }
        }
        if is_refused || is_broken {
            for held in charged {
                let _ = self.settle_held(held, 0);
            }
        }
        decisions.into_iter().collect()
    }

    /// Charges what can be settled. `None`: it panicked.
    async fn hold<'e>(
        &'e self,
        store: &'e Shared<C>,
        request: &Request<'_>,
        caller: &Caller,
    ) -> Option<(Decision<'e>, Option<Held>)> {
        match caught(|| store.pend(request, false))? {
            None => caught(|| self.charge_here(request, Call::Reserve)),
            Some(Begun::Decided(decision)) => Some((decision, None)),
            Some(Begun::Pending(pending)) => {
                let answers = self.ask_store(store, &pending, caller).await;
                caught(|| reserved(store.finish_reserved(pending, &answers)))
            }
        }
    }

    /// `None`: it panicked.
    fn settle_held(&self, held: Held, actual: u64) -> Option<()> {
        caught(|| match (held, &self.store) {
            (Held::Here(reservation), _) => self.engine.settle(reservation, actual),
            (Held::Stored(reserved), Some(store)) => store.settle(reserved, actual),
            (Held::Stored(_), None) => {}
        })
    }

    /// `None`: it panicked.
    fn told<'e>(&'e self, request: &Request<'_>, decided: Option<Decided<'e>>) -> Answer<'e> {
        match decided {
            Some(decided) => self.answer(decided),
            None => self.undecided(request.parts().domain),
        }
    }

    fn answer<'e>(&self, (decision, outcome): Decided<'e>) -> Answer<'e> {
        let (reservation, degraded) = match outcome {
            ReservationOutcome::None => (None, decision.degraded()),
            ReservationOutcome::Kept(id) => (Some(id), decision.degraded()),
            ReservationOutcome::NoRoom => (None, Some(Degraded::Overload)),
        };
        if let Some(reason) = degraded {
            self.degraded.count(reason);
        }
        Answer {
            is_allowed: decision.is_allowed(),
            decision: Some(decision),
            degraded,
            policy_version: decision.policy_version(),
            reservation,
            waited: None,
        }
    }
}

fn reserved((decision, stored): (Decision<'_>, Option<Reserved>)) -> (Decision<'_>, Option<Held>) {
    (decision, stored.map(Held::Stored))
}

/// A decision of which nothing is to be settled.
fn unreserved(decision: Decision<'_>) -> Decided<'_> {
    (decision, ReservationOutcome::None)
}

/// Takes decisions as they are made.
struct Each<F>(F);

impl<'e, F: FnMut(Decision<'e>)> Extend<Decision<'e>> for Each<F> {
    fn extend<I: IntoIterator<Item = Decision<'e>>>(&mut self, decisions: I) {
        decisions.into_iter().for_each(&mut self.0);
    }
}

/// `None`: it panicked.
///
/// What can panic in a check is an observer, which is shown a decision after its charges: those stand, each whole, since a
/// charge is one swap of one word. The engine holds no lock then, and what it reads through is freed on the way out; the
/// decision is left out of its counts. So nothing half done is seen by whoever comes next.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

/// Gives other tasks of the thread a turn after each [`TURN_CHECKS`] checks of a batch; `place` counts them from 1.
async fn end_turn(place: usize) {
    if place.is_multiple_of(TURN_CHECKS) {
        yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use std::{
        cell::Cell,
        net::IpAddr,
        num::NonZeroU32,
        rc::Rc,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use futures_util::FutureExt;
    use tidegate::{Identity, Observed, Observer, Snapshot, clock::ManualClock, formats::Format};
    use tokio::task::{LocalSet, spawn_local};

    use super::*;
    use crate::shared::reservations::OPEN_MAX;

    /// The caller at this address.
    fn caller(last: u8) -> Caller {
        Caller::without_token(IpAddr::from([192, 0, 2, last]).into())
    }

    fn reserve_of<'d>(
        caller: &Caller,
        decider: &'d Decider<ManualClock>,
        request: &Request<'_>,
        id: Option<RequestId<'_>>,
    ) -> Result<Answer<'d>, Unreserved> {
        decider.reserve(request, id, caller).now_or_never().expect("nothing waits without a store")
    }

    fn reserve<'d>(
        decider: &'d Decider<ManualClock>,
        request: &Request<'_>,
        id: Option<RequestId<'_>>,
    ) -> Result<Answer<'d>, Unreserved> {
        reserve_of(&caller(1), decider, request, id)
    }

    #[test]
    fn what_there_is_no_room_for_is_charged_and_said_to_stand() {
        const LIMIT: u64 = 1_000_000;
        let engine = Arc::new(Engine::for_simulation(10, ManualClock::at(1_700_000_000_000_000_000), 7));
        let policy = format!(
            r#"
            [domains.default]
            defaults = {{ user = "free" }}
            [[domains.default.tiers]]
            id = "free"
            limits = [{{ id = "day", algorithm = "fixed_window", limit = {LIMIT}, period = "1d" }}]
            "#
        );
        engine.publish(Snapshot::parse(&policy, Format::Toml).expect("a right policy")).expect("room");
        let decider = Decider::new(engine).expect("random numbers").with_caller_share(100);
        let who = [Identity::new("user", "ada").expect("valid")];
        let request = Request::new(&who).expect("valid");
        let first = reserve(&decider, &request, None).expect("no id").reservation.expect("room");
        for _ in 1..OPEN_MAX {
            assert!(reserve(&decider, &request, None).expect("no id").reservation.is_some());
        }
        let repeated = RequestId::new("1").ok();
        for _ in 0..2 {
            let beyond = reserve(&decider, &request, repeated).expect("the same");
            assert!(beyond.is_allowed && beyond.reservation.is_none());
            assert_eq!(beyond.degraded, Some(Degraded::Overload));
            let remaining = beyond.decision.expect("the engine decided").remaining();
            assert_eq!(remaining, Some(LIMIT - OPEN_MAX as u64 - 1), "charged once");
        }
        assert!(decider.settle(first, 0).is_ok());
        assert!(reserve(&decider, &request, None).expect("no id").reservation.is_some());
    }

    #[tokio::test]
    async fn a_batch_leaves_other_tasks_of_the_thread_their_turns() {
        const TURNS: usize = 10;
        let engine = Arc::new(Engine::for_simulation(10, ManualClock::at(1_700_000_000_000_000_000), 7));
        let decider = Decider::new(engine).expect("random numbers");
        let who = [Identity::new("user", "ada").expect("valid")];
        let requests: Vec<_> = (0..TURNS * TURN_CHECKS).map(|_| Request::new(&who).expect("valid")).collect();
        let turns = Rc::new(Cell::new(0));
        let turns_of_other = Rc::clone(&turns);
        let other = async move {
            loop {
                turns_of_other.update(|turns| turns + 1);
                yield_now().await;
            }
        };
        let batches = async {
            let other = spawn_local(other);
            let mut told = 0;
            decider.check_batch(&requests, &caller(1), |_| told += 1).await;
            let turns_beside_first = turns.take();
            decider.each(&requests, |_| async {}, |()| told += 1).await;
            assert_eq!(told, 2 * requests.len());
            assert!(turns_beside_first >= TURNS - 1 && turns.get() >= TURNS - 1, "{turns_beside_first}, {turns:?}");
            other.abort();
        };
        LocalSet::new().run_until(batches).await;
    }

    /// Panics at each user whose name begins so, and counts what it is shown.
    struct PanicsAtMallory(Arc<AtomicUsize>);

    impl Observer for PanicsAtMallory {
        fn observe(&self, observed: &Observed<'_>) {
            self.0.fetch_add(1, Ordering::Relaxed);
            assert!(!observed.identities().any(|(_, value)| value.starts_with(b"mallory")), "mallory was seen");
        }
    }

    #[tokio::test]
    async fn a_batch_decides_and_charges_each_check_once_whichever_panic() {
        let engine = Arc::new(Engine::for_simulation(10, ManualClock::at(1_700_000_000_000_000_000), 7));
        let policy = r#"
            [domains.default]
            on_error = "closed"
            defaults = { user = "free" }
            [[domains.default.tiers]]
            id = "free"
            limits = [{ id = "day", algorithm = "fixed_window", limit = 1000, period = "1d" }]
        "#;
        engine.publish(Snapshot::parse(policy, Format::Toml).expect("a right policy")).expect("room");
        let shown = Arc::new(AtomicUsize::new(0));
        engine.observe(NonZeroU32::MIN, PanicsAtMallory(Arc::clone(&shown)));
        let decider = Decider::new(Arc::clone(&engine)).expect("random numbers");
        let who = ["ada", "mallory"].map(|name| [Identity::new("user", name).expect("valid")]);
        let [ada, mallory] = who.each_ref().map(|who| Request::new(who).expect("valid"));
        let is_panic = |place: usize| [0, 20, 21, 40, 127, 128, 199].contains(&place);
        let requests: Vec<_> = (0..200).map(|place| if is_panic(place) { mallory } else { ada }).collect();
        let mut answers = Vec::new();
        decider.check_batch(&requests, &caller(1), |answer| answers.push(answer)).await;
        assert_eq!((answers.len(), shown.load(Ordering::Relaxed)), (200, 200));
        for (place, answer) in answers.iter().enumerate() {
            assert_eq!((answer.is_allowed, answer.decision.is_none()), (!is_panic(place), is_panic(place)), "{place}");
        }
        let left_after_one_more = |request| engine.peek(request).remaining();
        assert_eq!([&ada, &mallory].map(left_after_one_more), [Some(999 - 193), Some(999 - 7)]);
        assert_eq!(decider.degraded().failures(), 7);
    }

    #[test]
    fn a_caller_that_has_its_share_is_refused_and_nothing_is_charged() {
        let engine = Arc::new(Engine::for_simulation(10, ManualClock::at(1_700_000_000_000_000_000), 7));
        let policy = r#"
            [domains.default]
            defaults = { user = "free" }
            [[domains.default.tiers]]
            id = "free"
            limits = [{ id = "day", algorithm = "fixed_window", limit = 1000000, period = "1d" }]
        "#;
        engine.publish(Snapshot::parse(policy, Format::Toml).expect("a right policy")).expect("room");
        let share = OPEN_MAX / 100;
        let decider = Decider::new(engine).expect("random numbers").with_caller_share(1);
        let (hostile, good) = (caller(2), caller(1));
        let of = |kind| Identity::new(kind, "ada").expect("valid");
        let (ada, stranger) = ([of("user")], [of("stranger")]);
        let (ada, stranger) = (Request::new(&ada).expect("valid"), Request::new(&stranger).expect("valid"));
        let repeated = RequestId::new("1").ok();
        let mut held = Vec::new();
        for place in 0..share {
            let answer = reserve_of(&hostile, &decider, &ada, repeated.filter(|_| place == 0)).expect("room");
            held.push(answer.reservation.expect("it was charged"));
        }
        for _ in 0..2 {
            let refused = reserve_of(&hostile, &decider, &ada, RequestId::new("2").ok());
            assert!(matches!(refused, Err(Unreserved::ShareTaken(ShareTaken { open })) if open == share));
        }
        let repeat = reserve_of(&hostile, &decider, &ada, repeated).expect("it takes no place");
        assert_eq!(repeat.reservation, Some(held[0]));
        let unlimited = reserve_of(&hostile, &decider, &stranger, None).expect("it takes no place");
        assert!(unlimited.is_allowed && unlimited.reservation.is_none() && unlimited.degraded.is_none());

        let other = reserve_of(&good, &decider, &ada, None).expect("others have room");
        let remaining = other.decision.expect("the engine decided").remaining();
        assert_eq!(remaining, Some(1_000_000 - share as u64 - 1), "what was refused was not charged");
        assert_eq!(decider.reservations().counts().0, share + 1);
        assert!(decider.settle(held[1], 0).is_ok());
        assert!(reserve_of(&hostile, &decider, &ada, None).is_ok(), "it is below its share");
        assert_eq!(decider.reservations().refused(), [("caller", 2), ("table", 0)]);
        assert_eq!((decider.degraded().failures(), decider.retries().repeats()), (0, 1));
    }

    #[test]
    fn a_reservation_is_settled_at_the_multiple_that_is_set_at_most() {
        let engine = Arc::new(Engine::for_simulation(10, ManualClock::at(1_700_000_000_000_000_000), 7));
        let policy = r#"
            [domains.default]
            defaults = { user = "free" }
            [[domains.default.tiers]]
            id = "free"
            limits = [{ id = "minute", algorithm = "token_bucket", limit = 5, period = "1m" }]
        "#;
        engine.publish(Snapshot::parse(policy, Format::Toml).expect("a right policy")).expect("room");
        let decider = Decider::new(engine).expect("random numbers").with_settle_multiple(3);
        let who = [Identity::new("user", "ada").expect("valid")];
        let request = Request::new(&who).and_then(|request| request.cost(4)).expect("valid");
        let id = reserve(&decider, &request, None).expect("no id").reservation.expect("room");
        assert!(matches!(decider.settle(id, 13), Err(Unsettled::AboveMax { actual: 13, max: 12 })));
        assert!(decider.settle(id, 12).is_ok());
        assert!(matches!(decider.settle(id, 13), Err(Unsettled::Gone(Gone::Settled))));
    }
}
