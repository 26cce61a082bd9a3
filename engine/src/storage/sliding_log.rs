//! The log of a sliding window: charges the key's slot in the table and the ring that the slot names together.
//!
//! # A charge
//!
//! 1. Read the slot. If it names no ring, see below.
//! 2. Look at the ring. If too few cells are free, read the slot again; if it still names the ring, deny.
//! 3. *Touch*: if the slot would look idle before a period from now has passed, swap it for one that does not.
//! 4. Claim the cells (head of `log_pool.rs`). If other threads were faster, start again; cells that were taken stay
//!    taken until they are a period old.
//! 5. Read the slot again. If it still names the ring, admit; else start again.
//!
//! *Why no key forgets an admission.* Let a check be admitted at clock value t. Its claim is in a ring that the key's
//! slot named after the touch and at step 5. Another key takes the slot over only at a clock value of at least t + p,
//! because of the touch; and the key's next slot is filled at a time that was read after that, so a cell of its next
//! ring is free only for clocks that are past it. A publish *closes* the slot before it reads the ring, so a claim that
//! it did not count fails its step 5. A reset takes the slot away from the ring: a check that passes step 5 was before
//! the reset.
//!
//! # Without a ring
//!
//! A first touch takes a ring from the pool, fills it while no other thread sees it, and puts it into the slot with its
//! own charge. When none is free, the slot holds the log as one word, which is stricter (`sliding_window_log.rs`); the
//! next charge tries again, and fills the ring with what the word knows.
//!
//! A word forgets everything at once, and a new ring knows nothing of before, so a check whose clock is behind them
//! must not be admitted: its time may have been used up before. It reads the clock again.

use std::iter::repeat_n;

use crate::{
    algorithm::{Meter, SlidingWindowLog, Verdict},
    base::time::Nanos,
    storage::{
        atomic_update::Next,
        layout::{BucketState, Generation, RingId, RingWord},
        log_pool::{Ring, RingLost, RingSnapshot, SpareRing},
        table::{HashedKey, RaceCounts, Table, TableFull},
    },
};

/// The log of one key, and the cost to charge or check.
#[derive(Clone, Copy)]
pub(crate) struct SlidingLog<'t> {
    pub(crate) table: &'t Table,
    pub(crate) log: SlidingWindowLog,
    pub(crate) generation: Generation,
    pub(crate) key: HashedKey,
    pub(crate) cost: u64,
    /// Whether to charge the cost (at most the limit) even if it does not fit.
    pub(crate) is_owed: bool,
}

/// The form of a key's log, under the numbers that the check uses.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LogState {
    /// The log is one word.
    Word(u64),
    /// The log is a ring.
    Ring(RingWord),
    /// The log is a ring of the previous numbers, to be swapped for `next` before it is charged. Until then it counts as
    /// `word`, which is stricter.
    Before { next: BucketState, word: u64 },
}

/// A decision with its time, and the state after it as a word.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepResult {
    pub(crate) verdict: Verdict,
    pub(crate) word: u64,
    pub(crate) now: Nanos,
}

/// The outcome of one look at a slot.
enum Step {
    /// The slot named no ring, and its word decided.
    Decided(StepResult),
    /// The slot names a ring.
    Ring(RingWord),
    /// The slot has changed: start again.
    Again,
}

