//! Limits that nodes share through a store: a check in two halves. The caller makes the round trip to the store between them.

use std::{future::Future, sync::Arc};

use arrayvec::ArrayVec;

use crate::{
    algorithm::{Meter, Verdict},
    base::{clock::Clock, hash::KeyHasher, time::Nanos},
    engine::{
        account::{Account, BucketSite, ChargeResult},
        active_policy::{ActiveLimit, ActivePolicy, StaleSnapshot},
        decide::{Accounts, Admitted, StoreAnswers},
        decision::{Decision, Degraded},
        inspect::Inspection,
        observer::CheckInput,
        reservation::{Reservation, ReservedCharge},
        state::Engine,
    },
    policy::{
        compiled::{PLAN_MAX, Snapshot},
        document::{DoorSettings, Sharing},
        planner::{Charge, Plan},
        request::{IDENTITIES_MAX, Identity, Request},
    },
};

/// Who decides requests, perhaps after asking a store: an engine alone, or one that follows a fleet. Middleware and doors
/// are generic over this.
pub trait Decide {
    /// Decides a request, and charges it when it is allowed.
    fn decide<'a>(&'a self, request: &'a Request<'a>) -> impl Future<Output = Decision<'a>> + Send + 'a;

    /// What a domain of the policy in force asks of the doors.
    fn door_settings(&self, domain: &str) -> DoorSettings;
}

/// An engine alone never waits: see [`Engine::check`].
impl<C: Clock> Decide for Engine<C> {
    fn decide<'a>(&'a self, request: &'a Request<'a>) -> impl Future<Output = Decision<'a>> + Send + 'a {
        std::future::ready(self.check(request))
    }

    fn door_settings(&self, domain: &str) -> DoorSettings {
        Self::door_settings(self, domain)
    }
}

/// What [`Engine::begin`] came to.
#[derive(Debug)]
#[must_use]
pub enum Begun<'e, 'r> {
    /// The decision: nothing is asked of the store.
    Decided(Decision<'e>),
    /// The store must be asked; nothing is charged so far.
    Pending(Pending<'r>),
}

/// A check that waits for a store.
#[derive(Debug)]
#[must_use = "a check that is not finished was not decided"]
pub struct Pending<'r> {
    /// Of [`Buckets`](crate::engine::buckets::Buckets).
    engine: Arc<()>,
    request: &'r Request<'r>,
    active: Arc<ActivePolicy>,
    plan: Box<[Charge]>,
    /// Of each limit that the store keeps, in the order of the plan: what was answered when it began.
    answered: Box<[Option<StoreAnswer>]>,
    is_look: bool,
}

/// One charge that a store is asked for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StoreCharge<'p> {
    /// Full name of the limit. With the [identities](Self::identities), and the length of each part, it makes the key.
    pub limit_id: &'p str,
    request: &'p Request<'p>,
    /// Which of its identities are counted together, as bits.
    counted: u8,
    /// The same for the same limit and identities, as long as the engine lives; of two others by chance, once in 2^64.
    pub hash: u64,
    /// The limit's numbers, which interpret the word that the store keeps.
    pub meter: Meter,
    /// The most tokens above the capacity that settlements may charge: see [`Meter::debt_room`].
    pub max_debt: u64,
    /// Of the policy that has these numbers.
    pub version: u64,
    /// How nodes share it.
    pub sharing: Sharing,
    /// Tokens to charge.
    pub cost: u64,
    /// Nothing is charged: the answer says what a charge (of one token, where the cost is 0) would come to.
    pub is_look: bool,
    /// It never denies.
    pub is_shadow: bool,
    /// What was answered already, when the check began.
    pub answered: Option<StoreAnswer>,
}

