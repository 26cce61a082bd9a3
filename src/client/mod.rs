//! The calls of commands to a running server.

pub(crate) mod http_client;
pub(crate) mod session;
