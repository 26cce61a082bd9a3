//! Checks of shared limits, whose state nodes keep in a store: begun here, answered by the store, finished here. The caller
//! makes the round trip.

use std::{future::Future, sync::Arc};

use arrayvec::ArrayVec;

use crate::{
    algorithm::{Meter, Verdict},
    base::{clock::Clock, hash::KeyHasher, time::Nanos},
    engine::{
        account::{Account, BucketSite, ChargeResult},
        active_policy::{ActiveLimit, ActivePolicy, SnapshotResult},
        decide::{Accounts, Admitted, StoreAnswers},
        decision::{Decision, Degraded},
        inspect::Inspection,
        observer::CheckInput,
        reservation::{Reservation, ReservedCharge},
        state::Engine,
    },
    policy::{
        compiled::{PLAN_MAX, Snapshot},
        document::{ResponseSettings, Sharing},
        planner::{Plan, PlanEntry},
        request::{IDENTITIES_MAX, Identity, Request},
    },
};

/// A decider of requests, perhaps with the help of a store: an engine alone, or one whose limits a fleet shares.
/// Middleware and listeners are generic over it.
pub trait Decide {
    /// Decides a request, and charges it when it is allowed.
    fn decide<'a>(&'a self, request: &'a Request<'a>) -> impl Future<Output = Decision<'a>> + Send + 'a;

    /// Returns the response settings of a domain of the policy in force.
    fn response_settings(&self, domain: &str) -> ResponseSettings;
}

/// Decides without a store and never waits: see [`Engine::check`].
impl<C: Clock> Decide for Engine<C> {
    fn decide<'a>(&'a self, request: &'a Request<'a>) -> impl Future<Output = Decision<'a>> + Send + 'a {
        std::future::ready(self.check(request))
    }

    fn response_settings(&self, domain: &str) -> ResponseSettings {
        Self::response_settings(self, domain)
    }
}

/// The result of [`Engine::begin`].
#[derive(Debug)]
#[must_use]
pub enum BeginResult<'e, 'r> {
    /// The decision: no answer of the store is needed.
    Decided(Decision<'e>),
    /// The check needs answers of the store; nothing is charged so far.
    Pending(Pending<'r>),
}

/// A check that waits for answers of a store.
#[derive(Debug)]
#[must_use = "a check that is not finished was not decided"]
pub struct Pending<'r> {
    /// The identity of the engine that began it.
    engine: Arc<()>,
    request: &'r Request<'r>,
    active: Arc<ActivePolicy>,
    plan: Box<[PlanEntry]>,
    /// The answers that the node gave when the check began, for each limit that the store keeps, in the order of the
    /// plan.
    answered: Box<[Option<StoreAnswer>]>,
    is_look: bool,
}

/// One charge that is requested from the store.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StoreCharge<'p> {
    /// The full name of the limit. It makes the key of the store, with the [identities](Self::identities) and the
    /// length of each part.
    pub limit_id: &'p str,
    request: &'p Request<'p>,
    /// The identities of the request that are counted together, as bits.
    counted: u8,
    /// A hash that stays the same for one limit and its identities as long as the engine lives. Two others have the
    /// same by chance, once in 2^64.
    pub hash: u64,
    /// The limit's numbers, which interpret the word in the store.
    pub meter: Meter,
    /// The most tokens above the capacity that settlements may charge: see [`Meter::debt_room`].
    pub max_debt: u64,
    /// The version of the policy that has these numbers.
    pub version: u64,
    /// The way in which nodes share the limit.
    pub sharing: Sharing,
    /// The tokens to charge.
    pub cost: u64,
    /// Whether nothing is to be charged: the answer then says what a charge would come to (of one token, where the cost
    /// is 0).
    pub is_look: bool,
    /// Whether the limit is a shadow, which never denies.
    pub is_shadow: bool,
    /// The answer that this charge has already: of this node, when the check began, or of the store.
    pub answered: Option<StoreAnswer>,
}

