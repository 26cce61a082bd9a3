//! What was answered under a request id in the last minute, so that a repeat is free: it is told what the first was told.
//!
//! Each id belongs to a shard, whose lock is held from the look to the answer, over the engine's check, which never waits. So
//! of two requests with one id that come together the second waits for the first, and is told its answer.
//!
//! Each caller has a share of each shard. Where its answers need more room than that, its own oldest go.

use std::{
    hash::Hash,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use siphasher::sip128::{Hasher128, SipHasher24};
use tidegate::{
    Decision, Engine, Remembered, Request,
    clock::Clock,
    time::{Nanos, SECOND_NS},
};

use crate::shared::{
    caller_shares::{CallerKey, CallerShare, CallerTable, NoRoom},
    reservations::ReservationOutcome,
};

/// So many answers are remembered at most, some 350 bytes each.
const ANSWERS_MAX: usize = 1_000_000;
/// An answer is remembered for so long after it was given.
const LIFE_NS: u64 = 60 * SECOND_NS;
const SHARDS: usize = 64;
/// Each call takes at most so many answers away that are over, so that none does all the work after a pause.
const CLEARED_MAX: usize = 4;
/// A caller that has more than its share gives up to so many answers for a new one, so that it comes down to its share.
const GIVEN_MAX: usize = 2;

/// An id that the calling service gave a request, in bytes.
const ID_BYTES_MAX: usize = 128;

/// Names a request, so that it can be sent again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestId<'a>(&'a str);

/// One of so many bytes, which is none or too many.
#[derive(Debug)]
pub(crate) struct BadRequestId {
    pub(crate) bytes: usize,
}

impl<'a> RequestId<'a> {
    pub(crate) const BYTES_MAX: usize = ID_BYTES_MAX;

    /// Any text of 1 to 128 bytes.
    pub(crate) fn new(text: &'a str) -> Result<Self, BadRequestId> {
        match text.len() {
            1..=ID_BYTES_MAX => Ok(Self(text)),
            bytes => Err(BadRequestId { bytes }),
        }
    }
}

/// What is done under an id; part of what a repeat must have in common with the first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Call {
    Check,
    Reserve,
}

/// The id came with another request before.
#[derive(Debug)]
pub(crate) struct Reused;

/// A decision, and what was made of it to settle it later.
pub(crate) type Decided<'e> = (Decision<'e>, ReservationOutcome);

/// Answers by request id.
#[derive(Debug)]
pub(crate) struct Retries {
    /// Nobody outside can make two ids, or two requests, look alike.
    secret: [u8; 16],
    shards: Box<[Mutex<Shard>]>,
    repeats: AtomicU64,
    forgotten: Arc<ForgottenRequests>,
}

/// How many answers made room for others before their minute was over, so that a repeat would be charged: by what there was no
/// room in, in the order of [`NoRoom::ALL`].
#[derive(Debug, Default)]
pub(crate) struct ForgottenRequests([AtomicU64; NoRoom::ALL.len()]);

impl ForgottenRequests {
    /// The kind of error as which nodes report them.
    pub(crate) const ERROR_KIND: &'static str = "forgotten_request_id";

    pub(crate) fn count(&self, reason: NoRoom) {
        self.0[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how many there are of each reason.
    pub(crate) fn by_reason(&self) -> [(&'static str, u64); NoRoom::ALL.len()] {
        NoRoom::ALL.map(|reason| (reason.name(), self.0[reason as usize].load(Ordering::Relaxed)))
    }
}

/// Answers by hashed id, oldest first.
type Shard = CallerTable<u128, Answered>;

#[derive(Debug)]
struct Answered {
    at: Nanos,
    /// Hash of the request.
    request: u128,
    decision: Remembered,
    reservation: ReservationOutcome,
}

impl Retries {
    pub(crate) fn new(secret: [u8; 16], share: CallerShare) -> Self {
        Self::with_room(secret, ANSWERS_MAX, share)
    }

    fn with_room(secret: [u8; 16], answers_max: usize, share: CallerShare) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::new(CallerTable::new(answers_max / SHARDS, share))).collect();
        Self { secret, shards, repeats: AtomicU64::new(0), forgotten: Arc::default() }
    }

    /// Returns a cache without answers of which each caller has this share.
    pub(crate) fn with_share(self, share: CallerShare) -> Self {
        Self::new(self.secret, share)
    }

    /// Has `request` decided, unless it was allowed under this id before: then it is told that again. What was denied, or met
    /// no limit, charged nothing and is not remembered, so its repeat is decided anew. Where `decide` panics nothing is
    /// remembered.
    pub(crate) fn once<'e, C: Clock>(
        &self,
        engine: &'e Engine<C>,
        (id, call): (RequestId<'_>, Call),
        caller: CallerKey,
        request: &Request<'_>,
        decide: impl FnOnce() -> Decided<'e>,
    ) -> Result<Decided<'e>, Reused> {
        let id = self.hash((request.parts().domain, id.0));
        let content = self.hash_of(request, call);
        let mut shard = self.shard(id);
        let now = engine.clock().now();
        if let Some(known) = self.find(engine, &shard, (id, content), now)? {
            return Ok(known);
        }
        let (decision, reservation) = decide();
        // Where no limit decided, one that only counts may have been charged.
        let may_be_charged = || decision.limit_index().is_some() || engine.has_limit(request);
        if decision.is_allowed() && may_be_charged() {
            self.make_room(&mut shard, caller, now);
            let decision = decision.remember();
            // It goes to the end, also where one that is over had its place.
            shard.insert(id, caller, Answered { at: now, request: content, decision, reservation });
        }
        Ok((decision, reservation))
    }

