//! How far buckets were moved back: by what was given back to them, and by resets. A charge that is given back later asks
//! what happened since.

use crate::{
    algorithm::{Meter, Receipt},
    sync::Counter,
    table::Key,
    time::Nanos,
    word::Held,
};

/// What was taken off buckets other than by time: it decides how much of a charge is left to give back.
#[derive(Debug)]
pub(crate) struct Moves {
    groups: Box<[Group]>,
    /// Resets of any key.
    resets: Counter,
}

/// Sums of a group of keys.
#[derive(Debug, Default)]
struct Group {
    /// How far buckets were moved back by what was given back to them, in microseconds rounded up.
    moved: Counter,
    resets: Counter,
}

/// How the sums stood before a charge.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mark {
    /// For a charge that is given back at once or never: one read for all keys.
    Brief { resets: u64 },
    /// For one that may be given back much later.
    Long { moved: u64, resets: u64 },
}

impl Moves {
    /// Loom minds every one.
    const GROUPS: usize = if cfg!(engine_loom) { 1 } else { 4_096 };
    const UNIT_NS: u64 = 1_000;

    pub(crate) fn new() -> Self {
        Self { groups: (0..Self::GROUPS).map(|_| Group::default()).collect(), resets: Counter::default() }
    }

    pub(crate) fn mark_brief(&self) -> Mark {
        Mark::Brief { resets: self.resets.count() }
    }

    pub(crate) fn mark_long(&self, key: Key) -> Mark {
        let group = self.group(key);
        Mark::Long { moved: group.moved.count(), resets: group.resets.count() }
    }

    fn group(&self, key: Key) -> &Group {
        &self.groups[key.bits().spread() % Self::GROUPS]
    }

    /// To be called before the word is swapped, as `reset`.
    fn moved(&self, key: Key, ns: u64) {
        self.group(key).moved.add(ns.div_ceil(Self::UNIT_NS));
    }

    pub(crate) fn reset(&self, key: Key) {
        self.resets.add(1);
        self.group(key).resets.add(1);
    }

    /// At most so far was the key's bucket moved back since `mark`; `u64::MAX` when unknown. `None`: it may have been reset.
    /// Sums wrap around after half a million years.
    pub(crate) fn since(&self, key: Key, mark: Mark) -> Option<u64> {
        match mark {
            Mark::Brief { resets } => (self.resets.count() == resets).then_some(u64::MAX),
            Mark::Long { moved, resets } => {
                let group = self.group(key);
                let ns = group.moved.count().wrapping_sub(moved).saturating_mul(Self::UNIT_NS);
                (group.resets.count() == resets).then_some(ns)
            }
        }
    }
    /// What a bucket holds after a charge was given back to it; `None` where nothing is left to give.
    pub(crate) fn given_back(
        &self,
        key: Key,
        held: Held,
        meter: &Meter,
        receipt: &Receipt,
        read_clock: impl Fn() -> Nanos,
    ) -> Option<Held> {
        // The clock after the word: what time has returned up to now must not be returned again.
        let word = meter.give_back(held.word, read_clock(), receipt)?;
        self.moved(key, held.word.saturating_sub(word));
        Some(Held { word, ..held })
    }
}
