//! Publishes: how the engine puts a policy in force while checks go on.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, MutexGuard, PoisonError},
};

use crate::{
    algorithm::Meter,
    base::clock::Clock,
    engine::{
        account::Buckets,
        active_policy::{Live, LiveLimit, Unlike},
        limit_ids::PublishError,
        publish_args::Publish,
        state::{Engine, Publisher},
    },
    policy::compiled::Snapshot,
    storage::{
        layout::Held,
        log_pool::{LogLimit, Spare},
    },
};

impl<C: Clock> Engine<C> {
    /// Makes a policy that of every check that begins from now on, and answers its version: one more than that of the
    /// policy before, counted from 1, unless the [`Publish`] names another.
    ///
    /// What was used stays used, limit by limit, by full name: 100 used of 100, raised to 1,000, leaves 900; or as
    /// [`Publish::carrying`] says. What was used of a limit that is in no policy any more stays too, in case it comes back, until
    /// the engine needs its place. There are [`KNOWN_LIMITS_MAX`](crate::KNOWN_LIMITS_MAX) places; the policy in force and the
    /// new one need one for each name in either. Places of limits of which nothing is used are taken back first, then those of
    /// the oldest names, but for those that a [`Handle`](crate::Handle) on an older policy holds. Names stay, about 100 bytes and
    /// their text each.
    ///
    /// Where it has sliding window logs of a size that the engine has not met yet, their rings are allocated first, at most
    /// 32 MiB for each power of two up to 4,096; they stay.
    ///
    /// The new policy decides at once. Where it changes a limit's numbers, this then goes through the whole table before it
    /// returns (milliseconds for a million keys), while checks go on.
    pub fn publish(&self, publish: impl Into<Publish>) -> Result<u64, PublishError> {
        let publish = publish.into();
        let mut publisher = self.publisher();
        let order = self.order();
        let version = publish.version.unwrap_or(order.version() + 1);
        let next = order.followed_by(version, publish.is_anew);
        let next = next.ok_or(PublishError::OldVersion { given: version, present: order.version() })?;
        self.put_in_force(&mut publisher, publish, next.0)?;
        Ok(version)
    }

    /// Has windows and the ends of overrides follow wall time, where that was set back by a minute or more since the last
    /// publish, or forward again: see [`Clock`]. Returns whether it had to. To be called every few seconds, as the server does;
    /// until then windows begin and end by the time of before.
    ///
    /// What a key has used of its present window counts in the window of the new wall time. This is a publish of the policy in
    /// force, under its version, and takes as long where there are windows. An engine follows some thousand times, and then no
    /// more.
    ///
    /// ```
    /// use tidegate::{Engine, clock::ManualClock};
    ///
    /// let clock = ManualClock::at(1_790_035_200_000_000_000);
    /// let engine = Engine::with_clock(1_000, clock.clone());
    /// clock.set_wall_back(3_600_000_000_000);
    /// assert!(engine.follow_wall_time());
    /// assert!(!engine.follow_wall_time());
    /// ```
    pub fn follow_wall_time(&self) -> bool {
        let clock = &self.buckets.clock;
        // A clock looks at wall time when it is read.
        clock.now();
        let is_bound = || self.live_now().ahead == clock.ahead_ns();
        if is_bound() {
            return false;
        }
        let mut publisher = self.publisher();
        if is_bound() {
            // Another thread was faster.
            return false;
        }
        let Some(next) = self.order().bound_anew() else { return false };
        let publish = Publish::of(Arc::clone(&self.live().snapshot));
        self.put_in_force(&mut publisher, publish, next.0).is_ok()
    }

    /// Would a publish of `snapshot` be refused for its limits? To be asked before a policy is written down.
    pub fn has_room_for(&self, snapshot: &Snapshot) -> Result<(), PublishError> {
        let mut publisher = self.publisher();
        let Publisher { ledger, retired } = &mut *publisher;
        free_unused(retired);
        let lacking = ledger.lacking(snapshot);
        if lacking > 0 && ledger.unreachable(snapshot, &self.live(), retired).len() < lacking {
            return Err(PublishError::TooManyLimits);
        }
        Ok(())
    }

    /// Takes ids back from names that no policy has any more: those of which nothing is used where there are many, and as many
    /// more as `snapshot` needs. The head of `limit_ids.rs` says why no check meets another name's bucket.
    fn make_room(
        &self,
        Publisher { ledger, retired }: &mut Publisher,
        snapshot: &Snapshot,
    ) -> Result<(), PublishError> {
        free_unused(retired);
        let (live, lacking) = (self.live(), ledger.lacking(snapshot));
        if lacking == 0 && !ledger.is_full_of_gone(&live) {
            return Ok(());
        }
        let unreachable = ledger.unreachable(snapshot, &live, retired);
        if unreachable.len() < lacking {
            return Err(PublishError::TooManyLimits);
        }
        if !unreachable.is_empty() {
            let mut empty: HashSet<u32> = unreachable.iter().copied().collect();
            let in_use = self.clear(&empty, false);
            empty.retain(|id| !in_use.contains(id));
            ledger.take_back(&empty);
            // They are fewer than lacking only where as many are in use.
            let more = unreachable.into_iter().filter(|id| in_use.contains(id));
            let more: HashSet<u32> = more.take(lacking.saturating_sub(empty.len())).collect();
            if !more.is_empty() {
                self.clear(&more, true);
                ledger.take_back(&more);
            }
        }
        ledger.has_looked_through(&live);
        Ok(())
    }

