//! The front doors of a Tidegate server: where other services ask it. Each door turns what it reads into the engine's
//! [`Request`](tidegate::Request), and the [`Decision`](tidegate::Decision) on it into what it writes; none decides anything
//! itself.
//!
//! * What all doors share, and what knows no protocol: `decider` (the one way to the engine), with `retries` (what was
//!   answered to request ids), `reservations` (those that are open), `callers` (the share of each caller of both) and
//!   `degraded` (answers that are not what they should have been); `doors` (opens them), `lanes` (threads for connections that
//!   are no HTTP), `body_budget` (memory for what waits for its caller; [`tidegate_listener`] caps connections), `tokens` (who
//!   may ask), `periods` (how long listeners wait), `latency`, `health`, `refusals` (errors by kind), `metrics`, `watch`,
//!   `traces` (spans of requests), `running` (until they have stopped).
//! * [`http`]: checks as JSON over HTTP, health and metrics. Its parts, from the ground up: `error` (what is refused, and
//!   how that is told), `wire` (bodies of requests), `answer` (of answers), `body` (reads one); headers of answers are those of
//!   [`tidegate_middleware::headers`].
//! * [`grpc`]: checks over gRPC, of Envoy too, and what goes on to the admin server.
//! * [`resp`]: checks over the Redis protocol.

mod envoy;
pub mod grpc;
pub mod http;
mod listeners;
pub mod resp;
mod running;
mod shared;

pub use listeners::{DRAIN_DELAY_MAX, Doors, Settings};
pub use running::{Handle, Running};
pub use shared::{
    decider::{DEFAULT_CALLER_SHARE, DEFAULT_SETTLE_MULTIPLE, Decider},
    degraded::tell_panics_seldom,
    health_monitor::Source,
    rejection_counts::Errors,
    timeouts::Periods,
    tokens::{Tokens, TokensError},
    traces::Traces,
};
pub use tidegate_listener::{CONNECTIONS_MAX, ConnectionCaps, DEFAULT_PEER_CONNECTIONS};
