//! The front doors of a Tidegate server: where other services ask it. Each door turns what it reads into the engine's
//! [`Request`](tidegate::Request), and the engine's [`Decision`](tidegate::Decision) into what it writes; none decides
//! anything itself.
//!
//! * [`http`]: checks as JSON over HTTP, health and metrics. Its parts, from the ground up: `error` (what is refused, and
//!   how that is told), `wire` (bodies), `body` (reads one), `metrics`; headers of answers are those of
//!   [`tidegate_middleware::headers`].

mod body;
mod error;
pub mod http;
mod metrics;
mod wire;
