//! Identifies callers, and divides tables of fixed size fairly among them.
//!
//! A caller is a peer network, as the body budget knows peers, with the token that it sent where the server asks for
//! one. So callers behind one proxy differ by their tokens, and services that share a token by their addresses.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, Hash, RandomState},
    num::NonZeroU16,
};

use hashlink::LinkedHashMap;
use tidegate_listener::{OwnerCounts, PeerNetwork};

use super::tokens::{Rights, TokenDigest, ValidToken};

/// The sender of a request, with its rights.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) peer: PeerNetwork,
    /// The token; `None` where the server asks for none.
    pub(crate) token: Option<TokenDigest>,
    pub(crate) rights: Rights,
}

impl Caller {
    /// Creates the caller at this peer, with the usual rights.
    pub(crate) fn without_token(peer: PeerNetwork) -> Self {
        Self { peer, token: None, rights: Rights::default() }
    }

    /// Creates the caller at this peer that sent this token, with the rights of the token.
    pub(crate) fn with_token(peer: PeerNetwork, token: &ValidToken) -> Self {
        Self { peer, token: Some(token.digest), rights: token.rights.clone() }
    }
}

/// The key of a caller in tables: a keyed hash, which is short, since a table has many entries.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct CallerKey(u64);

impl CallerKey {
    pub(crate) fn new(secret: &RandomState, caller: &Caller) -> Self {
        Self(secret.hash_one((caller.peer, caller.token)))
    }

    /// Returns the group of this caller, one of the 65,535 groups of a [`RatedLimiter`](tidegate::RatedLimiter).
    /// Callers cannot find out which group it is.
    pub(crate) fn group(self) -> NonZeroU16 {
        NonZeroU16::MIN.saturating_add((self.0 % u64::from(u16::MAX)) as u16)
    }

    /// Creates the key of a caller of a test.
    #[cfg(test)]
    pub(crate) const fn for_test(number: u64) -> Self {
        Self(number)
    }
}

/// The part of a table that one caller may have while no other has any, in percent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CallerShare(usize);

impl CallerShare {
    /// Creates a share of 1 to 100 percent; other numbers count as the nearest of these.
    pub(crate) fn percent(percent: u8) -> Self {
        Self(usize::from(percent.clamp(1, 100)))
    }

    /// Returns whether a caller with this many entries may have no more while this many places are free. The more
    /// entries others have, the smaller the share of each caller is, so that a later caller finds a place: at 50
    /// percent a caller may have as many entries as places are free.
    fn is_taken(self, entries: usize, free: usize) -> bool {
        entries * (100 - self.0) >= free * self.0
    }
}

/// The reason why there is no room for an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoRoom {
    /// The caller has its share.
    Caller,
    /// The caller has less than its share, and no place is free.
    Table,
}

impl NoRoom {
    pub(crate) const ALL: [Self; 2] = [Self::Caller, Self::Table];

    /// The name in metrics and in the log.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Caller => "caller",
            Self::Table => "table",
        }
    }
}

/// A table of fixed size, in the order of insertion, which knows the entries of each caller. Its memory is bounded by its places,
/// however many callers had entries before.
#[derive(Debug)]
pub(crate) struct CallerTable<K, V> {
    places: usize,
    share: CallerShare,
    entries: LinkedHashMap<K, CallerEntry<V>>,
    /// The keys of the entries, by caller and number.
    by_caller: BTreeMap<(CallerKey, u64), K>,
    counts: OwnerCounts<CallerKey>,
    next_number: u64,
}

#[derive(Debug)]
struct CallerEntry<V> {
    caller: CallerKey,
    /// The number of the insertion: larger than the numbers of older entries.
    number: u64,
    value: V,
}

impl<K: Copy + Eq + Hash, V> CallerTable<K, V> {
    pub(crate) fn new(places: usize, share: CallerShare) -> Self {
        let (entries, by_caller, counts) = (LinkedHashMap::new(), BTreeMap::new(), OwnerCounts::default());
        Self { places, share, entries, by_caller, counts, next_number: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn len_of(&self, caller: CallerKey) -> usize {
        self.counts.of(&caller)
    }

    /// Returns whether a caller has no fewer entries than callers have on average.
    pub(crate) fn is_large(&self, caller: CallerKey) -> bool {
        self.len_of(caller) * self.counts.owners() >= self.len()
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|entry| &entry.value)
    }

    pub(crate) fn front(&self) -> Option<&V> {
        self.entries.front().map(|(_, entry)| &entry.value)
    }

    /// Checks that a caller may have another entry.
    pub(crate) fn check_room(&self, caller: CallerKey) -> Result<(), NoRoom> {
        let free = self.places.saturating_sub(self.len());
        // Where no place is free, a caller counts as having its share if it would have its share with one place free.
        if self.share.is_taken(self.len_of(caller), free.max(1)) {
            return Err(NoRoom::Caller);
        }
        if free == 0 { Err(NoRoom::Table) } else { Ok(()) }
    }

    /// Adds an entry as the newest, whether there is room or not. It replaces an entry with the same key, also of another caller.
    pub(crate) fn insert(&mut self, key: K, caller: CallerKey, value: V) {
        self.remove(&key);
        let number = self.next_number;
        self.next_number += 1;
        self.entries.insert(key, CallerEntry { caller, number, value });
        self.by_caller.insert((caller, number), key);
        self.counts.add(caller, 1);
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let CallerEntry { caller, number, value } = self.entries.remove(key)?;
        self.by_caller.remove(&(caller, number));
        self.counts.subtract(&caller, 1);
        Some(value)
    }

    pub(crate) fn pop_front(&mut self) -> Option<V> {
        let (&key, _) = self.entries.front()?;
        self.remove(&key)
    }

    pub(crate) fn pop_front_of(&mut self, caller: CallerKey) -> Option<V> {
        let (_, &key) = self.by_caller.range((caller, 0)..=(caller, u64::MAX)).next()?;
        self.remove(&key)
    }

    /// Counts the entries of each caller again, and checks the counts that the table has.
    #[cfg(test)]
    pub(crate) fn shares(&self) -> OwnerCounts<CallerKey> {
        let mut shares = OwnerCounts::default();
        for (caller, _) in self.by_caller.keys() {
            shares.add(*caller, 1);
        }
        assert_eq!(shares, self.counts);
        shares
    }
}

#[cfg(test)]
mod tests;
