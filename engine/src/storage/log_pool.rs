//! The log pool: rings of cells that hold the instants of sliding window logs.
//!
//! A cell holds the instant from which it is free, which is a period after the admission that took it. A log of limit n
//! uses n cells.
//!
//! # An admission is the claim of a cell
//!
//! A check at clock value t takes a cell by swapping the value that it read, which must be at most t, for one of at
//! least t + p. So the clock values of two admissions by one cell differ by at least p, and any half-open interval of
//! length p holds at most one admission of each cell, n in all. The bound depends on nothing else: any error in the
//! order of the cells, in the hint, or in the owner of the ring can only deny.
//!
//! What is *owed* (work that cost more than it was charged for) takes the oldest cells whether they are free or not.
//! Each then holds a later instant than before, so it still frees no cell early: it only delays.
//!
//! # Where the oldest cell is
//!
//! Cells are claimed in ring order, and each claim writes at least what the cell before it holds, so from the *head*,
//! the cell that is free first, the ring is sorted. The hint is the head, or the cell before it. It moves from i to i +
//! 1 only when a thread reads c(i) > c(i+1), and counts laps, so a thread that moves it late fails. Cells are claimed
//! only where the hint is.
//!
//! While the hint is at i, only c(i) changes, so c(i+1) <= c(i+2) <= .. <= c(i-1); a claim of c(i) makes it at least
//! c(i-1), hence the largest. Reading c(i), then c(i+1), then the hint again at the same place tells the two cases
//! apart: c(i) > c(i+1) means that c(i) is claimed and the head is i + 1; otherwise c(i) was free to be claimed when it
//! was read, or all cells are equal and any may be called the head. Values of a cell only grow, so the swap of c(i)
//! succeeds only if nothing has happened to it since, and then the hint is still there.
//!
//! # Who owns a ring
//!
//! The slot of a key names its ring, together with the ring's *life*, which changes whenever the ring is taken from its
//! pool. A check that finds another life in the hint has lost the ring. (It compares lives modulo 8. A check that
//! sleeps through exactly eight, or between its last look at the life and its swap while the next owner writes the very
//! same nanosecond, takes a cell of another key: it denies that key one admission for a period, and admits nothing,
//! because its own slot no longer names the ring.)
//!
//! When a key goes idle and no other key wants its slot, the slot stays as it is, and keeps its ring. So a ring knows
//! its *home*, the hash that leads to that slot. When a pool is empty, the slots of the rings that were filled the
//! longest ago are read, to find rings whose keys are idle (`table/log_rings.rs`).
//!
//! Rings come in sizes of powers of two, and those of one size are a pool, shared by all limits: allocated when a
//! policy first needs the size, never grown, never freed. A pool takes at most [`POOL_BYTES`], so all thirteen 416 MiB.
//! Where several limits of a policy need one size, each has a share of the pool, as of the table (`table_shares.rs`): a
//! limit that holds its share only takes rings of its own idle keys.

use std::sync::OnceLock;

use crate::{
    base::{
        atomic::{Cell64, Counter, Gauge},
        bit_field::Field,
        time::Nanos,
    },
    storage::{
        atomic_update::{Next, update},
        layout::{LIFE_BITS, RINGS_MAX, RingId},
        table_shares::{ShareBounds, Shortage, TableShares},
    },
};

/// The most bytes of the rings of one size.
const POOL_BYTES: usize = 32 << 20;

/// The least number of rings in a pool.
const POOL_MIN: usize = if cfg!(engine_loom) { 2 } else { 16 };

/// The number of values that the size in a ring's name can have.
const SIZES: usize = 16;

/// Words of a ring before its cells: the next free ring, the hint, and the home.
const BESIDE: usize = 3;

/// The number of rings of a full pool that are tried at a time, in case their keys are idle.
const TRIED: usize = 8;

// The hint: the index of a cell, the life of the ring, and the number of laps through the cells.
const PLACE: Field = Field::lowest(12);
const LIFE: Field = Field::above(PLACE, LIFE_BITS);
const LAP: Field = Field::rest(LIFE);

// The top of a pool's stack of free rings: the index of a ring plus 1, or 0; and a number that no other swap writes.
const TOP: Field = Field::lowest(32);
const TAG: Field = Field::rest(TOP);

