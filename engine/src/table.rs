//! The table: where a key's bucket is found, made room for, and taken back when idle.
//!
//! Bounded by construction, and never locked. A key has two candidate lines of four slots each. A slot is 128 bits, tag
//! and word, and changes only by a compare-and-swap of the whole, so a swap that was meant for one key can never touch
//! the bucket of another: whatever happened in between, the tag or the word differs, or the state is the very same.
//! An active slot is taken only while it is idle, which loses nothing; a live one is never evicted.
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
//! Contradiction. One that was active and was taken over as idle in between is no longer active; that it loses nothing is
//! what the time read anew is for: it is not before the time at which the bucket was found idle.
//!
//! *Why nobody waits.* A thread that stops leaves at most a claim behind. Threads with the same key finish it or swap it
//! away; threads with other keys see one slot less. Activating carries a charge, so whoever makes another thread's
//! attempt fail has finished its own.

use std::fmt;

use crossbeam_utils::CachePadded;

use crate::{
    bucket::{Next, Swap, update},
    memory::{Cells, prefetch},
    ring::{Rings, Spare},
    sync::{Cell128, Counter},
    time::Nanos,
    word::{Held, KeyBits, LIMITS_MAX, RingId, RingWord, Slot, State},
};

/// Slots of a line. Loom checks the same code over lines of one slot, so two candidates a key.
const WAYS: usize = if cfg!(engine_loom) { 1 } else { 4 };

/// About so many slots tell how full it is.
const FILL_SLOTS: usize = 4_096;

/// Bytes of table per key that it is made for: the slots of 1.5 keys.
pub const BYTES_PER_KEY: usize = 24;

/// The slots of one cache line.
type Line = [Cell128; WAYS];

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

/// No slot is free for a new key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Full;

/// What an operation met on its way: the evidence of concurrency tests.
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
    cells: Cells,
    /// New keys write it, every check reads what stands before it.
    nonces: CachePadded<Counter>,
    /// What the words of some slots name. Whoever swaps such a word for one that names the ring no more puts it back.
    pub(crate) rings: Rings,
}

/// A cell and what it held when it was read.
pub(crate) type Seen<'t> = (&'t Cell128, Slot);

/// What a scan of all candidates of a key saw.
struct Scan<'t> {
    active: bool,
    /// Claims of the key, lowest place first.
    claims: [Option<Seen<'t>>; 2 * WAYS],
    free: Option<Seen<'t>>,
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // There are millions of slots.
        f.debug_struct("Table").field("lines", &self.lines().len()).finish_non_exhaustive()
    }
}

impl Table {
    /// A table for `max_keys` live keys.
    pub(crate) fn new(max_keys: usize) -> Self {
        let lines = max_keys.saturating_mul(BYTES_PER_KEY).div_ceil(size_of::<Slot>() * WAYS).max(2);
        Self {
            cells: Cells::new(lines.saturating_mul(WAYS)),
            nonces: CachePadded::default(),
            rings: Rings::new(max_keys),
        }
    }

    #[inline(always)]
    fn lines(&self) -> &[Line] {
        self.cells.as_chunks().0
    }

    /// What is held for `key`, if it has a slot.
    #[inline]
    pub(crate) fn get(&self, key: Key) -> Option<Held> {
        self.find(key).map(|(_, slot)| slot.held())
    }

    /// How many claims were made so far: one for each first touch, or more.
    #[inline(always)]
    pub(crate) fn claims(&self) -> u64 {
        self.nonces.count()
    }

    /// Has the processor fetch both lines of `key`, for whoever comes soon: in a table just filled three keys in ten are in the
    /// second one, and later, when there is no empty slot, up to half.
    #[inline(always)]
    pub(crate) fn prefetch(&self, key: Key) {
        for line in self.candidates(key.hash) {
            prefetch(line);
        }
    }

    /// Applies `transition` to what is held for `key` and the time of the decision; to `None` when it has no slot. A write
    /// then takes a slot that is free at `now`, and is decided anew at `read_clock`.
    ///
    /// `transition` must be pure: it is called again after every lost race.
    pub(crate) fn update<T>(
        &self,
        key: Key,
        now: Nanos,
        read_clock: impl Fn() -> Nanos,
        met: &mut Met,
        mut transition: impl FnMut(Option<Held>, Nanos) -> Next<Held, T>,
    ) -> Result<T, Full> {
        loop {
            if let Some((cell, seen)) = self.find(key) {
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
                self.put_back(left);
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
                if let Some(answer) = self.insert(key, now, met, || transition(None, read_clock()))? {
                    return Ok(answer);
                }
            }
        }
    }

