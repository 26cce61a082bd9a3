//! Counts degraded outcomes by reason: checks that were decided without their store or not at all, and reservations without room.

use std::collections::BTreeMap;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
};
use tidegate::Degraded;

use super::log_limiter::LogLimiter;

#[derive(Debug)]
pub(crate) struct DegradedCounts {
    pub(crate) by_reason: Family<DegradedLabel, Counter>,
    log: LogLimiter,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
pub(crate) struct DegradedLabel {
    reason: &'static str,
}

impl DegradedCounts {
    pub(crate) fn new() -> Self {
        let by_reason = Family::default();
        // Counters that start at 0 show their first event as a rise.
        for reason in [Degraded::InternalError, Degraded::Overload] {
            drop(by_reason.get_or_create_owned(&DegradedLabel { reason: reason.name() }));
        }
        Self { by_reason, log: LogLimiter::new() }
    }

    /// Counts an outcome that is as the policy has it, such as a decision without the store.
    pub(crate) fn count(&self, reason: Degraded) {
        self.by_reason.get_or_create(&DegradedLabel { reason: reason.name() }).inc();
    }

    /// Counts a check that was not decided, and logs it as an error.
    pub(crate) fn failed(&self, reason: Degraded) {
        self.count(reason);
        if let Some(left_out) = self.log.admit() {
            tracing::error!(reason = reason.name(), left_out, "answered without a decision");
        }
    }

    /// Returns how many checks were not decided. Reservations without room are not among them, since those were decided.
    pub(crate) fn failures(&self) -> u64 {
        self.by_reason.get_or_create(&DegradedLabel { reason: Degraded::InternalError.name() }).get()
    }

    pub(crate) fn counts(&self) -> BTreeMap<&'static str, u64> {
        let reasons = [Degraded::NoStore, Degraded::StoreFailed, Degraded::InternalError, Degraded::Overload];
        let count = |reason: &'static str| Some((reason, self.by_reason.get(&DegradedLabel { reason })?.get()));
        reasons.into_iter().filter_map(|reason| count(reason.name())).collect()
    }
}
