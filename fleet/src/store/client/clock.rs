//! The time of a store, and that of this node.

use tidegate::time::Nanos;

/// A moment, by the store's clock as far as this node knows it, and by its own, which never jumps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ClockReading {
    pub(crate) store: Nanos,
    pub(crate) own: Nanos,
}
