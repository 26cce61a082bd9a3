//! The client of a store: its connections, the batching of requests, the circuit breaker and the health monitor.

pub(crate) mod batcher;
pub(crate) mod clock_reading;
mod cluster_connection;
mod epoch;
pub(crate) mod fault_log;
mod health;
pub(crate) mod queue;
pub(crate) mod redis_client;
mod sentinel;
mod server_connection;
pub(crate) mod store_connection;
