//! The client of a store: its connections, the batching of requests, the circuit breaker and the health monitor.

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
