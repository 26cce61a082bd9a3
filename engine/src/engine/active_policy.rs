//! `ActivePolicy`: the policy in force, with each limit bound to its id and to the numbers that it had before.

use std::sync::Arc;

use crate::{
    algorithm::{Carry, Meter},
    base::time::Nanos,
    engine::{fast_path::FastPathLimit, names::KNOWN_LIMITS_MAX},
    policy::compiled::Snapshot,
    storage::{
        caller_groups::{CallerGroup, NO_GROUP},
        counters::CounterIndex,
        layout::{BucketState, Generation, RingWord},
        log_pool::{LogPool, RingLost, SpareRing},
        striping::with_reserve_used,
        table::Table,
    },
};

/// The last id, which no policy uses: policies get their ids from 0 upwards. See [`ActiveLimit::without_policy`].
const NO_POLICY_ID: u32 = KNOWN_LIMITS_MAX as u32;

/// The rank of a publish among all publishes of an engine: the version, and in the bits above it how often version
/// numbers started over. The newer of two publishes has the larger rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PolicyOrder(pub(crate) u64);

impl PolicyOrder {
    const VERSION_BITS: u32 = 53;
    const VERSION: u64 = (1 << Self::VERSION_BITS) - 1;

    pub(crate) fn version(self) -> u64 {
        self.0 & Self::VERSION
    }

    /// Returns the rank of this version, if it can follow.
    pub(crate) fn followed_by(self, version: u64, is_anew: bool) -> Option<Self> {
        let anew = (self.0 >> Self::VERSION_BITS) + u64::from(is_anew && version <= self.version());
        let next = Self(anew.checked_mul(1 << Self::VERSION_BITS)?.checked_add(version)?);
        (version <= Self::VERSION && next.0 > self.0).then_some(next)
    }

    /// Returns the rank of the same version bound to wall time again. Half of all counts are left for version numbers
    /// that start over.
    pub(crate) fn bound_anew(self) -> Option<Self> {
        self.followed_by(self.version(), true).filter(|next| next.0 >> (u64::BITS - 1) == 0)
    }
}

/// A snapshot in an engine, with its limits bound to their indices and histories.
#[derive(Debug)]
pub(crate) struct ActivePolicy {
    pub(crate) snapshot: Arc<Snapshot>,
    /// A [`PolicyOrder`].
    pub(crate) version: u64,
    /// The time by which the clock is ahead of the wall time that its windows are bound to.
    pub(crate) ahead: u64,
    /// The limits, in the places of [`Snapshot::limits`].
    pub(crate) limits: Box<[ActiveLimit]>,
    /// The place of each limit, by id; a place beyond the end for ids that the snapshot does not have.
    places: Box<[u32]>,
}

impl ActivePolicy {
    /// Returns the state before the first publish.
    pub(crate) fn empty() -> Self {
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

    /// Returns the wall time at an instant of the clock.
    #[inline(always)]
    pub(crate) fn wall(&self, at: Nanos) -> Nanos {
        at.saturating_sub(self.ahead)
    }

    /// Sets the instant at which the changes of its limits came into force.
    pub(crate) fn set_change_time(&mut self, at: Nanos) {
        for change in self.limits.iter_mut().filter_map(|limit| limit.change.as_mut()) {
            change.at = at;
        }
    }

    /// Returns the place of the limit that has this id and this index, if the snapshot has it.
    pub(crate) fn place_of(&self, id: u32, index: u32) -> Option<u32> {
        let place = *self.places.get(id as usize)?;
        self.limits.get(place as usize).filter(|limit| limit.index == index).map(|_| place)
    }

    /// Returns whether a limit of the snapshot has this id.
    pub(super) fn has_id(&self, id: u32) -> bool {
        self.places.get(id as usize).is_some_and(|&place| (place as usize) < self.limits.len())
    }
}

/// A limit of the policy in force, or of a limiter without a policy.
#[derive(Debug)]
pub(crate) struct ActiveLimit {
    /// The data that the fast path needs, for every algorithm but a log. Also set for a shadow, and for a limit that a
    /// store keeps.
    pub(crate) fast_path: Option<FastPathLimit>,
    /// The id that the tags of its slots carry. It belongs to this name for as long as an [`ActivePolicy`] has it.
    pub(crate) id: u32,
    /// The index of its name, which never changes.
    pub(crate) index: u32,
    /// The place of the first limit of its tier, rule or client.
    pub(crate) owner: u32,
    /// The hash of its full name.
    pub(crate) hash: u64,
    /// The numbers of the limit; `None` if it admits nothing.
    pub(crate) meter: Option<Meter>,
    /// The length of its period.
    pub(crate) period_ns: u64,
    pub(crate) generation: Generation,
    /// The edition of its numbers: each change of any limit's numbers has a new one.
    pub(crate) edition: u64,
    /// Whether it is evaluated and counted, but never denies.
    pub(crate) is_shadow: bool,
    /// Whether it is enforced and kept on this node alone.
    pub(crate) is_enforced_here: bool,
    /// Whether its keys may be striped, which belongs to one set of numbers.
    pub(crate) can_stripe: bool,
    /// The group of the caller, where the numbers come with each check.
    pub(crate) group: CallerGroup,
    /// The counter of its decisions, beside the others of its tier or rule; `None` for a limit of a single client.
    pub(crate) counter: Option<CounterIndex>,
    /// The change of its numbers by this publish, if there was one.
    pub(super) change: Option<MeterChange>,
}

/// One change of a limit's numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct MeterChange {
    pub(super) from: Meter,
    pub(super) to: Meter,
    /// The instant at which it came into force.
    pub(super) at: Nanos,
    pub(super) carry: Carry,
}

