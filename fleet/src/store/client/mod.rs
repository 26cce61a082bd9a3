//! The client of a store: connections, batches of questions, and whether the store is well.

pub(crate) mod batcher;
pub(crate) mod clock;
mod cluster;
pub(crate) mod connect;
pub(crate) mod connection;
mod epoch;
pub(crate) mod fault_log;
mod health;
pub(crate) mod queue;
mod sentinel;
mod server;
