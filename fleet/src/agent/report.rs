//! Reports of a node to the admin server: what the engine counted, once a second.

use std::{cmp::Reverse, convert::Infallible, sync::Arc};

use tidegate::{
    Engine, Hitter, LimitIndex, ObserverId,
    clock::{Clock, SystemClock},
};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::{
    agent::{
        http_client::CallError,
        node::{Node, REPORT_EVERY, random},
        process::{ErrorCounts, resident_bytes},
        status::PolicySource,
    },
    counts::{
        counters::Counters,
        limit_owner::owner_of,
        sampler::{SAMPLED_ONE_IN, Sampler},
        totals::{DecisionTotals, LimitTotals},
    },
    store::{SharedEngine, StoreStats},
    wire::{
        self, HITTERS_MAX, HeavyKey, NodeCounts, PARTS_MAX, Process, Report, ReportedCounts, SeenIdentity, StoreReport,
        bounded_errors,
        truncate::{ROOM, json_bytes, keep_what_fits},
    },
};

/// One report of so many states the process, so that an admin server that restarts learns it soon.
const PROCESS_ONE_IN: u64 = 10;

/// A maker of the reports of one engine.
#[derive(Debug)]
pub(crate) struct Reporter {
    engine: Arc<Engine>,
    /// The store, with its statistics at the last report.
    store: Option<(Arc<SharedEngine<SystemClock>>, StoreStats)>,
    sampler: Arc<Sampler>,
    observing: ObserverId,
    counters: Counters,
    process: Process,
    errors: ErrorCounts,
    sequence: u64,
}

impl Reporter {
    /// Makes a reporter that counts from now on.
    pub(crate) fn of(
        engine: Arc<Engine>,
        store: Option<Arc<SharedEngine<SystemClock>>>,
        process: Process,
        errors: ErrorCounts,
    ) -> Self {
        let store = store.map(|store| (store, StoreStats::default()));
        let sampler = Arc::new(Sampler::new(engine.clock().clone()));
        let observing = engine.observe(SAMPLED_ONE_IN, Arc::clone(&sampler));
        let mut counters = Counters::default();
        // The reports leave out what was counted before.
        counters.count(&engine, &sampler.take());
        Self { engine, store, sampler, observing, counters, process, errors, sequence: 0 }
    }

    /// Returns the report of what was counted since the last one. The caller adds the node's name and instance.
    pub(crate) fn next(&mut self) -> Report {
        let counted = self.counters.count(&self.engine, &self.sampler.take());
        let DecisionTotals { allowed, denied, no_limit, unknown_domain, degraded, ref latency } = counted.whole;
        let name = |limit| Some(self.engine.limit_name(limit));
        let (limits, limits_left_out) = busiest(counted.busy_limits(), name);
        let (owners, owners_left_out) = busiest(counted.busy_owners(), |limit| owner_of(name(limit)?));
        let store = self.store.as_mut().map(|(store, before)| {
            let now = store.stats();
            let report = StoreReport::of(&now, before);
            *before = now;
            report
        });
        self.sequence += 1;
        let report = Report {
            sequence: self.sequence,
            at_ms: self.engine.clock().wall().as_nanos() / 1_000_000,
            policy_version: self.engine.version(),
            counts: NodeCounts { allowed, denied, no_limit, unknown_domain, degraded },
            latency: latency.buckets().map(|(bucket, count)| (bucket as u16, count)).collect(),
            limits,
            limits_left_out,
            owners,
            owners_left_out,
            fill: self.engine.fill(),
            overflow_charges: self.engine.overflow_charges(),
            keys: Some(self.engine.live_keys()),
            memory_bytes: resident_bytes(),
            store,
            errors: bounded_errors(self.errors.now()),
            process: (self.sequence % PROCESS_ONE_IN == 1).then(|| self.process.clone()),
            ..Report::default()
        };
        self.with_heavy(report)
    }

    /// Adds the heaviest keys. If not all of them fit beside the counts, the lightest are left out; denied keys take at
    /// most half of the room.
    fn with_heavy(&self, mut report: Report) -> Report {
        let mut room = ROOM.saturating_sub(json_bytes(&report));
        let mut for_denied = room / 2;
        room -= for_denied;
        report.denied = self.heavy(self.sampler.hitters.denied());
        keep_what_fits(&mut report.denied, &mut for_denied);
        room += for_denied;
        report.hot = self.heavy(self.sampler.hitters.hot());
        keep_what_fits(&mut report.hot, &mut room);
        report
    }

