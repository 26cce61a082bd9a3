//! What a full table takes: memory for each live key, and the share of keys that found no slot.

use std::fs;

use crate::{LIMIT_ID, engine, key_of};

/// Seconds for which a key is live after its one charge: longer than filling takes.
const LIVE_S: u64 = 1_000;

/// What was measured of a table with as many live keys as it was made for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Memory {
    /// Live keys, each charged once.
    pub keys: usize,
    /// Bytes by which the memory of the process grew while they came, for each: its resident set, without the pages of the
    /// program itself. Not a number where the system does not show it, which is everywhere but on Linux. An allocator that
    /// returns or takes memory by itself meanwhile makes it a little less or more.
    pub bytes_per_key: f64,
    /// The share of them that found no slot, from 0 to 1: they got one of the limit's overflow buckets, or were denied.
    pub overflow_share: f64,
}

/// Fills an engine that has room for `keys` with as many live keys.
///
/// # Panics
///
/// Where `keys` is 0.
#[must_use]
pub fn measure(keys: usize) -> Memory {
    assert!(keys > 0, "no keys, no share of them");
    // What the first check of a thread takes is not the keys'.
    let first = engine(1, 1, LIVE_S);
    let _ = first.handle(LIMIT_ID, "k").map(|mut handle| handle.check(key_of(0), 1));
    // A limit of one a second.
    let engine = engine(keys, 1, LIVE_S);
    let mut handle = engine.handle(LIMIT_ID, "k").expect("is there");
    let before = resident_bytes();
    for number in 0..keys as u64 {
        let _ = handle.check(key_of(number), LIVE_S).expect("valid");
    }
    let grown = resident_bytes().zip(before).map_or(f64::NAN, |(after, before)| after as f64 - before as f64);
    let overflow_share = engine.overflow_charges() as f64 / keys as f64;
    Memory { keys, bytes_per_key: grown / keys as f64, overflow_share }
}

/// The resident set of this process, without what is mapped from files.
pub(crate) fn resident_bytes() -> Option<u64> {
    let sums = fs::read_to_string("/proc/self/smaps_rollup").ok()?;
    let kilobytes = sums.lines().find_map(|line| line.strip_prefix("Anonymous:"))?.trim().strip_suffix(" kB")?;
    Some(kilobytes.parse::<u64>().ok()? * 1_024)
}
