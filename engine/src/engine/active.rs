//! What outlives snapshots: the names of limits, and how their numbers changed.
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
    base::{atomic::Cell64, hash::KeyHasher, time::Nanos},
    engine::{fast_path::PlainLimit, publish::Publish},
    policy::compiled::{CompiledLimit, Snapshot},
    storage::{
        caller_groups::{Group, NO_GROUP},
        counters::Place,
        layout::{Generation, Held, LIMITS_MAX, RingWord},
        log_pool::{Lost, Rings, Spare},
        shares::Shares,
        striping::without_reserve,
        table::Table,
    },
};

/// How many limits an engine can know at a time: those of the policy in force, and those of earlier ones that it still keeps.
/// [`Engine::known_limits`](crate::Engine::known_limits) says how many it knows.
pub const KNOWN_LIMITS_MAX: usize = LIMITS_MAX - 1;
/// The last id is not for policies, whose ids are given from 0 upwards: see [`LiveLimit::alone`].
const ALONE: u32 = KNOWN_LIMITS_MAX as u32;
/// As decisions name the limit whose numbers came with the request.
const OVERRIDE: &str = "override";

/// Ids are taken back when this part of all has no name in a policy.
const GONE_PART: usize = 16;

/// What is known of limits without a lock: every name that there ever was, by index. Grows only.
pub(crate) struct Registry {
    names: boxcar::Vec<Name>,
    /// Has the id [`ALONE`], and no index.
    alone: Name,
    /// Ids that have a name, as of the last publish.
    known: Cell64,
    /// How far the engine's clock is ahead of wall time, as of the last publish.
    ahead: Cell64,
}

/// Index of a limit in its engine: of its name, so the same over all publishes, and never that of another name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LimitIndex(pub(crate) u32);

impl LimitIndex {
    /// As a place in a list: indices are given from 0 upwards.
    #[must_use]
    pub fn place(self) -> usize {
        self.0 as usize
    }
}

#[derive(Debug)]
struct Name {
    text: Arc<str>,
    /// Number under which its decisions are counted; `None` for a limit of a single client.
    tally: Option<u32>,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // There may be a hundred thousand, and every decision leads here.
        f.debug_struct("Registry").field("names", &self.names.count()).finish_non_exhaustive()
    }
}

impl Registry {
    pub(crate) fn new() -> Self {
        let alone = Name { text: OVERRIDE.into(), tally: None };
        Self { names: boxcar::Vec::new(), alone, known: Cell64::new(0), ahead: Cell64::new(0) }
    }

    /// Wall time at an instant of the engine's clock.
    pub(crate) fn wall(&self, at: Nanos) -> Nanos {
        at.saturating_sub(self.ahead.load())
    }

    /// What a publish leaves: how far the clock is ahead, and how many ids have a name.
    pub(crate) fn published(&self, ahead: u64, known: usize) {
        self.ahead.store(ahead);
        self.known.store(known as u64);
    }

    pub(crate) fn known(&self) -> usize {
        self.known.load() as usize
    }

    /// By index.
    pub(crate) fn name(&self, index: u32) -> &str {
        &self.names.get(index as usize).unwrap_or(&self.alone).text
    }

    /// Number under which the decisions of the limit with this index are counted, if they are.
    pub(crate) fn tally(&self, index: u32) -> Option<u32> {
        self.names.get(index as usize)?.tally
    }
}

/// Place of a publish among all of an engine, so that the newer of two is known: its version, and above that how often
/// versions were counted anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Order(pub(crate) u64);

impl Order {
    const VERSION_BITS: u32 = 53;
    const VERSION: u64 = (1 << Self::VERSION_BITS) - 1;

    pub(crate) fn version(self) -> u64 {
        self.0 & Self::VERSION
    }

    /// That of this version, if it can come next.
    pub(crate) fn followed_by(self, version: u64, is_anew: bool) -> Option<Self> {
        let anew = (self.0 >> Self::VERSION_BITS) + u64::from(is_anew && version <= self.version());
        let next = Self(anew.checked_mul(1 << Self::VERSION_BITS)?.checked_add(version)?);
        (version <= Self::VERSION && next.0 > self.0).then_some(next)
    }

    /// That of the same version, bound to wall time anew. Half of all counts are left for versions that are counted anew.
    pub(crate) fn bound_anew(self) -> Option<Self> {
        self.followed_by(self.version(), true).filter(|next| next.0 >> (u64::BITS - 1) == 0)
    }
}

