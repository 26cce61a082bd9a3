//! Open reservations, each under an id that cannot be guessed, for an hour: settled or refunded once. Each caller has a share
//! of the places.

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

use crate::shared::caller_shares::{CallerKey, CallerShare, CallerTable, NoRoom};

/// The most that are open, some 300 bytes each and 100 for each limit that one was charged to.
pub(crate) const OPEN_MAX: usize = 100_000;
/// The most of which it is kept that they were settled, some 60 bytes each.
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
    /// Returns whether nothing was charged, so that there is nothing to settle.
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Here(reservation) => reservation.is_empty(),
            Self::Stored(reserved) => reserved.is_empty(),
        }
    }

    fn actual_max(&self, multiple: u64) -> u64 {
        match self {
            Self::Here(reservation) => reservation.actual_max(multiple),
            Self::Stored(reserved) => reserved.actual_max(multiple),
        }
    }
}

/// What was made of a request to settle a charge later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReservationOutcome {
    /// Nothing: it was a check, or was denied, or nothing was charged.
    None,
    /// A reservation.
    Kept(ReservationId),
    /// Nothing, for there was no room: the charge stands.
    NoRoom,
}

/// A refusal to reserve: the caller has its share of the places.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ShareTaken {
    /// Its open reservations.
    pub(crate) open: usize,
}

/// The reservations of the last hour.
#[derive(Debug)]
pub(crate) struct Reservations(Mutex<Kept>);

/// Both oldest first.
#[derive(Debug)]
struct Kept {
    open: CallerTable<ReservationId, Open>,
    /// When they were made.
    settled: LinkedHashMap<ReservationId, Nanos>,
    settled_max: usize,
    expired: u64,
    /// How often there was no room, in the order of [`NoRoom::ALL`].
    refused: [u64; NoRoom::ALL.len()],
}

#[derive(Debug)]
struct Open {
    at: Nanos,
    held: Held,
}

impl Reservations {
    pub(crate) fn new(share: CallerShare) -> Self {
        Self::with_places(OPEN_MAX, SETTLED_MAX, share)
    }

    /// Returns an empty table with places for so many that are open, and so many that were settled.
    fn with_places(open: usize, settled_max: usize, share: CallerShare) -> Self {
        Self(Mutex::new(Kept {
            open: CallerTable::new(open, share),
            settled: LinkedHashMap::new(),
            settled_max,
            expired: 0,
            refused: [0; NoRoom::ALL.len()],
        }))
    }

    /// Returns whether a caller is to be refused: it has its share, and no less than callers have on average. A share is small
    /// where others have nearly all places, which is no fault of a caller with few.
    pub(crate) fn share_taken(&self, caller: CallerKey, now: Nanos) -> Option<ShareTaken> {
        let mut kept = self.lock();
        kept.clear(now);
        let is_taken = kept.open.check_room(caller) == Err(NoRoom::Caller) && kept.open.is_large(caller);
        is_taken.then(|| ShareTaken { open: kept.open.len_of(caller) })
    }

    /// Counts that a caller with its share was refused before anything was charged.
    pub(crate) fn refuse(&self) {
        self.lock().refused[NoRoom::Caller as usize] += 1;
    }

    /// Keeps one that was made at `now`. An error: there is no room, so it stands as it was charged.
    pub(crate) fn put(&self, id: ReservationId, held: Held, caller: CallerKey, now: Nanos) -> Result<(), NoRoom> {
        let mut kept = self.lock();
        kept.clear(now);
        let room = kept.open.check_room(caller);
        match room {
            Ok(()) => kept.open.insert(id, caller, Open { at: now, held }),
            Err(reason) => kept.refused[reason as usize] += 1,
        }
        room
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
        if kept.settled.len() >= kept.settled_max {
            kept.settled.pop_front();
        }
        kept.settled.insert(id, at);
        Ok(held)
    }

    /// Returns how many are open, and how many were not settled in their hour.
    pub(crate) fn counts(&self) -> (usize, u64) {
        let kept = self.lock();
        (kept.open.len(), kept.expired)
    }

    /// Returns how often there was no room, by reason.
    pub(crate) fn refused(&self) -> [(&'static str, u64); NoRoom::ALL.len()] {
        let refused = self.lock().refused;
        NoRoom::ALL.map(|reason| (reason.name(), refused[reason as usize]))
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
            if self.open.front().is_some_and(|open| is_over(open.at, now)) {
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
