//! `HeavyHitters`: the keys that are denied most and those that are decided most. A sketch of fixed size, fed by
//! observed decisions.
//!
//! Space-Saving (Metwally, Agrawal and El Abbadi, "Efficient computation of frequent and top-k elements in data
//! streams", 2005): as many counts as there are entries. A key that has none takes over the entry with the lowest
//! count, and keeps that count as its possible error. Of a total of N over m entries: no key's count is too low; it is
//! too high by its error at most, which is at most N/m; and every key with more than N/m is there.
//!
//! Counts are halved once per half-life, N and errors with them, so that yesterday's hitters fade.

use std::{
    sync::{Mutex, MutexGuard, TryLockError},
    time::Duration,
};

use arrayvec::ArrayVec;

use crate::{
    base::{atomic::Counter, hash::IdentityHash, time::Nanos},
    engine::{
        names::LimitIndex,
        observer::{Observed, Observer},
    },
    policy::request::{KIND_BYTES_MAX, VALUE_BYTES_MAX},
};

/// Counts have a fraction, so that halving them again and again rounds little.
const FRACTION: u64 = 1 << 16;

/// The lengths of a kind (1 byte) and of a value (2).
const LENGTHS_BYTES: usize = 3;
/// The room for the counted identities: the longest single identity.
const NAME_BYTES: usize = LENGTHS_BYTES + KIND_BYTES_MAX + VALUE_BYTES_MAX;

/// The keys that are denied most, and those that are decided most, allowed or denied, each under the limit that
/// decided.
///
/// It is an [`Observer`]: share it by `Arc` between one engine and its reader. It holds 2 x `entries` keys in memory
/// that is allocated when it is made, about 1,100 bytes each. A decision that comes while another thread uses it is
/// skipped, so no check ever waits. Each decision that it sees costs a look at all entries, so let it see a sample.
///
/// ```
/// use std::{num::NonZeroU32, sync::Arc, time::Duration};
/// use tidegate::{Engine, HeavyHitters};
///
/// let engine = Engine::new();
/// let hitters = Arc::new(HeavyHitters::new(256, Duration::from_mins(10)));
/// engine.observe(const { NonZeroU32::new(64).unwrap() }, Arc::clone(&hitters));
/// // ... checks ...
/// for hitter in hitters.denied() {
///     println!("{} {:?}: {}", engine.limit_name(hitter.limit), hitter.identities, hitter.count);
/// }
/// ```
#[derive(Debug)]
pub struct HeavyHitters {
    sketches: Mutex<Sketches>,
    half_life_ns: u64,
    skipped: Counter,
}

/// A key that is among the heaviest.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Hitter {
    /// The limit, whose full name [`Engine::limit_name`](crate::Engine::limit_name) returns.
    pub limit: LimitIndex,
    /// The kinds and values of the identities that the limit counts together; none for everyone together. If a
    /// combination is longer than the longest single identity, a kind or value is cut, and further ones are left out.
    pub identities: Vec<(String, Vec<u8>)>,
    /// The estimated number of decisions since the key came up, halved once per half-life. It is at least the number
    /// that was seen, where each seen decision counts for all that it stands for.
    pub count: u64,
    /// The most by which the count is too high, beside what a sample leaves open.
    pub error: u64,
}

#[derive(Debug)]
struct Sketches {
    denied: SpaceSaving,
    all: SpaceSaving,
    halved_until: Nanos,
}

impl HeavyHitters {
    /// Returns a sketch with this number of entries, at least one, for denied keys and as many for all. Counts are
    /// halved whenever the engine's clock comes to a multiple of `half_life`.
    #[must_use]
    pub fn new(entries: usize, half_life: Duration) -> Self {
        let sketches = Sketches { denied: SpaceSaving::new(entries), all: SpaceSaving::new(entries), halved_until: 0 };
        let half_life_ns = u64::try_from(half_life.as_nanos()).unwrap_or(u64::MAX).max(1);
        Self { sketches: Mutex::new(sketches), half_life_ns, skipped: Counter::default() }
    }

    /// Returns the keys that were denied most, heaviest first.
    #[must_use]
    pub fn denied(&self) -> Vec<Hitter> {
        self.list(|sketches| &sketches.denied)
    }

    /// Returns the keys that were decided most, allowed or denied, heaviest first.
    #[must_use]
    pub fn hot(&self) -> Vec<Hitter> {
        self.list(|sketches| &sketches.all)
    }