/// An error: the bucket was written under a newer snapshot than the one at hand, or has just changed. The caller tries
/// again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StaleSnapshot;

/// The result of an attempt under a snapshot that may be stale by now.
pub(crate) type SnapshotResult<T> = Result<T, StaleSnapshot>;

/// The reason why a bucket cannot be brought to the numbers of a snapshot.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ConversionError {
    /// The bucket has other numbers than those of the snapshot and those before them.
    Stray,
    /// The slot has changed meanwhile.
    Lost,
}

impl ActiveLimit {
    /// Returns a limit of no policy: the only one of a limiter, or that of requests that bring their own numbers. No
    /// publish changes it.
    pub(crate) fn without_policy(meter: Option<Meter>) -> Self {
        let generation = Generation::default();
        Self {
            fast_path: meter.and_then(|meter| FastPathLimit::new(NO_POLICY_ID, generation, &meter)),
            id: NO_POLICY_ID,
            index: u32::MAX,
            owner: 0,
            hash: 0,
            meter,
            period_ns: 0,
            generation,
            edition: 0,
            is_shadow: false,
            is_enforced_here: true,
            can_stripe: true,
            group: NO_GROUP,
            counter: None,
            change: None,
        }
    }

    /// Returns the counter of the decisions that it makes alone.
    #[inline(always)]
    pub(crate) fn owner_counter(&self) -> Option<CounterIndex> {
        self.counter.map(CounterIndex::for_owner)
    }

    /// Returns the same limit with another meter of the same algorithm.
    #[cfg(feature = "wait")]
    pub(crate) fn with_meter(&self, meter: Meter) -> Self {
        Self { meter: Some(meter), ..*self }
    }

    /// Returns the same limit with numbers that came with a check, for a caller of this group.
    pub(crate) fn rated(&self, meter: Option<Meter>, group: CallerGroup) -> Self {
        let fast_path = meter.and_then(|meter| FastPathLimit::new(self.id, self.generation, &meter));
        Self { fast_path, meter, can_stripe: false, group, ..*self }
    }

    /// Returns the word of a bucket under this snapshot's numbers. A bucket from before the change is converted as of
    /// the change's instant.
    ///
    /// Only for a snapshot that was still the newest after the bucket was read. A publish ends with a sweep that
    /// converts what is left, so there are no older buckets.
    #[inline(always)]
    pub(crate) fn current(
        &self,
        held: BucketState,
        rings: &LogPool,
        read_clock: impl Fn() -> Nanos,
    ) -> Result<u64, ConversionError> {
        if held.generation == self.generation { Ok(held.word) } else { self.converted(held, rings, read_clock) }
    }

    #[cold]
    fn converted(
        &self,
        held: BucketState,
        rings: &LogPool,
        read_clock: impl Fn() -> Nanos,
    ) -> Result<u64, ConversionError> {
        let is_before = held.generation.next() == self.generation;
        let change = self.change.as_ref().filter(|_| is_before).ok_or(ConversionError::Stray)?;
        let word = match (held.ring(), change.from) {
            (Some(ring), Meter::SlidingWindowLog(log)) => {
                // Lost: the slot is another key's by now, or was converted.
                let seen = rings
                    .ring(ring.ring(), log.capacity())
                    .look(change.at, 0)
                    .map_err(|RingLost| ConversionError::Lost)?;
                log.word(log.capacity() - seen.free, seen.last)
            }
            // Stripes may have given tokens after the change's instant: they are paid for now.
            _ if held.is_striped => with_reserve_used(&change.from, held.word, change.at.max(read_clock())),
            _ => held.word,
        };
        Ok(change.from.carry_over(word, change.at, &change.to, change.carry))
    }

    /// Returns the bucket that replaces a stray one, whose numbers are unknown, under this snapshot's. What was used of
    /// it is unknown too: all of the quota counts as used, unless the bucket is idle.
    #[cold]
    pub(crate) fn replacement_for_stray(&self, held: BucketState, now: Nanos) -> BucketState {
        let used = self.meter.filter(|_| held.word > now).map_or(0, |meter| meter.overcharge(0, now, meter.capacity()));
        BucketState::word(self.generation, used)
    }

    /// Returns the ring of a bucket under this snapshot's numbers.
    pub(crate) fn ring(&self, held: BucketState) -> Option<RingWord> {
        held.ring().filter(|_| held.generation == self.generation)
    }

    /// Returns the closed form of an open ring from before the change. It must be swapped in before the bucket is
    /// converted, since threads may claim from an open ring while it is read.
    #[inline(always)]
    pub(crate) fn to_close(&self, held: BucketState) -> Option<BucketState> {
        if held.generation == self.generation {
            return None;
        }
        let ring = held.ring().filter(|ring| !ring.is_closed())?;
        Some(BucketState::with_ring(held.generation, ring.closed()))
    }

    /// Converts a bucket as [`current`](Self::current) does, by copying its closed ring into a new one, which the
    /// result names and `spare` holds. That is possible where all instants of the ring still count: used quota is kept,
    /// and the period is the same. Otherwise, and where no ring is to be had, returns `None`: the ring is then squeezed
    /// into a word.
    #[inline(always)]
    pub(crate) fn in_new_ring<'r>(
        &self,
        held: BucketState,
        table: &'r Table,
        spare: &mut Option<SpareRing<'r>>,
    ) -> Option<BucketState> {
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
        Some(BucketState::with_ring(self.generation, RingWord::new(id, until)))
    }

    /// Returns whether its buckets must be converted.
    pub(crate) fn has_changed(&self) -> bool {
        self.change.is_some()
    }
}
