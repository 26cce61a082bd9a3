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

mod answer;
mod body;
mod body_budget;
mod callers;
mod decider;
mod degraded;
mod doors;
mod error;
pub mod grpc;
mod health;
pub mod http;
mod lanes;
mod latency;
mod metrics;
mod periods;
mod refusals;
mod reservations;
pub mod resp;
mod retries;
mod running;
mod store_places;
mod tokens;
mod traces;
mod watch;
mod wire;

pub use decider::{DEFAULT_CALLER_SHARE, DEFAULT_SETTLE_MULTIPLE, Decider};
pub use degraded::tell_panics_seldom;
pub use doors::{DRAIN_DELAY_MAX, Doors, Settings};
pub use periods::Periods;
pub use refusals::Errors;
pub use running::{Handle, Running};
pub use tidegate_listener::{CONNECTIONS_MAX, ConnectionCaps, DEFAULT_PEER_CONNECTIONS};
pub use tokens::{Tokens, TokensError};
pub use traces::Traces;
pub use watch::Source;
