//! The ledger of publishes: which names there were, which ids they have, and how their numbers changed.
//!
//! # Names and ids
//!
//! A limit has two numbers. Its *index* is that of its name, given once and never to another name: what is kept of a decision
//! names the right limit for as long as the engine lives. Its *id* is what the tags of its slots say, one of 2^20. An id goes to
//! another name when the name that has it is in no policy any more. The invariant: **whatever a slot or an overflow bucket with
//! an id holds was written for the name that has the id.** It holds because an id is taken back in this order:
//!
//! 1. Every [`Live`] with the id was freed: the publisher keeps those that were in force until it holds the last reference.
//!    A check, a handle and a pending check hold the [`Live`] by which they work, so none can read or write a slot with the id
//!    any more, however long it stalls. (A reservation holds none; it asks whether the id has its index still.)
//! 2. Leases of the id are ended, and its slots and overflow buckets are emptied, by compare-and-swap, because keys of other
//!    limits may take an idle slot meanwhile.
//! 3. The id is free for a name that is new.
//!
//! Ids whose keys are all idle come first: that loses nothing. Where a policy needs more, the oldest names lose what was used of
//! them. Otherwise a name that comes back finds its buckets as they were.

use std::{
    collections::{HashMap, HashSet, hash_map::Entry as MapEntry},
    fmt,
    sync::Arc,
};

use crate::{
    algorithm::{Carry, Meter},
    base::hash::KeyHasher,
    engine::{
        active::{Change, Live, LiveLimit},
        fast_path::PlainLimit,
        names::{KNOWN_LIMITS_MAX, Name, Registry},
        publish::Publish,
    },
    policy::compiled::{CompiledLimit, Snapshot},
    storage::{caller_groups::NO_GROUP, counters::Place, layout::Generation, table_shares::Shares},
};

/// Ids are taken back when this part of all has no name in a policy.
const GONE_PART: usize = 16;

/// A policy that the engine cannot take. Nothing changed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PublishError {
    /// The engine cannot know as many limits at a time.
    TooManyLimits,
    /// The version is not above that of the present policy, or above what a version can be.
    OldVersion {
        /// The version that was given.
        given: u64,
        /// The version of the present policy.
        present: u64,
    },
}

impl fmt::Display for PublishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyLimits => write!(
                f,
                "this policy, the one in force and those that handles hold have more than {KNOWN_LIMITS_MAX} limits with \
                 different names; name fewer, or publish a smaller policy first"
            ),
            Self::OldVersion { given, present } => {
                write!(f, "version {given} cannot follow version {present}, which is in force")
            }
        }
    }
}

impl std::error::Error for PublishError {}

/// The state of publishing: which names there were, which ids they have, and what each limit's numbers are and were.
#[derive(Debug)]
pub(crate) struct Ledger {
    /// The index of every name that there ever was.
    indices: HashMap<Arc<str>, u32>,
    /// By index, those that have an id.
    bound: HashMap<u32, Entry>,
    /// Ids that were taken back.
    free: Vec<u32>,
    /// So many ids may be given.
    ids_max: usize,
    /// Ids without a name in a policy that were left where they were looked for last.
    left: usize,
    /// How many names are counted one by one.
    tallied: u32,
    /// The newest of all editions.
    edition: u64,
    /// The number of a domain, by its name.
    domains: HashMap<Box<str>, u32>,
}

impl Default for Ledger {
    fn default() -> Self {
        Self::with_room(KNOWN_LIMITS_MAX)
    }
}

#[derive(Debug)]
struct Entry {
    id: u32,
    hash: u64,
    /// The last numbers that admitted something; a limit of 0 leaves them as they are, and time goes on.
    meter: Option<Meter>,
    generation: Generation,
    edition: u64,
}

impl Ledger {
    /// For so many limits at a time.
    pub(crate) fn with_room(ids_max: usize) -> Self {
        let (indices, bound, domains) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self { indices, bound, free: Vec::new(), ids_max, left: 0, tallied: 0, edition: 0, domains }
    }

    /// How many limits are counted one by one.
    pub(crate) fn tallied(&self) -> usize {
        self.tallied as usize
    }

    /// How many ids have a name.
    pub(crate) fn known(&self) -> usize {
        self.bound.len()
    }

    fn is_bound(&self, name: &str) -> bool {
        self.indices.get(name).is_some_and(|index| self.bound.contains_key(index))
    }

    /// How many ids a policy needs beyond those that are free.
    pub(crate) fn lacking(&self, snapshot: &Snapshot) -> usize {
        let new = snapshot.limits.iter().filter(|limit| !self.is_bound(&limit.name)).count();
        (self.bound.len() + new).saturating_sub(self.ids_max)
    }

