//! What the engine and the nodes of the fleet counted, and the metrics of this server.

pub(crate) mod clock;
pub(crate) mod collector;
pub(crate) mod decided_around;
pub(crate) mod endpoints;
pub(crate) mod remotes;
pub(crate) mod ring;
pub(crate) mod sample;
pub(crate) mod series;
pub(crate) mod sums;
pub(crate) mod telemetry;
pub(crate) mod top;
