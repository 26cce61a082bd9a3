//! What is counted, in the text format of `OpenMetrics`. Labels have a fixed number of values: routes, codes and
//! the limits of the policy, never keys.

use std::{
    fmt, fs,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use actix_web::web::Bytes;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, NoLabelSet, text},
    metrics::{
        MetricType,
        counter::{ConstCounter, Counter},
        family::Family,
        gauge::Gauge,
    },
    registry::{Registry, Unit},
};
use tidegate::{Engine, KNOWN_LIMITS_MAX, clock::Clock};
use tidegate_fleet::store::StoreFault;
use tidegate_listener::{ConnectionCollector, ConnectionLimiter, SharedAnswer};
use tokio::task::spawn_blocking;

use crate::{
    resp::Throttled,
    shared::{
        body_budget::BodyBudget,
        decider::Decider,
        health_monitor::Watch,
        health_rules::Fault,
        latency::{AllLatencies, DoorLatencies},
        rejection_counts::{OfRefusals, Refusals},
    },
};

/// Up to so many keys are counted one by one.
const COUNTED_KEYS_MAX: usize = 10_000;
/// The media type of [`MetricsPage::text`].
pub(crate) const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What the doors and their decider count, and where all that is counted is written.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Arc<Registry>,
    /// The last page; `None`: it could not be written.
    page: SharedAnswer<Option<MetricsPage>>,
    refusals: Arc<Refusals>,
    unidentified: Counter,
    /// Counted once for each page.
    active_keys: Gauge<u64, AtomicU64>,
}

/// What a scrape reads.
#[derive(Clone, Debug)]
pub(crate) struct MetricsPage {
    pub(crate) text: Bytes,
    /// As in the text: counting takes as long as the rest of the page.
    pub(crate) active_keys: u64,
}

impl Metrics {
    /// Those of all doors, of what decides there, and of its engine.
    pub(crate) fn new<C: Clock>(
        decider: &Arc<Decider<C>>,
        body_budget: &Arc<BodyBudget>,
        connections: Vec<Arc<ConnectionLimiter>>,
        latencies: Vec<DoorLatencies>,
        throttled: Option<&Throttled<C>>,
        watch: &Arc<Watch<C>>,
        refusals: Arc<Refusals>,
    ) -> Self {
        let unidentified = Counter::default();
        let mut registry = Registry::with_prefix("tidegate");
        registry.register_collector(Box::new(OfEngine(Arc::clone(decider.engine()))));
        registry.register_collector(Box::new(OfDecider(Arc::clone(decider))));
        if decider.store().is_some() {
            registry.register_collector(Box::new(OfStore(Arc::clone(decider))));
        }
        registry.register_collector(Box::new(BodyBudgetCollector(Arc::clone(body_budget))));
        registry.register_collector(Box::new(ConnectionCollector(connections)));
        registry.register_collector(Box::new(AllLatencies(latencies)));
        registry.register_collector(Box::new(OfWatch(Arc::clone(watch))));
        registry.register_collector(Box::new(OfRefusals(Arc::clone(&refusals))));
        if let Some(throttled) = throttled {
            registry.register_collector(Box::new(throttled.clone()));
        }
        let help = "Answers that are not what they should have been, by reason";
        registry.register("degraded", help, Family::clone(decider.degraded().by_reason()));
        let help = "Requests that proxies asked about and that had none of the identities; they passed";
        registry.register("http_unidentified_requests", help, Counter::clone(&unidentified));
        let active_keys = Gauge::default();
        let help = "Keys that are counted now. Exact up to 10,000, unless max_keys is above 89 million; else estimated";
        registry.register("active_keys", help, Gauge::clone(&active_keys));
        Self { registry: Arc::new(registry), page: SharedAnswer::default(), refusals, unidentified, active_keys }
    }

    /// A request at this door, or a check of a batch, was refused with this code.
    pub(crate) fn refused(&self, door: &'static str, code: &'static str) {
        self.refusals.count(door, code);
    }

