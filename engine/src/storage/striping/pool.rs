//! The pool of stripes: groups of stripes, the layouts of their words, the common spend, and the end of a session.

use crossbeam_utils::CachePadded;

use crate::{
    algorithm::Meter,
    base::{
        atomic::{Cell64, Counter},
        bit_field::Field,
        time::Nanos,
    },
    storage::{
        atomic_update::{Next, update},
        layout::{BucketState, GENERATION_BITS, Generation},
        table::{HashedKey, Table},
    },
};

/// The number of groups of stripes, and so of keys that can be striped at a time.
pub(super) const GROUPS: usize = 64;

/// The most stripes of a group.
const STRIPES_MAX: usize = 64;

/// Limits with smaller bursts are never striped.
const BURST_MIN: u64 = 1_024;

/// The reserve is at most the burst divided by this.
const PART: u64 = 16;

/// The least share of a stripe.
const SHARE_MIN: u64 = 8;

// The stock of a stripe: nothing (0), tokens of a key, or the nonce of the thread that fills it.
pub(super) const TOKENS: Field = Field::lowest(30);
pub(super) const ID: Field = Field::above(TOKENS, GENERATION_BITS + 28);
pub(super) const IS_FILLING: Field = Field::rest(ID);
pub(super) const NONE: u64 = 0;

// The control word of a group: its key, and the phase of the session.
pub(super) const PHASE: Field = Field::lowest(2);
pub(super) const KEY_ID: Field = Field::above(PHASE, GENERATION_BITS + 28);
pub(super) const LIMIT: Field = Field::rest(KEY_ID);
pub(super) const FREE: u64 = 0;
pub(super) const OPENING: u64 = 1;
pub(super) const OPEN: u64 = 2;
pub(super) const CLOSING: u64 = 3;

// The refills of a group: how many of the last ones were of the same stripe, which stripe, and how many there were in all.
pub(super) const IN_A_ROW: Field = Field::lowest(8);
pub(super) const STRIPE: Field = Field::above(IN_A_ROW, 8);
pub(super) const REFILLS: Field = Field::rest(STRIPE);

/// The share of each stripe, and the number of stripes, of the keys of a limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StripeTerms {
    pub(super) share: u64,
    /// A power of two.
    pub(super) stripes: usize,
}

impl StripeTerms {
    pub(super) fn reserve(self) -> u64 {
        self.share * self.stripes as u64
    }
}

/// A cost that a thread wants to spend from its stripe of the key with this hash.
#[derive(Clone, Copy)]
pub(crate) struct StripeSpend {
    pub(crate) terms: StripeTerms,
    pub(crate) hash: u64,
    /// The generation of the limit's numbers.
    pub(crate) generation: Generation,
    pub(crate) thread: usize,
    pub(crate) cost: u64,
}

/// Returns the most tokens of a key of this limit that stripes hold; 0 if its keys are never striped.
#[inline(always)]
fn reserve_max(meter: &Meter) -> u64 {
    match meter {
        Meter::TokenBucket(_) if meter.capacity() >= BURST_MIN => {
            (meter.capacity() / PART).min(TOKENS.max() * STRIPES_MAX as u64)
        }
        _ => 0,
    }
}

/// Returns the word of a bucket that is or was striped at `at`, as if all of the reserve were used.
pub(crate) fn with_reserve_used(meter: &Meter, word: u64, at: Nanos) -> u64 {
    meter.overcharge(word, at, reserve_max(meter))
}

/// The stripes of all keys of an engine.
#[derive(Debug)]
pub(crate) struct StripePool {
    pub(super) groups: Box<[CachePadded<Group>]>,
    /// Counters of refills and sessions, which write them. Every check of a striped key reads the field before them, so
    /// they have a cache line of their own.
    pub(crate) counters: CachePadded<SessionCounters>,
    /// Not 0 while a publish forbids new sessions.
    held_back: Cell64,
}

#[derive(Debug, Default)]
pub(crate) struct SessionCounters {
    nonces: Counter,
    pub(crate) begun: Counter,
    pub(crate) ended: Counter,
}

