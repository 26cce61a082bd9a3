//! How much memory a limiter takes for each live key.

use serde::{Deserialize, Serialize};

use crate::{
    memory::{self, Memory, resident_bytes},
    peers::{Limit, keyed, texts},
};

/// What was measured.
#[derive(Clone, Copy, PartialEq, Deserialize, Serialize, Debug)]
pub struct Footprint {
    /// Bytes by which the process grew for each live key.
    pub bytes_per_key: f64,
    /// The share of the keys that found no slot of their own; where the limiter is of a kind that has slots.
    pub overflow_share: Option<f64>,
}

/// Measures it here, so this process should do nothing else: memory that was used before would be used again unseen. `None`
/// where there is nobody of this name, or the system does not say.
#[must_use]
pub fn measure(name: &str, keys: u64) -> Option<Footprint> {
    if name == "tidegate" {
        let Memory { bytes_per_key, overflow_share, .. } = memory::measure(usize::try_from(keys).ok()?);
        let overflow_share = Some(overflow_share);
        return bytes_per_key.is_finite().then_some(Footprint { bytes_per_key, overflow_share });
    }
    let limit = Limit { per_second: 1, burst: 1_000_000 };
    let texts = if name.contains("String") { texts(keys) } else { Vec::new() };
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
    fn everybody_by_name_and_nobody_else_is_measured() {
        if resident_bytes().is_none() {
            return;
        }
        for name in ["tidegate", "governor, u64", "governor, String"] {
            // Other tests of this process take and give back memory meanwhile.
            assert!(measure(name, 10_000).is_some(), "{name}");
        }
        assert_eq!(measure("nobody", 10_000), None);
    }
}
