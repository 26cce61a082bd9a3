//! The work that the benchmarks share: one policy, the same keys for every peer, and what is compared with what.

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
pub mod floor;
pub mod footprint;
pub mod full_check;
pub mod histogram;
pub mod http2;
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
pub mod store;
pub mod threads;
pub mod windows;

/// Full name of the limit that handles are made for.
pub const LIMIT_ID: &str = "default/tier:t/l";

/// An engine with one token bucket of this limit a second and burst, for identities of kind `k`.
///
/// # Panics
///
/// Never: the numbers fit.
#[must_use]
pub fn engine(max_keys: usize, limit: u64, burst: u64) -> Engine {
    let limit = format!(r#"algorithm = "token_bucket", limit = {limit}, period = "1s", burst = {burst}"#);
    engine_with(max_keys, SystemClock::new(), &limit)
}

/// An engine by another clock, with one limit of these fields of a policy, for identities of kind `k`.
///
/// # Panics
///
/// Where the policy is not valid.
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

/// The same limit as a meter.
///
/// # Panics
///
/// Where the numbers do not fit.
#[must_use]
pub fn meter(limit: u64, burst: u64) -> Meter {
    Meter::TokenBucket(TokenBucket::new(limit, 1_000_000_000, burst).expect("fits"))
}

/// A key of 16 bytes, made on the stack.
#[must_use]
#[inline]
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

/// Both halves of the document are compiled and run: governor's and ours.
#[cfg(doctest)]
#[doc = include_str!("../../docs/from-governor.md")]
struct FromGovernor;
