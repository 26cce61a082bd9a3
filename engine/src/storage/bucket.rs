//! A bucket without a table: one atomic `u64` for one limited thing.

use crate::{
    algorithm::{Meter, Verdict},
    base::{atomic::Cell64, time::Nanos},
    storage::atomic_update::{Next, update},
};

/// One bucket in one atomic `u64`, without a table. It limits one thing, and all threads share it.
///
/// ```
/// use std::time::Duration;
/// use tidegate::{algorithm::{Meter, TokenBucket}, internals::{Bucket, Verdict}};
///
/// let meter = Meter::TokenBucket(TokenBucket::new(10, Duration::from_secs(1), 1).unwrap()); // 10 a second, one at once
/// let bucket = Bucket::new();
/// let now = 1_790_000_000_000_000_000; // nanoseconds since 1970
/// assert!(matches!(bucket.charge(&meter, now, 1), Verdict::Admit(_)));
/// assert_eq!(bucket.charge(&meter, now, 1), Verdict::Later { wait_ns: 100_000_000 });
/// ```
#[derive(Debug)]
pub struct Bucket {
    state: Cell64,
}

impl Bucket {
    /// Makes a bucket of which nothing is used.
    #[must_use]
    pub fn new() -> Self {
        Self { state: Cell64::new(0) }
    }

    /// Charges `cost` (at least 1) at time `now`, or changes nothing and says why. Every call must pass the same
    /// `meter`.
    #[inline]
    pub fn charge(&self, meter: &Meter, now: Nanos, cost: u64) -> Verdict {
        self.update(|state| write_if_admitted(meter.step(state, now, cost)))
    }

    /// Applies `transition` to the bucket's state; see [`update`].
    #[inline(always)]
    pub(crate) fn update<T>(&self, transition: impl FnMut(u64) -> Next<u64, T>) -> T {
        update(&self.state, self.state.load(), &mut 0, transition)
    }
}

/// Returns the update of a bucket that keeps the state of an admission, and changes nothing for a denial.
fn write_if_admitted(verdict: Verdict) -> Next<u64, Verdict> {
    verdict.admitted().map_or(Next::Leave(verdict), |word| Next::Write(word, verdict))
}

impl Default for Bucket {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(engine_loom)))]
mod tests {
    use std::{sync::Barrier, time::Duration};

    use tidegate_conformance::Deadline;

    use super::*;
    use crate::algorithm::TokenBucket;

    #[test]
    fn threads_that_contend_admit_exactly_the_burst() {
        const THREADS: usize = 4;
        let meter = Meter::TokenBucket(TokenBucket::new(1, Duration::from_secs(1), 1_000_000).expect("fits"));
        let (mut met, deadline) = (0, Deadline::new());
        // A round may miss all races on a machine that is busy with other things.
        while met == 0 && !deadline.has_passed() {
            let (bucket, start) = (Bucket::new(), Barrier::new(THREADS));
            let run = || {
                let (mut admitted, mut retries) = (0u64, 0u64);
                start.wait();
                for _ in 0..500_000 {
                    let charge = |state| write_if_admitted(meter.step(state, 7, 1));
                    let verdict = update(&bucket.state, bucket.state.load(), &mut retries, charge);
                    admitted += u64::from(matches!(verdict, Verdict::Admit(_)));
                }
                (admitted, retries)
            };
            let outcomes: Vec<_> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(run)).collect();
                threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
            });
            assert_eq!(outcomes.iter().map(|(admitted, _)| admitted).sum::<u64>(), 1_000_000);
            met += outcomes.iter().map(|(_, retries)| retries).sum::<u64>();
        }
        assert!(met > 0, "the threads never met: nothing was shown");
    }
}
