//! Decides several requests together, all or nothing: the descriptors of one Envoy request.

use tidegate::{Decision, Degraded, Rate, Request, clock::Clock, internals::BeginResult};
use tidegate_fleet::store::SharedEngine;

use super::{CheckResult, Decider, catch_panic, with_stored_charge, without_reservation};
use crate::shared::{caller_shares::Caller, request_id_cache::CallKind, reservations::ReservationCharge};

impl<C: Clock> Decider<C> {
    /// Decides requests together, all or nothing. Some bring their own rate. Returns `None` where deciding panicked.
    pub(crate) async fn check_atomic_batch(
        &self,
        requests: &[(Request<'_>, Option<Rate>)],
        caller: &Caller,
    ) -> Option<Vec<CheckResult<'_>>> {
        let is_stored = |store: &SharedEngine<C>| {
            // Without a cost the engine counts nothing of the request.
            let meets_store = |(request, rate): &(Request<'_>, Option<Rate>)| {
                rate.is_none() && store.begin_if_shared(&request.without_cost(), true).is_some()
            };
            requests.iter().any(meets_store)
        };
        let decided = match &self.store {
            Some(store) if catch_panic(|| is_stored(store)).unwrap_or(false) => {
                self.charge_one_by_one(store, requests, caller).await
            }
            _ => self.charge_together_locally(requests),
        };
        if decided.is_none() {
            self.degraded.failed(Degraded::InternalError);
        }
        Some(decided?.into_iter().map(|decision| self.outcome(without_reservation(decision))).collect())
    }

    /// Decides requests together by the engine alone. Returns `None` where that panicked.
    fn charge_together_locally(&self, requests: &[(Request<'_>, Option<Rate>)]) -> Option<Vec<Decision<'_>>> {
        catch_panic(|| {
            let mut decisions = Vec::with_capacity(requests.len());
            self.engine.check_atomic_batch(requests, &mut decisions);
            decisions
        })
    }

    /// Decides requests together with the store: one after the other. When one is denied, the charges before it are
    /// given back, and the requests after it are decided without a charge. Requests with their own rate, which this
    /// node alone counts, come last.
    async fn charge_one_by_one<'e>(
        &'e self,
        store: &'e SharedEngine<C>,
        requests: &[(Request<'_>, Option<Rate>)],
        caller: &Caller,
    ) -> Option<Vec<Decision<'e>>> {
        let (rated, by_policy): (Vec<_>, Vec<_>) = (0..requests.len()).partition(|&index| requests[index].1.is_some());
        let mut decisions = vec![None; requests.len()];
        let mut charges = Vec::with_capacity(requests.len());
        let (mut is_denied, mut has_panicked) = (false, false);
        for index in by_policy {
            let request = &requests[index].0;
            let decided = if is_denied || request.parts().cost == 0 {
                self.inspect(request, caller).await.map(|decision| (decision, None))
            } else {
                self.reserve_charge(store, request, caller).await
            };
            let Some((decision, charge)) = decided else {
                has_panicked = true;
                break;
            };
            is_denied |= !decision.is_allowed();
            decisions[index] = Some(decision);
            charges.extend(charge);
        }
        if !rated.is_empty() && !has_panicked {
            let last = rated.iter().map(|&index| {
                let (request, rate) = &requests[index];
                (if is_denied { request.without_cost() } else { *request }, *rate)
            });
            let last: Vec<_> = last.collect();
            match self.charge_together_locally(&last) {
                Some(decided) => {
                    is_denied |= decided.iter().any(|decision| !decision.is_allowed());
                    rated.into_iter().zip(decided).for_each(|(index, decision)| decisions[index] = Some(decision));
                }
                None => has_panicked = true,
            }
        }
        if is_denied || has_panicked {
            for charge in charges {
                // `None`: it panicked, and what was given back before that stands.
                let _ = self.settle_charge(charge, 0);
            }
        }
        decisions.into_iter().collect()
    }

    /// Charges a request so that the charge can be given back. Returns `None` where that panicked.
    async fn reserve_charge<'e>(
        &'e self,
        store: &'e SharedEngine<C>,
        request: &Request<'_>,
        caller: &Caller,
    ) -> Option<(Decision<'e>, Option<ReservationCharge>)> {
        match catch_panic(|| store.begin_if_shared(request, false))? {
            None => catch_panic(|| self.charge_locally(request, CallKind::Reserve)),
            Some(BeginResult::Decided(decision)) => Some((decision, None)),
            Some(BeginResult::Pending(pending)) => {
                let answers = self.ask_store(store, &pending, caller).await;
                catch_panic(|| with_stored_charge(store.finish_reserved(pending, &answers)))
            }
        }
    }
}
