//! Limiters without a policy: one limit on one thing, or on each key.
//!
//! * `wait_queue`: those who wait for tokens, first come, first served
//! * `single`: a limiter of one thing
//! * `keyed`: one limit on many keys
//! * `dynamic`: keys whose limit comes with each check
//! * `wait`: waiting for a token instead of being denied

pub(crate) mod dynamic;
pub(crate) mod keyed;
pub(crate) mod single;
#[cfg(feature = "wait")]
mod wait;
#[cfg(feature = "wait")]
pub(crate) mod wait_queue;
