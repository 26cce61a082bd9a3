//! The pool of leases: groups of stripes, the words that they hold, and how a lease ends.

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
        layout::{GENERATION_BITS, Generation, Held},
        table::{Key, Table},
    },
};

/// Groups of stripes: so many keys can have leases at a time.
pub(super) const GROUPS: usize = 64;

const STRIPES_MAX: usize = 64;

/// Limits with smaller bursts do not lease.
const BURST_MIN: u64 = 1_024;

/// A lease takes this part of the burst.
const PART: u64 = 16;

/// The least share of a stripe.
const SHARE_MIN: u64 = 8;

/// What a stripe holds: nothing (0), tokens of a lease, or the nonce of who fills it.
pub(super) const TOKENS: Field = Field::lowest(30);
pub(super) const ID: Field = Field::above(TOKENS, GENERATION_BITS + 28);
pub(super) const IS_FILLING: Field = Field::rest(ID);
pub(super) const NONE: u64 = 0;

/// Whose lease a group has, and how far it is.
pub(super) const PHASE: Field = Field::lowest(2);
pub(super) const LEASE: Field = Field::above(PHASE, GENERATION_BITS + 28);
pub(super) const LIMIT: Field = Field::rest(LEASE);
pub(super) const FREE: u64 = 0;
pub(super) const OPENING: u64 = 1;
pub(super) const OPEN: u64 = 2;
pub(super) const CLOSING: u64 = 3;

/// Refills of a group: how many of the last ones were of the same stripe, which, and how many there were.
pub(super) const IN_A_ROW: Field = Field::lowest(8);
pub(super) const STRIPE: Field = Field::above(IN_A_ROW, 8);
pub(super) const REFILLS: Field = Field::rest(STRIPE);

/// How much a limit lends to each stripe, and to how many.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(super) share: u64,
    /// A power of two.
    pub(super) stripes: usize,
}

impl Terms {
    pub(super) fn reserve(self) -> u64 {
        self.share * self.stripes as u64
    }
}

/// What a thread wants of the lease of the key with this hash.
#[derive(Clone, Copy)]
pub(crate) struct Spend {
    pub(crate) terms: Terms,
    pub(crate) hash: u64,
    /// Of the limit's numbers.
    pub(crate) generation: Generation,
    pub(crate) thread: usize,
    pub(crate) cost: u64,
}

/// The most that a limit with these numbers has out on lease; 0 if it does not lease.
#[inline(always)]
fn reserve_max(meter: &Meter) -> u64 {
    match meter {
        Meter::TokenBucket(_) if meter.capacity() >= BURST_MIN => {
            (meter.capacity() / PART).min(TOKENS.max() * STRIPES_MAX as u64)
        }
        _ => 0,
    }
}

/// The word of a bucket that is or was leased at `at`, as if all of the reserve were used.
pub(crate) fn without_reserve(meter: &Meter, word: u64, at: Nanos) -> u64 {
    meter.overcharge(word, at, reserve_max(meter))
}

/// All leases of an engine.
#[derive(Debug)]
pub(crate) struct Leases {
    pub(super) groups: Box<[CachePadded<Group>]>,
    /// Refills and new leases write it, every check that meets a lease reads what stands before it.
    counters: CachePadded<Counters>,
    /// Not 0 while a publish forbids new leases.
    held_back: Cell64,
}

#[derive(Debug, Default)]
struct Counters {
    nonces: Counter,
    begun: Counter,
    ended: Counter,
}

#[derive(Debug)]
pub(super) struct Group {
    pub(super) control: Cell64,
    /// Of the key with the lease; written by who opens it, as the next two.
    pub(super) hash: Cell64,
    pub(super) reserve: Cell64,
    /// The time that the reserve takes to come back.
    pub(super) reserve_ns: Cell64,
    /// Lost races: of whom, and how many.
    pub(super) contended: Cell64,
    /// When they began to be counted.
    pub(super) contended_since: Cell64,
    pub(super) refills: Cell64,
    /// How many refills there were when another key wanted the group.
    pub(super) refills_seen: Cell64,
    pub(super) stripes: Box<[CachePadded<Stripe>]>,
}

