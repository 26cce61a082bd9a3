//! The candidates of a key, which are all slots in which it may be, and the scan that reads each of them once and chooses the
//! idle slot that a new key takes.

use arrayvec::ArrayVec;

use super::{HashedKey, SlotSnapshot, Table};
use crate::{
    base::{atomic::Cell128, time::Nanos},
    storage::{
        alloc::{CacheLine, WAYS, prefetch},
        atomic_update::Swap,
        caller_groups::CallerGroup,
        layout::{Slot, SlotState},
        table_shares::{OVERFLOW_BUCKETS_MAX, Shortage},
        two_choice::places,
    },
};

/// Lines of a block.
pub(super) const BLOCK: usize = 4;

/// The most candidates of a key: the slots of two blocks, and the overflow buckets of its limit.
const CANDIDATES_MAX: usize = 2 * BLOCK * WAYS + OVERFLOW_BUCKETS_MAX;

/// The outcome of a scan of all candidates of a key.
pub(super) struct Scan<'t> {
    /// Whether a candidate is the key's active slot.
    pub(super) active: bool,
    /// Claims of the key, lowest place first.
    pub(super) claims: ArrayVec<SlotSnapshot<'t>, CANDIDATES_MAX>,
    /// The candidate that the key takes if it has none.
    pub(super) free: Option<SlotSnapshot<'t>>,
    /// Whether `free` is an overflow bucket.
    pub(super) is_overflow: bool,
    /// The instant at which the first candidate that the key may take becomes free, where none is free now.
    pub(super) idle_at: Nanos,
}

impl<'t> Scan<'t> {
    /// Reads each of some candidates once. Returns how many of them are free for the key, and which of those has been
    /// idle for the longest.
    fn read(
        &mut self,
        cells: impl Iterator<Item = &'t Cell128>,
        key: HashedKey,
        now: Nanos,
        may_take: impl Fn(&Cell128, Slot) -> bool,
    ) -> (usize, Option<SlotSnapshot<'t>>) {
        let (mut free, mut oldest) = (0, None::<SlotSnapshot<'t>>);
        for cell in cells {
            let slot = Swap::load(cell);
            if slot.holds(key.bits) {
                if slot.state() == SlotState::Active {
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

impl Table {
    /// Returns the lines beside those of a key with this hash: each once, and none of the key's own.
    pub(super) fn beside(&self, hash: u64) -> impl Iterator<Item = &CacheLine> {
        let lines = &*self.lines;
        beside(places(hash, lines.len()), lines.len()).map(move |place| &lines[place])
    }

    /// Finds the key's active slot among the candidates outside of its two lines, and reads it.
    #[cold]
    pub(super) fn find_elsewhere(&self, key: HashedKey) -> Option<SlotSnapshot<'_>> {
        // All lines come from memory at the same time; a scan that follows finds them in the cache.
        self.beside(key.hash).for_each(|line| prefetch(line));
        let mut cells = self.beside(key.hash).flatten().chain(self.shares.overflow(key.bits.limit()));
        cells.find_map(|cell| {
            let slot: Slot = Swap::load(cell);
            (slot.holds(key.bits) && slot.state() == SlotState::Active).then_some((cell, slot))
        })
    }

    /// Reads every candidate once, and chooses a free one: the slot that has been idle for the longest in the line that
    /// has fewer live slots, or whose block has fewer; in both lines, where that is even. So a key that is idle for a
    /// moment keeps its slot while there are others to take.
    pub(super) fn scan(&self, group: CallerGroup, key: HashedKey, now: Nanos) -> Scan<'_> {
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
        // For the block of each line: the number of free slots beside the line, and one of them.
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
            let is_older = |(_, slot): SlotSnapshot<'_>| {
                scan.free.is_none_or(|(_, oldest)| slot.idle_since() < oldest.idle_since())
            };
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

    /// Returns why new keys of a limit may take only some slots, if they may, and whether the group holds its share.
    pub(super) fn shortages(&self, limit: u32, group: CallerGroup) -> (Option<Shortage>, bool) {
        let group_is_short = self.groups.as_ref().is_some_and(|groups| groups.has_share(group));
        (self.shares.shortage(limit), group_is_short)
    }
}

/// Returns the other lines of the blocks of two lines, in a table of `lines` lines. The last block may be short.
pub(super) fn beside(near: [usize; 2], lines: usize) -> impl Iterator<Item = usize> {
    let [first, second] = near.map(|place| place - place % BLOCK);
    // A block that both lines are in counts once.
    let end = if first == second { second } else { second + BLOCK };
    (first..first + BLOCK).chain(second..end).filter(move |place| *place < lines && !near.contains(place))
}
