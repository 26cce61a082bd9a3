//! Decides checks for all listeners of a process: the only way to the engine. It adds what the engine lacks: the store of shared
//! limits, outcomes remembered by request ID, open reservations, and an outcome where a panic prevents a decision. It knows no
//! protocol.
//!
//! Without a store nothing here waits: each future is ready at its first poll.

use std::{
    hash::RandomState,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use tidegate::{
    Decision, Degraded, Engine, InspectedLimit, Request,
    clock::Clock,
    internals::{BeginResult, Pending, StoreAnswer},
    policy::OnError,
};
use tidegate_fleet::store::{SharedEngine, SharedReservation};
use tokio::time::Instant;

mod all_or_nothing;
mod batch;

pub(crate) use self::batch::{CONCURRENT_CHECKS_MAX, TURN_CHECKS};
use super::{
    caller_shares::{Caller, CallerKey, CallerShare, NoRoom},
    degraded::DegradedCounts,
    error::Error,
    log_limiter::LogLimiter,
    request_id_cache::{CallKind, DecidedCheck, RequestId, RequestIdCache, Reused},
    reservations::{ReservationCharge, ReservationId, ReservationOutcome, Reservations, ShareTaken},
    store_concurrency::StoreConcurrency,
};

/// Decides checks for all listeners of a process. There is one for all of them, since each decider knows only the request IDs and
/// reservations that it was given or made.
#[derive(Debug)]
pub struct Decider<C> {
    engine: Arc<Engine<C>>,
    store: Option<Arc<SharedEngine<C>>>,
    store_concurrency: StoreConcurrency,
    pub(crate) request_ids: RequestIdCache,
    pub(crate) reservations: Reservations,
    /// The multiple of its estimate up to which a reservation may be settled, where that is more than one burst.
    settle_multiple: u64,
    caller_secret: RandomState,
    pub(crate) degraded: Arc<DegradedCounts>,
    log: LogLimiter,
}

/// The default multiple of its estimate up to which a reservation may be settled.
pub const DEFAULT_SETTLE_MULTIPLE: u64 = 16;

/// The default part of the places for open reservations and for request IDs that one caller may have while no other caller has
/// any, in percent.
pub const DEFAULT_CALLER_SHARE: u8 = 50;

/// The outcome of a check, which a listener writes as its response.
#[derive(Debug)]
pub(crate) struct CheckResult<'e> {
    pub(crate) is_allowed: bool,
    /// The decision; `None` where the engine came to none.
    pub(crate) decision: Option<Decision<'e>>,
    pub(crate) degraded: Option<Degraded>,
    pub(crate) policy_version: u64,
    /// The reservation of an estimate that was charged and can be settled.
    pub(crate) reservation: Option<ReservationId>,
    /// The time for which the check waited for the store, if it queried the store.
    pub(crate) waited: Option<Duration>,
}

impl CheckResult<'_> {
    /// The time after which to retry a denial that no limit decided.
    pub(crate) const CLOSED_WAIT: Duration = Duration::from_secs(1);
}

impl<C: Clock> Decider<C> {
    /// Creates a decider for this engine, without a store.
    ///
    /// # Errors
    ///
    /// The system gives no random numbers.
    pub fn new(engine: Arc<Engine<C>>) -> io::Result<Self> {
        let mut secret = [0; 16];
        getrandom::fill(&mut secret).map_err(|error| io::Error::other(error.to_string()))?;
        let share = CallerShare::percent(DEFAULT_CALLER_SHARE);
        Ok(Self {
            engine,
            store: None,
            store_concurrency: StoreConcurrency::default(),
            request_ids: RequestIdCache::new(secret, share),
            reservations: Reservations::new(share),
            settle_multiple: DEFAULT_SETTLE_MULTIPLE,
            caller_secret: RandomState::new(),
            degraded: Arc::new(DegradedCounts::new()),
            log: LogLimiter::new(),
        })
    }

    /// Sets the store of the limits that nodes share, which must be of the same engine.
    #[must_use]
    pub fn with_store(self, store: Option<Arc<SharedEngine<C>>>) -> Self {
        Self { store, ..self }
    }

    /// Sets the multiple of its estimate up to which a reservation may be settled, where that is more than one burst of the
    /// largest limit that it met. The default is [`DEFAULT_SETTLE_MULTIPLE`].
    #[must_use]
    pub fn with_settle_multiple(self, settle_multiple: u64) -> Self {
        Self { settle_multiple, ..self }
    }

