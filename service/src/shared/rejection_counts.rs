//! Counts rejected and failed requests by listener and error code, and sums the errors of all listeners by kind.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use prometheus_client::{collector::Collector, encoding::DescriptorEncoder};
use tidegate::clock::Clock;

use super::{
    decider::Decider, degraded::DegradedCounts, metric_encoding::counters, request_id_cache::ForgottenRequests,
};

/// The counts of rejected and failed requests by listener and error code, with the checks of batches.
#[derive(Debug, Default)]
pub(crate) struct RejectionCounts(Mutex<BTreeMap<[&'static str; 2], u64>>);

impl RejectionCounts {
    pub(crate) fn count(&self, listener: &'static str, code: &'static str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry([listener, code]).or_default() += 1;
    }

    fn all(&self) -> BTreeMap<[&'static str; 2], u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[derive(Debug)]
pub(crate) struct RejectionCollector(pub(crate) Arc<RejectionCounts>);

impl Collector for RejectionCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let counts = self.0.all();
        if counts.is_empty() {
            return Ok(());
        }
        let counts = counts.into_iter().map(|([listener, code], count)| ([("door", listener), ("code", code)], count));
        let help = "Requests that were refused or failed, by listener and code of error, also inside a batch";
        counters(&mut encoder, "bad_requests", help, counts)
    }
}

/// The errors of all listeners of a process.
#[derive(Clone, Debug)]
pub struct ListenerErrors {
    degraded: Arc<DegradedCounts>,
    rejections: Arc<RejectionCounts>,
    forgotten: Arc<ForgottenRequests>,
}

impl ListenerErrors {
    pub(crate) fn of<C: Clock>(decider: &Decider<C>, rejections: &Arc<RejectionCounts>) -> Self {
        Self {
            degraded: Arc::clone(&decider.degraded),
            rejections: Arc::clone(rejections),
            forgotten: Arc::clone(&decider.request_ids.forgotten),
        }
    }

    /// Returns the counts since the start: degraded outcomes by reason, such as `overload`; rejected and failed
    /// requests by code, such as `bad_request`; and request IDs that were forgotten within their minute.
    #[must_use]
    pub fn by_kind(&self) -> BTreeMap<&'static str, u64> {
        let mut kinds = self.degraded.counts();
        for ([_, code], count) in self.rejections.all() {
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
    fn errors_are_counted_by_kind_over_all_listeners() {
        let decider = Decider::new(Arc::new(Engine::with_max_keys(10))).expect("random numbers");
        let rejections = Arc::new(RejectionCounts::default());
        let errors = ListenerErrors::of(&decider, &rejections);
        assert_eq!(errors.by_kind(), BTreeMap::new());
        rejections.count("http", "bad_request");
        rejections.count("grpc", "bad_request");
        rejections.count("resp", "unauthorized");
        decider.degraded.count(Degraded::NoStore);
        for reason in NoRoom::ALL {
            decider.request_ids.forgotten.count(reason);
        }
        let kinds = [("bad_request", 2), ("forgotten_request_id", 2), ("no_store", 1), ("unauthorized", 1)];
        assert_eq!(errors.by_kind(), BTreeMap::from(kinds));
    }
}
