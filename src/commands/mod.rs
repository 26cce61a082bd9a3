//! The commands: each file has the arguments of one command, and what it does.

pub(crate) mod admin;
pub(crate) mod backup;
pub(crate) mod check;
pub(crate) mod node;
pub(crate) mod policy;
mod progress;
pub(crate) mod replay;
pub(crate) mod serve;
pub(crate) mod user;
