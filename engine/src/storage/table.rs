//! The table of buckets: finds the slot of a key, makes room for new keys, and takes back idle slots.
//!
//! Bounded by construction, and never locked. A slot is 128 bits, tag and word, and changes only by a compare-and-swap of the
//! whole, so a swap that was meant for one key can never touch the bucket of another: whatever happened in between, the tag or
//! the word differs, or the state is the very same. An active slot is taken only while it is idle, which loses nothing; a live
//! one is never evicted.
//!
//! # Where a key may be
//!
//! A key has candidates in this order: its two lines of four slots each, which its hash chooses; the lines beside them, which
//! are the others of the two blocks of four lines that they are in; and the overflow buckets of its limit (`table_shares.rs`), which
//! are slots too, and are no other limit's. A new key takes an idle slot of its two lines, of the emptier one; where there is
//! none that it may take, one beside them; else an overflow bucket. Where no candidate is to be had the key is denied, and
//! nothing is charged.
//!
//! A bucket is one key's wherever it is, and stays where it is until it is idle. So nothing is shared with strangers, nothing
//! is inherited from them, and a key is never admitted more because it moved: it does not move. What a flood leaves behind
//! when it ends is idle or live slots of its own keys, and a new key that finds an idle one begins with all of its quota.
//!
//! The two lines alone are what a check looks at first ([`Table::find`]). The few keys that are elsewhere are found by the way
//! that new keys come.
//!
//! # First touch
//!
//! The one danger is that two threads put one key into two slots, which would double its limit.
//!
//! 1. A thread that finds no slot of its key *claims* a free one: it swaps in its key, marked claimed, with a nonce that
//!    no other attempt has.
//! 2. It scans all candidates. An active slot of the key: it takes the claim back and uses that. Several claims of the
//!    key: the one in the lowest place wins, and every other is swapped away to empty, by whoever sees it.
//! 3. It swaps the winner to active, together with its own charge. Any thread may do this for any winner, but only after
//!    a scan that began when the winner's claim, with this nonce, was already there. It decides the charge anew, at a time
//!    read after that scan: the key's last bucket may have been taken over as idle at a time that this check, long stalled,
//!    had not reached.
//!
//! *Why no two are active at once.* Suppose claims c1 and c2 of one key are, made so after scans S1 and S2. All accesses
//! are in one total order. S2 did not meet c1, neither as a claim (it would have swapped it away, and the nonce keeps a
//! late swap from succeeding) nor active; so c1 was published after S2 read its place. But S1 began after c1 was
//! published, so after S2 began, so after c2 was published: S1 met c2, and swapped it away or found it active.
//! Contradiction. One that was active and was taken over or emptied as idle in between is no longer active; that it loses
//! nothing is what the time read anew is for: it is not before the time at which the bucket was found idle. The proof asks of
//! the candidates only that all scans of a key read the same ones, in whatever kind of place they are: which of them a claim
//! may take, which shares decide, is another matter.
//!
//! *Why nobody waits.* A thread that stops leaves at most a claim behind. Threads with the same key finish it or swap it
//! away; threads with other keys see one slot less. Activating carries a charge, so whoever makes another thread's
//! attempt fail has finished its own.

mod candidates;
mod key_lines;
mod log_rings;
mod sweep;

use std::fmt;

use crossbeam_utils::CachePadded;

use crate::{
    base::{
        atomic::{Cell128, Counter},
        time::Nanos,
    },
    storage::{
        alloc::{Lines, WAYS},
        atomic_update::{Next, Swap, update},
        caller_groups::{Group, Groups, NO_GROUP},
        layout::{Held, KeyBits, LIMITS_MAX, Slot, State},
        log_pool::Rings,
        table_shares::{OVERFLOW_BUCKETS, RECLAIMED, Shares, Shortage, SlotOwner, TableShares},
    },
};

/// Bytes of table per key that it is made for: the slots of 1.5 keys.
pub const BYTES_PER_KEY: usize = 24;

/// A key, hashed: where its slots are and how they are marked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Key {
    bits: KeyBits,
    hash: u64,
}

