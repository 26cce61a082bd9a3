//! The quotas of a node, by which it decides checks of shared limits itself: leases of `leased` limits and views of
//! `synced` ones.

mod exchange;
pub(crate) mod lease;
pub(crate) mod local_quotas;
pub(crate) mod quota;
mod renewal;
mod synced;
