//! The HTTP API: who may call it, how bodies are read, its routes and their documentation.

pub(crate) mod api_document;
pub(crate) mod client_address;
pub(crate) mod connections;
pub(crate) mod cookies;
pub(crate) mod extract;
pub(crate) mod guard;
pub(crate) mod held_body;
pub(crate) mod node_stream;
pub(crate) mod openapi;
pub(crate) mod problem;
pub(crate) mod readiness;
pub(crate) mod request_id;
pub(crate) mod routes;
pub(crate) mod server;
pub(crate) mod state;
