//! Corrects what a key has used after its charge: gives a charge back, charges an excess, or resets the key.

use super::{Account, BucketSite, ChargeResult};
use crate::{
    algorithm::Receipt,
    base::clock::Clock,
    engine::{active_policy::SnapshotResult, buckets::Buckets},
    storage::{
        atomic_update::Next,
        layout::BucketState,
        refund_log::Mark,
        sliding_log::SlidingLog,
        table::{RaceCounts, TableFull},
    },
};

impl Account<'_> {
    /// Returns the mark of the refund log at this time. Called before a charge that may be given back much later.
    pub(crate) fn mark<C>(&self, buckets: &Buckets<C>) -> Mark {
        buckets.refund_log.mark_long(self.key)
    }

    /// Gives a charge back to the bucket as it is now. Where a publish has changed the limit's numbers meanwhile, the
    /// charge stands, at the client's expense. `mark` was made before the charge.
    #[cold]
    pub(crate) fn give_back<C: Clock>(&self, buckets: &Buckets<C>, charged: &ChargeResult, mark: Mark) {
        let Some(meter) = &self.limit.meter else { return };
        let receipt = |held: BucketState| {
            let moved_ns =
                buckets.refund_log.since(self.key, mark).filter(|_| held.generation == self.limit.generation)?;
            Some(Receipt { cost: self.cost, charged_at: charged.now, word: charged.word, moved_ns })
        };
        let (refund_log, read_clock) = (&buckets.refund_log, || buckets.now());
        match charged.site {
            BucketSite::Slot => {
                refund_log
                    .give_back(&buckets.table, self.key, meter, receipt, read_clock, || self.end_striping(buckets));
            }
            // The store takes back what it admitted; nothing was charged elsewhere.
            BucketSite::Store | BucketSite::NoRoom | BucketSite::Nowhere => {}
        }
    }

    /// Charges an excess that was used already, whether it fits or not, but at most until `max_debt` tokens are owed
    /// above the capacity. Where the key has no bucket and there is no room for one, this charges nothing and counts
    /// the denial: the key is not admitted before there is room.
    #[cold]
    pub(crate) fn overcharge<C: Clock>(&self, buckets: &Buckets<C>, max_debt: u64) -> SnapshotResult<()> {
        let Some(meter) = self.limit.meter else { return Ok(()) };
        // Tokens that stripes hold must not be spent before the excess.
        self.end_striping(buckets);
        let now = buckets.now();
        let overcharged = |held: BucketState, now| {
            let cost = self.cost.min(meter.debt_room(held.word, now, max_debt));
            BucketState { word: meter.overcharge(held.word, now, cost), ..held }
        };
        let outcome = match self.log(buckets) {
            Some(log) => {
                let log = SlidingLog { cost: self.cost.min(log.log.capacity()), is_owed: true, ..log };
                self.charge_log(buckets, &log, now).map(|charged| charged.map(drop))
            }
            None => self.update_word(buckets, now, &mut RaceCounts::default(), |held, now| {
                Next::Write(overcharged(held, now), ())
            }),
        };
        outcome.unwrap_or_else(|TableFull { .. }| {
            buckets.table.count_refused(self.limit.group);
            Ok(())
        })
    }

    /// Forgets what the key has used, also in an overflow bucket. Returns whether there was something to forget.
    #[cold]
    pub(crate) fn reset<C: Clock>(&self, buckets: &Buckets<C>) -> bool {
        self.end_striping(buckets);
        buckets.table.change(self.key, |held| {
            (held.word > buckets.now()).then(|| {
                buckets.refund_log.reset(self.key);
                // A striping that could not be ended goes on.
                BucketState { is_striped: held.is_striped, ..BucketState::word(held.generation, 0) }
            })
        })
    }
}
