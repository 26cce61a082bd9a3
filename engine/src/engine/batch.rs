//! Batches: many checks at one time, whose buckets come from memory together.
//!
//! Over more keys than the caches hold, a check does little but wait for its bucket, and the next one waits again. A
//! batch first works out which buckets it will touch. A handle's batch has the processor fetch some of them while it
//! checks the one before. A request waits for the values of its identities, then for the entries of its clients, then
//! for its buckets: a batch of requests has the processor fetch each of these for several requests, before it checks
//! one after the other.

use std::hint::black_box;

use arrayvec::ArrayVec;

use crate::{
    algorithm::Verdict,
    base::{clock::Clock, hash::KeyHasher, key::Key, native128::Native128, time::Nanos},
    engine::{
        active_policy::StaleSnapshot,
        buckets::Buckets,
        decision::Decision,
        fast_path::FastPathMiss,
        handle::{Handle, is_in_range},
        state::Engine,
    },
    policy::{
        compiled::{PLAN_MAX, Snapshot},
        planner::{Plan, PlanEntry},
        request::{Request, RequestError},
    },
    storage::{sliding_log::StepResult, table::KeyLines},
};

/// The number of buckets that are charged at one time. They are no burden on the nearest cache of a processor.
const AHEAD: usize = 64;

/// The number of buckets of a handle's batch that come from memory while one is checked, so that waiting and checking
/// overlap. Their lines are about as many as a processor can wait for at one time.
const IN_FLIGHT: usize = 16;

/// The number of requests that a batch decides at one time.
const REQUESTS: usize = 16;

// The plan of any request fits.
const _: () = assert!(AHEAD >= PLAN_MAX);

/// The time of a batch. A first touch, a denial for want of room and the payments of stripes happen at a time that is
/// read anew. A check of the same key at an older time would be denied what is left of its burst, so after them the
/// batch reads its clock anew before it denies anything.
struct BatchClock<'b, C> {
    buckets: &'b Buckets<C>,
    now: Nanos,
    /// The number of charges that had been made at a time read anew, when `now` was read.
    later: u64,
}

impl<'b, C: Clock> BatchClock<'b, C> {
    fn new(buckets: &'b Buckets<C>) -> Self {
        let later = Self::charged_later(buckets);
        Self { buckets, now: buckets.now(), later }
    }

    #[inline(always)]
    fn now(&mut self) -> Nanos {
        if self.is_over() {
            *self = Self::new(self.buckets);
        }
        self.now
    }

    /// Returns whether the clock is to be read anew.
    #[inline(always)]
    fn is_over(&self) -> bool {
        self.later != Self::charged_later(self.buckets)
    }

    /// Returns how many charges any thread has made at a time read anew.
    #[inline(always)]
    fn charged_later(buckets: &Buckets<C>) -> u64 {
        buckets.table.claims() + buckets.denied_without_room() + buckets.stripes.payments()
    }
}

impl<C: Clock> Engine<C> {
    /// Decides several requests in their order, later ones after the charges of earlier ones, 16 of them at one time:
    /// the clock is read once for those, and again only after keys that are new. For a key that another thread has
    /// charged since, the returned wait may be longer by the time that has passed. Requests without a cost charge
    /// nothing.
    ///
    /// Over many keys this is faster than checks one at a time: the values of identities, the entries of clients and
    /// the buckets of 16 requests are fetched from memory together.
    ///
    /// ```
    /// use tidegate::{Engine, Identity, Request};
    ///
    /// let engine = Engine::with_max_keys(10);
    /// let who = [Identity::new("user", "ada")?];
    /// let mut decisions = Vec::new();
    /// engine.check_batch(&[Request::new(&who)?, Request::new(&who)?.cost(5)?], &mut decisions);
    /// assert_eq!(decisions.len(), 2);
    /// # Ok::<(), tidegate::RequestError>(())
    /// ```
    pub fn check_batch<'e>(&'e self, requests: &[Request<'_>], decisions: &mut impl Extend<Decision<'e>>) {
        let (buckets, native) = (&self.buckets, Native128::detect());
        let mut rest = requests;
        while !rest.is_empty() {
            let active = self.active.load();
            let mut instant = BatchClock::new(buckets);
            let now = instant.now();
            let next = &rest[..rest.len().min(REQUESTS)];
            for identity in next.iter().flat_map(|request| request.identities) {
                // A read whose value is not used.
                black_box(identity.value().as_bytes().first().copied());
            }
            active.snapshot.prefetch_clients(next);
            let mut entries = ArrayVec::<PlanEntry, AHEAD>::new();
            // The end of the plan of each request.
            let mut ends = ArrayVec::<usize, REQUESTS>::new();
            for request in next {
                let mut plan = Plan::new();
                active.snapshot.plan(request, active.wall(now), &buckets.hasher, &mut plan);
                // The next batch begins with what does not fit into this one.
                if entries.try_extend_from_slice(&plan).is_err() {
                    break;
                }
                ends.push(entries.len());
            }
            for entry in &entries {
                let hash = KeyHasher::key(active.limits[entry.limit as usize].hash, entry.identity);
                buckets.table.key_lines(hash).fetch(native);
            }
            let (together, later) = rest.split_at(ends.len());
            let mut start = 0;
            for (request, end) in together.iter().zip(ends) {
                let now = instant.now();
                let decided = if self.order().0 > active.version {
                    Err(StaleSnapshot)
                } else {
                    self.decide_plan(&active, request, &entries[start..end], now)
                };
                // A publish has replaced the policy: the newest one decides.
                decisions.extend(Some(decided.unwrap_or_else(|StaleSnapshot| {
                    self.with_plan_by(
                        Snapshot::plan,
                        request,
                        || now,
                        |active, plan, now| self.decide_plan(active, request, plan, now),
                    )
                })));
                start = end;
            }
            rest = later;
        }
    }
}

