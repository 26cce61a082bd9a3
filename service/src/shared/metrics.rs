//! The metrics of a server in the `OpenMetrics` text format. Labels have a fixed number of values: routes, codes and
//! the limits of the policy, never keys.

use std::{
    fmt, fs,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use actix_web::web::Bytes;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet, text},
    metrics::{
        MetricType,
        counter::{ConstCounter, Counter},
        family::Family,
        gauge::Gauge,
    },
    registry::{Registry, Unit},
};
use tidegate::{Engine, KNOWN_LIMITS_MAX, clock::Clock};
use tidegate_fleet::store::{StoreFault, StoreStats};
use tidegate_listener::{ConnectionCollector, ConnectionLimiter, SharedAnswer};
use tokio::task::spawn_blocking;

use super::{
    body_budget::BodyBudget,
    decider::Decider,
    health_monitor::HealthMonitor,
    health_rules::HealthFault,
    latency::{LatencyCollector, ListenerLatencies},
    metric_encoding::{counter, counters, gauge, seconds},
    rejection_counts::{RejectionCollector, RejectionCounts},
    throttle_metrics::ThrottleMetrics,
};

/// The most keys that are counted one by one.
const COUNTED_KEYS_MAX: usize = 10_000;
/// The media type of [`MetricsPage::text`].
pub(crate) const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The registry of all metrics of a process, with the last page that was written of them.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Arc<Registry>,
    /// The last page; `None` where it could not be written.
    page: SharedAnswer<Option<MetricsPage>>,
    rejections: Arc<RejectionCounts>,
    unidentified: Counter,
    /// The number of live keys, which is counted once for each page.
    active_keys: Gauge<u64, AtomicU64>,
}

#[derive(Clone, Debug)]
pub(crate) struct MetricsPage {
    pub(crate) text: Bytes,
    /// The number of live keys in the text, since counting them takes as long as the rest of the page.
    pub(crate) active_keys: u64,
}

impl Metrics {
    /// Registers the metrics of the engine, the decider and all listeners.
    pub(crate) fn new<C: Clock>(
        decider: &Arc<Decider<C>>,
        body_budget: &Arc<BodyBudget>,
        connections: Vec<Arc<ConnectionLimiter>>,
        latencies: Vec<ListenerLatencies>,
        throttle: Option<&ThrottleMetrics<C>>,
        health_monitor: &Arc<HealthMonitor<C>>,
        rejections: Arc<RejectionCounts>,
    ) -> Self {
        let unidentified = Counter::default();
        let mut registry = Registry::with_prefix("tidegate");
        registry.register_collector(Box::new(DeciderCollector(Arc::clone(decider))));
        registry.register_collector(Box::new(BodyBudgetCollector(Arc::clone(body_budget))));
        registry.register_collector(Box::new(ConnectionCollector(connections)));
        registry.register_collector(Box::new(LatencyCollector(latencies)));
        registry.register_collector(Box::new(HealthCollector(Arc::clone(health_monitor))));
        registry.register_collector(Box::new(RejectionCollector(Arc::clone(&rejections))));
        if let Some(throttle) = throttle {
            registry.register_collector(Box::new(throttle.clone()));
        }
        let help = "Answers that are not what they should have been, by reason";
        registry.register("degraded", help, Family::clone(&decider.degraded.by_reason));
        let help = "Requests that proxies asked about and that had none of the identities; they passed";
        registry.register("http_unidentified_requests", help, Counter::clone(&unidentified));
        let active_keys = Gauge::default();
        let help = "Keys that are counted now. Exact up to 10,000, unless max_keys is above 89 million; else estimated";
        registry.register("active_keys", help, Gauge::clone(&active_keys));
        Self { registry: Arc::new(registry), page: SharedAnswer::default(), rejections, unidentified, active_keys }
    }

    /// Counts a request at this listener, or a check of a batch, that was rejected with this code.
    pub(crate) fn count_rejection(&self, listener: &'static str, code: &'static str) {
        self.rejections.count(listener, code);
    }

