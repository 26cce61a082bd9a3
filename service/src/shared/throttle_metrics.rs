//! Metrics of the limits whose numbers come with the command, `CL.THROTTLE` and `THROTTLE`.

use std::{fmt, sync::Arc};

use prometheus_client::{collector::Collector, encoding::DescriptorEncoder};
use tidegate::{RatedLimiter, clock::Clock};

use super::{health_rules::HealthSample, latency::ListenerLatencies, metric_encoding::counter};

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

impl<C: Clock> ThrottleMetrics<C> {
    /// Returns the counts of these limits that show the server's health.
    pub(crate) fn sample(&self) -> HealthSample {
        HealthSample {
            checks: self.latencies.count(self.routes, &self.statuses),
            overflow: self.limiter.overflow_charges(),
            without_room: self.limiter.denied_without_room(),
            ..HealthSample::default()
        }
    }
}

impl<C: Clock> Collector for ThrottleMetrics<C> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "New keys of limits that come with the command for which their table had no slot";
        counter(&mut encoder, "throttle_overflow_charges", help, self.limiter.overflow_charges())?;
        let help = "Those of these keys that were denied, because the overflow buckets were in use too";
        counter(&mut encoder, "throttle_denied_without_room", help, self.limiter.denied_without_room())?;
        let help = "New keys of limits that come with the command that were denied because their caller had its share of the places";
        counter(&mut encoder, "throttle_denied_by_share", help, self.limiter.denied_by_share())
    }
}
