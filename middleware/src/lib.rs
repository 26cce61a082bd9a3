//! Tidegate before a service: what turns a request over HTTP into the engine's [`Request`](tidegate::Request), and its
//! [`Decision`](tidegate::Decision) into an answer.
//!
//! From the ground up; without features, for doors and middleware of every framework:
//!
//! * [`head`]: what is read of a request;
//! * [`address`]: whose address it is, behind proxies that are trusted;
//! * [`extract`]: the identities of a request;
//! * [`headers`]: of answers;
//! * [`ruling`]: decisions, and who makes them.
//!
//! With the features `tower` (also `axum` and `tonic`) or `actix`: a `Guard`, which stands before a service; the modules
//! `answer`, `guard`, `tower`, `actix`. With `remote`: a client of Tidegate servers that decides in the place of an engine;
//! `wire`, `exchange`, `remote`.

#[cfg(feature = "actix")]
pub mod actix;
pub mod address;
#[cfg(feature = "guard")]
pub mod answer;
#[cfg(feature = "remote")]
mod exchange;
pub mod extract;
#[cfg(feature = "guard")]
pub mod guard;
pub mod head;
pub mod headers;
#[cfg(feature = "remote")]
pub mod remote;
pub mod ruling;
#[cfg(feature = "tower")]
pub mod tower;
#[cfg(feature = "remote")]
mod wire;