    /// Sets the part of the places for open reservations and for request IDs that one caller may have while no other caller has
    /// any, in percent from 1 to 100. The default is [`DEFAULT_CALLER_SHARE`]. Call it before the first check.
    #[must_use]
    pub fn with_caller_share(self, percent: u8) -> Self {
        let share = CallerShare::percent(percent);
        Self { request_ids: self.request_ids.with_share(share), reservations: Reservations::new(share), ..self }
    }

    /// Returns the store, which is to be closed when the listeners have ended.
    #[must_use]
    pub fn store(&self) -> Option<&Arc<SharedEngine<C>>> {
        self.store.as_ref()
    }

    /// Returns whether a check may have to wait for a store.
    pub(crate) fn can_wait(&self) -> bool {
        self.store.is_some()
    }

    pub(crate) fn engine(&self) -> &Arc<Engine<C>> {
        &self.engine
    }

    /// Returns the outcome that a check would have. Charges nothing.
    pub(crate) async fn peek(&self, request: &Request<'_>, caller: &Caller) -> CheckResult<'_> {
        let decision = self.inspect(request, caller).await;
        self.outcome_or_undecided(request, decision.map(without_reservation))
    }

    /// Decides a request, and charges it if it is allowed. A repeat has the outcome of the first request.
    pub(crate) async fn check(
        &self,
        request: &Request<'_>,
        id: Option<RequestId<'_>>,
        caller: &Caller,
    ) -> Result<CheckResult<'_>, Reused> {
        let mut waited = None;
        let decided = self.decide_once((id, CallKind::Check), caller, request, &mut waited).await?;
        Ok(CheckResult { waited, ..self.outcome_or_undecided(request, decided) })
    }

    /// Returns every limit that a request meets, as this node counts it; none where reading them panicked.
    pub(crate) fn limits_of(&self, request: &Request<'_>) -> Vec<InspectedLimit<'_>> {
        catch_panic(|| self.engine.inspect(request).limits).unwrap_or_default()
    }

    /// Decides a request whose cost is an estimate, which can be settled for an hour. A caller that has its share of
    /// the places for reservations is refused, and nothing is charged. Where other callers have the places, the
    /// estimate is charged without a reservation, and the outcome says so: the request may go on, and the charge
    /// stands.
    pub(crate) async fn reserve(
        &self,
        request: &Request<'_>,
        id: Option<RequestId<'_>>,
        caller: &Caller,
    ) -> Result<CheckResult<'_>, Error> {
        if let Some(share_taken) = self.share_taken(caller) {
            // A repeat needs no place, nor does a request that charges nothing.
            if let Some(id) = id
                && let Some(known) = self.request_ids.find(&self.engine, (id, CallKind::Reserve), request)?
            {
                return Ok(self.outcome(known));
            }
            if self.engine.has_limit(request) {
                self.reservations.count_refusal();
                self.log_full(caller, NoRoom::Caller);
                return Err(share_taken.into());
            }
        }
        let mut waited = None;
        let decided = self.decide_once((id, CallKind::Reserve), caller, request, &mut waited).await?;
        Ok(CheckResult { waited, ..self.outcome_or_undecided(request, decided) })
    }

    /// Settles a reservation at its actual cost; 0 gives all of it back. A cost too large to be believed is refused:
    /// one wrong cost would deny all users of a shared limit until it is repaid. Where settling panics, what was settled
    /// before that stands.
    pub(crate) fn settle(&self, id: ReservationId, actual: u64) -> Result<(), Error> {
        let now = self.engine.clock().now().as_nanos();
        if let Some(max) = self.reservations.actual_max(&id, self.settle_multiple, now)
            && actual > max
        {
            return Err(Error::ActualAboveMax { actual, max });
        }
        let charge = self.reservations.take(id, now)?;
        self.settle_charge(charge, actual).ok_or(Error::Internal)
    }

    /// Forgets what was used of the limits that a request meets, first in the store and then here, so that this node
    /// takes nothing from the store that the store then forgets. Returns for how many keys, and false if there is a
    /// store that was not reached.
    pub(crate) async fn reset(&self, request: &Request<'_>) -> (usize, bool) {
        let cleared = match &self.store {
            Some(store) => {
                let cleared = store.clear(request).await.ok();
                catch_panic(|| store.forget(request));
                cleared
            }
            None => Some(0),
        };
        let here = catch_panic(|| self.engine.reset(request)).unwrap_or(0);
        (here + cleared.unwrap_or(0), cleared.is_some())
    }

