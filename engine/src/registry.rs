//! What outlives snapshots: the names of limits, their overflow buckets, and how their numbers changed.

use std::{collections::HashMap, fmt, sync::Arc};

use crate::{
    algorithm::Meter,
    hash::KeyHasher,
    snapshot::Snapshot,
    sync::Cell128,
    table::Key,
    time::Nanos,
    word::{Generation, Held, LIMITS_MAX},
};

/// Overflow buckets of a limit: where keys go for which the table has no slot.
const OVERFLOW_BUCKETS: usize = 8;

/// Every limit that the engine ever knew, by index. Grows only, is read without a lock.
#[derive(Debug)]
pub(crate) struct Registry {
    limits: boxcar::Vec<Registered>,
}

#[derive(Debug)]
struct Registered {
    name: Box<str>,
    overflow: [Cell128; OVERFLOW_BUCKETS],
}

impl Registry {
    pub(crate) fn new() -> Self {
        Self { limits: boxcar::Vec::new() }
    }

    pub(crate) fn name(&self, limit: u32) -> &str {
        self.limits.get(limit as usize).map_or("", |registered| &registered.name)
    }

    /// The overflow bucket of a key of `limit`.
    pub(crate) fn overflow(&self, limit: u32, key: Key) -> &Cell128 {
        &self.overflows(limit)[key.bits().spread() % OVERFLOW_BUCKETS]
    }

    /// All overflow buckets of `limit`.
    pub(crate) fn overflows(&self, limit: u32) -> &[Cell128] {
        &self.limits[limit as usize].overflow
    }
}

/// A snapshot in an engine: its limits bound to their indices and histories.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) version: u64,
    /// In the places of [`Snapshot::limits`].
    pub(crate) limits: Box<[LiveLimit]>,
}

#[derive(Debug)]
pub(crate) struct LiveLimit {
    pub(crate) index: u32,
    /// Of the full name.
    pub(crate) hash: u64,
    /// `None`: it admits nothing.
    pub(crate) meter: Option<Meter>,
    pub(crate) generation: Generation,
    /// The changes that led to `generation`, the last one last.
    changes: Box<[Change]>,
}

/// One change of a limit's numbers.
#[derive(Clone, Copy, Debug)]
struct Change {
    from: Meter,
    to: Meter,
    at: Nanos,
}

/// A bucket was written under a newer snapshot than the one at hand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Newer;

impl LiveLimit {
    /// The word of a bucket under this snapshot's numbers: one of an older generation is converted as of the instants of
    /// the changes since. Only for a snapshot that was still the newest after the bucket was read: generations are counted
    /// modulo 32, and a sweep keeps every bucket within 15 of the newest.
    #[inline]
    pub(crate) fn current(&self, held: Held) -> Result<u64, Newer> {
        if held.generation == self.generation {
            return Ok(held.word);
        }
        let behind = held.generation.behind(self.generation).ok_or(Newer)?;
        Ok(carried_over(held.word, &self.changes, behind))
    }
}

fn carried_over(word: u64, changes: &[Change], behind: usize) -> u64 {
    let missed = &changes[changes.len().saturating_sub(behind)..];
    missed.iter().fold(word, |word, change| change.from.carry_over(word, change.at, &change.to))
}

/// The state of publishing: what each limit's numbers are and were.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    limits: HashMap<Box<str>, Entry>,
}

#[derive(Debug)]
struct Entry {
    index: u32,
    hash: u64,
    /// The last numbers that admitted something; a limit of 0 leaves them as they are, and time goes on.
    meter: Option<Meter>,
    generation: Generation,
    changes: Vec<Change>,
}

/// A policy that the engine cannot take. Nothing changed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PublishError {
    /// The engine has known as many limits as it can since it started.
    TooManyLimits,
}

impl fmt::Display for PublishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyLimits => write!(
                f,
                "more than {LIMITS_MAX} limits with different names since the engine started; restart it, or name fewer"
            ),
        }
    }
}

impl std::error::Error for PublishError {}

impl Ledger {
    /// Binds a snapshot. Where the history of a limit becomes too long for generations to be told apart, `sweep` is
    /// called first with the limit's index and a conversion that brings every bucket to today's numbers.
    pub(crate) fn bind(
        &mut self,
        snapshot: Arc<Snapshot>,
        version: u64,
        at: Nanos,
        hasher: &KeyHasher,
        registry: &Registry,
        sweep: impl Fn(u32, &dyn Fn(Held) -> Held),
    ) -> Result<Live, PublishError> {
        let new = snapshot.limits.iter().filter(|limit| !self.limits.contains_key(&limit.name)).count();
        if self.limits.len() + new > LIMITS_MAX {
            return Err(PublishError::TooManyLimits);
        }
        let bind = |limit: &crate::snapshot::CompiledLimit| {
            let entry = self.limits.entry(limit.name.clone()).or_insert_with(|| Entry {
                index: registry.limits.push(Registered { name: limit.name.clone(), overflow: Default::default() })
                    as u32,
                hash: hasher.name(&limit.name),
                meter: limit.meter,
                generation: Generation::default(),
                changes: Vec::new(),
            });
            if let Some(meter) = limit.meter {
                entry.change(meter, at, &sweep);
            }
            LiveLimit {
                index: entry.index,
                hash: entry.hash,
                meter: limit.meter,
                generation: entry.generation,
                changes: entry.changes.as_slice().into(),
            }
        };
        let limits = snapshot.limits.iter().map(bind).collect();
        Ok(Live { snapshot, version, limits })
    }
}

impl Entry {
    fn change(&mut self, to: Meter, at: Nanos, sweep: &impl Fn(u32, &dyn Fn(Held) -> Held)) {
        let Some(from) = self.meter.replace(to) else { return };
        if from == to {
            return;
        }
        if self.changes.len() == Generation::WINDOW - 1 {
            // Everything written before is brought up to date; the newer half stays, for checks that are under way with
            // a recent snapshot.
            let (changes, generation) = (&self.changes, self.generation);
            sweep(self.index, &|held| {
                let behind = held.generation.behind(generation).unwrap_or_default();
                Held { generation, word: carried_over(held.word, changes, behind) }
            });
            self.changes.drain(..Generation::WINDOW / 2);
        }
        self.changes.push(Change { from, to, at });
        self.generation = self.generation.next();
    }
}
