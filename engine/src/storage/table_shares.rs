//! The shares of the table: how many slots the keys of each limit and of each domain hold and may hold, and the
//! overflow buckets that each limit has to itself.
//!
//! # What a slot counts for
//!
//! A slot of the table counts for the limit of its key, and for that limit's domain, from the claim on until another
//! key takes the slot or the slot is emptied: also while the key is idle. The thread whose swap changes the owner of a
//! slot changes the counts right after it, and no other thread does. So each count is the number of slots whose tag
//! names the limit, except while a thread is just between the two. A check of a key that has its slot neither reads nor
//! writes a count. Overflow buckets are not counted.
//!
//! Limits are known by their ids, and an id may go to another name, of another domain (`limit_ids.rs`). No slot names it
//! by then, but a thread that took one of its last slots, and stalled, may still have to count that. So a thread looks
//! up the domains before its swap, not after it: where the swap succeeds, the slot was of the limit, and the limit of
//! the domain, until then. Until that thread goes on, the limit of the new name counts one slot that it does not hold.
//!
//! # Why a flood takes no more than its share
//!
//! Where a limit or its domain holds its share, a new key may take an idle slot that the limit (the domain) holds
//! already, which leaves its count as it is, or an overflow bucket of its limit. A thread that read the count before
//! others raised it may raise it once more, so a limit holds at most its share and one slot for each thread that checks
//! at that moment.
//!
//! # What is left where several limits are flooded
//!
//! The shares of several limits, or domains, add up to more than the table, and one request may bring keys of several.
//! So some slots are kept: once all others are held, which takes two limits at least, a limit takes one only while it
//! holds less than an equal part of the kept slots, for each of the limits but two. A limit that holds so little is not
//! bounded by the share of its domain either. When its keys are idle their slots become empty before another limit gets
//! them, and are kept again. The rings of sliding window logs of one size are shared out in the same way, by
//! [`ShareBounds`] of their own (`log_pool.rs`), but a domain has no share of them.
//!
//! # Why idle slots do not deny a limit its share
//!
//! Idle slots count. A thread that brings a new key of a limit without slots to spare first empties the idle ones among
//! the next few slots of the table ([`RECLAIMED`]), which loses nothing: an idle key is the same as an absent one. So a
//! limit of whose slots the part p is idle is denied a slot with a probability of at most (1 - p)^256 where no
//! candidate of the key is idle either, and a limit whose slots are all idle is never denied one.

use crate::{
    base::{
        atomic::{Cell128, Counter, Gauge},
        time::Nanos,
    },
    storage::{atomic_update::Swap, layout::Slot},
};

/// The most overflow buckets of a limit.
pub(crate) const OVERFLOW_BUCKETS_MAX: usize = 8;

/// The number of overflow buckets of a limit. Each loom model sets how many it explores.
pub(crate) const OVERFLOW_BUCKETS: usize = if cfg!(engine_loom) { 0 } else { OVERFLOW_BUCKETS_MAX };

/// The number of slots that are searched for idle ones when a limit or a domain holds its share.
pub(crate) const RECLAIMED: usize = 256;

/// The number of slots that a limit and a domain may hold in any case: as many as the two lines of a key have.
const SLOTS_MIN: u64 = 8;

/// All limits together hold at least this part of the slots, in percent, before one is bounded by what the others hold.
/// At this load one new key in five hundred finds no candidate, at 90 % one in thirty.
const TABLE_PERCENT: u8 = 85;

/// The parts of an engine's table that the keys of one limit, and those of one domain, may take, in percent of its
/// slots.
///
/// The table has 1.5 slots for each of `max_keys`, so two thirds of it are `max_keys`. A share of less than that leaves
/// a limit less room than `max_keys` says; a larger one leaves the others less while the limit is flooded with keys.
/// The only domain of a policy may take all of the table, and so may its only limit.
///
/// Several limits that are flooded at once have a share each. So where a policy has more than two, 15 % of the slots
/// are kept for limits that hold little: each takes an equal part of them, where two limits hold the others. Above a
/// share of 70 % of a limit, half of what it leaves is kept.
///
/// The share of a limit, and the kept part, also apply to the rings of sliding window logs, among the limits of the
/// policy that need rings of one size. A domain has no share of rings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableShares {
    /// The share of one limit: from 1 to 100.
    pub limit_percent: u8,
    /// The share of all limits of one domain: from 1 to 100.
    pub domain_percent: u8,
}

impl TableShares {
    /// Shares under which each limit and domain may take all.
    pub const WHOLE: Self = Self { limit_percent: 100, domain_percent: 100 };
}

/// The default shares: 70 % for a limit, 75 % for a domain.
impl Default for TableShares {
    fn default() -> Self {
        Self { limit_percent: 70, domain_percent: 75 }
    }
}

