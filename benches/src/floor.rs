//! The least that a check of a key takes.

use std::{
    hint::black_box,
    sync::atomic::{AtomicU64, Ordering},
};

use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};

use crate::{comparison::Ask, key_of};

/// What no keyed limiter can be faster than: the clock is read, the key hashed and a word swapped, and each round needs the
/// word of the last.
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

impl Ask for Floor {
    #[inline]
    fn asker(&self) -> impl FnMut(u64) -> bool {
        |number| {
            let hash = rapidhash_v3_seeded(black_box(&key_of(number)), &self.secrets);
            let seen = self.word.load(Ordering::Acquire);
            let next = seen.max(self.clock.raw()) ^ (hash & 1);
            self.word.compare_exchange(seen, next, Ordering::AcqRel, Ordering::Acquire).is_ok()
        }
    }
}
