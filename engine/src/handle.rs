//! Handles: a limit looked up once and checked many times.

use std::sync::Arc;

use crate::{
    account::{Account, Buckets, Charged},
    algorithm::{Meter, NUMBER_MAX, Verdict},
    clock::{Clock, SystemClock},
    decision::{DecidedBy, Decision, Outcome},
    engine::Engine,
    hash::{IdentityHash, KeyHasher, kind_hash},
    key::Key,
    observer::Asked,
    one_token::OneTokenLimit,
    plain::{Missed, PlainLimit},
    registry::{Live, LiveLimit, Newer},
    request::RequestError,
    sliding_log::Stepped,
    snapshot::Charge,
    table::KeyLines,
    tally::OwnCounts,
    time::Nanos,
};

/// One limit, looked up once, for callers who know which limit they want: the shortest way to its buckets.
///
/// It counts the identities of one kind, in the same buckets as the requests that the policy sends to the limit, and it
/// stays right across publishes. Clone one per thread.
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
/// let mut minute = engine.handle("default/tier:free/minute", "user").ok_or("no such limit")?;
/// assert!(minute.check("ada", 1)?.is_allowed());
/// let ada = [Identity::new("user", "ada")?];
/// assert!(engine.check(&Request::new(&ada)?).is_allowed());
/// assert!(!minute.check("ada", 1)?.is_allowed()); // the same bucket
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Handle<'e, C = SystemClock> {
    pub(crate) engine: &'e Engine<C>,
    limit_id: Box<str>,
    /// The hash of its full name.
    limit_hash: u64,
    kind: Box<str>,
    kind_hash: u64,
    pub(crate) live: Arc<Live>,
    /// The version of `live`.
    version: u64,
    /// Place of the limit in `live`; `None` while the policy does not have it.
    pub(crate) place: Option<u32>,
    /// For checks that cost one token of a token bucket, where the limit has a [`ShortWay`] too.
    one_token: Option<OneTokenLimit>,
    short_way: Option<ShortWay>,
    counts: OwnCounts<'e>,
}

/// The short way to a limit that is enforced and kept on this node alone, for checks of any cost.
#[derive(Clone, Copy, Debug)]
struct ShortWay {
    plain: PlainLimit,
    meter: Meter,
    /// The index of the limit's name.
    index: u32,
}

impl ShortWay {
    /// Returns `None` for a shadow, for a limit that is kept in a store, for a log, and for one that admits nothing.
    fn new(limit: &LiveLimit) -> Option<Self> {
        let &LiveLimit { plain, meter, index, is_enforced_here, .. } = limit;
        is_enforced_here.then_some(Self { plain: plain?, meter: meter?, index })
    }

    /// Returns the decision of a charge of so much, under the policy of this version.
    #[inline(always)]
    fn decision<'e, C: Clock>(
        &self,
        buckets: &'e Buckets<C>,
        version: u64,
        cost: u64,
        stepped: Stepped,
    ) -> Decision<'e> {
        let Stepped { verdict, word, now } = stepped;
        let outcome = Outcome { meter: Some(self.meter), cost, verdict, word, now };
        let outcome = outcome.at_resolution(buckets.clock.resolution_ns());
        let decided_by = DecidedBy { place: 0, limit: self.index, is_stored: false, outcome };
        Decision::of_one(&buckets.registry, version, decided_by, outcome.delay_ns())
    }
}

impl<C: Clock> Engine<C> {
    /// A handle on the limit with this full name, such as `default/tier:free/minute`, for identities of `kind`.
    ///
    /// `None` when the policy has no such limit now, or when it is of a rule that counts something else than this one kind:
    /// everyone together, or a combination. A rule's `cost` is for its requests; here the cost is what the check says.
    pub fn handle(&self, limit_id: &str, kind: &str) -> Option<Handle<'_, C>> {
        let live = self.live();
        let place = place_in(&live, limit_id, kind)?;
        let limit = &live.limits[place as usize];
        let limit_hash = limit.hash;
        let (one_token, short_way) = self.short_ways(limit);
        let counts = self.tally().own(limit.tally_alone());
        Some(Handle {
            engine: self,
            limit_id: limit_id.into(),
            limit_hash,
            kind: kind.into(),
            kind_hash: kind_hash(kind),
            version: live.version,
            live,
            place: Some(place),
            one_token,
            short_way,
            counts,
        })
    }

    fn short_ways(&self, limit: &LiveLimit) -> (Option<OneTokenLimit>, Option<ShortWay>) {
        let short_way = ShortWay::new(limit);
        let one_token = short_way.and_then(|_| OneTokenLimit::new(limit, &self.buckets().leases));
        (one_token, short_way)
    }
}

