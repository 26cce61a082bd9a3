//! `Buckets`: the table of an engine or a keyed limiter, with what a charge needs beside it: clock, hashes, names,
//! stripes and refunds.

use std::sync::Arc;

use crossbeam_utils::CachePadded;

use crate::{
    base::{
        atomic::{Cell64, Counter},
        clock::Clock,
        hash::KeyHasher,
        time::Nanos,
    },
    engine::names::LimitNames,
    storage::{refund_log::RefundLog, striping::StripePool, table::Table},
};

/// The table of buckets, with what a charge needs beside it.
#[derive(Debug)]
pub(crate) struct Buckets<C> {
    /// The identity of the engine: pending checks and reservations of one engine mean nothing to another.
    pub(crate) id: Arc<()>,
    pub(crate) clock: C,
    pub(crate) hasher: KeyHasher,
    pub(crate) table: Table,
    pub(crate) names: LimitNames,
    /// The version of the newest snapshot. The snapshot is in place before its version is stored.
    pub(crate) version: CachePadded<Cell64>,
    /// The version of the snapshot that was put in place last or is about to be. It is stored before any check can work
    /// by that snapshot.
    pub(crate) announced: Cell64,
    pub(crate) give_backs: Counter,
    pub(crate) refund_log: RefundLog,
    pub(crate) stripes: StripePool,
}

impl<C: Clock> Buckets<C> {
    /// Reads the clock, in the nanoseconds of words.
    #[inline(always)]
    pub(crate) fn now(&self) -> Nanos {
        self.clock.now().as_nanos()
    }
}

impl<C> Buckets<C> {
    pub(crate) fn new(max_keys: usize, clock: C, hasher: KeyHasher, stripes: StripePool) -> Self {
        Self {
            id: Arc::new(()),
            clock,
            hasher,
            table: Table::new(max_keys),
            names: LimitNames::new(),
            version: CachePadded::new(Cell64::new(0)),
            announced: Cell64::new(0),
            give_backs: Counter::default(),
            refund_log: RefundLog::new(),
            stripes,
        }
    }

    /// Returns how often a new key found no slot in the table: it took an overflow bucket, or was denied.
    pub(crate) fn overflow_charges(&self) -> u64 {
        self.table.shares.overflowed.count() + self.denied_without_room()
    }

    /// Returns how often a key was denied because there was no bucket for it.
    #[inline(always)]
    pub(crate) fn denied_without_room(&self) -> u64 {
        self.table.shares.refused.count()
    }
}
