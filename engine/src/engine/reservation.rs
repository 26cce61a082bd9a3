//! `Reservation`: a charge of an estimate, which is settled when the true cost is known.

use std::sync::Arc;

use crate::{
    algorithm::NUMBER_MAX,
    base::{clock::Clock, hash::IdentityHash},
    engine::{
        account::{Account, ChargePreview, ChargeResult},
        active_policy::{ActivePolicy, StaleSnapshot},
        buckets::Buckets,
        decide::{Accounts, Admitted, NO_ANSWERS, accounts},
        decision::Decision,
        observer::CheckInput,
        state::Engine,
    },
    policy::{planner::PlanEntry, request::Request},
    storage::refund_log::Mark,
};

/// The charges of [`Engine::reserve`]: plain data that can be kept and settled later, from any thread.
///
/// If it is dropped, what was charged stays charged.
#[derive(Debug)]
#[must_use = "a reservation that is not settled stays charged"]
pub struct Reservation {
    estimate: u64,
    /// The largest capacity among the limits that the request met, in tokens of the request; `None` if it met none.
    burst: Option<u64>,
    charges: Box<[ReservedCharge]>,
    /// The identity of the engine.
    engine: Arc<()>,
}

#[derive(Debug)]
pub(crate) struct ReservedCharge {
    /// The id and the index of the limit: another name may have the id by the time of the settlement.
    id: u32,
    index: u32,
    /// The edition of the limit's numbers.
    edition: u64,
    identity: IdentityHash,
    cost: u64,
    charged: ChargeResult,
    mark: Mark,
}

impl ReservedCharge {
    pub(crate) fn new(account: &Account<'_>, entry: &PlanEntry, charged: ChargeResult, mark: Mark) -> Self {
        let PlanEntry { identity, cost, .. } = *entry;
        let (id, index, edition) = (account.limit.id, account.limit.index, account.limit.edition);
        Self { id, index, edition, identity, cost, charged, mark }
    }
}

impl Reservation {
    pub(crate) fn of<C>(
        buckets: &Buckets<C>,
        request: &Request<'_>,
        active: &ActivePolicy,
        plan: &[PlanEntry],
        charges: Vec<ReservedCharge>,
    ) -> Self {
        let capacity = |entry: &PlanEntry| {
            let limit = &active.snapshot.limits[entry.limit as usize];
            let meter = limit.stored.map(|stored| stored.meter).or(limit.meter)?;
            // A rule multiplies the cost of a request.
            let whole = u128::from(meter.capacity()) * u128::from(request.cost);
            u64::try_from(whole / u128::from(entry.cost.max(1))).ok()
        };
        let burst = plan.iter().filter_map(capacity).max();
        Self { estimate: request.cost, burst, charges: charges.into(), engine: Arc::clone(&buckets.id) }
    }

    /// Returns whether nothing was charged, as where no limit applies: then there is nothing to settle.
    ///
    /// ```
    /// # use tidegate::{Engine, Identity, Request};
    /// # let engine = Engine::with_max_keys(10);
    /// # let who = [Identity::new("user", "ada")?];
    /// let (_, reservation) = engine.reserve(&Request::new(&who)?);
    /// assert!(reservation.is_some_and(|reservation| reservation.is_empty()), "there is no policy");
    /// # Ok::<(), tidegate::RequestError>(())
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.charges.is_empty()
    }

    /// Returns the largest cost at which to settle a reservation if an untrusted caller states the true cost:
    /// `multiple` times the estimate, or one burst of the largest limit that the request met, whichever is more. If the
    /// request met no limit, nothing is charged, and any cost will do.
    ///
    /// ```
    /// # use tidegate::{Engine, Reservation};
    /// fn settle(engine: &Engine, reservation: Reservation, claimed: u64) {
    ///     let most = reservation.actual_max(16);
    ///     engine.settle(reservation, claimed.min(most));
    /// }
    /// ```
    #[must_use]
    pub fn actual_max(&self, multiple: u64) -> u64 {
        let most = self.burst.map(|burst| burst.max(self.estimate.saturating_mul(multiple)));
        most.unwrap_or(NUMBER_MAX).min(NUMBER_MAX)
    }
}

