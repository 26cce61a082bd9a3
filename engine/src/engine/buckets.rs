//! All buckets of an engine or a keyed limiter, and what it takes to charge them: clock, hashes, names, striping and refunds.

use std::sync::Arc;

use crossbeam_utils::CachePadded;

use crate::{
    base::{
        atomic::{Cell64, Counter},
        hash::KeyHasher,
    },
    engine::names::LimitNames,
    storage::{refund_log::Moves, striping::Leases, table::Table},
};

/// All buckets, and what it takes to charge them.
#[derive(Debug)]
pub(crate) struct Buckets<C> {
    /// Which engine it is: what one gave out means nothing to another.
    pub(crate) id: Arc<()>,
    pub(crate) clock: C,
    pub(crate) hasher: KeyHasher,
    pub(crate) table: Table,
    pub(crate) names: LimitNames,
    /// Version of the newest snapshot; that is in place before its version is.
    pub(crate) version: CachePadded<Cell64>,
    /// Version of the snapshot that was put in place last, or is about to be: stored before any check can work by it.
    pub(crate) announced: Cell64,
    pub(crate) give_backs: Counter,
    pub(crate) refund_log: Moves,
    pub(crate) leases: Leases,
}

impl<C> Buckets<C> {
    pub(crate) fn new(max_keys: usize, clock: C, hasher: KeyHasher, leases: Leases) -> Self {
        Self {
            id: Arc::new(()),
            clock,
            hasher,
            table: Table::new(max_keys),
            names: LimitNames::new(),
            version: CachePadded::new(Cell64::new(0)),
            announced: Cell64::new(0),
            give_backs: Counter::default(),
            refund_log: Moves::new(),
            leases,
        }
    }

    /// How often a new key found no slot in the table: it took an overflow bucket, or was denied.
    pub(crate) fn overflow_charges(&self) -> u64 {
        self.table.shares.overflowed() + self.denied_without_room()
    }

    /// How often there was no bucket for a key.
    #[inline(always)]
    pub(crate) fn denied_without_room(&self) -> u64 {
        self.table.shares.refused()
    }
}
