//! The script that the store runs: its arguments, its answers, and the records that it reads and writes.

#[cfg(any(test, feature = "model"))]
pub(crate) mod argument;
#[cfg(any(test, feature = "model"))]
pub(crate) mod comparison;
pub(crate) mod decode;
pub(crate) mod encode;
pub(crate) mod grant;
mod op;
pub(crate) mod plan;
pub(crate) mod record;
#[cfg(any(test, feature = "model"))]
pub(crate) mod script_model;
