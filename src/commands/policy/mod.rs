//! The commands on policy documents, in files or at a running server.

pub(crate) mod check;
pub(crate) mod diff;
pub(crate) mod export;
pub(crate) mod import;
pub(crate) mod publish;
pub(crate) mod rollout;
pub(crate) mod test;
