//! Memory of a full table for each live key, and the share of keys that found no slot.

use std::fs;

use crate::{LIMIT_ID, engine, key_of};

/// Seconds for which a key is live after its only charge: longer than filling takes.
const LIVE_S: u64 = 1_000;

/// The figures of a table with as many live keys as it was made for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TableMemory {
    /// The number of live keys, each charged once.
    pub keys: usize,
    /// The growth of the memory of the process in bytes per key: its resident set, without the pages of the program itself. NaN
    /// except on Linux, because other systems do not show it. An allocator that returns or takes memory meanwhile makes the
    /// figure a little lower or higher.
    pub bytes_per_key: f64,
    /// The share of the keys that found no slot, from 0 to 1: they got one of the limit's overflow buckets, or were denied.
    pub overflow_share: f64,
}

/// Fills an engine that has room for `keys` with as many live keys.
///
/// # Panics
///
/// If `keys` is 0.
#[must_use]
pub fn measure(keys: usize) -> TableMemory {
    assert!(keys > 0, "no keys, no share of them");
    // The first check of a thread allocates memory that does not belong to the keys.
    let warm_up = engine(1, 1, LIVE_S);
    let _ = warm_up.handle(LIMIT_ID, "k").map(|mut handle| handle.check(key_of(0)));
    let engine = engine(keys, 1, LIVE_S);
    let mut handle = engine.handle(LIMIT_ID, "k").expect("is there");
    let before = resident_bytes();
    for number in 0..keys as u64 {
        let _ = handle.check_n(key_of(number), LIVE_S).expect("valid");
    }
    let grown = resident_bytes().zip(before).map_or(f64::NAN, |(after, before)| after as f64 - before as f64);
    let overflow_share = engine.overflow_charges() as f64 / keys as f64;
    TableMemory { keys, bytes_per_key: grown / keys as f64, overflow_share }
}

/// Returns the resident set of this process, without pages that are mapped from files.
pub(crate) fn resident_bytes() -> Option<u64> {
    let sums = fs::read_to_string("/proc/self/smaps_rollup").ok()?;
    let kilobytes = sums.lines().find_map(|line| line.strip_prefix("Anonymous:"))?.trim().strip_suffix(" kB")?;
    Some(kilobytes.parse::<u64>().ok()? * 1_024)
}
