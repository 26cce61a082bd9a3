//! What outlives snapshots: the names of limits, and how their numbers changed.

use std::{collections::HashMap, fmt, sync::Arc};

use crate::{
    algorithm::{Carry, Meter},
    hash::KeyHasher,
    lease::without_reserve,
    publish::Publish,
    ring::{Lost, Rings, Spare},
    shares::Shares,
    snapshot::{CompiledLimit, Snapshot},
    sync::Gauge,
    table::Table,
    tally::Place,
    time::Nanos,
    word::{Generation, Held, LIMITS_MAX, RingWord},
};

/// The last index is not for policies, whose indices are given from 0 upwards: see [`LiveLimit::alone`].
const NAMES_MAX: usize = LIMITS_MAX - 1;
const ALONE: u32 = NAMES_MAX as u32;
/// As decisions name the limit whose numbers came with the request.
const OVERRIDE: &str = "override";

/// Every limit that the engine ever knew, by index. Grows only, is read without a lock.
pub(crate) struct Registry {
    limits: boxcar::Vec<Registered>,
    /// Has the index [`ALONE`].
    alone: Registered,
}

/// Index of a limit in its engine, the same over all publishes.
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
struct Registered {
    name: Box<str>,
    /// Number under which its decisions are counted; `None` for a limit of a single client.
    tally: Option<u32>,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // There may be a hundred thousand, and every decision leads here.
        f.debug_struct("Registry").field("limits", &self.limits.count()).finish_non_exhaustive()
    }
}

impl Registry {
    pub(crate) fn new() -> Self {
        let alone = Registered { name: OVERRIDE.into(), tally: None };
        Self { limits: boxcar::Vec::new(), alone }
    }

    pub(crate) fn name(&self, limit: u32) -> &str {
        &self.of(limit).name
    }

    /// Number under which the decisions of `limit` are counted, if they are.
    pub(crate) fn tally(&self, limit: u32) -> Option<u32> {
        self.of(limit).tally
    }

    fn of(&self, limit: u32) -> &Registered {
        self.limits.get(limit as usize).unwrap_or(&self.alone)
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
}

/// A snapshot in an engine: its limits bound to their indices and histories.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) snapshot: Arc<Snapshot>,
    /// An [`Order`].
    pub(crate) version: u64,
    /// In the places of [`Snapshot::limits`].
    pub(crate) limits: Box<[LiveLimit]>,
    /// By index, its place; for limits that the snapshot does not have, a place beyond the end.
    places: Box<[u32]>,
}

impl Live {
    /// The state before the first publish.
    pub(crate) fn nothing() -> Self {
        Self::new(Arc::default(), 0, Box::default())
    }

    fn new(snapshot: Arc<Snapshot>, version: u64, limits: Box<[LiveLimit]>) -> Self {
        let indices = limits.iter().map(|limit| limit.index + 1).max().unwrap_or(0);
        let mut places = vec![u32::MAX; indices as usize].into_boxed_slice();
        for (place, limit) in limits.iter().enumerate() {
            places[limit.index as usize] = place as u32;
        }
        Self { snapshot, version, limits, places }
    }

    /// Sets the instant of its changes.
    pub(crate) fn comes_into_force(&mut self, at: Nanos) {
        for change in self.limits.iter_mut().filter_map(|limit| limit.change.as_mut()) {
            change.at = at;
        }
    }

    /// Where the limit with this index is, if the snapshot has it.
    pub(crate) fn place_of(&self, index: u32) -> Option<u32> {
        self.places.get(index as usize).copied().filter(|&place| (place as usize) < self.limits.len())
    }
}

#[derive(Debug)]
pub(crate) struct LiveLimit {
    pub(crate) index: u32,
    /// Place of the first limit of its tier, rule or client.
    pub(crate) owner: u32,
    /// Of the full name.
    pub(crate) hash: u64,
    /// `None`: it admits nothing.
    pub(crate) meter: Option<Meter>,
    pub(crate) generation: Generation,
    /// How often its numbers changed: as the generation, but it never comes round.
    pub(crate) changes: u64,
    /// Evaluated and counted, but it never denies.
    pub(crate) is_shadow: bool,
    /// Enforced, and kept on this node alone.
    pub(crate) is_plain: bool,
    /// May its keys have leases? Those are of one set of numbers.
    pub(crate) lends: bool,
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

/// A bucket was written under a newer snapshot than the one at hand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Newer;

impl LiveLimit {
    /// The limit of no policy: a limiter's only one, or that of requests that bring their own numbers. No publish changes it.
    pub(crate) fn alone(meter: Option<Meter>) -> Self {
        let generation = Generation::default();
        Self {
            index: ALONE,
            owner: 0,
            hash: 0,
            meter,
            generation,
            changes: 0,
            is_shadow: false,
            is_plain: true,
            lends: true,
            tally: None,
            change: None,
        }
    }

    /// Where its decisions are counted that it makes alone.
    #[inline(always)]
    pub(crate) fn tally_alone(&self) -> Option<Place> {
        self.tally.map(Place::for_owner)
    }

    /// The same limit, where another meter steps over its words.
    #[cfg(feature = "wait")]
    pub(crate) fn with_meter(&self, meter: Meter) -> Self {
        Self { meter: Some(meter), ..*self }
    }