    /// A proxy asked about a request that had none of the identities.
    pub(crate) fn unidentified(&self) {
        self.unidentified.inc();
    }

    /// Returns what a scrape reads: the last page, or, where that is older than `period`, a new one, which a thread writes that
    /// decides nothing. However many scrape, they read the same page. `None`: it could not be written.
    pub(crate) async fn page<C: Clock>(&self, engine: &Arc<Engine<C>>, period: Duration) -> Option<MetricsPage> {
        let write = || {
            let (registry, engine, gauge) = (Arc::clone(&self.registry), Arc::clone(engine), self.active_keys.clone());
            let written = spawn_blocking(move || {
                let active_keys = active_keys(&engine);
                gauge.set(active_keys);
                let mut text = String::new();
                text::encode(&mut text, &registry).ok()?;
                Some(MetricsPage { text: text.into(), active_keys })
            });
            async { written.await.ok()? }
        };
        self.page.get(|age, _| age < period, write).await?
    }
}

/// Returns how many keys are live: the exact number of a few, an estimate of many. A thread that decides nothing calls it.
fn active_keys<C: Clock>(engine: &Engine<C>) -> u64 {
    engine.count_live_keys(COUNTED_KEYS_MAX).map_or_else(|| engine.live_keys(), |keys| keys as u64)
}

/// What the engine counts, read when it is asked for.
struct OfEngine<C>(Arc<Engine<C>>);

impl<C> fmt::Debug for OfEngine<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OfEngine")
    }
}

impl<C: Clock> Collector for OfEngine<C> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Self(engine) = self;
        encoder
            .encode_descriptor("build", "This build of Tidegate", None, MetricType::Info)?
            .encode_info(&[("version", env!("CARGO_PKG_VERSION"))])?;
        encoder
            .encode_descriptor("policy_version", "Version of the policy that decides", None, MetricType::Gauge)?
            .encode_gauge(&engine.version())?;
        encoder
            .encode_descriptor(
                "table_fill",
                "The part of the table that live keys take, of 1",
                None,
                MetricType::Gauge,
            )?
            .encode_gauge(&engine.fill())?;
        let help = "Limits whose overflow buckets are all in use: a new key that finds no slot in the table is denied";
        encoder
            .encode_descriptor("drained_limits", help, None, MetricType::Gauge)?
            .encode_gauge(&(engine.drained_limits().len() as u64))?;
        if let Some(bytes) = resident_bytes() {
            let help = "Memory that the process has from the machine";
            encoder
                .encode_descriptor("resident_memory", help, Some(&Unit::Bytes), MetricType::Gauge)?
                .encode_gauge(&bytes)?;
        }

        let help = "Limits that the engine knows: of the policy in force, and of earlier ones whose places it did not take back yet";
        encoder
            .encode_descriptor("known_limits", help, None, MetricType::Gauge)?
            .encode_gauge(&(engine.known_limits() as u64))?;
        let help = "As many limits the engine can know: a policy with more is refused";
        encoder
            .encode_descriptor("known_limits_max", help, None, MetricType::Gauge)?
            .encode_gauge(&(KNOWN_LIMITS_MAX as u64))?;
        let help = "How far the engine's clock is ahead of wall time, since that was set back";
        encoder
            .encode_descriptor("clock_ahead", help, Some(&Unit::Seconds), MetricType::Gauge)?
            .encode_gauge(&Duration::from_nanos(engine.clock().ahead_ns()).as_secs_f64())?;
        let steps = engine.clock().wall_steps();
        let help = "Steps of wall time: forward, which the clock followed; back, for which it stood still; back, after which it \
                    is ahead";
        let by_kind = [("forward", steps.forward), ("stop", steps.stops), ("ahead", steps.anchors)];
        counters(&mut encoder, "clock_steps", help, by_kind.map(|(kind, count)| ([("kind", kind)], count)))?;

        let totals = engine.totals();
        let results = [([("result", "allowed")], totals.allowed), ([("result", "denied")], totals.denied)];
        counters(&mut encoder, "decisions", "Decisions by result", results)?;
        for (name, help, count) in [
            ("no_limit_checks", "Allowed because no limit applied", totals.no_limit),
            (
                "unknown_domain_checks",
                "Of those without a limit, the ones that named a domain which the policy does not have",
                totals.unknown_domain,
            ),
            (
                "overflow_charges",
                "New keys for which the table had no slot: each took an overflow bucket of its limit, or was denied",
                engine.overflow_charges(),
            ),
            (
                "denied_without_room",
                "Those of these keys that were denied, because the overflow buckets of their limits were in use too",
                engine.denied_without_room(),
            ),
            (
                "log_charges_without_ring",
                "Charges of sliding window logs that had no ring of their own, because the pool had none left",
                engine.log_charges_without_ring(),
            ),
            (
                "give_backs",
                "Charges given back because a later limit refused in a race: for each of their tokens one denial at most was \
                 spurious",
                engine.give_backs(),
            ),
            ("leases_begun", "Leases of keys that several threads hit at once", engine.leases_begun()),
            ("leases_ended", "Those of these leases that have ended", engine.leases_ended()),
        ] {
            ConstCounter::new(count).encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)?;
        }

        encode_limits(engine, &mut encoder)
    }
}

