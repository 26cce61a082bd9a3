//! `Observer`: sees decisions, all or a sample, as they are made; and the observers of an engine.

use std::{
    cell::Cell,
    fmt,
    num::{NonZeroU32, NonZeroU64},
    sync::{Arc, Mutex, OnceLock},
};

use arc_swap::ArcSwapOption;
use crossbeam_utils::CachePadded;

use crate::{
    base::{
        atomic::Cell64,
        hash::IdentityHash,
        lock::lock,
        time::{Nanos, Timestamp},
    },
    engine::{decision::Decision, names::LimitIndex},
    policy::{
        planner::PlanEntry,
        request::{Request, RequestParts},
    },
};

/// An observer of decisions, for [`Engine::observe`](crate::Engine::observe), which has an example.
pub trait Observer: Send + Sync + 'static {
    /// Called by the thread that has just made a decision. The check takes longer by what this takes, so it should
    /// neither wait nor allocate.
    fn observe(&self, observed: &Observed<'_>);
}

/// An observer whose owner keeps another reference, to read what it gathers.
impl<O: Observer + ?Sized> Observer for Arc<O> {
    fn observe(&self, observed: &Observed<'_>) {
        (**self).observe(observed);
    }
}

/// One decision, with the request or the key that it was for.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    input: CheckInput<'a>,
    decision: &'a Decision<'a>,
    /// The plan entry of the limit that decided.
    plan_entry: Option<&'a PlanEntry>,
    now: Nanos,
    one_in: NonZeroU32,
}

/// The input of a check, by request or by handle.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CheckInput<'a> {
    Request(&'a Request<'a>),
    /// A request that brought its own numbers.
    Rated(&'a Request<'a>),
    Handle {
        kind: &'a str,
        value: &'a [u8],
    },
}

impl<'a> CheckInput<'a> {
    /// Returns the request; `None` for a check by handle.
    pub(super) fn request(self) -> Option<&'a Request<'a>> {
        match self {
            Self::Request(request) | Self::Rated(request) => Some(request),
            Self::Handle { .. } => None,
        }
    }
}

impl<'a> Observed<'a> {
    /// Returns the decision, including what it says of shadow limits.
    pub fn decision(&self) -> &'a Decision<'a> {
        self.decision
    }

    /// Returns the time of the decision, by the engine's clock.
    #[must_use]
    pub fn at(&self) -> Timestamp {
        Timestamp::from_nanos(self.now)
    }

    /// Returns the time of the decision by wall time, as the engine follows it.
    #[must_use]
    pub fn wall(&self) -> Timestamp {
        Timestamp::from_nanos(self.decision.names.wall(self.now))
    }

    /// Returns the limit that decided, whose full name the decision has; `None` if no limit applied.
    #[must_use]
    pub fn limit(&self) -> Option<LimitIndex> {
        self.decision.limit_index()
    }

    /// Returns the whole request; `None` for a check by a handle, which knows only a limit and a key.
    #[must_use]
    pub fn request(&self) -> Option<RequestParts<'a>> {
        self.input.request().map(Request::parts)
    }

    /// Returns whether the request brought its own numbers: then no policy decided.
    #[must_use]
    pub fn is_rated(&self) -> bool {
        matches!(self.input, CheckInput::Rated(_))
    }

    /// Returns the kinds and values of all identities of the request, in its order.
    pub fn identities(&self) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        let of_handle = if let CheckInput::Handle { kind, value } = self.input { Some((kind, value)) } else { None };
        let of_request = self.input.request().map_or(&[][..], |request| request.identities);
        of_request.iter().map(|identity| (identity.kind(), identity.value().as_bytes())).chain(of_handle)
    }

    /// Returns the identities that the limit that decided counts together; with the limit, they are the key. None for a
    /// limit that counts everyone together, and where no limit applied.
    pub fn counted(&self) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        let of_entry = |entry: &PlanEntry| if self.input.request().is_some() { entry.counted } else { 1 };
        let counted = self.plan_entry.map_or(0, of_entry);
        let each = self.identities().enumerate();
        each.filter_map(move |(place, identity)| (counted >> place & 1 == 1).then_some(identity))
    }

    /// Returns how many decisions this one stands for: one in this many is seen.
    #[must_use]
    pub fn one_in(&self) -> NonZeroU32 {
        self.one_in
    }

    /// Returns the key of the limit that decided.
    pub(crate) fn key(&self) -> Option<(u32, IdentityHash)> {
        Some((self.decision.decided_by?.limit, self.plan_entry?.identity))
    }
}

