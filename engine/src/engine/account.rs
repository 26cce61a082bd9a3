//! `Account`: one limit of one check, with the key that it counts. Finds the bucket, previews a charge and makes it.

mod log;
mod settlement;
mod striped;

use crate::{
    algorithm::{Meter, Verdict},
    base::{
        clock::Clock,
        hash::{IdentityHash, KeyHasher},
        time::{Nanos, SECOND_NS},
    },
    engine::{
        active_policy::{ActiveLimit, ActivePolicy, ConversionError, SnapshotResult, StaleSnapshot},
        buckets::Buckets,
        decision::{DecidedBy, Decision, Outcome},
        fast_path::FastPathMiss,
    },
    policy::{compiled::StoredNumbers, document::OnFailure, planner::PlanEntry},
    storage::{
        atomic_update::Next,
        layout::BucketState,
        sliding_log::StepResult,
        table::{HashedKey, RaceCounts, SlotSnapshot, TableFull},
    },
};

/// The wait of a key for which there is no bucket, where no bucket says when it becomes idle.
const NO_ROOM_NS: u64 = SECOND_NS;

/// One limit of a check, with the key that it counts.
#[derive(Clone, Copy)]
pub(crate) struct Account<'l> {
    pub(super) limit: &'l ActiveLimit,
    /// The numbers in the store, for a limit that nodes share. The limit's own numbers are then those of a node that
    /// counts alone.
    stored: Option<&'l StoredNumbers>,
    /// The version of the snapshot that `limit` belongs to.
    pub(super) version: u64,
    key: HashedKey,
    cost: u64,
}

/// The result of charging or previewing one limit: the verdict, the word that it left or found, and the time of the
/// decision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChargeResult {
    pub(crate) verdict: Verdict,
    pub(crate) word: u64,
    pub(crate) now: Nanos,
    pub(crate) site: BucketSite,
}

/// The result that a charge would have.
#[derive(Clone, Copy)]
pub(crate) struct ChargePreview<'b> {
    pub(crate) charged: ChargeResult,
    /// The slot as it was found: one swap makes the charge, if no other thread changed the slot meanwhile.
    found: Option<SlotSnapshot<'b>>,
}

impl From<ChargeResult> for ChargePreview<'_> {
    fn from(charged: ChargeResult) -> Self {
        Self { charged, found: None }
    }
}

/// The place of the bucket that decided.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BucketSite {
    /// A slot of the table, or an overflow bucket.
    Slot,
    /// No bucket: there was no room for one.
    NoRoom,
    /// The store that nodes share.
    Store,
    /// No bucket: the store should have decided, and did not answer.
    Nowhere,
}

impl ChargeResult {
    pub(crate) fn is_admitted(&self) -> bool {
        matches!(self.verdict, Verdict::Admit(_))
    }

    pub(crate) fn in_slot(StepResult { verdict, word, now }: StepResult) -> Self {
        Self { verdict, word, now, site: BucketSite::Slot }
    }
}

impl<'l> Account<'l> {
    #[inline(always)]
    pub(crate) fn new(active: &'l ActivePolicy, entry: &PlanEntry) -> Self {
        let limit = &active.limits[entry.limit as usize];
        let stored =
            if limit.is_enforced_here { None } else { active.snapshot.limits[entry.limit as usize].stored.as_ref() };
        Self { stored, version: active.version, ..Self::without_policy(limit, entry.identity, entry.cost) }
    }

    /// Returns the account of a limit that is enforced and kept on this node alone.
    #[inline(always)]
    pub(crate) fn enforced_here(limit: &'l ActiveLimit, version: u64, identity: IdentityHash, cost: u64) -> Self {
        Self { version, ..Self::without_policy(limit, identity, cost) }
    }

    /// Returns the account of a limit without a snapshot.
    #[inline(always)]
    pub(crate) fn without_policy(limit: &'l ActiveLimit, identity: IdentityHash, cost: u64) -> Self {
        let key = HashedKey::new(limit.id, KeyHasher::key(limit.hash, identity));
        Self { limit, stored: None, version: 0, key, cost }
    }

