//! Batches of checks by a handle, beside the same checks one at a time.

use std::hint::black_box;

use tidegate::{Decision, Engine};

use crate::{LIMIT_ID, comparison::Ask, key_of};

/// Checks of one batch.
pub const BATCH: usize = 64;

/// An engine of [`engine`](crate::engine), asked in batches of [`BATCH`].
#[derive(Debug)]
pub struct InBatches<'e>(pub &'e Engine);

impl Ask for InBatches<'_> {
    fn asker(&self) -> impl FnMut(u64) -> bool {
        let mut handle = self.0.handle(LIMIT_ID, "k").expect("is there");
        move |number| handle.check(key_of(number), 1).expect("valid").is_allowed()
    }

    fn chunk_asker(&self) -> impl FnMut(&[u32]) {
        let mut handle = self.0.handle(LIMIT_ID, "k").expect("is there");
        move |numbers| {
            for numbers in numbers.as_chunks::<BATCH>().0 {
                handle.check_batch(&numbers.map(|number| key_of(number.into())), 1, &mut Seen).expect("valid");
            }
        }
    }
}

/// Looks at each decision, and keeps none.
pub(crate) struct Seen;

impl<'e> Extend<Decision<'e>> for Seen {
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
        InBatches(&engine).chunk_asker()(&numbers);
        assert_eq!(engine.totals().allowed, CHUNK as u64);
        assert!(!InBatches(&engine).asker()(7), "the same key");
    }
}
