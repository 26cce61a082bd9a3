//! The client of a running server.

pub(crate) mod session;
