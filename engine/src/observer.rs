//! Watching decisions: what sees them, all or a sample, as they are made.

use std::{
    cell::Cell,
    fmt,
    num::NonZeroU32,
    sync::{Arc, OnceLock},
};

use crossbeam_utils::CachePadded;

use crate::{
    decision::Decision,
    hash::IdentityHash,
    registry::LimitIndex,
    request::{Identity, Request, RequestParts},
    snapshot::Charge,
    time::Nanos,
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
    asked: Asked<'a>,
    decision: &'a Decision<'a>,
    /// Of the limit that decided.
    charge: Option<&'a Charge>,
    now: Nanos,
    one_in: NonZeroU32,
}

/// Who asked, and by which door.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asked<'a> {
    Request(&'a Request<'a>),
    Handle { kind: &'a str, value: &'a [u8] },
}

impl Asked<'_> {
    /// Is it a request about one identity?
    pub(crate) fn is_of_one(&self) -> bool {
        matches!(self, Self::Request(request) if request.identities.len() == 1)
    }
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

    /// The limit that decided, whose full name the decision says; `None` when no limit applied.
    #[must_use]
    pub fn limit(&self) -> Option<LimitIndex> {
        self.decision.limit_index()
    }

    /// The request, whole; `None` where a handle was asked, which knows a limit and a key alone.
    #[must_use]
    pub fn request(&self) -> Option<RequestParts<'a>> {
        match self.asked {
            Asked::Request(request) => Some(request.parts()),
            Asked::Handle { .. } => None,
        }
    }

    /// Kinds and values of everybody whom the request was about, in its order.
    pub fn identities(&self) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        let (of_request, of_handle): (&[Identity<'a>], _) = match self.asked {
            Asked::Request(request) => (request.identities, None),
            Asked::Handle { kind, value } => (&[], Some((kind, value))),
        };
        let of_request = of_request.iter().map(|identity| (identity.kind(), identity.value().as_bytes()));
        of_request.chain(of_handle)
    }

    /// Those whom the limit that decided counts together: with the limit, they are the key. Nobody for a limit that counts
    /// everyone together, and where no limit applied.
    pub fn counted(&self) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        let counted = match (self.asked, self.charge) {
            (_, None) => 0,
            (Asked::Request(_), Some(charge)) => charge.counted,
            (Asked::Handle { .. }, Some(_)) => 1,
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

/// The observers. The first stands on a cache line of its own, which is never written after it was added: without one, a
/// check only reads it.
#[derive(Default)]
pub(crate) struct Watch(CachePadded<OnceLock<Watching>>);

/// An observer, and the one that was added after it.
struct Watching {
    observer: Box<dyn Observer>,
    one_in: NonZeroU32,
    next: OnceLock<Box<Watching>>,
}

impl Watch {
    pub(crate) fn add(&self, one_in: NonZeroU32, observer: impl Observer) {
        let mut added = Watching { observer: Box::new(observer), one_in, next: OnceLock::new() };
        let Err(back) = self.0.set(added) else { return };
        added = back;
        let mut last = self.0.get();
        while let Some(watching) = last {
            // Somebody else may add one meanwhile.
            let Err(back) = watching.next.set(Box::new(added)) else { return };
            added = *back;
            last = watching.next.get().map(Box::as_ref);
        }
    }

    /// Shows a decision at time `now` to those whose turn it is. `decided` answers it, with the charge of the limit that
    /// decided: it is asked only where somebody watches.
    #[inline(always)]
    pub(crate) fn show<'e>(
        &self,
        asked: Asked<'_>,
        decided: impl FnOnce() -> (Option<Charge>, Decision<'e>),
        now: Nanos,
    ) {
        if let Some(first) = self.0.get() {
            let (charge, decision) = decided();
            first.show(asked, charge, decision, now);
        }
    }
}

impl Watching {
    /// To this one and all that were added after it.
    #[inline(never)]
    fn show(&self, asked: Asked<'_>, charge: Option<Charge>, decision: Decision<'_>, now: Nanos) {
        let number = next_number();
        // A first touch is decided at a time read anew.
        let now = decision.decided_by.map_or(now, |by| by.outcome.now);
        let mut watching = Some(self);
        while let Some(Self { observer, one_in, next }) = watching {
            if is_drawn(number, *one_in) {
                let (decision, charge, one_in) = (&decision, charge.as_ref(), *one_in);
                observer.observe(&Observed { asked, decision, charge, now, one_in });
            }
            watching = next.get().map(Box::as_ref);
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("is_set", &self.0.get().is_some()).finish()
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