/// Writes what an engine counts for each limit of the present policy's tiers and rules.
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

/// The domain of a limit with this full name.
fn domain_of(limit: &str) -> &str {
    limit.split('/').next().unwrap_or_default()
}

/// What the process has of the machine's memory; `None` where the system does not say.
fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kb| kb * 1_024)
}

/// How well the server is.
struct OfWatch<C>(Arc<Watch<C>>);

impl<C> fmt::Debug for OfWatch<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OfWatch")
    }
}

impl<C: Clock> Collector for OfWatch<C> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let faults = self.0.faults();
        let mut family =
            encoder.encode_descriptor("health_degraded", "1 for what /healthz finds wrong", None, MetricType::Gauge)?;
        for name in Fault::NAMES {
            let is_wrong = faults.iter().any(|fault| fault.name() == name);
            family.encode_family(&[("reason", name)])?.encode_gauge(&u64::from(is_wrong))?;
        }
        if let Some(age) = self.0.policy_age() {
            let help = "Time since this version of the policy came into force here";
            encoder
                .encode_descriptor("policy_age", help, Some(&Unit::Seconds), MetricType::Gauge)?
                .encode_gauge(&age.as_secs_f64())?;
        }
        Ok(())
    }
}

/// What is remembered of requests and reservations.
struct OfDecider<C>(Arc<Decider<C>>);

impl<C> fmt::Debug for OfDecider<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OfDecider")
    }
}

impl<C: Clock> Collector for OfDecider<C> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Self(decider) = self;
        let (retries, (open, expired)) = (decider.retries(), decider.reservations().counts());
        for (name, help, count) in [
            (
                "remembered_requests",
                "Request ids that are remembered, for a minute or until others need the room",
                retries.len(),
            ),
            ("open_reservations", "Reservations that can be settled", open),
        ] {
            encoder.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&(count as u64))?;
        }
        for (name, help, count) in [
            (
                "repeated_requests",
                "Requests that were told what had been answered to their request id",
                retries.repeats(),
            ),
            ("expired_reservations", "Reservations that nobody settled in their hour", expired),
        ] {
            ConstCounter::new(count).encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)?;
        }
        for (name, help, counts) in [
            (
                "forgotten_requests",
                "Request ids that made room for others within their minute, by reason: their caller had its share, or the table \
                 was full",
                retries.forgotten().by_reason(),
            ),
            (
                "refused_reservations",
                "Reservations that had no room, by reason: their caller had its share, or the table was full",
                decider.reservations().refused(),
            ),
        ] {
            let counts = counts.map(|(reason, count)| ([("reason", reason)], count));
            counters(&mut encoder, name, help, counts)?;
        }
        Ok(())
    }
}

/// How the store is, where there is one.
struct OfStore<C>(Arc<Decider<C>>);

