//! The table of buckets: finds the slot of a key, makes room for new keys, and takes back idle slots.
//!
//! The table has a fixed size and no locks. A slot is 128 bits, a tag and a bucket state, and changes only by a
//! compare-and-swap of the whole. So a swap that was meant for one key can never change the bucket of another: whatever
//! happened in between, the tag or the state differs, or the slot is exactly the same. An active slot is taken only
//! while it is idle, which loses nothing; a live slot is never evicted.
//!
//! # Where a key may be
//!
//! A key has candidates in this order: its two lines of four slots each, which its hash chooses; the lines beside them,
//! which are the others of the two blocks of four lines that they are in; and the overflow buckets of its limit
//! (`table_shares.rs`), which are slots of that limit alone. A new key takes an idle slot of the emptier of its two
//! lines; if it may take none there, a slot beside them; else an overflow bucket. A key for which no candidate is free
//! is denied, and nothing is charged.
//!
//! A bucket belongs to one key wherever it is, and stays where it is until it is idle. So no key shares a bucket with
//! another or inherits from it, and no key is admitted more because it moved: it does not move. What a flood leaves
//! behind when it ends is idle or live slots of its own keys, and a new key that finds an idle one begins with all of
//! its quota.
//!
//! A check looks at the two lines first ([`Table::find`]). The few keys that are elsewhere are found by the same search
//! as new keys.
//!
//! # First touch
//!
//! The one danger is that two threads put one key into two slots, which would double its limit.
//!
//! 1. A thread that finds no slot of its key *claims* a free one: it swaps in its key, marked claimed, with a nonce
//!    that no other attempt has.
//! 2. It scans all candidates. If it finds an active slot of the key, it takes the claim back and uses that slot. If it
//!    finds several claims of the key, the one in the lowest place wins, and every thread that sees the others swaps
//!    them away to empty.
//! 3. It swaps the winner to active, together with its own charge. Any thread may do this for any winner, but only
//!    after a scan that began when the winner's claim, with this nonce, was already there. It decides the charge anew,
//!    at a time read after that scan: the key's last bucket may have been taken over as idle at a time that this check,
//!    long stalled, had not reached.
//!
//! *Why no two slots of a key are active at once.* Suppose the claims c1 and c2 of one key both became active, after
//! the scans S1 and S2. All accesses are in one total order. S2 did not meet c1, neither as a claim (it would have
//! swapped it away, and the nonce keeps a late swap from succeeding) nor active; so c1 was published after S2 read its
//! place. But S1 began after c1 was published, so after S2 began, so after c2 was published: S1 met c2, and swapped it
//! away or found it active. Contradiction. An active slot that was taken over or emptied as idle in between is no
//! longer active, and the time that is read anew is why that loses nothing: it is not before the time at which the
//! bucket was found idle. The proof requires of the candidates only that all scans of a key read the same ones, in
//! whatever kind of place they are. The shares, which decide which of them a claim may take, do not matter to it.
//!
//! *Why no thread waits.* A thread that stops leaves at most a claim behind. Threads with the same key finish it or
//! swap it away; threads with other keys see one slot less. Activating carries a charge, so a thread that makes another
//! thread's attempt fail has finished its own.

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
        caller_groups::{CallerGroup, CallerGroups, NO_GROUP},
        layout::{BucketState, KeyBits, LIMITS_MAX, Slot, SlotState},
        log_pool::LogPool,
        table_shares::{OVERFLOW_BUCKETS, RECLAIMED, Shortage, SlotOwner, SlotShares, TableShares},
    },
};

/// Bytes of table for each key of `max_keys`: the slots of 1.5 keys.
pub const BYTES_PER_KEY: usize = 24;

/// A hashed key: its slots are found by the hash, and marked with the bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HashedKey {
    bits: KeyBits,
    hash: u64,
}

impl HashedKey {
    /// Makes a key of the id of a limit (below 2^20) and the keyed hash of the limit's name and the counted identity.
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

/// The error for a new key for which no candidate is free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TableFull {
    /// The instant from which a candidate is free if no other key takes it; the end of time where no candidate says
    /// when.
    pub(crate) idle_at: Nanos,
}

/// The races that an operation met: the evidence of concurrency tests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RaceCounts {
    /// Lost races.
    pub(crate) retries: u64,
    /// Slots taken over from an idle key.
    pub(crate) reuses: u64,
    /// Claims of other threads that this one swapped away or made active.
    pub(crate) resolved: u64,
}

