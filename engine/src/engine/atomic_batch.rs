//! Several requests that are charged together or not at all, each with a decision of its own.
//!
//! All are looked at before any is charged, as the limits of one request are, so a denial writes nothing. If another
//! thread takes the tokens between the look and the charge, what was charged is given back.

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
        active_policy::{ActiveLimit, ActivePolicy, SnapshotResult},
        buckets::Buckets,
        decide::{Accounts, Admitted, NO_ANSWERS, accounts, enforced},
        decision::{Decision, Shadows},
        observer::CheckInput,
        state::Engine,
    },
    policy::{
        path::{PathBuffer, normalize_path},
        planner::{Plan, PlanEntry},
        request::{IDENTITIES_MAX, Identity, Request},
    },
    storage::caller_groups::NO_GROUP,
};

/// The requests, with the limits that they meet.
struct AtomicBatch<'r, 'l> {
    entries: Vec<BatchEntry<'r>>,
    /// The plan entries of all requests, in order.
    charges: Vec<PlanEntry>,
    accounts: Vec<Account<'l>>,
}

struct BatchEntry<'r> {
    request: &'r Request<'r>,
    /// Whether the request brings its own numbers.
    is_rated: bool,
    /// The range of its limits among those of all requests.
    limits: Range<usize>,
}

/// The decision of each request; `None` where it is not made yet.
type Decisions<'e> = Vec<Option<Decision<'e>>>;