impl Key {
    /// `limit` is the id of a limit (below 2^20), `hash` the keyed hash of the limit's name and what it counts.
    pub(crate) fn new(limit: u32, hash: u64) -> Self {
        debug_assert!((limit as usize) < LIMITS_MAX);
        Self { bits: KeyBits::new(limit, hash), hash }
    }

    pub(crate) fn bits(self) -> KeyBits {
        self.bits
    }

    pub(crate) fn hash(self) -> u64 {
        self.hash
    }
}

/// No candidate is free for a new key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Full {
    /// The instant from which one is, if no other key takes it; the end of time where none says.
    pub(crate) idle_at: Nanos,
}

/// The events that an operation met on its way: the evidence of concurrency tests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Met {
    /// Lost races.
    pub(crate) retries: u64,
    /// Slots taken over from an idle key.
    pub(crate) reuses: u64,
    /// Claims of other threads that were swapped away or made active.
    pub(crate) resolved: u64,
}

pub(crate) struct Table {
    lines: Lines,
    /// New keys write it, every check reads what stands before it.
    nonces: CachePadded<Counter>,
    /// The rings, which the words of some slots name. A thread that swaps such a word for one that names the ring no more puts it back.
    pub(crate) rings: Rings,
    /// New keys write it.
    pub(crate) shares: CachePadded<Shares>,
    /// Where each caller has a share of it; `None` elsewhere.
    pub(crate) groups: Option<Groups>,
    /// How often slots were looked through for idle ones of a limit that holds its share.
    reclaims: CachePadded<Counter>,
}

pub(crate) use key_lines::KeyLines;

/// A cell and what it held when it was read.
pub(crate) type Seen<'t> = (&'t Cell128, Slot);

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // There are millions of slots.
        f.debug_struct("Table").field("lines", &self.lines.len()).finish_non_exhaustive()
    }
}

impl Table {
    /// A table for `max_keys` live keys, of which any limit may have all.
    pub(crate) fn new(max_keys: usize) -> Self {
        Self::with_overflow(max_keys, OVERFLOW_BUCKETS)
    }

    /// Returns a table with so many overflow buckets of the limit that no policy has.
    fn with_overflow(max_keys: usize, overflow_buckets: usize) -> Self {
        let lines = max_keys.saturating_mul(BYTES_PER_KEY).div_ceil(size_of::<Slot>() * WAYS);
        Self {
            lines: Lines::new(lines),
            nonces: CachePadded::default(),
            rings: Rings::new(max_keys),
            shares: CachePadded::new(Shares::new(overflow_buckets)),
            groups: None,
            reclaims: CachePadded::default(),
        }
    }

    /// Sets what a limit and a domain may have of it, from the next policy on.
    pub(crate) fn share(&mut self, shares: TableShares) {
        let slots = self.slots();
        self.shares.set(shares, slots);
    }

    /// Gives each group of callers a share of it. For an empty table.
    pub(crate) fn share_by_group(&mut self) {
        self.groups = Some(Groups::new(self.slots()));
    }

    fn cells(&self) -> &[Cell128] {
        self.lines.as_flattened()
    }

    /// Returns what is held for `key`, if it has a bucket.
    #[inline]
    pub(crate) fn get(&self, key: Key) -> Option<Held> {
        self.find_anywhere(key).map(|(_, slot)| slot.held())
    }

    /// How many claims were made so far: one for each first touch, or more.
    #[inline(always)]
    pub(crate) fn claims(&self) -> u64 {
        self.nonces.count()
    }

