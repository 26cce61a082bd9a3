//! Remembers the outcomes of requests by request ID for a minute, for idempotency: a repeat has the outcome of the
//! first request, and is not charged.
//!
//! Each ID belongs to a shard. The shard's lock is held from the lookup to the insertion, over the engine's check,
//! which never waits. So of two concurrent requests with one ID, the second waits for the first and has its outcome.
//!
//! Each caller has a share of each shard. Where its outcomes need more room than that, its own oldest are forgotten.

use std::{
    hash::Hash,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use derive_more::Display;
use siphasher::sip128::{Hasher128, SipHasher24};
use tidegate::{
    Decision, Engine, Request, SavedDecision,
    clock::Clock,
    time::{Nanos, SECOND_NS},
};

use super::{
    caller_shares::{CallerKey, CallerShare, CallerTable, NoRoom},
    reservations::ReservationOutcome,
};

/// The most outcomes that are remembered, some 350 bytes each.
const OUTCOMES_MAX: usize = 1_000_000;
/// The time for which an outcome is remembered.
const LIFE_NS: u64 = 60 * SECOND_NS;
const SHARDS: usize = 64;
/// The most expired outcomes that one call removes, so that no call does all the work after a pause.
const EXPIRED_REMOVED_MAX: usize = 4;
/// The most outcomes that a caller above its share loses for a new one, so that it comes down to its share.
const EVICTED_MAX: usize = 2;

/// The longest request ID, in bytes.
const ID_BYTES_MAX: usize = 128;

/// The ID that a calling service gave a request, so that the request can be sent again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestId<'a>(&'a str);

/// The error of a request ID that is empty or too long.
#[derive(Debug, Display)]
#[display("request_id: {bytes} bytes; from 1 to {ID_BYTES_MAX} fit")]
pub(crate) struct BadRequestId {
    bytes: usize,
}

impl<'a> RequestId<'a> {
    /// Takes any text of 1 to 128 bytes.
    pub(crate) fn new(text: &'a str) -> Result<Self, BadRequestId> {
        match text.len() {
            1..=ID_BYTES_MAX => Ok(Self(text)),
            bytes => Err(BadRequestId { bytes }),
        }
    }
}

/// The kind of a call. A repeat must have the kind of the first call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum CallKind {
    Check,
    Reserve,
}

/// The error of a request ID that came with another request before.
#[derive(Debug, Display)]
#[display(
    "request_id: came with another request in the last 60 s; give each request an id of its own, and a repeat what the first \
     one had"
)]
pub(crate) struct Reused;

pub(crate) type DecidedCheck<'e> = (Decision<'e>, ReservationOutcome);

/// Remembered outcomes by request ID.
#[derive(Debug)]
pub(crate) struct RequestIdCache {
    /// The key of the hashes, so that no caller can make two IDs, or two requests, collide.
    secret: [u8; 16],
    shards: Box<[Mutex<Shard>]>,
    repeats: AtomicU64,
    pub(crate) forgotten: Arc<ForgottenRequests>,
}

/// The counts of outcomes that were forgotten for others before their minute was over, so that a repeat would be
/// charged: by reason, in the order of [`NoRoom::ALL`].
#[derive(Debug, Default)]
pub(crate) struct ForgottenRequests([AtomicU64; NoRoom::ALL.len()]);

impl ForgottenRequests {
    /// The kind of error under which nodes report the sum.
    pub(crate) const ERROR_KIND: &'static str = "forgotten_request_id";

