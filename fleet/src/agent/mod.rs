//! The agent of a node: it follows an admin server, reports to it, and answers its queries.

mod admin_stream;
mod apply;
mod compiled_policy;
pub mod describe;
pub(crate) mod http_client;
mod last_good;
mod live_tail;
mod node;
pub(crate) mod process;
pub(crate) mod query_handler;
mod report;
pub(crate) mod start;
pub(crate) mod status;
