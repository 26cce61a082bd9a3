//! Observers: see decisions, all or a sample, as they are made.

use std::{
    cell::Cell,
    fmt,
    num::{NonZeroU32, NonZeroU64},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use arc_swap::ArcSwapOption;
use crossbeam_utils::CachePadded;

use crate::{
    base::{atomic::Cell64, hash::IdentityHash, time::Nanos},
    engine::{decision::Decision, names::LimitIndex},
    policy::{
        planner::Charge,
        request::{Identity, Request, RequestParts},
    },
};

/// Sees decisions. Given to [`Engine::observe`](crate::Engine::observe); see there for an example.
pub trait Observer: Send + Sync + 'static {
    /// A decision was made, by this thread, just now. What this takes, that check takes longer: it should neither wait nor
    /// allocate.
    fn observe(&self, observed: &Observed<'_>);
}

/// So that somebody else can read what the observer gathers.
impl<O: Observer + ?Sized> Observer for Arc<O> {
    fn observe(&self, observed: &Observed<'_>) {
        (**self).observe(observed);
    }
}

/// One decision, and whom it was about.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    input: CheckInput<'a>,
    decision: &'a Decision<'a>,
    /// Of the limit that decided.
    charge: Option<&'a Charge>,
    now: Nanos,
    one_in: NonZeroU32,
}

/// Who asked, and by which door.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CheckInput<'a> {
    Request(&'a Request<'a>),
    /// It brought its own numbers.
    Rated(&'a Request<'a>),
    Handle {
        kind: &'a str,
        value: &'a [u8],
    },
}

impl<'a> Observed<'a> {
    /// The decision; what it says of shadow limits too.
    pub fn decision(&self) -> &'a Decision<'a> {
        self.decision
    }

    /// When it was made, by the engine's clock.
    #[must_use]
    pub fn at(&self) -> Nanos {
        self.now
    }

    /// The same by wall time, as the engine follows it.
    #[must_use]
    pub fn wall(&self) -> Nanos {
        self.decision.names.wall(self.now)
    }

    /// The limit that decided, whose full name the decision says; `None` when no limit applied.
    #[must_use]
    pub fn limit(&self) -> Option<LimitIndex> {
        self.decision.limit_index()
    }

    /// The request, whole; `None` where a handle was asked, which knows a limit and a key alone.
    #[must_use]
    pub fn request(&self) -> Option<RequestParts<'a>> {
        match self.input {
            CheckInput::Request(request) | CheckInput::Rated(request) => Some(request.parts()),
            CheckInput::Handle { .. } => None,
        }
    }

    /// Did the request bring its own numbers? Then no policy decided.
    #[must_use]
    pub fn is_rated(&self) -> bool {
        matches!(self.input, CheckInput::Rated(_))
    }

    /// Kinds and values of everybody whom the request was about, in its order.
    pub fn identities(&self) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        let (of_request, of_handle): (&[Identity<'a>], _) = match self.input {
            CheckInput::Request(request) | CheckInput::Rated(request) => (request.identities, None),
            CheckInput::Handle { kind, value } => (&[], Some((kind, value))),
        };
        let of_request = of_request.iter().map(|identity| (identity.kind(), identity.value().as_bytes()));
        of_request.chain(of_handle)
    }

    /// Those whom the limit that decided counts together: with the limit, they are the key. Nobody for a limit that counts
    /// everyone together, and where no limit applied.
    pub fn counted(&self) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        let counted = match (self.input, self.charge) {
            (_, None) => 0,
            (CheckInput::Request(_) | CheckInput::Rated(_), Some(charge)) => charge.counted,
            (CheckInput::Handle { .. }, Some(_)) => 1,
        };
        let each = self.identities().enumerate();
        each.filter_map(move |(place, identity)| (counted >> place & 1 == 1).then_some(identity))
    }

    /// How many decisions this one stands for: one in so many is seen.
    #[must_use]
    pub fn one_in(&self) -> NonZeroU32 {
        self.one_in
    }

    /// The key of the limit that decided.
    pub(crate) fn key(&self) -> Option<(u32, IdentityHash)> {
        Some((self.decision.decided_by?.limit, self.charge?.identity))
    }
}