    pub(crate) fn count(&self, reason: NoRoom) {
        self.0[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn by_reason(&self) -> [(&'static str, u64); NoRoom::ALL.len()] {
        NoRoom::ALL.map(|reason| (reason.name(), self.0[reason as usize].load(Ordering::Relaxed)))
    }
}

/// Outcomes by hashed ID, oldest first.
type Shard = CallerTable<u128, CachedOutcome>;

/// The outcome of a request that was charged.
#[derive(Debug)]
struct CachedOutcome {
    at: Nanos,
    request: u128,
    decision: SavedDecision,
    reservation: ReservationOutcome,
}

impl RequestIdCache {
    pub(crate) fn new(secret: [u8; 16], share: CallerShare) -> Self {
        Self::with_capacity(secret, OUTCOMES_MAX, share)
    }

    fn with_capacity(secret: [u8; 16], outcomes_max: usize, share: CallerShare) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::new(CallerTable::new(outcomes_max / SHARDS, share))).collect();
        Self { secret, shards, repeats: AtomicU64::new(0), forgotten: Arc::default() }
    }

    /// Returns an empty cache of which each caller has this share.
    pub(crate) fn with_share(self, share: CallerShare) -> Self {
        Self::new(self.secret, share)
    }

    /// Decides a request by `decide`, unless it was allowed under this ID before: then it returns that outcome. A
    /// request that was denied or met no limit charged nothing and is not remembered, so its repeat is decided anew.
    /// Where `decide` panics nothing is remembered.
    pub(crate) fn decide_once<'e, C: Clock>(
        &self,
        engine: &'e Engine<C>,
        (id, call): (RequestId<'_>, CallKind),
        caller: CallerKey,
        request: &Request<'_>,
        decide: impl FnOnce() -> DecidedCheck<'e>,
    ) -> Result<DecidedCheck<'e>, Reused> {
        let id = self.hash((request.parts().domain, id.0));
        let content = self.hash_request(request, call);
        let mut shard = self.shard(id);
        let now = engine.clock().now().as_nanos();
        if let Some(known) = self.find_in(engine, &shard, (id, content), now)? {
            return Ok(known);
        }
        let (decision, reservation) = decide();
        // Where no limit decided, a limit in shadow mode may have been charged.
        let may_be_charged = || decision.limit_index().is_some() || engine.has_limit(request);
        if decision.is_allowed() && may_be_charged() {
            self.make_room(&mut shard, caller, now);
            let decision = decision.save();
            // It goes to the end, also where it replaces an expired one.
            shard.insert(id, caller, CachedOutcome { at: now, request: content, decision, reservation });
        }
        Ok((decision, reservation))
    }

    /// Returns the remembered outcome of a repeat, for requests that wait between this call and
    /// [`decide_once`](Self::decide_once).
    pub(crate) fn find<'e, C: Clock>(
        &self,
        engine: &'e Engine<C>,
        (id, call): (RequestId<'_>, CallKind),
        request: &Request<'_>,
    ) -> Result<Option<DecidedCheck<'e>>, Reused> {
        let id = self.hash((request.parts().domain, id.0));
        self.find_in(engine, &self.shard(id), (id, self.hash_request(request, call)), engine.clock().now().as_nanos())
    }

    fn find_in<'e, C: Clock>(
        &self,
        engine: &'e Engine<C>,
        shard: &Shard,
        (id, content): (u128, u128),
        now: Nanos,
    ) -> Result<Option<DecidedCheck<'e>>, Reused> {
        let Some(cached) = shard.get(&id).filter(|cached| !cached.is_expired(now)) else { return Ok(None) };
        if cached.request != content {
            return Err(Reused);
        }
        self.repeats.fetch_add(1, Ordering::Relaxed);
        Ok(Some((engine.restore(&cached.decision), cached.reservation)))
    }

    /// Removes expired outcomes. Where that leaves no room for another outcome of this caller, removes its oldest ones; where the
    /// caller has less than its share and no place is free, the oldest of all.
    fn make_room(&self, shard: &mut Shard, caller: CallerKey, now: Nanos) {
        for _ in 0..EXPIRED_REMOVED_MAX {
            if !shard.front().is_some_and(|oldest| oldest.is_expired(now)) {
                break;
            }
            shard.pop_front();
        }
        for _ in 0..EVICTED_MAX {
            let Err(reason) = shard.check_room(caller) else { break };
            let oldest = match reason {
                NoRoom::Caller => shard.pop_front_of(caller),
                NoRoom::Table => shard.pop_front(),
            };
            if oldest.is_some_and(|oldest| !oldest.is_expired(now)) {
                self.forgotten.count(reason);
            }
        }
    }

    /// Returns how many outcomes are held, with expired ones that no other has replaced yet.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    pub(crate) fn repeats(&self) -> u64 {
        self.repeats.load(Ordering::Relaxed)
    }

    fn shard(&self, id: u128) -> MutexGuard<'_, Shard> {
        lock(&self.shards[id as usize % SHARDS])
    }

    /// Hashes everything by which two requests differ.
    fn hash_request(&self, request: &Request<'_>, call: CallKind) -> u128 {
        let parts = request.parts();
        let rest = (parts.domain, parts.endpoint, parts.method, parts.cost, parts.tier);
        let mut hasher = SipHasher24::new_with_key(&self.secret);
        (call, rest, parts.identities.len()).hash(&mut hasher);
        for identity in parts.identities {
            (identity.kind(), identity.value()).hash(&mut hasher);
        }
        hasher.finish128().as_u128()
    }

    fn hash(&self, value: impl Hash) -> u128 {
        let mut hasher = SipHasher24::new_with_key(&self.secret);
        value.hash(&mut hasher);
        hasher.finish128().as_u128()
    }
}

impl CachedOutcome {
    fn is_expired(&self, now: Nanos) -> bool {
        now.saturating_sub(self.at) >= LIFE_NS
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    // A poisoned lock is sound: a decision that panics does so before the shard is changed.
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
