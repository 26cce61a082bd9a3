//! Several requests decided together: all or none are charged, and each has a decision of its own.
//!
//! All are looked at before any is charged, as the limits of one request are, so a denial writes nothing. Where another
//! thread comes between, what was taken is given back.

use std::ops::Range;

use arrayvec::ArrayVec;

use crate::{
    algorithm::{Verdict, rate::Rate},
    base::{
        clock::Clock,
        hash::{IdentityHash, KeyHasher, kind_hash},
        time::Nanos,
    },
    engine::{
        account::{Account, ChargeResult},
        active_policy::{ActiveLimit, ActivePolicy, StaleSnapshot},
        buckets::Buckets,
        decide::{Accounts, Admitted, NO_ANSWERS, accounts, enforced},
        decision::{Decision, Shadows},
        observer::CheckInput,
        state::Engine,
    },
    policy::{
        path::{PathBuffer, made_plain},
        planner::{Charge, Plan},
        request::{IDENTITIES_MAX, Identity, Request},
    },
    storage::caller_groups::NO_GROUP,
};

/// The requests, with the limits that they meet.
struct AtomicBatch<'r, 'l> {
    parts: Vec<BatchEntry<'r>>,
    /// Of all parts, in order.
    charges: Vec<Charge>,
    accounts: Vec<Account<'l>>,
}

struct BatchEntry<'r> {
    request: &'r Request<'r>,
    /// It brings its own numbers.
    is_rated: bool,
    /// Its limits among those of all.
    limits: Range<usize>,
}

/// A decision for each part; `None` where it is not made yet.
type Decisions<'e> = Vec<Option<Decision<'e>>>;

