//! What a step answers: the verdict, and the receipt by which a charge is given back.

use crate::base::time::Nanos;

/// What one step decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Verdict {
    /// Admitted, and this is the word to store.
    Admit(u64),
    /// Refused now; the same cost is admitted in `wait_ns` nanoseconds (at least 1) if nobody else comes. Costs nothing.
    Later {
        /// Nanoseconds from the `now` of the step.
        wait_ns: u64,
    },
    /// The cost is above the capacity: refused for ever. Costs nothing.
    Never,
}

impl Verdict {
    /// The word to store, if it is admitted.
    #[inline(always)]
    pub(crate) fn admitted(self) -> Option<u64> {
        match self {
            Self::Admit(word) => Some(word),
            Self::Later { .. } | Self::Never => None,
        }
    }
}

/// What a charge leaves behind for giving it back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Receipt {
    /// Tokens that were charged.
    pub cost: u64,
    /// The `now` of the step that charged them.
    pub charged_at: Nanos,
    /// The word that the charge wrote.
    pub word: u64,
    /// At most so many nanoseconds were given back to the same bucket since, for other charges; `u64::MAX` when unknown.
    pub moved_ns: u64,
}