/// A group of stripes, which one key uses at a time. By default it is [`FREE`], and has no stripes.
#[derive(Debug, Default)]
pub(super) struct Group {
    pub(super) control: Cell64,
    /// The hash of the key that uses the group. The thread that opens the session writes it, and the next two.
    pub(super) hash: Cell64,
    pub(super) reserve: Cell64,
    /// The time in which the reserve comes back.
    pub(super) reserve_ns: Cell64,
    /// Lost races: the id of their key, and their number.
    pub(super) contended: Cell64,
    /// The time of the first of those races.
    pub(super) contended_since: Cell64,
    pub(super) refills: Cell64,
    /// The number of refills when another key last wanted the group.
    pub(super) refills_seen: Cell64,
    pub(super) stripes: Box<[CachePadded<Stripe>]>,
}

/// A stripe: the tokens that a few threads spend from.
#[derive(Debug, Default)]
pub(super) struct Stripe {
    pub(super) stock: Cell64,
    /// An instant not before the last payment for the stock, and never ahead of the clock.
    pub(super) filled_at: Cell64,
}

impl Stripe {
    /// Empties the stripe, and returns the tokens that it held.
    pub(super) fn take(&self) -> u64 {
        let taken = update(&self.stock, self.stock.load(), &mut 0, |seen| Next::Write(NONE, seen));
        if IS_FILLING.get(taken) == 0 { TOKENS.get(taken) } else { 0 }
    }

    /// Raises `filled_at` to `at`.
    pub(super) fn raise_filled_at(&self, at: Nanos) {
        update(&self.filled_at, self.filled_at.load(), &mut 0, |seen| {
            if seen < at { Next::Write(at, ()) } else { Next::Leave(()) }
        });
    }
}

