//! Observes a sample of decisions for what counters do not tell: the identities behind the counts, latencies, and
//! decisions made without a store.

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

use crate::counts::latency::Latency;

/// One decision in so many is looked at.
pub const ONE_IN: NonZeroU32 = NonZeroU32::new(16).unwrap();
/// Keys in each of the two sketches, of about 1,100 bytes each.
pub const ENTRIES: usize = 256;
/// Hitters fade by half in this time.
pub const HALF_LIFE: Duration = Duration::from_mins(10);

/// Sees decisions for the figures. A decision that comes while another thread is at it is overlooked, so no check waits.
#[derive(Debug)]
pub struct Sampler<A = ()> {
    /// The heaviest keys.
    pub hitters: HeavyHitters,
    clock: SystemClock,
    sample: Mutex<Sample<A>>,
}

/// What was seen since somebody looked last.
#[derive(Debug, Default)]
pub struct Sample<A> {
    /// How long decisions took.
    pub latency: Latency,
    /// Decided without the store, each counted for all that it stands for.
    pub degraded: u64,
    /// What else was to be seen.
    pub also: A,
}

/// Further counts that a [`Sampler`] keeps of the decisions that it sees. It must not allocate when it is shown one.
pub trait SampleExtension: Default + Send + 'static {
    /// Takes a decision in.
    fn add(&mut self, observed: &Observed<'_>);
}

impl SampleExtension for () {
    fn add(&mut self, _observed: &Observed<'_>) {}
}

impl<A: SampleExtension> Sampler<A> {
    /// `clock`: that of the engine.
    #[must_use]
    pub fn new(clock: SystemClock) -> Self {
        Self { hitters: HeavyHitters::new(ENTRIES, HALF_LIFE), clock, sample: Mutex::default() }
    }

    /// What was seen since the last call.
    pub fn take(&self) -> Sample<A> {
        let mut next = Sample::default();
        loop {
            // Without waiting in the kernel, out of which a check would have to wake this thread.
            match self.try_lock() {
                Some(mut sample) => {
                    mem::swap(&mut *sample, &mut next);
                    return next;
                }
                None => std::thread::yield_now(),
            }
        }
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, Sample<A>>> {
        match self.sample.try_lock() {
            Ok(sample) => Some(sample),
            // Nothing in here panics.
            Err(TryLockError::Poisoned(poisoned)) => Some(PoisonError::into_inner(poisoned)),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl<A: SampleExtension> Observer for Sampler<A> {
    fn observe(&self, observed: &Observed<'_>) {
        // From the reading of the clock, at the beginning, until now.
        let took_ns = self.clock.now().saturating_sub(observed.at());
        if let Some(mut sample) = self.try_lock() {
            sample.latency.count(took_ns);
            if observed.decision().degraded().is_some() {
                sample.degraded += u64::from(observed.one_in().get());
            }
            sample.also.add(observed);
        }
        self.hitters.observe(observed);
    }
}
