//! What no counter tells: who is behind the figures, how long decisions take, which were made without a store, and which
//! endpoints are asked for. Seen in a sample of decisions, by one observer.

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

use super::{endpoints::Seen, latency::Latency};

/// One decision in so many is looked at.
pub(crate) const ONE_IN: NonZeroU32 = NonZeroU32::new(16).unwrap();
/// Keys in each of the two sketches, of about 1,100 bytes each.
pub(crate) const ENTRIES: usize = 256;
/// Hitters fade by half in this time.
pub(crate) const HALF_LIFE: Duration = Duration::from_mins(10);

/// Sees decisions for the figures. A decision that comes while another thread is at it is overlooked, so no check waits.
#[derive(Debug)]
pub(crate) struct Watcher {
    pub(crate) hitters: HeavyHitters,
    clock: SystemClock,
    sample: Mutex<Sample>,
}

/// What was seen since somebody looked last.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    pub(crate) latency: Latency,
    /// Decided without the store, each counted for all that it stands for.
    pub(crate) degraded: u64,
    pub(crate) seen: Seen,
}

impl Watcher {
    /// `clock`: that of the engine.
    pub(crate) fn new(clock: SystemClock) -> Self {
        Self { hitters: HeavyHitters::new(ENTRIES, HALF_LIFE), clock, sample: Mutex::default() }
    }

    /// What was seen since the last call.
    pub(crate) fn take(&self) -> Sample {
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

    fn try_lock(&self) -> Option<MutexGuard<'_, Sample>> {
        match self.sample.try_lock() {
            Ok(sample) => Some(sample),
            // Nothing in here panics.
            Err(TryLockError::Poisoned(poisoned)) => Some(PoisonError::into_inner(poisoned)),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl Observer for Watcher {
    fn observe(&self, observed: &Observed<'_>) {
        // From the reading of the clock, at the beginning, until now.
        let took_ns = self.clock.now().saturating_sub(observed.at());
        if let Some(mut sample) = self.try_lock() {
            sample.latency.count(took_ns);
            if observed.decision().degraded().is_some() {
                sample.degraded += u64::from(observed.one_in().get());
            }
            sample.seen.add(observed);
        }
        self.hitters.observe(observed);
    }
}