    /// What a repeat is told, if it is one: for requests that wait between this and [`once`](Self::once).
    pub(crate) fn known<'e, C: Clock>(
        &self,
        engine: &'e Engine<C>,
        (id, call): (RequestId<'_>, Call),
        request: &Request<'_>,
    ) -> Result<Option<Decided<'e>>, Reused> {
        let id = self.hash((request.parts().domain, id.0));
        self.find(engine, &self.shard(id), (id, self.hash_of(request, call)), engine.clock().now())
    }

    fn find<'e, C: Clock>(
        &self,
        engine: &'e Engine<C>,
        shard: &Shard,
        (id, content): (u128, u128),
        now: Nanos,
    ) -> Result<Option<Decided<'e>>, Reused> {
        let Some(answered) = shard.get(&id).filter(|answered| !answered.is_over(now)) else { return Ok(None) };
        if answered.request != content {
            return Err(Reused);
        }
        self.repeats.fetch_add(1, Ordering::Relaxed);
        Ok(Some((engine.recall(&answered.decision), answered.reservation)))
    }

    /// Takes away what is over, and where that leaves no room for another answer of this caller its oldest; where it has less
    /// than its share and no place is free, the oldest of all.
    fn make_room(&self, shard: &mut Shard, caller: CallerKey, now: Nanos) {
        for _ in 0..CLEARED_MAX {
            if !shard.front().is_some_and(|oldest| oldest.is_over(now)) {
                break;
            }
            shard.pop_front();
        }
        for _ in 0..GIVEN_MAX {
            let Err(reason) = shard.check_room(caller) else { break };
            let oldest = match reason {
                NoRoom::Caller => shard.pop_front_of(caller),
                NoRoom::Table => shard.pop_front(),
            };
            if oldest.is_some_and(|oldest| !oldest.is_over(now)) {
                self.forgotten.count(reason);
            }
        }
    }

    /// How many answers are remembered; those that are over are among them until others take their place.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    /// How many requests were told what had been answered before.
    pub(crate) fn repeats(&self) -> u64 {
        self.repeats.load(Ordering::Relaxed)
    }

    pub(crate) fn forgotten(&self) -> &Arc<ForgottenRequests> {
        &self.forgotten
    }

    fn shard(&self, id: u128) -> MutexGuard<'_, Shard> {
        lock(&self.shards[id as usize % SHARDS])
    }

    /// All that makes it the request that it is.
    fn hash_of(&self, request: &Request<'_>, call: Call) -> u128 {
        let parts = request.parts();
        let rest = (parts.domain, parts.endpoint, parts.method, parts.cost, parts.tier);
        let mut hasher = SipHasher24::new_with_key(&self.secret);
        (call, rest, parts.identities.len()).hash(&mut hasher);
        for identity in parts.identities {
            (identity.kind(), identity.value()).hash(&mut hasher);
        }
        hasher.finish128().as_u128()
    }

    fn hash(&self, what: impl Hash) -> u128 {
        let mut hasher = SipHasher24::new_with_key(&self.secret);
        what.hash(&mut hasher);
        hasher.finish128().as_u128()
    }
}

impl Answered {
    fn is_over(&self, now: Nanos) -> bool {
        now.saturating_sub(self.at) >= LIFE_NS
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    // A decision that panics comes before anything is written.
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
