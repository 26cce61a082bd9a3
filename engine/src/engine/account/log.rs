//! Charges a limit of the algorithm `sliding_window_log`, whose instants stand in a ring beside the table.

use std::cell::Cell;

use super::{Account, ChargeResult};
use crate::{
    algorithm::Meter,
    base::{clock::Clock, time::Nanos},
    engine::{
        active_policy::{SnapshotResult, StaleSnapshot},
        buckets::Buckets,
    },
    storage::{
        layout::BucketState,
        log_pool::SpareRing,
        sliding_log::{LogState, SlidingLog},
        table::TableFull,
    },
};

impl Account<'_> {
    /// Previews the charge of a log. Out of line, so that the other algorithms do not pay for it.
    #[inline(never)]
    pub(super) fn look_at_log<'b, C: Clock>(
        &self,
        buckets: &'b Buckets<C>,
        log: &SlidingLog<'b>,
        now: Nanos,
    ) -> SnapshotResult<ChargeResult> {
        let is_absent = Cell::new(false);
        let state = |held: Option<BucketState>, spare: &mut Option<SpareRing<'b>>| {
            is_absent.set(held.is_none());
            self.log_state(buckets, held, spare)
        };
        let charged = ChargeResult::in_slot(log.look(now, || buckets.now(), state)?);
        Ok(if is_absent.get() { self.if_there_is_room(buckets, charged) } else { charged })
    }

    /// Returns the log, if that is the limit's algorithm.
    #[inline(always)]
    pub(super) fn log<'b, C>(&self, buckets: &'b Buckets<C>) -> Option<SlidingLog<'b>> {
        let Some(Meter::SlidingWindowLog(log)) = self.limit.meter else { return None };
        let (generation, key, cost) = (self.limit.generation, self.key, self.cost);
        Some(SlidingLog { table: &buckets.table, log, generation, key, cost, is_owed: false })
    }

    /// Returns what the slot of a log holds. `spare` becomes the ring that the slot is to name next, if there is one.
    fn log_state<'b, C: Clock>(
        &self,
        buckets: &'b Buckets<C>,
        held: Option<BucketState>,
        spare: &mut Option<SpareRing<'b>>,
    ) -> SnapshotResult<LogState> {
        if let Some(ring) = held.and_then(|held| self.limit.ring(held)) {
            // A ring that is closed under the present numbers belongs to a snapshot that is no longer the newest.
            return if self.is_stale(buckets) || ring.is_closed() {
                Err(StaleSnapshot)
            } else {
                Ok(LogState::Ring(ring))
            };
        }
        let word = self.word(buckets, held)?;
        let next = |held| {
            let closed = self.limit.to_close(held);
            closed.or_else(|| self.limit.in_new_ring(held, &buckets.table, spare))
        };
        Ok(held.and_then(next).map_or(LogState::Word(word), |next| LogState::Before { next, word }))
    }

    pub(super) fn charge_log<'b, C: Clock>(
        &self,
        buckets: &'b Buckets<C>,
        log: &SlidingLog<'b>,
        now: Nanos,
    ) -> Result<SnapshotResult<ChargeResult>, TableFull> {
        let outcome = log.charge(now, || buckets.now(), |held, spare| self.log_state(buckets, held, spare))?;
        Ok(outcome.map(ChargeResult::in_slot))
    }
}