impl<'p> StoreCharge<'p> {
    /// The identities that are counted together, in the order of their kinds; none: everyone.
    #[must_use]
    pub fn identities(&self) -> ArrayVec<Identity<'p>, IDENTITIES_MAX> {
        let each = self.request.identities.iter().enumerate();
        let mut identities: ArrayVec<_, IDENTITIES_MAX> =
            each.filter(|(place, _)| self.counted >> place & 1 == 1).map(|(_, identity)| *identity).collect();
        identities.sort_unstable_by_key(Identity::kind);
        identities
    }
}

/// What the store said of one charge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreAnswer {
    /// It decided.
    Decided {
        /// What its step said.
        verdict: Verdict,
        /// The word after a charge, or the one that refused it.
        word: u64,
        /// The store's time of the step.
        now: Nanos,
    },
    /// It would admit, and charged nothing: another charge that was to be made with this one was refused.
    WouldAdmit {
        /// The word as it is.
        word: u64,
        /// The store's time of the look.
        now: Nanos,
    },
    /// It did not answer: what the limit says for that case decides. The charge is taken not to stand.
    Failed,
}

/// What a store must take back: it admitted, but another limit of the same check refused.
#[derive(Debug)]
#[must_use = "what the store admitted stays charged until it is given back"]
pub struct GiveBack<'r> {
    pending: Pending<'r>,
    /// Places in the plan, as bits.
    places: u64,
}

impl Pending<'_> {
    /// What the request costs.
    #[must_use]
    pub fn cost(&self) -> u64 {
        self.request.cost
    }

    /// What to ask the store for, in the order in which it is to be answered.
    pub fn charges(&self) -> impl Iterator<Item = StoreCharge<'_>> {
        self.stored().filter_map(|place| self.charge(place))
    }

    /// Places in the plan of the limits that the store keeps.
    fn stored(&self) -> impl Iterator<Item = usize> {
        (0..self.plan.len()).filter(|&place| is_stored(&self.active, &self.plan[place]))
    }

    fn charge(&self, place: usize) -> Option<StoreCharge<'_>> {
        let charge = store_charge(&self.active, self.request, &self.plan[place], self.is_look)?;
        let order = self.stored().take_while(|&stored| stored < place).count();
        Some(StoreCharge { answered: self.answered.get(order).copied().flatten(), ..charge })
    }
}

/// What a store is asked for a limit of a plan, if it keeps that.
#[inline]
fn store_charge<'p>(
    active: &'p ActivePolicy,
    request: &'p Request<'p>,
    charge: &Charge,
    is_look: bool,
) -> Option<StoreCharge<'p>> {
    let Charge { limit: place, cost, counted, identity } = *charge;
    let limit = &active.snapshot.limits[place as usize];
    let stored = limit.stored?;
    Some(StoreCharge {
        limit_id: &limit.name,
        request,
        counted,
        hash: KeyHasher::key(active.limits[place as usize].hash, identity),
        meter: stored.meter,
        max_debt: stored.max_debt,
        version: active.version,
        sharing: stored.sharing,
        cost,
        is_look,
        is_shadow: limit.is_shadow,
        answered: None,
    })
}

impl GiveBack<'_> {
    /// The charges that the store admitted.
    pub fn charges(&self) -> impl Iterator<Item = StoreCharge<'_>> {
        let admitted = self.pending.stored().filter(|place| self.places >> place & 1 == 1);
        admitted.filter_map(|place| self.pending.charge(place))
    }
}

fn is_stored(active: &ActivePolicy, charge: &Charge) -> bool {
    active.snapshot.limits[charge.limit as usize].stored.is_some()
}