    fn heavy(&self, hitters: Vec<Hitter>) -> Vec<HeavyKey> {
        let key = |hitter: Hitter| HeavyKey {
            limit_id: self.engine.limit_name(hitter.limit).to_owned(),
            identities: hitter.identities.into_iter().map(|(kind, value)| SeenIdentity::new(kind, &value)).collect(),
            count: hitter.count,
            error: hitter.error,
        };
        hitters.into_iter().take(HITTERS_MAX).map(key).collect()
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        self.engine.stop_observing(self.observing);
    }
}

/// Returns the entries with the most requests, by name, and how many others there are.
fn busiest<'n>(
    mut parts: Vec<(LimitIndex, LimitTotals)>,
    name: impl Fn(LimitIndex) -> Option<&'n str>,
) -> (Vec<ReportedCounts>, u64) {
    let left_out = parts.len().saturating_sub(PARTS_MAX);
    parts.sort_by_key(|(_, part)| Reverse(part.requests()));
    parts.truncate(PARTS_MAX);
    let counts = parts.into_iter().filter_map(|(limit, part)| {
        let LimitTotals { allowed, denied, shadow_denied } = part;
        Some(ReportedCounts { id: name(limit)?.to_owned(), allowed, denied, shadow_denied })
    });
    (counts.collect(), left_out as u64)
}