impl<'p> StoreCharge<'p> {
    /// Returns the identities that are counted together, in the order of their kinds; none if the limit counts everyone
    /// together.
    #[must_use]
    pub fn identities(&self) -> impl ExactSizeIterator<Item = Identity<'p>> + use<'p> {
        let each = self.request.identities.iter().enumerate();
        let mut identities: ArrayVec<_, IDENTITIES_MAX> =
            each.filter(|(place, _)| self.counted >> place & 1 == 1).map(|(_, identity)| *identity).collect();
        identities.sort_unstable_by_key(Identity::kind);
        identities.into_iter()
    }
}

/// The answer of the store to one charge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreAnswer {
    /// The store decided.
    Decided {
        /// The verdict of the store's step.
        verdict: Verdict,
        /// The word after a charge, or the word that refused it.
        word: u64,
        /// The time of the step, by the store's clock.
        now: Nanos,
    },
    /// The store would admit, and charged nothing: it refused another charge that was to be made with this one.
    WouldAdmit {
        /// The word as it is.
        word: u64,
        /// The time of the look, by the store's clock.
        now: Nanos,
    },
    /// The store did not answer: the limit's `on_failure` decides. The charge is taken not to stand.
    Failed,
}

/// The charges that a store must take back: it admitted them, but another limit of the same check refused.
#[derive(Debug)]
#[must_use = "what the store admitted stays charged until it is given back"]
pub struct GiveBack<'r> {
    pending: Pending<'r>,
    /// The places in the plan of the limits that the store charged, as bits.
    places: u64,
}

impl Pending<'_> {
    /// Returns the cost of the request.
    #[must_use]
    pub fn cost(&self) -> u64 {
        self.request.cost
    }

    /// Returns the charges to request from the store. The answers are expected in this order.
    pub fn charges(&self) -> impl Iterator<Item = StoreCharge<'_>> {
        self.stored().filter_map(|place| self.charge(place))
    }

    /// Returns the places in the plan of the limits that the store keeps.
    fn stored(&self) -> impl Iterator<Item = usize> {
        (0..self.plan.len()).filter(|&place| is_stored(&self.active, &self.plan[place]))
    }

    fn charge(&self, place: usize) -> Option<StoreCharge<'_>> {
        let charge = store_charge(&self.active, self.request, &self.plan[place], self.is_look)?;
        let order = self.stored().take_while(|&stored| stored < place).count();
        Some(StoreCharge { answered: self.answered.get(order).copied().flatten(), ..charge })
    }
}

/// Returns the charge that is requested from the store for a limit of a plan, if the store keeps that limit.
#[inline]
fn store_charge<'p>(
    active: &'p ActivePolicy,
    request: &'p Request<'p>,
    charge: &PlanEntry,
    is_look: bool,
) -> Option<StoreCharge<'p>> {
    let PlanEntry { limit: place, cost, counted, identity } = *charge;
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
    /// Returns the charges that the store admitted.
    pub fn charges(&self) -> impl Iterator<Item = StoreCharge<'_>> {
        let admitted = self.pending.stored().filter(|place| self.places >> place & 1 == 1);
        admitted.filter_map(|place| self.pending.charge(place))
    }
}

fn is_stored(active: &ActivePolicy, charge: &PlanEntry) -> bool {
    active.snapshot.limits[charge.limit as usize].stored.is_some()
}