    /// The same limit, whose numbers come with each check.
    pub(crate) fn rated(&self, meter: Option<Meter>) -> Self {
        Self { meter, lends: false, ..*self }
    }

    /// The word of a bucket under this snapshot's numbers: one of before the change is converted as of its instant.
    ///
    /// Only for a snapshot that was still the newest after the bucket was read. A publish ends with a sweep that converts
    /// what is left, so there are no older ones.
    #[inline(always)]
    pub(crate) fn current(&self, held: Held, rings: &Rings, read_clock: impl Fn() -> Nanos) -> Result<u64, Newer> {
        if held.generation == self.generation { Ok(held.word) } else { self.converted(held, rings, read_clock) }
    }

    #[cold]
    fn converted(&self, held: Held, rings: &Rings, read_clock: impl Fn() -> Nanos) -> Result<u64, Newer> {
        let change = self.change.as_ref().filter(|_| held.generation.next() == self.generation).ok_or(Newer)?;
        let word = match (held.ring(), change.from) {
            (Some(ring), Meter::SlidingWindowLog(log)) => {
                // Lost: the slot is another's by now, or was converted.
                let seen = rings.ring(ring.ring(), log.capacity()).look(change.at, 0).map_err(|Lost| Newer)?;
                log.word(log.capacity() - seen.free, seen.last)
            }
            // Stripes may have given tokens after the change's instant: they are paid for now.
            _ if held.is_leased => without_reserve(&change.from, held.word, change.at.max(read_clock())),
            _ => held.word,
        };
        Ok(change.from.carry_over(word, change.at, &change.to, change.carry))
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
        let new = table.take_ring(to.capacity(), change.at)?;
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

/// The state of publishing: what each limit's numbers are and were.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    limits: HashMap<Box<str>, Entry>,
    /// How many of them are counted one by one.
    tallied: u32,
    /// Slots of the table that the limits of a domain hold, by its name.
    domains: HashMap<Box<str>, Arc<Gauge>>,
}

#[derive(Debug)]
struct Entry {
    index: u32,
    hash: u64,
    /// The last numbers that admitted something; a limit of 0 leaves them as they are, and time goes on.
    meter: Option<Meter>,
    generation: Generation,
    /// How often its numbers changed; generations come round again.
    changes: u64,
    tally: Option<u32>,
}

/// A policy that the engine cannot take. Nothing changed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PublishError {
    /// The engine has known as many limits as it can since it started.
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
                "more than {NAMES_MAX} limits with different names since the engine started; restart it, or name fewer"
            ),
            Self::OldVersion { given, present } => {
                write!(f, "version {given} cannot follow version {present}, which is in force")
            }
        }
    }
}

impl std::error::Error for PublishError {}

impl Ledger {
    /// How many limits are counted one by one.
    pub(crate) fn tallied(&self) -> usize {
        self.tallied as usize
    }

    pub(crate) fn has_room_for(&self, snapshot: &Snapshot) -> Result<(), PublishError> {
        let new = snapshot.limits.iter().filter(|limit| !self.limits.contains_key(&limit.name)).count();
        if self.limits.len() + new > NAMES_MAX { Err(PublishError::TooManyLimits) } else { Ok(()) }
    }

    /// Binds a policy, as `version`.
    pub(crate) fn bind(
        &mut self,
        Publish { snapshot, carry, carries, .. }: Publish,
        version: u64,
        hasher: &KeyHasher,
        registry: &Registry,
        shares: &Shares,
    ) -> Result<Live, PublishError> {
        self.has_room_for(&snapshot)?;
        let mut owner = 0;
        let bind = |(place, limit): (usize, &CompiledLimit)| {
            // Those of one owner stand together.
            if limit.owner_name() != snapshot.limits[owner as usize].owner_name() {
                owner = place as u32;
            }
            let entry = self.limits.entry(limit.name.clone()).or_insert_with(|| {
                let tally = (!limit.is_of_a_client()).then_some(self.tallied);
                self.tallied += u32::from(tally.is_some());
                let domain = limit.name.split('/').next().unwrap_or_default();
                let place = shares.add(self.domains.entry(domain.into()).or_default());
                let index = registry.limits.push(Registered { name: limit.name.clone(), tally });
                debug_assert_eq!(place, index);
                Entry {
                    index: index as u32,
                    hash: hasher.name(&limit.name),
                    meter: limit.meter,
                    generation: Generation::default(),
                    changes: 0,
                    tally,
                }
            });
            let carry = carries.get(&*limit.name).copied().unwrap_or(carry);
            let change = limit.meter.and_then(|meter| entry.change(meter, carry));
            LiveLimit {
                index: entry.index,
                owner,
                hash: entry.hash,
                meter: limit.meter,
                generation: entry.generation,
                changes: entry.changes,
                is_shadow: limit.is_shadow,
                is_plain: !limit.is_shadow && limit.stored.is_none(),
                lends: true,
                tally: entry.tally.map(|number| Place::new(number, owner as usize == place)),
                change,
            }
        };
        let limits = snapshot.limits.iter().enumerate().map(bind).collect();
        Ok(Live::new(snapshot, version, limits))
    }
}

impl Entry {
    fn change(&mut self, to: Meter, carry: Carry) -> Option<Change> {
        let from = self.meter.replace(to).filter(|from| *from != to)?;
        self.generation = self.generation.next();
        self.changes += 1;
        Some(Change { from, to, at: 0, carry })
    }
}
