//! The doors of the engine: check and publish.

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use arrayvec::ArrayVec;

use crate::{
    algorithm::{Receipt, Verdict},
    bucket::{Next, Swap, update},
    clock::{Clock, SystemClock},
    decision::{DecidedBy, Decision, Retry},
    hash::KeyHasher,
    registry::{Ledger, Live, LiveLimit, Newer, PublishError, Registry},
    request::Request,
    snapshot::{Charge, PLAN_MAX, Snapshot},
    sync::{Cell64, Cell128},
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

    /// All or nothing over the limits of `plan`: looks before it charges, so that the common denial writes nothing, and
    /// gives back what it took when a later limit refuses in a race.
    #[inline]
    pub(crate) fn decide(&self, live: &Live, plan: &[Charge], now: Nanos) -> Result<Decision<'_>, Newer> {
        let decision =
            |decided_by, retry| Decision { policy_version: live.version, decided_by, retry, registry: &self.registry };
        if plan.len() > 1 {
            for (place, charge) in plan.iter().enumerate() {
                let account = self.account(live, charge);
                let looked = account.look(self, now)?;
                if let Some(retry) = refusal(looked.verdict) {
                    return Ok(decision(Some(account.decided_by(place, looked.word, now)), retry));
                }
            }
        }
        let mut taken: ArrayVec<Taken<'_>, PLAN_MAX> = ArrayVec::new();
        for (place, charge) in plan.iter().enumerate() {
            let account = self.account(live, charge);
            let charged = account.charge(self, now);
            let refused = match &charged {
                Ok(charged) => refusal(charged.verdict),
                Err(Newer) => None,
            };
            if refused.is_some() || charged.is_err() {
                for taken in &taken {
                    taken.give_back(self);
                }
            }
            let charged = charged?;
            if let Some(retry) = refused {
                return Ok(decision(Some(account.decided_by(place, charged.word, charged.now)), retry));
            }
            let receipt = Receipt { cost: charge.cost, charged_at: charged.now, word: charged.word };
            taken.push(Taken { account, receipt, site: charged.site });
        }
        let least = match &*taken {
            [] => return Ok(decision(None, Retry::Now)),
            [_] => 0,
            several => (0..several.len()).min_by_key(|&place| several[place].remaining()).unwrap_or(0),
        };
        let Taken { account, receipt, .. } = &taken[least];
        Ok(decision(Some(account.decided_by(least, receipt.word, receipt.charged_at)), Retry::Now))
    }

    fn account<'l>(&self, live: &'l Live, charge: &Charge) -> Account<'l> {
        let limit = &live.limits[charge.limit as usize];
        let key = Key::new(limit.index, self.hasher.key(limit.hash, charge.identity));
        Account { limit, version: live.version, key, cost: charge.cost }
    }
}

fn overflow_slot(limit: u32, held: Held) -> Slot {
    Slot::active(KeyBits::new(limit, 0), held)
}

fn refusal(verdict: Verdict) -> Option<Retry> {
    match verdict {
        Verdict::Admit(_) => None,
        Verdict::Later { wait_ns } => Some(Retry::After(std::time::Duration::from_nanos(wait_ns))),
        Verdict::Never => Some(Retry::Never),
    }
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

impl Account<'_> {
    fn decided_by(&self, place: usize, word: u64, now: Nanos) -> DecidedBy {
        DecidedBy { place, limit: self.limit.index, meter: self.limit.meter, word, now }
    }

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
    #[inline]
    fn word<C: Clock>(&self, engine: &Engine<C>, held: Option<Held>) -> Result<u64, Newer> {
        let held = held.unwrap_or_else(|| Swap::load(self.overflow(engine)).held());
        self.current(engine, held)
    }

    /// What was read, under the numbers of the snapshot, if that is still the newest.
    #[inline]
    fn current<C: Clock>(&self, engine: &Engine<C>, held: Held) -> Result<u64, Newer> {
        if self.is_stale(engine) { Err(Newer) } else { self.limit.current(held) }
    }

    fn is_stale<C: Clock>(&self, engine: &Engine<C>) -> bool {
        // A snapshot is in place before its version is: a newer one than the version says is the newest.
        engine.version() > self.version
    }

    fn overflow<'e, C: Clock>(&self, engine: &'e Engine<C>) -> &'e Cell128 {
        engine.registry.overflow(self.limit.index, self.key)
    }

    #[inline]
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
            let admitted = matches!(charged.verdict, Verdict::Admit(_));
            // Somebody may have found a slot for the key meanwhile: then that is where it counts.
            if !admitted || engine.table.get(self.key).is_none() {
                return Ok(charged);
            }
            let receipt = Receipt { cost: self.cost, charged_at: charged.now, word: charged.word };
            Taken { account: *self, receipt, site: Site::Overflow }.give_back(engine);
        }
    }

    #[cold]
    fn charge_overflow<C: Clock>(&self, engine: &Engine<C>, now: Nanos) -> Result<Charged, Newer> {
        let cell = self.overflow(engine);
        update(cell, Swap::load(cell), &mut 0, |slot| match self.current(engine, slot.held()) {
            Ok(word) => match self.next(self.step(word, now, Site::Overflow)) {
                Next::Write(held, charged) => Next::Write(overflow_slot(self.limit.index, held), charged),
                Next::Leave(charged) => Next::Leave(charged),
            },
            Err(newer) => Next::Leave(Err(newer)),
        })
    }

    fn next(&self, charged: Charged) -> Next<Held, Result<Charged, Newer>> {
        match charged.verdict {
            Verdict::Admit(word) => Next::Write(Held { generation: self.limit.generation, word }, Ok(charged)),
            _ => Next::Leave(Ok(charged)),
        }
    }
}

/// A charge that stands, unless a later limit refuses.
struct Taken<'l> {
    account: Account<'l>,
    receipt: Receipt,
    site: Site,
}

impl Taken<'_> {
    fn remaining(&self) -> u64 {
        let meter = self.account.limit.meter;
        meter.map_or(0, |meter| meter.remaining(self.receipt.word, self.receipt.charged_at))
    }

    /// To the bucket as it is now, if the same numbers rule it; otherwise the charge stands, against the client.
    #[cold]
    fn give_back<C: Clock>(&self, engine: &Engine<C>) {
        let limit = self.account.limit;
        let given_back = |held: Held| {
            let is_same = held.generation == limit.generation && !self.account.is_stale(engine);
            let meter = limit.meter.filter(|_| is_same)?;
            // The clock after the word: what time has returned up to now must not be returned again.
            let word = meter.give_back(held.word, engine.clock.now(), &self.receipt)?;
            Some(Held { word, ..held })
        };
        match self.site {
            Site::Slot => {
                let now = self.receipt.charged_at;
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