    /// Counts a request of a proxy that had none of the identities.
    pub(crate) fn count_unidentified(&self) {
        self.unidentified.inc();
    }

    /// Returns the last page, or a new one where that is older than `period`. A thread of the blocking pool writes it. Concurrent
    /// scrapes read the same page. Returns `None` where it could not be written.
    pub(crate) async fn page<C: Clock>(&self, engine: &Arc<Engine<C>>, period: Duration) -> Option<MetricsPage> {
        let write = || {
            let (registry, engine, gauge) = (Arc::clone(&self.registry), Arc::clone(engine), self.active_keys.clone());
            let written = spawn_blocking(move || {
                let active_keys = active_keys(&engine);
                gauge.set(active_keys);
                let mut text = String::new();
                text::encode(&mut text, &registry)
                    .inspect_err(|error| tracing::error!(%error, "the metrics could not be written"))
                    .ok()?;
                Some(MetricsPage { text: text.into(), active_keys })
            });
            async { written.await.ok()? }
        };
        self.page.get(|age, _| age < period, write).await?
    }
}

/// Returns how many keys are live: an exact number if there are few, or else an estimate. It takes long, so a thread of
/// the blocking pool calls it.
fn active_keys<C: Clock>(engine: &Engine<C>) -> u64 {
    engine.count_live_keys(COUNTED_KEYS_MAX).map_or_else(|| engine.live_keys(), |keys| keys as u64)
}

/// The collector of the counts of the engine, the decider and its store.
struct DeciderCollector<C>(Arc<Decider<C>>);

impl<C> fmt::Debug for DeciderCollector<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DeciderCollector")
    }
}

impl<C: Clock> Collector for DeciderCollector<C> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Self(decider) = self;
        encode_engine(decider.engine(), &mut encoder)?;
        encode_checks(decider.engine(), &mut encoder)?;
        encode_limits(decider.engine(), &mut encoder)?;
        encode_requests(decider, &mut encoder)?;
        decider.store().map_or(Ok(()), |store| encode_store(&store.stats(), &mut encoder))
    }
}

/// Writes the state of the engine: its policy, its table and its clock.
fn encode_engine<C: Clock>(engine: &Engine<C>, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    encoder
        .encode_descriptor("build", "This build of Tidegate", None, MetricType::Info)?
        .encode_info(&[("version", env!("CARGO_PKG_VERSION"))])?;
    gauge(encoder, "policy_version", "Version of the policy that decides", &engine.version())?;
    gauge(encoder, "table_fill", "The part of the table that live keys take, of 1", &engine.fill())?;
    let help = "Limits whose overflow buckets are all in use: a new key that finds no slot in the table is denied";
    gauge(encoder, "drained_limits", help, &(engine.drained_limits().len() as u64))?;
    if let Some(bytes) = resident_bytes() {
        let (help, unit) = ("Memory that the process has from the machine", Some(&Unit::Bytes));
        encoder.encode_descriptor("resident_memory", help, unit, MetricType::Gauge)?.encode_gauge(&bytes)?;
    }
    let help = "Limits that the engine knows: of the policy in force, and of earlier ones whose places it did not take back yet";
    gauge(encoder, "known_limits", help, &(engine.known_limits() as u64))?;
    let help = "As many limits the engine can know: a policy with more is refused";
    gauge(encoder, "known_limits_max", help, &(KNOWN_LIMITS_MAX as u64))?;
    let help = "How far the engine's clock is ahead of wall time, since that was set back";
    seconds(encoder, "clock_ahead", help, engine.clock().ahead())?;
    let steps = engine.clock().wall_steps();
    let help = "Steps of wall time: forward, which the clock followed; back, for which it stood still; back, after which it \
                is ahead";
    let by_kind = [("forward", steps.forward), ("stop", steps.stops), ("ahead", steps.anchors)];
    counters(encoder, "clock_steps", help, by_kind.map(|(kind, count)| ([("kind", kind)], count)))
}

