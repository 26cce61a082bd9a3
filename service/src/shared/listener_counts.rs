//! The counts of one listener: its connections, and the latencies of its responses.

use std::sync::Arc;

use tidegate_listener::{ConnectionCaps, ConnectionLimiter};

use super::latency::{ListenerKind, ListenerLatencies};

#[derive(Debug)]
pub(crate) struct ListenerCounts {
    pub(crate) latencies: ListenerLatencies,
    pub(crate) connections: Arc<ConnectionLimiter>,
}

impl ListenerCounts {
    /// Returns the counts of a new listener, whose connections have these caps. `must_authenticate` says whether its connections
    /// authenticate.
    pub(crate) fn new(kind: &'static ListenerKind, caps: ConnectionCaps, must_authenticate: bool) -> Self {
        let connections = ConnectionLimiter::new(kind.name, caps, must_authenticate);
        Self { latencies: ListenerLatencies::new(kind), connections }
    }
}