/// A snapshot in an engine: its limits bound to their indices and histories.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) snapshot: Arc<Snapshot>,
    /// An [`Order`].
    pub(crate) version: u64,
    /// How far the clock is ahead of the wall time that its windows are bound to.
    pub(crate) ahead: u64,
    /// In the places of [`Snapshot::limits`].
    pub(crate) limits: Box<[LiveLimit]>,
    /// By id, its place; for limits that the snapshot does not have, a place beyond the end.
    places: Box<[u32]>,
}

impl Live {
    /// The state before the first publish.
    pub(crate) fn nothing() -> Self {
        Self::new(Arc::default(), 0, 0, Box::default())
    }

    fn new(snapshot: Arc<Snapshot>, version: u64, ahead: u64, limits: Box<[LiveLimit]>) -> Self {
        let ids = limits.iter().map(|limit| limit.id + 1).max().unwrap_or(0);
        let mut places = vec![u32::MAX; ids as usize].into_boxed_slice();
        for (place, limit) in limits.iter().enumerate() {
            places[limit.id as usize] = place as u32;
        }
        Self { snapshot, version, ahead, limits, places }
    }

    /// Wall time at an instant of the clock.
    #[inline(always)]
    pub(crate) fn wall(&self, at: Nanos) -> Nanos {
        at.saturating_sub(self.ahead)
    }

    /// Sets the instant of its changes.
    pub(crate) fn comes_into_force(&mut self, at: Nanos) {
        for change in self.limits.iter_mut().filter_map(|limit| limit.change.as_mut()) {
            change.at = at;
        }
    }

    /// Where the limit is that has this id and this index, if the snapshot has it.
    pub(crate) fn place_of(&self, id: u32, index: u32) -> Option<u32> {
        let place = *self.places.get(id as usize)?;
        self.limits.get(place as usize).filter(|limit| limit.index == index).map(|_| place)
    }

    /// Has it a limit with this id?
    fn has(&self, id: u32) -> bool {
        self.places.get(id as usize).is_some_and(|&place| (place as usize) < self.limits.len())
    }
}

#[derive(Debug)]
pub(crate) struct LiveLimit {
    /// The short way to its keys, if there is one; also of a shadow, and of a limit that a store keeps.
    pub(crate) plain: Option<PlainLimit>,
    /// In the tags of its slots: of this name for as long as a [`Live`] has it.
    pub(crate) id: u32,
    /// Of the name, for ever.
    pub(crate) index: u32,
    /// Place of the first limit of its tier, rule or client.
    pub(crate) owner: u32,
    /// Of the full name.
    pub(crate) hash: u64,
    /// `None`: it admits nothing.
    pub(crate) meter: Option<Meter>,
    /// The length of its period.
    pub(crate) period_ns: u64,
    pub(crate) generation: Generation,
    /// Which numbers these are, of all that the engine's limits ever had.
    pub(crate) edition: u64,
    /// Evaluated and counted, but it never denies.
    pub(crate) is_shadow: bool,
    /// Enforced, and kept on this node alone.
    pub(crate) is_enforced_here: bool,
    /// May its keys have leases? Those are of one set of numbers.
    pub(crate) lends: bool,
    /// The group of the caller, where the numbers come with each check.
    pub(crate) group: Group,
    /// Where its decisions are counted with those of others of its tier or rule; `None` for a limit of a single client.
    pub(crate) tally: Option<Place>,
    /// How this publish changed its numbers, if it did.
    change: Option<Change>,
}

/// One change of a limit's numbers.
#[derive(Clone, Copy, Debug)]
struct Change {
    from: Meter,
    to: Meter,
    /// When it came into force.
    at: Nanos,
    carry: Carry,
}

/// A bucket was written under a newer snapshot than the one at hand, or has just changed: to be tried again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Newer;

/// Why a bucket cannot be brought to the numbers of a snapshot.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unlike {
    /// It is of other numbers than those of the snapshot and those before.
    Stray,
    /// Its slot has changed meanwhile.
    Lost,
}

impl LiveLimit {
    /// The limit of no policy: a limiter's only one, or that of requests that bring their own numbers. No publish changes it.
    pub(crate) fn alone(meter: Option<Meter>) -> Self {
        let generation = Generation::default();
        Self {
            plain: meter.and_then(|meter| PlainLimit::new(ALONE, generation, &meter)),
            id: ALONE,
            index: u32::MAX,
            owner: 0,
            hash: 0,
            meter,
            period_ns: 0,
            generation,
            edition: 0,
            is_shadow: false,
            is_enforced_here: true,
            lends: true,
            group: NO_GROUP,
            tally: None,
            change: None,
        }
    }

    /// Where its decisions are counted that it makes alone.
    #[inline(always)]
    pub(crate) fn tally_alone(&self) -> Option<Place> {
        self.tally.map(Place::for_owner)
    }

