//! The doors of the engine: check and publish.

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use arrayvec::ArrayVec;

use crate::{
    algorithm::{Receipt, Verdict},
    bucket::{Next, Swap, update},
    clock::{Clock, SystemClock},
    decision::{DecidedBy, Decision},
    hash::KeyHasher,
    registry::{Ledger, Live, LiveLimit, Newer, PublishError, Registry},
    request::Request,
    snapshot::{Charge, PLAN_MAX, Snapshot},
    sync::{Cell64, Cell128, Counter},
    table::{Key, Met, Table},
    time::Nanos,
    word::{Held, KeyBits, Slot},
};

/// How many keys an engine has room for unless told otherwise.
pub const DEFAULT_MAX_KEYS: usize = 1_000_000;

/// The rate limiter. Checks never wait, lock or allocate; a publish swaps the whole policy between two checks.
///
/// ```
/// use tidegate::{Engine, Identity, Request, Snapshot, formats::Format};
///
/// let engine = Engine::new();
/// engine.publish(Snapshot::parse(r#"
///     [domains.default]
///     defaults = { user = "free" }
///     [[domains.default.tiers]]
///     id = "free"
///     limits = [{ id = "minute", algorithm = "token_bucket", limit = 2, period = "1m" }]
/// "#, Format::Toml)?)?;
///
/// let who = [Identity::new("user", "ada")?];
/// assert!(engine.check(&Request::new(&who)?).is_allowed());
/// assert!(engine.check(&Request::new(&who)?).is_allowed());
/// let third = engine.check(&Request::new(&who)?);
/// assert!(!third.is_allowed());
/// assert_eq!(third.limit_id(), Some("default/tier:free/minute"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Engine<C = SystemClock> {
    clock: C,
    hasher: KeyHasher,
    table: Table,
    registry: Registry,
    live: ArcSwap<Live>,
    /// Version of `live`, for handles to look at.
    version: Cell64,
    publisher: Mutex<Publisher>,
    overflow_charges: Counter,
}

#[derive(Debug, Default)]
struct Publisher {
    ledger: Ledger,
    /// Snapshots that a check or a handle may still hold. They are freed here, never by a check.
    retired: Vec<Arc<Live>>,
}

/// Index of a limit in its engine, the same over all publishes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LimitIndex(pub(crate) u32);

impl LimitIndex {
    /// As a place in a list: indices are given from 0 upwards.
    #[must_use]
    pub fn place(self) -> usize {
        self.0 as usize
    }
}

impl Engine {
    /// An engine with room for a million keys (24 MB), without a policy: it allows everything until one is published.
    #[must_use]
    pub fn new() -> Self {
        Self::with(DEFAULT_MAX_KEYS, SystemClock::new(), KeyHasher::random())
    }

    /// An engine with room for `max_keys` live keys, 24 bytes each.
    #[must_use]
    pub fn with_max_keys(max_keys: usize) -> Self {
        Self::with(max_keys, SystemClock::new(), KeyHasher::random())
    }
}

impl Default for Engine {
    fn default() -> Self {
        Self::new()
    }
}

impl<C: Clock> Engine<C> {
    /// An engine for simulation: another clock, and a fixed `seed` instead of random secrets, so that every run is the
    /// same. Not for traffic of strangers, who could learn which keys meet.
    #[must_use]
    pub fn for_simulation(max_keys: usize, clock: C, seed: u64) -> Self {
        Self::with(max_keys, clock, KeyHasher::new(seed))
    }

    fn with(max_keys: usize, clock: C, hasher: KeyHasher) -> Self {
        let nothing = Live { snapshot: Arc::default(), version: 0, limits: Box::default() };
        Self {
            clock,
            hasher,
            table: Table::new(max_keys),
            registry: Registry::new(),
            live: ArcSwap::from_pointee(nothing),
            version: Cell64::new(0),
            publisher: Mutex::default(),
            overflow_charges: Counter::default(),
        }
    }

