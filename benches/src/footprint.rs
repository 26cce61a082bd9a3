//! Memory of a limiter, ours or a peer, for each live key.

use serde::{Deserialize, Serialize};

use crate::{
    memory::{self, TableMemory, resident_bytes},
    peers::{TestLimit, keyed, string_keys},
};

/// The memory of a limiter.
#[derive(Clone, Copy, PartialEq, Deserialize, Serialize, Debug)]
pub struct Footprint {
    /// The growth of the process in bytes for each live key.
    pub bytes_per_key: f64,
    /// The share of the keys that found no slot of their own; `None` for peers, which have no slots.
    pub overflow_share: Option<f64>,
}

/// Measures the limiter with this name in this process, which should do nothing else: memory that was freed before would be
/// used again without being counted. Returns `None` if no limiter has this name, or if the system does not show its memory.
#[must_use]
pub fn measure(name: &str, keys: u64) -> Option<Footprint> {
    if name == "tidegate" {
        let TableMemory { bytes_per_key, overflow_share, .. } = memory::measure(usize::try_from(keys).ok()?);
        let overflow_share = Some(overflow_share);
        return bytes_per_key.is_finite().then_some(Footprint { bytes_per_key, overflow_share });
    }
    let limit = TestLimit { per_second: 1, burst: 1_000_000 };
    let texts = if name.contains("String") { string_keys(keys) } else { Vec::new() };
    let before = resident_bytes()?;
    let limiter = keyed(limit, &texts).into_iter().find(|peer| peer.name == name)?;
    let limiter = limiter.filled(keys);
    let grown = resident_bytes()?.saturating_sub(before);
    drop(limiter);
    Some(Footprint { bytes_per_key: grown as f64 / keys as f64, overflow_share: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limiters_are_measured_by_name_and_unknown_names_are_not() {
        if resident_bytes().is_none() {
            return;
        }
        for name in ["tidegate", "governor, u64", "governor, String"] {
            // Only that there is a figure: other tests of this process allocate and free memory meanwhile.
            assert!(measure(name, 10_000).is_some(), "{name}");
        }
        assert_eq!(measure("unknown", 10_000), None);
    }
}