    /// Changes the key's slot, if it has one and `to` wants to; was it changed?
    pub(crate) fn change(&self, key: Key, to: impl Fn(Held) -> Option<Held>) -> bool {
        // No clock is needed: without a slot nothing is written, so a full table is not met either.
        let outcome = self.update(
            key,
            0,
            || 0,
            &mut Met::default(),
            |held, _| held.and_then(&to).map_or(Next::Leave(false), |held| Next::Write(held, true)),
        );
        outcome == Ok(true)
    }

    /// True when the key has a slot, or a claim to one.
    pub(crate) fn has(&self, key: Key) -> bool {
        let mut slots = self.candidates(key.hash).into_iter().flatten().map(Swap::load);
        slots.any(|slot| slot.holds(key.bits))
    }

    /// The part of the slots that are live at `now`, of a few thousand that are spread over all.
    pub(crate) fn fill(&self, now: Nanos) -> f64 {
        let step = (self.cells.len() / FILL_SLOTS).max(1);
        // Off the multiples of a line, so that every place in one has its share.
        let looked_at = self.cells.iter().step_by(if step > 1 { step | 1 } else { step });
        let (live, all) = looked_at
            .fold((0u32, 0u32), |(live, all), cell| (live + u32::from(!Swap::load(cell).is_free(now)), all + 1));
        f64::from(live) / f64::from(all.max(1))
    }

    /// How many slots it has, live or free.
    pub(crate) fn slots(&self) -> usize {
        self.cells.len()
    }

    /// Passes every bucket of the limits that `concerns` to `convert` once; a bucket that changes meanwhile is passed
    /// again, and so is one whose ring `convert` has closed. What `convert` answers may name the ring that it hands out.
    /// Claims are swapped away, so that no check which began before the sweep makes one active after it.
    pub(crate) fn sweep<'t>(
        &'t self,
        concerns: impl Fn(u32) -> bool,
        convert: impl Fn(u32, Held, &mut Option<Spare<'t>>) -> Held,
    ) {
        for cell in self.cells.iter() {
            let pass = || {
                let (mut left, mut spare) = (None, None);
                let is_closed = update(cell, Swap::load(cell), &mut 0, |slot: Slot| {
                    // Of an attempt that failed.
                    (left, spare) = (None, None);
                    match slot.state() {
                        State::Active if concerns(slot.limit()) => {
                            let held = convert(slot.limit(), slot.held(), &mut spare);
                            let after = Slot::active(slot.key(), held);
                            left = slot.ring_left_for(after);
                            Next::Write(after, held.ring().is_some_and(RingWord::is_closed))
                        }
                        State::Claimed if concerns(slot.limit()) => Next::Write(Slot::EMPTY, false),
                        _ => Next::Leave(false),
                    }
                });
                self.put_back(left);
                spare.into_iter().for_each(Spare::keep);
                is_closed
            };
            while pass() {}
        }
    }

    /// Empties the slots of limits that `concerns`, where the slot `goes`, and claims of their keys; passes the limits of the
    /// others to `stays`. For limits that no check can reach; an idle slot of theirs may be taken by another key meanwhile.
    pub(crate) fn clear(
        &self,
        concerns: impl Fn(u32) -> bool,
        goes: impl Fn(Slot) -> bool,
        mut stays: impl FnMut(u32),
    ) {
        for cell in self.cells.iter() {
            let left = update(cell, Swap::load(cell), &mut 0, |slot: Slot| match slot.state() {
                State::Active if concerns(slot.limit()) && !goes(slot) => {
                    stays(slot.limit());
                    Next::Leave(None)
                }
                State::Active | State::Claimed if concerns(slot.limit()) => Next::Write(Slot::EMPTY, slot.ring()),
                _ => Next::Leave(None),
            });
            self.put_back(left);
        }
    }