    /// Makes `snapshot` the policy of every check that begins from now on, and answers its version, counted from 1.
    ///
    /// What was used stays used, limit by limit, by full name: 100 used of 100, raised to 1,000, leaves 900.
    pub fn publish(&self, snapshot: impl Into<Arc<Snapshot>>) -> Result<u64, PublishError> {
        // A publisher that panicked left a ledger that is behind at most, never wrong.
        let mut publisher = self.publisher.lock().unwrap_or_else(PoisonError::into_inner);
        let Publisher { ledger, retired } = &mut *publisher;
        let version = self.version.load() + 1;
        let sweep = |limit: u32, convert: &dyn Fn(Held) -> Held| {
            self.table.sweep(limit, convert);
            for cell in self.registry.overflows(limit) {
                // Empty ones too, so that no check which began before the sweep writes into one after it.
                update(cell, Swap::load(cell), &mut 0, |slot: Slot| {
                    Next::Write(overflow_slot(limit, convert(slot.held())), ())
                });
            }
        };
        let live = ledger.bind(snapshot.into(), version, self.clock.now(), &self.hasher, &self.registry, sweep)?;
        retired.push(self.live.swap(Arc::new(live)));
        self.version.store(version);
        retired.retain(|live| Arc::strong_count(live) > 1);
        Ok(version)
    }

    /// Version of the policy that decides now; 0 before the first publish.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version.load()
    }

    /// How often an overflow bucket was charged, because the table had no slot for a key: if this grows, the engine needs
    /// more `max_keys`.
    #[must_use]
    pub fn overflow_charges(&self) -> u64 {
        self.overflow_charges.count()
    }

    /// Full name of a limit.
    #[must_use]
    pub fn limit_name(&self, limit: LimitIndex) -> &str {
        self.registry.name(limit.0)
    }

    /// Decides a request, and charges it when it is allowed. All its limits are charged, or none.
    pub fn check(&self, request: &Request<'_>) -> Decision<'_> {
        self.check_observing(request, |_| ())
    }

    /// As [`check`](Self::check); tells `met` of each limit that was looked at, in order, the deciding one included.
    pub fn check_observing(&self, request: &Request<'_>, mut met: impl FnMut(LimitIndex)) -> Decision<'_> {
        loop {
            let live = self.live.load();
            let now = self.clock.now();
            let plan = live.snapshot.plan(request, now, &self.hasher);
            // A bucket of a newer snapshot: that one is in place by now.
            let Ok(decision) = self.decide(&live, &plan, now) else { continue };
            let looked_at =
                if decision.is_allowed() { plan.len() } else { decision.place().map_or(0, |place| place + 1) };
            for charge in &plan[..looked_at] {
                met(LimitIndex(live.limits[charge.limit as usize].index));
            }
            return decision;
        }
    }

    pub(crate) fn live(&self) -> Arc<Live> {
        self.live.load_full()
    }

    pub(crate) fn clock(&self) -> &C {
        &self.clock
    }

    pub(crate) fn hasher(&self) -> &KeyHasher {
        &self.hasher
    }

    /// Decides a plan.
    pub(crate) fn decide(&self, live: &Live, plan: &[Charge], now: Nanos) -> Result<Decision<'_>, Newer> {
        match plan {
            [] => Ok(Decision {
                policy_version: live.version,
                verdict: Verdict::Admit(0),
                decided_by: None,
                registry: &self.registry,
            }),
            [one] => self.decide_one(live, one, now),
            several => self.decide_several(live, several, now),
        }
    }

    /// Decides a plan of one limit.
    #[inline(always)]
    pub(crate) fn decide_one(&self, live: &Live, charge: &Charge, now: Nanos) -> Result<Decision<'_>, Newer> {
        let account = self.account(live, charge);
        Ok(account.decision(self, 0, account.charge(self, now)?))
    }

    /// All or nothing: looks before it charges, so that the common denial writes nothing, and gives back what it took when
    /// a later limit refuses in a race.
    fn decide_several(&self, live: &Live, plan: &[Charge], now: Nanos) -> Result<Decision<'_>, Newer> {
        for (place, charge) in plan.iter().enumerate() {
            let account = self.account(live, charge);
            let looked = account.look(self, now)?;
            if !looked.is_admitted() {
                return Ok(account.decision(self, place, looked));
            }
        }
        let mut taken: ArrayVec<Taken<'_>, PLAN_MAX> = ArrayVec::new();
        for (place, charge) in plan.iter().enumerate() {
            let account = self.account(live, charge);
            match account.charge(self, now) {
                Ok(charged) if charged.is_admitted() => taken.push(Taken { account, charged }),
                refused => {
                    for taken in &taken {
                        taken.give_back(self);
                    }
                    return Ok(account.decision(self, place, refused?));
                }
            }
        }
        let least = (0..taken.len()).min_by_key(|&place| taken[place].remaining()).unwrap_or(0);
        let Taken { account, charged } = taken[least];
        Ok(account.decision(self, least, charged))
    }

    #[inline(always)]
    fn account<'l>(&self, live: &'l Live, charge: &Charge) -> Account<'l> {
        let limit = &live.limits[charge.limit as usize];
        let key = Key::new(limit.index, self.hasher.key(limit.hash, charge.identity));
        Account { limit, version: live.version, key, cost: charge.cost }
    }
}

