//! The work that the benchmarks share: one policy, the same keys for every peer, and threads between barriers.

pub mod memory;

use std::{
    sync::Barrier,
    time::{Duration, Instant},
};

use governor::{DefaultKeyedRateLimiter, Quota};
use tidegate::{
    Engine, Snapshot,
    algorithm::{Meter, TokenBucket},
    formats::Format,
};

/// Full name of the limit that handles are made for.
pub const LIMIT_ID: &str = "default/tier:t/l";

/// An engine with one token bucket of this limit a second and burst, for identities of kind `k`.
///
/// # Panics
///
/// Never: the numbers fit.
#[must_use]
pub fn engine(max_keys: usize, limit: u64, burst: u64) -> Engine {
    let engine = Engine::with_max_keys(max_keys);
    let policy = format!(
        "[domains.default]\ndefaults = {{ k = \"t\" }}\n[[domains.default.tiers]]\nid = \"t\"\n\
         limits = [{{ id = \"l\", algorithm = \"token_bucket\", limit = {limit}, period = \"1s\", burst = {burst} }}]"
    );
    engine.publish(Snapshot::parse(&policy, Format::Toml).expect("a policy")).expect("one limit");
    engine
}

/// The same limit as a meter.
///
/// # Panics
///
/// Where the numbers do not fit.
#[must_use]
pub fn meter(limit: u64, burst: u64) -> Meter {
    Meter::TokenBucket(TokenBucket::new(limit, 1_000_000_000, burst).expect("fits"))
}

/// The same limit as governor has it.
///
/// # Panics
///
/// Where a number is 0.
#[must_use]
pub fn quota(limit: u32, burst: u32) -> Quota {
    let number = |number: u32| std::num::NonZeroU32::new(number).expect("not 0");
    Quota::per_second(number(limit)).allow_burst(number(burst))
}

/// governor, keyed.
pub type Governor<K> = DefaultKeyedRateLimiter<K>;

/// A key of 16 bytes, made on the stack.
#[must_use]
pub fn key_of(number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&number.to_le_bytes());
    key[8..].copy_from_slice(&(!number).to_le_bytes());
    key
}

/// The same key as text, for peers that want a `String`.
#[must_use]
pub fn text_of(number: u64) -> String {
    format!("{number:016x}")
}

/// Numbers below `bound`, evenly spread, the same sequence for every peer (xorshift64*; Vigna, 2016).
#[derive(Debug)]
pub struct Numbers {
    state: u64,
    bound: u64,
}

impl Numbers {
    /// `seed` must not be 0.
    #[must_use]
    pub fn new(seed: u64, bound: u64) -> Self {
        Self { state: seed, bound }
    }

    /// The next number.
    #[inline]
    pub fn draw(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        let product = self.state.wrapping_mul(0x2545_F491_4F6C_DD1D);
        ((u128::from(product) * u128::from(self.bound)) >> 64) as u64
    }
}

/// Runs `work(thread)`, which does `rounds` checks, on each of `threads` threads, and answers how long the slowest took
/// from the moment when all stood ready.
///
/// # Panics
///
/// When a thread does.
pub fn together(threads: usize, work: impl Fn(usize) + Sync) -> Duration {
    let start = Barrier::new(threads);
    std::thread::scope(|scope| {
        let (start, work) = (&start, &work);
        let run = move |thread| {
            start.wait();
            #[expect(clippy::disallowed_methods, reason = "a benchmark measures")]
            let began = Instant::now();
            work(thread);
            began.elapsed()
        };
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
        running.into_iter().map(|thread| thread.join().expect("no panic")).max().unwrap_or_default()
    })
}

/// Both halves of the document are compiled and run: governor's and ours.
#[cfg(doctest)]
#[doc = include_str!("../../docs/from-governor.md")]
struct FromGovernor;
