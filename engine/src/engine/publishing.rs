//! Publishes: puts a policy in force while checks go on, and converts the buckets of limits that changed.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::Arc,
};

use crate::{
    algorithm::Meter,
    base::{clock::Clock, lock::lock, time::saturating_nanos},
    engine::{
        active_policy::{ActiveLimit, ActivePolicy, ConversionError},
        buckets::Buckets,
        names::KNOWN_LIMITS_MAX,
        publish_args::Publish,
        state::{Engine, PublisherState},
    },
    policy::compiled::Snapshot,
    storage::{
        layout::BucketState,
        log_pool::{LogLimit, SpareRing},
    },
};

/// The reason why the engine refused a policy. Nothing changed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PublishError {
    /// The engine cannot know this many limits at a time.
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

impl<C: Clock> Engine<C> {
    /// Puts a policy in force for every check that begins from now on. Returns its version: one more than that of the
    /// policy before, counted from 1, unless the [`Publish`] names another.
    ///
    /// What was used stays used, limit by limit, by full name: 100 used of 100, raised to 1,000, leaves 900;
    /// [`Publish::carrying`] can choose otherwise. What was used of a limit that is in no policy any more stays too, in
    /// case it comes back, until the engine needs its id. There are [`KNOWN_LIMITS_MAX`](crate::KNOWN_LIMITS_MAX) ids;
    /// the policy in force and the new one need one for each name in either. Ids of limits of which nothing is used are
    /// taken back first, then those of the oldest names, except those that a [`Handle`](crate::Handle) on an older
    /// policy holds. Names stay, about 100 bytes and their text each.
    ///
    /// If the policy has sliding window logs of a size that is new to the engine, their rings are allocated first, at
    /// most 32 MiB for each power of two up to 4,096; they stay.
    ///
    /// The new policy decides at once. If it changes a limit's numbers, this method then goes through the whole table
    /// before it returns (milliseconds for a million keys), while checks go on.
    pub fn publish(&self, publish: impl Into<Publish>) -> Result<u64, PublishError> {
        let publish = publish.into();
        let mut publisher = lock(&self.publisher);
        let order = self.order();
        let version = publish.version.unwrap_or(order.version() + 1);
        let next = order.followed_by(version, publish.is_anew);
        let next = next.ok_or(PublishError::OldVersion { given: version, present: order.version() })?;
        self.put_in_force(&mut publisher, publish, next.0)?;
        Ok(version)
    }

    /// Makes windows and the ends of overrides follow wall time, if that was set back by a minute or more since the
    /// last publish, or forward again: see [`Clock`]. Returns whether it had to. Call it every few seconds, as the
    /// server does; until then windows begin and end by the earlier time.
    ///
    /// What a key has used of its present window counts in the window of the new wall time. This is a publish of the
    /// policy in force, under its version, and takes as long where there are windows. An engine can do it some thousand
    /// times, and then no more.
    ///
    /// ```
    /// use std::time::{Duration, UNIX_EPOCH};
    /// use tidegate::{Engine, clock::ManualClock};
    ///
    /// let clock = ManualClock::at(UNIX_EPOCH + Duration::from_hours(24));
    /// let engine = Engine::with_clock(1_000, clock.clone());
    /// clock.set_wall_back(Duration::from_hours(1));
    /// assert!(engine.follow_wall_time());
    /// assert!(!engine.follow_wall_time());
    /// ```
    pub fn follow_wall_time(&self) -> bool {
        let clock = &self.buckets.clock;
        // A clock looks at wall time when it is read.
        clock.now();
        let is_bound = || self.active.load().ahead == saturating_nanos(clock.ahead());
        if is_bound() {
            return false;
        }
        let mut publisher = lock(&self.publisher);
        if is_bound() {
            // Another thread was faster.
            return false;
        }
        let Some(next) = self.order().bound_anew() else { return false };
        let publish = Publish::of(Arc::clone(&self.active.load_full().snapshot));
        self.put_in_force(&mut publisher, publish, next.0).is_ok()
    }

    /// Returns whether the engine has room for the limits of `snapshot`. Called before a policy is stored.
    pub fn has_room_for(&self, snapshot: &Snapshot) -> Result<(), PublishError> {
        let mut publisher = lock(&self.publisher);
        let PublisherState { limit_ids, retired } = &mut *publisher;
        free_unused(retired);
        let lacking = limit_ids.lacking(snapshot);
        if lacking > 0 && limit_ids.unreachable(snapshot, &self.active.load_full(), retired).len() < lacking {
            return Err(PublishError::TooManyLimits);
        }
        Ok(())
    }