fn overflow_slot(limit: u32, held: Held) -> Slot {
    Slot::active(KeyBits::new(limit, 0), held)
}

/// One limit of a check, with the key that it counts.
#[derive(Clone, Copy)]
struct Account<'l> {
    limit: &'l LiveLimit,
    /// Of the snapshot that `limit` belongs to.
    version: u64,
    key: Key,
    cost: u64,
}

/// A verdict, the word that it left or found, and the time at which it was decided.
#[derive(Clone, Copy)]
struct Charged {
    verdict: Verdict,
    word: u64,
    now: Nanos,
    site: Site,
}

/// Where a bucket was found.
#[derive(Clone, Copy)]
enum Site {
    Slot,
    Overflow,
}

impl Charged {
    fn is_admitted(&self) -> bool {
        matches!(self.verdict, Verdict::Admit(_))
    }

    fn receipt(&self, cost: u64) -> Receipt {
        Receipt { cost, charged_at: self.now, word: self.word }
    }
}

impl Account<'_> {
    #[inline(always)]
    fn decision<'e, C: Clock>(&self, engine: &'e Engine<C>, place: usize, charged: Charged) -> Decision<'e> {
        let Charged { verdict, word, now, .. } = charged;
        let decided_by = DecidedBy { place, limit: self.limit.index, meter: self.limit.meter, word, now };
        Decision { policy_version: self.version, verdict, decided_by: Some(decided_by), registry: &engine.registry }
    }

    #[inline(always)]
    fn step(&self, word: u64, now: Nanos, site: Site) -> Charged {
        let verdict = self.limit.meter.map_or(Verdict::Never, |meter| meter.step(word, now, self.cost));
        let word = if let Verdict::Admit(word) = verdict { word } else { word };
        Charged { verdict, word, now, site }
    }

    /// What the charge would answer. Writes nothing.
    fn look<C: Clock>(&self, engine: &Engine<C>, now: Nanos) -> Result<Charged, Newer> {
        let word = self.word(engine, engine.table.get(self.key))?;
        Ok(self.step(word, now, Site::Slot))
    }

    /// The word of the key's slot; without one, that of its overflow bucket, from which a slot would start.
    #[inline(always)]
    fn word<C: Clock>(&self, engine: &Engine<C>, held: Option<Held>) -> Result<u64, Newer> {
        let held = held.unwrap_or_else(|| Swap::load(self.overflow(engine)).held());
        self.current(engine, held)
    }

    /// What was read, under the numbers of the snapshot, if that is still the newest.
    #[inline(always)]
    fn current<C: Clock>(&self, engine: &Engine<C>, held: Held) -> Result<u64, Newer> {
        if self.is_stale(engine) { Err(Newer) } else { self.limit.current(held) }
    }

    #[inline(always)]
    fn is_stale<C: Clock>(&self, engine: &Engine<C>) -> bool {
        // A snapshot is in place before its version is: a newer one than the version says is the newest.
        engine.version() > self.version
    }

    fn overflow<'e, C: Clock>(&self, engine: &'e Engine<C>) -> &'e Cell128 {
        engine.registry.overflow(self.limit.index, self.key)
    }

    #[inline(always)]
    fn charge<C: Clock>(&self, engine: &Engine<C>, now: Nanos) -> Result<Charged, Newer> {
        if self.limit.meter.is_none() {
            return Ok(self.step(0, now, Site::Slot));
        }
        loop {
            let read_clock = || engine.clock.now();
            let outcome = engine.table.update(self.key, now, read_clock, &mut Met::default(), |held, now| {
                match self.word(engine, held) {
                    Ok(word) => self.next(self.step(word, now, Site::Slot)),
                    Err(newer) => Next::Leave(Err(newer)),
                }
            });
            if let Ok(charged) = outcome {
                return charged;
            }
            let charged = self.charge_overflow(engine, now)?;
            // Somebody may have found a slot for the key meanwhile: then that is where it counts.
            if !charged.is_admitted() || engine.table.get(self.key).is_none() {
                return Ok(charged);
            }
            Taken { account: *self, charged }.give_back(engine);
        }
    }

    #[cold]
    fn charge_overflow<C: Clock>(&self, engine: &Engine<C>, now: Nanos) -> Result<Charged, Newer> {
        engine.overflow_charges.next();
        let cell = self.overflow(engine);
        update(cell, Swap::load(cell), &mut 0, |slot| match self.current(engine, slot.held()) {
            Ok(word) => match self.next(self.step(word, now, Site::Overflow)) {
                Next::Write(held, charged) => Next::Write(overflow_slot(self.limit.index, held), charged),
                Next::Leave(charged) => Next::Leave(charged),
            },
            Err(newer) => Next::Leave(Err(newer)),
        })
    }

    #[inline(always)]
    fn next(&self, charged: Charged) -> Next<Held, Result<Charged, Newer>> {
        match charged.verdict {
            Verdict::Admit(word) => Next::Write(Held { generation: self.limit.generation, word }, Ok(charged)),
            _ => Next::Leave(Ok(charged)),
        }
    }
}