/// The slots that each limit and each domain holds and may hold.
#[derive(Debug)]
pub(crate) struct SlotShares {
    /// The shares of limits, by id. The list only grows, and is read without a lock.
    limits: boxcar::Vec<LimitShare>,
    /// The share of the limit that no policy has.
    alone: LimitShare,
    /// The slots that all limits of a domain hold, by the domain's number. The first is that of the limit that no
    /// policy has. The list only grows.
    domains: boxcar::Vec<Gauge>,
    /// The slots that all limits hold.
    held: Gauge,
    /// The shares of a limit and a domain of the slots, and of a limit of the rings of one size, where there are
    /// several.
    pub(crate) among_others: TableShares,
    /// Slots of the table.
    slots: usize,
    /// The slots that limits may hold now.
    bounds: ShareBounds,
    /// The slots that a domain may hold now.
    domain_max: Gauge,
    /// The keys that were put into an overflow bucket.
    pub(crate) overflowed: Counter,
    /// The checks and peeks whose key found no bucket.
    pub(crate) refused: Counter,
}

/// The number of slots of the table, or of rings of one size, that limits may hold; [`u64::MAX`] for any number.
#[derive(Debug, Default)]
pub(crate) struct ShareBounds {
    /// Slots (or rings) that a limit may hold, however many the others hold.
    limit_min: Gauge,
    /// Slots (or rings) that a limit may hold.
    limit_max: Gauge,
    /// Slots (or rings) that all limits together may hold, not counting those of limits below `limit_min`.
    all_max: Gauge,
}

impl ShareBounds {
    /// Returns bounds under which any limit may hold all.
    pub(crate) fn none() -> Self {
        let bounds = Self::default();
        bounds.set(0, TableShares::WHOLE, 0, 0);
        bounds
    }

    /// Shares `count` slots (or rings) out to `limits` limits, of which `of_many` are not of a single client.
    pub(crate) fn set(&self, count: usize, shares: TableShares, limits: usize, of_many: usize) {
        let all = part(count, TABLE_PERCENT.max(u8::midpoint(shares.limit_percent, 100)));
        let kept = (count as u64).saturating_sub(all);
        let bound = |is_bounded: bool, share: u64| if is_bounded { share } else { u64::MAX };
        // However many limits there are, a limit that holds nothing may take a kept slot.
        self.limit_min.set((kept / of_many.saturating_sub(2).max(1) as u64).max(kept.min(1)));
        self.limit_max.set(bound(limits > 1, part(count, shares.limit_percent)));
        self.all_max.set(bound(limits > 2, all));
    }

    /// Returns why a limit that holds `held`, while all hold `by_all`, may take only some slots, if so.
    pub(crate) fn shortage(&self, held: u64, by_all: u64) -> Option<Shortage> {
        if held >= self.limit_max.get() {
            Some(Shortage::Limit)
        } else if held >= self.limit_min.get() && by_all >= self.all_max.get() {
            Some(Shortage::All)
        } else {
            None
        }
    }
}

/// The slots and rings of one limit.
#[derive(Debug)]
struct LimitShare {
    held: Gauge,
    /// The number of the limit's domain.
    domain: Gauge,
    /// Rings that slots and overflow buckets of the limit's keys name.
    rings: Gauge,
    overflow: Box<[Cell128]>,
}

impl LimitShare {
    fn new(buckets: usize) -> Self {
        let overflow = (0..buckets).map(|_| Cell128::default()).collect();
        Self { held: Gauge::default(), domain: Gauge::default(), rings: Gauge::default(), overflow }
    }
}

/// The limit and the domain that a slot of the table counts for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SlotOwner {
    limit: u32,
    domain: u64,
}

/// The party that holds its share, so that a new key only takes slots that this party holds already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shortage {
    Limit,
    Domain,
    /// All limits together.
    All,
}

impl SlotShares {
    /// Makes shares under which each limit may hold all slots. The limit that no policy has gets so many overflow
    /// buckets.
    pub(crate) fn new(overflow_buckets: usize) -> Self {
        let shares = Self {
            limits: boxcar::Vec::new(),
            alone: LimitShare::new(overflow_buckets),
            domains: boxcar::Vec::new(),
            held: Gauge::default(),
            among_others: TableShares::WHOLE,
            slots: 0,
            bounds: ShareBounds::none(),
            domain_max: Gauge::default(),
            overflowed: Counter::default(),
            refused: Counter::default(),
        };
        shares.add_domain();
        shares.come_into_force(0, 0, 0);
        shares
    }

    /// Sets the shares of a limit and a domain in a table with so many slots, from the next policy on.
    pub(crate) fn set(&mut self, shares: TableShares, slots: usize) {
        (self.among_others, self.slots) = (shares, slots);
    }

    /// Sets what a limit and a domain may hold from now on, under a policy of this many limits, of which `of_many` are
    /// not of a single client, and domains.
    pub(crate) fn come_into_force(&self, limits: usize, of_many: usize, domains: usize) {
        self.bounds.set(self.slots, self.among_others, limits, of_many);
        let share = part(self.slots, self.among_others.domain_percent);
        self.domain_max.set(if domains > 1 { share } else { u64::MAX });
    }

