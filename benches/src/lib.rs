//! Shared parts of the benchmark programs in `src/bin` and of the criterion benches in `benches`.
//!
//! - Limiters under test: [`peers`], [`coarse_clocks`], [`windows`], [`batches`], [`full_check`], [`floor`].
//! - The comparison of limiters, which `compare` runs: [`contender`], [`comparison`], [`rows`], [`publishing`], [`footprint`],
//!   [`threads`], [`random`]; its results: [`record`], [`recorded`].
//! - Servers under load: [`servers`], [`latency`], [`http2`], [`scraper`], [`admin_session`], [`store`].
//! - Memory of the engine's table: [`memory`], [`load_curve`].
//! - Statistics and documents: [`spread`], [`histogram`], [`markdown`].

use std::{error::Error, time::Duration};

use tidegate::{
    Engine, Snapshot,
    algorithm::{Meter, TokenBucket},
    clock::{Clock, SystemClock},
    formats::Format,
};

pub mod admin_session;
pub mod batches;
pub mod coarse_clocks;
pub mod comparison;
pub mod contender;
pub mod floor;
pub mod footprint;
pub mod full_check;
pub mod histogram;
pub mod http2;
pub mod latency;
pub mod load_curve;
pub mod markdown;
pub mod memory;
pub mod peers;
pub mod publishing;
pub mod random;
pub mod record;
pub mod recorded;
pub mod rows;
pub mod scraper;
pub mod servers;
pub mod spread;
pub mod store;
pub mod threads;
pub mod windows;

/// The result of a measurement, or the reason why it failed.
pub type BenchResult<T> = Result<T, Box<dyn Error>>;

/// The full name of the limit that handles check.
pub const LIMIT_ID: &str = "default/tier:t/l";

/// Returns an engine with one token bucket for identities of the kind `k`: `limit` tokens a second, at most `burst` at once.
///
/// # Panics
///
/// Never: the numbers fit.
#[must_use]
pub fn engine(max_keys: usize, limit: u64, burst: u64) -> Engine {
    let limit = format!(r#"algorithm = "token_bucket", limit = {limit}, period = "1s", burst = {burst}"#);
    engine_with(max_keys, SystemClock::new(), &limit)
}

/// Returns an engine that uses `clock`, with one limit for identities of the kind `k`; `limit` has its fields in TOML.
///
/// # Panics
///
/// If the policy is not valid.
#[must_use]
pub fn engine_with<C: Clock>(max_keys: usize, clock: C, limit: &str) -> Engine<C> {
    let engine = Engine::with_clock(max_keys, clock);
    let policy = format!(
        "[domains.default]\ndefaults = {{ k = \"t\" }}\n[[domains.default.tiers]]\nid = \"t\"\n\
         limits = [{{ id = \"l\", {limit} }}]"
    );
    engine.publish(Snapshot::parse(&policy, Format::Toml).expect("a policy")).expect("one limit");
    engine
}

/// Returns the limit of [`engine`] as a meter.
///
/// # Panics
///
/// If a number is out of range.
#[must_use]
pub fn meter(limit: u64, burst: u64) -> Meter {
    Meter::TokenBucket(TokenBucket::new(limit, Duration::from_secs(1), burst).expect("fits"))
}

/// Returns the key of 16 bytes with this number, on the stack.
#[must_use]
#[inline]
pub fn key_of(number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&number.to_le_bytes());
    key[8..].copy_from_slice(&(!number).to_le_bytes());
    key
}

/// Returns the key with this number as text, for peers that take a `String`.
#[must_use]
pub fn string_key(number: u64) -> String {
    format!("{number:016x}")
}

/// Compiles and runs the examples of the document, those for governor and those for Tidegate.
#[cfg(doctest)]
#[doc = include_str!("../../docs/from-governor.md")]
struct FromGovernor;
