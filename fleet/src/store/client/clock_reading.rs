//! A clock reading: the time of the store and of this node.

use tidegate::time::Nanos;

/// An instant by the store's clock, as far as this node knows it, and by the node's own clock, which never jumps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ClockReading {
    pub(crate) store: Nanos,
    pub(crate) own: Nanos,
}