impl<C: Clock> Engine<C> {
    /// Begins a check. Where all limits that it meets are kept on this node, or one of those refuses, it is decided at once.
    /// Otherwise nothing is charged yet, and the store is to be asked for the charges of the [`Pending`].
    pub fn begin<'r>(&self, request: &'r Request<'r>) -> Begun<'_, 'r> {
        self.begin_with(request, |_| None).0
    }

    /// The same, where `held` may answer for the store, of what the node holds of it. Where that answers all, the check is
    /// decided at once; when it comes to a denial after all, what was taken is to be put back.
    pub fn begin_with<'r>(
        &self,
        request: &'r Request<'r>,
        mut held: impl FnMut(&StoreCharge<'_>) -> Option<StoreAnswer>,
    ) -> (Begun<'_, 'r>, Option<GiveBack<'r>>) {
        let is_look = request.cost == 0;
        self.with_plan(request, |active, plan, now| {
            let mut answer = None;
            // The commonest is decided without the kilobytes of stack that any plan takes.
            if let [alone] = plan.as_slice()
                && let Some(charge) = store_charge(active, request, alone, is_look)
                && !(is_look || charge.is_shadow)
            {
                answer = held(&charge);
                match answer {
                    None => return Ok((Begun::Pending(self.pending(active, request, plan, &[], is_look)), None)),
                    Some(StoreAnswer::Decided { verdict, word, now: at }) => {
                        let charged = ChargeResult { verdict, word, now: at, site: BucketSite::Store };
                        let decision = Account::new(active, alone).decision(self.buckets(), 0, charged);
                        self.count(active, CheckInput::Request(request), plan, &decision, now);
                        return Ok((Begun::Decided(decision), None));
                    }
                    Some(_) => {}
                }
            }
            if let Some(begun) = self.here(active, request, plan, now, is_look)? {
                return Ok((begun, None));
            }
            // Filled where they lie: a whole one is kilobytes to move.
            let mut answers = ArrayVec::<_, PLAN_MAX>::new();
            for charge in plan {
                if let Some(charge) = store_charge(active, request, charge, is_look) {
                    answers.push(answer.take().or_else(|| held(&charge)));
                }
            }
            let pending = || self.pending(active, request, plan, &answers, is_look);
            if answers.iter().any(Option::is_none) {
                return Ok((Begun::Pending(pending()), None));
            }
            let mut by_place = ByPlace::new();
            let each = answers.iter().map(|answer| answer.unwrap_or(StoreAnswer::Failed));
            let places = put_by_place(active, plan, each, &mut by_place);
            let decision = self.finish_with(active, request, plan, (&by_place, now), is_look, None);
            let is_vain = !decision.is_allowed() && places != 0;
            Ok((Begun::Decided(decision), is_vain.then(|| GiveBack { pending: pending(), places })))
        })
    }

    /// Begins a check, or a look at what it would come to, without charging anything. `None`: nothing that it meets is kept in
    /// a store.
    pub fn pend<'r>(&self, request: &'r Request<'r>, is_look: bool) -> Option<Begun<'_, 'r>> {
        if !self.borrow_active().snapshot.has_stored {
            return None;
        }
        let is_look = is_look || request.cost == 0;
        self.with_plan(request, |active, plan, now| {
            if !plan.iter().any(|charge| is_stored(active, charge)) {
                return Ok(None);
            }
            Ok(Some(match self.here(active, request, plan, now, is_look)? {
                Some(refused) => refused,
                None => Begun::Pending(self.pending(active, request, plan, &[], is_look)),
            }))
        })
    }

    /// The limits that a request meets, also behind one that denies it, of which the store is to be asked for
    /// [`inspect_with`](Self::inspect_with). `None`: it keeps none of them.
    #[must_use]
    pub fn pend_inspection<'r>(&self, request: &'r Request<'r>) -> Option<Pending<'r>> {
        let clock = || self.buckets().clock.now();
        self.with_plan_by(Snapshot::plan_behind_blocks, request, clock, |active, plan, _| {
            let is_any = plan.iter().any(|charge| is_stored(active, charge));
            Ok(is_any.then(|| self.pending(active, request, plan, &[], true)))
        })
    }

    /// As [`inspect`](Self::inspect), with what the store answered.
    pub fn inspect_with(&self, pending: &Pending<'_>, answers: &[StoreAnswer]) -> Inspection<'_> {
        let Pending { request, active, plan, .. } = pending;
        let mut by_place = ByPlace::new();
        put_by_place(active, plan, answers.iter().copied(), &mut by_place);
        for (charge, answer) in plan.iter().zip(&mut by_place) {
            let stored = active.snapshot.limits[charge.limit as usize].stored;
            if let (Some(stored), Some(answer)) = (stored, answer)
                && charge.cost > 0
            {
                // A look has the word before the charge.
                answer.verdict = stored.meter.step(answer.word, answer.now, charge.cost);
            }
        }
        let answers = StoreAnswers { answers: &by_place, otherwise: Degraded::StoreFailed };
        let found = self.inspect_plan(active, plan, self.buckets().clock.now(), answers);
        // What another engine began has no place here, and a newer policy may have other limits.
        let is_ours = Arc::ptr_eq(&pending.engine, &self.buckets().id);
        found.ok().filter(|_| is_ours).unwrap_or_else(|| self.inspect(request))
    }

    /// What this node decides alone: requests that meet no limit of the store, and denials of its own limits.
    fn here<'r>(
        &self,
        active: &Arc<ActivePolicy>,
        request: &'r Request<'r>,
        plan: &Plan,
        now: Nanos,
        is_look: bool,
    ) -> Result<Option<Begun<'_, 'r>>, StaleSnapshot> {
        if !plan.iter().any(|charge| is_stored(active, charge)) {
            return self.decide_plan(active, request, plan, now).map(|decision| Some(Begun::Decided(decision)));
        }
        let refused = self.buckets().refused_here(active, plan, now)?;
        if let Some(refused) = &refused
            && !is_look
        {
            self.count(active, CheckInput::Request(request), plan, refused, now);
        }
        Ok(refused.map(Begun::Decided))
    }

    fn pending<'r>(
        &self,
        active: &Arc<ActivePolicy>,
        request: &'r Request<'r>,
        plan: &Plan,
        answered: &[Option<StoreAnswer>],
        is_look: bool,
    ) -> Pending<'r> {
        let (engine, plan) = (Arc::clone(&self.buckets().id), plan.as_slice().into());
        // Mostly there is none.
        let answered = if answered.iter().any(Option::is_some) { answered.into() } else { Box::default() };
        Pending { engine, request, active: Arc::clone(active), plan, answered, is_look }
    }

    /// Finishes a check with what the store answered, in the order of [`Pending::charges`]; where answers are missing, it
    /// failed. The limits of this node are charged now, all or none.
    ///
    /// When it comes to a denial after all, what the store admitted must be given back to it. What another engine began is
    /// decided as a [`check`](Self::check) of this one, whatever the store answered.
    pub fn finish<'r>(&self, pending: Pending<'r>, answers: &[StoreAnswer]) -> (Decision<'_>, Option<GiveBack<'r>>) {
        if !Arc::ptr_eq(&pending.engine, &self.buckets().id) {
            return (self.check(pending.request), None);
        }
        let mut by_place = ByPlace::new();
        let places = put_by_place(&pending.active, &pending.plan, answers.iter().copied(), &mut by_place);
        let Pending { request, ref active, ref plan, is_look, .. } = pending;
        let decision = self.finish_with(active, request, plan, (&by_place, self.buckets().clock.now()), is_look, None);
        let is_vain = !decision.is_allowed() && places != 0 && !is_look;
        let answered = answers.iter().copied().map(Some).collect();
        (decision, is_vain.then(|| GiveBack { pending: Pending { answered, ..pending }, places }))
    }

    /// As [`finish`](Self::finish); what was charged on this node can be settled. What the store charged is the caller's to
    /// settle.
    pub fn finish_reserved<'r>(
        &self,
        pending: Pending<'r>,
        answers: &[StoreAnswer],
    ) -> (Decision<'_>, Option<Reservation>, Option<GiveBack<'r>>) {
        if !Arc::ptr_eq(&pending.engine, &self.buckets().id) {
            let (decision, reservation) = self.reserve(pending.request);
            return (decision, reservation, None);
        }
        let mut by_place = ByPlace::new();
        let places = put_by_place(&pending.active, &pending.plan, answers.iter().copied(), &mut by_place);
        let Pending { request, ref active, ref plan, .. } = pending;
        let mut reserved = Vec::with_capacity(plan.len());
        let now = self.buckets().clock.now();
        let decision = self.finish_with(active, request, plan, (&by_place, now), false, Some(&mut reserved));
        if decision.is_allowed() {
            let reservation = Reservation::of(self.buckets(), request, active, plan, reserved);
            return (decision, Some(reservation), None);
        }
        (decision, None, (places != 0).then_some(GiveBack { pending, places }))
    }

    fn finish_with(
        &self,
        begun: &ActivePolicy,
        request: &Request<'_>,
        plan: &[Charge],
        (answers, mut now): (&[Option<ChargeResult>], Nanos),
        is_look: bool,
        mut reserved: Option<&mut Vec<ReservedCharge>>,
    ) -> Decision<'_> {
        let buckets = self.buckets();
        loop {
            let active = self.borrow_active();
            // A publish since adds no limits to the request. What the store answered is read by the numbers that it was
            // asked for; limits of this node count by their new numbers; a limit that is gone counts nobody.
            let (mut accounts, mut met, mut answered) = (Accounts::new(), Plan::new(), ArrayVec::<_, PLAN_MAX>::new());
            for (charge, answer) in plan.iter().zip(answers) {
                let ActiveLimit { id, index, .. } = begun.limits[charge.limit as usize];
                let account = match active.place_of(id, index) {
                    _ if answer.is_some() => Account::new(begun, charge).as_of(active.version),
                    Some(limit) => Account::new(&active, &Charge { limit, ..*charge }),
                    None => continue,
                };
                accounts.push(account);
                met.push(*charge);
                answered.push(*answer);
            }
            let answers = StoreAnswers { answers: &answered, otherwise: Degraded::StoreFailed };
            let mut admitted = Admitted::new();
            let mut marks = ArrayVec::<_, PLAN_MAX>::new();
            if reserved.is_some() {
                marks.extend(accounts.iter().map(|account| account.mark(buckets)));
            }
            let decided = if is_look {
                buckets.look_at_all(begun, &accounts, now, answers)
            } else {
                buckets.charge_all(begun, &accounts, now, answers, &mut admitted)
            };
            let Ok(decision) = decided else {
                now = buckets.clock.now();
                continue;
            };
            if !is_look {
                self.count(begun, CheckInput::Request(request), &met, &decision, now);
            }
            if let Some(reserved) = reserved.take().filter(|_| decision.is_allowed()) {
                let here = admitted.iter().filter(|(_, look)| !matches!(look.charged.site, BucketSite::Store));
                reserved.extend(here.map(|(place, look)| {
                    ReservedCharge::new(&accounts[*place], &met[*place], look.charged, marks[*place])
                }));
            }
            return decision;
        }
    }
}

/// By place in a plan what the store answered.
type ByPlace = ArrayVec<Option<ChargeResult>, PLAN_MAX>;

/// Puts the answers of the store in their places, and tells as bits those that it charged.
fn put_by_place(
    active: &ActivePolicy,
    plan: &[Charge],
    mut answers: impl Iterator<Item = StoreAnswer>,
    to: &mut ByPlace,
) -> u64 {
    let mut places = 0;
    let each = plan.iter().enumerate().map(|(place, charge)| {
        let answer = if is_stored(active, charge) { answers.next()? } else { return None };
        let (verdict, word, now) = match answer {
            StoreAnswer::Decided { verdict, word, now } => (verdict, word, now),
            StoreAnswer::WouldAdmit { word, now } => (Verdict::Admit(word), word, now),
            StoreAnswer::Failed => return None,
        };
        if matches!(answer, StoreAnswer::Decided { verdict: Verdict::Admit(_), .. }) {
            places |= 1 << place;
        }
        Some(ChargeResult { verdict, word, now, site: BucketSite::Store })
    });
    to.extend(each);
    places
}