    /// Returns how many observed decisions were left out because another thread used the sketch.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.skipped.count()
    }

    fn list(&self, which: impl Fn(&Sketches) -> &SpaceSaving) -> Vec<Hitter> {
        let sketch = loop {
            // This does not wait in the kernel: a check would have to wake the thread from there.
            match self.try_lock() {
                Some(sketches) => break which(&sketches).clone(),
                None => std::thread::yield_now(),
            }
        };
        sketch.list()
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, Sketches>> {
        match self.sketches.try_lock() {
            Ok(sketches) => Some(sketches),
            // The code under the lock does not panic.
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl Observer for HeavyHitters {
    fn observe(&self, observed: &Observed<'_>) {
        let Some(key) = observed.key() else { return };
        let Some(mut sketches) = self.try_lock() else {
            self.skipped.next();
            return;
        };
        sketches.fade(observed.at().as_nanos(), self.half_life_ns);
        sketches.all.add(key, observed);
        if !observed.decision().is_allowed() {
            sketches.denied.add(key, observed);
        }
    }
}

impl Sketches {
    fn fade(&mut self, now: Nanos, half_life_ns: u64) {
        let halvings = now.saturating_sub(self.halved_until) / half_life_ns;
        if halvings > 0 {
            self.halved_until = now - now % half_life_ns;
            let divisor = 1u64.checked_shl(u32::try_from(halvings).unwrap_or(u32::MAX)).unwrap_or(u64::MAX);
            for entry in self.denied.entries.iter_mut().chain(&mut self.all.entries) {
                entry.count = entry.count.div_ceil(divisor);
                // One is added because the count is rounded up.
                entry.error = entry.error.div_ceil(divisor) + 1;
            }
        }
    }
}

#[derive(Clone, Debug)]
struct SpaceSaving {
    /// An entry that no key has taken yet has a count of 0.
    entries: Box<[SketchEntry]>,
    /// The names in the same places, apart, so that a search for a key or the lowest count goes over little memory.
    names: Box<[HitterName]>,
}

#[derive(Clone, Copy, Debug)]
struct SketchEntry {
    key: (u32, IdentityHash),
    /// The count in [`FRACTION`]s of a decision, as is the error.
    count: u64,
    error: u64,
}

/// The counted identities: for each the lengths of kind and value, the kind, the value.
#[derive(Clone, Debug, Default)]
struct HitterName(ArrayVec<u8, NAME_BYTES>);

impl SpaceSaving {
    fn new(entries: usize) -> Self {
        let entries = entries.max(1);
        let free = SketchEntry { key: (u32::MAX, IdentityHash::EVERYONE), count: 0, error: 0 };
        Self { entries: vec![free; entries].into(), names: vec![HitterName::default(); entries].into() }
    }

    fn add(&mut self, key: (u32, IdentityHash), observed: &Observed<'_>) {
        let place = self.entries.iter().position(|entry| entry.key == key).unwrap_or_else(|| {
            let least = self.entries.iter().enumerate().min_by_key(|(_, entry)| entry.count);
            let place = least.map_or(0, |(place, _)| place);
            self.entries[place].key = key;
            self.entries[place].error = self.entries[place].count;
            self.names[place].write(observed.counted());
            place
        });
        let count = &mut self.entries[place].count;
        *count = count.saturating_add(u64::from(observed.one_in().get()) * FRACTION);
    }

    fn list(&self) -> Vec<Hitter> {
        let hitter = |(entry, name): (&SketchEntry, &HitterName)| Hitter {
            limit: LimitIndex(entry.key.0),
            identities: name.read(),
            count: entry.count.div_ceil(FRACTION),
            error: entry.error.div_ceil(FRACTION),
        };
        // A key that has faded below one decision is left out.
        let present = self.entries.iter().zip(&self.names).filter(|(entry, _)| entry.count >= FRACTION);
        let mut list: Vec<Hitter> = present.map(hitter).collect();
        list.sort_by_key(|hitter| std::cmp::Reverse(hitter.count));
        list
    }
}

impl HitterName {
    fn write<'a>(&mut self, identities: impl Iterator<Item = (&'a str, &'a [u8])>) {
        self.0.clear();
        for (kind, value) in identities {
            // A handle's kind may be of any length.
            let kind = &kind.as_bytes()[..kind.len().min(KIND_BYTES_MAX)];
            let Some(room) = self.0.remaining_capacity().checked_sub(LENGTHS_BYTES + kind.len()) else { break };
            let value = &value[..value.len().min(room)];
            let [low, high] = (value.len() as u16).to_le_bytes();
            self.0.extend([kind.len() as u8, low, high]);
            self.0.extend(kind.iter().chain(value).copied());
        }
    }

    fn read(&self) -> Vec<(String, Vec<u8>)> {
        let (mut identities, mut rest) = (Vec::new(), self.0.as_slice());
        while let Some(([kind_bytes, low, high], after)) = rest.split_first_chunk() {
            let (kind, after) = after.split_at(usize::from(*kind_bytes));
            let (value, after) = after.split_at(u16::from_le_bytes([*low, *high]).into());
            identities.push((String::from_utf8_lossy(kind).into_owned(), value.to_vec()));
            rest = after;
        }
        identities
    }
}
