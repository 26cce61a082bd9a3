//! The nodes that follow this server: registry, history, queries, policies that they are sent, the live tail.

pub(crate) mod clock_skew;
pub(crate) mod live_tail;
pub(crate) mod node_history;
pub(crate) mod registry;
pub(crate) mod snapshot_push;
