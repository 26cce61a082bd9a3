//! The [fast path](crate::engine::fast_path) of checks of any cost, by any algorithm except a log. It steps with the
//! limit's meter.

use crate::{
    algorithm::Meter,
    base::{clock::Clock, time::Nanos},
    engine::{
        active_policy::ActiveLimit,
        buckets::Buckets,
        decision::{DecidedBy, Decision, Outcome},
        fast_path::{FastPathLimit, FastPathMiss},
    },
    storage::{sliding_log::StepResult, table::KeyLines},
};

/// The data that the fast path needs of a limit, with the meter that interprets its words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MeteredLimit {
    pub(crate) fast_path: FastPathLimit,
    meter: Meter,
    /// The index of the limit's name.
    index: u32,
}

impl MeteredLimit {
    /// Returns `None` for a log, and for a limit that admits nothing.
    pub(crate) fn new(limit: &ActiveLimit) -> Option<Self> {
        let &ActiveLimit { fast_path, meter, index, .. } = limit;
        Some(Self { fast_path: fast_path?, meter: meter?, index })
    }

    /// Charges the key of these lines, or finds that the cost does not fit.
    #[inline(always)]
    pub(crate) fn charge(
        &self,
        lines: KeyLines<'_>,
        cost: u64,
        read_clock: impl FnOnce() -> Nanos,
        is_newest: impl FnOnce() -> bool,
    ) -> Result<StepResult, FastPathMiss> {
        let step = |word, now| self.meter.step(word, now, cost);
        let (stepped, seen) = self.fast_path.look(lines, read_clock, is_newest, step)?;
        self.fast_path.charge(stepped, seen)
    }

    /// Returns the outcome of a charge of this cost.
    #[inline(always)]
    pub(crate) fn outcome<C: Clock>(&self, buckets: &Buckets<C>, cost: u64, stepped: StepResult) -> Outcome {
        let StepResult { verdict, word, now } = stepped;
        Outcome { meter: Some(self.meter), cost, verdict, word, now }.at_resolution(buckets.clock.resolution())
    }

    /// Returns the decision of a charge of this cost, under the policy of this version.
    #[inline(always)]
    pub(crate) fn decision<'e, C: Clock>(
        &self,
        buckets: &'e Buckets<C>,
        version: u64,
        cost: u64,
        stepped: StepResult,
    ) -> Decision<'e> {
        let outcome = self.outcome(buckets, cost, stepped);
        let decided_by = DecidedBy { place: 0, limit: self.index, is_stored: false, outcome };
        Decision::of_one(&buckets.names, version, decided_by, outcome.delay_ns())
    }
}
