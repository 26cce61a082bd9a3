//! Limiters without a policy: one rate for one thing, or for each key.
//!
//! * `constructors`: constructors that take a number of tokens per period
//! * `wait_queue`: the queue of the tasks that wait for tokens, first come, first served
//! * `single`: `Limiter`, of one thing
//! * `keyed`: `KeyedLimiter`, one rate for each of many keys
//! * `rated`: `RatedLimiter`, of keys whose rate comes with each check
//! * `wait`: the methods that wait for a token instead of being denied

#[macro_use]
mod constructors;
pub(crate) mod keyed;
pub(crate) mod rated;
pub(crate) mod single;
#[cfg(feature = "wait")]
mod wait;
#[cfg(feature = "wait")]
pub(crate) mod wait_queue;