/// The rings of all logs of an engine, in one pool for each size.
#[derive(Debug)]
pub(crate) struct LogPool {
    pools: [OnceLock<Pool>; SIZES],
    /// The most keys of the engine. No key needs two rings.
    keys: usize,
    /// Charges that found no ring.
    pub(crate) missed: Counter,
}

/// A limit whose keys have logs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogLimit {
    /// Cells of each log.
    pub(crate) capacity: u64,
    /// Whether the limit is of a single client.
    pub(crate) is_of_one_client: bool,
}

/// The rings of one size: a stack of the free ones.
#[derive(Debug)]
struct Pool {
    /// Words of a ring, its cells included.
    stride: usize,
    words: Box<[Cell64]>,
    top: Cell64,
    /// The number of rings that were tried because none was free.
    tried: Counter,
    /// Rings that are not free.
    held: Gauge,
    /// Rings that limits may hold now.
    bounds: ShareBounds,
}

/// A ring that may belong to an idle key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingCandidate {
    size: usize,
    place: usize,
    /// The hash of the key that filled the ring. It leads to the slot that names it.
    pub(crate) home: u64,
}

impl RingCandidate {
    /// Returns whether this is the ring that `id` names, in any of its lives.
    pub(crate) fn is(&self, id: RingId) -> bool {
        (id.size(), id.place()) == (self.size, self.place)
    }
}

impl LogPool {
    pub(crate) fn new(keys: usize) -> Self {
        Self { pools: Default::default(), keys, missed: Counter::default() }
    }

    /// Allocates the rings of a log of `limit`, unless they exist. Call it before a limit is in force.
    pub(crate) fn make_room(&self, limit: u64) {
        self.pool(size_of_ring(limit));
    }

    /// Allocates the rings of the logs of a policy, and shares those of each size among its limits from now on.
    pub(crate) fn come_into_force(&self, logs: impl Iterator<Item = LogLimit>, shares: TableShares) {
        let mut counts = [(0, 0); SIZES];
        for LogLimit { capacity, is_of_one_client } in logs {
            let (limits, of_many) = &mut counts[size_of_ring(capacity)];
            (*limits, *of_many) = (*limits + 1, *of_many + usize::from(!is_of_one_client));
        }
        for (size, (limits, of_many)) in counts.into_iter().enumerate().filter(|(_, (limits, _))| *limits > 0) {
            let pool = self.pool(size);
            pool.bounds.set(pool.rings(), shares, limits, of_many);
        }
    }

    /// Returns why a log of `capacity`, whose limit holds `held` rings, may take only some, if so.
    pub(crate) fn shortage(&self, capacity: u64, held: u64) -> Option<Shortage> {
        let pool = self.pool(size_of_ring(capacity));
        pool.bounds.shortage(held, pool.held.get())
    }

    fn pool(&self, size: usize) -> &Pool {
        self.pools[size].get_or_init(|| Pool::new(1 << size, self.keys))
    }

    /// Returns a ring with its first `limit` cells.
    pub(crate) fn ring(&self, id: RingId, limit: u64) -> Ring<'_> {
        let pool = self.pool(id.size());
        let (hint, cells) = pool.ring(id.place());
        Ring { id, hint, home: pool.home(id.place()), cells, limit: limit as usize }
    }

    /// Takes a free ring for a log of `limit`. `None` when all are taken.
    pub(crate) fn take(&self, limit: u64) -> Option<SpareRing<'_>> {
        let size = size_of_ring(limit);
        let pool = self.pool(size);
        Some(SpareRing { pool, size, place: pool.pop()?, limit: limit as usize })
    }

    /// Puts back a ring that no slot names any more.
    #[cold]
    pub(crate) fn put_back(&self, id: RingId) {
        self.pool(id.size()).push(id.place());
    }

    /// Returns the next few rings that a log of `limit` could take if their keys are idle.
    pub(crate) fn candidates(&self, limit: u64) -> impl Iterator<Item = RingCandidate> {
        let size = size_of_ring(limit);
        let pool = self.pool(size);
        (0..TRIED).map(move |_| {
            let place = pool.tried.next() as usize % pool.rings();
            RingCandidate { size, place, home: pool.home(place).load() }
        })
    }
}

fn size_of_ring(limit: u64) -> usize {
    limit.next_power_of_two().ilog2() as usize
}

