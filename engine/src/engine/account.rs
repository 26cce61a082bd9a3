//! Charges one limit of one check: finds its bucket, looks at it, charges it, and gives back to it.

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
        active_policy::{ActiveLimit, ActivePolicy, ConversionError, StaleSnapshot},
        buckets::Buckets,
        decision::{DecidedBy, Decision, Outcome},
        fast_path::FastPathMiss,
    },
    policy::{compiled::Stored, document::OnFailure, planner::Charge},
    storage::{
        atomic_update::Next,
        counters::Place,
        layout::Held,
        sliding_log::Stepped,
        table::{Full, Key, Met, Seen},
    },
};

/// How long a key without a bucket has to wait where none of those that it could have says when it is idle.
const NO_ROOM_NS: u64 = SECOND_NS;

/// One limit of a check, with the key that it counts.
#[derive(Clone, Copy)]
pub(crate) struct Account<'l> {
    limit: &'l ActiveLimit,
    /// For a limit that is kept in the store; its own numbers are then those of a node that counts alone.
    stored: Option<&'l Stored>,
    /// Of the snapshot that `limit` belongs to.
    version: u64,
    key: Key,
    cost: u64,
}

/// A verdict, the word that it left or found, and the time at which it was decided.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChargeResult {
    pub(crate) verdict: Verdict,
    pub(crate) word: u64,
    pub(crate) now: Nanos,
    pub(crate) site: BucketSite,
}

/// What a charge would answer.
#[derive(Clone, Copy)]
pub(crate) struct ChargePreview<'b> {
    pub(crate) charged: ChargeResult,
    /// Where one swap makes the charge, if nobody comes between.
    found: Option<Seen<'b>>,
}

impl From<ChargeResult> for ChargePreview<'_> {
    fn from(charged: ChargeResult) -> Self {
        Self { charged, found: None }
    }
}

/// Where a bucket was found.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BucketSite {
    /// In the table, or among the overflow buckets.
    Slot,
    /// Nowhere: there was no room for one.
    NoRoom,
    /// In the store that nodes share.
    Store,
    /// It should have been in the store, which did not answer.
    Nowhere,
}

impl ChargeResult {
    pub(crate) fn is_admitted(&self) -> bool {
        matches!(self.verdict, Verdict::Admit(_))
    }

    pub(crate) fn in_slot(Stepped { verdict, word, now }: Stepped) -> Self {
        Self { verdict, word, now, site: BucketSite::Slot }
    }
}

impl<'l> Account<'l> {
    #[inline(always)]
    pub(crate) fn new(active: &'l ActivePolicy, charge: &Charge) -> Self {
        let limit = &active.limits[charge.limit as usize];
        let stored =
            if limit.is_enforced_here { None } else { active.snapshot.limits[charge.limit as usize].stored.as_ref() };
        Self { stored, version: active.version, ..Self::alone(limit, charge.identity, charge.cost) }
    }

    /// Of a limit that is enforced, and kept on this node alone.
    #[inline(always)]
    pub(crate) fn enforced_here(limit: &'l ActiveLimit, version: u64, identity: IdentityHash, cost: u64) -> Self {
        Self { version, ..Self::alone(limit, identity, cost) }
    }

    /// Of a limit without a snapshot.
    #[inline(always)]
    pub(crate) fn alone(limit: &'l ActiveLimit, identity: IdentityHash, cost: u64) -> Self {
        let key = Key::new(limit.id, KeyHasher::key(limit.hash, identity));
        Self { limit, stored: None, version: 0, key, cost }
    }