/// The slots of all keys of an engine or a limiter, the rings that some of them name, and their shares.
pub(crate) struct Table {
    lines: Lines,
    /// The last nonce of a claim. Every check reads the field before it and only new keys write this one, so it has a
    /// cache line of its own.
    nonces: CachePadded<Counter>,
    /// The rings that the states of some slots name. The thread whose swap removes the last name of a ring puts the
    /// ring back.
    pub(crate) rings: LogPool,
    /// The shares of limits and domains. New keys write their counts.
    pub(crate) shares: CachePadded<SlotShares>,
    /// The shares of caller groups, where callers have any.
    pub(crate) groups: Option<CallerGroups>,
    /// The number of searches for idle slots of limits that hold their shares.
    reclaims: CachePadded<Counter>,
}

pub(crate) use key_lines::KeyLines;

/// A cell, and the slot that it held when it was read.
pub(crate) type SlotSnapshot<'t> = (&'t Cell128, Slot);

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // There are millions of slots.
        f.debug_struct("Table").field("lines", &self.lines.len()).finish_non_exhaustive()
    }
}

impl Table {
    /// Makes a table for `max_keys` live keys, of which any limit may have all.
    pub(crate) fn new(max_keys: usize) -> Self {
        Self::with_overflow(max_keys, OVERFLOW_BUCKETS)
    }

    /// Makes a table in which the limit that no policy has gets so many overflow buckets.
    fn with_overflow(max_keys: usize, overflow_buckets: usize) -> Self {
        let lines = max_keys.saturating_mul(BYTES_PER_KEY).div_ceil(size_of::<Slot>() * WAYS);
        Self {
            lines: Lines::new(lines),
            nonces: CachePadded::default(),
            rings: LogPool::new(max_keys),
            shares: CachePadded::new(SlotShares::new(overflow_buckets)),
            groups: None,
            reclaims: CachePadded::default(),
        }
    }

    /// Sets the shares of a limit and of a domain, from the next policy on.
    pub(crate) fn share(&mut self, shares: TableShares) {
        let slots = self.slots();
        self.shares.set(shares, slots);
    }

    /// Gives each group of callers a share. The table must be empty.
    pub(crate) fn share_by_group(&mut self) {
        self.groups = Some(CallerGroups::new(self.slots()));
    }

    fn cells(&self) -> &[Cell128] {
        self.lines.as_flattened()
    }

    /// Returns the state of the key's bucket, if it has one.
    #[inline]
    pub(crate) fn get(&self, key: HashedKey) -> Option<BucketState> {
        self.find_anywhere(key).map(|(_, slot)| slot.held())
    }

    /// Returns the number of claims so far: one for each first touch, or more.
    #[inline(always)]
    pub(crate) fn claims(&self) -> u64 {
        self.nonces.count()
    }

