//! How long the database takes, and how often it fails.

use std::time::Duration;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::{Family, MetricConstructor},
        histogram::Histogram,
    },
};

/// Upper bounds of what the store takes, in seconds.
const STORE_SECONDS: [f64; 8] = [0.000_1, 0.000_5, 0.002_5, 0.01, 0.05, 0.25, 1.0, 5.0];

/// What the store is asked for.
#[derive(Debug)]
pub(crate) struct Meter {
    pub(crate) seconds: Family<Operation, Histogram, Buckets>,
    pub(crate) errors: Family<Operation, Counter>,
}

/// Something that the store does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asking {
    /// Waiting for one's turn to change something.
    Begin,
    /// Bringing a change to the disk.
    Commit,
    /// Reading a session: what every call begins with.
    Session,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
pub(crate) struct Operation {
    operation: &'static str,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Buckets;

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(STORE_SECONDS)
    }
}

impl Default for Meter {
    fn default() -> Self {
        Self { seconds: Family::new_with_constructor(Buckets), errors: Family::default() }
    }
}

impl Meter {
    pub(crate) fn took(&self, asking: Asking, took: Duration, is_well: bool) {
        let operation = match asking {
            Asking::Begin => "begin",
            Asking::Commit => "commit",
            Asking::Session => "session",
        };
        let operation = Operation { operation };
        self.seconds.get_or_create(&operation).observe(took.as_secs_f64());
        if !is_well {
            self.errors.get_or_create(&operation).inc();
        }
    }
}