    /// Adds a limit; returns its id.
    pub(crate) fn add(&self) -> u32 {
        self.limits.push(LimitShare::new(OVERFLOW_BUCKETS)) as u32
    }

    /// Adds a domain; returns its number.
    pub(crate) fn add_domain(&self) -> u32 {
        self.domains.push(Gauge::default()) as u32
    }

    /// Assigns a limit, which no slot names, to this domain from now on.
    pub(crate) fn bind(&self, limit: u32, domain: u32) {
        self.of(limit).domain.set(domain.into());
    }

    fn of(&self, limit: u32) -> &LimitShare {
        self.limits.get(limit as usize).unwrap_or(&self.alone)
    }

    /// Returns the number of slots of the table that the keys of `limit` hold, live or idle.
    pub(crate) fn held(&self, limit: u32) -> u64 {
        self.of(limit).held.get()
    }

    /// Returns the gauge of the rings that the keys of `limit` hold.
    pub(crate) fn rings(&self, limit: u32) -> &Gauge {
        &self.of(limit).rings
    }

    /// Returns the limit and the domain that a slot of the table counts for. Call it before the swap that changes the
    /// owner: see the head of this file.
    pub(crate) fn owner(&self, slot: Slot) -> Option<SlotOwner> {
        slot.owner().map(|limit| SlotOwner { limit, domain: self.of(limit).domain.get() })
    }

    /// Counts that a slot of the table went from one owner to another.
    pub(crate) fn passed(&self, before: Option<SlotOwner>, after: Option<SlotOwner>) {
        if before == after {
            return;
        }
        for (owner, slots) in [(before, -1), (after, 1)] {
            let Some(SlotOwner { limit, domain }) = owner else { continue };
            self.of(limit).held.add(slots);
            self.held.add(slots);
            if let Some(domain) = self.domains.get(domain as usize) {
                domain.add(slots);
            }
        }
    }

    /// Returns why new keys of `limit` may take only some slots, if so.
    pub(crate) fn shortage(&self, limit: u32) -> Option<Shortage> {
        let share = self.of(limit);
        let held = share.held.get();
        let shortage = self.bounds.shortage(held, self.held.get());
        let held_by_domain = || self.domains.get(share.domain.get() as usize).map_or(0, Gauge::get);
        let is_of_full_domain = || held >= self.bounds.limit_min.get() && held_by_domain() >= self.domain_max.get();
        if shortage != Some(Shortage::Limit) && is_of_full_domain() { Some(Shortage::Domain) } else { shortage }
    }

    /// Returns whether a new key of `limit` may take a slot of the table if it is idle. It may never take the slot of a
    /// limit outside of the shortage, which would then find fewer of its own.
    pub(crate) fn may_take(&self, limit: u32, shortage: Option<Shortage>, slot: Slot) -> bool {
        let domain = |limit| self.of(limit).domain.get();
        match shortage {
            None => true,
            Some(Shortage::Limit | Shortage::All) => slot.owner() == Some(limit),
            Some(Shortage::Domain) => slot.owner().is_some_and(|owner| domain(owner) == domain(limit)),
        }
    }

    /// Returns whether an idle slot of the table should be emptied for a new key of `limit`, or of a group that holds
    /// its share.
    pub(crate) fn may_empty(&self, limit: u32, shortage: Option<Shortage>, slot: Slot) -> bool {
        match shortage {
            Some(Shortage::Limit | Shortage::Domain) => self.may_take(limit, shortage, slot),
            Some(Shortage::All) | None => slot.owner().is_some(),
        }
    }

    pub(crate) fn overflow(&self, limit: u32) -> &[Cell128] {
        &self.of(limit).overflow
    }

    /// Returns the overflow buckets of all limits for which `concerns` is true.
    pub(crate) fn overflows(&self, concerns: impl Fn(u32) -> bool) -> impl Iterator<Item = &Cell128> {
        let limits = self.limits.iter().filter(move |(limit, _)| concerns(*limit as u32));
        limits.flat_map(|(_, share)| share.overflow.iter())
    }

    /// Returns whether every overflow bucket of `limit` is in use at `now`, so that a new key which finds no slot is
    /// denied.
    pub(crate) fn is_drained(&self, limit: u32, now: Nanos) -> bool {
        self.overflow(limit).iter().all(|cell| !Swap::load(cell).is_free(now))
    }
}

/// Returns `percent` of `slots`: at least [`SLOTS_MIN`], and [`u64::MAX`] from 100 % on.
fn part(slots: usize, percent: u8) -> u64 {
    if percent >= 100 { u64::MAX } else { (slots as u64 * u64::from(percent) / 100).max(SLOTS_MIN) }
}

#[cfg(all(test, not(engine_loom)))]
mod tests;