    #[inline(always)]
    pub(crate) fn decision<'e, C: Clock>(
        &self,
        buckets: &'e Buckets<C>,
        place: usize,
        charged: ChargeResult,
    ) -> Decision<'e> {
        let outcome = self.outcome(&charged).at_resolution(buckets.clock.resolution_ns());
        let is_stored = matches!(charged.site, BucketSite::Store);
        let decided_by = DecidedBy { place, limit: self.limit.index, is_stored, outcome };
        Decision::of_one(&buckets.names, self.version, decided_by, outcome.delay_ns())
    }

    /// Returns what interprets a word from there.
    #[inline(always)]
    fn meter_of(&self, site: BucketSite) -> Option<&'l Meter> {
        match (site, self.stored) {
            (BucketSite::Store, Some(stored)) => Some(&stored.meter),
            (BucketSite::Nowhere, _) => None,
            _ => self.limit.meter.as_ref(),
        }
    }

    /// Returns what is left after a charge, and how long the request is to wait for its turn.
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

    /// Where the limit is kept in the store, what happens while that does not answer.
    #[inline(always)]
    pub(crate) fn on_failure(&self) -> Option<OnFailure> {
        self.stored.map(|stored| stored.on_failure)
    }

    #[inline(always)]
    fn step(&self, word: u64, now: Nanos, site: BucketSite) -> ChargeResult {
        let verdict = self.limit.meter.as_ref().map_or(Verdict::Never, |meter| meter.step(word, now, self.cost));
        ChargeResult { verdict, word: verdict.admitted().unwrap_or(word), now, site }
    }

    /// Where its decisions are counted, if they are.
    #[inline(always)]
    pub(crate) fn counter(&self) -> Option<Place> {
        self.limit.owner_counter()
    }

    /// The same, at another cost.
    pub(crate) fn at_cost(self, cost: u64) -> Self {
        Self { cost, ..self }
    }

    /// What it is charged together with `others`, of which those count that are of its key.
    pub(crate) fn cost_with<'a>(&self, others: impl Iterator<Item = &'a Self>) -> u64
    where
        'l: 'a,
    {
        let same = others.filter(|other| other.key == self.key);
        same.fold(self.cost, |sum, other| sum.saturating_add(other.cost))
    }

    /// Has the processor fetch the lines where the bucket would be.
    #[inline(always)]
    pub(crate) fn prefetch<C>(&self, buckets: &Buckets<C>) {
        buckets.table.key_lines(self.key.hash()).prefetch();
    }

    /// Is it evaluated and counted only?
    pub(crate) fn is_shadow(&self) -> bool {
        self.limit.is_shadow
    }

    pub(crate) fn index(&self) -> u32 {
        self.limit.index
    }

    pub(crate) fn id(&self) -> u32 {
        self.limit.id
    }

    /// Which numbers the limit has.
    pub(crate) fn edition(&self) -> u64 {
        self.limit.edition
    }

    /// As if the snapshot of this version had the same limit.
    pub(crate) fn as_of(self, version: u64) -> Self {
        Self { version, ..self }
    }

    /// What the charge would answer. Charges nothing; a denial ends a lease, as that of a charge does.
    #[inline(always)]
    pub(crate) fn look<'b, C: Clock>(
        &self,
        buckets: &'b Buckets<C>,
        now: Nanos,
    ) -> Result<ChargePreview<'b>, StaleSnapshot> {
        match self.look_fast_path(buckets, &|| now) {
            Ok(look) => Ok(look),
            Err(_) => self.look_slow_path(buckets, now).map(ChargePreview::from),
        }
    }

    /// Every case of [`look`](Self::look).
    #[inline(never)]
    fn look_slow_path<C: Clock>(&self, buckets: &Buckets<C>, now: Nanos) -> Result<ChargeResult, StaleSnapshot> {
        if let Some(log) = self.log(buckets) {
            return self.look_at_log(buckets, &log, now);
        }
        let held = buckets.table.get(self.key);
        if let Some(held) = held.filter(|held| self.is_leased(*held)) {
            return self.look_at_lease(buckets, held.word, now);
        }
        // As a first touch: what was used at an older time may have been forgotten since.
        let now = if held.is_some() { now } else { buckets.clock.now() };
        let word = self.word(buckets, held)?;
        let charged = self.step(word, now, BucketSite::Slot);
        Ok(if held.is_some() { charged } else { self.if_there_is_room(buckets, charged) })
    }

    /// What a look at a key without a bucket comes to: a charge that it admits takes one.
    #[cold]
    fn if_there_is_room<C>(&self, buckets: &Buckets<C>, charged: ChargeResult) -> ChargeResult {
        if !charged.is_admitted() {
            return charged;
        }
        let room = buckets.table.find_room(self.limit.group, self.key, charged.now);
        room.map_or_else(|full| self.without_room(buckets, charged.now, full), |()| charged)
    }

    /// Denies a key for which there is no bucket, until the first is idle that it could have; as if all were used.
    #[cold]
    fn without_room<C>(&self, buckets: &Buckets<C>, now: Nanos, Full { idle_at }: Full) -> ChargeResult {
        buckets.table.count_refused(self.limit.group);
        let wait_ns = if idle_at == Nanos::MAX { NO_ROOM_NS } else { idle_at.saturating_sub(now).max(1) };
        let word = self.limit.meter.map_or(0, |meter| meter.overcharge(0, now, meter.capacity()));
        ChargeResult { verdict: Verdict::Later { wait_ns }, word, now, site: BucketSite::NoRoom }
    }

    /// The word of the key's bucket; of one without, that of a bucket of which nothing is used.
    #[inline(always)]
    fn word<C: Clock>(&self, buckets: &Buckets<C>, held: Option<Held>) -> Result<u64, StaleSnapshot> {
        self.current(buckets, held.unwrap_or(Held::word(self.limit.generation, 0)))
    }

    /// What was read, under the numbers of the snapshot, if that is still the newest.
    #[inline(always)]
    fn current<C: Clock>(&self, buckets: &Buckets<C>, held: Held) -> Result<u64, StaleSnapshot> {
        if self.is_stale(buckets) {
            return Err(StaleSnapshot);
        }
        match self.limit.current(held, &buckets.table.rings, || buckets.clock.now()) {
            Ok(word) => Ok(word),
            Err(ConversionError::Stray) => {
                self.settle(buckets, held);
                Err(StaleSnapshot)
            }
            Err(ConversionError::Lost) => Err(StaleSnapshot),
        }
    }

    /// Brings a bucket that is neither of the snapshot's numbers nor of those before to the snapshot's, unless it is of a newer
    /// snapshot: that was announced before any check could write by it.
    ///
    /// Otherwise a check wrote it that had begun to convert the bucket, and stalled while the limit's numbers changed so often
    /// that generations came round and the slot was as before.
    #[cold]
    fn settle<C: Clock>(&self, buckets: &Buckets<C>, stray: Held) {
        if buckets.announced.load() == self.version {
            let settled = |held| (held == stray).then(|| self.limit.settled(stray, buckets.clock.now()));
            buckets.table.change(self.key, settled);
        }
    }

    #[inline(always)]
    fn is_stale<C>(&self, buckets: &Buckets<C>) -> bool {
        // A snapshot is in place before its version is: a newer one than the version says is the newest.
        buckets.version.load() > self.version
    }

    /// Charges what a look admitted: by one swap, if nobody came between; else afresh, and `look` is then what came of it.
    #[inline(always)]
    pub(crate) fn charge_seen<C: Clock>(
        &self,
        buckets: &Buckets<C>,
        now: Nanos,
        look: &mut ChargePreview<'_>,
    ) -> Result<(), StaleSnapshot> {
        // What the store answered is not charged here.
        let is_here = !matches!(look.charged.site, BucketSite::Store | BucketSite::Nowhere);
        if is_here && !self.swap(look) {
            *look = self.charge(buckets, &|| now)?.into();
        }
        Ok(())
    }

    /// Makes the charge of a look that admitted on the fast path, and returns whether it did.
    #[inline(always)]
    fn swap(&self, ChargePreview { charged, found }: &ChargePreview<'_>) -> bool {
        let (Some(plain), Some(seen)) = (self.limit.plain, *found) else { return false };
        let ChargeResult { verdict, word, now, .. } = *charged;
        plain.charge(Stepped { verdict, word, now }, seen).is_ok()
    }

    /// Charges the limit, or changes nothing and says why not.
    #[inline(always)]
    pub(crate) fn charge<C: Clock>(
        &self,
        buckets: &Buckets<C>,
        read_clock: &impl Fn() -> Nanos,
    ) -> Result<ChargeResult, StaleSnapshot> {
        self.charge_after(buckets, read_clock, FastPathMiss::Untried)
    }

    /// Charges the limit as [`charge`](Self::charge) does, after the fast path was missed by a handle.
    #[inline(always)]
    pub(crate) fn charge_after<C: Clock>(
        &self,
        buckets: &Buckets<C>,
        read_clock: &impl Fn() -> Nanos,
        mut missed: FastPathMiss,
    ) -> Result<ChargeResult, StaleSnapshot> {
        if let FastPathMiss::Untried = missed {
            match self.charge_fast_path(buckets, read_clock) {
                Ok(charged) => return Ok(charged),
                Err(why) => missed = why,
            }
        }
        match missed {
            FastPathMiss::Leased { word, now } => self.charge_leased(buckets, now, word),
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
        let look = self.look_fast_path(buckets, read_clock)?;
        if self.swap(&look) { Ok(look.charged) } else { Err(FastPathMiss::Race) }
    }

    #[inline(always)]
    fn look_fast_path<'b, C>(
        &self,
        buckets: &'b Buckets<C>,
        read_clock: &impl Fn() -> Nanos,
    ) -> Result<ChargePreview<'b>, FastPathMiss> {
        let (Some(plain), Some(meter)) = (self.limit.plain, &self.limit.meter) else { return Err(FastPathMiss::Other) };
        let (is_newest, step) = (|| !self.is_stale(buckets), |word, now| meter.step(word, now, self.cost));
        let (stepped, seen) = plain.look(buckets.table.key_lines(self.key.hash()), read_clock, is_newest, step)?;
        Ok(ChargePreview { charged: ChargeResult::in_slot(stepped), found: Some(seen) })
    }

    /// Every case of [`charge`](Self::charge), after so many races were lost.
    #[cold]
    #[inline(never)]
    fn charge_slow_path<C: Clock>(
        self,
        buckets: &Buckets<C>,
        now: Nanos,
        retries: u64,
    ) -> Result<ChargeResult, StaleSnapshot> {
        if self.limit.meter.is_none() {
            return Ok(self.step(0, now, BucketSite::Slot));
        }
        match self.charge_slot(buckets, now, &mut Met { retries, ..Met::default() }) {
            Ok(charged) => charged,
            // At a time read now, as a first touch: this check may have stalled.
            Err(full) => Ok(self.without_room(buckets, buckets.clock.now(), full)),
        }
    }

    fn charge_slot<C: Clock>(
        &self,
        buckets: &Buckets<C>,
        mut now: Nanos,
        met: &mut Met,
    ) -> Result<Result<ChargeResult, StaleSnapshot>, Full> {
        if let Some(log) = self.log(buckets) {
            return self.charge_log(buckets, &log, now);
        }
        loop {
            let charged = self.update_word(buckets, now, met, |held, now| {
                if held.is_leased {
                    return Next::Leave(Err(held.word));
                }
                match self.next(self.step(held.word, now, BucketSite::Slot)) {
                    Next::Write(held, charged) => Next::Write(held, Ok(charged)),
                    Next::Leave(charged) => Next::Leave(Ok(charged)),
                }
            })?;
            match charged {
                Ok(Ok(charged)) => {
                    if met.retries > 0 && charged.is_admitted() {
                        self.with_lease(buckets, |lease| lease.contended(met.retries));
                    }
                    return Ok(Ok(charged));
                }
                Ok(Err(word)) => {
                    if let Some(charged) = self.charge_lease(buckets, now, word) {
                        return Ok(charged);
                    }
                    // The lease ended, and was paid for at a later time than that of this check.
                    now = buckets.clock.now();
                }
                Err(newer) => return Ok(Err(newer)),
            }
        }
    }

    /// Applies `transition` to the word of the key's slot, and whether that is leased.
    fn update_word<C: Clock, T>(
        &self,
        buckets: &Buckets<C>,
        now: Nanos,
        met: &mut Met,
        transition: impl Fn(Held, Nanos) -> Next<Held, T>,
    ) -> Result<Result<T, StaleSnapshot>, Full> {
        buckets.table.update_by(
            self.limit.group,
            self.key,
            now,
            || buckets.clock.now(),
            met,
            |held, now| {
                let is_leased = held.is_some_and(|held| self.is_leased(held));
                match (self.word(buckets, held), held.and_then(|held| self.limit.to_close(held))) {
                    // The next attempt charges it.
                    (Ok(_), Some(closed)) => Next::Write(closed, Err(StaleSnapshot)),
                    (Ok(word), None) => {
                        let current = Held { is_leased, ..Held::word(self.limit.generation, word) };
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

    #[inline(always)]
    fn next(&self, charged: ChargeResult) -> Next<Held, ChargeResult> {
        match charged.verdict {
            Verdict::Admit(word) => Next::Write(Held::word(self.limit.generation, word), charged),
            _ => Next::Leave(charged),
        }
    }
}
