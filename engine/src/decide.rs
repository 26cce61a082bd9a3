//! Deciding a plan: one limit directly, several all or none.

use arrayvec::ArrayVec;

use crate::{
    account::{Account, Buckets, Charged, Site},
    algorithm::Verdict,
    clock::Clock,
    decision::{Decision, Degraded, Shadows},
    policy::OnFailure,
    registry::{Live, Newer},
    snapshot::{Charge, PLAN_MAX},
    time::{Nanos, SECOND_NS},
};

/// The limits of a plan, in its order.
pub(crate) type Accounts<'l> = ArrayVec<Account<'l>, PLAN_MAX>;

/// Limits that were charged: their places in the plan, and what the charge left.
pub(crate) type Admitted = ArrayVec<(usize, Charged), PLAN_MAX>;

/// What the store said of the limits that it keeps.
#[derive(Clone, Copy)]
pub(crate) struct Answers<'a> {
    /// By place in the plan; where there is no answer, the limit's `on_failure` decides.
    pub(crate) answers: &'a [Option<Charged>],
    /// Why there is none.
    pub(crate) otherwise: Degraded,
}

/// Nobody asked.
pub(crate) const NO_ANSWERS: Answers<'_> = Answers { answers: &[], otherwise: Degraded::NoStore };

/// How long a client is told to wait where a limit is closed for want of its store.
const CLOSED_NS: u64 = SECOND_NS;

/// The limits of a plan, as they are in the snapshot that it is of.
pub(crate) fn accounts<'l>(live: &'l Live, plan: &[Charge]) -> Accounts<'l> {
    plan.iter().map(|charge| Account::new(live, charge)).collect()
}

impl<C: Clock> Buckets<C> {
    /// Decides a plan, and charges it when it is allowed.
    pub(crate) fn decide(&self, live: &Live, plan: &[Charge], now: Nanos) -> Result<Decision<'_>, Newer> {
        self.charge_all(live, &accounts(live, plan), now, NO_ANSWERS, &mut Admitted::new())
    }

    /// What [`decide`](Self::decide) would answer. Charges nothing.
    pub(crate) fn peek(&self, live: &Live, plan: &[Charge], now: Nanos) -> Result<Decision<'_>, Newer> {
        self.look_at_all(live, &accounts(live, plan), now, NO_ANSWERS)
    }

    /// All or nothing: looks before it charges, so that the common denial writes nothing, and gives back what it took when
    /// a later limit refuses in a race. Shadow limits are charged last, each only if it agrees. `admitted` is what was
    /// charged when this allows.
    pub(crate) fn charge_all(
        &self,
        live: &Live,
        accounts: &[Account<'_>],
        now: Nanos,
        answers: Answers<'_>,
        admitted: &mut Admitted,
    ) -> Result<Decision<'_>, Newer> {
        for (place, account) in enforced(accounts) {
            if let Some(refused) =
                answers.decide(place, account, now, |account| account.look(self, now))?.filter(refuses)
            {
                return Ok(self.refused(accounts, place, refused, answers));
            }
        }
        admitted.clear();
        let mark = self.moves.mark_brief();
        let give_back = |admitted: &mut Admitted| {
            for (place, charged) in admitted.drain(..) {
                self.give_backs.next();
                accounts[place].give_back(self, &charged, mark);
            }
        };
        for (place, account) in enforced(accounts) {
            match answers.decide(place, account, now, |account| account.charge(self, now)) {
                Ok(None) => {}
                Ok(Some(charged)) if charged.is_admitted() => admitted.push((place, charged)),
                Ok(Some(refused)) => {
                    give_back(admitted);
                    return Ok(self.refused(accounts, place, refused, answers));
                }
                Err(newer) => {
                    give_back(admitted);
                    return Err(newer);
                }
            }
        }
        let mut shadows = Shadows::default();
        if admitted.len() < accounts.len() {
            for (place, account) in accounts.iter().enumerate().filter(|(_, account)| account.is_shadow()) {
                // The enforced limits are charged by now: a shadow whose numbers a publish has just changed is left out.
                match answers.decide(place, account, now, |account| account.charge(self, now)) {
                    Ok(Some(charged)) if charged.is_admitted() => admitted.push((place, charged)),
                    Ok(Some(_)) => shadows.push(place, account.index()),
                    Ok(None) | Err(Newer) => {}
                }
            }
        }
        Ok(self.allowed(live, accounts, admitted, shadows, answers))
    }

    /// What [`charge_all`](Self::charge_all) would answer. Charges nothing.
    pub(crate) fn look_at_all(
        &self,
        live: &Live,
        accounts: &[Account<'_>],
        now: Nanos,
        answers: Answers<'_>,
    ) -> Result<Decision<'_>, Newer> {
        let (mut admitted, mut shadows) = (Admitted::new(), Shadows::default());
        for (place, account) in accounts.iter().enumerate() {
            let Some(looked) = answers.decide(place, account, now, |account| account.look(self, now))? else {
                continue;
            };
            match (looked.is_admitted(), account.is_shadow()) {
                (true, _) => admitted.push((place, looked)),
                (false, true) => shadows.push(place, account.index()),
                (false, false) => return Ok(self.refused(accounts, place, looked, answers)),
            }
        }
        Ok(self.allowed(live, accounts, &admitted, shadows, answers))
    }

    /// The first denial among the limits that this node keeps by itself. Charges nothing.
    pub(crate) fn refused_here(&self, accounts: &[Account<'_>], now: Nanos) -> Result<Option<Decision<'_>>, Newer> {
        for (place, account) in enforced(accounts).filter(|(_, account)| account.on_failure().is_none()) {
            let looked = account.look(self, now)?;
            if !looked.is_admitted() {
                return Ok(Some(account.decision(self, place, looked)));
            }
        }
        Ok(None)
    }

    /// The decision where no limit applies.
    pub(crate) fn unlimited(&self, live: &Live) -> Decision<'_> {
        Decision {
            policy_version: live.version,
            delay_ns: 0,
            degraded: None,
            decided_by: None,
            shadows: Shadows::default(),
            registry: &self.registry,
        }
    }

    fn refused(&self, accounts: &[Account<'_>], place: usize, refused: Charged, answers: Answers<'_>) -> Decision<'_> {
        let degraded = answers.degraded(&accounts[..=place]);
        Decision { degraded, ..accounts[place].decision(self, place, refused) }
    }

    /// The decision over limits that all admitted: it shows the enforced one with the least remaining.
    fn allowed(
        &self,
        live: &Live,
        accounts: &[Account<'_>],
        admitted: &Admitted,
        shadows: Shadows,
        answers: Answers<'_>,
    ) -> Decision<'_> {
        let each = admitted.iter().map(|(place, charged)| (*place, &accounts[*place], charged));
        let each = each.filter(|(_, account, _)| !account.is_shadow());
        let tightest = each.clone().min_by_key(|(_, account, charged)| account.outcome(charged).remaining());
        let decision = tightest
            .map_or_else(|| self.unlimited(live), |(place, account, charged)| account.decision(self, place, *charged));
        let delay_ns = each.map(|(_, account, charged)| account.outcome(charged).delay_ns()).max().unwrap_or(0);
        Decision { delay_ns, shadows, degraded: answers.degraded(accounts), ..decision }
    }
}

