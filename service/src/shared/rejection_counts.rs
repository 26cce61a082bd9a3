//! Requests that were refused or failed, counted by door and code; and the errors of all doors together, by kind.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use prometheus_client::{collector::Collector, encoding::DescriptorEncoder};
use tidegate::clock::Clock;

use crate::shared::{
    decider::Decider, degraded::DegradedCounts, metrics::counters, request_id_cache::ForgottenRequests,
};

/// By door and code of error, those inside a batch too.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<BTreeMap<[&'static str; 2], u64>>);

impl Refusals {
    pub(crate) fn count(&self, door: &'static str, code: &'static str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry([door, code]).or_default() += 1;
    }

    fn all(&self) -> BTreeMap<[&'static str; 2], u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// For a scrape.
#[derive(Debug)]
pub(crate) struct OfRefusals(pub(crate) Arc<Refusals>);

impl Collector for OfRefusals {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let counts = self.0.all();
        if counts.is_empty() {
            return Ok(());
        }
        let counts = counts.into_iter().map(|([door, code], count)| ([("door", door), ("code", code)], count));
        let help = "Requests that were refused or failed, by door and code of error, those inside a batch too";
        counters(&mut encoder, "bad_requests", help, counts)
    }
}

/// The errors of all doors of a process.
#[derive(Clone, Debug)]
pub struct Errors {
    degraded: Arc<DegradedCounts>,
    refusals: Arc<Refusals>,
    forgotten: Arc<ForgottenRequests>,
}

impl Errors {
    pub(crate) fn of<C: Clock>(decider: &Decider<C>, refusals: &Arc<Refusals>) -> Self {
        Self {
            degraded: Arc::clone(decider.degraded()),
            refusals: Arc::clone(refusals),
            forgotten: Arc::clone(decider.retries().forgotten()),
        }
    }

    /// How many there were since the start: answers that are not what they should have been by their reason, such as
    /// `overload`, requests that were refused or failed by their code, such as `bad_request`, of all doors, and request ids that
    /// were forgotten within their minute.
    #[must_use]
    pub fn by_kind(&self) -> BTreeMap<&'static str, u64> {
        let mut kinds = self.degraded.counts();
        for ([_, code], count) in self.refusals.all() {
            *kinds.entry(code).or_default() += count;
        }
        let forgotten = self.forgotten.by_reason().iter().map(|(_, count)| count).sum();
        kinds.insert(ForgottenRequests::ERROR_KIND, forgotten);
        kinds.retain(|_, count| *count > 0);
        kinds
    }
}

#[cfg(test)]
mod tests {
    use tidegate::{Degraded, Engine};

    use super::*;
    use crate::shared::caller_shares::NoRoom;

    #[test]
    fn errors_are_counted_by_kind_over_all_doors() {
        let decider = Decider::new(Arc::new(Engine::with_max_keys(10))).expect("random numbers");
        let refusals = Arc::new(Refusals::default());
        let errors = Errors::of(&decider, &refusals);
        assert_eq!(errors.by_kind(), BTreeMap::new());
        refusals.count("http", "bad_request");
        refusals.count("grpc", "bad_request");
        refusals.count("resp", "unauthorized");
        decider.degraded().count(Degraded::NoStore);
        for reason in NoRoom::ALL {
            decider.retries().forgotten().count(reason);
        }
        let kinds = [("bad_request", 2), ("forgotten_request_id", 2), ("no_store", 1), ("unauthorized", 1)];
        assert_eq!(errors.by_kind(), BTreeMap::from(kinds));
    }
}
