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

use std::fmt;

use arrayvec::ArrayVec;
use crossbeam_utils::CachePadded;

use crate::{
    base::{
        atomic::{Cell128, Counter},
        native128::Native128,
        time::Nanos,
    },
    storage::{
        alloc::{Line, Lines, WAYS, prefetch},
        atomic_update::{Next, Swap, update},
        caller_groups::{Group, Groups, NO_GROUP},
        layout::{Held, KeyBits, LIMITS_MAX, RingId, RingWord, Slot, State, is_tag},
        log_pool::{Rings, Spare},
        table_shares::{OVERFLOW_BUCKETS, OVERFLOW_BUCKETS_MAX, RECLAIMED, Shares, Shortage, SlotOwner, TableShares},
        two_choice::places,
    },
};

/// Lines of a block.
const BLOCK: usize = 4;

/// The most candidates of a key: the slots of two blocks, and the overflow buckets of its limit.
const CANDIDATES_MAX: usize = 2 * BLOCK * WAYS + OVERFLOW_BUCKETS_MAX;

/// About so many slots tell how full it is.
const FILL_SLOTS: usize = 4_096;

/// A table of more slots, 1 GiB, is not looked through to count its keys.
const COUNTED_SLOTS_MAX: usize = 1 << 27;

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

/// The two lines of a key, and its hash.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyLines<'t> {
    pub(crate) hash: u64,
    lines: [&'t Line; 2],
}

impl<'t> KeyLines<'t> {
    /// Has the processor fetch both lines while other keys are checked: in a table just filled three keys in ten are in the second
    /// one, and later, when there is no empty slot, up to half.
    #[inline(always)]
    pub(crate) fn prefetch(self) {
        self.lines.into_iter().for_each(|line| prefetch(line));
    }

    /// Has the processor fetch both lines by loads whose values are not used: they cannot be dropped, as prefetches are where many
    /// lines are on their way. But they hold up what comes some hundred instructions later until the lines are there.
    #[inline(always)]
    pub(crate) fn fetch(self, native: Option<Native128>) {
        let Some(native) = native else { return self.prefetch() };
        for line in self.lines {
            let _unused = line[0].load_lower(native);
        }
    }

    /// Finds the slot that has this [plain tag](crate::storage::layout::PlainTag), but perhaps for its lease. Answers the whole tag too.
    ///
    /// Only the tag is read, which is a hint: the slot may have another by the time that its word is read.
    #[inline(always)]
    pub(crate) fn find_tag(self, native: Native128, tag: u64) -> Option<(&'t Cell128, u64)> {
        prefetch(self.lines[1]);
        // Most keys are there, so a lease is asked for only where it is not.
        let preferred = &self.lines[0][self.hash as usize % WAYS];
        if preferred.load_upper(native) == tag {
            return Some((preferred, tag));
        }
        self.find(|cell| Some(cell.load_upper(native)).filter(|seen| is_tag(*seen, tag)))
    }

    /// Finds the same slot as [`find_tag`](Self::find_tag), and reads it, without instructions that the processor may lack.
    pub(crate) fn find_tag_by_calls(self, tag: u64) -> Option<Seen<'t>> {
        self.find(|cell| Some(Swap::load(cell)).filter(|slot: &Slot| is_tag(slot.tag(), tag)))
    }

    /// Returns the first slot of which `is_it` answers something. Each line begins at the slot that the key prefers. The second
    /// line comes from memory while the first is read.
    #[inline(always)]
    fn find<T>(self, is_it: impl Fn(&Cell128) -> Option<T>) -> Option<(&'t Cell128, T)> {
        let Self { hash, lines } = self;
        prefetch(lines[1]);
        for line in lines {
            for way in 0..WAYS {
                let cell = &line[(hash as usize % WAYS + way) % WAYS];
                if let Some(found) = is_it(cell) {
                    return Some((cell, found));
                }
            }
        }
        None
    }
}

/// A cell and what it held when it was read.
pub(crate) type Seen<'t> = (&'t Cell128, Slot);