    /// Returns the two lines of the keys with this hash.
    #[inline(always)]
    pub(crate) fn key_lines(&self, hash: u64) -> KeyLines<'_> {
        KeyLines { hash, lines: self.lines.of(hash) }
    }

    /// Applies `transition` to the state of the key's bucket and the time of the decision, or to `None` when the key
    /// has no bucket. A write for a key without a bucket takes a candidate that is free at `now`, and is decided anew
    /// at `read_clock`.
    ///
    /// `transition` must be pure: it is called again after every lost race.
    pub(crate) fn update<T>(
        &self,
        key: HashedKey,
        now: Nanos,
        read_clock: impl Fn() -> Nanos,
        met: &mut RaceCounts,
        transition: impl FnMut(Option<BucketState>, Nanos) -> Next<BucketState, T>,
    ) -> Result<T, TableFull> {
        self.update_by(NO_GROUP, key, now, read_clock, met, transition)
    }

    /// Updates the bucket of a key as [`update`](Self::update) does, for a caller of this group.
    pub(crate) fn update_by<T>(
        &self,
        group: CallerGroup,
        key: HashedKey,
        now: Nanos,
        read_clock: impl Fn() -> Nanos,
        met: &mut RaceCounts,
        mut transition: impl FnMut(Option<BucketState>, Nanos) -> Next<BucketState, T>,
    ) -> Result<T, TableFull> {
        loop {
            if let Some((cell, seen)) = self.find_anywhere(key) {
                let mut left = None;
                // `None` when the slot went to another key: then search again.
                let outcome = update(cell, seen, &mut met.retries, |slot| {
                    left = None;
                    if slot.state() != SlotState::Active || !slot.holds(key.bits) {
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
                // A refusal counts only at a time read now: what was used before `now` may have been forgotten since.
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

    /// Changes the key's bucket to what `to` returns, if the key has a bucket and `to` returns a state. Returns whether
    /// it did.
    pub(crate) fn change(&self, key: HashedKey, to: impl Fn(BucketState) -> Option<BucketState>) -> bool {
        // No clock is needed: for a key without a bucket nothing is written, so the table cannot be full either.
        let outcome = self.update(
            key,
            0,
            || 0,
            &mut RaceCounts::default(),
            |held, _| held.and_then(&to).map_or(Next::Leave(false), |held| Next::Write(held, true)),
        );
        outcome == Ok(true)
    }

    /// Returns whether a key without a bucket would find one at `now`, for a caller of this group. Changes the bucket
    /// of no live key.
    #[cold]
    pub(crate) fn find_room(&self, group: CallerGroup, key: HashedKey, now: Nanos) -> Result<(), TableFull> {
        let scan = self.scan(group, key, now);
        let has_room = scan.active || !scan.claims.is_empty() || scan.free.is_some();
        if has_room { Ok(()) } else { Err(TableFull { idle_at: scan.idle_at }) }
    }

    /// Returns the number of slots, live or free.
    pub(crate) fn slots(&self) -> usize {
        self.cells().len()
    }

    /// Finds the key's active slot in its two lines, and reads it. The key may be in another candidate.
    #[inline(always)]
    pub(crate) fn find(&self, key: HashedKey) -> Option<SlotSnapshot<'_>> {
        let is_it = |slot: &Slot| slot.holds(key.bits) && slot.state() == SlotState::Active;
        self.key_lines(key.hash).find(|cell| Some(Swap::load(cell)).filter(is_it))
    }

    /// Finds the key's active slot among all candidates, and reads it.
    #[inline]
    fn find_anywhere(&self, key: HashedKey) -> Option<SlotSnapshot<'_>> {
        self.find(key).or_else(|| self.find_elsewhere(key))
    }

    /// Counts a check or a peek of this group whose key found no bucket.
    pub(crate) fn count_refused(&self, group: CallerGroup) {
        match &self.groups {
            Some(groups) if groups.has_share(group) => groups.refused.next(),
            _ => self.shares.refused.next(),
        };
    }

    /// Empties idle slots among the next [`RECLAIMED`] of the table, for a new key of a limit: those of the limit or
    /// domain that holds its share, or any where there is no such shortage.
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

    /// Swaps a slot for one of another owner, whose key this group brought, and counts the change. Returns whether it
    /// did.
    fn hand_over(&self, cell: &Cell128, before: Slot, after: Slot, group: CallerGroup) -> bool {
        let (owner, next) = (self.shares.owner(before), self.shares.owner(after));
        let is_done = cell.swap(before, after).is_ok();
        if is_done {
            self.passed(cell, owner, next, group);
        }
        is_done
    }

    /// Swaps a slot for an empty one, and counts the change. Returns whether it did.
    fn empty(&self, cell: &Cell128, before: Slot) -> bool {
        self.hand_over(cell, before, Slot::EMPTY, NO_GROUP)
    }

    /// Counts that a slot of the table has another owner, and belongs to this group. Overflow buckets are not counted.
    fn passed(&self, cell: &Cell128, before: Option<SlotOwner>, after: Option<SlotOwner>, group: CallerGroup) {
        let Some(place) = self.place_of(cell) else { return };
        self.shares.passed(before, after);
        if let Some(groups) = &self.groups {
            groups.change_owner(place, group);
        }
    }

    /// Returns the index of a slot in the table; `None` for an overflow bucket.
    fn place_of(&self, cell: &Cell128) -> Option<usize> {
        let bytes = std::ptr::from_ref(cell).addr().checked_sub(self.cells().as_ptr().addr())?;
        Some(bytes / size_of::<Cell128>()).filter(|place| *place < self.cells().len())
    }

    /// Returns the group whose key has this slot of the table.
    fn group_of(&self, cell: &Cell128) -> Option<CallerGroup> {
        Some(self.groups.as_ref()?.of(self.place_of(cell)?))
    }

    /// Gives the key a bucket with the state that `transition` writes, by the protocol at the head of this file.
    /// `None`: the key turned out to have a bucket.
    #[cold]
    fn insert<T>(
        &self,
        group: CallerGroup,
        key: HashedKey,
        now: Nanos,
        met: &mut RaceCounts,
        mut transition: impl FnMut() -> Next<BucketState, T>,
    ) -> Result<Option<T>, TableFull> {
        let mut mine: Option<SlotSnapshot<'_>> = None;
        let take_back = |mine: Option<SlotSnapshot<'_>>| {
            if let Some((cell, claim)) = mine {
                // Fails when another thread swapped the claim away, or made it active.
                self.empty(cell, claim);
            }
        };
        // The winning claim that existed before the present scan began.
        let mut known: Option<Slot> = None;
        loop {
            let scan = self.scan(group, key, now);
            if scan.active {
                take_back(mine);
                return Ok(None);
            }
            let Some((&(cell, winner), others)) = scan.claims.split_first() else {
                let (cell, free) = scan.free.ok_or(TableFull { idle_at: scan.idle_at })?;
                let claim = Slot::claimed(key.bits, self.nonces.next());
                if self.hand_over(cell, free, claim, group) {
                    met.reuses += u64::from(free != Slot::EMPTY);
                    self.put_back(free.limit(), free.ring());
                    if scan.is_overflow {
                        self.shares.overflowed.next();
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
