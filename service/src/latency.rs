//! Answers by route: their statuses, and how long they took. Each worker counts for itself, and they are added up when
//! somebody asks.

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

/// Upper ends of the buckets, in nanoseconds.
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

/// Every status that a door answers.
const STATUSES: [u16; 15] = [200, 204, 400, 401, 403, 404, 405, 408, 409, 413, 415, 429, 431, 500, 503];

/// Those of one worker.
#[derive(Debug)]
pub(crate) struct Latencies {
    routes: Box<[(&'static str, Counts)]>,
}

#[derive(Debug, Default)]
struct Counts {
    /// By bucket; the last has what is above all ends.
    answers: [AtomicU64; ENDS_NS.len() + 1],
    sum_ns: AtomicU64,
    /// By place in [`STATUSES`].
    statuses: [AtomicU64; STATUSES.len()],
}

impl Latencies {
    /// An answer of this status, to this route, is ready after so many nanoseconds.
    pub(crate) fn answered(&self, route: &'static str, status: u16, ns: u64) {
        let counts = self.routes.iter().find(|(name, _)| *name == route);
        if let Some((_, counts)) = counts {
            let bucket = ENDS_NS.partition_point(|&end| end < ns);
            counts.answers[bucket].fetch_add(1, Ordering::Relaxed);
            counts.sum_ns.fetch_add(ns, Ordering::Relaxed);
            if let Some(place) = STATUSES.iter().position(|known| *known == status) {
                counts.statuses[place].fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Those of all workers of a door.
#[derive(Clone, Debug)]
pub(crate) struct DoorLatencies {
    door: &'static str,
    routes: &'static [&'static str],
    workers: Arc<Mutex<Vec<Arc<Latencies>>>>,
}

/// Of one route.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Sum {
    answers: [u64; ENDS_NS.len() + 1],
    pub(crate) ns: u64,
    statuses: [u64; STATUSES.len()],
}

impl Sum {
    pub(crate) fn answers(&self) -> u64 {
        self.answers.iter().sum()
    }
}

impl DoorLatencies {
    pub(crate) fn new(door: &'static str, routes: &'static [&'static str]) -> Self {
        Self { door, routes, workers: Arc::default() }
    }

    /// For one more worker.
    pub(crate) fn worker(&self) -> Arc<Latencies> {
        let routes = self.routes.iter().map(|route| (*route, Counts::default())).collect();
        let latencies = Arc::new(Latencies { routes });
        self.workers.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&latencies));
        latencies
    }

    /// All answers to a route since the start.
    pub(crate) fn sum(&self, route: &str) -> Sum {
        let mut sum = Sum::default();
        for worker in self.workers.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            for (_, counts) in worker.routes.iter().filter(|(name, _)| *name == route) {
                for (all, one) in sum.answers.iter_mut().zip(&counts.answers) {
                    *all += one.load(Ordering::Relaxed);
                }
                sum.ns += counts.sum_ns.load(Ordering::Relaxed);
                for (all, one) in sum.statuses.iter_mut().zip(&counts.statuses) {
                    *all += one.load(Ordering::Relaxed);
                }
            }
        }
        sum
    }
}

impl Collector for DoorLatencies {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut family = encoder.encode_descriptor(
            "http_requests",
            "Requests over HTTP by route and status",
            None,
            MetricType::Counter,
        )?;
        for route in self.routes {
            for (status, count) in STATUSES.iter().zip(self.sum(route).statuses).filter(|(_, count)| *count > 0) {
                let labels = [("route", (*route).to_owned()), ("status", status.to_string())];
                ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
            }
        }
        let help = "Time from a request's head to its answer";
        let unit = Some(&Unit::Seconds);
        let mut family = encoder.encode_descriptor("request_duration", help, unit, MetricType::Histogram)?;
        for route in self.routes {
            let sum = self.sum(route);
            let ends = ENDS_NS.iter().map(|ns| *ns as f64 / 1e9).chain([f64::INFINITY]);
            let buckets: Vec<(f64, u64)> = ends.zip(sum.answers).collect();
            let labels = [("door", self.door), ("route", *route)];
            family.encode_family(&labels)?.encode_histogram::<NoLabelSet>(
                sum.ns as f64 / 1e9,
                sum.answers(),
                &buckets,
                None,
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_added_up_bucket_by_bucket() {
        let door = DoorLatencies::new("http", &["/a", "/b"]);
        let (one, other) = (door.worker(), door.worker());
        for (worker, ns) in [(&one, 25_000), (&one, 25_001), (&other, 25_001), (&other, 2_000_000_000)] {
            worker.answered("/a", 200, ns);
        }
        one.answered("/none", 200, 1);
        let sum = door.sum("/a");
        assert_eq!((sum.answers[0], sum.answers[1], sum.answers[ENDS_NS.len()]), (1, 2, 1));
        assert_eq!((sum.answers(), sum.ns, sum.statuses[0]), (4, 2_000_075_002, 4));
        assert_eq!(door.sum("/b"), Sum::default());
    }
}