impl<C: Clock> Engine<C> {
    /// Decides several requests together: either all are charged, or none. Each gets a decision of its own, in their
    /// order, and may go on if all are allowed.
    ///
    /// The result is as if they were checked one after the other, and all of that undone where one was denied. A
    /// request without a cost is a peek: it is denied where one token would be, and charges nothing. A request that was
    /// not charged (a peek; any request, if another one was denied) shows what is left, as it was before, at no cost.
    ///
    /// A request with a [`Rate`] is counted by that rate, and by nothing of the policy. Its key is its domain,
    /// identities, path, method in any case, and the numbers: two rates of one caller are two limits, and a rate that
    /// changed begins with nothing used. The decision names the limit `override`; no limit of a policy has this name.
    ///
    /// The time that this takes grows with the square of the number of limits that are met. It allocates, except for
    /// one request without a rate. A limit that nodes share is decided by its `on_failure`. Of denied requests, only
    /// those that were refused themselves are counted.
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
    /// engine.check_atomic_batch(&requests, &mut decisions);
    /// assert_eq!(decisions[0].remaining(), Some(5)); // not charged, since
    /// assert!(!decisions[1].is_allowed());
    /// # Ok::<(), tidegate::RequestError>(())
    /// ```
    pub fn check_atomic_batch<'e>(
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
            // If a publish has replaced the policy, nothing was charged: the newest one decides.
            if let Ok(decided) = self.decide_atomic_batch(requests) {
                return decisions.extend(decided.into_iter().flatten());
            }
        }
    }

    fn decide_atomic_batch(&self, requests: &[(Request<'_>, Option<Rate>)]) -> SnapshotResult<Decisions<'_>> {
        let buckets = &self.buckets;
        let active = self.active.load();
        let now = buckets.now();
        let rated: Vec<ActiveLimit> = requests
            .iter()
            .filter_map(|(_, rate)| {
                let rate = (*rate)?;
                let [_, period_ns, _] = rate.numbers();
                Some(ActiveLimit { period_ns, ..self.rated.rated(rate.into(), NO_GROUP) })
            })
            .collect();
        let batch = AtomicBatch::new(&active, requests, &rated, now, &buckets.hasher);
        let mut decisions = batch.denials(buckets, now)?;
        if decisions.iter().all(Option::is_none) {
            batch.decide_unchanged(buckets, &active, now, &mut decisions, BatchEntry::is_peek)?;
            if let Some((entry, refused)) = batch.charge(buckets, &active, &mut decisions)? {
                decisions.fill(None);
                decisions[entry] = Some(refused);
            }
        }
        // Where all were charged, none is left.
        batch.decide_unchanged(buckets, &active, now, &mut decisions, |_| true)?;
        self.count_atomic_batch(&active, &batch, &decisions, now);
        Ok(decisions)
    }

    /// Counts the charged requests, or else the refused ones, and shows them to the observers. Peeks are not counted.
    fn count_atomic_batch(
        &self,
        active: &ActivePolicy,
        batch: &AtomicBatch<'_, '_>,
        decisions: &Decisions<'_>,
        now: Nanos,
    ) {
        let is_all = decisions.iter().flatten().all(Decision::is_allowed);
        let decided = batch.entries.iter().zip(decisions.iter().flatten());
        for (entry, decision) in decided.filter(|(entry, it)| it.is_allowed() == is_all && !entry.is_peek()) {
            let plan = &batch.charges[entry.limits.clone()];
            if entry.is_rated {
                self.observers.show(CheckInput::Rated(entry.request), || (plan.first().copied(), *decision), now);
                self.counters.spot(None).decided(decision.is_allowed());
            } else {
                self.count(active, CheckInput::Request(entry.request), plan, decision, now);
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
    /// Plans all requests. `rated` has a limit for each request that brings its own numbers.
    fn new(
        active: &'l ActivePolicy,
        requests: &'r [(Request<'r>, Option<Rate>)],
        rated: &'l [ActiveLimit],
        now: Nanos,
        hasher: &KeyHasher,
    ) -> Self {
        let count = requests.len();
        let (mut entries, mut charges, mut all) =
            (Vec::with_capacity(count), Vec::with_capacity(2 * count), Vec::with_capacity(2 * count));
        let mut rated = rated.iter();
        for (request, rate) in requests {
            // A peek is looked at as a request of one token.
            let looked_at = Request { cost: request.cost.max(1), ..*request };
            let start = charges.len();
            if let Some((rate, limit)) = rate.and_then(|rate| Some((rate, rated.next()?))) {
                let entry = rated_entry(&looked_at, rate, hasher);
                charges.push(entry);
                all.push(Account::enforced_here(limit, active.version, entry.identity, entry.cost));
            } else {
                let mut plan = Plan::new();
                active.snapshot.plan(&looked_at, active.wall(now), hasher, &mut plan);
                all.extend(accounts(active, &plan));
                charges.extend_from_slice(&plan);
            }
            entries.push(BatchEntry { request, is_rated: rate.is_some(), limits: start..charges.len() });
        }
        Self { entries, charges, accounts: all }
    }

    fn accounts(&self, entry: &BatchEntry<'_>) -> &[Account<'l>] {
        &self.accounts[entry.limits.clone()]
    }

    /// Returns the decisions on the requests that would be denied. Charges nothing.
    fn denials<'b, C: Clock>(&self, buckets: &'b Buckets<C>, now: Nanos) -> SnapshotResult<Decisions<'b>> {
        let mut denials: Decisions<'b> = Vec::with_capacity(self.entries.len());
        for entry in &self.entries {
            let earlier = || {
                let charged = self.entries.iter().zip(&denials).filter(|(entry, no)| no.is_none() && !entry.is_peek());
                charged.flat_map(|(entry, _)| self.accounts(entry))
            };
            let own = self.accounts(entry);
            let mut denial = None;
            for (place, account) in enforced(own) {
                let whole = account.with_cost(account.cost_with(earlier()));
                match NO_ANSWERS.look(buckets, place, &whole, now)? {
                    Some(preview) if !preview.charged.is_admitted() => {
                        denial = Some(buckets.refused(own, place, preview.charged, NO_ANSWERS));
                        break;
                    }
                    _ => {}
                }
            }
            denials.push(denial);
        }
        Ok(denials)
    }

    /// Adds decisions at no cost, which show what is left, to the requests for which `are` holds and that have none.
    fn decide_unchanged<'b, C: Clock>(
        &self,
        buckets: &'b Buckets<C>,
        active: &ActivePolicy,
        now: Nanos,
        decisions: &mut Decisions<'b>,
        are: impl Fn(&BatchEntry<'r>) -> bool,
    ) -> SnapshotResult<()> {
        for (entry, decision) in self.entries.iter().zip(decisions).filter(|(entry, it)| it.is_none() && are(entry)) {
            let accounts: Accounts<'_> = self.accounts(entry).iter().map(|account| account.with_cost(0)).collect();
            let mut left = Admitted::new();
            for (place, account) in enforced(&accounts) {
                if let Some(mut preview) = NO_ANSWERS.look(buckets, place, account, now)? {
                    // The request was found to be allowed, whatever other threads have charged since.
                    let ChargeResult { word, .. } = preview.charged;
                    preview.charged.verdict = Verdict::Admit(word);
                    left.push((place, preview));
                }
            }
            *decision = Some(buckets.allowed(active, &accounts, &left, Shadows::default(), NO_ANSWERS));
        }
        Ok(())
    }

    /// Charges the requests that have no decision yet, all or none. If none, returns the request that was refused in a
    /// race.
    fn charge<'b, C: Clock>(
        &self,
        buckets: &'b Buckets<C>,
        active: &ActivePolicy,
        decisions: &mut Decisions<'b>,
    ) -> SnapshotResult<Option<(usize, Decision<'b>)>> {
        let mark = buckets.refund_log.mark_brief();
        let mut taken: Vec<(usize, ChargeResult)> = Vec::with_capacity(self.accounts.len());
        let open = self.entries.iter().zip(decisions).enumerate().filter(|(_, (_, decision))| decision.is_none());
        for (number, (entry, decision)) in open {
            let mut admitted = Admitted::new();
            // A first touch is charged at a time read anew, and a later charge of the same key must not be behind that.
            let now = buckets.now();
            let decided = buckets.charge_all(active, self.accounts(entry), now, NO_ANSWERS, &mut admitted);
            match decided {
                Ok(allowed) if allowed.is_allowed() => {
                    taken.extend(admitted.iter().map(|(place, preview)| (entry.limits.start + place, preview.charged)));
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

/// Returns the plan entry of a request that brings its own numbers.
fn rated_entry(request: &Request<'_>, rate: Rate, hasher: &KeyHasher) -> PlanEntry {
    let part_hash = |name: &str, text: &str| KeyHasher::identity(kind_hash(name), hasher.bytes(text.as_bytes()));
    let mut buffer = PathBuffer::new();
    let endpoint = request.endpoint.map(|endpoint| normalize_path(endpoint, &mut buffer));
    // The order of the identities in the request does not make another key.
    let mut identities: ArrayVec<&Identity<'_>, IDENTITIES_MAX> = request.identities.iter().collect();
    identities.sort_unstable_by_key(|identity| identity.kind());
    let identities = identities.into_iter().map(|identity| (identity.kind(), identity.value()));
    // No kind of identity has one of these names.
    let method = request.method.map(str::to_ascii_uppercase);
    let rest = [("/endpoint", endpoint), ("/method", method.as_deref())];
    let rest = rest.into_iter().filter_map(|(name, text)| Some((name, text?)));
    let key = identities
        .chain(rest)
        .fold(part_hash("/domain", request.domain), |key, (name, text)| hasher.and(key, part_hash(name, text)));
    // The numbers are part of the key: words of one bucket are of one meter, so the costs for one key can be summed.
    let key = hasher.and(key, IdentityHash::of(hasher.words(rate.numbers())));
    let counted = u8::MAX.checked_shr(u8::BITS - request.identities.len() as u32).unwrap_or(0);
    PlanEntry { limit: u32::MAX, identity: key, cost: request.cost, counted }
}
