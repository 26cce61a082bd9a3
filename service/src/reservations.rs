//! Open reservations, each under an id that nobody can guess, for an hour: settled or refunded once.

use std::{
    fmt,
    str::FromStr,
    sync::{Mutex, MutexGuard, PoisonError},
};

use base64::{DecodeError, Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use hashlink::LinkedHashMap;
use tidegate::{
    Reservation,
    time::{Nanos, SECOND_NS},
};
use tidegate_fleet::store::Reserved;

/// So many are open at most, some 200 bytes each and 100 for each limit that one was charged to.
pub(crate) const OPEN_MAX: usize = 100_000;
/// Of so many that were settled it is known at most, some 60 bytes each.
const SETTLED_MAX: usize = 1_000_000;
/// After so long a reservation stands as it was charged.
const LIFE_NS: u64 = 3_600 * SECOND_NS;
/// Each call takes at most so many away that are over.
const CLEARED_MAX: usize = 4;
/// 144 bits: a whole number of characters.
const ID_BYTES: usize = 18;

/// Names a reservation. Whoever has it may settle it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ReservationId([u8; ID_BYTES]);

impl ReservationId {
    /// From the system's source of secrets.
    pub(crate) fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; ID_BYTES];
        getrandom::fill(&mut bytes)?;
        Ok(Self(bytes))
    }
}

impl fmt::Display for ReservationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

/// Logs do not show it.
impl fmt::Debug for ReservationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReservationId")
    }
}

impl FromStr for ReservationId {
    type Err = DecodeError;

    fn from_str(text: &str) -> Result<Self, DecodeError> {
        let bytes = URL_SAFE_NO_PAD.decode(text)?;
        bytes.try_into().map(Self).map_err(|bytes: Vec<u8>| DecodeError::InvalidLength(bytes.len()))
    }
}

/// Why there is nothing to settle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Gone {
    /// Nobody gave this id, or more than an hour ago.
    Unknown,
    /// It was settled or refunded.
    Settled,
}

/// What was charged, by whom it is settled.
#[derive(Debug)]
pub(crate) enum Held {
    /// The engine alone.
    Here(Reservation),
    /// The store has a part of it.
    Stored(Reserved),
}

impl Held {
    fn actual_max(&self, multiple: u64) -> u64 {
        match self {
            Self::Here(reservation) => reservation.actual_max(multiple),
            Self::Stored(reserved) => reserved.actual_max(multiple),
        }
    }
}

/// The reservations of the last hour.
#[derive(Debug, Default)]
pub(crate) struct Reservations(Mutex<Kept>);

/// Both oldest first.
#[derive(Debug, Default)]
struct Kept {
    open: LinkedHashMap<ReservationId, Open>,
    /// When they were made.
    settled: LinkedHashMap<ReservationId, Nanos>,
    expired: u64,
}

#[derive(Debug)]
struct Open {
    at: Nanos,
    held: Held,
}

impl Reservations {
    /// Is there room for another? Threads that ask at once may each take the last place.
    pub(crate) fn has_room(&self, now: Nanos) -> bool {
        let mut kept = self.lock();
        kept.clear(now);
        kept.open.len() < OPEN_MAX
    }

    /// Keeps one that was made at `now`.
    pub(crate) fn put(&self, id: ReservationId, held: Held, now: Nanos) {
        self.lock().open.insert(id, Open { at: now, held });
    }

    /// Returns the largest cost at which one is settled, by this multiple of its estimate; `None` where it is not open.
    pub(crate) fn actual_max(&self, id: &ReservationId, multiple: u64, now: Nanos) -> Option<u64> {
        let kept = self.lock();
        let open = kept.open.get(id).filter(|open| !is_over(open.at, now))?;
        Some(open.held.actual_max(multiple))
    }

    /// Takes one out, to be settled: once.
    pub(crate) fn take(&self, id: ReservationId, now: Nanos) -> Result<Held, Gone> {
        let mut kept = self.lock();
        kept.clear(now);
        let Some(Open { at, held }) = kept.open.remove(&id) else {
            let is_settled = kept.settled.get(&id).is_some_and(|&at| !is_over(at, now));
            return Err(if is_settled { Gone::Settled } else { Gone::Unknown });
        };
        if is_over(at, now) {
            kept.expired += 1;
            return Err(Gone::Unknown);
        }
        if kept.settled.len() >= SETTLED_MAX {
            kept.settled.pop_front();
        }
        kept.settled.insert(id, at);
        Ok(held)
    }

    /// How many are open, and how many were not settled in their hour.
    pub(crate) fn counts(&self) -> (usize, u64) {
        let kept = self.lock();
        (kept.open.len(), kept.expired)
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        // Nothing in here panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    /// Takes away what is over.
    fn clear(&mut self, now: Nanos) {
        for _ in 0..CLEARED_MAX {
            if self.open.front().is_some_and(|(_, open)| is_over(open.at, now)) {
                self.open.pop_front();
                self.expired += 1;
            }
            // In the order in which they were settled: what is over may wait behind what is not.
            if self.settled.front().is_some_and(|(_, &at)| is_over(at, now)) {
                self.settled.pop_front();
            }
        }
    }
}

fn is_over(at: Nanos, now: Nanos) -> bool {
    now.saturating_sub(at) >= LIFE_NS
}

#[cfg(test)]
mod tests;
