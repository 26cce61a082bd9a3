//! What all doors of a process share: the engine, what was answered to request ids, open reservations; and what is answered
//! when something goes wrong. It knows no protocol.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use tidegate::{Decision, Degraded, Engine, Rate, Request, clock::Clock, policy::OnError};

use crate::{
    degraded::DegradedCounts,
    reservations::{Gone, ReservationId, Reservations},
    retries::{Call, Decided, RequestId, Retries, Reused},
};

/// Decides for the doors of a process: one for all of them, since ids of requests and of reservations are known to the one
/// that was told of them.
#[derive(Debug)]
pub struct Decider<C> {
    engine: Arc<Engine<C>>,
    retries: Retries,
    reservations: Reservations,
    degraded: Arc<DegradedCounts>,
}

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
}

impl Answer<'_> {
    /// When to come again after a denial that no limit decided.
    pub(crate) const CLOSED_WAIT: Duration = Duration::from_secs(1);
}

/// Why a reservation was not settled.
#[derive(Debug)]
pub(crate) enum Unsettled {
    Gone(Gone),
    /// Something went wrong on the way; it is settled, as far as it was.
    Panicked,
}

impl<C: Clock> Decider<C> {
    /// Of this engine. An error: the system gives no random numbers.
    pub fn new(engine: Arc<Engine<C>>) -> io::Result<Self> {
        let mut secret = [0; 16];
        getrandom::fill(&mut secret).map_err(|error| io::Error::other(error.to_string()))?;
        Ok(Self {
            engine,
            retries: Retries::new(secret),
            reservations: Reservations::default(),
            degraded: Arc::new(DegradedCounts::new()),
        })
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
    pub(crate) fn peek(&self, request: &Request<'_>) -> Answer<'_> {
        match caught(|| self.engine.peek(request)) {
            Some(decision) => self.answer((decision, None)),
            None => self.undecided(request.parts().domain, Degraded::InternalError),
        }
    }

    /// Decides a request, and charges it when it is allowed; a repeat is told what the first was told.
    pub(crate) fn check(&self, request: &Request<'_>, id: Option<RequestId<'_>>) -> Result<Answer<'_>, Reused> {
        let decided = self.once(id, Call::Check, request, || (self.engine.check(request), None))?;
        Ok(match decided {
            Some(decided) => self.answer(decided),
            None => self.undecided(request.parts().domain, Degraded::InternalError),
        })
    }

    /// Decides requests together, all or nothing; some bring their own numbers. `None`: it could not be done.
    pub(crate) fn check_together(&self, requests: &[(Request<'_>, Option<Rate>)]) -> Option<Vec<Answer<'_>>> {
        let decided = caught(|| {
            let mut decisions = Vec::with_capacity(requests.len());
            self.engine.check_together(requests, &mut decisions);
            decisions
        });
        if decided.is_none() {
            self.degraded.failed(Degraded::InternalError);
        }
        Some(decided?.into_iter().map(|decision| self.answer((decision, None))).collect())
    }

    /// The same of a cost that is an estimate, which can be settled for an hour. Where there is no room to keep the reservation
    /// the estimate is charged all the same, and the answer says so: the request may go on, and what it was charged stands.
    pub(crate) fn reserve(&self, request: &Request<'_>, id: Option<RequestId<'_>>) -> Result<Answer<'_>, Reused> {
        let decided = self.once(id, Call::Reserve, request, || {
            let now = self.engine.clock().now();
            let id = ReservationId::random().ok().filter(|_| self.reservations.has_room(now));
            let Some(id) = id else { return (self.engine.check(request), None) };
            let (decision, reservation) = self.engine.reserve(request);
            let id = reservation.map(|reservation| {
                self.reservations.put(id, reservation, now);
                id
            });
            (decision, id)
        })?;
        Ok(match decided {
            Some((decision, None)) if decision.is_allowed() => self.marked((decision, None), Some(Degraded::Overload)),
            Some(decided) => self.answer(decided),
            None => self.undecided(request.parts().domain, Degraded::InternalError),
        })
    }

    /// Decides several in their order, later ones after the charges of earlier ones, and tells each answer.
    pub(crate) fn check_batch<'e>(&'e self, requests: &[Request<'_>], mut tell: impl FnMut(Answer<'e>)) {
        let mut told = 0;
        let each = |decision| {
            told += 1;
            tell(self.answer((decision, None)));
        };
        if caught(|| self.engine.check_batch(requests, &mut Each(each))).is_none() {
            for request in &requests[told..] {
                tell(self.undecided(request.parts().domain, Degraded::InternalError));
            }
        }
    }

    /// Says what a reservation really cost; 0 gives all of it back.
    pub(crate) fn settle(&self, id: ReservationId, actual: u64) -> Result<(), Unsettled> {
        let reservation = self.reservations.take(id, self.engine.clock().now()).map_err(Unsettled::Gone)?;
        caught(|| self.engine.settle(reservation, actual)).ok_or(Unsettled::Panicked)
    }

    /// What is answered where there is no decision: as the domain says for that case.
    pub(crate) fn undecided(&self, domain: &str, reason: Degraded) -> Answer<'_> {
        self.degraded.failed(reason);
        let is_allowed = self.engine.door_settings(domain).on_error == OnError::Open;
        let policy_version = self.engine.version();
        Answer { is_allowed, decision: None, degraded: Some(reason), policy_version, reservation: None }
    }

    /// `None`: it panicked.
    fn once<'e>(
        &'e self,
        id: Option<RequestId<'_>>,
        call: Call,
        request: &Request<'_>,
        decide: impl FnOnce() -> Decided<'e>,
    ) -> Result<Option<Decided<'e>>, Reused> {
        match id {
            Some(id) => caught(|| self.retries.once(&self.engine, (id, call), request, decide)).transpose(),
            // The most: as straight as can be.
            None => Ok(caught(decide)),
        }
    }

    fn answer<'e>(&self, decided: Decided<'e>) -> Answer<'e> {
        let degraded = decided.0.degraded();
        self.marked(decided, degraded)
    }

    fn marked<'e>(&self, (decision, reservation): Decided<'e>, degraded: Option<Degraded>) -> Answer<'e> {
        if let Some(reason) = degraded {
            match reason {
                Degraded::Overload => self.degraded.failed(reason),
                _ => self.degraded.count(reason),
            }
        }
        Answer {
            is_allowed: decision.is_allowed(),
            decision: Some(decision),
            degraded,
            policy_version: decision.policy_version(),
            reservation,
        }
    }
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

#[cfg(test)]
mod tests {
    use tidegate::{Identity, Snapshot, clock::ManualClock, formats::Format};

    use super::*;
    use crate::reservations::OPEN_MAX;

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
        let decider = Decider::new(engine).expect("random numbers");
        let who = [Identity::new("user", "ada").expect("valid")];
        let request = Request::new(&who).expect("valid");
        let first = decider.reserve(&request, None).expect("no id").reservation.expect("room");
        for _ in 1..OPEN_MAX {
            assert!(decider.reserve(&request, None).expect("no id").reservation.is_some());
        }
        let repeated = RequestId::new("1").ok();
        for _ in 0..2 {
            let beyond = decider.reserve(&request, repeated).expect("the same");
            assert!(beyond.is_allowed && beyond.reservation.is_none());
            assert_eq!(beyond.degraded, Some(Degraded::Overload));
            let remaining = beyond.decision.expect("the engine decided").remaining();
            assert_eq!(remaining, Some(LIMIT - OPEN_MAX as u64 - 1), "charged once");
        }
        assert!(decider.settle(first, 0).is_ok());
        assert!(decider.reserve(&request, None).expect("no id").reservation.is_some());
    }
}