impl Pool {
    fn new(cells: usize, keys: usize) -> Self {
        let stride = cells + BESIDE;
        let rings = (POOL_BYTES / (stride * size_of::<u64>())).min(keys).clamp(POOL_MIN, RINGS_MAX);
        let pool = Self {
            stride,
            words: (0..rings * stride).map(|_| Cell64::new(0)).collect(),
            top: Cell64::new(0),
            tried: Counter::default(),
            held: Gauge::default(),
            bounds: ShareBounds::none(),
        };
        pool.held.set(rings as u64);
        (0..rings).rev().for_each(|place| pool.push(place));
        pool
    }

    fn rings(&self) -> usize {
        self.words.len() / self.stride
    }

    fn words(&self, place: usize) -> &[Cell64] {
        &self.words[place * self.stride..][..self.stride]
    }

    /// Returns a ring's hint and cells.
    fn ring(&self, place: usize) -> (&Cell64, &[Cell64]) {
        let (beside, cells) = self.words(place).split_at(BESIDE);
        (&beside[1], cells)
    }

    fn next_free(&self, place: usize) -> &Cell64 {
        &self.words(place)[0]
    }

    fn home(&self, place: usize) -> &Cell64 {
        &self.words(place)[2]
    }

    fn pop(&self) -> Option<usize> {
        let place = update(&self.top, self.top.load(), &mut 0, |top| match TOP.get(top).checked_sub(1) {
            // Another thread may have taken the next ring by now: then the tag has changed, and the swap fails.
            Some(place) => Next::Write(after(top, self.next_free(place as usize).load()), Some(place as usize)),
            None => Next::Leave(None),
        });
        if place.is_some() {
            self.held.add(1);
        }
        place
    }

    fn push(&self, place: usize) {
        update(&self.top, self.top.load(), &mut 0, |top| {
            self.next_free(place).store(TOP.get(top));
            Next::Write(after(top, place as u64 + 1), ())
        });
        self.held.add(-1);
    }
}

/// Returns the top of the stack that follows `top`.
fn after(top: u64, place_and_1: u64) -> u64 {
    TOP.put(place_and_1) | TAG.put(TAG.get(top) + 1)
}

/// A ring that was taken and that no slot names yet. When dropped it goes back to its pool, unless it is kept.
#[derive(Debug)]
pub(crate) struct SpareRing<'r> {
    pool: &'r Pool,
    size: usize,
    place: usize,
    limit: usize,
}

impl SpareRing<'_> {
    /// Writes all of the ring: `taken` are the instants of the cells in use, the earliest first; the others are free
    /// from `now` on. `home` is the hash of the key.
    pub(crate) fn fill(&self, home: u64, now: Nanos, mut taken: impl Iterator<Item = Nanos>) -> RingId {
        let (hint, cells) = self.pool.ring(self.place);
        self.pool.home(self.place).store(home);
        // The life before the cells: a thread that sees a new cell sees that the ring is lost.
        let last = hint.load();
        let life = LIFE.get(last) + 1;
        hint.store(LIFE.put(life) | LAP.put(LAP.get(last) + 1));
        let mut used = 0;
        for cell in &cells[..self.limit] {
            cell.store_unseen(taken.next().inspect(|_| used += 1).unwrap_or(now));
        }
        if used < self.limit {
            hint.store(PLACE.put(used as u64) | LIFE.put(life) | LAP.put(LAP.get(last) + 1));
        }
        RingId::new(self.size, self.place, life)
    }

    /// Keeps the ring out of its pool, because a slot names it now.
    pub(crate) fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for SpareRing<'_> {
    fn drop(&mut self) {
        self.pool.push(self.place);
    }
}

/// The cells of one log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring<'r> {
    id: RingId,
    hint: &'r Cell64,
    home: &'r Cell64,
    /// All cells of the ring; a log uses the first `limit`.
    cells: &'r [Cell64],
    limit: usize,
}

/// The head of a ring, where the next claim goes.
struct Head {
    hint: u64,
    /// The value of the cell at the hint, which is free first.
    first: Nanos,
    /// The value of the cell after it.
    second: Nanos,
    /// The value of the cell before it, which is free last.
    last: Nanos,
}

/// The state of a ring at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RingSnapshot {
    /// The number of free cells.
    pub(crate) free: u64,
    /// The instant from which as many cells are free as the cost needs.
    pub(crate) due: Nanos,
    /// The instant from which all cells are free.
    pub(crate) last: Nanos,
}

