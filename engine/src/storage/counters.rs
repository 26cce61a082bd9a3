//! Striped counters of decisions, in all and per limit.
//!
//! The first threads count on a stripe of their own each, which takes no read-modify-write; the others share some
//! stripes. A [`Handle`](crate::Handle), which one thread at a time uses, has counters of its own. Readers add all of
//! them up.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, PoisonError},
    thread,
};

use crossbeam_utils::CachePadded;

use crate::base::{
    atomic::{Counter, Mutex, MutexGuard},
    thread_id::thread_number,
};

/// The most threads with a stripe of their own, and the most shared stripes.
const STRIPES_MAX: usize = 64;

/// Decisions since the engine was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Allowed, with or without a limit.
    pub allowed: u64,
    /// Denied.
    pub denied: u64,
    /// The allowed requests that met no limit.
    pub no_limit: u64,
    /// The requests without a limit that named a domain which the policy does not have.
    pub unknown_domain: u64,
}

/// A limit's part in decisions since the engine was made, over all policies that had it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Requests that were allowed and charged to it.
    pub allowed: u64,
    /// Requests that it was the first to refuse.
    pub denied: u64,
    /// Requests that it would have refused while it was a shadow.
    pub shadow_denied: u64,
    /// The requests in `allowed` and `shadow_denied` that the limit counts for its tier or rule: summed over its
    /// limits, the requests that the tier or rule let pass, each once.
    pub owner_allowed: u64,
    /// The requests in `shadow_denied` that the limit counts for its tier or rule: summed over its limits, the requests
    /// that a shadow among them would have refused, each once.
    pub owner_shadow_denied: u64,
}

/// The index of one of the two counters of a limit: one for the requests that it counts for its tier or rule too, one
/// for those that another limit counts for it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct CounterIndex(u32);

impl CounterIndex {
    /// Returns a counter of the limit that is counted under this number.
    pub(crate) fn new(number: u32, is_for_owner: bool) -> Self {
        Self(2 * number + u32::from(!is_for_owner))
    }

    /// Returns the counter of the same limit for the requests that it counts for its tier or rule.
    #[inline(always)]
    pub(crate) fn for_owner(self) -> Self {
        Self(self.0 & !1)
    }

    pub(crate) fn number(self) -> u32 {
        self.0 / 2
    }
}

/// One limit's part in a request that was allowed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LimitCount {
    pub(crate) place: CounterIndex,
    /// Whether the limit is a shadow, and would have refused the request.
    pub(crate) is_refused: bool,
    /// Whether it is the first such shadow of its tier or rule.
    pub(crate) is_refused_first: bool,
}

/// The reason why a request met no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoLimit {
    Applies,
    UnknownDomain,
}

/// The counters of an engine: stripes for threads, and counters of handles.
#[derive(Debug)]
pub(crate) struct StripedCounters {
    /// First the stripes of one thread each, then as many shared ones: a power of two.
    stripes: Box<[CachePadded<Stripe>]>,
    /// Counters of handles, by the counter of the limit; `None` for limits of single clients.
    handles: Mutex<HashMap<Option<CounterIndex>, HandleCounters>>,
}

/// The counters of all handles that one limit has or had. They are never freed but given to the next handle, so there
/// are as many as there ever were handles at once.
#[derive(Debug, Default)]
struct HandleCounters {
    all: Vec<Arc<CachePadded<OwnCells>>>,
    /// The counters of handles that were dropped.
    free: Vec<Arc<CachePadded<OwnCells>>>,
}

/// Decisions of one limit. One thread at a time writes them.
#[derive(Debug, Default)]
struct OwnCells {
    allowed: Counter,
    denied: Counter,
}

/// The counters that one thread, or a few, write.
#[derive(Debug, Default)]
struct Stripe {
    /// Requests that were charged to one limit or more.
    charged: Counter,
    denied: Counter,
    no_limit: Counter,
    unknown_domain: Counter,
    /// Counters of limits that are counted one by one, by [`CounterIndex`].
    limits: boxcar::Vec<LimitCells>,
}

#[derive(Debug, Default)]
struct LimitCells {
    allowed: Counter,
    denied: Counter,
    shadow_denied: Counter,
    owner_shadow_denied: Counter,
}