impl StripePool {
    pub(crate) fn new() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        // Twice as many, so that two threads seldom share one.
        Self::with(GROUPS, (2 * processors).next_power_of_two().min(STRIPES_MAX))
    }

    /// Makes an empty pool, for limits that are never striped.
    pub(crate) fn none() -> Self {
        Self::with(0, 0)
    }

    pub(super) fn with(groups: usize, stripes: usize) -> Self {
        let stripes = || (0..stripes).map(|_| CachePadded::default()).collect();
        let group = |_| CachePadded::new(Group { stripes: stripes(), ..Group::default() });
        Self {
            groups: (0..groups).map(group).collect(),
            counters: CachePadded::default(),
            held_back: Cell64::default(),
        }
    }

    /// Returns how keys of a limit with these numbers are striped, if they are.
    #[inline(always)]
    pub(crate) fn terms(&self, meter: &Meter) -> Option<StripeTerms> {
        let reserve = reserve_max(meter);
        let most = (reserve / SHARE_MIN).checked_ilog2()?;
        let stripes = self.groups.first()?.stripes.len().min(1 << most);
        // A power of two.
        Some(StripeTerms { share: (reserve >> stripes.trailing_zeros()).min(TOKENS.max()), stripes })
    }

    #[inline(always)]
    pub(super) fn group(&self, hash: u64) -> &Group {
        // The number of groups is a power of two.
        &self.groups[hash as usize & (self.groups.len() - 1)]
    }

    /// Spends tokens of a striped key from the thread's stripe. Returns the time of the charge: `now`, or a later one.
    /// This is the common case and nothing else, so that it can be inlined whole: the stripe has enough, and no other
    /// thread swaps it. `None`: it was not so, and nothing was admitted; tokens that were paid for meanwhile are not
    /// used.
    #[inline(always)]
    pub(crate) fn spend(
        &self,
        StripeSpend { terms, hash, generation, thread, cost }: StripeSpend,
        now: Nanos,
        is_newest: impl FnOnce() -> bool,
    ) -> Option<Nanos> {
        let stripe = &self.group(hash).stripes[thread & (terms.stripes - 1)];
        let stock = stripe.stock.load();
        let tokens = tokens_of(stock_id(hash, generation), stock)?;
        if !is_newest() || tokens < cost {
            return None;
        }
        let filled_at = stripe.filled_at.load();
        stripe.stock.compare_exchange(stock, stock - cost).ok()?;
        // Where it is the same before and after, it is that of the stock. Otherwise a later filling may have paid for these
        // tokens already: they are not used, and the charge begins again.
        (stripe.filled_at.load() == filled_at).then(|| now.max(filled_at))
    }

    /// Returns the number of refills and ends of sessions: the charges to words at a time that was read for the charge.
    pub(crate) fn payments(&self) -> u64 {
        self.counters.nonces.count() + self.counters.ended.count()
    }

    pub(super) fn are_held_back(&self) -> bool {
        self.held_back.load() != 0
    }

    /// Ends the sessions of the limits for which `concerns` is true, and forbids new ones until
    /// [`revoke`](Self::revoke). Call it before a publish changes the numbers of these limits, so that the old numbers
    /// pay for what their stripes gave.
    pub(crate) fn hold_back(&self, table: &Table, read_clock: impl Fn() -> Nanos, concerns: impl Fn(u32) -> bool) {
        self.held_back.store(1);
        self.end(table, read_clock, concerns);
    }

    /// Ends the sessions of the limits for which `concerns` is true.
    pub(crate) fn end(&self, table: &Table, read_clock: impl Fn() -> Nanos, concerns: impl Fn(u32) -> bool) {
        for group in &self.groups {
            let control = group.control.load();
            if PHASE.get(control) == OPEN && concerns(LIMIT.get(control) as u32) {
                self.close(group, control, table, &read_clock);
            }
        }
    }

    /// Ends the sessions of limits whose numbers were changed; `now` returns the generation of such a limit. Their
    /// slots were converted, so they are no longer striped.
    pub(crate) fn revoke(
        &self,
        table: &Table,
        read_clock: impl Fn() -> Nanos,
        now: impl Fn(u32) -> Option<Generation>,
    ) {
        for group in &self.groups {
            let control = group.control.load();
            let generation = now(LIMIT.get(control) as u32).map(Generation::number);
            if PHASE.get(control) == OPEN && generation.is_some_and(|now| now != generation_of(KEY_ID.get(control))) {
                self.close(group, control, table, &read_clock);
            }
        }
        self.held_back.store(0);
    }

    pub(super) fn filling(&self) -> u64 {
        // The counter never wraps, so no nonce is given twice.
        IS_FILLING.put(1) | self.counters.nonces.next()
    }

    /// Ends the session that `control` names. Returns false if another thread does or did.
    pub(super) fn close(&self, group: &Group, control: u64, table: &Table, read_clock: &dyn Fn() -> Nanos) -> bool {
        let closing = control ^ PHASE.put(OPEN ^ CLOSING);
        if PHASE.get(control) != OPEN || group.control.compare_exchange(control, closing).is_err() {
            return false;
        }
        let key = HashedKey::new(LIMIT.get(control) as u32, group.hash.load());
        let left = group.stripes.iter().map(|stripe| stripe.take()).sum();
        let spent_ns = group.spent_ns(left);
        // `None`: a publish has converted it.
        let unmarked = |held: BucketState| {
            let is_its = held.is_striped && held.generation.number() == generation_of(KEY_ID.get(control));
            // Read the clock after the stripes and the slot: no payment is dated before what it pays for.
            is_its.then(|| BucketState::word(held.generation, held.word.max(read_clock()).saturating_add(spent_ns)))
        };
        table.change(key, unmarked);
        self.counters.ended.next();
        group.control.store(FREE);
        true
    }
}

impl Group {
    /// Returns the time in which the reserve comes back except for `left` tokens, rounded up.
    pub(super) fn spent_ns(&self, left: u64) -> u64 {
        let (reserve, ns) = (self.reserve.load(), self.reserve_ns.load());
        let spent = u128::from(reserve.saturating_sub(left)) * u128::from(ns);
        spent.div_ceil(u128::from(reserve.max(1))) as u64
    }
}

/// Returns the id of a key in stocks and controls: the bits of its hash that did not choose the group, and the generation.
/// It is never 0.
#[inline(always)]
pub(super) fn stock_id(hash: u64, generation: Generation) -> u64 {
    ((hash / GROUPS as u64) | 1) << GENERATION_BITS | generation.number()
}

/// Returns how many tokens of the key with this id a stripe holds; `None` where it is filling, or holds none of this
/// key.
#[inline(always)]
pub(super) fn tokens_of(id: u64, stock: u64) -> Option<u64> {
    (stock ^ TOKENS.put(stock) == ID.put(id)).then_some(TOKENS.get(stock))
}

fn generation_of(id: u64) -> u64 {
    Field::lowest(GENERATION_BITS).get(id)
}