/// The error for a ring that belongs to another key by now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RingLost;

impl Ring<'_> {
    /// Returns the cell that is `steps` after the hint.
    fn cell(&self, hint: u64, steps: usize) -> &Cell64 {
        let place = PLACE.get(hint) as usize + steps;
        let place = if place < self.limit { place } else { place - self.limit };
        // A hint of another life may point beyond the limit; sizes are powers of two.
        &self.cells[place & (self.cells.len() - 1)]
    }

    /// Returns the hint that follows.
    fn after(&self, hint: u64) -> u64 {
        let place = PLACE.get(hint) + 1;
        if place < self.limit as u64 {
            PLACE.put(place) | LIFE.put(LIFE.get(hint)) | LAP.put(LAP.get(hint))
        } else {
            LIFE.put(LIFE.get(hint)) | LAP.put(LAP.get(hint) + 1)
        }
    }

    /// Moves the hint on, unless another thread did.
    fn move_on(&self, hint: u64) {
        let _ = self.hint.compare_exchange(hint, self.after(hint));
    }

    /// Finds the head, and helps a hint that lags. Returns the head, and what `look` read while the hint stood there.
    fn head<T>(&self, look: impl Fn(&Head) -> T) -> Result<(Head, T), RingLost> {
        loop {
            let hint = self.hint.load();
            if LIFE.get(hint) != self.id.life() {
                return Err(RingLost);
            }
            let (first, second) = (self.cell(hint, 0).load(), self.cell(hint, 1).load());
            if first > second {
                self.move_on(hint);
                continue;
            }
            let head = Head { hint, first, second, last: self.cell(hint, self.limit - 1).load() };
            let answer = look(&head);
            if self.hint.load() == hint {
                return Ok((head, answer));
            }
        }
    }

    /// Returns the cells that are free at `now`, and when `cost` cells (at most all) are free.
    pub(crate) fn look(&self, now: Nanos, cost: u64) -> Result<RingSnapshot, RingLost> {
        let (head, (free, due)) = self
            .head(|head| (self.free(head, now) as u64, self.value(head, (cost as usize).clamp(1, self.limit) - 1)))?;
        Ok(RingSnapshot { free, due, last: head.last })
    }

    /// Returns the value of a cell while the hint stands where it was.
    fn value(&self, head: &Head, steps: usize) -> Nanos {
        // The cell at the hint may have been claimed meanwhile.
        if steps == 0 { head.first } else { self.cell(head.hint, steps).load() }
    }

    /// Returns how many cells are free at `now`.
    fn free(&self, head: &Head, now: Nanos) -> usize {
        let (mut free, mut taken) = (0, self.limit);
        while free < taken {
            let middle = usize::midpoint(free, taken);
            if self.value(head, middle) <= now { free = middle + 1 } else { taken = middle }
        }
        free
    }

    /// Fills a spare ring with the cells in use at `at`, or with the youngest of them if it has fewer cells. Returns
    /// its name, and the instant from which all of it is free.
    pub(crate) fn copy(&self, at: Nanos, spare: &SpareRing<'_>) -> Result<(RingId, Nanos), RingLost> {
        let (head, copied) = self.head(|head| {
            let first = self.free(head, at).max(self.limit.saturating_sub(spare.limit));
            spare.fill(self.home.load(), at, (first..self.limit).map(|steps| self.value(head, steps)))
        })?;
        Ok((copied, head.last))
    }

    /// Takes `cost` cells that are free at `now`, until `until` or, behind cells that are taken for longer, until those
    /// are free. Returns false when other threads were faster; the cells that it took by then stay taken.
    ///
    /// At the end of time every cell counts as free, so what is owed takes cells that others still use: see the head of
    /// this file.
    pub(crate) fn claim(&self, now: Nanos, until: Nanos, cost: u64) -> Result<bool, RingLost> {
        let mut left = cost;
        while left > 0 {
            let (head, ()) = self.head(|_| ())?;
            if head.first > now {
                return Ok(false);
            }
            let value = until.max(head.last);
            if self.cell(head.hint, 0).compare_exchange(head.first, value).is_ok() {
                left -= 1;
                if value > head.second {
                    self.move_on(head.hint);
                }
            }
        }
        Ok(true)
    }
}

#[cfg(all(test, engine_loom))]
mod models;
#[cfg(all(test, not(engine_loom)))]
mod tests;