/// The id of an observer in its engine, for [`Engine::stop_observing`](crate::Engine::stop_observing).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObserverId(NonZeroU64);

#[derive(Default)]
pub(crate) struct Observers {
    /// The slots on a cache line of their own. A publish writes it, and adding or removing an observer; without an
    /// observer, a check only reads it.
    slots: CachePadded<ObserverSlots>,
    /// Locked while an observer is added or removed, and while a publish stores its version.
    ids_and_version: Mutex<ObserverIds>,
}

#[derive(Default)]
struct ObserverIds {
    /// The id that was given last.
    last_id: u64,
    /// The observers in the order of their slots.
    ids: Vec<Option<ObserverId>>,
    /// The version of the newest snapshot.
    version: u64,
}

/// The value of [`ObserverSlots::version_unwatched`] while there is an observer. It is above every version but the last
/// possible one, which an engine reaches only if it starts over from the largest version 2,047 times.
const WATCHED: u64 = u64::MAX;

#[derive(Default)]
struct ObserverSlots {
    /// The number of slots that have an observer.
    count: Cell64,
    /// The version of the newest snapshot, or [`WATCHED`]. One load tells a check that there is neither a newer
    /// snapshot nor an observer.
    version_unwatched: Cell64,
    first: OnceLock<Box<ObserverSlot>>,
}

/// A slot for one observer, in a list. Slots are never freed and are used again: there are as many as there ever were
/// observers at once.
///
/// A list behind one `ArcSwap` would be shorter, but every decision would pay for its load. Here a decision that is not
/// drawn for an observer costs one load of `one_in`.
#[derive(Default)]
struct ObserverSlot {
    /// The sampling rate of the observer; 0 if there is none.
    one_in: Cell64,
    observer: ArcSwapOption<SampledObserver>,
    next: OnceLock<Box<ObserverSlot>>,
}

struct SampledObserver {
    observer: Box<dyn Observer>,
    one_in: NonZeroU32,
}

impl Observers {
    pub(crate) fn add(&self, one_in: NonZeroU32, observer: impl Observer) -> ObserverId {
        let mut ids_and_version = lock(&self.ids_and_version);
        let ObserverIds { last_id, ids, .. } = &mut *ids_and_version;
        let id = ObserverId(NonZeroU64::MIN.saturating_add(*last_id));
        *last_id = id.0.get();
        let place = ids.iter().position(Option::is_none).unwrap_or(ids.len());
        if place == ids.len() {
            ids.push(None);
        }
        ids[place] = Some(id);
        let slot = self.slot(place);
        slot.observer.store(Some(Arc::new(SampledObserver { observer: Box::new(observer), one_in })));
        slot.one_in.store(one_in.get().into());
        self.slots.count.store(self.slots.count.load() + 1);
        self.store_version(&ids_and_version);
        id
    }

    pub(crate) fn remove(&self, id: ObserverId) {
        let mut ids_and_version = lock(&self.ids_and_version);
        let Some(place) = ids_and_version.ids.iter().position(|other| *other == Some(id)) else { return };
        ids_and_version.ids[place] = None;
        let slot = self.slot(place);
        self.slots.count.store(self.slots.count.load() - 1);
        self.store_version(&ids_and_version);
        slot.one_in.store(0);
        let removed = slot.observer.swap(None);
        drop(ids_and_version);
        // Dropping an observer may take a while, and may add or remove another one.
        drop(removed);
    }

    /// Stores that the snapshot of this version is the newest.
    pub(crate) fn set_version(&self, version: u64) {
        let mut ids_and_version = lock(&self.ids_and_version);
        ids_and_version.version = version;
        self.store_version(&ids_and_version);
    }

    /// Stores the word that checks read. Called under the lock, so that no older version is stored after a newer one.
    fn store_version(&self, ids_and_version: &ObserverIds) {
        let version = if self.is_watched() { WATCHED } else { ids_and_version.version };
        self.slots.version_unwatched.store(version);
    }