/// The outcome of a scan of all candidates of a key.
struct Scan<'t> {
    active: bool,
    /// Claims of the key, lowest place first.
    claims: ArrayVec<Seen<'t>, CANDIDATES_MAX>,
    free: Option<Seen<'t>>,
    /// It is an overflow bucket.
    is_overflow: bool,
    /// When the first of the candidates is free that the key may take, where none is.
    idle_at: Nanos,
}

impl<'t> Scan<'t> {
    /// Reads each of some candidates once. Returns how many are free that the key may take, and which of them has been idle for
    /// the longest.
    fn read(
        &mut self,
        cells: impl Iterator<Item = &'t Cell128>,
        key: Key,
        now: Nanos,
        may_take: impl Fn(&Cell128, Slot) -> bool,
    ) -> (usize, Option<Seen<'t>>) {
        let (mut free, mut oldest) = (0, None::<Seen<'t>>);
        for cell in cells {
            let slot = Swap::load(cell);
            if slot.holds(key.bits) {
                if slot.state() == State::Active {
                    self.active = true;
                } else {
                    self.claims.push((cell, slot));
                }
            } else if may_take(cell, slot) {
                if slot.is_free(now) {
                    free += 1;
                    if oldest.is_none_or(|(_, oldest)| slot.idle_since() < oldest.idle_since()) {
                        oldest = Some((cell, slot));
                    }
                } else {
                    self.idle_at = self.idle_at.min(slot.idle_at());
                }
            }
        }
        (free, oldest)
    }
}

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

    /// The part of the slots that are live at `now`, of a few thousand that are spread over all.
    pub(crate) fn fill(&self, now: Nanos) -> f64 {
        let step = (self.cells().len() / FILL_SLOTS).max(1);
        // Off the multiples of a line, so that every place in one has its share.
        let looked_at = self.cells().iter().step_by(if step > 1 { step | 1 } else { step });
        let (live, all) = looked_at
            .fold((0u32, 0u32), |(live, all), cell| (live + u32::from(!Swap::load(cell).is_free(now)), all + 1));
        f64::from(live) / f64::from(all.max(1))
    }

    /// Counts the slots and overflow buckets that are live at `now`, one by one. `None`: there are more than `most`, or too many
    /// slots to look at each.
    pub(crate) fn count_live(&self, now: Nanos, most: usize) -> Option<usize> {
        if self.slots() > COUNTED_SLOTS_MAX {
            return None;
        }
        let cells = self.cells().iter().chain(self.shares.overflows(|_| true));
        let live = cells.filter(|cell| !Swap::load(*cell).is_free(now)).take(most.saturating_add(1)).count();
        (live <= most).then_some(live)
    }

    /// How many slots it has, live or free.
    pub(crate) fn slots(&self) -> usize {
        self.cells().len()
    }

    /// Passes every bucket of the limits that `concerns` to `convert` once; a bucket that changes meanwhile is passed
    /// again, and so is one whose ring `convert` has closed. What `convert` answers may name the ring that it hands out.
    /// Claims are swapped away, so that no check which began before the sweep makes one active after it.
    pub(crate) fn sweep<'t>(
        &'t self,
        concerns: impl Fn(u32) -> bool,
        convert: impl Fn(u32, Held, &mut Option<Spare<'t>>) -> Held,
    ) {
        for cell in self.cells().iter().chain(self.shares.overflows(&concerns)) {
            let pass = || {
                let (mut limit, mut left, mut spare, mut claim) = (0, None, None, None);
                let is_closed = update(cell, Swap::load(cell), &mut 0, |slot: Slot| {
                    // Of an attempt that failed.
                    (left, spare, claim) = (None, None, None);
                    match slot.state() {
                        State::Active if concerns(slot.limit()) => {
                            let held = convert(slot.limit(), slot.held(), &mut spare);
                            let after = Slot::active(slot.key(), held);
                            (limit, left) = (slot.limit(), slot.ring_left_for(after));
                            Next::Write(after, held.ring().is_some_and(RingWord::is_closed))
                        }
                        State::Claimed if concerns(slot.limit()) => {
                            claim = Some(slot);
                            Next::Write(Slot::EMPTY, false)
                        }
                        _ => Next::Leave(false),
                    }
                });
                if let Some(claim) = claim {
                    self.passed(cell, self.shares.owner(claim), None, NO_GROUP);
                }
                self.put_back(limit, left);
                self.keep(limit, spare);
                is_closed
            };
            while pass() {}
        }
    }

