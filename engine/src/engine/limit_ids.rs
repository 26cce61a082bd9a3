//! `LimitIds`: assigns indices and ids to the limits of each policy, and keeps the numbers that each limit had last.
//!
//! # Names and ids
//!
//! A limit has two numbers. Its *index* belongs to its name and is never given to another name: a record of a decision
//! names the right limit for as long as the engine lives. Its *id*, one of 2^20, is what the tags of its slots carry.
//! An id goes to another name when the name that has it is in no policy any more. The invariant: **everything that a
//! slot or an overflow bucket with an id holds was written for the name that has the id.** It holds because an id is
//! taken back in this order:
//!
//! 1. Every [`ActivePolicy`] with the id is freed: the publisher keeps those that were in force until it holds the last
//!    reference. A check, a handle and a pending check hold the [`ActivePolicy`] by which they work, so none can read
//!    or write a slot with the id any more, however long it stalls. (A reservation holds none; when it is settled, the
//!    engine compares the index of the id.)
//! 2. Leases of the id are ended, and its slots and overflow buckets are emptied, by compare-and-swap, because keys of
//!    other limits may take an idle slot meanwhile.
//! 3. The id is free for a new name.
//!
//! Ids whose keys are all idle are taken back first: nothing is lost by that. If a policy needs more, the oldest names
//! lose what was used of them. Otherwise a name that comes back finds its buckets as they were.

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    sync::Arc,
};

use crate::{
    algorithm::{Carry, Meter},
    base::hash::KeyHasher,
    engine::{
        active_policy::{ActiveLimit, ActivePolicy, MeterChange},
        fast_path::FastPathLimit,
        names::{KNOWN_LIMITS_MAX, LimitName, LimitNames},
        publish_args::Publish,
    },
    policy::compiled::{CompiledLimit, Snapshot},
    storage::{caller_groups::NO_GROUP, counters::CounterIndex, layout::Generation, table_shares::SlotShares},
};

/// The engine looks for ids to take back when one in this many belongs to no name of the policy.
const RECLAIMED_PART: usize = 16;

/// The names that limits ever had, the ids of those that have one, and the last numbers of each.
#[derive(Debug)]
pub(crate) struct LimitIds {
    /// The index of every name that there ever was.
    indices: HashMap<Arc<str>, u32>,
    /// The limits that have an id, by index.
    bound: HashMap<u32, BoundLimit>,
    /// The ids that were taken back.
    free: Vec<u32>,
    /// The most ids that may be given.
    ids_max: usize,
    /// The number of ids without a name in the policy that the last search left.
    unused_after_scan: usize,
    /// The number of names whose decisions are counted one by one.
    counted: u32,
    /// The newest of all editions.
    edition: u64,
    /// The number of a domain, by its name.
    domains: HashMap<Box<str>, u32>,
}

impl Default for LimitIds {
    fn default() -> Self {
        Self::with_capacity(KNOWN_LIMITS_MAX)
    }
}

#[derive(Debug)]
struct BoundLimit {
    id: u32,
    hash: u64,
    /// The last numbers that admitted something. A limit of 0 leaves them as they are, and time goes on.
    meter: Option<Meter>,
    generation: Generation,
    edition: u64,
}

impl LimitIds {
    /// Returns a state with room for this many limits at a time.
    pub(crate) fn with_capacity(ids_max: usize) -> Self {
        let (indices, bound, domains) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self { indices, bound, free: Vec::new(), ids_max, unused_after_scan: 0, counted: 0, edition: 0, domains }
    }

    /// Returns the number of limits whose decisions are counted one by one.
    pub(crate) fn counted(&self) -> usize {
        self.counted as usize
    }

    /// Returns the number of ids that have a name.
    pub(crate) fn known(&self) -> usize {
        self.bound.len()
    }

    fn is_bound(&self, name: &str) -> bool {
        self.indices.get(name).is_some_and(|index| self.bound.contains_key(index))
    }

    /// Returns the number of ids that a policy needs beyond those that are free.
    pub(crate) fn lacking(&self, snapshot: &Snapshot) -> usize {
        let new = snapshot.limits.iter().filter(|limit| !self.is_bound(&limit.name)).count();
        (self.bound.len() + new).saturating_sub(self.ids_max)
    }

    /// Returns whether to look for ids to take back. `active` is in force.
    pub(crate) fn has_enough_unused(&self, active: &ActivePolicy) -> bool {
        self.unused(active) >= self.unused_after_scan + (self.ids_max / RECLAIMED_PART).max(1)
    }