    /// The same limit, where another meter of the same algorithm steps over its words.
    #[cfg(feature = "wait")]
    pub(crate) fn with_meter(&self, meter: Meter) -> Self {
        Self { meter: Some(meter), ..*self }
    }

    /// The same limit, whose numbers come with each check of a caller of this group.
    pub(crate) fn rated(&self, meter: Option<Meter>, group: Group) -> Self {
        let plain = meter.and_then(|meter| PlainLimit::new(self.id, self.generation, &meter));
        Self { plain, meter, lends: false, group, ..*self }
    }

    /// The same limit, which shows this period where it admits nothing.
    pub(crate) fn with_period(self, period_ns: u64) -> Self {
        Self { period_ns, ..self }
    }

    /// The word of a bucket under this snapshot's numbers: one of before the change is converted as of its instant.
    ///
    /// Only for a snapshot that was still the newest after the bucket was read. A publish ends with a sweep that converts
    /// what is left, so there are no older ones.
    #[inline(always)]
    pub(crate) fn current(&self, held: Held, rings: &Rings, read_clock: impl Fn() -> Nanos) -> Result<u64, Unlike> {
        if held.generation == self.generation { Ok(held.word) } else { self.converted(held, rings, read_clock) }
    }

    #[cold]
    fn converted(&self, held: Held, rings: &Rings, read_clock: impl Fn() -> Nanos) -> Result<u64, Unlike> {
        let is_before = held.generation.next() == self.generation;
        let change = self.change.as_ref().filter(|_| is_before).ok_or(Unlike::Stray)?;
        let word = match (held.ring(), change.from) {
            (Some(ring), Meter::SlidingWindowLog(log)) => {
                // Lost: the slot is another's by now, or was converted.
                let seen = rings.ring(ring.ring(), log.capacity()).look(change.at, 0).map_err(|Lost| Unlike::Lost)?;
                log.word(log.capacity() - seen.free, seen.last)
            }
            // Stripes may have given tokens after the change's instant: they are paid for now.
            _ if held.is_leased => without_reserve(&change.from, held.word, change.at.max(read_clock())),
            _ => held.word,
        };
        Ok(change.from.carry_over(word, change.at, &change.to, change.carry))
    }

    /// Returns a bucket of unknown numbers under this snapshot's. What was used of it is not known either: all of the quota, unless
    /// the bucket is idle.
    #[cold]
    pub(crate) fn settled(&self, held: Held, now: Nanos) -> Held {
        let used = self.meter.filter(|_| held.word > now).map_or(0, |meter| meter.overcharge(0, now, meter.capacity()));
        Held::word(self.generation, used)
    }

    /// The ring of a bucket under this snapshot's numbers.
    pub(crate) fn ring(&self, held: Held) -> Option<RingWord> {
        held.ring().filter(|_| held.generation == self.generation)
    }

    /// What must be swapped in before a bucket of before the change is converted: a ring that is open may be claimed from
    /// while it is read.
    #[inline(always)]
    pub(crate) fn to_close(&self, held: Held) -> Option<Held> {
        if held.generation == self.generation {
            return None;
        }
        let ring = held.ring().filter(|ring| !ring.is_closed())?;
        Some(Held::with_ring(held.generation, ring.closed()))
    }

    /// As [`current`](Self::current), for a closed ring of before whose instants all count on: used quota is kept, and the
    /// period is the same. The answer names `spare`. `None` where it is not so, and where no ring is to be had; then the
    /// ring is squeezed into a word.
    #[inline(always)]
    pub(crate) fn in_new_ring<'r>(&self, held: Held, table: &'r Table, spare: &mut Option<Spare<'r>>) -> Option<Held> {
        let ring = held.ring().filter(|ring| ring.is_closed())?;
        let change = self.change.as_ref().filter(|_| held.generation.next() == self.generation)?;
        let (Meter::SlidingWindowLog(from), Meter::SlidingWindowLog(to)) = (change.from, change.to) else {
            return None;
        };
        if change.carry != Carry::Keep || !from.has_period_of(&to) {
            return None;
        }
        let new = table.take_ring(self.id, to.capacity(), change.at)?;
        // Lost: as above.
        let (id, until) = table.rings.ring(ring.ring(), from.capacity()).copy(change.at, &new).ok()?;
        *spare = Some(new);
        Some(Held::with_ring(self.generation, RingWord::new(id, until)))
    }

    /// Must the buckets be converted?
    pub(crate) fn has_changed(&self) -> bool {
        self.change.is_some()
    }
}

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