/// An observer of one engine, by which [`Engine::stop_observing`](crate::Engine::stop_observing) knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObserverId(NonZeroU64);

/// The observers.
#[derive(Default)]
pub(crate) struct Observers {
    /// On a cache line of its own, which a publish writes, and an observer that comes or goes: without one, a check only reads it.
    seats: CachePadded<ObserverSlots>,
    /// Held while an observer is added or removed, and while a publish tells its version.
    changes: Mutex<ObserverIds>,
}

#[derive(Default)]
struct ObserverIds {
    /// The id that was given last.
    last_id: u64,
    /// The observers by their seats, first to last.
    ids: Vec<Option<ObserverId>>,
    /// Version of the newest snapshot.
    version: u64,
}

/// [`ObserverSlots::version_unwatched`] while there is an observer: above every version but the last that there can be, which an engine
/// comes to only where it is given the largest version 2,047 times anew.
const WATCHED: u64 = u64::MAX;

#[derive(Default)]
struct ObserverSlots {
    /// How many are taken.
    taken: Cell64,
    /// Version of the newest snapshot, or [`WATCHED`]: by one load a check learns that there is neither a newer snapshot nor an
    /// observer.
    version_unwatched: Cell64,
    first: OnceLock<Box<ObserverSlot>>,
}

/// Where an observer is. It stays for good, and is given again: there are as many as there ever were observers at once.
#[derive(Default)]
struct ObserverSlot {
    /// Of the observer; 0: there is none.
    one_in: Cell64,
    watching: ArcSwapOption<SampledObserver>,
    next: OnceLock<Box<ObserverSlot>>,
}

struct SampledObserver {
    observer: Box<dyn Observer>,
    one_in: NonZeroU32,
}

impl Observers {
    pub(crate) fn add(&self, one_in: NonZeroU32, observer: impl Observer) -> ObserverId {
        let mut changes = self.changes();
        let ObserverIds { last_id, ids, .. } = &mut *changes;
        let id = ObserverId(NonZeroU64::MIN.saturating_add(*last_id));
        *last_id = id.0.get();
        let place = ids.iter().position(Option::is_none).unwrap_or(ids.len());
        if place == ids.len() {
            ids.push(None);
        }
        ids[place] = Some(id);
        let seat = self.seat(place);
        seat.watching.store(Some(Arc::new(SampledObserver { observer: Box::new(observer), one_in })));
        seat.one_in.store(one_in.get().into());
        self.seats.taken.store(self.seats.taken.load() + 1);
        self.renew(&changes);
        id
    }

    pub(crate) fn remove(&self, id: ObserverId) {
        let mut changes = self.changes();
        let Some(place) = changes.ids.iter().position(|other| *other == Some(id)) else { return };
        changes.ids[place] = None;
        let seat = self.seat(place);
        self.seats.taken.store(self.seats.taken.load() - 1);
        self.renew(&changes);
        seat.one_in.store(0);
        let left = seat.watching.swap(None);
        drop(changes);
        // Its end may take a while, and may add or remove another.
        drop(left);
    }

    /// Takes note that the snapshot of this version is the newest.
    pub(crate) fn set_version(&self, version: u64) {
        let mut changes = self.changes();
        changes.version = version;
        self.renew(&changes);
    }

    /// Stores the word anew. Called under the lock, so that no older version is stored after a newer one.
    fn renew(&self, changes: &ObserverIds) {
        let version = if self.is_watched() { WATCHED } else { changes.version };
        self.seats.version_unwatched.store(version);
    }

    /// Returns whether no newer snapshot than that of this version is in force, and there is no observer.
    #[inline(always)]
    pub(crate) fn is_newest_unwatched(&self, version: u64) -> bool {
        self.seats.version_unwatched.load() <= version
    }

