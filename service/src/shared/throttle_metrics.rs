//! Metrics of the limits whose numbers come with the command, `CL.THROTTLE` and `THROTTLE`.

use std::{fmt, sync::Arc};

use prometheus_client::{collector::Collector, encoding::DescriptorEncoder};
use tidegate::{RatedLimiter, clock::Clock};

use super::{latency::ListenerLatencies, metric_encoding::counter};

/// Collects the metrics of the limiter of these limits.
pub(crate) struct ThrottleMetrics<C> {
    pub(crate) limiter: Arc<RatedLimiter<C>>,
    pub(crate) latencies: ListenerLatencies,
    /// The commands that the limiter decides.
    pub(crate) routes: &'static [&'static str],
    /// The statuses of a decision.
    pub(crate) statuses: [u16; 2],
}

impl<C> Clone for ThrottleMetrics<C> {
    fn clone(&self) -> Self {
        let Self { limiter, latencies, routes, statuses } = self;
        Self { limiter: Arc::clone(limiter), latencies: latencies.clone(), routes, statuses: *statuses }
    }
}

impl<C> fmt::Debug for ThrottleMetrics<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ThrottleMetrics")
    }
}

/// The counts of these limits, for the server's health.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ThrottleCounts {
    /// Decisions.
    pub(crate) decided: u64,
    /// New keys that found no slot in the table.
    pub(crate) overflow: u64,
    /// New keys that were denied for want of a slot and an overflow bucket.
    pub(crate) without_room: u64,
}

impl<C: Clock> ThrottleMetrics<C> {
    pub(crate) fn counts(&self) -> ThrottleCounts {
        ThrottleCounts {
            decided: self.latencies.count(self.routes, &self.statuses),
            overflow: self.limiter.overflow_charges(),
            without_room: self.limiter.denied_without_room(),
        }
    }
}

impl<C: Clock> Collector for ThrottleMetrics<C> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for (name, help, count) in [
            (
                "throttle_overflow_charges",
                "New keys of limits that come with the command for which their table had no slot",
                self.limiter.overflow_charges(),
            ),
            (
                "throttle_denied_without_room",
                "Those of these keys that were denied, because the overflow buckets were in use too",
                self.limiter.denied_without_room(),
            ),
            (
                "throttle_denied_by_share",
                "New keys of limits that come with the command that were denied because their caller had its share of the places",
                self.limiter.denied_by_share(),
            ),
        ] {
            counter(&mut encoder, name, help, count)?;
        }
        Ok(())
    }
}