/// Writes the counts of checks, their charges and leases.
fn encode_checks<C: Clock>(engine: &Engine<C>, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let totals = engine.totals();
    let results = [([("result", "allowed")], totals.allowed), ([("result", "denied")], totals.denied)];
    counters(encoder, "decisions", "Decisions by result", results)?;
    counter(encoder, "no_limit_checks", "Allowed because no limit applied", totals.no_limit)?;
    let help = "Of those without a limit, the ones that named a domain which the policy does not have";
    counter(encoder, "unknown_domain_checks", help, totals.unknown_domain)?;
    let help = "New keys for which the table had no slot: each took an overflow bucket of its limit, or was denied";
    counter(encoder, "overflow_charges", help, engine.overflow_charges())?;
    let help = "Those of these keys that were denied, because the overflow buckets of their limits were in use too";
    counter(encoder, "denied_without_room", help, engine.denied_without_room())?;
    let help = "Charges of sliding window logs that had no ring of their own, because the pool had none left";
    counter(encoder, "log_charges_without_ring", help, engine.log_charges_without_ring())?;
    let help = "Charges given back because a later limit refused in a race: for each of their tokens one denial at most was \
                spurious";
    counter(encoder, "give_backs", help, engine.give_backs())?;
    counter(encoder, "leases_begun", "Leases of keys that several threads hit at once", engine.leases_begun())?;
    counter(encoder, "leases_ended", "Those of these leases that have ended", engine.leases_ended())
}

/// Writes the engine's counts for each limit of the tiers and rules of the present policy.
fn encode_limits<C: Clock>(engine: &Engine<C>, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "Slots of the table that the keys of a limit hold, live or idle";
    let mut slots = encoder.encode_descriptor("limit_slots", help, None, MetricType::Gauge)?;
    for (limit, held) in engine.slots_held() {
        let name = engine.limit_name(limit);
        let labels = [("domain", domain_of(name)), ("limit_id", name)];
        slots.encode_family(&labels)?.encode_gauge(&held)?;
    }
    let limits = engine.limit_counts();
    let by_limit = limits.iter().flat_map(|&(limit, counts)| {
        let name = engine.limit_name(limit);
        let labels = move |result| [("domain", domain_of(name)), ("limit_id", name), ("result", result)];
        [
            (labels("allowed"), counts.allowed),
            (labels("denied"), counts.denied),
            (labels("shadow_denied"), counts.shadow_denied),
        ]
    });
    let help = "Decisions by limit of the present policy: allowed and charged to it, denied by it first, or allowed though it \
                would have denied, were it no shadow";
    counters(encoder, "limit_decisions", help, by_limit)
}

fn domain_of(limit: &str) -> &str {
    limit.split('/').next().unwrap_or_default()
}

/// Returns the resident memory of the process; `None` where the system does not say.
fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kb| kb * 1_024)
}

struct HealthCollector<C>(Arc<HealthMonitor<C>>);

impl<C> fmt::Debug for HealthCollector<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HealthCollector")
    }
}

impl<C: Clock> Collector for HealthCollector<C> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let faults = self.0.faults();
        let mut family =
            encoder.encode_descriptor("health_degraded", "1 for what /healthz finds wrong", None, MetricType::Gauge)?;
        for name in HealthFault::NAMES {
            let is_wrong = faults.iter().any(|fault| fault.name() == name);
            family.encode_family(&[("reason", name)])?.encode_gauge(&u64::from(is_wrong))?;
        }
        if let Some(age) = self.0.policy_age() {
            let help = "Time since this version of the policy came into force here";
            seconds(&mut encoder, "policy_age", help, age)?;
        }
        Ok(())
    }
}

