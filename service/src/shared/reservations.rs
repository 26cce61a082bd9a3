//! Keeps open reservations for an hour, each under an ID that cannot be guessed. A reservation is settled or refunded once. Each
//! caller has a share of the places.

use std::{
    fmt,
    str::FromStr,
    sync::{Mutex, MutexGuard, PoisonError},
};

use base64::{DecodeError, Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use derive_more::Display;
use hashlink::LinkedHashMap;
use tidegate::{
    Reservation,
    time::{Nanos, SECOND_NS},
};
use tidegate_fleet::store::SharedReservation;

use super::caller_shares::{CallerKey, CallerShare, CallerTable, NoRoom};

/// The most open reservations, some 300 bytes each and 100 for each limit that a reservation was charged to.
pub(crate) const OPEN_MAX: usize = 100_000;
/// The most settled reservations that are remembered, some 60 bytes each.
const SETTLED_MAX: usize = 1_000_000;
/// The life of a reservation. After it the charge stands.
const LIFE_NS: u64 = 3_600 * SECOND_NS;
/// The most expired entries of each table that one call removes.
const EXPIRED_REMOVED_MAX: usize = 4;
/// Bytes of an ID: 144 bits, which are a whole number of characters of base64.
const ID_BYTES: usize = 18;

/// The ID of a reservation. Any caller that has it may settle the reservation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Display)]
#[display("{}", URL_SAFE_NO_PAD.encode(_0))]
pub(crate) struct ReservationId([u8; ID_BYTES]);

impl ReservationId {
    /// Creates an ID from the system's source of secrets.
    pub(crate) fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; ID_BYTES];
        getrandom::fill(&mut bytes)?;
        Ok(Self(bytes))
    }
}

/// Hides the ID, which is a secret, from logs.
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

/// The reason why there is nothing to settle.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Display)]
pub(crate) enum Gone {
    #[display(
        "reservation: not known here; it is of another node, or more than an hour old, or from before a restart, and stands \
         as it was charged"
    )]
    Unknown,
    #[display("reservation: was settled or refunded before; nothing was changed")]
    Settled,
}

/// The charge of a reservation, by what settles it.
#[derive(Debug)]
pub(crate) enum ReservationCharge {
    /// A charge that the engine alone settles.
    Local(Reservation),
    /// A charge of which the store has a part.
    Stored(SharedReservation),
}

impl ReservationCharge {
    /// Returns whether nothing was charged, so that there is nothing to settle.
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Local(reservation) => reservation.is_empty(),
            Self::Stored(reserved) => reserved.is_empty(),
        }
    }

    fn actual_max(&self, multiple: u64) -> u64 {
        match self {
            Self::Local(reservation) => reservation.actual_max(multiple),
            Self::Stored(reserved) => reserved.actual_max(multiple),
        }
    }
}

/// The reservation that a request led to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReservationOutcome {
    /// No reservation: the call was a check, or was denied, or charged nothing.
    None,
    Kept(ReservationId),
    /// No reservation, since there was no room: the charge stands.
    NoRoom,
}

/// The refusal of a reservation whose caller has its share of the places.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Display)]
#[display(
    "reservation: this caller has {open} open ones, its share of the places (--caller-share of this server); settle or refund \
     some of them, or ask by a check, which takes no place. Nothing was charged"
)]
pub(crate) struct ShareTaken {
    pub(crate) open: usize,
}

/// The reservations of the last hour.
#[derive(Debug)]
pub(crate) struct Reservations(Mutex<ReservationTables>);

/// Open and settled reservations, each oldest first.
#[derive(Debug)]
struct ReservationTables {
    open: CallerTable<ReservationId, OpenReservation>,
    /// The times at which the settled reservations were made.
    settled: LinkedHashMap<ReservationId, Nanos>,
    settled_max: usize,
    expired: u64,
    /// The counts of reservations without room, by reason in the order of [`NoRoom::ALL`].
    refused: [u64; NoRoom::ALL.len()],
}

#[derive(Debug)]
struct OpenReservation {
    at: Nanos,
    charge: ReservationCharge,
}

impl Reservations {
    pub(crate) fn new(share: CallerShare) -> Self {
        Self::with_places(OPEN_MAX, SETTLED_MAX, share)
    }

