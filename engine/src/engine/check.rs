//! Checks of requests: plans the limits that a request meets, decides them by the policy in force, and counts the
//! decision.

use std::sync::Arc;

use crate::{
    base::{clock::Clock, hash::KeyHasher, time::Nanos},
    engine::{
        account::{Account, ChargeResult},
        active_policy::{ActiveLimit, ActivePolicy, SnapshotResult},
        decision::Decision,
        fast_path::FastPathMiss,
        names::LimitIndex,
        observer::CheckInput,
        state::Engine,
    },
    policy::{
        compiled::Snapshot,
        planner::{Plan, PlanEntry},
        request::Request,
    },
    storage::counters::{LimitCount, NoLimit},
};

/// A limit that a request met.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct MetLimit {
    /// The limit.
    pub limit: LimitIndex,
    /// The identities of the request that the limit counts together, as bits of their places; none if it counts
    /// everyone together.
    pub counted: u8,
    /// Whether the limit is a shadow that would have refused the request.
    pub shadow_denied: bool,
}

impl<C: Clock> Engine<C> {
    /// Decides a request, and charges it when it is allowed. Either all of its limits are charged, or none.
    ///
    /// A limit that nodes share is decided without its store, by its `on_failure`: the type `SharedEngine` of the crate
    /// `tidegate-fleet` is for checks that ask the store.
    pub fn check(&self, request: &Request<'_>) -> Decision<'_> {
        self.with_plan(request, |active, plan, now| self.decide_plan(active, request, plan, now))
    }

    /// Decides a request as [`check`](Self::check) does, and calls `met` with each limit that was looked at, in order,
    /// the deciding one included.
    pub fn check_observing(&self, request: &Request<'_>, mut met: impl FnMut(MetLimit)) -> Decision<'_> {
        self.with_plan(request, |active, plan, now| {
            let decision = self.decide_plan(active, request, plan, now)?;
            let looked_at =
                if decision.is_allowed() { plan.len() } else { decision.place().map_or(0, |place| place + 1) };
            for (place, entry) in plan[..looked_at].iter().enumerate() {
                let limit = &active.limits[entry.limit as usize];
                // A denial is made before any shadow limit is looked at.
                if decision.is_allowed() || !limit.is_shadow {
                    let shadow_denied = decision.shadows.places >> place & 1 == 1;
                    met(MetLimit { limit: LimitIndex(limit.index), counted: entry.counted, shadow_denied });
                }
            }
            Ok(decision)
        })
    }

    /// Returns what [`check`](Self::check) would decide now. Charges nothing and counts nothing.
    ///
    /// ```
    /// # use tidegate::{Engine, Identity, Request, RequestError};
    /// # let engine = Engine::with_max_keys(10);
    /// let who = [Identity::new("user", "ada")?];
    /// let now = engine.peek(&Request::new(&who)?.without_cost());
    /// println!("{:?} left", now.remaining());
    /// # Ok::<(), RequestError>(())
    /// ```
    pub fn peek(&self, request: &Request<'_>) -> Decision<'_> {
        self.with_plan(request, |active, plan, now| self.buckets.peek(active, plan, now))
    }

    /// Returns whether a limit counts a request, including one in shadow mode.
    ///
    /// ```
    /// # use tidegate::{Engine, Identity, Request, RequestError};
    /// # let engine = Engine::with_max_keys(10);
    /// let who = [Identity::new("user", "ada")?];
    /// assert!(!engine.has_limit(&Request::new(&who)?), "there is no policy");
    /// # Ok::<(), RequestError>(())
    /// ```
    #[must_use]
    pub fn has_limit(&self, request: &Request<'_>) -> bool {
        self.with_plan(request, |_, plan, _| Ok(!plan.is_empty()))
    }

    /// Plans the limits of a request and has them decided; starts over if a publish replaces the policy meanwhile.
    pub(crate) fn with_plan<T>(
        &self,
        request: &Request<'_>,
        decide: impl FnMut(&Arc<ActivePolicy>, &Plan, Nanos) -> SnapshotResult<T>,
    ) -> T {
        self.with_plan_by(Snapshot::plan, request, || self.buckets.now(), decide)
    }

    /// Works as [`with_plan`](Self::with_plan) does, with another way to plan and another clock.
    pub(crate) fn with_plan_by<T>(
        &self,
        plan_by: impl Fn(&Snapshot, &Request<'_>, Nanos, &KeyHasher, &mut Plan),
        request: &Request<'_>,
        read_clock: impl Fn() -> Nanos,
        mut decide: impl FnMut(&Arc<ActivePolicy>, &Plan, Nanos) -> SnapshotResult<T>,
    ) -> T {
        loop {
            let active = self.active.load();
            let now = read_clock();
            let mut plan = Plan::new();
            plan_by(&active.snapshot, request, active.wall(now), &self.buckets.hasher, &mut plan);
            // The newest snapshot is in place by now or in a moment.
            if let Ok(decided) = decide(&active, &plan, now) {
                return decided;
            }
        }
    }

    pub(crate) fn decide_plan(
        &self,
        active: &ActivePolicy,
        request: &Request<'_>,
        plan: &[PlanEntry],
        now: Nanos,
    ) -> SnapshotResult<Decision<'_>> {
        if request.cost == 0 {
            return self.buckets.peek(active, plan, now);
        }
        let input = CheckInput::Request(request);
        match plan {
            [one] if active.limits[one.limit as usize].is_enforced_here => {
                let account = Account::new(active, one);
                let charged = self.charge_one(&account, input, *one, &|| now, FastPathMiss::Untried)?;
                self.counters.spot(account.limit.owner_counter()).decided(charged.is_admitted());
                Ok(account.decision(&self.buckets, 0, charged))
            }
            several => self.decide_any(active, input, several, now),
        }
    }

    /// Charges the only limit of a plan, after the fast path was `missed`, and shows the result to the observers. The
    /// caller counts it and makes the decision last: a decision is large, so it is written once.
    #[inline(always)]
    pub(crate) fn charge_one(
        &self,
        account: &Account<'_>,
        input: CheckInput<'_>,
        entry: PlanEntry,
        read_clock: &impl Fn() -> Nanos,
        missed: FastPathMiss,
    ) -> SnapshotResult<ChargeResult> {
        let charged = account.charge_after(&self.buckets, read_clock, missed)?;
        self.observers.show(input, || (Some(entry), account.decision(&self.buckets, 0, charged)), charged.now);
        Ok(charged)
    }

    /// Decides any plan. Out of line, because its kilobytes of stack would be those of every check.
    #[inline(never)]
    pub(crate) fn decide_any(
        &self,
        active: &ActivePolicy,
        input: CheckInput<'_>,
        plan: &[PlanEntry],
        now: Nanos,
    ) -> SnapshotResult<Decision<'_>> {
        let decision = self.buckets.decide(active, plan, now)?;
        self.count(active, input, plan, &decision, now);
        Ok(decision)
    }

    /// Counts a decision at time `now`, and shows it to the observers.
    pub(crate) fn count(
        &self,
        active: &ActivePolicy,
        input: CheckInput<'_>,
        plan: &[PlanEntry],
        decision: &Decision<'_>,
        now: Nanos,
    ) {
        self.observers.show(input, || (decision.place().and_then(|place| plan.get(place)).copied(), *decision), now);
        if plan.is_empty() {
            let known = input.request().is_none_or(|request| active.snapshot.domains.contains_key(request.domain));
            return self.counters.no_limit(if known { NoLimit::Applies } else { NoLimit::UnknownDomain });
        }
        let counter = |entry: &PlanEntry| active.limits[entry.limit as usize].counter;
        match decision.place() {
            Some(place) if !decision.is_allowed() => {
                self.counters.spot(plan.get(place).and_then(counter)).decided(false);
            }
            _ => {
                let shadows = decision.shadows.places;
                if shadows == 0 && is_each_owner_whole(active, plan) {
                    self.counters.allowed(plan.iter().filter_map(|entry| share_alone(active, entry)));
                } else {
                    self.counters.allowed((0..plan.len()).filter_map(|place| share(active, plan, shadows, place)));
                }
            }
        }
    }
}

/// Returns whether each limit of a plan counts what it would count alone: each owner's limits stand together once, its
/// first limit before its others. May return false where that is so.
fn is_each_owner_whole(active: &ActivePolicy, plan: &[PlanEntry]) -> bool {
    let (mut present, mut seen) = (u32::MAX, 0_u64);
    plan.iter().all(|entry| {
        let owner = active.limits[entry.limit as usize].owner;
        if entry.limit != owner {
            return owner == present;
        }
        // Two owners may have the same bit.
        let bit = 1 << (owner % u64::BITS);
        let is_new = seen & bit == 0;
        (present, seen) = (owner, seen | bit);
        is_new
    })
}

/// Returns what a limit counts of an allowed request, where it counts what it would count alone.
fn share_alone(active: &ActivePolicy, entry: &PlanEntry) -> Option<LimitCount> {
    let place = active.limits[entry.limit as usize].counter?;
    Some(LimitCount { place, is_refused: false, is_refused_first: false })
}

/// Returns what the limit at `place` of a plan counts of an allowed request. A limit counts it once, whatever the
/// number of identities that it was charged for; `None` if it has counted it. `shadows` are the places, as bits, of
/// shadow limits that would have refused it.
fn share(active: &ActivePolicy, plan: &[PlanEntry], shadows: u64, place: usize) -> Option<LimitCount> {
    let this = plan[place].limit;
    let ActiveLimit { owner, counter, .. } = active.limits[this as usize];
    let is_of_owner = |entry: &&PlanEntry| active.limits[entry.limit as usize].owner == owner;
    let is_refused = |limit: u32| (0..plan.len()).any(|at| shadows >> at & 1 == 1 && plan[at].limit == limit);
    let before = || plan[..place].iter().filter(is_of_owner);
    if before().any(|entry| entry.limit == this) {
        return None;
    }
    // The first limit of an owner counts for the owner; where that limit is not in the plan, the first one that is.
    let is_for_owner = this == owner || before().next().is_none() && plan.iter().all(|entry| entry.limit != owner);
    let place = counter.map(|place| if is_for_owner { place.for_owner() } else { place })?;
    let is_refused_now = shadows != 0 && is_refused(this);
    let is_refused_first = is_refused_now && !before().any(|entry| is_refused(entry.limit));
    Some(LimitCount { place, is_refused: is_refused_now, is_refused_first })
}

#[cfg(all(test, not(engine_loom)))]
mod owner_counts;
