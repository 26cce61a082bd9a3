//! Limits that nodes share through a store: a check in two halves, with a round trip between them that is the caller's.

use std::{future::Future, sync::Arc};

use arrayvec::ArrayVec;

use crate::{
    account::{Account, Charged, Site},
    algorithm::{Meter, Verdict},
    clock::Clock,
    decide::{Accounts, Admitted, Answers},
    decision::{Decision, Degraded},
    engine::Engine,
    observer::Asked,
    policy::{DoorSettings, Sharing},
    registry::Live,
    request::{IDENTITIES_MAX, Identity, Request},
    snapshot::{Charge, PLAN_MAX, Plan},
    time::Nanos,
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
    /// Of [`Buckets`](crate::account::Buckets).
    engine: Arc<()>,
    request: &'r Request<'r>,
    live: Arc<Live>,
    plan: Box<[Charge]>,
}

/// One charge that a store is asked for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StoreCharge<'p> {
    /// Full name of the limit. With the identities, and the length of each part, it makes the key.
    pub limit_id: &'p str,
    /// The identities that are counted together, in the order of their kinds; none: everyone.
    pub identities: ArrayVec<Identity<'p>, IDENTITIES_MAX>,
    /// The limit's numbers, which interpret the word that the store keeps.
    pub meter: Meter,
    /// How nodes share it.
    pub sharing: Sharing,
    /// Tokens to charge; 0: only look.
    pub cost: u64,
    /// It never denies.
    pub is_shadow: bool,
}

/// What the store said of one charge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// It decided.
    Decided {
        /// What its step said.
        verdict: Verdict,
        /// The word after a charge, or the one that refused it.
        word: u64,
        /// The store's time of the step.
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
    /// What to ask the store for, in the order in which it is to be answered.
    pub fn charges(&self) -> impl Iterator<Item = StoreCharge<'_>> {
        self.stored().filter_map(|place| self.charge(place))
    }

    /// Places in the plan of the limits that the store keeps.
    fn stored(&self) -> impl Iterator<Item = usize> {
        (0..self.plan.len()).filter(|&place| is_stored(&self.live, &self.plan[place]))
    }

    fn charge(&self, place: usize) -> Option<StoreCharge<'_>> {
        let Charge { limit, cost, counted, .. } = self.plan[place];
        let limit = &self.live.snapshot.limits[limit as usize];
        let stored = limit.stored?;
        let each = self.request.identities.iter().enumerate();
        let mut identities: ArrayVec<_, IDENTITIES_MAX> =
            each.filter(|(place, _)| counted >> place & 1 == 1).map(|(_, identity)| *identity).collect();
        identities.sort_unstable_by_key(Identity::kind);
        Some(StoreCharge {
            limit_id: &limit.name,
            identities,
            meter: stored.meter,
            sharing: stored.sharing,
            cost,
            is_shadow: limit.is_shadow,
        })
    }
}

impl GiveBack<'_> {
    /// The charges that the store admitted.
    pub fn charges(&self) -> impl Iterator<Item = StoreCharge<'_>> {
        let admitted = self.pending.stored().filter(|place| self.places >> place & 1 == 1);
        admitted.filter_map(|place| self.pending.charge(place))
    }
}

fn is_stored(live: &Live, charge: &Charge) -> bool {
    live.snapshot.limits[charge.limit as usize].stored.is_some()
}

impl<C: Clock> Engine<C> {
    /// Begins a check. Where all limits that it meets are kept on this node, or one of those refuses, it is decided at once.
    /// Otherwise nothing is charged yet, and the store is to be asked for the charges of the [`Pending`].
    pub fn begin<'r>(&self, request: &'r Request<'r>) -> Begun<'_, 'r> {
        let buckets = self.buckets();
        self.with_plan(request, |live, plan, now| {
            if !plan.iter().any(|charge| is_stored(live, charge)) {
                return self.decide_plan(live, request, plan, now).map(Begun::Decided);
            }
            if let Some(refused) = buckets.refused_here(live, plan, now)? {
                if request.cost > 0 {
                    self.count(live, Asked::Request(request), plan, &refused, now);
                }
                return Ok(Begun::Decided(refused));
            }
            Ok(Begun::Pending(Pending {
                engine: Arc::clone(&buckets.id),
                request,
                live: Arc::clone(live),
                plan: plan.as_slice().into(),
            }))
        })
    }

    /// Finishes a check with what the store answered, in the order of [`Pending::charges`]; where answers are missing, it
    /// failed. The limits of this node are charged now, all or none.
    ///
    /// When it comes to a denial after all, what the store admitted must be given back to it. What another engine began is
    /// decided as a [`check`](Self::check) of this one, whatever the store answered.
    pub fn finish<'r>(&self, pending: Pending<'r>, answers: &[Answer]) -> (Decision<'_>, Option<GiveBack<'r>>) {
        if !Arc::ptr_eq(&pending.engine, &self.buckets().id) {
            return (self.check(pending.request), None);
        }
        let mut by_place: ArrayVec<Option<Charged>, PLAN_MAX> = pending.plan.iter().map(|_| None).collect();
        for (place, answer) in pending.stored().zip(answers) {
            if let Answer::Decided { verdict, word, now } = *answer {
                by_place[place] = Some(Charged { verdict, word, now, site: Site::Store });
            }
        }
        let decision = self.finish_with(&pending, &by_place);
        let admitted = by_place.iter().enumerate().filter(|(_, charged)| charged.is_some_and(|it| it.is_admitted()));
        let places = admitted.fold(0, |places, (place, _)| places | 1 << place);
        let refused = !decision.is_allowed() && places != 0 && pending.request.cost > 0;
        (decision, refused.then_some(GiveBack { pending, places }))
    }

    fn finish_with(&self, pending: &Pending<'_>, answers: &[Option<Charged>]) -> Decision<'_> {
        let buckets = self.buckets();
        let Pending { request, live: begun, plan, .. } = pending;
        loop {
            let live = self.live_now();
            // A publish since adds no limits to the request. What the store answered is read by the numbers that it was
            // asked for; limits of this node count by their new numbers; a limit that is gone counts nobody.
            let (mut accounts, mut met, mut answered) = (Accounts::new(), Plan::new(), ArrayVec::<_, PLAN_MAX>::new());
            for (charge, answer) in plan.iter().zip(answers) {
                let account = match live.place_of(begun.limits[charge.limit as usize].index) {
                    _ if answer.is_some() => Account::new(begun, charge).as_of(live.version),
                    Some(limit) => Account::new(&live, &Charge { limit, ..*charge }),
                    None => continue,
                };
                accounts.push(account);
                met.push(*charge);
                answered.push(*answer);
            }
            let answers = Answers { answers: &answered, otherwise: Degraded::StoreFailed };
            let now = buckets.clock.now();
            let decided = if request.cost == 0 {
                buckets.look_at_all(begun, &accounts, now, answers)
            } else {
                buckets.charge_all(begun, &accounts, now, answers, &mut Admitted::new())
            };
            if let Ok(decision) = decided {
                if request.cost > 0 {
                    self.count(begun, Asked::Request(request), &met, &decision, now);
                }
                return decision;
            }
        }
    }
}
