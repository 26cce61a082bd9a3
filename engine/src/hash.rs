//! The keyed hash of what a bucket counts.
//!
//! A key is the hash of a tuple of fixed width: the hash of the limit's full name, then one hash per counted identity,
//! each over the hash of its kind and the hash of its value. rapidhash mixes lengths in, so `("a_b", "c")` and
//! `("a", "b_c")` differ. The secrets are random, so nobody outside can aim at the slot of a victim.

use std::hash::{BuildHasher, RandomState};

use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};

/// The hash of one identity, or of a combination of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct IdentityHash(u64);

impl IdentityHash {
    /// Of a limit that counts everyone together.
    pub(crate) const EVERYONE: Self = Self(0);
}

/// Hashes with one set of secrets.
#[derive(Debug)]
pub(crate) struct KeyHasher {
    secrets: RapidSecrets,
}

impl KeyHasher {
    pub(crate) fn new(seed: u64) -> Self {
        Self { secrets: RapidSecrets::seed(seed) }
    }

    /// With secrets that nobody knows.
    pub(crate) fn random() -> Self {
        // The standard library's keys come from the operating system.
        Self::new(RandomState::new().hash_one(0))
    }

    /// Of a name: of a limit, of a kind.
    pub(crate) fn name(&self, name: &str) -> u64 {
        rapidhash_v3_seeded(name.as_bytes(), &self.secrets)
    }

    /// Of an identity; `kind` is the `name` of its kind.
    #[inline]
    pub(crate) fn identity(&self, kind: u64, value: &[u8]) -> IdentityHash {
        IdentityHash(self.pair(kind, rapidhash_v3_seeded(value, &self.secrets)))
    }

    /// Of a combination, one identity added; the order matters.
    pub(crate) fn and(&self, combination: IdentityHash, next: IdentityHash) -> IdentityHash {
        IdentityHash(self.pair(combination.0, next.0))
    }

    /// Of a key; `limit` is the `name` of its limit.
    #[inline]
    pub(crate) fn key(&self, limit: u64, identity: IdentityHash) -> u64 {
        self.pair(limit, identity.0)
    }

    #[inline]
    fn pair(&self, first: u64, second: u64) -> u64 {
        let bytes = (u128::from(first) << 64 | u128::from(second)).to_ne_bytes();
        rapidhash_v3_seeded(&bytes, &self.secrets)
    }
}