#[derive(Debug, Default)]
pub(super) struct Stripe {
    pub(super) stock: Cell64,
    /// Not before the last payment for what it holds, and never ahead of the clock.
    pub(super) filled_at: Cell64,
}

impl Stripe {
    /// Empties it. What it held.
    pub(super) fn take(&self) -> u64 {
        let taken = update(&self.stock, self.stock.load(), &mut 0, |seen| Next::Write(NONE, seen));
        if IS_FILLING.get(taken) == 0 { TOKENS.get(taken) } else { 0 }
    }

    pub(super) fn is_filled_at(&self, at: Nanos) {
        update(&self.filled_at, self.filled_at.load(), &mut 0, |seen| {
            if seen < at { Next::Write(at, ()) } else { Next::Leave(()) }
        });
    }
}

impl Leases {
    pub(crate) fn new() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        // Twice as many, so that two threads seldom share one.
        Self::with(GROUPS, (2 * processors).next_power_of_two().min(STRIPES_MAX))
    }

    /// For limits that have none.
    pub(crate) fn none() -> Self {
        Self::with(0, 0)
    }

    pub(super) fn with(groups: usize, stripes: usize) -> Self {
        let group = || Group {
            control: Cell64::new(FREE),
            hash: Cell64::new(0),
            reserve: Cell64::new(0),
            reserve_ns: Cell64::new(0),
            contended: Cell64::new(0),
            contended_since: Cell64::new(0),
            refills: Cell64::new(0),
            refills_seen: Cell64::new(0),
            stripes: (0..stripes).map(|_| CachePadded::default()).collect(),
        };
        Self {
            groups: (0..groups).map(|_| CachePadded::new(group())).collect(),
            counters: CachePadded::default(),
            held_back: Cell64::new(0),
        }
    }

    /// How a limit with these numbers lends, if it does.
    #[inline(always)]
    pub(crate) fn terms(&self, meter: &Meter) -> Option<Terms> {
        let reserve = reserve_max(meter);
        let most = (reserve / SHARE_MIN).checked_ilog2()?;
        let stripes = self.groups.first()?.stripes.len().min(1 << most);
        // A power of two.
        Some(Terms { share: (reserve >> stripes.trailing_zeros()).min(TOKENS.max()), stripes })
    }

    /// The group of the keys with this hash.
    #[inline(always)]
    pub(super) fn group(&self, hash: u64) -> &Group {
        // As many as a power of two.
        &self.groups[hash as usize & (self.groups.len() - 1)]
    }

    /// Spends tokens from a thread's stripe of the lease of the key with this hash, and answers at what time: `now`, or a later
    /// one. The common charge, and nothing else, so that it can be inlined whole: the stripe has enough, and nobody else swaps
    /// it. `None`: it was not so, and nothing was admitted; tokens that were paid for meanwhile are let go.
    #[inline(always)]
    pub(crate) fn spend(
        &self,
        Spend { terms, hash, generation, thread, cost }: Spend,
        now: Nanos,
        is_newest: impl FnOnce() -> bool,
    ) -> Option<Nanos> {
        let stripe = &self.group(hash).stripes[thread & (terms.stripes - 1)];
        let stock = stripe.stock.load();
        let tokens = tokens_of(lease_id(hash, generation), stock)?;
        if !is_newest() || tokens < cost {
            return None;
        }
        let filled_at = stripe.filled_at.load();
        stripe.stock.compare_exchange(stock, stock - cost).ok()?;
        // The same before and after, so it is that of the stock; a later filling may have paid for these tokens already. Then
        // they are let go, and the charge begins again.
        (stripe.filled_at.load() == filled_at).then(|| now.max(filled_at))
    }

    pub(super) fn has_begun(&self) {
        self.counters.begun.next();
    }

    /// Leases that were begun.
    pub(crate) fn begun(&self) -> u64 {
        self.counters.begun.count()
    }

    /// Refills and ends of leases: what was charged to words at a time read for it.
    pub(crate) fn payments(&self) -> u64 {
        self.counters.nonces.count() + self.counters.ended.count()
    }

    /// Leases that have ended.
    pub(crate) fn ended(&self) -> u64 {
        self.counters.ended.count()
    }

    pub(super) fn are_held_back(&self) -> bool {
        self.held_back.load() != 0
    }

    /// Ends the leases of the limits that `concerns`, and lets no new ones begin until [`revoke`](Self::revoke): before a
    /// publish changes their numbers, so that what their stripes gave is paid for by the old ones.
    pub(crate) fn hold_back(&self, table: &Table, read_clock: impl Fn() -> Nanos, concerns: impl Fn(u32) -> bool) {
        self.held_back.store(1);
        self.end(table, read_clock, concerns);
    }

    /// Ends the leases of the limits that `concerns`.
    pub(crate) fn end(&self, table: &Table, read_clock: impl Fn() -> Nanos, concerns: impl Fn(u32) -> bool) {
        for group in &self.groups {
            let control = group.control.load();
            if PHASE.get(control) == OPEN && concerns(LIMIT.get(control) as u32) {
                self.close(group, control, table, &read_clock);
            }
        }
    }

    /// Ends the leases of limits whose numbers were changed; `now` says the generation of such a limit. Their slots were
    /// converted, and so are leased no more.
    pub(crate) fn revoke(
        &self,
        table: &Table,
        read_clock: impl Fn() -> Nanos,
        now: impl Fn(u32) -> Option<Generation>,
    ) {
        for group in &self.groups {
            let control = group.control.load();
            let generation = now(LIMIT.get(control) as u32).map(Generation::number);
            if PHASE.get(control) == OPEN && generation.is_some_and(|now| now != generation_of(LEASE.get(control))) {
                self.close(group, control, table, &read_clock);
            }
        }
        self.held_back.store(0);
    }

    pub(super) fn filling(&self) -> u64 {
        // The nonces do not come round.
        IS_FILLING.put(1) | self.counters.nonces.next()
    }

    /// Ends the lease that `control` names. False if another thread did, or does.
    pub(super) fn close(&self, group: &Group, control: u64, table: &Table, read_clock: &dyn Fn() -> Nanos) -> bool {
        let closing = control ^ PHASE.put(OPEN ^ CLOSING);
        if PHASE.get(control) != OPEN || group.control.compare_exchange(control, closing).is_err() {
            return false;
        }
        let key = Key::new(LIMIT.get(control) as u32, group.hash.load());
        let left = group.stripes.iter().map(|stripe| stripe.take()).sum();
        let spent_ns = group.spent_ns(left);
        // `None`: a publish has converted it.
        let unmarked = |held: Held| {
            let is_its = held.is_leased && held.generation.number() == generation_of(LEASE.get(control));
            // The clock after the stripes and the slot: no payment is dated before what it pays for.
            is_its.then(|| Held::word(held.generation, held.word.max(read_clock()).saturating_add(spent_ns)))
        };
        table.change(key, unmarked);
        self.counters.ended.next();
        group.control.store(FREE);
        true
    }
}

impl Group {
    /// The time that the reserve takes to come back but for `left` tokens, rounded up.
    pub(super) fn spent_ns(&self, left: u64) -> u64 {
        let (reserve, ns) = (self.reserve.load(), self.reserve_ns.load());
        let spent = u128::from(reserve.saturating_sub(left)) * u128::from(ns);
        spent.div_ceil(u128::from(reserve.max(1))) as u64
    }
}

/// Other bits of a key's hash than those that chose the group, and the generation; never 0.
#[inline(always)]
pub(super) fn lease_id(hash: u64, generation: Generation) -> u64 {
    ((hash / GROUPS as u64) | 1) << GENERATION_BITS | generation.number()
}

/// How many tokens of the lease with this id a stripe holds; `None` where it is filling, or holds none of this lease.
#[inline(always)]
pub(super) fn tokens_of(id: u64, stock: u64) -> Option<u64> {
    (stock ^ TOKENS.put(stock) == ID.put(id)).then_some(TOKENS.get(stock))
}

fn generation_of(lease: u64) -> u64 {
    Field::lowest(GENERATION_BITS).get(lease)
}
