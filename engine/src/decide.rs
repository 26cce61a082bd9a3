//! Deciding a plan: one limit directly, several all or none.

use arrayvec::ArrayVec;

use crate::{
    account::{Account, Buckets, Charged},
    algorithm::Verdict,
    clock::Clock,
    decision::{Decision, Shadows},
    registry::{Live, Newer},
    snapshot::{Charge, PLAN_MAX},
    time::Nanos,
};

/// The limits of a plan, in its order.
type Accounts<'l> = ArrayVec<Account<'l>, PLAN_MAX>;

/// Limits that admitted: their places in the plan, and what the charge left.
type Admitted = ArrayVec<(usize, Charged), PLAN_MAX>;

impl<C: Clock> Buckets<C> {
    /// Decides a plan, and charges it when it is allowed.
    #[inline]
    pub(crate) fn decide(&self, live: &Live, plan: &[Charge], now: Nanos) -> Result<Decision<'_>, Newer> {
        match plan {
            [] => Ok(self.unlimited(live)),
            [one] if !live.limits[one.limit as usize].is_shadow => {
                let account = Account::new(self, live, one);
                Ok(account.decision(self, 0, account.charge(self, now)?))
            }
            several => self.decide_several(live, several, now),
        }
    }

    /// All or nothing: looks before it charges, so that the common denial writes nothing, and gives back what it took when
    /// a later limit refuses in a race. Shadow limits are charged last, each only if it agrees.
    fn decide_several(&self, live: &Live, plan: &[Charge], now: Nanos) -> Result<Decision<'_>, Newer> {
        let accounts = self.accounts(live, plan);
        for (place, account) in enforced(&accounts) {
            let looked = account.look(self, now)?;
            if !looked.is_admitted() {
                return Ok(account.decision(self, place, looked));
            }
        }
        let mut admitted = Admitted::new();
        for (place, account) in enforced(&accounts) {
            match account.charge(self, now) {
                Ok(charged) if charged.is_admitted() => admitted.push((place, charged)),
                refused => {
                    for (place, charged) in &admitted {
                        self.give_backs.next();
                        accounts[*place].give_back(self, charged);
                    }
                    return Ok(account.decision(self, place, refused?));
                }
            }
        }
        let mut shadows = Shadows::default();
        if admitted.len() < accounts.len() {
            for (place, account) in accounts.iter().enumerate().filter(|(_, account)| account.is_shadow()) {
                // The enforced limits are charged by now: a shadow whose numbers a publish has just changed is left out.
                if account.charge(self, now).is_ok_and(|charged| !charged.is_admitted()) {
                    shadows.push(place, account.index());
                }
            }
        }
        Ok(self.allowed(live, &accounts, &admitted, shadows))
    }

    /// What [`decide`](Self::decide) would answer. Writes nothing.
    pub(crate) fn peek(&self, live: &Live, plan: &[Charge], now: Nanos) -> Result<Decision<'_>, Newer> {
        let accounts = self.accounts(live, plan);
        let (mut admitted, mut shadows) = (Admitted::new(), Shadows::default());
        for (place, account) in accounts.iter().enumerate() {
            let looked = account.look(self, now)?;
            match (looked.is_admitted(), account.is_shadow()) {
                (true, false) => admitted.push((place, looked)),
                (true, true) => {}
                (false, true) => shadows.push(place, account.index()),
                (false, false) => return Ok(account.decision(self, place, looked)),
            }
        }
        Ok(self.allowed(live, &accounts, &admitted, shadows))
    }

    fn accounts<'l>(&self, live: &'l Live, plan: &[Charge]) -> Accounts<'l> {
        plan.iter().map(|charge| Account::new(self, live, charge)).collect()
    }

    /// The decision where no limit applies.
    pub(crate) fn unlimited(&self, live: &Live) -> Decision<'_> {
        Decision {
            policy_version: live.version,
            verdict: Verdict::Admit(0),
            delay_ns: 0,
            decided_by: None,
            shadows: Shadows::default(),
            registry: &self.registry,
        }
    }

    /// The decision over enforced limits that all admitted: it shows the one with the least remaining.
    fn allowed(&self, live: &Live, accounts: &Accounts<'_>, admitted: &Admitted, shadows: Shadows) -> Decision<'_> {
        let each = admitted.iter().map(|(place, charged)| (*place, &accounts[*place], charged));
        let tightest = each.clone().min_by_key(|(_, account, charged)| account.remaining(charged));
        let decision = tightest
            .map_or_else(|| self.unlimited(live), |(place, account, charged)| account.decision(self, place, *charged));
        let delay_ns = each.map(|(_, account, charged)| account.delay_ns(charged)).max().unwrap_or(0);
        Decision { delay_ns, shadows, ..decision }
    }
}

/// The limits that can deny, with their places.
fn enforced<'a, 'l>(accounts: &'a Accounts<'l>) -> impl Iterator<Item = (usize, &'a Account<'l>)> {
    accounts.iter().enumerate().filter(|(_, account)| !account.is_shadow())
}
