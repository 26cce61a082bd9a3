//! The policy in force: its limits, bound to their ids and to the numbers that they had before.

use std::sync::Arc;

use crate::{
    algorithm::{Carry, Meter},
    base::time::Nanos,
    engine::{fast_path::PlainLimit, names::KNOWN_LIMITS_MAX},
    policy::compiled::Snapshot,
    storage::{
        caller_groups::{Group, NO_GROUP},
        counters::Place,
        layout::{Generation, Held, RingWord},
        log_pool::{Lost, Rings, Spare},
        striping::without_reserve,
        table::Table,
    },
};

/// The last id is not for policies, whose ids are given from 0 upwards: see [`ActiveLimit::alone`].
const ALONE: u32 = KNOWN_LIMITS_MAX as u32;

/// Place of a publish among all of an engine, so that the newer of two is known: its version, and above that how often
/// versions were counted anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PolicyOrder(pub(crate) u64);

impl PolicyOrder {
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
pub(crate) struct ActivePolicy {
    pub(crate) snapshot: Arc<Snapshot>,
    /// A [`PolicyOrder`].
    pub(crate) version: u64,
    /// How far the clock is ahead of the wall time that its windows are bound to.
    pub(crate) ahead: u64,
    /// In the places of [`Snapshot::limits`].
    pub(crate) limits: Box<[ActiveLimit]>,
    /// By id, its place; for limits that the snapshot does not have, a place beyond the end.
    places: Box<[u32]>,
}

impl ActivePolicy {
    /// The state before the first publish.
    pub(crate) fn nothing() -> Self {
        Self::new(Arc::default(), 0, 0, Box::default())
    }

    pub(super) fn new(snapshot: Arc<Snapshot>, version: u64, ahead: u64, limits: Box<[ActiveLimit]>) -> Self {
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
    pub(super) fn has(&self, id: u32) -> bool {
        self.places.get(id as usize).is_some_and(|&place| (place as usize) < self.limits.len())
    }
}

#[derive(Debug)]
pub(crate) struct ActiveLimit {
    /// The fast path to its keys, if there is one; also of a shadow, and of a limit that a store keeps.
    pub(crate) plain: Option<PlainLimit>,
    /// In the tags of its slots: of this name for as long as a [`ActivePolicy`] has it.
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
    pub(crate) counter: Option<Place>,
    /// How this publish changed its numbers, if it did.
    pub(super) change: Option<MeterChange>,
}

/// One change of a limit's numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct MeterChange {
    pub(super) from: Meter,
    pub(super) to: Meter,
    /// When it came into force.
    pub(super) at: Nanos,
    pub(super) carry: Carry,
}

/// A bucket was written under a newer snapshot than the one at hand, or has just changed: to be tried again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StaleSnapshot;

/// Why a bucket cannot be brought to the numbers of a snapshot.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ConversionError {
    /// It is of other numbers than those of the snapshot and those before.
    Stray,
    /// Its slot has changed meanwhile.
    Lost,
}

impl ActiveLimit {
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
            counter: None,
            change: None,
        }
    }

    /// Where its decisions are counted that it makes alone.
    #[inline(always)]
    pub(crate) fn owner_counter(&self) -> Option<Place> {
        self.counter.map(Place::for_owner)
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
    pub(crate) fn current(
        &self,
        held: Held,
        rings: &Rings,
        read_clock: impl Fn() -> Nanos,
    ) -> Result<u64, ConversionError> {
        if held.generation == self.generation { Ok(held.word) } else { self.converted(held, rings, read_clock) }
    }

    #[cold]
    fn converted(&self, held: Held, rings: &Rings, read_clock: impl Fn() -> Nanos) -> Result<u64, ConversionError> {
        let is_before = held.generation.next() == self.generation;
        let change = self.change.as_ref().filter(|_| is_before).ok_or(ConversionError::Stray)?;
        let word = match (held.ring(), change.from) {
            (Some(ring), Meter::SlidingWindowLog(log)) => {
                // Lost: the slot is another's by now, or was converted.
                let seen =
                    rings.ring(ring.ring(), log.capacity()).look(change.at, 0).map_err(|Lost| ConversionError::Lost)?;
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
