//! Charges the limits that a request meets: one limit directly, several all or none.

use arrayvec::ArrayVec;

use crate::{
    algorithm::Verdict,
    base::{
        clock::Clock,
        time::{Nanos, SECOND_NS},
    },
    engine::{
        account::{Account, BucketSite, ChargePreview, ChargeResult},
        active_policy::{ActivePolicy, SnapshotResult, StaleSnapshot},
        buckets::Buckets,
        decision::{Decision, Degraded, Shadows},
    },
    policy::{compiled::PLAN_MAX, document::OnFailure, planner::PlanEntry},
};

/// The limits of a plan, in its order.
pub(crate) type Accounts<'l> = ArrayVec<Account<'l>, PLAN_MAX>;

/// Limits that were charged or are about to be: their places in the plan, and the results of their charges.
pub(crate) type Admitted<'b> = ArrayVec<(usize, ChargePreview<'b>), PLAN_MAX>;

/// The answers of the store for the limits that it keeps.
#[derive(Clone, Copy)]
pub(crate) struct StoreAnswers<'a> {
    /// The answers by place in the plan. Where there is none, the limit's `on_failure` decides.
    pub(crate) answers: &'a [Option<ChargeResult>],
    /// The reason why answers are missing.
    pub(crate) otherwise: Degraded,
}

/// The source of a limit's verdict.
enum LimitSource {
    /// The bucket on this node.
    Bucket,
    /// The store, or `on_failure` of the limit where the store does not answer.
    Answer(ChargeResult),
    /// Nothing: the limit stays out of the decision.
    Nothing,
}

/// The answers where no store was asked.
pub(crate) const NO_ANSWERS: StoreAnswers<'_> = StoreAnswers { answers: &[], otherwise: Degraded::NoStore };

/// The wait that a client is given where a limit is closed for want of its store.
const CLOSED_NS: u64 = SECOND_NS;

/// Returns the accounts of a plan under the snapshot that the plan belongs to.
pub(crate) fn accounts<'l>(active: &'l ActivePolicy, plan: &[PlanEntry]) -> impl Iterator<Item = Account<'l>> {
    plan.iter().map(|entry| Account::new(active, entry))
}

impl<C: Clock> Buckets<C> {
    /// Decides a plan, and charges it when it is allowed.
    pub(crate) fn decide(&self, active: &ActivePolicy, plan: &[PlanEntry], now: Nanos) -> SnapshotResult<Decision<'_>> {
        let (mut limits, mut admitted) = (Accounts::new(), Admitted::new());
        // The buckets come from memory at the same time.
        limits.extend(accounts(active, plan).inspect(|account| account.prefetch(self)));
        self.charge_all(active, &limits, now, NO_ANSWERS, &mut admitted)
    }

    /// Returns what [`decide`](Self::decide) would decide. Charges nothing.
    pub(crate) fn peek(&self, active: &ActivePolicy, plan: &[PlanEntry], now: Nanos) -> SnapshotResult<Decision<'_>> {
        let mut limits = Accounts::new();
        limits.extend(accounts(active, plan));
        self.look_at_all(active, &limits, now, NO_ANSWERS)
    }

    /// Charges all limits or none. It looks at all before it charges any, so that the common denial writes nothing, and
    /// gives back what it took when a later limit refuses in a race. Shadow limits are charged last, each only if it
    /// admits. `admitted` is empty at first, and holds what was charged when this allows.
    pub(crate) fn charge_all<'b>(
        &'b self,
        active: &ActivePolicy,
        accounts: &[Account<'_>],
        now: Nanos,
        answers: StoreAnswers<'_>,
        admitted: &mut Admitted<'b>,
    ) -> SnapshotResult<Decision<'b>> {
        for (place, account) in enforced(accounts) {
            let preview = match answers.decider(place, account, now) {
                LimitSource::Bucket => account.look(self, now)?,
                LimitSource::Answer(charged) => charged.into(),
                LimitSource::Nothing => continue,
            };
            if !preview.charged.is_admitted() {
                return Ok(self.refused(accounts, place, preview.charged, answers));
            }
            admitted.push((place, preview));
        }
        let mark = self.refund_log.mark_brief();
        for index in 0..admitted.len() {
            let (place, preview) = &mut admitted[index];
            let (place, outcome) = (*place, accounts[*place].charge_previewed(self, now, preview));
            let charged = preview.charged;
            if outcome.is_err() || !charged.is_admitted() {
                for (place, preview) in admitted.drain(..).take(index) {
                    self.give_backs.next();
                    accounts[place].give_back(self, &preview.charged, mark);
                }
                return outcome.map(|()| self.refused(accounts, place, charged, answers));
            }
        }
        let mut shadows = Shadows::default();
        if admitted.len() < accounts.len() {
            for (place, account) in accounts.iter().enumerate().filter(|(_, account)| account.limit.is_shadow) {
                // The enforced limits are charged by now. If a publish has replaced the policy since, the shadow is
                // left out.
                let charged = match answers.decider(place, account, now) {
                    LimitSource::Bucket => account.charge(self, &|| now),
                    LimitSource::Answer(charged) => Ok(charged),
                    LimitSource::Nothing => continue,
                };
                match charged {
                    Ok(charged) if charged.is_admitted() => admitted.push((place, charged.into())),
                    Ok(_) => shadows.push(place, account.limit.index),
                    Err(StaleSnapshot) => {}
                }
            }
        }
        Ok(self.allowed(active, accounts, admitted, shadows, answers))
    }

    /// Returns what [`charge_all`](Self::charge_all) would decide. Charges nothing.
    pub(crate) fn look_at_all(
        &self,
        active: &ActivePolicy,
        accounts: &[Account<'_>],
        now: Nanos,
        answers: StoreAnswers<'_>,
    ) -> SnapshotResult<Decision<'_>> {
        let (mut admitted, mut shadows) = (Admitted::new(), Shadows::default());
        for (place, account) in accounts.iter().enumerate() {
            let Some(preview) = answers.look(self, place, account, now)? else { continue };
            match (preview.charged.is_admitted(), account.limit.is_shadow) {
                (true, _) => admitted.push((place, preview)),
                (false, true) => shadows.push(place, account.limit.index),
                (false, false) => return Ok(self.refused(accounts, place, preview.charged, answers)),
            }
        }
        Ok(self.allowed(active, accounts, &admitted, shadows, answers))
    }

    /// Returns the first denial among the enforced limits that this node keeps alone. Charges nothing.
    pub(crate) fn refused_here(
        &self,
        active: &ActivePolicy,
        plan: &[PlanEntry],
        now: Nanos,
    ) -> SnapshotResult<Option<Decision<'_>>> {
        let is_here = |account: &Account<'_>| !account.limit.is_shadow && account.on_failure().is_none();
        for (place, account) in accounts(active, plan).enumerate().filter(|(_, account)| is_here(account)) {
            let looked = account.look(self, now)?.charged;
            if !looked.is_admitted() {
                return Ok(Some(account.decision(self, place, looked)));
            }
        }
        Ok(None)
    }

    pub(crate) fn refused(
        &self,
        accounts: &[Account<'_>],
        place: usize,
        refused: ChargeResult,
        answers: StoreAnswers<'_>,
    ) -> Decision<'_> {
        let degraded = answers.degraded(&accounts[..=place]);
        Decision { degraded, ..accounts[place].decision(self, place, refused) }
    }

    /// Returns the decision over limits that all admitted: it shows the enforced one with the least remaining.
    pub(crate) fn allowed(
        &self,
        active: &ActivePolicy,
        accounts: &[Account<'_>],
        admitted: &Admitted<'_>,
        shadows: Shadows,
        answers: StoreAnswers<'_>,
    ) -> Decision<'_> {
        let (mut tightest, mut least, mut delay_ns) = (None, u64::MAX, 0);
        for (place, ChargePreview { charged, .. }) in admitted {
            let account = &accounts[*place];
            if !account.limit.is_shadow {
                let (left, this_delay_ns) = account.left_and_delay_ns(charged);
                delay_ns = delay_ns.max(this_delay_ns);
                if tightest.is_none() || left < least {
                    (tightest, least) = (Some((*place, charged)), left);
                }
            }
        }
        // Without one, no limit applies.
        let decided_by = tightest.map(|(place, charged)| accounts[place].deciding_limit(self, place, *charged));
        let policy_version = tightest.map_or(active.version, |(place, _)| accounts[place].version);
        let degraded = answers.degraded(accounts);
        Decision { policy_version, delay_ns, degraded, decided_by, shadows, names: &self.names }
    }
}

