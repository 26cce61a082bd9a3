//! Handles: a limit looked up once and checked many times.

use std::sync::Arc;

use crate::{
    account::{Account, Charged},
    algorithm::{NUMBER_MAX, Verdict},
    clock::{Clock, SystemClock},
    decision::Decision,
    engine::Engine,
    hash::{IdentityHash, KeyHasher, kind_hash},
    key::Key,
    observer::Asked,
    one_token::OneTokenLimit,
    plain::Missed,
    registry::{Live, LiveLimit, Newer},
    request::RequestError,
    sliding_log::Stepped,
    snapshot::Charge,
    table::KeyLines,
    tally::Spot,
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
    /// Place of the limit in `live`; `None` while the policy does not have it.
    pub(crate) place: Option<u32>,
    /// For checks that cost one token, where the limit has a short way for them, is enforced and kept on this node alone.
    one_token: Option<OneTokenLimit>,
    /// Of the thread that asked last.
    spot: Spot<'e>,
}

impl<C: Clock> Engine<C> {
    /// A handle on the limit with this full name, such as `default/tier:free/minute`, for identities of `kind`.
    ///
    /// `None` when the policy has no such limit now, or when it is of a rule that counts something else than this one kind:
    /// everyone together, or a combination. A rule's `cost` is for its requests; here the cost is what the check says.
    pub fn handle(&self, limit_id: &str, kind: &str) -> Option<Handle<'_, C>> {
        let live = self.live();
        let place = place_in(&live, limit_id, kind)?;
        let kind_hash = kind_hash(kind);
        let limit = &live.limits[place as usize];
        let (spot, one_token) = (self.tally().spot(limit.tally_alone()), self.one_token_of(limit));
        let limit_hash = limit.hash;
        let (limit_id, kind, place) = (limit_id.into(), kind.into(), Some(place));
        Some(Handle { engine: self, limit_id, limit_hash, kind, kind_hash, live, place, one_token, spot })
    }

    /// What checks that cost one token need of a limit that is enforced, and kept on this node alone.
    fn one_token_of(&self, limit: &LiveLimit) -> Option<OneTokenLimit> {
        OneTokenLimit::new(limit, &self.buckets().leases).filter(|_| limit.is_enforced_here)
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
            Ok((stepped, limit)) => Ok(limit.decision(buckets, self.live.version, stepped)),
            Err(missed) => self.check_anyhow(identity, key.text(), cost, missed),
        }
    }

    /// Charges a cost of one to the key of these lines on the short way, and counts it.
    #[inline(always)]
    pub(crate) fn charge_one_token(
        &self,
        lines: impl FnOnce() -> KeyLines<'e>,
        cost: u64,
        read_clock: impl FnOnce() -> Nanos,
    ) -> Result<(Stepped, &OneTokenLimit), Missed> {
        let buckets = self.engine.buckets();
        let limit = self.one_token.as_ref().filter(|_| cost == 1).ok_or(Missed::Untried)?;
        if !self.spot.is_here() || self.engine.watch().is_watched() {
            return Err(Missed::Untried);
        }
        let is_newest = || buckets.version.load() <= self.live.version;
        let stepped = limit.charge(&buckets.leases, lines(), read_clock, is_newest)?;
        self.spot.decided(matches!(stepped.verdict, Verdict::Admit(_)));
        Ok((stepped, limit))
    }

    /// Decides any check, after the short way was missed. Apart, so that the short way has the registers to itself.
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
        Ok(self.decide(identity, value, cost, || clock.now(), missed))
    }

    /// Decides any check at this time, after the short way was missed.
    #[inline(never)]
    pub(crate) fn decide_at(
        &mut self,
        identity: IdentityHash,
        value: &[u8],
        cost: u64,
        now: Nanos,
        missed: Missed,
    ) -> Decision<'e> {
        self.decide(identity, value, cost, || now, missed)
    }

    #[inline(always)]
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

    /// Returns the identity whose lines these are.
    pub(crate) fn identity_of(&self, lines: KeyLines<'_>) -> IdentityHash {
        KeyHasher::identity_of(self.limit_hash, lines.hash)
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
            if self.engine.order().0 != self.live.version {
                self.look_up_again();
                missed = Missed::Untried;
            }
            let place = self.place?;
            let limit = &self.live.limits[place as usize];
            if !limit.is_enforced_here {
                return None;
            }
            let account = Account::enforced_here(limit, self.live.version, identity, cost);
            let charge = Charge { limit: place, identity, cost, counted: 0 };
            let asked = Asked::Handle { kind: &self.kind, value };
            if let Ok(charged) = self.engine.charge_one(&account, asked, charge, &read_clock, missed) {
                if !self.spot.is_here() {
                    self.spot = self.engine.tally().spot(limit.tally_alone());
                }
                self.spot.decided(charged.is_admitted());
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
        Account::enforced_here(limit, self.live.version, identity, cost).decision(self.engine.buckets(), 0, charged)
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
        self.place = place_in(&self.live, &self.limit_id, &self.kind);
        let limit = self.place.map(|place| &self.live.limits[place as usize]);
        self.one_token = limit.and_then(|limit| self.engine.one_token_of(limit));
        self.spot = self.engine.tally().spot(limit.and_then(LiveLimit::tally_alone));
    }
}

impl<C> Clone for Handle<'_, C> {
    fn clone(&self) -> Self {
        Self {
            engine: self.engine,
            limit_id: self.limit_id.clone(),
            kind: self.kind.clone(),
            live: Arc::clone(&self.live),
            ..*self
        }
    }
}
