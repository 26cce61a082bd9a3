//! `LimitNames`: the names of limits, by indices that a name keeps for as long as the engine lives. Read without a
//! lock.

use std::{fmt, sync::Arc};

use crate::{
    base::{atomic::Cell64, time::Nanos},
    storage::layout::LIMITS_MAX,
};

/// The most limits that an engine can know at a time: those of the policy in force, and those of earlier ones that it
/// still keeps. [`Engine::known_limits`](crate::Engine::known_limits) returns how many it knows.
pub const KNOWN_LIMITS_MAX: usize = LIMITS_MAX - 1;
/// The name that decisions show for a limit whose numbers came with the request.
const OVERRIDE: &str = "override";

/// Every name that there ever was, by index, with what readers need of the last publish. It only grows.
pub(crate) struct LimitNames {
    pub(super) names: boxcar::Vec<LimitName>,
    /// The name of the limit that is in no policy and has no index.
    alone: LimitName,
    /// The number of ids that had a name at the last publish.
    known: Cell64,
    /// The time by which the engine's clock was ahead of wall time at the last publish.
    ahead: Cell64,
}

/// The index of a limit's name in its engine: the same over all publishes, and never that of another name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LimitIndex(pub(crate) u32);

impl LimitIndex {
    /// Returns the index as a place in a list: indices are given from 0 upwards.
    #[must_use]
    pub fn place(self) -> usize {
        self.0 as usize
    }
}

#[derive(Debug)]
pub(super) struct LimitName {
    pub(super) text: Arc<str>,
    /// The number of the counters of its decisions; `None` for a limit of a single client.
    pub(super) counter: Option<u32>,
}

impl fmt::Debug for LimitNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // There may be a hundred thousand names, and every decision refers to them.
        f.debug_struct("LimitNames").field("names", &self.names.count()).finish_non_exhaustive()
    }
}

impl LimitNames {
    pub(crate) fn new() -> Self {
        let alone = LimitName { text: OVERRIDE.into(), counter: None };
        Self { names: boxcar::Vec::new(), alone, known: Cell64::new(0), ahead: Cell64::new(0) }
    }

    /// Returns the wall time at an instant of the engine's clock.
    pub(crate) fn wall(&self, at: Nanos) -> Nanos {
        at.saturating_sub(self.ahead.load())
    }

    /// Stores what a publish leaves: how far the clock is ahead, and how many ids have a name.
    pub(crate) fn published(&self, ahead: u64, known: usize) {
        self.ahead.store(ahead);
        self.known.store(known as u64);
    }

    pub(crate) fn known(&self) -> usize {
        self.known.load() as usize
    }

    /// Returns the name with this index, or `override`.
    pub(crate) fn name(&self, index: u32) -> &str {
        &self.names.get(index as usize).unwrap_or(&self.alone).text
    }

    /// Returns the number of the counters of the limit with this index, if its decisions are counted.
    pub(crate) fn counter(&self, index: u32) -> Option<u32> {
        self.names.get(index as usize)?.counter
    }
}