    /// Returns the outcome of a check whose decision panicked: `on_error` of the domain decides it.
    pub(crate) fn undecided(&self, domain: &str) -> CheckResult<'_> {
        let reason = Degraded::InternalError;
        self.degraded.failed(reason);
        let is_allowed = self.engine.response_settings(domain).on_error == OnError::Open;
        let policy_version = self.engine.version();
        CheckResult {
            is_allowed,
            decision: None,
            degraded: Some(reason),
            policy_version,
            reservation: None,
            waited: None,
        }
    }

    /// Decides a request unless its request ID has an outcome already; asks the store where it meets a limit of the
    /// store. Returns `None` where deciding panicked.
    async fn decide_once<'e>(
        &'e self,
        (id, call): (Option<RequestId<'_>>, CallKind),
        caller: &Caller,
        request: &Request<'_>,
        waited: &mut Option<Duration>,
    ) -> Result<Option<DecidedCheck<'e>>, Reused> {
        let charge_locally = || self.charge_locally(request, call);
        let Some(store) = &self.store else {
            return self.decide_once_by((id, call), caller, request, charge_locally);
        };
        if let Some(id) = id
            && let Some(known) = self.request_ids.find(&self.engine, (id, call), request)?
        {
            return Ok(Some(known));
        }
        let begun = catch_panic(|| match (call, id) {
            (CallKind::Check, None) => Some(store.begin(request)),
            // Charges nothing before it is known whether the request can be settled, or is a repeat.
            _ => store.begin_if_shared(request, false),
        });
        let pending = match begun {
            None => return Ok(None),
            Some(None) => return self.decide_once_by((id, call), caller, request, charge_locally),
            Some(Some(BeginResult::Decided(decision))) => return Ok(Some(without_reservation(decision))),
            Some(Some(BeginResult::Pending(pending))) => pending,
        };
        let asked_at = Instant::now();
        let answers = self.ask_store(store, &pending, caller).await;
        *waited = Some(asked_at.elapsed());
        let mut pending = Some(pending);
        let decided = self.decide_once_by((id, call), caller, request, || match pending.take() {
            Some(pending) if call == CallKind::Reserve => with_stored_charge(store.finish_reserved(pending, &answers)),
            Some(pending) => (store.finish(pending, &answers), None),
            None => charge_locally(),
        });
        // A request with the same ID was charged meanwhile.
        if let Some(pending) = pending {
            catch_panic(|| store.abandon(&pending, &answers));
        }
        decided
    }

    /// Decides a request by `decide` unless its request ID has an outcome already. `decide` returns its charge, too, if
    /// that is to be settled later.
    fn decide_once_by<'e>(
        &'e self,
        (id, call): (Option<RequestId<'_>>, CallKind),
        caller: &Caller,
        request: &Request<'_>,
        decide: impl FnOnce() -> (Decision<'e>, Option<ReservationCharge>),
    ) -> Result<Option<DecidedCheck<'e>>, Reused> {
        let decide = || {
            let (decision, charge) = decide();
            (decision, charge.map_or(ReservationOutcome::None, |charge| self.keep(charge, caller)))
        };
        match id {
            Some(id) => {
                let caller = self.key_of(caller);
                catch_panic(|| self.request_ids.decide_once(&self.engine, (id, call), caller, request, decide))
                    .transpose()
            }
            // Most requests have no ID, and take the shortest path.
            None => Ok(catch_panic(decide)),
        }
    }

    /// Keeps a charge as an open reservation, if there is room.
    fn keep(&self, charge: ReservationCharge, caller: &Caller) -> ReservationOutcome {
        if charge.is_empty() {
            return ReservationOutcome::None;
        }
        let now = self.engine.clock().now().as_nanos();
        let Ok(id) = ReservationId::random() else { return ReservationOutcome::NoRoom };
        match self.reservations.put(id, charge, self.key_of(caller), now) {
            Ok(()) => ReservationOutcome::Kept(id),
            Err(reason) => {
                self.log_full(caller, reason);
                ReservationOutcome::NoRoom
            }
        }
    }

    /// Returns the share of a caller that has all of its share of the places for reservations; `None`, too, where
    /// looking panicked.
    fn share_taken(&self, caller: &Caller) -> Option<ShareTaken> {
        catch_panic(|| self.reservations.share_taken(self.key_of(caller), self.engine.clock().now().as_nanos()))
            .flatten()
    }

    pub(crate) fn key_of(&self, caller: &Caller) -> CallerKey {
        CallerKey::new(&self.caller_secret, caller)
    }

    /// Logs that a reservation has no room, at most once a second.
    fn log_full(&self, caller: &Caller, reason: NoRoom) {
        if let Some(left_out) = self.log.admit() {
            tracing::warn!(peer = %caller.peer, full = reason.name(), left_out, "a reservation has no room");
        }
    }

    /// Charges a request by the engine alone.
    fn charge_locally(&self, request: &Request<'_>, call: CallKind) -> (Decision<'_>, Option<ReservationCharge>) {
        match call {
            CallKind::Check => (self.engine.check(request), None),
            CallKind::Reserve => {
                let (decision, reservation) = self.engine.reserve(request);
                (decision, reservation.map(ReservationCharge::Local))
            }
        }
    }

    /// Decides a request without a charge. Returns `None` where deciding panicked.
    async fn inspect(&self, request: &Request<'_>, caller: &Caller) -> Option<Decision<'_>> {
        let peek = || catch_panic(|| self.engine.peek(request));
        let Some(store) = &self.store else { return peek() };
        match catch_panic(|| store.begin_if_shared(request, true))? {
            None => peek(),
            Some(BeginResult::Decided(decision)) => Some(decision),
            Some(BeginResult::Pending(pending)) => {
                let answers = self.ask_store(store, &pending, caller).await;
                catch_panic(|| store.finish(pending, &answers))
            }
        }
    }

    /// Sends the queries of a check to the store once its caller has a place there.
    async fn ask_store(&self, store: &SharedEngine<C>, pending: &Pending<'_>, caller: &Caller) -> Vec<StoreAnswer> {
        // Boxed only once there is a place, so that the future of a check that waits for one is half as large.
        self.store_concurrency.run(caller.peer, || Box::pin(store.ask(pending))).await
    }

    /// Settles a charge at its actual cost. Returns `None` where that panicked.
    fn settle_charge(&self, charge: ReservationCharge, actual: u64) -> Option<()> {
        catch_panic(|| match (charge, &self.store) {
            (ReservationCharge::Local(reservation), _) => self.engine.settle(reservation, actual),
            (ReservationCharge::Stored(reserved), Some(store)) => store.settle(reserved, actual),
            (ReservationCharge::Stored(_), None) => {}
        })
    }

    /// Returns the outcome of a decision, or of its panic where there is none.
    fn outcome_or_undecided<'e>(&'e self, request: &Request<'_>, decided: Option<DecidedCheck<'e>>) -> CheckResult<'e> {
        match decided {
            Some(decided) => self.outcome(decided),
            None => self.undecided(request.parts().domain),
        }
    }

    fn outcome<'e>(&self, (decision, reservation): DecidedCheck<'e>) -> CheckResult<'e> {
        let (reservation, degraded) = match reservation {
            ReservationOutcome::None => (None, decision.degraded()),
            ReservationOutcome::Kept(id) => (Some(id), decision.degraded()),
            ReservationOutcome::NoRoom => (None, Some(Degraded::Overload)),
        };
        if let Some(reason) = degraded {
            self.degraded.count(reason);
        }
        CheckResult {
            is_allowed: decision.is_allowed(),
            decision: Some(decision),
            degraded,
            policy_version: decision.policy_version(),
            reservation,
            waited: None,
        }
    }
}

/// Returns a decision with the charge that the store has a part of.
fn with_stored_charge(
    (decision, stored): (Decision<'_>, Option<SharedReservation>),
) -> (Decision<'_>, Option<ReservationCharge>) {
    (decision, stored.map(ReservationCharge::Stored))
}

/// Returns a decision of which nothing is to be settled.
fn without_reservation(decision: Decision<'_>) -> DecidedCheck<'_> {
    (decision, ReservationOutcome::None)
}

/// Runs `work`, and returns `None` where it panicked.
///
/// What can panic in a check is an observer, which is shown a decision after its charges. Those charges stand, each
/// whole, since a charge is one swap of one bucket state. The engine holds no lock then, and its guards are freed as
/// the stack unwinds; the decision is missing from its counts. So later checks see nothing half done.
pub(crate) fn catch_panic<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

#[cfg(test)]
mod tests;
