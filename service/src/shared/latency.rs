//! Counts responses by route: their statuses, and a histogram of their latencies. Each worker counts for itself; a
//! scrape adds the counts up.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet},
    metrics::{MetricType, counter::ConstCounter},
    registry::Unit,
};

/// The upper bounds of the histogram's buckets, in nanoseconds.
const ENDS_NS: [u64; 14] = [
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    500_000_000,
    1_000_000_000,
];

/// The description of a listener in metrics.
#[derive(Debug)]
pub(crate) struct ListenerKind {
    pub(crate) name: &'static str,
    pub(crate) routes: &'static [&'static str],
    /// The routes that decide one check, whose latencies and errors show the server's health.
    pub(crate) deciding: &'static [&'static str],
    /// Every status of its responses, by number and name.
    pub(crate) statuses: &'static [(u16, &'static str)],
}

#[derive(Debug)]
pub(crate) struct WorkerLatencies {
    kind: &'static ListenerKind,
    /// The counts of each route, in the order of the kind's routes.
    routes: Box<[RouteCounts]>,
}

#[derive(Debug)]
struct RouteCounts {
    /// Responses by bucket; the last bucket has no upper bound.
    responses: [AtomicU64; ENDS_NS.len() + 1],
    sum_ns: AtomicU64,
    /// Responses by status, in the order of the kind's statuses.
    statuses: Box<[AtomicU64]>,
}

impl WorkerLatencies {
    /// Counts a response to this route, with this status and latency.
    pub(crate) fn count(&self, route: &'static str, status: u16, ns: u64) {
        self.count_many(route, status, ns, 1);
    }

    /// Counts several responses to this route, each with this status and latency.
    pub(crate) fn count_many(&self, route: &'static str, status: u16, ns: u64, responses: u64) {
        let place = self.kind.routes.iter().position(|name| *name == route);
        if let Some(counts) = place.and_then(|place| self.routes.get(place)) {
            let bucket = ENDS_NS.partition_point(|&end| end < ns);
            counts.responses[bucket].fetch_add(responses, Ordering::Relaxed);
            counts.sum_ns.fetch_add(ns.saturating_mul(responses), Ordering::Relaxed);
            if let Some(place) = self.kind.statuses.iter().position(|(known, _)| *known == status) {
                counts.statuses[place].fetch_add(responses, Ordering::Relaxed);
            }
        }
    }
}

/// The counts of all workers of a listener.
#[derive(Clone, Debug)]
pub(crate) struct ListenerLatencies {
    pub(crate) kind: &'static ListenerKind,
    workers: Arc<Mutex<Vec<Arc<WorkerLatencies>>>>,
}

/// The counts of one route, summed over all workers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RouteTotals {
    responses: [u64; ENDS_NS.len() + 1],
    pub(crate) ns: u64,
    statuses: Vec<u64>,
}

impl RouteTotals {
    pub(crate) fn responses(&self) -> u64 {
        self.responses.iter().sum()
    }
}

impl ListenerLatencies {
    pub(crate) fn new(kind: &'static ListenerKind) -> Self {
        Self { kind, workers: Arc::default() }
    }