/// Checks over a store, for the crates of this repository. They may change in any version.
#[doc(hidden)]
impl<C: Clock> Engine<C> {
    /// Begins a check. It is decided at once if all limits that it meets are kept on this node, or if one of those
    /// refuses. Otherwise nothing is charged yet, and the caller asks the store for the charges of the [`Pending`].
    pub fn begin<'r>(&self, request: &'r Request<'r>) -> BeginResult<'_, 'r> {
        self.begin_with(request, |_| None).0
    }

    /// Begins a check as [`begin`](Self::begin) does. `local_answer` may answer for the store, from what this node
    /// holds of a limit. If it answers every charge, the check is decided at once; if that decision is a denial, the
    /// caller takes back what `local_answer` charged.
    pub fn begin_with<'r>(
        &self,
        request: &'r Request<'r>,
        mut local_answer: impl FnMut(&StoreCharge<'_>) -> Option<StoreAnswer>,
    ) -> (BeginResult<'_, 'r>, Option<GiveBack<'r>>) {
        let is_look = request.cost == 0;
        self.with_plan(request, |active, plan, now| {
            let mut answer = None;
            // The commonest case is decided without the kilobytes of stack that any plan takes.
            if let [alone] = plan.as_slice()
                && let Some(charge) = store_charge(active, request, alone, is_look)
                && !(is_look || charge.is_shadow)
            {
                answer = local_answer(&charge);
                match answer {
                    None => return Ok((BeginResult::Pending(self.pending(active, request, plan, &[], is_look)), None)),
                    Some(StoreAnswer::Decided { verdict, word, now: at }) => {
                        let charged = ChargeResult { verdict, word, now: at, site: BucketSite::Store };
                        let decision = Account::new(active, alone).decision(&self.buckets, 0, charged);
                        self.count(active, CheckInput::Request(request), plan, &decision, now);
                        return Ok((BeginResult::Decided(decision), None));
                    }
                    Some(_) => {}
                }
            }
            if let Some(begun) = self.decide_locally(active, request, plan, now, is_look)? {
                return Ok((begun, None));
            }
            // These are filled in place: the whole array is kilobytes to move.
            let mut answers = ArrayVec::<_, PLAN_MAX>::new();
            for charge in plan {
                if let Some(charge) = store_charge(active, request, charge, is_look) {
                    answers.push(answer.take().or_else(|| local_answer(&charge)));
                }
            }
            let pending = || self.pending(active, request, plan, &answers, is_look);
            if answers.iter().any(Option::is_none) {
                return Ok((BeginResult::Pending(pending()), None));
            }
            let mut by_place = AnswersByPlace::new();
            let each = answers.iter().map(|answer| answer.unwrap_or(StoreAnswer::Failed));
            let places = place_answers(active, plan, each, &mut by_place);
            let decision = self.finish_with(active, request, plan, (&by_place, now), is_look, None);
            let is_vain = !decision.is_allowed() && places != 0;
            Ok((BeginResult::Decided(decision), is_vain.then(|| GiveBack { pending: pending(), places })))
        })
    }

    /// Begins a check, or a look at what it would come to, without charging anything. Returns `None` if the request
    /// meets no limit that is kept in a store.
    pub fn begin_if_shared<'r>(&self, request: &'r Request<'r>, is_look: bool) -> Option<BeginResult<'_, 'r>> {
        if !self.active.load().snapshot.has_stored {
            return None;
        }
        let is_look = is_look || request.cost == 0;
        self.with_plan(request, |active, plan, now| {
            if !plan.iter().any(|charge| is_stored(active, charge)) {
                return Ok(None);
            }
            Ok(Some(match self.decide_locally(active, request, plan, now, is_look)? {
                Some(refused) => refused,
                None => BeginResult::Pending(self.pending(active, request, plan, &[], is_look)),
            }))
        })
    }

    /// Returns the limits that a request meets, also behind one that denies it, for
    /// [`inspect_with`](Self::inspect_with). Returns `None` if the store keeps none of them.
    #[must_use]
    pub fn begin_inspection<'r>(&self, request: &'r Request<'r>) -> Option<Pending<'r>> {
        let clock = || self.buckets.now();
        self.with_plan_by(Snapshot::plan_with_hidden, request, clock, |active, plan, _| {
            let is_any = plan.iter().any(|charge| is_stored(active, charge));
            Ok(is_any.then(|| self.pending(active, request, plan, &[], true)))
        })
    }

    /// Inspects a request as [`inspect`](Self::inspect) does, with the answers of the store.
    pub fn inspect_with(&self, pending: &Pending<'_>, answers: &[StoreAnswer]) -> Inspection<'_> {
        let Pending { request, active, plan, .. } = pending;
        let mut by_place = AnswersByPlace::new();
        place_answers(active, plan, answers.iter().copied(), &mut by_place);
        for (charge, answer) in plan.iter().zip(&mut by_place) {
            let stored = active.snapshot.limits[charge.limit as usize].stored;
            if let (Some(stored), Some(answer)) = (stored, answer)
                && charge.cost > 0
            {
                // A look returns the word before the charge.
                answer.verdict = stored.meter.step(answer.word, answer.now, charge.cost);
            }
        }
        let answers = StoreAnswers { answers: &by_place, otherwise: Degraded::StoreFailed };
        let found = self.inspect_plan(active, plan, self.buckets.now(), answers);
        // Answers for another engine mean nothing here, and a newer policy may have other limits.
        let is_ours = Arc::ptr_eq(&pending.engine, &self.buckets.id);
        found.ok().filter(|_| is_ours).unwrap_or_else(|| self.inspect(request))
    }

    /// Decides what this node can decide alone: requests that meet no limit of the store, and denials by its own
    /// limits.
    fn decide_locally<'r>(
        &self,
        active: &Arc<ActivePolicy>,
        request: &'r Request<'r>,
        plan: &Plan,
        now: Nanos,
        is_look: bool,
    ) -> SnapshotResult<Option<BeginResult<'_, 'r>>> {
        if !plan.iter().any(|charge| is_stored(active, charge)) {
            return self.decide_plan(active, request, plan, now).map(|decision| Some(BeginResult::Decided(decision)));
        }
        let refused = self.buckets.refused_here(active, plan, now)?;
        if let Some(refused) = &refused
            && !is_look
        {
            self.count(active, CheckInput::Request(request), plan, refused, now);
        }
        Ok(refused.map(BeginResult::Decided))
    }

    fn pending<'r>(
        &self,
        active: &Arc<ActivePolicy>,
        request: &'r Request<'r>,
        plan: &Plan,
        answered: &[Option<StoreAnswer>],
        is_look: bool,
    ) -> Pending<'r> {
        let (engine, plan) = (Arc::clone(&self.buckets.id), plan.as_slice().into());
        // Most checks have no answer yet.
        let answered = if answered.iter().any(Option::is_some) { answered.into() } else { Box::default() };
        Pending { engine, request, active: Arc::clone(active), plan, answered, is_look }
    }

    /// Finishes a check with the store's answers, in the order of [`Pending::charges`]; a missing answer counts as
    /// [`Failed`](StoreAnswer::Failed). The limits of this node are charged now, all or none.
    ///
    /// If the decision is a denial, the caller gives back to the store what it admitted. A check that another engine
    /// began is decided as a [`check`](Self::check) of this one, without the answers.
    pub fn finish<'r>(&self, pending: Pending<'r>, answers: &[StoreAnswer]) -> (Decision<'_>, Option<GiveBack<'r>>) {
        let (decision, _, give_back) = self.conclude(pending, answers, false);
        (decision, give_back)
    }

    /// Finishes a check as [`finish`](Self::finish) does, and returns a reservation of what was charged on this node.
    /// The caller settles what the store charged.
    pub fn finish_reserved<'r>(
        &self,
        pending: Pending<'r>,
        answers: &[StoreAnswer],
    ) -> (Decision<'_>, Option<Reservation>, Option<GiveBack<'r>>) {
        self.conclude(pending, answers, true)
    }

    /// Finishes a check, and reserves what is charged on this node if it `is_reserving`.
    fn conclude<'r>(
        &self,
        pending: Pending<'r>,
        answers: &[StoreAnswer],
        is_reserving: bool,
    ) -> (Decision<'_>, Option<Reservation>, Option<GiveBack<'r>>) {
        let Pending { request, ref active, ref plan, is_look, .. } = pending;
        if !Arc::ptr_eq(&pending.engine, &self.buckets.id) {
            let (decision, reservation) =
                if is_reserving { self.reserve(request) } else { (self.check(request), None) };
            return (decision, reservation, None);
        }
        let is_look = is_look && !is_reserving;
        let mut by_place = AnswersByPlace::new();
        let places = place_answers(active, plan, answers.iter().copied(), &mut by_place);
        let mut reserved = is_reserving.then(|| Vec::with_capacity(plan.len()));
        let now = self.buckets.now();
        let decision = self.finish_with(active, request, plan, (&by_place, now), is_look, reserved.as_mut());
        let is_allowed = decision.is_allowed();
        let reserve = |reserved| Reservation::of(&self.buckets, request, active, plan, reserved);
        let reservation = reserved.filter(|_| is_allowed).map(reserve);
        let answered = || answers.iter().copied().map(Some).collect();
        let give_back = (!is_allowed && places != 0 && !is_look)
            .then(|| GiveBack { pending: Pending { answered: answered(), ..pending }, places });
        (decision, reservation, give_back)
    }

    fn finish_with(
        &self,
        begun_policy: &ActivePolicy,
        request: &Request<'_>,
        plan: &[PlanEntry],
        (answers, mut now): (&[Option<ChargeResult>], Nanos),
        is_look: bool,
        mut reserved: Option<&mut Vec<ReservedCharge>>,
    ) -> Decision<'_> {
        let buckets = &self.buckets;
        loop {
            let active = self.active.load();
            // A publish since then adds no limits to the request. The store's answers are read by the numbers that it
            // was asked with, limits of this node count by their new numbers, and a limit that is gone is left out.
            let (mut accounts, mut entries, mut answered) =
                (Accounts::new(), Plan::new(), ArrayVec::<_, PLAN_MAX>::new());
            for (charge, answer) in plan.iter().zip(answers) {
                let ActiveLimit { id, index, .. } = begun_policy.limits[charge.limit as usize];
                let account = match active.place_of(id, index) {
                    _ if answer.is_some() => Account::new(begun_policy, charge).with_version(active.version),
                    Some(limit) => Account::new(&active, &PlanEntry { limit, ..*charge }),
                    None => continue,
                };
                accounts.push(account);
                entries.push(*charge);
                answered.push(*answer);
            }
            let answers = StoreAnswers { answers: &answered, otherwise: Degraded::StoreFailed };
            let mut admitted = Admitted::new();
            let mut marks = ArrayVec::<_, PLAN_MAX>::new();
            if reserved.is_some() {
                marks.extend(accounts.iter().map(|account| account.mark(buckets)));
            }
            let decided = if is_look {
                buckets.look_at_all(begun_policy, &accounts, now, answers)
            } else {
                buckets.charge_all(begun_policy, &accounts, now, answers, &mut admitted)
            };
            let Ok(decision) = decided else {
                now = buckets.now();
                continue;
            };
            if !is_look {
                self.count(begun_policy, CheckInput::Request(request), &entries, &decision, now);
            }
            if let Some(reserved) = reserved.take().filter(|_| decision.is_allowed()) {
                let here = admitted.iter().filter(|(_, preview)| !matches!(preview.charged.site, BucketSite::Store));
                reserved.extend(here.map(|(place, preview)| {
                    ReservedCharge::new(&accounts[*place], &entries[*place], preview.charged, marks[*place])
                }));
            }
            return decision;
        }
    }
}

/// The answers of the store, by place in a plan.
type AnswersByPlace = ArrayVec<Option<ChargeResult>, PLAN_MAX>;

/// Puts the answers of the store at the places of their limits. Returns the places that the store charged, as bits.
fn place_answers(
    active: &ActivePolicy,
    plan: &[PlanEntry],
    mut answers: impl Iterator<Item = StoreAnswer>,
    to: &mut AnswersByPlace,
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
