//! Keys that are counted without being written as text: numbers, addresses, tuples, hashes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::base::hash::{KeyHash, KeyHasher, KeyType};

/// A value by which a [`KeyedLimiter`](crate::KeyedLimiter) or a [`Handle`](crate::Handle) counts. A key is hashed in place:
/// nothing is formatted, copied or kept.
///
/// | key | is the same key as |
/// |---|---|
/// | `str`, `String`, `[u8]`, `[u8; N]` | any other with the same bytes |
/// | `u8` to `u128`, `usize` | any other with the same value |
/// | `Ipv4Addr`, `Ipv6Addr`, `IpAddr` | the same address; an IPv4 address mapped into IPv6 is the IPv4 address |
/// | tuples of two and three keys | the same keys in the same order: `("a_b", "c")` is not `("a", "b_c")` |
/// | [`Prehashed`] | the same hash |
/// | a reference | what it refers to |
///
/// No two keys of different rows are the same: the text `"7"`, the number 7 and the hash 7 are three keys. The probability that a
/// key shares the bucket of another key in the table all the same is below 10^-10.
///
/// One client often has a whole /64 of IPv6 addresses. To count them together, count by the upper half:
/// `(address.to_bits() >> 64) as u64`.
///
/// A type of your own is a key once it says which of these keys represents it:
///
/// ```
/// use tidegate::{Key, KeyHash, KeyHasher, KeyedLimiter};
///
/// struct Tenant {
///     region: u16,
///     id: u64,
/// }
///
/// impl Key for Tenant {
///     fn key_hash(&self, hasher: &KeyHasher) -> KeyHash {
///         (self.region, self.id).key_hash(hasher)
///     }
/// }
///
/// let limiter = KeyedLimiter::per_second(1);
/// assert!(limiter.check(Tenant { region: 1, id: 23 }).is_allowed());
/// assert!(limiter.check(Tenant { region: 12, id: 3 }).is_allowed());
/// assert!(!limiter.check((1_u16, 23_u64)).is_allowed());
/// ```
pub trait Key {
    /// Returns the key's hash, by the secrets of the limiter or engine that counts it.
    fn key_hash(&self, hasher: &KeyHasher) -> KeyHash;

    /// Returns the value that an [`Observer`](crate::Observer) is shown for a check by handle: the text of a text key, and nothing
    /// for every other key, which still counts by itself. A type of your own may return any text.
    #[inline]
    fn text(&self) -> &[u8] {
        b""
    }
}

impl<K: Key + ?Sized> Key for &K {
    #[inline]
    fn key_hash(&self, hasher: &KeyHasher) -> KeyHash {
        (**self).key_hash(hasher)
    }

    #[inline]
    fn text(&self) -> &[u8] {
        (**self).text()
    }
}

macro_rules! by_bytes {
    ($([$($generic:tt)*] $text:ty),*) => {$(
        impl<$($generic)*> Key for $text {
            #[inline]
            fn key_hash(&self, hasher: &KeyHasher) -> KeyHash {
                hasher.bytes(self.as_ref())
            }

            #[inline]
            fn text(&self) -> &[u8] {
                self.as_ref()
            }
        }
    )*};
}

by_bytes!([] [u8], [const N: usize] [u8; N], [] str, [] String);

impl Key for u64 {
    #[inline]
    fn key_hash(&self, hasher: &KeyHasher) -> KeyHash {
        hasher.words([hasher.key_type(KeyType::Number), *self])
    }
}

macro_rules! as_u64 {
    ($($number:ty)*) => {$(
        impl Key for $number {
            #[inline]
            #[allow(clippy::cast_lossless, reason = "not for usize")]
            fn key_hash(&self, hasher: &KeyHasher) -> KeyHash {
                (*self as u64).key_hash(hasher)
            }
        }
    )*};
}

as_u64!(u8 u16 u32 usize);

impl Key for u128 {
    #[inline]
    fn key_hash(&self, hasher: &KeyHasher) -> KeyHash {
        match u64::try_from(*self) {
            Ok(small) => small.key_hash(hasher),
            Err(_) => hasher.words([hasher.key_type(KeyType::Number), (self >> 64) as u64, *self as u64]),
        }
    }
}

impl Key for Ipv4Addr {
    #[inline]
    fn key_hash(&self, hasher: &KeyHasher) -> KeyHash {
        hasher.words([hasher.key_type(KeyType::Ip), self.to_bits().into()])
    }
}

impl Key for Ipv6Addr {
    #[inline]
    fn key_hash(&self, hasher: &KeyHasher) -> KeyHash {
        match self.to_ipv4_mapped() {
            Some(mapped) => mapped.key_hash(hasher),
            None => hasher.words([hasher.key_type(KeyType::Ip), (self.to_bits() >> 64) as u64, self.to_bits() as u64]),
        }
    }
}

impl Key for IpAddr {
    #[inline]
    fn key_hash(&self, hasher: &KeyHasher) -> KeyHash {
        match self {
            Self::V4(address) => address.key_hash(hasher),
            Self::V6(address) => address.key_hash(hasher),
        }
    }
}

impl<A: Key, B: Key> Key for (A, B) {
    #[inline]
    fn key_hash(&self, hasher: &KeyHasher) -> KeyHash {
        hasher.words([hasher.key_type(KeyType::Tuple), self.0.key_hash(hasher).0, self.1.key_hash(hasher).0])
    }
}

impl<A: Key, B: Key, C: Key> Key for (A, B, C) {
    #[inline]
    fn key_hash(&self, hasher: &KeyHasher) -> KeyHash {
        let [a, b, c] = [self.0.key_hash(hasher), self.1.key_hash(hasher), self.2.key_hash(hasher)];
        hasher.words([hasher.key_type(KeyType::Tuple), a.0, b.0, c.0])
    }
}

/// A value that the caller has hashed already.
///
/// It is mixed with the limiter's secrets, so no client can aim at a slot of the table. But values with equal hashes are one
/// key, and nothing here can tell them apart. So all 64 bits must be well mixed, and where strangers choose the values the
/// hash must be one that they cannot compute (the standard library's `RandomState`, for example; not FNV, nor any hash with a
/// public seed). Otherwise a stranger who finds a value with the hash of another client's uses up that client's quota.
///
/// ```
/// use std::hash::{BuildHasher, RandomState};
/// use tidegate::{KeyedLimiter, Prehashed};
///
/// let hasher = RandomState::new();
/// let session = hasher.hash_one("a long session token"); // once, where the session begins
/// let limiter = KeyedLimiter::per_second(100);
/// assert!(limiter.check(Prehashed(session)).is_allowed());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Prehashed(pub u64);

impl Key for Prehashed {
    #[inline]
    fn key_hash(&self, _: &KeyHasher) -> KeyHash {
        KeyHash(self.0)
    }
}
