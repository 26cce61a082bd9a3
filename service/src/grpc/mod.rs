//! The gRPC API: the services of `proto/`, Envoy's among them, and the standard services for health and reflection.

mod admin_client;
mod admission;
mod call_handler;
mod check_request;
mod check_response;
mod check_stream;
mod config;
mod connection;
mod health;
mod limiter;
mod listener;
mod methods;
mod request_body;
mod response_body;
mod response_buffer;
mod status;

pub(crate) use self::methods::KIND;
pub use self::{admin_client::AdminApiClient, listener::Grpc};
pub use crate::{envoy::offline::decide_descriptors, protobuf::generated as proto};