    #[inline(always)]
    pub(crate) fn decision<'e, C: Clock>(
        &self,
        buckets: &'e Buckets<C>,
        place: usize,
        charged: ChargeResult,
    ) -> Decision<'e> {
        let decided_by = self.deciding_limit(buckets, place, charged);
        Decision::of_one(&buckets.names, self.version, decided_by, decided_by.outcome.delay_ns())
    }

    /// Returns what a decision says of this limit; `place` is the entry of the limit in its plan.
    #[inline(always)]
    pub(super) fn deciding_limit<C: Clock>(
        &self,
        buckets: &Buckets<C>,
        place: usize,
        charged: ChargeResult,
    ) -> DecidedBy {
        let outcome = self.outcome(&charged).at_resolution(buckets.clock.resolution());
        let is_stored = matches!(charged.site, BucketSite::Store);
        DecidedBy { place, limit: self.limit.index, is_stored, outcome }
    }

    /// Returns the meter that interprets a word from this place.
    #[inline(always)]
    fn meter_of(&self, site: BucketSite) -> Option<&'l Meter> {
        match (site, self.stored) {
            (BucketSite::Store, Some(stored)) => Some(&stored.meter),
            (BucketSite::Nowhere, _) => None,
            _ => self.limit.meter.as_ref(),
        }
    }

    /// Returns the tokens that are left after a charge, and how long the request is to wait for its turn.
    #[inline(always)]
    pub(crate) fn left_and_delay_ns(&self, charged: &ChargeResult) -> (u64, u64) {
        let &ChargeResult { word, now, site, .. } = charged;
        let Some(meter) = self.meter_of(site) else { return (0, 0) };
        (meter.remaining(word, now), meter.delay_ns(word, now, self.cost))
    }

    #[inline(always)]
    pub(crate) fn outcome(&self, &ChargeResult { verdict, word, now, site }: &ChargeResult) -> Outcome {
        let meter = self.meter_of(site).copied();
        let word = if meter.is_some() { word } else { self.limit.period_ns };
        Outcome { meter, cost: self.cost, verdict, word, now }
    }

    /// Returns what happens while the store does not answer, for a limit that is kept in the store.
    #[inline(always)]
    pub(crate) fn on_failure(&self) -> Option<OnFailure> {
        self.stored.map(|stored| stored.on_failure)
    }

    #[inline(always)]
    fn step(&self, word: u64, now: Nanos, site: BucketSite) -> ChargeResult {
        let verdict = self.limit.meter.as_ref().map_or(Verdict::Never, |meter| meter.step(word, now, self.cost));
        ChargeResult { verdict, word: verdict.admitted().unwrap_or(word), now, site }
    }

    /// Returns the account at another cost.
    pub(crate) fn with_cost(self, cost: u64) -> Self {
        Self { cost, ..self }
    }

    /// Returns the cost of this charge together with those of `others` that are for the same key.
    pub(crate) fn cost_with<'a>(&self, others: impl Iterator<Item = &'a Self>) -> u64
    where
        'l: 'a,
    {
        let same = others.filter(|other| other.key == self.key);
        same.fold(self.cost, |sum, other| sum.saturating_add(other.cost))
    }

    /// Has the processor fetch the cache lines in which the bucket would be.
    #[inline(always)]
    pub(crate) fn prefetch<C>(&self, buckets: &Buckets<C>) {
        buckets.table.key_lines(self.key.hash()).prefetch();
    }

    /// Returns the account as if it belonged to the snapshot of this version.
    pub(crate) fn with_version(self, version: u64) -> Self {
        Self { version, ..self }
    }

    /// Previews the charge. Charges nothing; a denial ends the striping of the key, as that of a charge does.
    #[inline(always)]
    pub(crate) fn look<'b, C: Clock>(&self, buckets: &'b Buckets<C>, now: Nanos) -> SnapshotResult<ChargePreview<'b>> {
        match self.look_fast_path(buckets, &|| now) {
            Ok(preview) => Ok(preview),
            Err(_) => self.look_slow_path(buckets, now).map(ChargePreview::from),
        }
    }

    /// Previews the charge in every case that the fast path leaves.
    #[inline(never)]
    fn look_slow_path<C: Clock>(&self, buckets: &Buckets<C>, now: Nanos) -> SnapshotResult<ChargeResult> {
        if let Some(log) = self.log(buckets) {
            return self.look_at_log(buckets, &log, now);
        }
        let held = buckets.table.get(self.key);
        if let Some(held) = held.filter(|held| self.is_striped(*held)) {
            return self.look_striped(buckets, held.word, now);
        }
        // Like a first touch, this reads the clock anew: what was used at an older time may have been forgotten since.
        let now = if held.is_some() { now } else { buckets.now() };
        let word = self.word(buckets, held)?;
        let charged = self.step(word, now, BucketSite::Slot);
        Ok(if held.is_some() { charged } else { self.if_there_is_room(buckets, charged) })
    }

    /// Returns the result of a preview for a key without a bucket: an admitted charge would need one.
    #[cold]
    fn if_there_is_room<C>(&self, buckets: &Buckets<C>, charged: ChargeResult) -> ChargeResult {
        if !charged.is_admitted() {
            return charged;
        }
        let room = buckets.table.find_room(self.limit.group, self.key, charged.now);
        room.map_or_else(|full| self.without_room(buckets, charged.now, full), |()| charged)
    }

    /// Denies a key for which there is no bucket, as if all of its quota were used, until the first bucket that it
    /// could have is idle.
    #[cold]
    fn without_room<C>(&self, buckets: &Buckets<C>, now: Nanos, TableFull { idle_at }: TableFull) -> ChargeResult {
        buckets.table.count_refused(self.limit.group);
        let wait_ns = if idle_at == Nanos::MAX { NO_ROOM_NS } else { idle_at.saturating_sub(now).max(1) };
        let word = self.limit.meter.map_or(0, |meter| meter.overcharge(0, now, meter.capacity()));
        ChargeResult { verdict: Verdict::Later { wait_ns }, word, now, site: BucketSite::NoRoom }
    }

    /// Returns the word of the key's bucket under the numbers of the snapshot, if that is still the newest; without a
    /// bucket, the word of one of which nothing is used.
    #[inline(always)]
    fn word<C: Clock>(&self, buckets: &Buckets<C>, held: Option<BucketState>) -> SnapshotResult<u64> {
        if self.is_stale(buckets) {
            return Err(StaleSnapshot);
        }
        let held = held.unwrap_or(BucketState::word(self.limit.generation, 0));
        match self.limit.current(held, &buckets.table.rings, || buckets.now()) {
            Ok(word) => Ok(word),
            Err(ConversionError::Stray) => {
                self.replace_stray(buckets, held);
                Err(StaleSnapshot)
            }
            Err(ConversionError::Lost) => Err(StaleSnapshot),
        }
    }

    /// Brings a stray bucket to the snapshot's numbers, unless it belongs to a newer snapshot: that was announced
    /// before any check could write by it. Numbers are stray if they are neither the snapshot's nor those before them.
    ///
    /// A stray bucket is left by a check that began to convert the bucket and stalled while the limit's numbers changed
    /// so often that generations came round and the slot was as before.
    #[cold]
    fn replace_stray<C: Clock>(&self, buckets: &Buckets<C>, stray: BucketState) {
        if buckets.announced.load() == self.version {
            let settled = |held| (held == stray).then(|| self.limit.replacement_for_stray(stray, buckets.now()));
            buckets.table.change(self.key, settled);
        }
    }

    #[inline(always)]
    fn is_stale<C>(&self, buckets: &Buckets<C>) -> bool {
        // A snapshot is in place before its version is stored, so one that is newer than the stored version is the
        // newest.
        buckets.version.load() > self.version
    }

    /// Makes a charge that a preview admitted: by one swap, if the slot has not changed; otherwise anew, and `preview`
    /// is then the new result.
    #[inline(always)]
    pub(crate) fn charge_previewed<C: Clock>(
        &self,
        buckets: &Buckets<C>,
        now: Nanos,
        preview: &mut ChargePreview<'_>,
    ) -> SnapshotResult<()> {
        // The store has charged what it answered.
        let is_here = !matches!(preview.charged.site, BucketSite::Store | BucketSite::Nowhere);
        if is_here && !self.swap(preview) {
            *preview = self.charge(buckets, &|| now)?.into();
        }
        Ok(())
    }

    /// Makes the charge of a fast path preview that admitted, and returns whether it succeeded.
    #[inline(always)]
    fn swap(&self, ChargePreview { charged, found }: &ChargePreview<'_>) -> bool {
        let (Some(fast_path), Some(seen)) = (self.limit.fast_path, *found) else { return false };
        let ChargeResult { verdict, word, now, .. } = *charged;
        fast_path.charge(StepResult { verdict, word, now }, seen).is_ok()
    }

    /// Charges the limit, or changes nothing and says why not.
    #[inline(always)]
    pub(crate) fn charge<C: Clock>(
        &self,
        buckets: &Buckets<C>,
        read_clock: &impl Fn() -> Nanos,
    ) -> SnapshotResult<ChargeResult> {
        self.charge_after(buckets, read_clock, FastPathMiss::Untried)
    }

    /// Charges the limit as [`charge`](Self::charge) does, after a handle missed the fast path.
    #[inline(always)]
    pub(crate) fn charge_after<C: Clock>(
        &self,
        buckets: &Buckets<C>,
        read_clock: &impl Fn() -> Nanos,
        mut missed: FastPathMiss,
    ) -> SnapshotResult<ChargeResult> {
        if let FastPathMiss::Untried = missed {
            match self.charge_fast_path(buckets, read_clock) {
                Ok(charged) => return Ok(charged),
                Err(why) => missed = why,
            }
        }
        match missed {
            FastPathMiss::Striped { word, now } => self.charge_striped(buckets, now, word),
            FastPathMiss::Race => self.charge_slow_path(buckets, read_clock(), 1),
            FastPathMiss::Untried | FastPathMiss::Stale | FastPathMiss::Other => {
                self.charge_slow_path(buckets, read_clock(), 0)
            }
        }
    }

    /// Charges the limit on the fast path.
    #[inline(always)]
    fn charge_fast_path<C>(
        &self,
        buckets: &Buckets<C>,
        read_clock: &impl Fn() -> Nanos,
    ) -> Result<ChargeResult, FastPathMiss> {
        let preview = self.look_fast_path(buckets, read_clock)?;
        if self.swap(&preview) { Ok(preview.charged) } else { Err(FastPathMiss::Race) }
    }

    #[inline(always)]
    fn look_fast_path<'b, C>(
        &self,
        buckets: &'b Buckets<C>,
        read_clock: &impl Fn() -> Nanos,
    ) -> Result<ChargePreview<'b>, FastPathMiss> {
        let (Some(fast_path), Some(meter)) = (self.limit.fast_path, &self.limit.meter) else {
            return Err(FastPathMiss::Other);
        };
        let (is_newest, step) = (|| !self.is_stale(buckets), |word, now| meter.step(word, now, self.cost));
        let (stepped, seen) = fast_path.look(buckets.table.key_lines(self.key.hash()), read_clock, is_newest, step)?;
        Ok(ChargePreview { charged: ChargeResult::in_slot(stepped), found: Some(seen) })
    }

    /// Charges the limit in every case that the fast path leaves, after this many lost races.
    #[cold]
    #[inline(never)]
    fn charge_slow_path<C: Clock>(
        self,
        buckets: &Buckets<C>,
        now: Nanos,
        retries: u64,
    ) -> SnapshotResult<ChargeResult> {
        if self.limit.meter.is_none() {
            return Ok(self.step(0, now, BucketSite::Slot));
        }
        match self.charge_slot(buckets, now, &mut RaceCounts { retries, ..RaceCounts::default() }) {
            Ok(charged) => charged,
            // Like a first touch, this reads the clock anew: this check may have stalled.
            Err(full) => Ok(self.without_room(buckets, buckets.now(), full)),
        }
    }

    fn charge_slot<C: Clock>(
        &self,
        buckets: &Buckets<C>,
        mut now: Nanos,
        met: &mut RaceCounts,
    ) -> Result<SnapshotResult<ChargeResult>, TableFull> {
        if let Some(log) = self.log(buckets) {
            return self.charge_log(buckets, &log, now);
        }
        loop {
            let charged = self.update_word(buckets, now, met, |held, now| {
                if held.is_striped {
                    return Next::Leave(Err(held.word));
                }
                let charged = self.step(held.word, now, BucketSite::Slot);
                match charged.verdict {
                    Verdict::Admit(word) => Next::Write(BucketState::word(self.limit.generation, word), Ok(charged)),
                    _ => Next::Leave(Ok(charged)),
                }
            })?;
            match charged {
                Ok(Ok(charged)) => {
                    if met.retries > 0 && charged.is_admitted() {
                        self.with_striped_key(buckets, |striped| striped.contended(met.retries));
                    }
                    return Ok(Ok(charged));
                }
                Ok(Err(word)) => {
                    if let Some(charged) = self.charge_striped_slow_path(buckets, now, word) {
                        return Ok(charged);
                    }
                    // The striping has ended, and was paid for at a later time than that of this check.
                    now = buckets.now();
                }
                Err(newer) => return Ok(Err(newer)),
            }
        }
    }

    /// Applies `transition` to the state of the key's slot under the snapshot's numbers. Its `is_striped` says whether
    /// stripes hold tokens of the key.
    fn update_word<C: Clock, T>(
        &self,
        buckets: &Buckets<C>,
        now: Nanos,
        met: &mut RaceCounts,
        transition: impl Fn(BucketState, Nanos) -> Next<BucketState, T>,
    ) -> Result<SnapshotResult<T>, TableFull> {
        buckets.table.update_by(
            self.limit.group,
            self.key,
            now,
            || buckets.now(),
            met,
            |held, now| {
                let is_striped = held.is_some_and(|held| self.is_striped(held));
                match (self.word(buckets, held), held.and_then(|held| self.limit.to_close(held))) {
                    // The next attempt charges it.
                    (Ok(_), Some(closed)) => Next::Write(closed, Err(StaleSnapshot)),
                    (Ok(word), None) => {
                        let current = BucketState { is_striped, ..BucketState::word(self.limit.generation, word) };
                        match transition(current, now) {
                            Next::Write(held, answer) => Next::Write(held, Ok(answer)),
                            Next::Leave(answer) => Next::Leave(Ok(answer)),
                        }
                    }
                    (Err(newer), _) => Next::Leave(Err(newer)),
                }
            },
        )
    }
}