    /// Empties the slots and overflow buckets of limits, by id, that no check can reach: those that are idle, or where it
    /// `is_forced` all. Returns the ids of which something is left.
    fn clear(&self, ids: &HashSet<u32>, is_forced: bool) -> HashSet<u32> {
        let Buckets { table, leases, clock, .. } = &self.buckets;
        leases.end(table, || clock.now(), |limit| ids.contains(&limit));
        let (now, mut left) = (clock.now(), HashSet::new());
        table.clear(
            |limit| ids.contains(&limit),
            |slot| is_forced || slot.is_free(now),
            |limit| {
                left.insert(limit);
            },
        );
        left
    }

    fn publisher(&self) -> MutexGuard<'_, Publisher> {
        // Nothing in a publish panics, so nothing half done is taken over here.
        self.publisher.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put_in_force(&self, publisher: &mut Publisher, publish: Publish, version: u64) -> Result<(), PublishError> {
        self.make_room(publisher, &publish.snapshot)?;
        let Publisher { ledger, retired } = publisher;
        let buckets = &self.buckets;
        let (ahead, shares) = (buckets.clock.ahead_ns(), &buckets.table.shares);
        let mut live = ledger.bind(publish, version, ahead, &buckets.hasher, &buckets.registry, shares);
        let of_many = live.limits.iter().filter(|limit| limit.tally.is_some()).count();
        shares.come_into_force(live.limits.len(), of_many, live.snapshot.domains.len());
        self.tally.make_room(ledger.tallied());
        let logs = live.limits.iter().filter_map(|limit| match limit.meter {
            Some(Meter::SlidingWindowLog(log)) => {
                Some(LogLimit { capacity: log.capacity(), is_of_one_client: limit.tally.is_none() })
            }
            _ => None,
        });
        buckets.table.rings.come_into_force(logs, shares.among_others());
        let changed: HashSet<u32> =
            live.limits.iter().filter(|limit| limit.has_changed()).map(|limit| limit.id).collect();
        if !changed.is_empty() {
            buckets.leases.hold_back(&buckets.table, || buckets.clock.now(), |limit| changed.contains(&limit));
        }
        // As late as can be: what is charged between this instant and the swap counts as charged at it.
        live.comes_into_force(buckets.clock.now());
        let live = Arc::new(live);
        // Right before the swap: until that is done, a check of a bucket that must be settled tries again and again.
        self.buckets.announced.store(version);
        retired.push(self.live.swap(Arc::clone(&live)));
        buckets.registry.published(ahead, ledger.known());
        self.buckets.version.store(version);
        self.watch.set_version(version);
        self.convert_buckets(&live);
        free_unused(retired);
        Ok(())
    }

    /// Brings every bucket of a limit that changed to its new numbers. Checks do the same for what they meet on the way;
    /// this is for the others: a stranger judges by the old word whether a bucket is idle, and the next publish must not
    /// meet two generations.
    fn convert_buckets<'b>(&'b self, live: &Live) {
        let changed: HashMap<u32, &LiveLimit> =
            live.limits.iter().filter(|limit| limit.has_changed()).map(|limit| (limit.id, limit)).collect();
        if changed.is_empty() {
            return;
        }
        let table = &self.buckets.table;
        let convert = |limit: u32, held: Held, spare: &mut Option<Spare<'b>>| {
            let Some(limit) = changed.get(&limit).filter(|limit| limit.generation != held.generation) else {
                return held;
            };
            let next = limit.to_close(held).or_else(|| limit.in_new_ring(held, table, spare));
            next.unwrap_or_else(|| match limit.current(held, &table.rings, || self.buckets.clock.now()) {
                Ok(word) => Held::word(limit.generation, word),
                Err(Unlike::Stray) => limit.settled(held, self.buckets.clock.now()),
                Err(Unlike::Lost) => held,
            })
        };
        table.sweep(|limit| changed.contains_key(&limit), convert);
        let generation = |limit| changed.get(&limit).map(|limit| limit.generation);
        self.buckets.leases.revoke(table, || self.buckets.clock.now(), generation);
    }
}

/// Drops the snapshots that no check and no handle has any more.
fn free_unused(retired: &mut Vec<Arc<Live>>) {
    retired.retain(|live| Arc::strong_count(live) > 1);
}

#[cfg(all(test, not(engine_loom)))]
mod id_reuse;
#[cfg(all(test, not(engine_loom)))]
mod stray_buckets;
