//! Takes rings of the log pool for slots of the table, also from idle keys, and puts back those that no slot names.

use super::Table;
use crate::{
    base::time::Nanos,
    storage::{
        atomic_update::Swap,
        layout::{RingId, Slot},
        log_pool::SpareRing,
        table_shares::Shortage,
    },
};

impl Table {
    /// Takes a ring for a log of this limit and `capacity`: a free one, unless the limit may take only some, else the
    /// ring of a key that is idle at `now`. A limit that holds its share only takes rings of its own keys, and gives up
    /// those beyond its share. `None` when every ring that was looked at is in use.
    pub(crate) fn take_ring(&self, limit: u32, capacity: u64, now: Nanos) -> Option<SpareRing<'_>> {
        let shortage = || self.rings.shortage(capacity, self.shares.rings(limit).get());
        let free = if shortage().is_none() { self.rings.take(capacity) } else { None };
        free.or_else(|| {
            self.rings.candidates(capacity).find_map(|candidate| {
                // A ring that an overflow bucket names stays there until the bucket has another key.
                let mut cells = self.lines.of(candidate.home).into_iter().chain(self.beside(candidate.home)).flatten();
                let (cell, slot) = cells.find_map(|cell| {
                    let slot: Slot = Swap::load(cell);
                    slot.ring().filter(|ring| candidate.is(*ring)).map(|_| (cell, slot))
                })?;
                let is_own = slot.limit() == limit;
                let may_go = is_own || shortage() != Some(Shortage::Limit);
                // The slot is emptied, as if another key took it over and left at once.
                if !may_go || !slot.is_free(now) || !self.empty(cell, slot) {
                    return None;
                }
                self.put_back(slot.limit(), slot.ring());
                // A limit that takes a ring in exchange for its own holds no more than before.
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
    pub(crate) fn keep(&self, limit: u32, ring: Option<SpareRing<'_>>) -> bool {
        let Some(ring) = ring else { return false };
        ring.keep();
        self.shares.rings(limit).add(1);
        true
    }

    /// Puts back a ring that no slot of this limit names any more, if there is one.
    #[inline(always)]
    pub(super) fn put_back(&self, limit: u32, ring: Option<RingId>) {
        if let Some(ring) = ring {
            self.rings.put_back(ring);
            self.shares.rings(limit).add(-1);
        }
    }
}
