//! The agent of a node: it follows an admin server, reports to it, and answers its queries.

mod compiled_policy;
pub mod describe;
pub(crate) mod follower;
mod http_client;
mod last_good;
mod live_tail;
mod node;
pub(crate) mod process;
pub(crate) mod queries;
mod reporter;