    /// Is it time to look for ids to take back? `live` is in force.
    pub(crate) fn is_full_of_gone(&self, live: &Live) -> bool {
        self.gone(live) >= self.left + (self.ids_max / GONE_PART).max(1)
    }

    /// How many ids have a name that `live`, which is in force, does not have.
    fn gone(&self, live: &Live) -> usize {
        self.bound.len().saturating_sub(live.limits.len())
    }

    /// Ids that can be taken back before `snapshot` is published, of the oldest names first: neither `live`, which is in force,
    /// has them, nor one of `retired`, nor the snapshot their names.
    pub(crate) fn unreachable(&self, snapshot: &Snapshot, live: &Live, retired: &[Arc<Live>]) -> Vec<u32> {
        let wanted: HashSet<u32> =
            snapshot.limits.iter().filter_map(|limit| self.indices.get(&*limit.name).copied()).collect();
        let is_held = |id| live.has(id) || retired.iter().any(|live| live.has(id));
        let unreachable = self.bound.iter().filter(|(index, entry)| !wanted.contains(*index) && !is_held(entry.id));
        let mut unreachable: Vec<(u32, u32)> = unreachable.map(|(index, entry)| (*index, entry.id)).collect();
        unreachable.sort_unstable();
        unreachable.into_iter().map(|(_, id)| id).collect()
    }

    /// Takes ids back whose slots are empty.
    pub(crate) fn take_back(&mut self, ids: &HashSet<u32>) {
        self.bound.retain(|_, entry| !ids.contains(&entry.id));
        self.free.extend(ids);
    }

    /// Notes that no more ids are to be taken back for now. `live` is in force.
    pub(crate) fn has_looked_through(&mut self, live: &Live) {
        self.left = self.gone(live);
    }

    /// Binds a policy for which there is [room](Self::lacking), as `version`, by a clock that is so far `ahead` of wall time.
    pub(crate) fn bind(
        &mut self,
        Publish { snapshot, carry, carries, .. }: Publish,
        version: u64,
        ahead: u64,
        hasher: &KeyHasher,
        registry: &Registry,
        shares: &Shares,
    ) -> Live {
        let mut owner = 0;
        let mut limits = Vec::with_capacity(snapshot.limits.len());
        for (place, limit) in snapshot.limits.iter().enumerate() {
            // Those of one owner stand together.
            if limit.owner_name() != snapshot.limits[owner as usize].owner_name() {
                owner = place as u32;
            }
            let meter = limit.meter.map(|meter| meter.ahead_of_wall(ahead));
            let index = self.index_of(limit, registry);
            let entry = match self.bound.entry(index) {
                MapEntry::Occupied(known) => known.into_mut(),
                MapEntry::Vacant(new) => {
                    let id = self.free.pop().unwrap_or_else(|| shares.add());
                    let domain = limit.name.split('/').next().unwrap_or_default();
                    let domain = self.domains.entry(domain.into()).or_insert_with(|| shares.add_domain());
                    shares.bind(id, *domain);
                    self.edition += 1;
                    let (hash, generation) = (hasher.name(&limit.name), Generation::default());
                    new.insert(Entry { id, hash, meter, generation, edition: self.edition })
                }
            };
            let carry = carries.get(&*limit.name).copied().unwrap_or(carry);
            let change = meter.and_then(|meter| entry.change(meter, carry, &mut self.edition));
            let tally = registry.tally(index).map(|number| Place::new(number, owner as usize == place));
            limits.push(LiveLimit {
                plain: meter.and_then(|meter| PlainLimit::new(entry.id, entry.generation, &meter)),
                id: entry.id,
                index,
                owner,
                hash: entry.hash,
                meter,
                period_ns: limit.period_ns,
                generation: entry.generation,
                edition: entry.edition,
                is_shadow: limit.is_shadow,
                is_enforced_here: !limit.is_shadow && limit.stored.is_none(),
                lends: true,
                group: NO_GROUP,
                tally,
                change,
            });
        }
        Live::new(snapshot, version, ahead, limits.into())
    }

    /// The index of a limit's name, which it may get now.
    fn index_of(&mut self, limit: &CompiledLimit, registry: &Registry) -> u32 {
        if let Some(index) = self.indices.get(&*limit.name) {
            return *index;
        }
        let tally = (!limit.is_of_a_client()).then_some(self.tallied);
        self.tallied += u32::from(tally.is_some());
        let text = Arc::<str>::from(&*limit.name);
        let index = registry.names.push(Name { text: Arc::clone(&text), tally }) as u32;
        self.indices.insert(text, index);
        index
    }
}

impl Entry {
    fn change(&mut self, to: Meter, carry: Carry, edition: &mut u64) -> Option<Change> {
        let from = self.meter.replace(to).filter(|from| *from != to)?;
        self.generation = self.generation.next();
        *edition += 1;
        self.edition = *edition;
        Some(Change { from, to, at: 0, carry })
    }
}