    /// Takes a ring for a log of `limit`: a free one, or else that of a key which is idle at `now`. `None` when all that were
    /// looked at are in use.
    pub(crate) fn take_ring(&self, limit: u64, now: Nanos) -> Option<Spare<'_>> {
        self.rings.take(limit).or_else(|| {
            self.rings.ask(limit).find_map(|asked| {
                let mut cells = self.candidates(asked.home).into_iter().flatten();
                let (cell, slot) = cells.find_map(|cell| {
                    let slot: Slot = Swap::load(cell);
                    slot.ring().filter(|ring| asked.is(*ring)).map(|_| (cell, slot))
                })?;
                // As a stranger who takes the slot over, and leaves it at once.
                if !slot.is_free(now) || cell.swap(slot, Slot::EMPTY).is_err() {
                    return None;
                }
                self.put_back(slot.ring());
                self.rings.take(limit)
            })
        })
    }

    #[inline(always)]
    fn put_back(&self, ring: Option<RingId>) {
        if let Some(ring) = ring {
            self.rings.put_back(ring);
        }
    }

    /// The two lines of a key with this hash, always different ones.
    #[inline(always)]
    fn candidates(&self, hash: u64) -> [&Line; 2] {
        let lines = self.lines();
        let first = below(hash, lines.len());
        [&lines[first], &lines[second(hash, first, lines.len())]]
    }

    /// Finds the key's active slot, and reads it. Both sides of a line begin at the place that the key prefers. The second
    /// line comes from memory while the first is read.
    #[inline(always)]
    pub(crate) fn find(&self, key: Key) -> Option<Seen<'_>> {
        let [first, second] = self.candidates(key.hash);
        prefetch(second);
        find_in(first, key).or_else(|| find_in(second, key))
    }

    /// Reads every candidate slot once. Free: of the line where fewer are live, the place that has been idle for the longest;
    /// where that is even, of both lines. So a key that is idle for a moment keeps its slot while there are others to take.
    fn scan(&self, key: Key, now: Nanos) -> Scan<'_> {
        let mut scan = Scan { active: false, claims: [None; 2 * WAYS], free: None };
        let (mut claims, mut free_most) = (0, 0);
        for line in self.candidates(key.hash) {
            let (mut free_here, mut oldest) = (0, None::<Seen<'_>>);
            for way in 0..WAYS {
                let cell = &line[(key.bits.spread() + way) % WAYS];
                let slot = Swap::load(cell);
                if slot.holds(key.bits) {
                    if slot.state() == State::Active {
                        scan.active = true;
                    } else {
                        scan.claims[claims] = Some((cell, slot));
                        claims += 1;
                    }
                } else if slot.is_free(now) {
                    free_here += 1;
                    if oldest.is_none_or(|(_, oldest)| slot.idle_since() < oldest.idle_since()) {
                        oldest = Some((cell, slot));
                    }
                }
            }
            let is_older =
                |(_, slot): Seen<'_>| scan.free.is_none_or(|(_, oldest)| slot.idle_since() < oldest.idle_since());
            if free_here > free_most || (free_here == free_most && oldest.is_some_and(is_older)) {
                (free_most, scan.free) = (free_here, oldest);
            }
        }
        scan
    }

    /// Gives the key a slot with what `transition` writes: see the head of this file. `None` when it turned out to have one.
    #[cold]
    fn insert<T>(
        &self,
        key: Key,
        now: Nanos,
        met: &mut Met,
        mut transition: impl FnMut() -> Next<Held, T>,
    ) -> Result<Option<T>, Full> {
        let mut mine: Option<Seen<'_>> = None;
        let take_back = |mine: Option<Seen<'_>>| {
            if let Some((cell, claim)) = mine {
                // Fails when another thread swapped it away, or made it the active one.
                let _ = cell.swap(claim, Slot::EMPTY);
            }
        };
        // The winning claim that was there before the scan under way began.
        let mut known: Option<Slot> = None;
        loop {
            let scan = self.scan(key, now);
            if scan.active {
                take_back(mine);
                return Ok(None);
            }
            let [winner, others @ ..] = &scan.claims;
            let Some((cell, winner)) = *winner else {
                let (cell, free) = scan.free.ok_or(Full)?;
                let claim = Slot::claimed(key.bits, self.nonces.next());
                if cell.swap(free, claim).is_ok() {
                    met.reuses += u64::from(free != Slot::EMPTY);
                    self.put_back(free.ring());
                    (mine, known) = (Some((cell, claim)), Some(claim));
                } else {
                    met.retries += 1;
                }
                continue;
            };
            let is_foreign = |claim: Slot| u64::from(mine.is_none_or(|(_, mine)| mine != claim));
            let others_are_gone = others.iter().flatten().all(|&(cell, claim)| {
                met.resolved += is_foreign(claim);
                cell.swap(claim, Slot::EMPTY).is_ok()
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

/// A number below `bound`, by the high bits of a hash.
#[inline(always)]
fn below(hash: u64, bound: usize) -> usize {
    ((u128::from(hash) * u128::from(bound as u64)) >> 64) as usize
}

/// The second line of a key: another multiple of the hash, by the golden ratio, picks it among the others.
#[inline(always)]
fn second(hash: u64, first: usize, lines: usize) -> usize {
    let step = 1 + below(hash.wrapping_mul(0x9E37_79B9_7F4A_7C15), lines - 1);
    if first + step < lines { first + step } else { first + step - lines }
}

#[inline(always)]
fn find_in(line: &Line, key: Key) -> Option<Seen<'_>> {
    for way in 0..WAYS {
        let cell = &line[(key.bits.spread() + way) % WAYS];
        let slot = Swap::load(cell);
        if slot.holds(key.bits) && slot.state() == State::Active {
            return Some((cell, slot));
        }
    }
    None
}

#[cfg(all(test, engine_loom))]
mod models;
#[cfg(all(test, not(engine_loom)))]
mod stress;
#[cfg(all(test, not(engine_loom)))]
mod tests;