impl<C: Clock> Engine<C> {
    /// Decides several requests together: all are charged, or none. Each gets a decision of its own, in their order, and
    /// may go on if all are allowed.
    ///
    /// It is as if they were checked one after the other, and all of that undone where one was denied. A request without a
    /// cost is a peek: it is denied where one token would be, and charges nothing. What was not charged (peeks; where
    /// another one was denied, all) is told as it was before, at no cost.
    ///
    /// A request with a [`Rate`] is counted by that, and by nothing of the policy. Such a key is its domain, identities,
    /// path, method in any case, and the numbers: two rates of one caller are two limits, and one that changed begins with
    /// nothing used. The decision names the limit `override`; no limit that a policy has is named so.
    ///
    /// The time that this takes grows with the square of the number of limits that are met. But for one request without a
    /// rate, it allocates. A limit that nodes share is decided by its `on_failure`. Of what is denied, only the requests that
    /// were refused themselves are counted.
    ///
    /// ```
    /// use tidegate::{Engine, Identity, Rate, Request};
    ///
    /// let engine = Engine::with_max_keys(10);
    /// let (address, user) = ([Identity::new("ip", "192.0.2.7")?], [Identity::new("user", "ada")?]);
    /// let requests = [
    ///     (Request::exactly(&address)?.endpoint("/search")?, Some(Rate::per_second(5))),
    ///     (Request::exactly(&user)?, Some(Rate::per_minute(0))),
    /// ];
    /// let mut decisions = Vec::new();
    /// engine.check_together(&requests, &mut decisions);
    /// assert_eq!(decisions[0].remaining(), Some(5)); // not charged, since
    /// assert!(!decisions[1].is_allowed());
    /// # Ok::<(), tidegate::RequestError>(())
    /// ```
    pub fn check_together<'e>(
        &'e self,
        requests: &[(Request<'_>, Option<Rate>)],
        decisions: &mut impl Extend<Decision<'e>>,
    ) {
        if let [(request, None)] = requests
            && request.cost > 0
        {
            return decisions.extend(Some(self.check(request)));
        }
        loop {
            // A publish came between, and nothing was charged: by the policy that is newest now.
            if let Ok(decided) = self.decide_together(requests) {
                return decisions.extend(decided.into_iter().flatten());
            }
        }
    }

    fn decide_together(&self, requests: &[(Request<'_>, Option<Rate>)]) -> Result<Decisions<'_>, StaleSnapshot> {
        let buckets = self.buckets();
        let active = self.borrow_active();
        let now = buckets.clock.now();
        let rated: Vec<ActiveLimit> = requests
            .iter()
            .filter_map(|(_, rate)| {
                let rate = (*rate)?;
                let [_, period_ns, _] = rate.numbers();
                Some(self.rated().rated(rate.into(), NO_GROUP).with_period(period_ns))
            })
            .collect();
        let together = AtomicBatch::of(&active, requests, &rated, now, &buckets.hasher);
        let mut decisions = together.refusals(buckets, now)?;
        if decisions.iter().all(Option::is_none) {
            together.tell_left(buckets, &active, now, &mut decisions, BatchEntry::is_peek)?;
            if let Some((part, refused)) = together.charge(buckets, &active, &mut decisions)? {
                decisions.fill(None);
                decisions[part] = Some(refused);
            }
        }
        // Where all were charged, none is left.
        together.tell_left(buckets, &active, now, &mut decisions, |_| true)?;
        self.count_together(&active, &together, &decisions, now);
        Ok(decisions)
    }

    /// Counts what was charged, or else what was refused, and shows it to the observers; but for peeks.
    fn count_together(
        &self,
        active: &ActivePolicy,
        together: &AtomicBatch<'_, '_>,
        decisions: &Decisions<'_>,
        now: Nanos,
    ) {
        let is_all = decisions.iter().flatten().all(Decision::is_allowed);
        let decided = together.parts.iter().zip(decisions.iter().flatten());
        for (part, decision) in decided.filter(|(part, it)| it.is_allowed() == is_all && !part.is_peek()) {
            let plan = &together.charges[part.limits.clone()];
            if part.is_rated {
                self.observers().show(CheckInput::Rated(part.request), || (plan.first().copied(), *decision), now);
                self.counters().spot(None).decided(decision.is_allowed());
            } else {
                self.count(active, CheckInput::Request(part.request), plan, decision, now);
            }
        }
    }
}

impl BatchEntry<'_> {
    fn is_peek(&self) -> bool {
        self.request.cost == 0
    }
}

impl<'r, 'l> AtomicBatch<'r, 'l> {
    /// `rated` has a limit for each request that brings its own numbers.
    fn of(
        active: &'l ActivePolicy,
        requests: &'r [(Request<'r>, Option<Rate>)],
        rated: &'l [ActiveLimit],
        now: Nanos,
        hasher: &KeyHasher,
    ) -> Self {
        let count = requests.len();
        let (mut parts, mut charges, mut all) =
            (Vec::with_capacity(count), Vec::with_capacity(2 * count), Vec::with_capacity(2 * count));
        let mut rated = rated.iter();
        for (request, rate) in requests {
            // A peek is looked at as a request of one token.
            let input = Request { cost: request.cost.max(1), ..*request };
            let start = charges.len();
            if let Some((rate, limit)) = rate.and_then(|rate| Some((rate, rated.next()?))) {
                let charge = rated_charge(&input, rate, hasher);
                charges.push(charge);
                all.push(Account::enforced_here(limit, active.version, charge.identity, charge.cost));
            } else {
                let mut plan = Plan::new();
                active.snapshot.plan(&input, active.wall(now), hasher, &mut plan);
                all.extend(accounts(active, &plan));
                charges.extend_from_slice(&plan);
            }
            parts.push(BatchEntry { request, is_rated: rate.is_some(), limits: start..charges.len() });
        }
        Self { parts, charges, accounts: all }
    }

    fn accounts(&self, part: &BatchEntry<'_>) -> &[Account<'l>] {
        &self.accounts[part.limits.clone()]
    }

    /// The decisions on those that would be denied. Charges nothing.
    fn refusals<'b, C: Clock>(&self, buckets: &'b Buckets<C>, now: Nanos) -> Result<Decisions<'b>, StaleSnapshot> {
        let mut refusals: Decisions<'b> = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            let earlier = || {
                let charged = self.parts.iter().zip(&refusals).filter(|(part, no)| no.is_none() && !part.is_peek());
                charged.flat_map(|(part, _)| self.accounts(part))
            };
            let own = self.accounts(part);
            let mut refusal = None;
            for (place, account) in enforced(own) {
                let whole = account.at_cost(account.cost_with(earlier()));
                match NO_ANSWERS.look(buckets, place, &whole, now)? {
                    Some(look) if !look.charged.is_admitted() => {
                        refusal = Some(buckets.refused(own, place, look.charged, NO_ANSWERS));
                        break;
                    }
                    _ => {}
                }
            }
            refusals.push(refusal);
        }
        Ok(refusals)
    }

    /// Adds decisions on parts that `are` so and have none: what is left, at no cost.
    fn tell_left<'b, C: Clock>(
        &self,
        buckets: &'b Buckets<C>,
        active: &ActivePolicy,
        now: Nanos,
        decisions: &mut Decisions<'b>,
        are: impl Fn(&BatchEntry<'r>) -> bool,
    ) -> Result<(), StaleSnapshot> {
        for (part, decision) in self.parts.iter().zip(decisions).filter(|(part, it)| it.is_none() && are(part)) {
            let accounts: Accounts<'_> = self.accounts(part).iter().map(|account| account.at_cost(0)).collect();
            let mut left = Admitted::new();
            for (place, account) in enforced(&accounts) {
                if let Some(mut look) = NO_ANSWERS.look(buckets, place, account, now)? {
                    // It was found to be allowed, whatever came between.
                    let ChargeResult { word, .. } = look.charged;
                    look.charged.verdict = Verdict::Admit(word);
                    left.push((place, look));
                }
            }
            *decision = Some(buckets.allowed(active, &accounts, &left, Shadows::default(), NO_ANSWERS));
        }
        Ok(())
    }

    /// Charges the parts that have no decision yet, all or none: then it says which part was refused in a race.
    fn charge<'b, C: Clock>(
        &self,
        buckets: &'b Buckets<C>,
        active: &ActivePolicy,
        decisions: &mut Decisions<'b>,
    ) -> Result<Option<(usize, Decision<'b>)>, StaleSnapshot> {
        let mark = buckets.refund_log.mark_brief();
        let mut taken: Vec<(usize, ChargeResult)> = Vec::with_capacity(self.accounts.len());
        let open = self.parts.iter().zip(decisions).enumerate().filter(|(_, (_, decision))| decision.is_none());
        for (number, (part, decision)) in open {
            let mut admitted = Admitted::new();
            // A first touch is charged at a time read anew; who comes for the same key after it must not be behind that.
            let now = buckets.clock.now();
            let decided = buckets.charge_all(active, self.accounts(part), now, NO_ANSWERS, &mut admitted);
            match decided {
                Ok(allowed) if allowed.is_allowed() => {
                    taken.extend(admitted.iter().map(|(place, look)| (part.limits.start + place, look.charged)));
                    *decision = Some(allowed);
                }
                refused => {
                    for (place, charged) in &taken {
                        buckets.give_backs.next();
                        self.accounts[*place].give_back(buckets, charged, mark);
                    }
                    return refused.map(|refused| Some((number, refused)));
                }
            }
        }
        Ok(None)
    }
}

