//! The keyed hash of a counted identity.
//!
//! A key is the hash of the limit's full name, exclusive-or the hash of the identity that is counted. The hash of one
//! identity is that of its kind, exclusive-or that of its value; the hash of a combination is that of the tuple of its
//! identities' hashes. So one identity costs one round of rapidhash. Every part has a hash of its own, which mixes its
//! length in: `("a_b", "c")` and `("a", "b_c")` differ. Values are hashed with random secrets, so no client can aim at
//! the slot of a victim, and kinds without them, so that a value of the same letters does not cancel a kind.

use std::{
    fmt,
    hash::{BuildHasher, RandomState},
};

use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};

/// The hash of a [`Key`](crate::Key).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyHash(pub(crate) u64);

/// The type of a key that is not text. It decides what the words of the key mean.
#[derive(Clone, Copy, Debug)]
#[repr(u64)]
pub(crate) enum KeyType {
    Number,
    Ip,
    Tuple,
}

/// The hash of one identity, or of a combination of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct IdentityHash(u64);

impl IdentityHash {
    /// The hash for a limit that counts everyone together.
    pub(crate) const EVERYONE: Self = Self(0);

    /// Returns the hash of a key that is counted as it is, without a kind.
    pub(crate) fn of(key: KeyHash) -> Self {
        Self(key.0)
    }
}

/// Returns the hash of a kind: the same in every engine.
pub(crate) fn kind_hash(kind: &str) -> u64 {
    rapidhash_v3_seeded(kind.as_bytes(), &RapidSecrets::seed(u64::from_ne_bytes(*b"the kind")))
}

/// Hashes [keys](crate::Key), with the secrets of one limiter or engine.
pub struct KeyHasher {
    secrets: RapidSecrets,
    /// The word of the first [`KeyType`].
    key_types: u64,
}

impl KeyHasher {
    pub(crate) fn new(seed: u64) -> Self {
        let secrets = RapidSecrets::seed(seed);
        Self { key_types: rapidhash_v3_seeded(b"", &secrets), secrets }
    }

    /// Returns a hasher with secrets from the operating system.
    pub(crate) fn random() -> Self {
        // The standard library's keys come from the operating system.
        Self::new(RandomState::new().hash_one(0))
    }

    /// Returns the hash of the name of a limit.
    pub(crate) fn name(&self, name: &str) -> u64 {
        rapidhash_v3_seeded(name.as_bytes(), &self.secrets)
    }

    /// Returns the hash of a text.
    #[inline]
    pub(crate) fn bytes(&self, bytes: &[u8]) -> KeyHash {
        KeyHash(rapidhash_v3_seeded(bytes, &self.secrets))
    }

    /// Returns the hash of a key that is not text: the word of its [type](Self::key_type), then its parts.
    #[inline]
    pub(crate) fn words<const N: usize>(&self, words: [u64; N]) -> KeyHash {
        self.bytes(words.map(u64::to_ne_bytes).as_flattened())
    }

    /// Returns the word that says what the words after it mean. It is as secret as the hash, so no client can send a text with the
    /// same bytes.
    #[inline]
    pub(crate) fn key_type(&self, key_type: KeyType) -> u64 {
        self.key_types.wrapping_add(key_type as u64)
    }

    /// Returns the hash of an identity; `kind` is the [`kind_hash`] of its kind.
    #[inline]
    pub(crate) fn identity(kind: u64, value: KeyHash) -> IdentityHash {
        IdentityHash(kind ^ value.0)
    }

    /// Returns the hash of a combination, one identity added; the order matters.
    pub(crate) fn and(&self, combination: IdentityHash, next: IdentityHash) -> IdentityHash {
        IdentityHash(self.words([combination.0, next.0]).0)
    }

    /// Returns the hash of a key; `limit` is the `name` of its limit.
    #[inline]
    pub(crate) fn key(limit: u64, identity: IdentityHash) -> u64 {
        limit ^ identity.0
    }

    /// Returns what the keys of a limit and a kind have in common, for [`key_of_value`](Self::key_of_value).
    pub(crate) fn seed(limit: u64, kind: u64) -> u64 {
        limit ^ kind
    }

    /// Returns the key of one identity, as [`key`](Self::key) does.
    #[inline]
    pub(crate) fn key_of_value(seed: u64, value: KeyHash) -> u64 {
        seed ^ value.0
    }

    /// Returns the hash of the identity that [`key`](Self::key) made this key of.
    pub(crate) fn identity_of(limit: u64, key: u64) -> IdentityHash {
        IdentityHash(limit ^ key)
    }
}

/// Shows nothing of the secrets.
impl fmt::Debug for KeyHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyHasher").finish_non_exhaustive()
    }
}
