//! Handles: a limit looked up once and checked many times.

use std::sync::Arc;

use crate::{
    algorithm::NUMBER_MAX,
    clock::{Clock, SystemClock},
    decision::Decision,
    engine::Engine,
    hash::KeyHasher,
    observer::Asked,
    registry::{Live, Newer},
    request::{RequestError, VALUE_BYTES_MAX},
    snapshot::Charge,
};

/// One limit, looked up once, for callers who know which limit they want: the shortest way to its buckets.
///
/// It counts the identities of one kind, in the same buckets as the requests that the policy sends to the limit, and it
/// stays right across publishes. Clone one per thread.
#[derive(Debug)]
pub struct Handle<'e, C = SystemClock> {
    engine: &'e Engine<C>,
    limit_id: Box<str>,
    kind: Box<str>,
    kind_hash: u64,
    live: Arc<Live>,
    /// Place of the limit in `live`; `None` while the policy does not have it.
    place: Option<u32>,
}

impl<C: Clock> Engine<C> {
    /// A handle on the limit with this full name, such as `default/tier:free/minute`, for identities of `kind`.
    ///
    /// `None` when the policy has no such limit now.
    pub fn handle(&self, limit_id: &str, kind: &str) -> Option<Handle<'_, C>> {
        let live = self.live();
        let place = place_of(&live, limit_id)?;
        let kind_hash = KeyHasher::new(0).name(kind);
        Some(Handle { engine: self, limit_id: limit_id.into(), kind: kind.into(), kind_hash, live, place: Some(place) })
    }
}

fn place_of(live: &Live, limit_id: &str) -> Option<u32> {
    live.snapshot.limit_names().position(|name| name == limit_id).map(|place| place as u32)
}

impl<'e, C: Clock> Handle<'e, C> {
    /// Charges `cost` to the bucket of the identity `value`, or changes nothing and says why not.
    ///
    /// Allowed without a limit while the policy does not have this one.
    #[inline]
    pub fn check(&mut self, value: &[u8], cost: u64) -> Result<Decision<'e>, RequestError> {
        if cost == 0 || cost > NUMBER_MAX {
            return Err(RequestError::Cost(cost));
        }
        if value.is_empty() || value.len() > VALUE_BYTES_MAX {
            return Err(RequestError::Value { kind: self.limit_id.to_string(), bytes: value.len() });
        }
        let identity = self.engine.buckets().hasher.identity(self.kind_hash, value);
        loop {
            if self.engine.version() != self.live.version {
                self.look_up_again();
            }
            let now = self.engine.buckets().clock.now();
            let asked = Asked::Handle { kind: &self.kind, value };
            let Some(limit) = self.place else {
                let decision = self.engine.buckets().unlimited(&self.live);
                self.engine.count(&self.live, asked, &[], &decision, now);
                return Ok(decision);
            };
            let charge = Charge { limit, identity, cost, counted: 0 };
            match self.engine.buckets().decide(&self.live, &[charge], now) {
                Ok(decision) => {
                    self.engine.count(&self.live, asked, &[charge], &decision, now);
                    return Ok(decision);
                }
                // A newer snapshot is in place, if perhaps not its version yet.
                Err(Newer) => self.look_up_again(),
            }
        }
    }

    #[cold]
    fn look_up_again(&mut self) {
        self.live = self.engine.live();
        self.place = place_of(&self.live, &self.limit_id);
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