impl Node {
    /// Sends reports without end.
    pub(crate) async fn report(self: Arc<Self>) -> Infallible {
        let mut reporter =
            Reporter::of(Arc::clone(&self.engine), self.store.clone(), self.process.clone(), self.errors.clone());
        // A random phase keeps nodes that started together from reporting together.
        let first = Instant::now() + REPORT_EVERY.mul_f64(random() as f64 / u64::MAX as f64);
        let mut ticks = interval_at(first, REPORT_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut pending = None;
        loop {
            ticks.tick().await;
            let status = self.status.borrow().clone();
            if !status.is_connected {
                continue;
            }
            let report = pending.take().unwrap_or_else(|| {
                let mut report = reporter.next();
                report.name.clone_from(&self.name);
                report.instance.clone_from(&self.instance);
                report.from_last_good = status.source == Some(PolicySource::LastGood);
                report
            });
            match self.client.post(wire::REPORTS, &report).await {
                Ok(()) => {}
                // Sending it again would not help.
                Err(CallError::Refused { status: 400 | 413 | 422, code, why }) => {
                    tracing::warn!(code, why, "a report was refused");
                }
                Err(error) => {
                    tracing::debug!(%error, "a report did not arrive");
                    pending = Some(report);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tidegate::{Identity, Request, Snapshot};

    use super::*;
    use crate::wire::BODY_BYTES_MAX;

    /// The counts of 1,000 limits and tiers with the longest names fit, and the heaviest keys have the longest values.
    #[test]
    fn a_report_with_the_longest_names_and_keys_fits_with_all_its_counts() {
        let long = |letter: char, number: usize| format!("{}{number:04}", String::from(letter).repeat(60));
        let domain = long('d', 0);
        // Each character takes six bytes in JSON.
        let value = |number: usize| format!("{number:04}{}", "\u{1}".repeat(1_020));
        let limit = json!({ "id": long('l', 0), "algorithm": "token_bucket", "limit": 10, "period": "1h" });
        let tiers: Vec<_> = (0..PARTS_MAX).map(|tier| json!({ "id": long('t', tier), "limits": [limit] })).collect();
        let clients: Vec<_> = (0..HITTERS_MAX)
            .map(|client| json!({ "kind": "user", "value": value(client), "tier": long('t', 0), "override": { "limits": [limit] } }))
            .chain(
                (0..PARTS_MAX).map(|tier| json!({ "kind": "team", "value": tier.to_string(), "tier": long('t', tier) })),
            )
            .collect();
        let policy = json!({ "domains": { &domain: { "tiers": tiers, "clients": clients } } });
        let engine = Arc::new(Engine::with_max_keys(10_000));
        let policy = serde_json::from_value(policy).expect("a policy");
        engine.publish(Snapshot::compile(&policy).expect("valid")).expect("it fits");
        let mut reporter = Reporter::of(Arc::clone(&engine), None, Process::default(), ErrorCounts::default());
        let check = |kind: &str, value: &str| {
            let who = [Identity::new(kind, value).expect("valid")];
            let _ = engine.check(&Request::new(&who).expect("valid").domain(&domain));
        };
        for round in 0..1_000 {
            (0..HITTERS_MAX).for_each(|client| check("user", &value(client)));
            check("team", &(round % PARTS_MAX).to_string());
        }
        let report = Report { name: "n".repeat(64), instance: "i".repeat(64), ..reporter.next() };
        let bytes = serde_json::to_vec(&report).expect("JSON").len();
        assert!(bytes <= BODY_BYTES_MAX, "{bytes}");
        assert!(bytes > BODY_BYTES_MAX * 9 / 10, "the report uses its room: {bytes}");
        assert_eq!(report.counts.allowed + report.counts.denied, 1_000 * (1 + HITTERS_MAX as u64));
        assert_eq!((report.limits.len(), report.owners.len()), (PARTS_MAX, PARTS_MAX));
        assert_eq!((report.limits_left_out, report.owners_left_out), (0, 0));
        for list in [&report.denied, &report.hot] {
            assert!((5..HITTERS_MAX).contains(&list.len()), "{}", list.len());
            assert!(list.is_sorted_by(|one, next| one.count >= next.count));
        }
    }

    #[test]
    fn reports_add_up_to_what_was_counted() {
        let engine = Arc::new(Engine::with_max_keys(1_000));
        let policy = serde_json::from_str(
            r#"{"domains": {"default": {"defaults": {"user": "free"}, "tiers": [
                {"id": "free", "limits": [
                    {"id": "hour", "algorithm": "fixed_window", "limit": 3, "period": "1h"},
                    {"id": "day", "algorithm": "fixed_window", "limit": 30, "period": "1d"}
                ]}
            ]}}}"#,
        );
        engine.publish(Snapshot::compile(&policy.expect("JSON")).expect("valid")).expect("it fits");
        let mut reporter = Reporter::of(Arc::clone(&engine), None, Process::default(), ErrorCounts::default());
        let mut sum = (0, 0);
        for second in 0..5u64 {
            for _ in 0..second {
                let who = [Identity::new("user", "ada").expect("valid")];
                let _ = engine.check(&Request::new(&who).expect("valid"));
            }
            let report = reporter.next();
            assert_eq!((report.sequence, report.policy_version), (second + 1, 1));
            let counts = (report.counts.allowed, report.counts.denied);
            // Each limit counts a request, and the tier counts it once.
            let ids = report.limits.iter().map(|limit| limit.id.as_str());
            assert_eq!(ids.filter(|id| id.ends_with("hour")).count(), usize::from(second > 0));
            let sums = |parts: &[ReportedCounts]| {
                parts.iter().fold((0, 0), |(allowed, denied), part| (allowed + part.allowed, denied + part.denied))
            };
            assert_eq!(sums(&report.limits), (2 * counts.0, counts.1));
            assert_eq!(sums(&report.owners), counts);
            assert!(report.owners.iter().all(|owner| owner.id == "default/tier:free"));
            sum = (sum.0 + counts.0, sum.1 + counts.1);
        }
        assert_eq!(sum, (3, 7));
        drop(reporter);
        assert!(format!("{engine:?}").contains("observers: 0"), "{engine:?}");
    }

    #[test]
    fn a_report_has_the_state_of_the_process_and_every_tenth_its_settings() {
        let engine = Arc::new(Engine::with_max_keys(1_000));
        let process = Process { max_keys: Some(1_000), commit: Some("abc".to_owned()), ..Process::default() };
        let errors = ErrorCounts::of(|| [("overload", 3)].into());
        let mut reporter = Reporter::of(engine, None, process.clone(), errors);
        let reports: Vec<Report> = (0..21).map(|_| reporter.next()).collect();
        let with: Vec<u64> =
            reports.iter().filter(|report| report.process.is_some()).map(|report| report.sequence).collect();
        assert_eq!((with, reports[0].process.as_ref()), (vec![1, 11, 21], Some(&process)));
        assert!(reports.iter().all(|report| report.errors[0].count == 3 && report.keys == Some(0)));
        assert_eq!(reports[0].memory_bytes.is_some(), cfg!(target_os = "linux"));
    }
}
