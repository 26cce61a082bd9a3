//! Observes a sample of decisions for what the counters do not have: the heaviest keys, latencies, and decisions made
//! without a store.

use std::{
    mem,
    num::NonZeroU32,
    sync::{Mutex, MutexGuard, PoisonError, TryLockError},
    time::Duration,
};

use tidegate::{
    HeavyHitters, Observed, Observer,
    clock::{Clock, SystemClock},
};

use crate::counts::latency::LatencyHistogram;

/// One decision in so many is sampled.
pub const SAMPLED_ONE_IN: NonZeroU32 = NonZeroU32::new(16).unwrap();
/// The keys in each of the two sketches; a key takes about 1,100 bytes.
pub const SKETCH_ENTRIES: usize = 256;
/// The time in which the count of a heavy key halves.
pub const HITTER_HALF_LIFE: Duration = Duration::from_mins(10);

/// An observer that samples decisions for the metrics. It skips a decision while another thread is observing one, so no
/// check waits.
#[derive(Debug)]
pub struct Sampler<A = ()> {
    /// The heaviest keys.
    pub hitters: HeavyHitters,
    clock: SystemClock,
    sample: Mutex<Sample<A>>,
}

/// The sample of one interval.
#[derive(Debug, Default)]
pub struct Sample<A> {
    /// The latencies of decisions.
    pub latency: LatencyHistogram,
    /// Decisions without the store, each counted for all the decisions that it stands for.
    pub degraded: u64,
    /// The further counts.
    pub extension: A,
}

/// Further counts that a [`Sampler`] keeps of the decisions that it samples. Adding a decision must not allocate.
pub trait SampleExtension: Default + Send + 'static {
    /// Counts a decision.
    fn add(&mut self, observed: &Observed<'_>);
}

impl SampleExtension for () {
    fn add(&mut self, _observed: &Observed<'_>) {}
}

impl<A: SampleExtension> Sampler<A> {
    /// Makes a sampler; `clock` is the engine's clock.
    #[must_use]
    pub fn new(clock: SystemClock) -> Self {
        Self { hitters: HeavyHitters::new(SKETCH_ENTRIES, HITTER_HALF_LIFE), clock, sample: Mutex::default() }
    }

    /// Takes the sample since the last call.
    pub fn take(&self) -> Sample<A> {
        let next = Sample::default();
        loop {
            // A lock that waits in the kernel would make a check wake this thread.
            if let Some(mut sample) = self.try_lock() {
                return mem::replace(&mut *sample, next);
            }
            std::thread::yield_now();
        }
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, Sample<A>>> {
        match self.sample.try_lock() {
            Ok(sample) => Some(sample),
            // No holder of the lock panics.
            Err(TryLockError::Poisoned(poisoned)) => Some(PoisonError::into_inner(poisoned)),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl<A: SampleExtension> Observer for Sampler<A> {
    fn observe(&self, observed: &Observed<'_>) {
        // The engine read its clock when the decision began.
        let took_ns = self.clock.now().as_nanos().saturating_sub(observed.at().as_nanos());
        if let Some(mut sample) = self.try_lock() {
            sample.latency.count(took_ns);
            if observed.decision().degraded().is_some() {
                sample.degraded += u64::from(observed.one_in().get());
            }
            sample.extension.add(observed);
        }
        self.hitters.observe(observed);
    }
}
