//! The listeners of a Tidegate server, by which other services check requests: HTTP, gRPC with Envoy's rate limit service, and the Redis
//! protocol (RESP). Each turns what it reads into the engine's [`Request`](tidegate::Request), and writes the
//! [`Decision`](tidegate::Decision) as its response. None decides anything itself.
//!
//! The files, from the ground up: a file uses only what stands before it in the list of its folder, which a test checks.
//!
//! * `src`: `shared`, `http`, `protobuf`, `envoy`, `grpc`, `resp`, `running`, `listeners`;
//! * `shared` (what the listeners of all protocols share): `timeouts`, `log_limiter`, `metric_encoding`, `tokens`, `caller_shares`, `reservations`, `request_id_cache`, `store_concurrency`, `degraded`, `body_budget`, `error`, `decider`, `latency`, `listener_counts`, `rejection_counts`, `health_rules`, `throttle_metrics`, `health_monitor`, `metrics`, `traces`, `operators`, `service_state`, `worker_threads`;
//! * `shared/decider` (the only way to the engine, for single checks, batches, and several checks all or nothing): `batch`, `all_or_nothing`;
//! * `shared/body_budget` (the memory of bodies and responses that wait for their callers): `permit_state`, `ledger`, `permit`;
//! * `http` (checks as JSON over HTTP, health and metrics): `response_body`, `body_reader`, `request_body`, `routes`, `known_headers`, `authorize_settings`, `browsers`, `held_bodies`, `responses`, `worker`, `authorize`, `listener`;
//! * `protobuf` (messages, generated and by hand): `codec`, `generated`, `error`, `reader`, `writer`;
//! * `envoy` (Envoy's rate limit service): `request`, `response`, `decide`, `offline`;
//! * `grpc` (checks over gRPC, and calls of the admin server): `methods`, `status`, `request_body`, `response_body`, `check_request`, `check_response`, `limiter`, `response_buffer`, `check_stream`, `admin_client`, `config`, `health`, `admission`, `call_handler`, `connection`, `listener`;
//! * `resp` (checks over the Redis protocol): `frame_reader`, `reply_writer`, `error`, `throttle`, `command_table`, `check_command`, `worker`, `session`, `connection`, `listener`.

mod envoy;
pub mod grpc;
pub mod http;
mod listeners;
mod protobuf;
pub mod resp;
mod running;
mod shared;

pub use listeners::{DRAIN_DELAY_MAX, ListenerSettings, Listeners};
pub use running::{Handle, RunningListeners};
pub use shared::{
    decider::{DEFAULT_CALLER_SHARE, DEFAULT_SETTLE_MULTIPLE, Decider},
    health_monitor::PolicyFeed,
    log_limiter::limit_panic_reports,
    rejection_counts::ListenerErrors,
    timeouts::Timeouts,
    tokens::{Tokens, TokensError},
    traces::Traces,
};
pub use tidegate_listener::{CONNECTIONS_MAX, ConnectionCaps, DEFAULT_PEER_CONNECTIONS};
