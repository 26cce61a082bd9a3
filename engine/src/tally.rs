//! Counts of decisions, in all and per limit. Striped: the first threads that come count on a stripe of their own, which
//! takes no read-modify-write; the others share some. Readers add the stripes up.

use std::thread;

use crossbeam_utils::CachePadded;

use crate::sync::{Counter, thread_number};

/// At most so many threads have a stripe of their own, and so many stripes are shared.
const STRIPES_MAX: usize = 64;

/// Decisions since the engine was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Allowed, with or without a limit.
    pub allowed: u64,
    /// Denied.
    pub denied: u64,
    /// Of those allowed, the ones that met no limit.
    pub no_limit: u64,
    /// Of those without a limit, the ones that named a domain which the policy does not have.
    pub unknown_domain: u64,
}

/// What a limit's part was in decisions since the engine was made, over all policies that had it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Requests that were allowed and charged to it.
    pub allowed: u64,
    /// Requests that it was the first to refuse.
    pub denied: u64,
    /// Requests that it would have refused while it was a shadow.
    pub shadow_denied: u64,
}

/// How a request ended that met no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoLimit {
    Applies,
    UnknownDomain,
}

#[derive(Debug)]
pub(crate) struct Tally {
    /// First those of one thread each, then those that are shared; as many, a power of two.
    stripes: Box<[CachePadded<Stripe>]>,
}

#[derive(Debug, Default)]
struct Stripe {
    /// Charged to one limit or more.
    charged: Counter,
    denied: Counter,
    no_limit: Counter,
    unknown_domain: Counter,
    /// Of limits that are counted one by one.
    limits: boxcar::Vec<LimitCells>,
}

#[derive(Debug, Default)]
struct LimitCells {
    allowed: Counter,
    denied: Counter,
    shadow_denied: Counter,
}

impl Tally {
    pub(crate) fn new() -> Self {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let half = if cfg!(engine_loom) { 1 } else { (2 * processors).next_power_of_two().min(STRIPES_MAX) };
        Self { stripes: (0..2 * half).map(|_| CachePadded::default()).collect() }
    }

    /// Makes room for so many limits. One caller at a time.
    pub(crate) fn make_room(&self, limits: usize) {
        for stripe in &self.stripes {
            while stripe.limits.count() < limits {
                stripe.limits.push(LimitCells::default());
            }
        }
    }

    /// The calling thread's stripe, and how to count on it.
    #[inline]
    fn stripe(&self) -> (&Stripe, impl Fn(&Counter) + use<>) {
        let half = self.stripes.len() / 2;
        let number = thread_number();
        let is_own = number < half;
        let stripe = &self.stripes[if is_own { number } else { half + (number & (half - 1)) }];
        let count = move |counter: &Counter| {
            if is_own {
                counter.next_alone();
            } else {
                counter.next();
            }
        };
        (stripe, count)
    }

    /// A request was allowed, and charged to these limits, but for those that are shadows and would have refused it.
    #[inline]
    pub(crate) fn allowed(&self, limits: impl Iterator<Item = (u32, bool)>) {
        let (stripe, count) = self.stripe();
        count(&stripe.charged);
        for (limit, is_refused) in limits {
            if let Some(cells) = stripe.limits.get(limit as usize) {
                count(if is_refused { &cells.shadow_denied } else { &cells.allowed });
            }
        }
    }

    /// A request was allowed and charged to this limit alone, or refused by it.
    #[inline(always)]
    pub(crate) fn decided(&self, limit: Option<u32>, is_allowed: bool) {
        let (stripe, count) = self.stripe();
        count(if is_allowed { &stripe.charged } else { &stripe.denied });
        if let Some(cells) = limit.and_then(|limit| stripe.limits.get(limit as usize)) {
            count(if is_allowed { &cells.allowed } else { &cells.denied });
        }
    }

    /// A request met no limit.
    pub(crate) fn no_limit(&self, why: NoLimit) {
        let (stripe, count) = self.stripe();
        count(&stripe.no_limit);
        if why == NoLimit::UnknownDomain {
            count(&stripe.unknown_domain);
        }
    }

    pub(crate) fn totals(&self) -> Totals {
        self.stripes.iter().fold(Totals::default(), |sum, stripe| {
            let no_limit = stripe.no_limit.count();
            Totals {
                allowed: sum.allowed + stripe.charged.count() + no_limit,
                denied: sum.denied + stripe.denied.count(),
                no_limit: sum.no_limit + no_limit,
                unknown_domain: sum.unknown_domain + stripe.unknown_domain.count(),
            }
        })
    }

    pub(crate) fn counts(&self, limit: u32) -> Counts {
        self.stripes.iter().filter_map(|stripe| stripe.limits.get(limit as usize)).fold(
            Counts::default(),
            |sum, cells| Counts {
                allowed: sum.allowed + cells.allowed.count(),
                denied: sum.denied + cells.denied.count(),
                shadow_denied: sum.shadow_denied + cells.shadow_denied.count(),
            },
        )
    }
}