/// The counters of one handle. No other handle counts in them.
pub(crate) struct HandleCounts<'t> {
    tally: &'t StripedCounters,
    place: Option<CounterIndex>,
    cells: Arc<CachePadded<OwnCells>>,
}

impl fmt::Debug for HandleCounts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HandleCounts").field(&self.cells).finish()
    }
}

impl Drop for HandleCounts<'_> {
    /// Leaves the counters, with their counts, to the next handle on the limit.
    fn drop(&mut self) {
        if let Some(counters) = self.tally.handles().get_mut(&self.place) {
            counters.free.push(Arc::clone(&self.cells));
        }
    }
}

impl HandleCounts<'_> {
    /// Returns counters for another handle on the same limit.
    pub(crate) fn another(&self) -> Self {
        self.tally.own(self.place)
    }

    /// Counts a request that was allowed and charged to this limit alone, or refused by it. Only the thread that uses
    /// the handle calls it.
    #[inline(always)]
    pub(crate) fn decided(&self, is_allowed: bool) {
        // A branch, not a choice between two addresses, which would wait for the bucket's line and delay the checks after it.
        if is_allowed {
            self.cells.allowed.next_alone();
        } else {
            self.refused();
        }
    }

    #[cold]
    #[inline(never)]
    fn refused(&self) {
        self.cells.denied.next_alone();
    }
}

/// The counters of one limit in the stripe of the calling thread.
pub(crate) struct ThreadCounters<'t> {
    is_own: bool,
    stripe: &'t Stripe,
    cells: Option<&'t LimitCells>,
}

impl ThreadCounters<'_> {
    /// Counts a request that was allowed and charged to this limit alone, or refused by it.
    #[inline(always)]
    pub(crate) fn decided(&self, is_allowed: bool) {
        // A branch, not a choice between two addresses, which would wait for the bucket's line and delay the checks after it.
        if is_allowed {
            self.count(&self.stripe.charged);
            if let Some(cells) = self.cells {
                self.count(&cells.allowed);
            }
        } else {
            self.refused();
        }
    }

    #[cold]
    #[inline(never)]
    fn refused(&self) {
        self.count(&self.stripe.denied);
        if let Some(cells) = self.cells {
            self.count(&cells.denied);
        }
    }

    #[inline(always)]
    fn count(&self, counter: &Counter) {
        if self.is_own {
            counter.next_alone();
        } else {
            counter.next();
        }
    }
}

impl StripedCounters {
    pub(crate) fn new() -> Self {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let half = if cfg!(engine_loom) { 1 } else { (2 * processors).next_power_of_two().min(STRIPES_MAX) };
        Self { stripes: (0..2 * half).map(|_| CachePadded::default()).collect(), handles: Mutex::default() }
    }