    /// Takes ids back from names that no policy has any more: those of which nothing is used where there are many, and
    /// as many more as `snapshot` needs. The head of `limit_ids.rs` says why no check meets another name's bucket.
    fn make_room(
        &self,
        PublisherState { limit_ids, retired }: &mut PublisherState,
        snapshot: &Snapshot,
    ) -> Result<(), PublishError> {
        free_unused(retired);
        let (active, lacking) = (self.active.load_full(), limit_ids.lacking(snapshot));
        if lacking == 0 && !limit_ids.has_enough_unused(&active) {
            return Ok(());
        }
        let unreachable = limit_ids.unreachable(snapshot, &active, retired);
        if unreachable.len() < lacking {
            return Err(PublishError::TooManyLimits);
        }
        if !unreachable.is_empty() {
            let mut empty: HashSet<u32> = unreachable.iter().copied().collect();
            let in_use = self.clear(&empty, false);
            empty.retain(|id| !in_use.contains(id));
            limit_ids.release(&empty);
            // They are fewer than needed only where as many are in use.
            let more = unreachable.into_iter().filter(|id| in_use.contains(id));
            let more: HashSet<u32> = more.take(lacking.saturating_sub(empty.len())).collect();
            if !more.is_empty() {
                self.clear(&more, true);
                limit_ids.release(&more);
            }
        }
        limit_ids.note_scan(&active);
        Ok(())
    }

    /// Empties the slots and overflow buckets of limits, by id, that no check can reach: the idle ones, or all if it
    /// `is_forced`. Returns the ids of which something is left.
    fn clear(&self, ids: &HashSet<u32>, is_forced: bool) -> HashSet<u32> {
        let Buckets { table, stripes, .. } = &self.buckets;
        stripes.end(table, || self.buckets.now(), |limit| ids.contains(&limit));
        let (now, mut left) = (self.buckets.now(), HashSet::new());
        table.clear(
            |limit| ids.contains(&limit),
            |slot| is_forced || slot.is_free(now),
            |limit| {
                left.insert(limit);
            },
        );
        left
    }

    fn put_in_force(&self, publisher: &mut PublisherState, publish: Publish, version: u64) -> Result<(), PublishError> {
        self.make_room(publisher, &publish.snapshot)?;
        let PublisherState { limit_ids, retired } = publisher;
        let buckets = &self.buckets;
        let (ahead, shares) = (saturating_nanos(buckets.clock.ahead()), &buckets.table.shares);
        let mut active = limit_ids.bind(publish, version, ahead, &buckets.hasher, &buckets.names, shares);
        let of_many = active.limits.iter().filter(|limit| limit.counter.is_some()).count();
        shares.come_into_force(active.limits.len(), of_many, active.snapshot.domains.len());
        self.counters.make_room(limit_ids.counted());
        let logs = active.limits.iter().filter_map(|limit| match limit.meter {
            Some(Meter::SlidingWindowLog(log)) => {
                Some(LogLimit { capacity: log.capacity(), is_of_one_client: limit.counter.is_none() })
            }
            _ => None,
        });
        buckets.table.rings.come_into_force(logs, shares.among_others);
        let changed: HashSet<u32> =
            active.limits.iter().filter(|limit| limit.has_changed()).map(|limit| limit.id).collect();
        if !changed.is_empty() {
            buckets.stripes.hold_back(&buckets.table, || buckets.now(), |limit| changed.contains(&limit));
        }
        // This is as late as possible: what is charged between this instant and the swap counts as charged at it.
        active.set_change_time(buckets.now());
        let active = Arc::new(active);
        // This comes right before the swap: until that is done, a check of a stray bucket tries again and again.
        self.buckets.announced.store(version);
        retired.push(self.active.swap(Arc::clone(&active)));
        buckets.names.published(ahead, limit_ids.known());
        self.buckets.version.store(version);
        self.observers.set_version(version);
        self.convert_buckets(&active);
        free_unused(retired);
        Ok(())
    }

    /// Converts every bucket of a limit that changed to its new numbers. Checks convert those that they meet; this is
    /// for the others. A check of another key judges by the old word whether such a bucket is idle, and the next
    /// publish must not meet two generations.
    fn convert_buckets<'b>(&'b self, active: &ActivePolicy) {
        let changed: HashMap<u32, &ActiveLimit> =
            active.limits.iter().filter(|limit| limit.has_changed()).map(|limit| (limit.id, limit)).collect();
        if changed.is_empty() {
            return;
        }
        let table = &self.buckets.table;
        let convert = |limit: u32, held: BucketState, spare: &mut Option<SpareRing<'b>>| {
            let Some(limit) = changed.get(&limit).filter(|limit| limit.generation != held.generation) else {
                return held;
            };
            let next = limit.to_close(held).or_else(|| limit.in_new_ring(held, table, spare));
            next.unwrap_or_else(|| match limit.current(held, &table.rings, || self.buckets.now()) {
                Ok(word) => BucketState::word(limit.generation, word),
                Err(ConversionError::Stray) => limit.replacement_for_stray(held, self.buckets.now()),
                Err(ConversionError::Lost) => held,
            })
        };
        table.sweep(|limit| changed.contains_key(&limit), convert);
        let generation = |limit| changed.get(&limit).map(|limit| limit.generation);
        self.buckets.stripes.revoke(table, || self.buckets.now(), generation);
    }
}

/// Drops the snapshots that no check and no handle holds any more.
fn free_unused(retired: &mut Vec<Arc<ActivePolicy>>) {
    retired.retain(|active| Arc::strong_count(active) > 1);
}

#[cfg(all(test, not(engine_loom)))]
mod id_reuse;
#[cfg(all(test, not(engine_loom)))]
mod stray_buckets;
