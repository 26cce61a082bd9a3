//! The client of a store: connections, batches of questions, and whether the store is well.

pub(crate) mod batcher;
mod cluster;
pub(crate) mod connection;
mod epoch;
mod health;
pub(crate) mod sentinel;
mod server;
