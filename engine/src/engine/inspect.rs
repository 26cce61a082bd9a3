//! Inspection: every limit that a request meets, as a check would find it now. Charges nothing.

use crate::{
    algorithm::Verdict,
    base::{clock::Clock, time::Nanos},
    engine::{
        account::{Account, ChargeResult},
        active_policy::{ActivePolicy, StaleSnapshot},
        decide::{Accounts, NO_ANSWERS, StoreAnswers},
        decision::{Decision, Outcome},
        names::LimitIndex,
        state::Engine,
    },
    policy::{compiled::Snapshot, document::Sharing, planner::Charge, request::Request},
};

/// What [`Engine::inspect`] found.
#[derive(Debug)]
#[non_exhaustive]
pub struct Inspection<'e> {
    /// What a check would answer now.
    pub decision: Decision<'e>,
    /// The limits that the request meets, in the order in which they are checked. A check ends at the first that denies;
    /// here all are looked at.
    pub limits: Vec<Inspected<'e>>,
}

/// A limit that a request meets.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Inspected<'e> {
    /// Full name.
    pub limit_id: &'e str,
    /// Its place among the limits of the engine.
    pub limit: LimitIndex,
    /// It counts, and never denies.
    pub is_shadow: bool,
    /// How nodes share it.
    pub sharing: Sharing,
    /// The store that nodes share it through was asked, and this is what it says.
    pub is_stored: bool,
    /// Places in the request of the identities that are counted together; none: everyone.
    pub counted: Vec<usize>,
    /// The tokens that the request would take.
    pub cost: u64,
    /// As it is now. Of a limit that nodes share, what the store says of all of them, or what this node counted alone.
    pub state: Outcome,
    /// What it would decide, and leave; `None` for a limit that nodes share and that stays out of the decision, because nobody
    /// asked its store and it says `on_failure = "open"`.
    pub outcome: Option<Outcome>,
}

impl<C: Clock> Engine<C> {
    /// Looks at every limit that a request meets. Charges nothing and counts nothing; for people, not for hot paths.
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
        let clock = || self.buckets().clock.now();
        self.with_plan_by(Snapshot::plan_behind_blocks, request, clock, |active, plan, now| {
            self.inspect_plan(active, plan, now, NO_ANSWERS)
        })
    }

    pub(crate) fn inspect_plan(
        &self,
        active: &ActivePolicy,
        plan: &[Charge],
        now: Nanos,
        answers: StoreAnswers<'_>,
    ) -> Result<Inspection<'_>, StaleSnapshot> {
        let limits = plan.iter().enumerate().map(|(place, charge)| {
            let (account, free) = (Account::new(active, charge), Account::new(active, &Charge { cost: 0, ..*charge }));
            let decided = answers.look(self.buckets(), place, &account, now)?;
            let stored = answers.of(place);
            let state = match stored {
                Some(stored) => ChargeResult { verdict: Verdict::Admit(stored.word), ..stored },
                None => free.look(self.buckets(), now)?.charged,
            };
            let limit = &active.limits[charge.limit as usize];
            let sharing = active.snapshot.limits[charge.limit as usize].stored.map(|stored| stored.sharing);
            Ok(Inspected {
                limit_id: self.limit_name(LimitIndex(limit.index)),
                limit: LimitIndex(limit.index),
                is_shadow: limit.is_shadow,
                sharing: sharing.unwrap_or_default(),
                is_stored: stored.is_some(),
                counted: (0..u8::BITS as usize).filter(|place| charge.counted & (1 << place) != 0).collect(),
                cost: charge.cost,
                state: free.outcome(&state),
                outcome: decided.map(|look| account.outcome(&look.charged)),
            })
        });
        let limits = limits.collect::<Result<_, _>>()?;
        let accounts: Accounts<'_> = plan.iter().map(|charge| Account::new(active, charge)).collect();
        Ok(Inspection { limits, decision: self.buckets().look_at_all(active, &accounts, now, answers)? })
    }
}