/// Writes the counts of request IDs and reservations.
fn encode_requests<C: Clock>(decider: &Decider<C>, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let (request_ids, (open, expired)) = (&decider.request_ids, decider.reservations.counts());
    let by_reason = |(reason, count)| ([("reason", reason)], count);
    let help = "Request ids that are remembered, for a minute or until others need the room";
    gauge(encoder, "remembered_requests", help, &(request_ids.len() as u64))?;
    gauge(encoder, "open_reservations", "Reservations that can be settled", &(open as u64))?;
    let help = "Requests that were told what had been answered to their request id";
    counter(encoder, "repeated_requests", help, request_ids.repeats())?;
    counter(encoder, "expired_reservations", "Reservations that nobody settled in their hour", expired)?;
    let help = "Request ids that made room for others within their minute, by reason: their caller had its share, or the table \
                was full";
    counters(encoder, "forgotten_requests", help, request_ids.forgotten.by_reason().map(by_reason))?;
    let help = "Reservations that had no room, by reason: their caller had its share, or the table was full";
    counters(encoder, "refused_reservations", help, decider.reservations.refused().map(by_reason))
}

/// Writes the statistics of the store.
fn encode_store(stats: &StoreStats, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "1 while the store is asked, 0 while it is left alone since it did not answer";
    gauge(encoder, "store_up", help, &u64::from(!stats.is_open))?;
    let help = "Tokens of leased limits that the store counts as lent to this node";
    gauge(encoder, "store_leased_tokens", help, &stats.leased_out)?;
    let help = "The most tokens above a synced limit that the store had";
    gauge(encoder, "store_overshoot_tokens_max", help, &stats.overshoot_max)?;
    let help = "The most tokens of a synced limit that this node spent between two exchanges: the sum of all nodes bounds the \
                overshoot";
    gauge(encoder, "store_untold_tokens_max", help, &stats.untold_max)?;
    let help = "For how long a synced charge was untold when the store had it: the last one";
    seconds(encoder, "store_sync_lag", help, stats.sync_lag)?;
    let help = "How often the store was left alone, since it did not answer";
    counter(encoder, "store_breaker_opened", help, stats.opened)?;
    counter(encoder, "store_requests", "Scripts that were sent to the store", stats.asked)?;
    counter(encoder, "store_errors", "Those without an answer", stats.failed)?;
    let help = "How often the store had more used of a synced limit than there is";
    counter(encoder, "store_overshoots", help, stats.overshoots)?;
    let codes = StoreFault::ALL.map(|fault| [("code", fault.code())]);
    let help = "Errors of the store by fault, those of probes included";
    counters(encoder, "store_fault_errors", help, codes.into_iter().zip(stats.fault_counts))?;
    let help = "1 while the store has this fault, as this node meets it; docs/store.md says what to do";
    let mut family = encoder.encode_descriptor("store_fault", help, None, MetricType::Gauge)?;
    for (code, fault) in codes.iter().zip(StoreFault::ALL) {
        let is_there = stats.faults.iter().any(|report| report.code == fault);
        family.encode_family(code)?.encode_gauge(&u64::from(is_there))?;
    }
    let as_seconds = |bound: Option<Duration>| bound.map_or(f64::INFINITY, |bound| bound.as_secs_f64());
    let buckets: Vec<_> = stats.waits.buckets().map(|(bound, count)| (as_seconds(bound), count)).collect();
    let help = "For how long checks waited for the store, of those that did";
    encoder
        .encode_descriptor("store_wait", help, Some(&Unit::Seconds), MetricType::Histogram)?
        .encode_histogram::<NoLabelSet>(stats.waits.sum.as_secs_f64(), stats.waits.total(), &buckets, None)?;
    let took = ConstCounter::new(stats.took.as_secs_f64());
    let help = "What the answers of the store took, in all";
    took.encode(encoder.encode_descriptor("store", help, Some(&Unit::Seconds), MetricType::Counter)?)
}

#[derive(Debug)]
struct BodyBudgetCollector(Arc<BodyBudget>);

impl Collector for BodyBudgetCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Bytes of the body budget that are taken: by bodies and commands above 16 KiB that are not whole, and by \
                    long answers that are not read";
        gauge(&mut encoder, "body_budget_bytes", help, &(self.0.taken() as u64))?;
        let help = "Bodies, commands and answers that had no part of the body budget, or had it no longer, by reason";
        let refused = self.0.refused().map(|(reason, count)| ([("reason", reason)], count));
        counters(&mut encoder, "refused_bodies", help, refused)
    }
}