    pub(crate) fn worker(&self) -> Arc<WorkerLatencies> {
        let counts = |_| RouteCounts {
            responses: Default::default(),
            sum_ns: AtomicU64::default(),
            statuses: self.kind.statuses.iter().map(|_| AtomicU64::default()).collect(),
        };
        let latencies =
            Arc::new(WorkerLatencies { kind: self.kind, routes: self.kind.routes.iter().map(counts).collect() });
        self.workers.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&latencies));
        latencies
    }

    /// Returns how many responses there were to routes that decide one check, and the sum of their latencies in nanoseconds.
    pub(crate) fn deciding(&self) -> (u64, u64) {
        let places = (0..self.kind.routes.len()).filter(|&place| self.kind.deciding.contains(&self.kind.routes[place]));
        let totals = places.map(|place| self.total(place));
        totals.fold((0, 0), |(responses, ns), total| (responses + total.responses(), ns + total.ns))
    }

    /// Returns how many responses with these statuses there were to these routes.
    pub(crate) fn count(&self, routes: &[&str], statuses: &[u16]) -> u64 {
        let places = (0..self.kind.routes.len()).filter(|&place| routes.contains(&self.kind.routes[place]));
        let counts = places.flat_map(|place| self.kind.statuses.iter().zip(self.total(place).statuses));
        counts.filter(|((status, _), _)| statuses.contains(status)).map(|(_, count)| count).sum()
    }

    /// Returns the counts of the route at this place since the start.
    fn total(&self, place: usize) -> RouteTotals {
        let mut total = RouteTotals {
            responses: [0; ENDS_NS.len() + 1],
            ns: 0,
            statuses: self.kind.statuses.iter().map(|_| 0).collect(),
        };
        for worker in self.workers.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let counts = &worker.routes[place];
            for (all, one) in total.responses.iter_mut().zip(&counts.responses) {
                *all += one.load(Ordering::Relaxed);
            }
            total.ns += counts.sum_ns.load(Ordering::Relaxed);
            for (all, one) in total.statuses.iter_mut().zip(&counts.statuses) {
                *all += one.load(Ordering::Relaxed);
            }
        }
        total
    }

    fn totals(&self) -> impl Iterator<Item = (&'static str, RouteTotals)> {
        self.kind.routes.iter().enumerate().map(|(place, route)| (*route, self.total(place)))
    }
}

#[derive(Debug)]
pub(crate) struct LatencyCollector(pub(crate) Vec<ListenerLatencies>);

impl Collector for LatencyCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Requests by listener, route and status";
        let mut family = encoder.encode_descriptor("requests", help, None, MetricType::Counter)?;
        for listener in &self.0 {
            for (route, total) in listener.totals() {
                for ((_, status), count) in
                    listener.kind.statuses.iter().zip(total.statuses).filter(|(_, count)| *count > 0)
                {
                    let labels = [("door", listener.kind.name), ("route", route), ("status", *status)];
                    ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
                }
            }
        }
        let help = "Time from a request, with its body, to its answer";
        let unit = Some(&Unit::Seconds);
        let mut family = encoder.encode_descriptor("request_duration", help, unit, MetricType::Histogram)?;
        for listener in &self.0 {
            for (route, total) in listener.totals() {
                let ends = ENDS_NS.iter().map(|ns| *ns as f64 / 1e9).chain([f64::INFINITY]);
                let buckets: Vec<(f64, u64)> = ends.zip(total.responses).collect();
                let labels = [("door", listener.kind.name), ("route", route)];
                family.encode_family(&labels)?.encode_histogram::<NoLabelSet>(
                    total.ns as f64 / 1e9,
                    total.responses(),
                    &buckets,
                    None,
                )?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: ListenerKind = ListenerKind {
        name: "http",
        routes: &["/a", "/b"],
        deciding: &["/a"],
        statuses: &[(200, "200"), (400, "400")],
    };

    #[test]
    fn the_counts_of_workers_are_added_up_bucket_by_bucket() {
        let listener = ListenerLatencies::new(&KIND);
        let (one, other) = (listener.worker(), listener.worker());
        for (worker, ns) in [(&one, 25_000), (&one, 25_001), (&other, 25_001), (&other, 2_000_000_000)] {
            worker.count("/a", 200, ns);
        }
        one.count("/none", 200, 1);
        one.count("/b", 400, 7);
        let (a, b) = (listener.total(0), listener.total(1));
        assert_eq!((a.responses[0], a.responses[1], a.responses[ENDS_NS.len()]), (1, 2, 1));
        assert_eq!((a.responses(), a.ns, a.statuses), (4, 2_000_075_002, vec![4, 0]));
        assert_eq!((b.responses(), b.ns, b.statuses), (1, 7, vec![0, 1]));
        assert_eq!(listener.deciding(), (4, 2_000_075_002));
        let count = |statuses| listener.count(&["/a", "/b"], statuses);
        assert_eq!((count(&[200, 400]), count(&[400]), listener.count(&["/b"], &[200])), (5, 1, 0));
    }
}
