//! The names of limits, and the indices and counters that a name keeps for as long as the engine lives.

use std::{fmt, sync::Arc};

use crate::{
    base::{atomic::Cell64, time::Nanos},
    storage::layout::LIMITS_MAX,
};

/// How many limits an engine can know at a time: those of the policy in force, and those of earlier ones that it still keeps.
/// [`Engine::known_limits`](crate::Engine::known_limits) says how many it knows.
pub const KNOWN_LIMITS_MAX: usize = LIMITS_MAX - 1;
/// As decisions name the limit whose numbers came with the request.
const OVERRIDE: &str = "override";

/// What is known of limits without a lock: every name that there ever was, by index. Grows only.
pub(crate) struct LimitNames {
    pub(super) names: boxcar::Vec<LimitName>,
    /// Of the limit that is in no policy; it has no index.
    alone: LimitName,
    /// Ids that have a name, as of the last publish.
    known: Cell64,
    /// How far the engine's clock is ahead of wall time, as of the last publish.
    ahead: Cell64,
}

/// Index of a limit in its engine: of its name, so the same over all publishes, and never that of another name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LimitIndex(pub(crate) u32);

impl LimitIndex {
    /// As a place in a list: indices are given from 0 upwards.
    #[must_use]
    pub fn place(self) -> usize {
        self.0 as usize
    }
}

#[derive(Debug)]
pub(super) struct LimitName {
    pub(super) text: Arc<str>,
    /// Number under which its decisions are counted; `None` for a limit of a single client.
    pub(super) counter: Option<u32>,
}

impl fmt::Debug for LimitNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // There may be a hundred thousand, and every decision leads here.
        f.debug_struct("LimitNames").field("names", &self.names.count()).finish_non_exhaustive()
    }
}

impl LimitNames {
    pub(crate) fn new() -> Self {
        let alone = LimitName { text: OVERRIDE.into(), counter: None };
        Self { names: boxcar::Vec::new(), alone, known: Cell64::new(0), ahead: Cell64::new(0) }
    }

    /// Wall time at an instant of the engine's clock.
    pub(crate) fn wall(&self, at: Nanos) -> Nanos {
        at.saturating_sub(self.ahead.load())
    }

    /// What a publish leaves: how far the clock is ahead, and how many ids have a name.
    pub(crate) fn published(&self, ahead: u64, known: usize) {
        self.ahead.store(ahead);
        self.known.store(known as u64);
    }

    pub(crate) fn known(&self) -> usize {
        self.known.load() as usize
    }

    /// By index.
    pub(crate) fn name(&self, index: u32) -> &str {
        &self.names.get(index as usize).unwrap_or(&self.alone).text
    }

    /// Number under which the decisions of the limit with this index are counted, if they are.
    pub(crate) fn counter(&self, index: u32) -> Option<u32> {
        self.names.get(index as usize)?.counter
    }
}
