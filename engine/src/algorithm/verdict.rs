//! The result of a step, and the receipt by which a charge is given back.

use crate::base::time::Nanos;

/// The decision of one step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Verdict {
    /// Admitted, and this is the word to store.
    Admit(u64),
    /// Refused now; the same cost is admitted in `wait_ns` nanoseconds (at least 1) if no other request is charged. Costs nothing.
    Later {
        /// Nanoseconds from the `now` of the step.
        wait_ns: u64,
    },
    /// Refused for ever, because the cost is above the capacity. Costs nothing.
    Never,
}

impl Verdict {
    /// Returns the word to store, if the cost is admitted.
    #[inline(always)]
    pub(crate) fn admitted(self) -> Option<u64> {
        match self {
            Self::Admit(word) => Some(word),
            Self::Later { .. } | Self::Never => None,
        }
    }
}

/// The record of a charge, by which it can be given back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Receipt {
    /// The tokens that were charged.
    pub cost: u64,
    /// The `now` of the step that charged them.
    pub charged_at: Nanos,
    /// The word that the charge wrote.
    pub word: u64,
    /// The most nanoseconds that were given back to the same bucket since, for other charges; `u64::MAX` when unknown.
    pub moved_ns: u64,
}