    /// Returns the two lines of the keys with this hash.
    #[inline(always)]
    pub(crate) fn key_lines(&self, hash: u64) -> KeyLines<'_> {
        KeyLines { hash, lines: self.lines.of(hash) }
    }

    /// Applies `transition` to what is held for `key` and the time of the decision; to `None` when it has no bucket. A write
    /// then takes a candidate that is free at `now`, and is decided anew at `read_clock`.
    ///
    /// `transition` must be pure: it is called again after every lost race.
    pub(crate) fn update<T>(
        &self,
        key: Key,
        now: Nanos,
        read_clock: impl Fn() -> Nanos,
        met: &mut Met,
        transition: impl FnMut(Option<Held>, Nanos) -> Next<Held, T>,
    ) -> Result<T, Full> {
        self.update_by(NO_GROUP, key, now, read_clock, met, transition)
    }

    /// Updates the bucket of a key, as [`update`](Self::update) does, for a caller of this group.
    pub(crate) fn update_by<T>(
        &self,
        group: Group,
        key: Key,
        now: Nanos,
        read_clock: impl Fn() -> Nanos,
        met: &mut Met,
        mut transition: impl FnMut(Option<Held>, Nanos) -> Next<Held, T>,
    ) -> Result<T, Full> {
        loop {
            if let Some((cell, seen)) = self.find_anywhere(key) {
                let mut left = None;
                // `None` when the slot changed hands: then look again.
                let outcome = update(cell, seen, &mut met.retries, |slot| {
                    left = None;
                    if slot.state() != State::Active || !slot.holds(key.bits) {
                        return Next::Leave(None);
                    }
                    match transition(Some(slot.held()), now) {
                        Next::Leave(answer) => Next::Leave(Some(answer)),
                        Next::Write(held, answer) => {
                            let after = Slot::active(key.bits, held);
                            left = slot.ring_left_for(after);
                            Next::Write(after, Some(answer))
                        }
                    }
                });
                self.put_back(key.bits.limit(), left);
                if let Some(answer) = outcome {
                    return Ok(answer);
                }
            } else {
                // Refused at a time read now: what was used at an older one may have been forgotten since.
                if let Next::Leave(_) = transition(None, now)
                    && let Next::Leave(answer) = transition(None, read_clock())
                {
                    return Ok(answer);
                }
                if let Some(answer) = self.insert(group, key, now, met, || transition(None, read_clock()))? {
                    return Ok(answer);
                }
            }
        }
    }

    /// Changes the key's bucket, if it has one and `to` wants to; returns whether it did.
    pub(crate) fn change(&self, key: Key, to: impl Fn(Held) -> Option<Held>) -> bool {
        // No clock is needed: without a bucket nothing is written, so a full table is not met either.
        let outcome = self.update(
            key,
            0,
            || 0,
            &mut Met::default(),
            |held, _| held.and_then(&to).map_or(Next::Leave(false), |held| Next::Write(held, true)),
        );
        outcome == Ok(true)
    }

    /// Says whether a key without a bucket would find one at `now`, for a caller of this group. Changes the bucket of no live key.
    #[cold]
    pub(crate) fn find_room(&self, group: Group, key: Key, now: Nanos) -> Result<(), Full> {
        let scan = self.scan(group, key, now);
        let has_room = scan.active || !scan.claims.is_empty() || scan.free.is_some();
        if has_room { Ok(()) } else { Err(Full { idle_at: scan.idle_at }) }
    }

    /// How many slots it has, live or free.
    pub(crate) fn slots(&self) -> usize {
        self.cells().len()
    }

    /// Finds the key's active slot in its two lines, and reads it; a key may be elsewhere.
    #[inline(always)]
    pub(crate) fn find(&self, key: Key) -> Option<Seen<'_>> {
        let is_it = |slot: &Slot| slot.holds(key.bits) && slot.state() == State::Active;
        self.key_lines(key.hash).find(|cell| Some(Swap::load(cell)).filter(is_it))
    }

    /// Finds the key's active slot among all candidates, and reads it.
    #[inline]
    fn find_anywhere(&self, key: Key) -> Option<Seen<'_>> {
        self.find(key).or_else(|| self.find_elsewhere(key))
    }

    /// Counts a check or a look of this group for whose key there was no bucket.
    pub(crate) fn count_refused(&self, group: Group) {
        match &self.groups {
            Some(groups) if groups.has_share(group) => groups.count_refused(),
            _ => self.shares.count_refused(),
        }
    }

    /// Empties idle slots, for a new key of a limit, among the next few of the table: those of what holds its share; any where
    /// the limit is short of none.
    #[cold]
    fn reclaim(&self, limit: u32, shortage: Option<Shortage>, now: Nanos) {
        let count = RECLAIMED.min(self.cells().len());
        let first = (self.reclaims.next() as usize).wrapping_mul(count);
        for place in 0..count {
            let cell = &self.cells()[first.wrapping_add(place) % self.cells().len()];
            let slot: Slot = Swap::load(cell);
            if self.shares.may_empty(limit, shortage, slot) && slot.is_free(now) && self.empty(cell, slot) {
                self.put_back(slot.limit(), slot.ring());
            }
        }
    }

    /// Swaps a slot for one of another owner, whose key this group brings, and counts it; returns whether it did.
    fn hand_over(&self, cell: &Cell128, before: Slot, after: Slot, group: Group) -> bool {
        let (owner, next) = (self.shares.owner(before), self.shares.owner(after));
        let is_done = cell.swap(before, after).is_ok();
        if is_done {
            self.passed(cell, owner, next, group);
        }
        is_done
    }

    /// Swaps a slot for an empty one, and counts it; returns whether it did.
    fn empty(&self, cell: &Cell128, before: Slot) -> bool {
        self.hand_over(cell, before, Slot::EMPTY, NO_GROUP)
    }

    /// Counts that a slot has another owner, and is of this group, if it is the table's.
    fn passed(&self, cell: &Cell128, before: Option<SlotOwner>, after: Option<SlotOwner>, group: Group) {
        let Some(place) = self.place_of(cell) else { return };
        self.shares.passed(before, after);
        if let Some(groups) = &self.groups {
            groups.change_owner(place, group);
        }
    }

    /// Returns the place of a slot in the table. `None`: it is an overflow bucket.
    fn place_of(&self, cell: &Cell128) -> Option<usize> {
        let bytes = std::ptr::from_ref(cell).addr().checked_sub(self.cells().as_ptr().addr())?;
        Some(bytes / size_of::<Cell128>()).filter(|place| *place < self.cells().len())
    }

    /// Returns the group whose key has this slot of the table.
    fn group_of(&self, cell: &Cell128) -> Option<Group> {
        Some(self.groups.as_ref()?.of(self.place_of(cell)?))
    }

    /// Gives the key a bucket with what `transition` writes: see the head of this file. `None` when it turned out to have one.
    #[cold]
    fn insert<T>(
        &self,
        group: Group,
        key: Key,
        now: Nanos,
        met: &mut Met,
        mut transition: impl FnMut() -> Next<Held, T>,
    ) -> Result<Option<T>, Full> {
        let mut mine: Option<Seen<'_>> = None;
        let take_back = |mine: Option<Seen<'_>>| {
            if let Some((cell, claim)) = mine {
                // Fails when another thread swapped it away, or made it the active one.
                self.empty(cell, claim);
            }
        };
        // The winning claim that was there before the scan under way began.
        let mut known: Option<Slot> = None;
        loop {
            let scan = self.scan(group, key, now);
            if scan.active {
                take_back(mine);
                return Ok(None);
            }
            let Some((&(cell, winner), others)) = scan.claims.split_first() else {
                let (cell, free) = scan.free.ok_or(Full { idle_at: scan.idle_at })?;
                let claim = Slot::claimed(key.bits, self.nonces.next());
                if self.hand_over(cell, free, claim, group) {
                    met.reuses += u64::from(free != Slot::EMPTY);
                    self.put_back(free.limit(), free.ring());
                    if scan.is_overflow {
                        self.shares.count_overflowed();
                    }
                    (mine, known) = (Some((cell, claim)), Some(claim));
                } else {
                    met.retries += 1;
                }
                continue;
            };
            let is_foreign = |claim: Slot| u64::from(mine.is_none_or(|(_, mine)| mine != claim));
            let others_are_gone = others.iter().all(|&(cell, claim)| {
                met.resolved += is_foreign(claim);
                self.empty(cell, claim)
            });
            if others_are_gone && known == Some(winner) {
                let (held, answer) = match transition() {
                    Next::Write(held, answer) => (held, answer),
                    Next::Leave(answer) => {
                        take_back(mine);
                        return Ok(Some(answer));
                    }
                };
                met.resolved += is_foreign(winner);
                if cell.swap(winner, Slot::active(key.bits, held)).is_ok() {
                    return Ok(Some(answer));
                }
                met.retries += 1;
            }
            known = Some(winner);
        }
    }
}

#[cfg(all(test, engine_loom))]
mod models;
#[cfg(all(test, not(engine_loom)))]
mod stress;
#[cfg(all(test, not(engine_loom)))]
mod tests;