    /// Returns empty tables with places for this many open reservations, and this many settled ones.
    fn with_places(open: usize, settled_max: usize, share: CallerShare) -> Self {
        Self(Mutex::new(ReservationTables {
            open: CallerTable::new(open, share),
            settled: LinkedHashMap::new(),
            settled_max,
            expired: 0,
            refused: [0; NoRoom::ALL.len()],
        }))
    }

    /// Returns the refusal of a caller that has its share, and no less than callers have on average. A share is small
    /// where others have nearly all places, which is no fault of a caller with few.
    pub(crate) fn share_taken(&self, caller: CallerKey, now: Nanos) -> Option<ShareTaken> {
        let mut tables = self.lock();
        tables.remove_expired(now);
        let is_taken = tables.open.check_room(caller) == Err(NoRoom::Caller) && tables.open.is_large(caller);
        is_taken.then(|| ShareTaken { open: tables.open.len_of(caller) })
    }

    /// Counts a caller that was refused for its share before anything was charged.
    pub(crate) fn count_refusal(&self) {
        self.lock().refused[NoRoom::Caller as usize] += 1;
    }

    /// Keeps a reservation that was made at `now`. Returns an error where there is no room: the charge stands.
    pub(crate) fn put(
        &self,
        id: ReservationId,
        charge: ReservationCharge,
        caller: CallerKey,
        now: Nanos,
    ) -> Result<(), NoRoom> {
        let mut tables = self.lock();
        tables.remove_expired(now);
        let room = tables.open.check_room(caller);
        match room {
            Ok(()) => tables.open.insert(id, caller, OpenReservation { at: now, charge }),
            Err(reason) => tables.refused[reason as usize] += 1,
        }
        room
    }

    /// Returns the largest cost at which a reservation may be settled, by this multiple of its estimate; `None` where
    /// it is not open.
    pub(crate) fn actual_max(&self, id: &ReservationId, multiple: u64, now: Nanos) -> Option<u64> {
        let tables = self.lock();
        let open = tables.open.get(id).filter(|open| !is_expired(open.at, now))?;
        Some(open.charge.actual_max(multiple))
    }

    /// Removes a reservation, to be settled. It is removed once.
    pub(crate) fn take(&self, id: ReservationId, now: Nanos) -> Result<ReservationCharge, Gone> {
        let mut tables = self.lock();
        tables.remove_expired(now);
        let Some(OpenReservation { at, charge }) = tables.open.remove(&id) else {
            let is_settled = tables.settled.get(&id).is_some_and(|&at| !is_expired(at, now));
            return Err(if is_settled { Gone::Settled } else { Gone::Unknown });
        };
        if is_expired(at, now) {
            tables.expired += 1;
            return Err(Gone::Unknown);
        }
        if tables.settled.len() >= tables.settled_max {
            tables.settled.pop_front();
        }
        tables.settled.insert(id, at);
        Ok(charge)
    }

    /// Returns how many reservations are open, and how many were not settled in their hour.
    pub(crate) fn counts(&self) -> (usize, u64) {
        let tables = self.lock();
        (tables.open.len(), tables.expired)
    }

    pub(crate) fn refused(&self) -> [(&'static str, u64); NoRoom::ALL.len()] {
        let refused = self.lock().refused;
        NoRoom::ALL.map(|reason| (reason.name(), refused[reason as usize]))
    }

    fn lock(&self) -> MutexGuard<'_, ReservationTables> {
        // A poisoned lock is sound: nothing panics while it is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReservationTables {
    fn remove_expired(&mut self, now: Nanos) {
        for _ in 0..EXPIRED_REMOVED_MAX {
            if self.open.front().is_some_and(|open| is_expired(open.at, now)) {
                self.open.pop_front();
                self.expired += 1;
            }
            // They are in the order in which they were settled, so an expired one may wait behind one that is not.
            if self.settled.front().is_some_and(|(_, &at)| is_expired(at, now)) {
                self.settled.pop_front();
            }
        }
    }
}

fn is_expired(at: Nanos, now: Nanos) -> bool {
    now.saturating_sub(at) >= LIFE_NS
}

#[cfg(test)]
mod tests;