impl<C: Clock> Engine<C> {
    /// Decides a request whose cost is an estimate, for work whose cost is known only when it is done, such as the
    /// tokens of a language model. If it is allowed, the estimate is charged, and the reservation records where.
    ///
    /// ```
    /// use tidegate::{Engine, Identity, Request};
    ///
    /// let engine = Engine::with_max_keys(10);
    /// let who = [Identity::new("user", "ada")?];
    /// let (decision, reservation) = engine.reserve(&Request::new(&who)?.cost(4_000)?);
    /// if let Some(reservation) = reservation {
    ///     let used = 1_250; // ... do the work ...
    ///     engine.settle(reservation, used);
    /// }
    /// # Ok::<(), tidegate::RequestError>(())
    /// ```
    ///
    /// Unlike a check, this allocates. A request without a cost reserves nothing, and is allowed or denied as by a
    /// check.
    pub fn reserve(&self, request: &Request<'_>) -> (Decision<'_>, Option<Reservation>) {
        if request.cost == 0 {
            return (self.peek(request), None);
        }
        let buckets = &self.buckets;
        self.with_plan(request, |active, plan, now| {
            let accounts: Accounts<'_> = accounts(active, plan).collect();
            let marks: Vec<Mark> = accounts.iter().map(|account| account.mark(buckets)).collect();
            let mut admitted = Admitted::new();
            let decision = buckets.charge_all(active, &accounts, now, NO_ANSWERS, &mut admitted)?;
            self.count(active, CheckInput::Request(request), plan, &decision, now);
            let reserved = |(place, preview): (usize, ChargePreview<'_>)| {
                ReservedCharge::new(&accounts[place], &plan[place], preview.charged, marks[place])
            };
            let charges = admitted.into_iter().map(reserved).collect();
            let reservation = decision.is_allowed().then(|| Reservation::of(buckets, request, active, plan, charges));
            Ok((decision, reservation))
        })
    }

    /// Settles a reservation at its true cost, from 0 to 2^53 - 1 (more counts as that).
    ///
    /// - If it is less than the estimate, the rest is given back, as far as time has not brought it back already; a
    ///   window gets it back while it counts, a sliding window log does not.
    /// - If it is more, the excess is charged whether it fits or not, and later requests wait for it. A bucket takes a
    ///   debt of at most the `max_debt` of its limit above the burst (what one period repays, unless the policy says
    ///   otherwise), and the rest of the excess is not charged; a window remembers at most what it can hold, and until
    ///   its end. [`Reservation::actual_max`] returns which costs are too large to be believed. An excess is not
    ///   charged to a key that has become idle, and whose slot went to another in a full table.
    ///
    /// If a publish has changed a limit's numbers meanwhile, what was reserved stays charged. A reservation of another
    /// engine changes nothing.
    pub fn settle(&self, reservation: Reservation, actual: u64) {
        let Reservation { estimate, charges, engine, .. } = reservation;
        if !Arc::ptr_eq(&engine, &self.buckets.id) {
            return;
        }
        for reserved in &charges {
            // A rule multiplies the cost of a request. A cost above what fits, on either side, counts as the largest
            // that fits.
            let whole = u128::from(reserved.cost) * u128::from(actual.min(NUMBER_MAX));
            let actual = whole.div_ceil(u128::from(estimate)).min(u128::from(u64::MAX)) as u64;
            self.settle_one(reserved, actual);
        }
    }

    /// Gives back everything that a reservation charged: [`settle`](Self::settle) at a cost of 0.
    pub fn refund(&self, reservation: Reservation) {
        self.settle(reservation, 0);
    }

    fn settle_one(&self, reserved: &ReservedCharge, actual: u64) {
        let buckets = &self.buckets;
        loop {
            let active = self.active.load();
            // A limit that is gone has nothing to settle.
            let Some(limit) = active.place_of(reserved.id, reserved.index) else { return };
            let cost = reserved.cost.abs_diff(actual);
            let entry = PlanEntry { limit, identity: reserved.identity, cost, counted: 0 };
            let account = Account::new(&active, &entry);
            if actual < reserved.cost {
                if account.limit.edition == reserved.edition {
                    account.give_back(buckets, &reserved.charged, reserved.mark);
                }
                return;
            }
            let max_debt = active.snapshot.limits[limit as usize].max_debt;
            if cost == 0 || account.overcharge(buckets, max_debt).is_ok() {
                return;
            }
        }
    }

    /// Forgets what was used of every limit that a request meets: by its identities, and by everyone where the limit
    /// counts everyone together, in overflow buckets too. Returns the number of limits that had something to forget.
    /// Charges nothing.
    pub fn reset(&self, request: &Request<'_>) -> usize {
        let buckets = &self.buckets;
        self.with_plan(request, |active, plan, _| {
            Ok::<_, StaleSnapshot>(plan.iter().filter(|entry| Account::new(active, entry).reset(buckets)).count())
        })
    }
}
