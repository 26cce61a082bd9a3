//! The commands of the command line.

pub(crate) mod backup;
pub(crate) mod check;
pub(crate) mod node;
pub(crate) mod policy;
mod progress;
pub(crate) mod replay;
pub(crate) mod user;