impl<C> fmt::Debug for OfStore<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OfStore")
    }
}

impl<C: Clock> Collector for OfStore<C> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(figures) = self.0.store().map(|store| store.stats()) else { return Ok(()) };
        for (name, help, value) in [
            (
                "store_up",
                "1 while the store is asked, 0 while it is left alone since it did not answer",
                u64::from(!figures.is_open),
            ),
            (
                "store_leased_tokens",
                "Tokens of leased limits that the store counts as lent to this node",
                figures.leased_out,
            ),
            (
                "store_overshoot_tokens_max",
                "The most tokens above a synced limit that the store had",
                figures.overshoot_max,
            ),
            (
                "store_untold_tokens_max",
                "The most tokens of a synced limit that this node spent between two exchanges: the sum of all nodes bounds the \
                 overshoot",
                figures.untold_max,
            ),
        ] {
            encoder.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)?;
        }
        let help = "For how long a synced charge was untold when the store had it: the last one";
        encoder
            .encode_descriptor("store_sync_lag", help, Some(&Unit::Seconds), MetricType::Gauge)?
            .encode_gauge(&figures.sync_lag.as_secs_f64())?;
        for (name, help, count) in [
            ("store_breaker_opened", "How often the store was left alone, since it did not answer", figures.opened),
            ("store_requests", "Scripts that were sent to the store", figures.asked),
            ("store_errors", "Those without an answer", figures.failed),
            (
                "store_overshoots",
                "How often the store had more used of a synced limit than there is",
                figures.overshoots,
            ),
        ] {
            ConstCounter::new(count).encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)?;
        }
        let codes = StoreFault::ALL.map(|fault| [("code", fault.code())]);
        let help = "Errors of the store by fault, those of probes included";
        counters(&mut encoder, "store_fault_errors", help, codes.into_iter().zip(figures.fault_counts))?;
        let help = "1 while the store has this fault, as this node meets it; docs/store.md says what to do";
        let mut family = encoder.encode_descriptor("store_fault", help, None, MetricType::Gauge)?;
        for (code, fault) in codes.iter().zip(StoreFault::ALL) {
            let is_there = figures.faults.iter().any(|report| report.code == fault);
            family.encode_family(code)?.encode_gauge(&u64::from(is_there))?;
        }
        let buckets: Vec<_> = figures
            .waits
            .buckets()
            .map(|(bound, count)| (bound.map_or(f64::INFINITY, |bound| bound.as_secs_f64()), count))
            .collect();
        let help = "For how long checks waited for the store, of those that did";
        encoder
            .encode_descriptor("store_wait", help, Some(&Unit::Seconds), MetricType::Histogram)?
            .encode_histogram::<NoLabelSet>(figures.waits.sum.as_secs_f64(), figures.waits.total(), &buckets, None)?;
        let took = ConstCounter::new(figures.took.as_secs_f64());
        let help = "What the answers of the store took, in all";
        took.encode(encoder.encode_descriptor("store", help, Some(&Unit::Seconds), MetricType::Counter)?)
    }
}

/// The collector of how full the body budget is, and of what it refused.
#[derive(Debug)]
struct BodyBudgetCollector(Arc<BodyBudget>);

impl Collector for BodyBudgetCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Bytes of the body budget that are taken: by bodies and commands above 16 KiB that are not whole, and by \
                    long answers that are not read";
        let taken = self.0.taken() as u64;
        encoder.encode_descriptor("body_budget_bytes", help, None, MetricType::Gauge)?.encode_gauge(&taken)?;
        let help = "Bodies, commands and answers that had no part of the body budget, or had it no longer, by reason";
        let refused = self.0.refused().map(|(reason, count)| ([("reason", reason)], count));
        counters(&mut encoder, "refused_bodies", help, refused)
    }
}

/// Writes one metric with labels: a counter for each set of them.
pub(crate) fn counters<L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    counts: impl IntoIterator<Item = (L, u64)>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (labels, count) in counts {
        ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}