    fn handles(&self) -> MutexGuard<'_, HashMap<Option<CounterIndex>, HandleCounters>> {
        // Nothing in here panics.
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns counters for a handle on the limit that this counter belongs to.
    pub(crate) fn own(&self, place: Option<CounterIndex>) -> HandleCounts<'_> {
        let mut handles = self.handles();
        let counters = handles.entry(place).or_default();
        let cells = counters.free.pop().unwrap_or_else(|| {
            let cells = Arc::default();
            counters.all.push(Arc::clone(&cells));
            cells
        });
        HandleCounts { tally: self, place, cells }
    }

    /// Makes counters for so many limits. Only one thread may call it at a time.
    pub(crate) fn make_room(&self, limits: usize) {
        for stripe in &self.stripes {
            while stripe.limits.count() < 2 * limits {
                stripe.limits.push(LimitCells::default());
            }
        }
    }

    /// Returns the counters in which the calling thread counts decisions of a limit.
    #[inline]
    pub(crate) fn spot(&self, place: Option<CounterIndex>) -> ThreadCounters<'_> {
        let half = self.stripes.len() / 2;
        let thread = thread_number();
        let is_own = thread < half;
        let stripe = &self.stripes[if is_own { thread } else { half + (thread & (half - 1)) }];
        let cells = place.and_then(|place| stripe.limits.get(place.0 as usize));
        ThreadCounters { is_own, stripe, cells }
    }

    /// Counts a request that was allowed and charged to these limits, each once, except to shadows that would have
    /// refused it.
    #[inline]
    pub(crate) fn allowed(&self, shares: impl Iterator<Item = LimitCount>) {
        let spot = self.spot(None);
        spot.count(&spot.stripe.charged);
        for LimitCount { place, is_refused, is_refused_first } in shares {
            let Some(cells) = spot.stripe.limits.get(place.0 as usize) else { continue };
            spot.count(if is_refused { &cells.shadow_denied } else { &cells.allowed });
            if is_refused_first {
                spot.count(&cells.owner_shadow_denied);
            }
        }
    }

    /// Counts a request that met no limit.
    pub(crate) fn no_limit(&self, why: NoLimit) {
        let spot = self.spot(None);
        spot.count(&spot.stripe.no_limit);
        if why == NoLimit::UnknownDomain {
            spot.count(&spot.stripe.unknown_domain);
        }
    }

    /// Returns the sums over all threads and handles.
    pub(crate) fn totals(&self) -> Totals {
        let mut sums = Totals::default();
        for stripe in &self.stripes {
            sums.allowed += stripe.charged.count();
            sums.denied += stripe.denied.count();
            sums.no_limit += stripe.no_limit.count();
            sums.unknown_domain += stripe.unknown_domain.count();
        }
        for cells in self.handles().values().flat_map(|counters| &counters.all) {
            sums.allowed += cells.allowed.count();
            sums.denied += cells.denied.count();
        }
        sums.allowed += sums.no_limit;
        sums
    }

    /// Returns the counts of the limit with this number.
    pub(crate) fn counts(&self, number: u32) -> Counts {
        let (mut sums, handles) = (Counts::default(), self.handles());
        for is_for_owner in [true, false] {
            let place = CounterIndex::new(number, is_for_owner);
            for cells in self.stripes.iter().filter_map(|stripe| stripe.limits.get(place.0 as usize)) {
                sums.allowed += cells.allowed.count();
                sums.denied += cells.denied.count();
                sums.shadow_denied += cells.shadow_denied.count();
                sums.owner_shadow_denied += cells.owner_shadow_denied.count();
            }
            for cells in handles.get(&Some(place)).into_iter().flat_map(|counters| &counters.all) {
                sums.allowed += cells.allowed.count();
                sums.denied += cells.denied.count();
            }
            if is_for_owner {
                sums.owner_allowed = sums.allowed + sums.shadow_denied;
            }
        }
        sums
    }
}

#[cfg(all(test, not(engine_loom)))]
mod tests {
    use super::*;

    #[test]
    fn counters_of_dropped_handles_are_reused_with_their_counts() {
        let tally = StripedCounters::new();
        tally.make_room(2);
        let places = [Some(CounterIndex::new(0, true)), Some(CounterIndex::new(1, true)), None];
        for place in places {
            for _ in 0..10 {
                let (one, other) = (tally.own(place), tally.own(place));
                one.decided(true);
                other.another().decided(false);
            }
        }
        for counters in tally.handles().values() {
            assert_eq!((counters.all.len(), counters.free.len()), (3, 3), "three handles at once");
        }
        assert_eq!(tally.totals(), Totals { allowed: 30, denied: 30, ..Totals::default() });
        for number in 0..2 {
            let expected = Counts { allowed: 10, denied: 10, owner_allowed: 10, ..Counts::default() };
            assert_eq!(tally.counts(number), expected);
        }
    }
}

#[cfg(all(test, engine_loom))]
mod models {
    use loom::thread;

    use super::*;

    #[test]
    fn counters_that_a_handle_leaves_lose_nothing_to_the_next() {
        loom::model(|| {
            let tally = Arc::new(StripedCounters::new());
            let count = |tally: &StripedCounters| tally.own(None).decided(true);
            let other = thread::spawn({
                let tally = Arc::clone(&tally);
                move || count(&tally)
            });
            count(&tally);
            assert!((1..=2).contains(&tally.totals().allowed));
            other.join().expect("no panic");
            assert_eq!(tally.totals().allowed, 2);
        });
    }
}
