//! The lower bound of a keyed check: read the clock, hash the key, and swap a word.

use std::{
    hint::black_box,
    sync::atomic::{AtomicU64, Ordering},
};

use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};

use crate::{contender::TestedLimiter, key_of};

/// The least work of a keyed limiter: it reads the clock, hashes the key and swaps a word, and each round needs the word of the
/// round before.
#[derive(Debug)]
pub struct Floor {
    word: AtomicU64,
    secrets: RapidSecrets,
    clock: quanta::Clock,
}

impl Default for Floor {
    fn default() -> Self {
        Self { word: AtomicU64::new(0), secrets: RapidSecrets::seed(7), clock: quanta::Clock::new() }
    }
}

impl TestedLimiter for Floor {
    #[inline]
    fn checker(&self) -> impl FnMut(u64) -> bool {
        |number| {
            let hash = rapidhash_v3_seeded(black_box(&key_of(number)), &self.secrets);
            let current = self.word.load(Ordering::Acquire);
            let next = current.max(self.clock.raw()) ^ (hash & 1);
            self.word.compare_exchange(current, next, Ordering::AcqRel, Ordering::Acquire).is_ok()
        }
    }
}