    /// That at this place; the ones before it are there.
    fn seat(&self, place: usize) -> &ObserverSlot {
        let mut seat = self.seats.first.get_or_init(Box::default);
        for _ in 0..place {
            seat = seat.next.get_or_init(Box::default);
        }
        seat
    }

    fn changes(&self) -> MutexGuard<'_, ObserverIds> {
        // Nothing in here panics.
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether there is an observer.
    #[inline(always)]
    pub(crate) fn is_watched(&self) -> bool {
        self.seats.taken.load() > 0
    }

    /// Shows a decision at time `now` to those whose turn it is. `decided` answers it, with the charge of the limit that
    /// decided: it is asked only where somebody watches.
    #[inline(always)]
    pub(crate) fn show<'e>(
        &self,
        input: CheckInput<'_>,
        decided: impl FnOnce() -> (Option<Charge>, Decision<'e>),
        now: Nanos,
    ) {
        if self.is_watched() {
            let (charge, decision) = decided();
            self.seats.show(input, charge, decision, now);
        }
    }
}

impl ObserverSlots {
    /// To all that are there.
    #[inline(never)]
    fn show(&self, input: CheckInput<'_>, charge: Option<Charge>, decision: Decision<'_>, now: Nanos) {
        let number = next_number();
        // A first touch is decided at a time read anew.
        let now = decision.decided_by.map_or(now, |by| by.outcome.now);
        let mut seat = self.first.get();
        while let Some(ObserverSlot { one_in, watching, next }) = seat.map(Box::as_ref) {
            let drawn = NonZeroU32::new(one_in.load() as u32).filter(|one_in| is_drawn(number, *one_in));
            if let Some(drawn) = drawn
                && let Some(watching) = &*watching.load()
                // Another one may have come into its seat.
                && watching.one_in == drawn
            {
                let (decision, charge, one_in) = (&decision, charge.as_ref(), watching.one_in);
                watching.observer.observe(&Observed { input, decision, charge, now, one_in });
            }
            seat = next.get();
        }
    }
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observers").field("observers", &self.seats.taken.load()).finish_non_exhaustive()
    }
}

/// Numbers the decisions of this thread that somebody may see.
fn next_number() -> u32 {
    thread_local! {
        static DECISIONS: Cell<u32> = const { Cell::new(0) };
    }
    let number = DECISIONS.get();
    DECISIONS.set(number.wrapping_add(1));
    number
}

/// Draws one in `one_in` decisions of a thread: exactly one of each run of so many, at a place that is spread evenly from
/// run to run (multiples of the golden ratio), so that no rhythm of the traffic stays out of sight.
fn is_drawn(number: u32, one_in: NonZeroU32) -> bool {
    let (run, place) = (number / one_in, number % one_in);
    let spread = run.wrapping_mul(0x9E37_79B9);
    u64::from(place) == (u64::from(spread) * u64::from(one_in.get())) >> 32
}

#[cfg(all(test, not(engine_loom)))]
mod tests {
    use super::*;

    struct Blind;

    impl Observer for Blind {
        fn observe(&self, _observed: &Observed<'_>) {}
    }

    #[test]
    fn a_publish_is_known_whether_somebody_watches_or_not() {
        let watch = Observers::default();
        watch.set_version(1);
        assert!(watch.is_newest_unwatched(1));
        let id = watch.add(NonZeroU32::MIN, Blind);
        watch.set_version(2);
        assert!(!watch.is_newest_unwatched(2), "it is watched");
        watch.remove(id);
        assert!(watch.is_newest_unwatched(2) && !watch.is_newest_unwatched(1));
    }

    #[test]
    fn there_are_as_many_seats_as_there_ever_were_observers_at_once() {
        let watch = Observers::default();
        for _ in 0..100 {
            let ids = [(); 3].map(|()| watch.add(NonZeroU32::MIN, Blind));
            assert_eq!(watch.seats.taken.load(), 3);
            for id in ids {
                watch.remove(id);
            }
        }
        assert_eq!(watch.seats.taken.load(), 0);
        assert!(watch.seat(2).next.get().is_none());
    }
}
