//! The front doors of a Tidegate server: where other services ask it. Each door turns what it reads into the engine's
//! [`Request`](tidegate::Request), and the [`Decision`](tidegate::Decision) on it into what it writes; none decides anything
//! itself.
//!
//! * What all doors share, and what knows no protocol: `decider` (the one way to the engine), with `retries` (what was
//!   answered to request ids), `reservations` (those that are open) and `degraded` (answers that are not what they should
//!   have been).
//! * [`http`]: checks as JSON over HTTP, health and metrics. Its parts, from the ground up: `error` (what is refused, and
//!   how that is told), `wire` (bodies of requests), `answer` (of answers), `room` and `body` (read one), `tokens` (who may ask), `latency`, `health`, `metrics`, `running` (until it
//!   has stopped); headers
//!   of answers are those of [`tidegate_middleware::headers`].

mod answer;
mod body;
mod decider;
mod degraded;
mod error;
mod health;
pub mod http;
mod latency;
mod metrics;
mod reservations;
mod retries;
mod room;
mod running;
mod tokens;
mod watch;
mod wire;

pub use decider::Decider;
pub use degraded::tell_panics_seldom;
pub use running::{Handle, Running};
pub use tokens::{Tokens, TokensError};
pub use watch::Source;
