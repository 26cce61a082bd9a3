//! Our limiter with batches of checks by a handle.

use std::hint::black_box;

use tidegate::{Decision, Engine};

use crate::{LIMIT_ID, contender::TestedLimiter, key_of};

/// The number of checks in one batch.
pub const BATCH: usize = 64;

/// An engine of [`engine`](crate::engine) that is checked in batches of [`BATCH`].
#[derive(Debug)]
pub struct BatchedChecks<'e>(pub &'e Engine);

impl TestedLimiter for BatchedChecks<'_> {
    fn checker(&self) -> impl FnMut(u64) -> bool {
        let mut handle = self.0.handle(LIMIT_ID, "k").expect("is there");
        move |number| handle.check(key_of(number)).is_allowed()
    }

    fn chunk_checker(&self) -> impl FnMut(&[u32]) {
        let mut handle = self.0.handle(LIMIT_ID, "k").expect("is there");
        move |numbers| {
            for numbers in numbers.as_chunks::<BATCH>().0 {
                handle.check_batch(&numbers.map(|number| key_of(number.into())), &mut DiscardDecisions);
            }
        }
    }
}

/// A collection that reads each decision and keeps none.
pub(crate) struct DiscardDecisions;

impl<'e> Extend<Decision<'e>> for DiscardDecisions {
    #[inline]
    fn extend<T: IntoIterator<Item = Decision<'e>>>(&mut self, decisions: T) {
        for decision in decisions {
            black_box(decision.is_allowed());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{engine, threads::CHUNK};

    #[test]
    fn a_batch_charges_each_of_its_keys_once() {
        let engine = engine(1_000, 1, 1);
        let numbers: Vec<u32> = (0..CHUNK as u32).collect();
        BatchedChecks(&engine).chunk_checker()(&numbers);
        assert_eq!(engine.totals().allowed, CHUNK as u64);
        assert!(!BatchedChecks(&engine).checker()(7), "the same key");
    }
}