    /// Returns the number of ids whose name is not in `active`, which is in force.
    fn unused(&self, active: &ActivePolicy) -> usize {
        self.bound.len().saturating_sub(active.limits.len())
    }

    /// Returns the ids that can be taken back before `snapshot` is published, those of the oldest names first: neither
    /// `active`, which is in force, nor one of `retired` has them, and the snapshot does not have their names.
    pub(crate) fn unreachable(
        &self,
        snapshot: &Snapshot,
        active: &ActivePolicy,
        retired: &[Arc<ActivePolicy>],
    ) -> Vec<u32> {
        let wanted: HashSet<u32> =
            snapshot.limits.iter().filter_map(|limit| self.indices.get(&*limit.name).copied()).collect();
        let is_held = |id| active.has_id(id) || retired.iter().any(|active| active.has_id(id));
        let unreachable = self.bound.iter().filter(|(index, entry)| !wanted.contains(*index) && !is_held(entry.id));
        let mut unreachable: Vec<(u32, u32)> = unreachable.map(|(index, entry)| (*index, entry.id)).collect();
        unreachable.sort_unstable();
        unreachable.into_iter().map(|(_, id)| id).collect()
    }

    /// Frees ids whose slots are empty.
    pub(crate) fn release(&mut self, ids: &HashSet<u32>) {
        self.bound.retain(|_, entry| !ids.contains(&entry.id));
        self.free.extend(ids);
    }

    /// Notes that no more ids are to be taken back for now. `active` is in force.
    pub(crate) fn note_scan(&mut self, active: &ActivePolicy) {
        self.unused_after_scan = self.unused(active);
    }

    /// Binds a policy as `version`, by a clock that is `ahead` of wall time by this much. There must be
    /// [room](Self::lacking) for it.
    pub(crate) fn bind(
        &mut self,
        Publish { snapshot, carry, carries, .. }: Publish,
        version: u64,
        ahead: u64,
        hasher: &KeyHasher,
        names: &LimitNames,
        shares: &SlotShares,
    ) -> ActivePolicy {
        let mut owner = 0;
        let mut limits = Vec::with_capacity(snapshot.limits.len());
        for (place, limit) in snapshot.limits.iter().enumerate() {
            // The limits of one owner stand together.
            if limit.owner_name() != snapshot.limits[owner as usize].owner_name() {
                owner = place as u32;
            }
            let meter = limit.meter.map(|meter| meter.ahead_of_wall(ahead));
            let index = self.index_of(limit, names);
            let entry = match self.bound.entry(index) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => {
                    let id = self.free.pop().unwrap_or_else(|| shares.add());
                    let domain = limit.name.split('/').next().unwrap_or_default();
                    let domain = self.domains.entry(domain.into()).or_insert_with(|| shares.add_domain());
                    shares.bind(id, *domain);
                    self.edition += 1;
                    let (hash, generation) = (hasher.name(&limit.name), Generation::default());
                    new.insert(BoundLimit { id, hash, meter, generation, edition: self.edition })
                }
            };
            let carry = carries.get(&*limit.name).copied().unwrap_or(carry);
            let change = meter.and_then(|meter| entry.change(meter, carry, &mut self.edition));
            let counter = names.counter(index).map(|number| CounterIndex::new(number, owner as usize == place));
            limits.push(ActiveLimit {
                fast_path: meter.and_then(|meter| FastPathLimit::new(entry.id, entry.generation, &meter)),
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
                can_stripe: true,
                group: NO_GROUP,
                counter,
                change,
            });
        }
        ActivePolicy::new(snapshot, version, ahead, limits.into())
    }

    /// Returns the index of a limit's name, and assigns one to a new name.
    fn index_of(&mut self, limit: &CompiledLimit, names: &LimitNames) -> u32 {
        if let Some(index) = self.indices.get(&*limit.name) {
            return *index;
        }
        let counter = (!limit.is_of_a_client()).then_some(self.counted);
        self.counted += u32::from(counter.is_some());
        let text = Arc::<str>::from(&*limit.name);
        let index = names.names.push(LimitName { text: Arc::clone(&text), counter }) as u32;
        self.indices.insert(text, index);
        index
    }
}

impl BoundLimit {
    fn change(&mut self, to: Meter, carry: Carry, edition: &mut u64) -> Option<MeterChange> {
        let from = self.meter.replace(to).filter(|from| *from != to)?;
        self.generation = self.generation.next();
        *edition += 1;
        self.edition = *edition;
        Some(MeterChange { from, to, at: 0, carry })
    }
}
