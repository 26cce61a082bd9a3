//! The commands on policy documents.

pub(crate) mod diff;
pub(crate) mod export;
pub(crate) mod import;
pub(crate) mod publish;
pub(crate) mod rollout;
pub(crate) mod test;
