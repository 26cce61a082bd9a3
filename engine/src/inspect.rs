//! Every limit that a request meets, as it is now: what a check would find, one by one. Charges nothing.

use crate::{
    account::Account,
    clock::Clock,
    decide::NO_ANSWERS,
    decision::{Decision, Outcome},
    engine::Engine,
    registry::LimitIndex,
    request::Request,
    snapshot::{Charge, Snapshot},
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
    /// Nodes share it through a store.
    pub is_shared: bool,
    /// Places in the request of the identities that are counted together; none: everyone.
    pub counted: Vec<usize>,
    /// The tokens that the request would take.
    pub cost: u64,
    /// As it is now. Of a limit that nodes share, what this node counted alone.
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
        self.with_plan_by(Snapshot::plan_behind_blocks, request, clock, |live, plan, now| {
            let limits = plan.iter().enumerate().map(|(place, charge)| {
                let (account, free) = (Account::new(live, charge), Account::new(live, &Charge { cost: 0, ..*charge }));
                let decided = NO_ANSWERS.decide(place, &account, now, || account.look(self.buckets(), now))?;
                let limit = &live.limits[charge.limit as usize];
                Ok(Inspected {
                    limit_id: self.limit_name(LimitIndex(limit.index)),
                    limit: LimitIndex(limit.index),
                    is_shadow: limit.is_shadow,
                    is_shared: account.on_failure().is_some(),
                    counted: (0..u8::BITS as usize).filter(|place| charge.counted & (1 << place) != 0).collect(),
                    cost: charge.cost,
                    state: free.outcome(&free.look(self.buckets(), now)?.charged),
                    outcome: decided.map(|look| account.outcome(&look.charged)),
                })
            });
            Ok(Inspection {
                limits: limits.collect::<Result<_, _>>()?,
                decision: self.buckets().peek(live, plan, now)?,
            })
        })
    }
}