impl<'t> SlidingLog<'t> {
    /// Charges the cost. `state` says what the content of a slot means, or the lack of a slot. It is called again after
    /// every lost race, and puts the ring that its answer names into its last argument. The outer error: no slot is
    /// free. The inner error: that of `state`.
    pub(crate) fn charge<E>(
        &self,
        mut now: Nanos,
        read_clock: impl Fn() -> Nanos,
        state: impl Fn(Option<BucketState>, &mut Option<SpareRing<'t>>) -> Result<LogState, E>,
    ) -> Result<Result<StepResult, E>, TableFull> {
        loop {
            let mut spare = None;
            let step = self.table.update(self.key, now, &read_clock, &mut RaceCounts::default(), |held, now| {
                // The last attempt may have left one.
                spare = None;
                match state(held, &mut spare) {
                    Ok(LogState::Word(word)) => self.step_or_fill(word, now, &read_clock, &mut spare),
                    Ok(LogState::Ring(word)) => Next::Leave(Ok(Step::Ring(word))),
                    Ok(LogState::Before { next, .. }) => Next::Write(next, Ok(Step::Again)),
                    Err(why) => Next::Leave(Err(why)),
                }
            })?;
            // The ring that the last attempt took is the one that the slot names now.
            let has_ring = self.table.keep(self.key.bits().limit(), spare);
            match step {
                Ok(Step::Decided(outcome)) => {
                    if !has_ring && matches!(outcome.verdict, Verdict::Admit(_)) {
                        self.table.rings.missed.next();
                    }
                    return Ok(Ok(outcome));
                }
                Ok(Step::Ring(word)) => {
                    if let Ok(Some(outcome)) = self.charge_ring(word, &mut now, &read_clock) {
                        return Ok(Ok(outcome));
                    }
                }
                Ok(Step::Again) => {}
                Err(why) => return Ok(Err(why)),
            }
        }
    }

    /// Returns what a charge would decide. Writes nothing.
    pub(crate) fn look<E>(
        &self,
        mut now: Nanos,
        read_clock: impl Fn() -> Nanos,
        state: impl Fn(Option<BucketState>, &mut Option<SpareRing<'t>>) -> Result<LogState, E>,
    ) -> Result<StepResult, E> {
        loop {
            let held = self.table.get(self.key);
            if held.is_none() {
                // As for a first touch: what was used at an older time may have been forgotten since.
                now = read_clock();
            }
            match state(held, &mut None)? {
                LogState::Word(word) | LogState::Before { word, .. } => {
                    return Ok(self.step(word, self.caught_up(word, now, &read_clock)));
                }
                LogState::Ring(word) => {
                    if let Ok(seen) = self.see(self.ring(word), &mut now, &read_clock)
                        && self.names(word.ring())
                    {
                        return Ok(self.decide(seen, now));
                    }
                }
            }
        }
    }

    /// Charges a log that is one word, and moves it into a ring if one is free.
    #[cold]
    fn step_or_fill<E>(
        &self,
        word: u64,
        now: Nanos,
        read_clock: impl Fn() -> Nanos,
        spare: &mut Option<SpareRing<'t>>,
    ) -> Next<BucketState, Result<Step, E>> {
        let now = self.caught_up(word, now, read_clock);
        let outcome = self.step(word, now);
        if !matches!(outcome.verdict, Verdict::Admit(_)) {
            return Next::Leave(Ok(Step::Decided(outcome)));
        }
        let table: &'t Table = self.table;
        let held = match table.take_ring(self.key.bits().limit(), self.log.capacity(), now) {
            Some(ring) => {
                let (used, used_until) = self.log.in_use(word, now);
                // The oldest of the used cells give way to a cost that is owed.
                let used = used.min(self.log.capacity() - self.cost);
                let until = self.log.until(now).max(used_until);
                let cells = repeat_n(used_until, used as usize).chain(repeat_n(until, self.cost as usize));
                let word = RingWord::new(ring.fill(self.key.hash(), self.log.at(now), cells), until);
                *spare = Some(ring);
                BucketState::with_ring(self.generation, word)
            }
            None => BucketState::word(self.generation, outcome.word),
        };
        Next::Write(held, Ok(Step::Decided(outcome)))
    }

    /// Charges the ring that the slot named. `None`: start again.
    fn charge_ring(
        &self,
        word: RingWord,
        now: &mut Nanos,
        read_clock: impl Fn() -> Nanos,
    ) -> Result<Option<StepResult>, RingLost> {
        let (id, ring) = (word.ring(), self.ring(word));
        let outcome = self.decide(self.see(ring, now, read_clock)?, *now);
        if let Verdict::Admit(_) = outcome.verdict {
            let until = self.log.until(*now);
            if word.idle() < until && !self.touch(id, until) {
                return Ok(None);
            }
            let free_at = if self.is_owed { Nanos::MAX } else { self.log.at(*now) };
            if !ring.claim(free_at, until, self.cost)? {
                return Ok(None);
            }
        }
        Ok(self.names(id).then_some(outcome))
    }

    fn ring(&self, word: RingWord) -> Ring<'_> {
        self.table.rings.ring(word.ring(), self.log.capacity())
    }

    /// Looks at a ring, at a time that is not behind the ring.
    fn see(&self, ring: Ring<'_>, now: &mut Nanos, read_clock: impl Fn() -> Nanos) -> Result<RingSnapshot, RingLost> {
        let seen = ring.look(self.log.at(*now), self.cost)?;
        if seen.last <= self.log.until(*now) {
            return Ok(seen);
        }
        *now = read_clock();
        ring.look(self.log.at(*now), self.cost)
    }

    /// Returns the time, read again if it is behind the word.
    fn caught_up(&self, word: u64, now: Nanos, read_clock: impl Fn() -> Nanos) -> Nanos {
        if self.log.is_behind(word, now) { read_clock() } else { now }
    }

    /// Decides by a word.
    fn step(&self, word: u64, now: Nanos) -> StepResult {
        let meter = Meter::SlidingWindowLog(self.log);
        let owed = || Verdict::Admit(meter.overcharge(word, now, self.cost));
        let verdict = if self.is_owed { owed() } else { meter.step(word, now, self.cost) };
        StepResult { verdict, word: verdict.admitted().unwrap_or(word), now }
    }

    /// Decides by a snapshot of a ring.
    fn decide(&self, seen: RingSnapshot, now: Nanos) -> StepResult {
        let used = self.log.capacity() - seen.free;
        if self.cost <= seen.free || self.is_owed {
            let until = if self.cost == 0 { seen.last } else { seen.last.max(self.log.until(now)) };
            let word = self.log.word(used + self.cost, until);
            return StepResult { verdict: Verdict::Admit(word), word, now };
        }
        let is_ever = self.cost <= self.log.capacity();
        let wait_ns = seen.due.saturating_sub(now).max(1);
        let verdict = if is_ever { Verdict::Later { wait_ns } } else { Verdict::Never };
        StepResult { verdict, word: self.log.word(used, seen.last), now }
    }

    /// Returns whether the key's slot names this ring, and is open.
    fn names(&self, ring: RingId) -> bool {
        self.table.get(self.key).is_some_and(|held| self.is_open(held, ring))
    }

    fn is_open(&self, held: BucketState, ring: RingId) -> bool {
        let word = held.ring().filter(|_| held.generation == self.generation);
        word.is_some_and(|word| word.ring() == ring && !word.is_closed())
    }

    /// Makes the slot that names the ring look live until `until` at least. Returns false when the slot no longer names
    /// it.
    #[cold]
    fn touch(&self, ring: RingId, until: Nanos) -> bool {
        self.table.change(self.key, |held| {
            let idle = held.ring().map_or(0, RingWord::idle).max(until);
            let touched = BucketState::with_ring(self.generation, RingWord::new(ring, idle));
            self.is_open(held, ring).then_some(touched)
        })
    }
}

#[cfg(all(test, engine_loom))]
mod models;
#[cfg(all(test, not(engine_loom)))]
mod stress;
