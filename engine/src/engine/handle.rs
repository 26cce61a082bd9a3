//! `Handle`: one limit, looked up once and checked many times.

use std::sync::Arc;

use crate::{
    algorithm::{NUMBER_MAX, Verdict},
    base::{
        clock::{Clock, SystemClock},
        hash::{IdentityHash, KeyHasher, kind_hash},
        key::Key,
        time::Nanos,
    },
    engine::{
        account::{Account, ChargeResult},
        active_policy::{ActiveLimit, ActivePolicy, SnapshotResult, StaleSnapshot},
        decision::Decision,
        fast_path::FastPathMiss,
        fast_path_metered::MeteredLimit,
        fast_path_one_token::OneTokenLimit,
        observer::CheckInput,
        state::Engine,
    },
    policy::{planner::PlanEntry, request::RequestError},
    storage::{counters::HandleCounts, sliding_log::StepResult, table::KeyLines},
};

/// One limit, looked up once, for callers that know which limit they want: the shortest way to its buckets.
///
/// It counts the identities of one kind, in the same buckets as the requests that the policy sends to the limit, and it
/// stays right across publishes. Clone one per thread, and keep it: to make, clone or drop one takes a lock. It cannot
/// outlive its engine.
///
/// ```
/// use tidegate::{Engine, Identity, Request, Snapshot, formats::Format};
///
/// let engine = Engine::new();
/// engine.publish(Snapshot::parse(r#"
///     [domains.default]
///     defaults = { user = "free" }
///     [[domains.default.tiers]]
///     id = "free"
///     limits = [{ id = "minute", algorithm = "token_bucket", limit = 2, period = "1m" }]
/// "#, Format::Toml)?)?;
///
/// let mut minute = engine.handle("default/tier:free/minute", "user").ok_or("no such limit")?;
/// assert!(minute.check("ada").is_allowed());
/// let ada = [Identity::new("user", "ada")?];
/// assert!(engine.check(&Request::new(&ada)?).is_allowed());
/// assert!(!minute.check("ada").is_allowed()); // the same bucket
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Handle<'e, C = SystemClock> {
    pub(crate) engine: &'e Engine<C>,
    limit_id: Box<str>,
    /// The hash of the limit's full name.
    limit_hash: u64,
    kind: Box<str>,
    /// The part that the hashes of its keys have in common.
    seed: u64,
    pub(crate) active: Arc<ActivePolicy>,
    /// The version of `active`.
    version: u64,
    /// The place of the limit in `active`; `None` while the policy does not have it.
    pub(crate) place: Option<u32>,
    /// Serves checks that cost one token, where `metered` is set and the limit is a token bucket.
    one_token: Option<OneTokenLimit>,
    /// Serves checks of any cost, where the limit has a fast path, and is enforced and kept on this node alone.
    metered: Option<MeteredLimit>,
    counts: HandleCounts<'e>,
}

impl<C: Clock> Engine<C> {
    /// Returns a handle on the limit with this full name, such as `default/tier:free/minute`, for identities of `kind`.
    ///
    /// Returns `None` if the policy has no such limit now, or if the limit belongs to a rule that counts something else
    /// than this one kind: everyone together, or a combination. A rule's `cost` is for its requests; a check by handle
    /// has a cost of one, or the one that [`check_n`](Handle::check_n) takes.
    pub fn handle(&self, limit_id: &str, kind: &str) -> Option<Handle<'_, C>> {
        let active = self.active.load_full();
        let place = place_in(&active, limit_id, kind)?;
        let limit = &active.limits[place as usize];
        let limit_hash = limit.hash;
        let (one_token, metered) = self.fast_paths(limit);
        let counts = self.counters.own(limit.owner_counter());
        Some(Handle {
            engine: self,
            limit_id: limit_id.into(),
            limit_hash,
            kind: kind.into(),
            seed: KeyHasher::seed(limit_hash, kind_hash(kind)),
            version: active.version,
            active,
            place: Some(place),
            one_token,
            metered,
            counts,
        })
    }

    fn fast_paths(&self, limit: &ActiveLimit) -> (Option<OneTokenLimit>, Option<MeteredLimit>) {
        let metered = MeteredLimit::new(limit).filter(|_| limit.is_enforced_here);
        let one_token = metered.and_then(|_| OneTokenLimit::new(limit, &self.buckets.stripes));
        (one_token, metered)
    }
}