impl Answers<'_> {
    /// What decides a limit: `here`, or for one that the store keeps its answer, or else what the limit says for that case.
    /// `None`: it stays out of the decision.
    #[inline(always)]
    fn decide<'l>(
        self,
        place: usize,
        account: &Account<'l>,
        now: Nanos,
        here: impl FnOnce(&Account<'l>) -> Result<Charged, Newer>,
    ) -> Result<Option<Charged>, Newer> {
        match account.on_failure() {
            None => here(account).map(Some),
            Some(on_failure) => match (self.of(place), on_failure) {
                (Some(answer), _) => Ok(Some(answer)),
                (None, OnFailure::Local(_)) => here(account).map(Some),
                (None, OnFailure::Open) => Ok(None),
                (None, OnFailure::Closed) => {
                    let verdict = Verdict::Later { wait_ns: CLOSED_NS };
                    Ok(Some(Charged { verdict, word: 0, now, site: Site::Nowhere }))
                }
            },
        }
    }

    fn of(self, place: usize) -> Option<Charged> {
        self.answers.get(place).copied().flatten()
    }

    /// Was one of these limits decided without its store?
    fn degraded(self, accounts: &[Account<'_>]) -> Option<Degraded> {
        let is_unanswered =
            |(place, account): (usize, &Account<'_>)| account.on_failure().is_some() && self.of(place).is_none();
        accounts.iter().enumerate().any(is_unanswered).then_some(self.otherwise)
    }
}

fn refuses(charged: &Charged) -> bool {
    !charged.is_admitted()
}

/// The limits that can deny, with their places.
fn enforced<'a, 'l>(accounts: &'a [Account<'l>]) -> impl Iterator<Item = (usize, &'a Account<'l>)> {
    accounts.iter().enumerate().filter(|(_, account)| !account.is_shadow())
}
