//! Inspection: shows every limit that a request meets, as a check would find it now. Charges nothing.

use crate::{
    algorithm::Verdict,
    base::{clock::Clock, time::Nanos},
    engine::{
        account::{Account, ChargeResult},
        active_policy::{ActivePolicy, SnapshotResult},
        decide::{Accounts, NO_ANSWERS, StoreAnswers},
        decision::{Decision, Outcome},
        names::LimitIndex,
        state::Engine,
    },
    policy::{compiled::Snapshot, document::Sharing, planner::PlanEntry, request::Request},
};

/// The result of [`Engine::inspect`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Inspection<'e> {
    /// The decision that a check would make now.
    pub decision: Decision<'e>,
    /// The limits that the request meets, in the order in which they are checked. A check ends at the first that
    /// denies; an inspection looks at all.
    pub limits: Vec<InspectedLimit<'e>>,
}

/// A limit that a request meets.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct InspectedLimit<'e> {
    /// The full name.
    pub limit_id: &'e str,
    /// The index of the limit in the engine.
    pub limit: LimitIndex,
    /// Whether the limit is a shadow, which counts and never denies.
    pub is_shadow: bool,
    /// The way in which nodes share the limit.
    pub sharing: Sharing,
    /// Whether the state is the answer of the store through which nodes share the limit.
    pub is_stored: bool,
    /// The places in the request of the identities that are counted together; none if the limit counts everyone
    /// together.
    pub counted: Vec<usize>,
    /// The tokens that the request would take.
    pub cost: u64,
    /// The present state. For a limit that nodes share, the store's answer for all of them, or what this node counted
    /// alone.
    pub state: Outcome,
    /// The outcome that a check would have; `None` for a limit that nodes share and that stays out of the decision,
    /// because its store was not asked and it says `on_failure = "open"`.
    pub outcome: Option<Outcome>,
}

impl<C: Clock> Engine<C> {
    /// Inspects every limit that a request meets. Charges nothing and counts nothing. Meant for people, not for hot
    /// paths.
    ///
    /// ```
    /// # use tidegate::{Engine, Identity, Request, RequestError};
    /// # let engine = Engine::with_max_keys(10);
    /// let who = [Identity::new("user", "ada")?];
    /// for limit in engine.inspect(&Request::new(&who)?).limits {
    ///     println!("{} {} of {} left", limit.limit_id, limit.state.remaining(), limit.state.limit());
    /// }
    /// # Ok::<(), RequestError>(())
    /// ```
    pub fn inspect(&self, request: &Request<'_>) -> Inspection<'_> {
        let clock = || self.buckets.now();
        self.with_plan_by(Snapshot::plan_with_hidden, request, clock, |active, plan, now| {
            self.inspect_plan(active, plan, now, NO_ANSWERS)
        })
    }

    pub(crate) fn inspect_plan(
        &self,
        active: &ActivePolicy,
        plan: &[PlanEntry],
        now: Nanos,
        answers: StoreAnswers<'_>,
    ) -> SnapshotResult<Inspection<'_>> {
        let limits = plan.iter().enumerate().map(|(place, entry)| {
            let (account, free) = (Account::new(active, entry), Account::new(active, &PlanEntry { cost: 0, ..*entry }));
            let decided = answers.look(&self.buckets, place, &account, now)?;
            let stored = answers.of(place);
            let state = match stored {
                Some(stored) => ChargeResult { verdict: Verdict::Admit(stored.word), ..stored },
                None => free.look(&self.buckets, now)?.charged,
            };
            let limit = &active.limits[entry.limit as usize];
            let sharing = active.snapshot.limits[entry.limit as usize].stored.map(|stored| stored.sharing);
            Ok(InspectedLimit {
                limit_id: self.limit_name(LimitIndex(limit.index)),
                limit: LimitIndex(limit.index),
                is_shadow: limit.is_shadow,
                sharing: sharing.unwrap_or_default(),
                is_stored: stored.is_some(),
                counted: (0..u8::BITS as usize).filter(|place| entry.counted & (1 << place) != 0).collect(),
                cost: entry.cost,
                state: free.outcome(&state),
                outcome: decided.map(|preview| account.outcome(&preview.charged)),
            })
        });
        let limits = limits.collect::<Result<_, _>>()?;
        let accounts: Accounts<'_> = plan.iter().map(|entry| Account::new(active, entry)).collect();
        Ok(Inspection { limits, decision: self.buckets.look_at_all(active, &accounts, now, answers)? })
    }
}