/// A charge that stands, unless a later limit refuses.
#[derive(Clone, Copy)]
struct Taken<'l> {
    account: Account<'l>,
    charged: Charged,
}

impl Taken<'_> {
    fn remaining(&self) -> u64 {
        self.account.limit.meter.map_or(0, |meter| meter.remaining(self.charged.word, self.charged.now))
    }

    /// To the bucket as it is now, if the same numbers rule it; otherwise the charge stands, against the client.
    #[cold]
    fn give_back<C: Clock>(&self, engine: &Engine<C>) {
        let limit = self.account.limit;
        let receipt = self.charged.receipt(self.account.cost);
        let given_back = |held: Held| {
            let is_same = held.generation == limit.generation && !self.account.is_stale(engine);
            let meter = limit.meter.filter(|_| is_same)?;
            // The clock after the word: what time has returned up to now must not be returned again.
            let word = meter.give_back(held.word, engine.clock.now(), &receipt)?;
            Some(Held { word, ..held })
        };
        match self.charged.site {
            Site::Slot => {
                let now = receipt.charged_at;
                // A full table cannot be met: without a slot nothing is written.
                let _ = engine.table.update(
                    self.account.key,
                    now,
                    || now,
                    &mut Met::default(),
                    |held, _| held.and_then(given_back).map_or(Next::Leave(()), |held| Next::Write(held, ())),
                );
            }
            Site::Overflow => {
                let cell = self.account.overflow(engine);
                update(cell, Swap::load(cell), &mut 0, |slot: Slot| match given_back(slot.held()) {
                    Some(held) => Next::Write(overflow_slot(limit.index, held), ()),
                    None => Next::Leave(()),
                });
            }
        }
    }
}