    /// Empties the slots and overflow buckets of limits that `concerns`, where the slot `goes`, and claims of their keys; passes
    /// the limits of the others to `stays`. For limits that no check can reach; an idle slot of theirs may be taken by another
    /// key meanwhile.
    pub(crate) fn clear(
        &self,
        concerns: impl Fn(u32) -> bool,
        goes: impl Fn(Slot) -> bool,
        mut stays: impl FnMut(u32),
    ) {
        for cell in self.cells().iter().chain(self.shares.overflows(&concerns)) {
            let gone = update(cell, Swap::load(cell), &mut 0, |slot: Slot| match slot.state() {
                State::Active if concerns(slot.limit()) && !goes(slot) => {
                    stays(slot.limit());
                    Next::Leave(None)
                }
                State::Active | State::Claimed if concerns(slot.limit()) => Next::Write(Slot::EMPTY, Some(slot)),
                _ => Next::Leave(None),
            });
            if let Some(gone) = gone {
                self.passed(cell, self.shares.owner(gone), None, NO_GROUP);
                self.put_back(gone.limit(), gone.ring());
            }
        }
    }

    /// Takes a ring for a log of this limit and `capacity`: a free one, unless the limit may take only some, or else one of a key
    /// which is idle at `now`. A limit that holds its share takes those of its own keys alone, and gives up those beyond its
    /// share. `None` when all that were looked at are in use.
    pub(crate) fn take_ring(&self, limit: u32, capacity: u64, now: Nanos) -> Option<Spare<'_>> {
        let shortage = || self.rings.shortage(capacity, self.shares.rings(limit).get());
        let free = if shortage().is_none() { self.rings.take(capacity) } else { None };
        free.or_else(|| {
            self.rings.ask(capacity).find_map(|asked| {
                // One in an overflow bucket stays with it until that has another key.
                let mut cells = self.lines.of(asked.home).into_iter().chain(self.beside(asked.home)).flatten();
                let (cell, slot) = cells.find_map(|cell| {
                    let slot: Slot = Swap::load(cell);
                    slot.ring().filter(|ring| asked.is(*ring)).map(|_| (cell, slot))
                })?;
                let is_own = slot.limit() == limit;
                let may_go = is_own || shortage() != Some(Shortage::Limit);
                // As a stranger who takes the slot over, and leaves it at once.
                if !may_go || !slot.is_free(now) || !self.empty(cell, slot) {
                    return None;
                }
                self.put_back(slot.limit(), slot.ring());
                // With one in the place of its own a limit holds no more than before.
                let may_take = match shortage() {
                    None => true,
                    Some(Shortage::All) => is_own,
                    Some(_) => false,
                };
                if may_take { self.rings.take(capacity) } else { None }
            })
        })
    }

    /// Counts a ring that a slot of this limit names now, if there is one. Returns whether there is.
    pub(crate) fn keep(&self, limit: u32, ring: Option<Spare<'_>>) -> bool {
        let Some(ring) = ring else { return false };
        ring.keep();
        self.shares.rings(limit).add(1);
        true
    }

    /// Puts back a ring that no slot of this limit names any more, if there is one.
    #[inline(always)]
    fn put_back(&self, limit: u32, ring: Option<RingId>) {
        if let Some(ring) = ring {
            self.rings.put_back(ring);
            self.shares.rings(limit).add(-1);
        }
    }

    /// The lines beside those of a key with this hash: none twice, and none of its own.
    fn beside(&self, hash: u64) -> impl Iterator<Item = &Line> {
        let lines = &*self.lines;
        beside(places(hash, lines.len()), lines.len()).map(move |place| &lines[place])
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

    #[cold]
    fn find_elsewhere(&self, key: Key) -> Option<Seen<'_>> {
        // They come from memory together; a scan that follows finds them in the cache.
        self.beside(key.hash).for_each(|line| prefetch(line));
        let mut cells = self.beside(key.hash).flatten().chain(self.shares.overflow(key.bits.limit()));
        cells.find_map(|cell| {
            let slot: Slot = Swap::load(cell);
            (slot.holds(key.bits) && slot.state() == State::Active).then_some((cell, slot))
        })
    }

    /// Reads every candidate once. Free: of the line where fewer are live, or whose block has fewer, the place that has been idle
    /// for the longest; where that is even, of both lines. So a key that is idle for a moment keeps its slot while there are
    /// others to take.
    fn scan(&self, group: Group, key: Key, now: Nanos) -> Scan<'_> {
        let limit = key.bits.limit();
        let (mut shortage, mut group_is_short) = self.shortages(limit, group);
        if shortage.is_some() || group_is_short {
            self.reclaim(limit, shortage, now);
            (shortage, group_is_short) = self.shortages(limit, group);
        }
        let may_take = |cell: &Cell128, slot| {
            self.shares.may_take(limit, shortage, slot) && (!group_is_short || self.group_of(cell) == Some(group))
        };
        let (claims, idle_at) = (ArrayVec::new(), Nanos::MAX);
        let mut scan = Scan { active: false, claims, free: None, is_overflow: false, idle_at };
        let lines = &*self.lines;
        let near = places(key.hash, lines.len());
        let own = near.map(|place| {
            let line = &lines[place];
            let turned = (0..WAYS).map(|way| &line[(key.bits.spread() + way) % WAYS]);
            scan.read(turned, key, now, may_take)
        });
        // Of the block of each: how many are free, and one of them that is beside.
        let mut blocks = own.map(|(free, _)| (free, None));
        for place in beside(near, lines.len()) {
            let (free, oldest) = scan.read(lines[place].iter(), key, now, may_take);
            for (near, block) in near.iter().zip(&mut blocks) {
                if near / BLOCK == place / BLOCK {
                    *block = (block.0 + free, block.1.or(oldest));
                }
            }
        }
        let mut most = (0, 0);
        for ((free, oldest), (in_block, _)) in own.into_iter().zip(blocks) {
            let is_older =
                |(_, slot): Seen<'_>| scan.free.is_none_or(|(_, oldest)| slot.idle_since() < oldest.idle_since());
            if (free, in_block) > most || ((free, in_block) == most && oldest.is_some_and(is_older)) {
                (most, scan.free) = ((free, in_block), oldest);
            }
        }
        scan.free = scan.free.or_else(|| blocks.into_iter().max_by_key(|(free, _)| *free)?.1);
        let gets_overflow = self.groups.as_ref().is_none_or(|groups| groups.has_few(group));
        let (_, oldest) = scan.read(self.shares.overflow(limit).iter(), key, now, |_, _| gets_overflow);
        scan.is_overflow = scan.free.is_none();
        scan.free = scan.free.or(oldest);
        scan
    }

    /// Counts a check or a look of this group for whose key there was no bucket.
    pub(crate) fn count_refused(&self, group: Group) {
        match &self.groups {
            Some(groups) if groups.has_share(group) => groups.count_refused(),
            _ => self.shares.count_refused(),
        }
    }

    /// Returns why new keys of a limit may take only some slots, and whether those of a group may.
    fn shortages(&self, limit: u32, group: Group) -> (Option<Shortage>, bool) {
        let group_is_short = self.groups.as_ref().is_some_and(|groups| groups.has_share(group));
        (self.shares.shortage(limit), group_is_short)
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

/// The other lines of the blocks that two lines are in, of so many; the last block may be short.
fn beside(near: [usize; 2], lines: usize) -> impl Iterator<Item = usize> {
    let [first, second] = near.map(|place| place - place % BLOCK);
    // Once, where both are in one.
    let end = if first == second { second } else { second + BLOCK };
    (first..first + BLOCK).chain(second..end).filter(move |place| *place < lines && !near.contains(place))
}

#[cfg(all(test, engine_loom))]
mod models;
#[cfg(all(test, not(engine_loom)))]
mod stress;
#[cfg(all(test, not(engine_loom)))]
mod tests;
