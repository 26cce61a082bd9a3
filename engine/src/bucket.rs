//! The one compare-and-swap loop, and the bucket that stands alone.

use crate::{
    algorithm::{Meter, Verdict},
    base::{
        atomic::{Cell64, Cell128},
        time::Nanos,
    },
    word::Slot,
};

/// What a transition wants.
#[derive(Debug)]
pub(crate) enum Next<V, T> {
    /// Store `V`, then answer.
    Write(V, T),
    /// Leave everything as it is, and answer.
    Leave(T),
}

/// A cell that the loop can drive.
pub(crate) trait Swap {
    type Value: Copy;
    fn load(&self) -> Self::Value;
    fn swap(&self, current: Self::Value, new: Self::Value) -> Result<(), Self::Value>;
}

impl Swap for Cell64 {
    type Value = u64;

    fn load(&self) -> u64 {
        self.load()
    }

    fn swap(&self, current: u64, new: u64) -> Result<(), u64> {
        self.compare_exchange(current, new).map(drop)
    }
}

impl Swap for Cell128 {
    type Value = Slot;

    fn load(&self) -> Slot {
        Slot::from_bits(self.load())
    }

    fn swap(&self, current: Slot, new: Slot) -> Result<(), Slot> {
        self.compare_exchange(current.to_bits(), new.to_bits()).map(drop).map_err(Slot::from_bits)
    }
}

/// Applies `transition` to what `cell` holds, beginning with `seen`, until it stands. Counts lost races in `retries`.
///
/// `transition` is called again with the newer value after every lost race, so it must be a pure function of it.
#[inline(always)]
pub(crate) fn update<C: Swap, T>(
    cell: &C,
    mut seen: C::Value,
    retries: &mut u64,
    mut transition: impl FnMut(C::Value) -> Next<C::Value, T>,
) -> T {
    loop {
        match transition(seen) {
            Next::Leave(answer) => return answer,
            Next::Write(new, answer) => match cell.swap(seen, new) {
                Ok(()) => return answer,
                Err(newer) => {
                    *retries += 1;
                    seen = newer;
                }
            },
        }
    }
}

/// One bucket in one atomic `u64`, without a table: a limiter for one thing, shared by all threads.
///
/// ```
/// use tidegate::{Bucket, algorithm::{Meter, TokenBucket, Verdict}};
///
/// let meter = Meter::TokenBucket(TokenBucket::new(10, 1_000_000_000, 1).unwrap()); // 10 a second, one at once
/// let bucket = Bucket::new();
/// let now = 1_790_000_000_000_000_000; // nanoseconds since 1970
/// assert!(matches!(bucket.charge(&meter, now, 1), Verdict::Admit(_)));
/// assert_eq!(bucket.charge(&meter, now, 1), Verdict::Later { wait_ns: 100_000_000 });
/// ```
#[derive(Debug)]
pub struct Bucket {
    word: Cell64,
}

impl Bucket {
    /// A bucket of which nothing is used.
    #[must_use]
    pub fn new() -> Self {
        Self { word: Cell64::new(0) }
    }

    /// Charges `cost` (at least 1) at time `now`, or changes nothing and says why not. Always with the same `meter`.
    #[inline]
    pub fn charge(&self, meter: &Meter, now: Nanos, cost: u64) -> Verdict {
        self.charge_counting(meter, now, cost, &mut 0)
    }

    pub(crate) fn charge_counting(&self, meter: &Meter, now: Nanos, cost: u64, retries: &mut u64) -> Verdict {
        update(&self.word, self.word.load(), retries, |word| match meter.step(word, now, cost) {
            Verdict::Admit(new) => Next::Write(new, Verdict::Admit(new)),
            refused => Next::Leave(refused),
        })
    }

    /// Applies `transition` to the word; see [`update`].
    #[inline(always)]
    pub(crate) fn update<T>(&self, transition: impl FnMut(u64) -> Next<u64, T>) -> T {
        update(&self.word, self.word.load(), &mut 0, transition)
    }
}

impl Default for Bucket {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(engine_loom)))]
mod tests {
    use std::sync::Barrier;

    use tidegate_conformance::Deadline;

    use super::*;
    use crate::algorithm::TokenBucket;

    #[test]
    fn threads_that_contend_admit_exactly_the_burst() {
        const THREADS: usize = 4;
        let meter = Meter::TokenBucket(TokenBucket::new(1, 1_000_000_000, 1_000_000).expect("fits"));
        let (mut met, deadline) = (0, Deadline::new());
        // A round may miss all races on a machine that is busy with other things.
        while met == 0 && !deadline.has_passed() {
            let (bucket, start) = (Bucket::new(), Barrier::new(THREADS));
            let run = || {
                let (mut admitted, mut retries) = (0u64, 0u64);
                start.wait();
                for _ in 0..500_000 {
                    admitted +=
                        u64::from(matches!(bucket.charge_counting(&meter, 7, 1, &mut retries), Verdict::Admit(_)));
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