impl<'e, C: Clock> Handle<'e, C> {
    /// Checks many keys as [`check`](Self::check) does one, in their order, later ones after the charges of earlier
    /// ones, 64 of them at one time: the clock is read once for those, and again only after keys that are new. For a
    /// key that another thread has charged since, the returned wait may be longer by the time that has passed.
    ///
    /// Over many keys this is faster than checks one at a time: the buckets of later keys come from memory meanwhile.
    ///
    /// ```
    /// # use tidegate::{Engine, Snapshot, formats::Format};
    /// # let engine = Engine::new();
    /// # engine.publish(Snapshot::parse(r#"
    /// #     [domains.default]
    /// #     defaults = { user = "free" }
    /// #     [[domains.default.tiers]]
    /// #     id = "free"
    /// #     limits = [{ id = "minute", algorithm = "token_bucket", limit = 2, period = "1m" }]
    /// # "#, Format::Toml)?)?;
    /// let mut minute = engine.handle("default/tier:free/minute", "user").ok_or("no such limit")?;
    /// let mut decisions = Vec::new();
    /// minute.check_batch(&["ada", "bob", "ada", "ada"], &mut decisions);
    /// let allowed: Vec<bool> = decisions.iter().map(|decision| decision.is_allowed()).collect();
    /// assert_eq!(allowed, [true, true, true, false]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn check_batch<K: Key>(&mut self, keys: &[K], decisions: &mut impl Extend<Decision<'e>>) {
        self.decide_batch(keys, 1, decisions);
    }

    /// Checks many keys as [`check_batch`](Self::check_batch) does, each at this cost.
    ///
    /// # Errors
    ///
    /// [`RequestError::Cost`], if the cost is not from 1 to 2^53 - 1. Then nothing is decided.
    pub fn check_batch_n<K: Key>(
        &mut self,
        keys: &[K],
        cost: u64,
        decisions: &mut impl Extend<Decision<'e>>,
    ) -> Result<(), RequestError> {
        if !is_in_range(cost) {
            return Err(RequestError::Cost(cost));
        }
        self.decide_batch(keys, cost, decisions);
        Ok(())
    }

    fn decide_batch<K: Key>(&mut self, keys: &[K], cost: u64, decisions: &mut impl Extend<Decision<'e>>) {
        let (buckets, native) = (&self.engine.buckets, Native128::detect());
        for keys in keys.chunks(AHEAD) {
            let mut instant = BatchClock::new(buckets);
            let mut all = ArrayVec::<KeyLines<'_>, AHEAD>::new();
            all.extend(keys.iter().map(|key| buckets.table.key_lines(self.hash(key))));
            for lines in all.iter().take(IN_FLIGHT) {
                lines.fetch(native);
            }
            for (at, (key, &lines)) in keys.iter().zip(&all).enumerate() {
                if let Some(later) = all.get(at + IN_FLIGHT) {
                    later.prefetch();
                }
                let charged = match self.charge_one_token(|| lines, cost, || instant.now) {
                    Ok((StepResult { verdict: Verdict::Later { .. }, .. }, _)) if instant.is_over() => {
                        Err(FastPathMiss::Untried)
                    }
                    charged => charged,
                };
                let is_by_fast_path = charged.is_ok();
                decisions.extend(Some(match charged {
                    Ok((stepped, limit)) => self.decided_one(limit, stepped),
                    Err(missed) => self.decide_at(lines, key.text(), cost, instant.now(), missed),
                }));
                if !is_by_fast_path {
                    // The same key may come again. What this check charged at a later time is then no longer in its
                    // future.
                    instant.now();
                }
            }
        }
    }
}