/// What a request is charged that brings its own numbers.
fn rated_charge(request: &Request<'_>, rate: Rate, hasher: &KeyHasher) -> Charge {
    let part = |name: &str, text: &str| KeyHasher::identity(kind_hash(name), hasher.bytes(text.as_bytes()));
    let mut buffer = PathBuffer::new();
    let endpoint = request.endpoint.map(|endpoint| made_plain(endpoint, &mut buffer));
    // The order of the request does not make another key.
    let mut identities: ArrayVec<&Identity<'_>, IDENTITIES_MAX> = request.identities.iter().collect();
    identities.sort_unstable_by_key(|identity| identity.kind());
    let identities = identities.into_iter().map(|identity| (identity.kind(), identity.value()));
    // No kind is named so.
    let method = request.method.map(str::to_ascii_uppercase);
    let rest = [("/endpoint", endpoint), ("/method", method.as_deref())];
    let rest = rest.into_iter().filter_map(|(name, text)| Some((name, text?)));
    let key = identities
        .chain(rest)
        .fold(part("/domain", request.domain), |key, (name, text)| hasher.and(key, part(name, text)));
    // Words of one bucket are of one meter: what fits beside what is summed over them.
    let key = hasher.and(key, IdentityHash::of(hasher.words(rate.numbers())));
    let counted = u8::MAX.checked_shr(u8::BITS - request.identities.len() as u32).unwrap_or(0);
    Charge { limit: u32::MAX, identity: key, cost: request.cost, counted }
}