    /// Returns whether no newer snapshot than that of this version is in force, and there is no observer.
    #[inline(always)]
    pub(crate) fn is_newest_unwatched(&self, version: u64) -> bool {
        self.slots.version_unwatched.load() <= version
    }

    /// Returns the slot at this place. The slots before it exist.
    fn slot(&self, place: usize) -> &ObserverSlot {
        let mut slot = self.slots.first.get_or_init(Box::default);
        for _ in 0..place {
            slot = slot.next.get_or_init(Box::default);
        }
        slot
    }

    /// Returns whether there is an observer.
    #[inline(always)]
    pub(crate) fn is_watched(&self) -> bool {
        self.slots.count.load() > 0
    }

    /// Shows a decision at time `now` to the observers whose turn it is. `decided` returns the decision with the plan
    /// entry of the limit that decided; it is called only if there is an observer.
    #[inline(always)]
    pub(crate) fn show<'e>(
        &self,
        input: CheckInput<'_>,
        decided: impl FnOnce() -> (Option<PlanEntry>, Decision<'e>),
        now: Nanos,
    ) {
        if self.is_watched() {
            let (plan_entry, decision) = decided();
            self.slots.show(input, plan_entry, decision, now);
        }
    }
}

impl ObserverSlots {
    /// Shows a decision to the observers whose turn it is.
    #[inline(never)]
    fn show(&self, input: CheckInput<'_>, plan_entry: Option<PlanEntry>, decision: Decision<'_>, now: Nanos) {
        let number = next_number();
        // A first touch is decided at a time read anew.
        let now = decision.decided_by.map_or(now, |by| by.outcome.now);
        let mut slot = self.first.get();
        while let Some(ObserverSlot { one_in, observer, next }) = slot.map(Box::as_ref) {
            let drawn = NonZeroU32::new(one_in.load() as u32).filter(|one_in| is_drawn(number, *one_in));
            if let Some(drawn) = drawn
                && let Some(sampled) = &*observer.load()
                // Another observer may have been put into the slot.
                && sampled.one_in == drawn
            {
                let (decision, plan_entry, one_in) = (&decision, plan_entry.as_ref(), sampled.one_in);
                sampled.observer.observe(&Observed { input, decision, plan_entry, now, one_in });
            }
            slot = next.get();
        }
    }
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observers").field("observers", &self.slots.count.load()).finish_non_exhaustive()
    }
}

/// Numbers the decisions of this thread that observers may see.
fn next_number() -> u32 {
    thread_local! {
        static DECISIONS: Cell<u32> = const { Cell::new(0) };
    }
    let number = DECISIONS.get();
    DECISIONS.set(number.wrapping_add(1));
    number
}

/// Draws one in `one_in` decisions of a thread: exactly one of each run of this length, at a place that is spread
/// evenly from run to run (multiples of the golden ratio), so that no rhythm of the traffic escapes the sample.
fn is_drawn(number: u32, one_in: NonZeroU32) -> bool {
    let (run, place) = (number / one_in, number % one_in);
    let spread = run.wrapping_mul(0x9E37_79B9);
    u64::from(place) == (u64::from(spread) * u64::from(one_in.get())) >> 32
}

#[cfg(all(test, not(engine_loom)))]
mod tests {
    use super::*;

    struct IgnoringObserver;

    impl Observer for IgnoringObserver {
        fn observe(&self, _observed: &Observed<'_>) {}
    }

    #[test]
    fn a_publish_is_seen_with_and_without_an_observer() {
        let watch = Observers::default();
        watch.set_version(1);
        assert!(watch.is_newest_unwatched(1));
        let id = watch.add(NonZeroU32::MIN, IgnoringObserver);
        watch.set_version(2);
        assert!(!watch.is_newest_unwatched(2), "there is an observer");
        watch.remove(id);
        assert!(watch.is_newest_unwatched(2) && !watch.is_newest_unwatched(1));
    }

    #[test]
    fn slots_of_removed_observers_are_used_again() {
        let watch = Observers::default();
        for _ in 0..100 {
            let ids = [(); 3].map(|()| watch.add(NonZeroU32::MIN, IgnoringObserver));
            assert_eq!(watch.slots.count.load(), 3);
            for id in ids {
                watch.remove(id);
            }
        }
        assert_eq!(watch.slots.count.load(), 0);
        assert!(watch.slot(2).next.get().is_none());
    }
}
