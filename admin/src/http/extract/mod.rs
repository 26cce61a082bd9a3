//! What handlers take from a request: bodies, parameters, pages of lists, and turns for long work.

pub(crate) mod blocking;
pub(crate) mod body;
pub(crate) mod paging;
pub(crate) mod query;