impl StoreAnswers<'_> {
    /// Returns the source of a limit's verdict.
    #[inline(always)]
    fn decider(self, place: usize, account: &Account<'_>, now: Nanos) -> LimitSource {
        let Some(on_failure) = account.on_failure() else { return LimitSource::Bucket };
        match (self.of(place), on_failure) {
            (Some(answer), _) => LimitSource::Answer(answer),
            (None, OnFailure::Local(_)) => LimitSource::Bucket,
            (None, OnFailure::Open) => LimitSource::Nothing,
            (None, OnFailure::Closed) => {
                let verdict = Verdict::Later { wait_ns: CLOSED_NS };
                LimitSource::Answer(ChargeResult { verdict, word: 0, now, site: BucketSite::Nowhere })
            }
        }
    }

    /// Previews the charge of a limit. Returns `None` if the limit stays out of the decision.
    pub(crate) fn look<'b, C: Clock>(
        self,
        buckets: &'b Buckets<C>,
        place: usize,
        account: &Account<'_>,
        now: Nanos,
    ) -> SnapshotResult<Option<ChargePreview<'b>>> {
        match self.decider(place, account, now) {
            LimitSource::Bucket => account.look(buckets, now).map(Some),
            LimitSource::Answer(charged) => Ok(Some(charged.into())),
            LimitSource::Nothing => Ok(None),
        }
    }

    pub(crate) fn of(self, place: usize) -> Option<ChargeResult> {
        self.answers.get(place).copied().flatten()
    }

    /// Returns why one of these limits was decided without its store, if one was.
    fn degraded(self, accounts: &[Account<'_>]) -> Option<Degraded> {
        let is_unanswered =
            |(place, account): (usize, &Account<'_>)| account.on_failure().is_some() && self.of(place).is_none();
        accounts.iter().enumerate().any(is_unanswered).then_some(self.otherwise)
    }
}

/// Returns the limits that can deny, with their places.
pub(crate) fn enforced<'a, 'l>(accounts: &'a [Account<'l>]) -> impl Iterator<Item = (usize, &'a Account<'l>)> {
    accounts.iter().enumerate().filter(|(_, account)| !account.limit.is_shadow)
}