fn place_in(live: &Live, limit_id: &str, kind: &str) -> Option<u32> {
    let place = live.snapshot.limit_names().position(|name| name == limit_id)?;
    live.snapshot.counts(place, kind).then_some(place as u32)
}

impl<'e, C: Clock> Handle<'e, C> {
    /// Charges `cost` to the bucket of `key`, or changes nothing and says why not.
    ///
    /// Requests carry text, so a text counts in the bucket of the requests whose identity has that value. Every other key
    /// has a bucket of its own: 7 is not the user `"7"`, and an `IpAddr` is not the address written out. A limit should be
    /// asked with one type of key everywhere.
    ///
    /// Allowed without a limit while the policy does not have this one.
    #[inline(always)]
    pub fn check(&mut self, key: impl Key, cost: u64) -> Result<Decision<'e>, RequestError> {
        let identity = self.identity(&key);
        let buckets = self.engine.buckets();
        match self.charge_one_token(|| self.lines_of(identity), cost, || buckets.clock.now()) {
            Ok((stepped, limit)) => Ok(self.decided_one(limit, stepped)),
            Err(missed) => self.check_anyhow(identity, key.text(), cost, missed),
        }
    }

    /// Charges a cost of one to the key of these lines on the short way. The caller counts it.
    #[inline(always)]
    pub(crate) fn charge_one_token(
        &self,
        lines: impl FnOnce() -> KeyLines<'e>,
        cost: u64,
        read_clock: impl FnOnce() -> Nanos,
    ) -> Result<(Stepped, &OneTokenLimit), Missed> {
        let limit = self.one_token.as_ref().filter(|_| cost == 1).ok_or(Missed::Untried)?;
        let stepped = limit.charge(&self.engine.buckets().leases, lines(), read_clock, || self.is_newest())?;
        Ok((stepped, limit))
    }

    /// Counts a charge of one token, and returns its decision.
    #[inline(always)]
    pub(crate) fn decided_one(&self, limit: &OneTokenLimit, stepped: Stepped) -> Decision<'e> {
        self.counts.decided(matches!(stepped.verdict, Verdict::Admit(_)));
        limit.decision(self.engine.buckets(), self.version, stepped)
    }

    /// Returns whether the handle is of the newest policy, and no observer is to be shown its decisions.
    #[inline(always)]
    fn is_newest(&self) -> bool {
        self.engine.watch().is_newest_unwatched(self.version)
    }

    /// Decides any check, after the short way of one token was missed. Apart, so that that has the registers to itself.
    #[inline(never)]
    fn check_anyhow(
        &mut self,
        identity: IdentityHash,
        value: &[u8],
        cost: u64,
        missed: Missed,
    ) -> Result<Decision<'e>, RequestError> {
        if cost == 0 || cost > NUMBER_MAX {
            return Err(RequestError::Cost(cost));
        }
        let clock = &self.engine.buckets().clock;
        Ok(match self.charge_plain(|| self.lines_of(identity), cost, || clock.now(), missed) {
            Ok((stepped, way)) => self.decided(way, cost, stepped),
            Err(missed) => self.decide(identity, value, cost, || clock.now(), missed),
        })
    }

    /// Decides any check at this time, after the short way of one token was missed.
    #[inline(never)]
    pub(crate) fn decide_at(
        &mut self,
        lines: KeyLines<'e>,
        value: &[u8],
        cost: u64,
        now: Nanos,
        missed: Missed,
    ) -> Decision<'e> {
        match self.charge_plain(|| lines, cost, || now, missed) {
            Ok((stepped, way)) => self.decided(way, cost, stepped),
            Err(missed) => {
                self.decide(KeyHasher::identity_of(self.limit_hash, lines.hash), value, cost, || now, missed)
            }
        }
    }

    /// Charges any cost on the short way, unless that was missed.
    #[inline(always)]
    fn charge_plain(
        &self,
        lines: impl FnOnce() -> KeyLines<'e>,
        cost: u64,
        read_clock: impl FnOnce() -> Nanos,
        missed: Missed,
    ) -> Result<(Stepped, &ShortWay), Missed> {
        let Missed::Untried = missed else { return Err(missed) };
        let way = self.short_way.as_ref().ok_or(Missed::Untried)?;
        let step = |word, now| way.meter.step(word, now, cost);
        let (stepped, seen) = way.plain.look(lines(), read_clock, || self.is_newest(), step)?;
        Ok((way.plain.charge(stepped, seen)?, way))
    }

    /// Counts a charge, and returns its decision.
    #[inline(always)]
    fn decided(&self, way: &ShortWay, cost: u64, stepped: Stepped) -> Decision<'e> {
        self.counts.decided(matches!(stepped.verdict, Verdict::Admit(_)));
        way.decision(self.engine.buckets(), self.version, cost, stepped)
    }

    #[inline(never)]
    fn decide(
        &mut self,
        identity: IdentityHash,
        value: &[u8],
        cost: u64,
        read_clock: impl Fn() -> Nanos,
        missed: Missed,
    ) -> Decision<'e> {
        // Each decision is made where it is wanted: it is large, and copying it would take longer than the check.
        match self.charge(identity, value, cost, &read_clock, missed) {
            Some(charged) => self.decision(identity, cost, charged),
            None => self.decide_any(identity, value, cost, read_clock),
        }
    }

    /// Returns the lines where the bucket of an identity may be, whatever policy there is.
    #[inline(always)]
    pub(crate) fn lines_of(&self, identity: IdentityHash) -> KeyLines<'e> {
        self.engine.buckets().table.key_lines(KeyHasher::key(self.limit_hash, identity))
    }

    #[inline(always)]
    pub(crate) fn identity(&self, key: &impl Key) -> IdentityHash {
        KeyHasher::identity(self.kind_hash, key.key_hash(&self.engine.buckets().hasher))
    }

    /// Charges the limit alone, after the short way was `missed`. `value` is what an observer is shown. `None`
    /// where the limit is a shadow, or kept in a store, or not there: then nothing is done, and [`decide_any`](Self::decide_any)
    /// decides.
    #[inline(always)]
    pub(crate) fn charge(
        &mut self,
        identity: IdentityHash,
        value: &[u8],
        cost: u64,
        read_clock: impl Fn() -> Nanos,
        mut missed: Missed,
    ) -> Option<Charged> {
        loop {
            if self.engine.order().0 != self.version {
                self.look_up_again();
                missed = Missed::Untried;
            }
            let place = self.place?;
            let limit = &self.live.limits[place as usize];
            if !limit.is_enforced_here {
                return None;
            }
            let account = Account::enforced_here(limit, self.version, identity, cost);
            let charge = Charge { limit: place, identity, cost, counted: 0 };
            let asked = Asked::Handle { kind: &self.kind, value };
            if let Ok(charged) = self.engine.charge_one(&account, asked, charge, &read_clock, missed) {
                self.counts.decided(charged.is_admitted());
                return Some(charged);
            }
            // A newer snapshot is in place by now or in a moment, if perhaps not its version yet.
            self.look_up_again();
            missed = Missed::Untried;
        }
    }

    /// Returns what a [`charge`](Self::charge) came to, under the numbers that it found.
    #[inline(always)]
    pub(crate) fn decision(&self, identity: IdentityHash, cost: u64, charged: Charged) -> Decision<'e> {
        let limit = &self.live.limits[self.place.unwrap_or_default() as usize];
        Account::enforced_here(limit, self.version, identity, cost).decision(self.engine.buckets(), 0, charged)
    }

    /// Decides any check: see [`charge`](Self::charge).
    #[cold]
    pub(crate) fn decide_any(
        &mut self,
        identity: IdentityHash,
        value: &[u8],
        cost: u64,
        read_clock: impl Fn() -> Nanos,
    ) -> Decision<'e> {
        loop {
            let charge = self.place.map(|limit| Charge { limit, identity, cost, counted: 0 });
            let asked = Asked::Handle { kind: &self.kind, value };
            let now = read_clock();
            match self.engine.decide_any(&self.live, asked, charge.as_slice(), now) {
                Ok(decision) => return decision,
                Err(Newer) => self.look_up_again(),
            }
        }
    }

    #[cold]
    fn look_up_again(&mut self) {
        self.live = self.engine.live();
        self.version = self.live.version;
        self.place = place_in(&self.live, &self.limit_id, &self.kind);
        let Some(place) = self.place else {
            (self.one_token, self.short_way) = (None, None);
            return;
        };
        let limit = &self.live.limits[place as usize];
        (self.one_token, self.short_way) = self.engine.short_ways(limit);
        // Its name is a new one to the engine, which had forgotten it.
        if !self.counts.are_of(limit.tally_alone()) {
            self.counts = self.engine.tally().own(limit.tally_alone());
        }
    }
}

impl<C> Clone for Handle<'_, C> {
    fn clone(&self) -> Self {
        Self {
            limit_id: self.limit_id.clone(),
            kind: self.kind.clone(),
            live: Arc::clone(&self.live),
            counts: self.counts.another(),
            ..*self
        }
    }
}