/// Returns whether a check may have this cost.
#[inline(always)]
pub(crate) fn is_in_range(cost: u64) -> bool {
    (1..=NUMBER_MAX).contains(&cost)
}

fn place_in(active: &ActivePolicy, limit_id: &str, kind: &str) -> Option<u32> {
    let place = active.snapshot.limit_names().position(|name| name == limit_id)?;
    active.snapshot.counts(place, kind).then_some(place as u32)
}

impl<'e, C: Clock> Handle<'e, C> {
    /// Charges one token to the bucket of `key`, or changes nothing and says why not.
    ///
    /// Requests carry text, so a text counts in the bucket of the requests whose identity has that value. Every other
    /// key has a bucket of its own: 7 is not the user `"7"`, and an `IpAddr` is not the address written out. Use one
    /// type of key for a limit everywhere.
    ///
    /// The check is allowed, by no limit, while the policy does not have this one.
    #[expect(clippy::missing_panics_doc, reason = "a cost of one is in range")]
    #[inline(always)]
    pub fn check(&mut self, key: impl Key) -> Decision<'e> {
        // A decision is larger than the rest of the work. A second place that builds one makes the compiler build both in a
        // temporary and copy it, so `check` shares the one of `check_n`.
        self.check_n(key, 1).expect("one is in range")
    }

    /// Charges `cost` tokens to the bucket of `key`, as [`check`](Self::check) does one, all or nothing.
    ///
    /// # Errors
    ///
    /// [`RequestError::Cost`], if the cost is not from 1 to 2^53 - 1.
    #[inline(always)]
    pub fn check_n(&mut self, key: impl Key, cost: u64) -> Result<Decision<'e>, RequestError> {
        let (hash, buckets) = (self.hash(&key), &self.engine.buckets);
        match self.charge_one_token(|| buckets.table.key_lines(hash), cost, || buckets.now()) {
            Ok((stepped, limit)) => Ok(self.decided_one(limit, stepped)),
            Err(missed) => self.check_metered(hash, key.text(), cost, missed),
        }
    }

    /// Returns what [`check`](Self::check) would decide now. Charges nothing, and is not counted as a decision; a new key
    /// without room is counted in [`Totals::denied_without_room`](crate::Totals::denied_without_room).
    pub fn peek(&mut self, key: impl Key) -> Decision<'e> {
        self.peek_at_cost(&key, 1)
    }

    /// Returns what [`check_n`](Self::check_n) would decide now, as [`peek`](Self::peek) does. A cost of 0 returns what is
    /// left.
    ///
    /// # Errors
    ///
    /// [`RequestError::Cost`], if the cost is above 2^53 - 1.
    pub fn peek_n(&mut self, key: impl Key, cost: u64) -> Result<Decision<'e>, RequestError> {
        if cost > NUMBER_MAX {
            return Err(RequestError::Cost(cost));
        }
        Ok(self.peek_at_cost(&key, cost))
    }

    fn peek_at_cost(&mut self, key: &impl Key, cost: u64) -> Decision<'e> {
        // A limit that reads no bucket, or is not in the policy, does not find out by itself that there is a newer one.
        if self.engine.order().0 != self.version {
            self.look_up_again();
        }
        let (engine, identity) = (self.engine, KeyHasher::identity_of(self.limit_hash, self.hash(key)));
        self.with_entry(identity, cost, |handle, entry| {
            engine.buckets.peek(&handle.active, entry, engine.buckets.now())
        })
    }

    /// Charges one token to the key of these lines on the fast path. The caller counts the result.
    #[inline(always)]
    pub(crate) fn charge_one_token(
        &self,
        lines: impl FnOnce() -> KeyLines<'e>,
        cost: u64,
        read_clock: impl FnOnce() -> Nanos,
    ) -> Result<(StepResult, &OneTokenLimit), FastPathMiss> {
        let limit = self.one_token.as_ref().filter(|_| cost == 1).ok_or(FastPathMiss::Untried)?;
        let stepped = limit.charge(&self.engine.buckets.stripes, lines(), read_clock, || self.is_newest())?;
        Ok((stepped, limit))
    }

    /// Counts a charge of one token, and returns its decision.
    #[inline(always)]
    pub(crate) fn decided_one(&self, limit: &OneTokenLimit, stepped: StepResult) -> Decision<'e> {
        self.counts.decided(matches!(stepped.verdict, Verdict::Admit(_)));
        limit.decision(&self.engine.buckets, self.version, stepped)
    }

    /// Returns whether the handle has the newest policy, and no observer is to see its decisions.
    #[inline(always)]
    fn is_newest(&self) -> bool {
        self.engine.observers.is_newest_unwatched(self.version)
    }

    /// Decides a check that missed the fast path of one token. Out of line, so that that path has the registers to
    /// itself.
    #[inline(never)]
    fn check_metered(
        &mut self,
        hash: u64,
        value: &[u8],
        cost: u64,
        missed: FastPathMiss,
    ) -> Result<Decision<'e>, RequestError> {
        let buckets = &self.engine.buckets;
        let missed = match (&self.metered, missed) {
            (Some(limit), FastPathMiss::Untried) if is_in_range(cost) => {
                let lines = buckets.table.key_lines(hash);
                match limit.charge(lines, cost, || buckets.now(), || self.is_newest()) {
                    Ok(stepped) => return Ok(self.decided(limit, cost, stepped)),
                    Err(missed) => missed,
                }
            }
            (_, missed) => missed,
        };
        self.check_slow_path(hash, value, cost, missed)
    }

    /// Counts a charge, and returns its decision.
    #[inline(always)]
    fn decided(&self, limit: &MeteredLimit, cost: u64, stepped: StepResult) -> Decision<'e> {
        self.counts.decided(matches!(stepped.verdict, Verdict::Admit(_)));
        limit.decision(&self.engine.buckets, self.version, cost, stepped)
    }

    /// Decides a check that missed both fast paths.
    #[inline(never)]
    fn check_slow_path(
        &mut self,
        hash: u64,
        value: &[u8],
        cost: u64,
        missed: FastPathMiss,
    ) -> Result<Decision<'e>, RequestError> {
        if !is_in_range(cost) {
            return Err(RequestError::Cost(cost));
        }
        let buckets = &self.engine.buckets;
        Ok(self.decide(hash, value, cost, || buckets.now(), missed))
    }

    /// Decides a check at this time, after it missed the fast path of one token.
    #[inline(never)]
    pub(crate) fn decide_at(
        &mut self,
        lines: KeyLines<'e>,
        value: &[u8],
        cost: u64,
        now: Nanos,
        mut missed: FastPathMiss,
    ) -> Decision<'e> {
        if let (FastPathMiss::Untried, Some(limit)) = (missed, &self.metered) {
            match limit.charge(lines, cost, || now, || self.is_newest()) {
                Ok(stepped) => return self.decided(limit, cost, stepped),
                Err(why) => missed = why,
            }
        }
        self.decide(lines.hash, value, cost, || now, missed)
    }

    #[inline(always)]
    fn decide(
        &mut self,
        hash: u64,
        value: &[u8],
        cost: u64,
        read_clock: impl Fn() -> Nanos,
        missed: FastPathMiss,
    ) -> Decision<'e> {
        let identity = KeyHasher::identity_of(self.limit_hash, hash);
        // The fast path is still to be tried, by the newest policy, or with an observer.
        let missed = if let FastPathMiss::Stale = missed { FastPathMiss::Untried } else { missed };
        // Each decision is made where it is used: it is large, and copying it would take longer than the check.
        match self.charge(identity, value, cost, &read_clock, missed) {
            Some(charged) => self.decision(identity, cost, charged),
            None => self.decide_any(identity, value, cost, read_clock),
        }
    }

    /// Returns the hash of a key, which is the same under every policy.
    #[inline(always)]
    pub(crate) fn hash(&self, key: &impl Key) -> u64 {
        KeyHasher::key_of_value(self.seed, key.key_hash(&self.engine.buckets.hasher))
    }

    /// Charges the limit alone, after the fast path was `missed`. Observers are shown `value`. Returns `None`, and does
    /// nothing, if the limit is a shadow, is kept in a store, or is not in the policy: then
    /// [`decide_any`](Self::decide_any) decides.
    #[inline(always)]
    pub(crate) fn charge(
        &mut self,
        identity: IdentityHash,
        value: &[u8],
        cost: u64,
        read_clock: impl Fn() -> Nanos,
        mut missed: FastPathMiss,
    ) -> Option<ChargeResult> {
        loop {
            if self.engine.order().0 != self.version {
                self.look_up_again();
                missed = FastPathMiss::Untried;
            }
            let place = self.place?;
            let limit = &self.active.limits[place as usize];
            if !limit.is_enforced_here {
                return None;
            }
            let account = Account::enforced_here(limit, self.version, identity, cost);
            let entry = PlanEntry { limit: place, identity, cost, counted: 0 };
            let input = CheckInput::Handle { kind: &self.kind, value };
            if let Ok(charged) = self.engine.charge_one(&account, input, entry, &read_clock, missed) {
                self.counts.decided(charged.is_admitted());
                return Some(charged);
            }
            // A newer snapshot is in place by now or in a moment, though its version may not be stored yet.
            self.look_up_again();
            missed = FastPathMiss::Untried;
        }
    }

    /// Returns the decision of a [`charge`](Self::charge), under the numbers that it used.
    #[inline(always)]
    pub(crate) fn decision(&self, identity: IdentityHash, cost: u64, charged: ChargeResult) -> Decision<'e> {
        let limit = &self.active.limits[self.place.unwrap_or_default() as usize];
        Account::enforced_here(limit, self.version, identity, cost).decision(&self.engine.buckets, 0, charged)
    }

    /// Decides a check that [`charge`](Self::charge) cannot decide.
    #[cold]
    pub(crate) fn decide_any(
        &mut self,
        identity: IdentityHash,
        value: &[u8],
        cost: u64,
        read_clock: impl Fn() -> Nanos,
    ) -> Decision<'e> {
        let engine = self.engine;
        self.with_entry(identity, cost, |handle, entry| {
            let input = CheckInput::Handle { kind: &handle.kind, value };
            engine.decide_any(&handle.active, input, entry, read_clock())
        })
    }

    /// Calls `decide` with the plan entry of the limit, or with none while the policy does not have the limit. Starts over if
    /// a publish replaces the policy meanwhile.
    fn with_entry(
        &mut self,
        identity: IdentityHash,
        cost: u64,
        decide: impl Fn(&Self, &[PlanEntry]) -> SnapshotResult<Decision<'e>>,
    ) -> Decision<'e> {
        loop {
            let entry = self.place.map(|limit| PlanEntry { limit, identity, cost, counted: 0 });
            match decide(self, entry.as_slice()) {
                Ok(decision) => return decision,
                Err(StaleSnapshot) => self.look_up_again(),
            }
        }
    }

    #[cold]
    fn look_up_again(&mut self) {
        self.active = self.engine.active.load_full();
        self.version = self.active.version;
        self.place = place_in(&self.active, &self.limit_id, &self.kind);
        let limit = self.place.map(|place| &self.active.limits[place as usize]);
        (self.one_token, self.metered) = limit.map(|limit| self.engine.fast_paths(limit)).unwrap_or_default();
    }
}

impl<C> Clone for Handle<'_, C> {
    fn clone(&self) -> Self {
        Self {
            limit_id: self.limit_id.clone(),
            kind: self.kind.clone(),
            active: Arc::clone(&self.active),
            counts: self.counts.another(),
            ..*self
        }
    }
}
