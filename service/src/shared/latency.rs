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

/// A door, as metrics know it.
#[derive(Debug)]
pub(crate) struct DoorKind {
    pub(crate) name: &'static str,
    pub(crate) routes: &'static [&'static str],
    /// Routes of one decision, whose answers tell how well the server is.
    pub(crate) deciding: &'static [&'static str],
    /// Every status that it answers, by number and name.
    pub(crate) statuses: &'static [(u16, &'static str)],
}

/// Those of one worker.
#[derive(Debug)]
pub(crate) struct Latencies {
    kind: &'static DoorKind,
    /// By place of the route.
    routes: Box<[Counts]>,
}

#[derive(Debug)]
struct Counts {
    /// By bucket; the last has what is above all ends.
    answers: [AtomicU64; ENDS_NS.len() + 1],
    sum_ns: AtomicU64,
    /// By place of the status.
    statuses: Box<[AtomicU64]>,
}

impl Latencies {
    /// An answer of this status, to this route, is ready after so many nanoseconds.
    pub(crate) fn answered(&self, route: &'static str, status: u16, ns: u64) {
        self.answered_alike(route, status, ns, 1);
    }

    /// The same of so many answers, each of which took as long.
    pub(crate) fn answered_alike(&self, route: &'static str, status: u16, ns: u64, answers: u64) {
        let place = self.kind.routes.iter().position(|name| *name == route);
        if let Some(counts) = place.and_then(|place| self.routes.get(place)) {
            let bucket = ENDS_NS.partition_point(|&end| end < ns);
            counts.answers[bucket].fetch_add(answers, Ordering::Relaxed);
            counts.sum_ns.fetch_add(ns.saturating_mul(answers), Ordering::Relaxed);
            if let Some(place) = self.kind.statuses.iter().position(|(known, _)| *known == status) {
                counts.statuses[place].fetch_add(answers, Ordering::Relaxed);
            }
        }
    }
}

/// Those of all workers of a door.
#[derive(Clone, Debug)]
pub(crate) struct DoorLatencies {
    kind: &'static DoorKind,
    workers: Arc<Mutex<Vec<Arc<Latencies>>>>,
}

/// Of one route.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Sum {
    answers: [u64; ENDS_NS.len() + 1],
    pub(crate) ns: u64,
    /// By place of the status.
    statuses: Vec<u64>,
}

impl Sum {
    pub(crate) fn answers(&self) -> u64 {
        self.answers.iter().sum()
    }
}

impl DoorLatencies {
    pub(crate) fn new(kind: &'static DoorKind) -> Self {
        Self { kind, workers: Arc::default() }
    }

    /// For one more worker.
    pub(crate) fn worker(&self) -> Arc<Latencies> {
        let counts = |_| Counts {
            answers: Default::default(),
            sum_ns: AtomicU64::default(),
            statuses: self.kind.statuses.iter().map(|_| AtomicU64::default()).collect(),
        };
        let latencies = Arc::new(Latencies { kind: self.kind, routes: self.kind.routes.iter().map(counts).collect() });
        self.workers.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&latencies));
        latencies
    }

    /// The answers that tell how well the server is: how many, and the nanoseconds that they took.
    pub(crate) fn deciding(&self) -> (u64, u64) {
        let places = (0..self.kind.routes.len()).filter(|&place| self.kind.deciding.contains(&self.kind.routes[place]));
        let sums = places.map(|place| self.sum(place));
        sums.fold((0, 0), |(answers, ns), sum| (answers + sum.answers(), ns + sum.ns))
    }

    /// How many answers of these statuses there were to these routes.
    pub(crate) fn count(&self, routes: &[&str], statuses: &[u16]) -> u64 {
        let places = (0..self.kind.routes.len()).filter(|&place| routes.contains(&self.kind.routes[place]));
        let sums = places.flat_map(|place| self.kind.statuses.iter().zip(self.sum(place).statuses));
        sums.filter(|((status, _), _)| statuses.contains(status)).map(|(_, count)| count).sum()
    }

    /// All answers since the start to the route at this place.
    fn sum(&self, place: usize) -> Sum {
        let mut sum =
            Sum { answers: [0; ENDS_NS.len() + 1], ns: 0, statuses: self.kind.statuses.iter().map(|_| 0).collect() };
        for worker in self.workers.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let counts = &worker.routes[place];
            for (all, one) in sum.answers.iter_mut().zip(&counts.answers) {
                *all += one.load(Ordering::Relaxed);
            }
            sum.ns += counts.sum_ns.load(Ordering::Relaxed);
            for (all, one) in sum.statuses.iter_mut().zip(&counts.statuses) {
                *all += one.load(Ordering::Relaxed);
            }
        }
        sum
    }

    /// Each route, and its answers.
    fn sums(&self) -> impl Iterator<Item = (&'static str, Sum)> {
        self.kind.routes.iter().enumerate().map(|(place, route)| (*route, self.sum(place)))
    }
}

/// Those of all doors, as they are written.
#[derive(Debug)]
pub(crate) struct AllLatencies(pub(crate) Vec<DoorLatencies>);

impl Collector for AllLatencies {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Requests by door, route and status";
        let mut family = encoder.encode_descriptor("requests", help, None, MetricType::Counter)?;
        for door in &self.0 {
            for (route, sum) in door.sums() {
                for ((_, status), count) in door.kind.statuses.iter().zip(sum.statuses).filter(|(_, count)| *count > 0)
                {
                    let labels = [("door", door.kind.name), ("route", route), ("status", *status)];
                    ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
                }
            }
        }
        let help = "Time from a request, with its body, to its answer";
        let unit = Some(&Unit::Seconds);
        let mut family = encoder.encode_descriptor("request_duration", help, unit, MetricType::Histogram)?;
        for door in &self.0 {
            for (route, sum) in door.sums() {
                let ends = ENDS_NS.iter().map(|ns| *ns as f64 / 1e9).chain([f64::INFINITY]);
                let buckets: Vec<(f64, u64)> = ends.zip(sum.answers).collect();
                let labels = [("door", door.kind.name), ("route", route)];
                family.encode_family(&labels)?.encode_histogram::<NoLabelSet>(
                    sum.ns as f64 / 1e9,
                    sum.answers(),
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

    const KIND: DoorKind =
        DoorKind { name: "http", routes: &["/a", "/b"], deciding: &["/a"], statuses: &[(200, "200"), (400, "400")] };

    #[test]
    fn workers_are_added_up_bucket_by_bucket() {
        let door = DoorLatencies::new(&KIND);
        let (one, other) = (door.worker(), door.worker());
        for (worker, ns) in [(&one, 25_000), (&one, 25_001), (&other, 25_001), (&other, 2_000_000_000)] {
            worker.answered("/a", 200, ns);
        }
        one.answered("/none", 200, 1);
        one.answered("/b", 400, 7);
        let (a, b) = (door.sum(0), door.sum(1));
        assert_eq!((a.answers[0], a.answers[1], a.answers[ENDS_NS.len()]), (1, 2, 1));
        assert_eq!((a.answers(), a.ns, a.statuses), (4, 2_000_075_002, vec![4, 0]));
        assert_eq!((b.answers(), b.ns, b.statuses), (1, 7, vec![0, 1]));
        assert_eq!(door.deciding(), (4, 2_000_075_002));
        let count = |statuses| door.count(&["/a", "/b"], statuses);
        assert_eq!((count(&[200, 400]), count(&[400]), door.count(&["/b"], &[200])), (5, 1, 0));
    }
}
