//! What a node decides by itself of limits that nodes share: leased tokens, and its view of synced limits.

pub(crate) mod lease;
pub(crate) mod quota;
mod synced;
