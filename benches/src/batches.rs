//! Batches of checks, beside the same checks one at a time.

use std::{array, hint::black_box};

use tidegate::{Decision, Engine, Identity, Request};

use crate::contest::Ask;

/// Checks of one batch.
pub const BATCH: usize = 64;

/// An engine of [`engine`](crate::engine), asked by requests, one at a time.
#[derive(Debug)]
pub struct OneAtATime<'e>(pub &'e Engine);

impl Ask for OneAtATime<'_> {
    fn asker(&self) -> impl FnMut(u64) -> bool {
        |number| {
            let text = digits(number as u32);
            let who = [identity(&text)];
            self.0.check(&Request::new(&who).expect("valid")).is_allowed()
        }
    }
}

/// The same, asked in batches of [`BATCH`].
#[derive(Debug)]
pub struct InBatches<'e>(pub &'e Engine);

impl Ask for InBatches<'_> {
    fn asker(&self) -> impl FnMut(u64) -> bool {
        |number| OneAtATime(self.0).asker()(number)
    }

    fn chunk_asker(&self) -> impl FnMut(&[u32]) {
        |numbers| {
            for numbers in numbers.as_chunks::<BATCH>().0 {
                let texts = numbers.map(digits);
                let who: [_; BATCH] = array::from_fn(|place| [identity(&texts[place])]);
                let requests: [_; BATCH] = array::from_fn(|place| Request::new(&who[place]).expect("valid"));
                self.0.check_batch(&requests, &mut Seen);
            }
        }
    }
}

fn identity(text: &[u8]) -> Identity<'_> {
    Identity::new("k", str::from_utf8(text).expect("digits")).expect("valid")
}

/// A key of 16 bytes that is text, as requests have it, made on the stack.
fn digits(number: u32) -> [u8; 16] {
    array::from_fn(|place| b"0123456789abcdef"[(u64::from(number) >> (60 - 4 * place) & 15) as usize])
}

/// Looks at each decision, and keeps none.
struct Seen;

impl<'e> Extend<Decision<'e>> for Seen {
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
        assert!(!OneAtATime(&engine).asker()(7), "the same key");
        assert_eq!(digits(0x1a), *b"000000000000001a");
    }
}
