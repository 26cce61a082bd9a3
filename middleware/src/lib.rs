//! Tidegate before a service: what turns a request over HTTP into the engine's [`Request`](tidegate::Request), and its
//! [`Decision`](tidegate::Decision) into an answer.
//!
//! From the ground up; without features, for doors and middleware of every framework:
//!
//! * [`request_head`]: what is read of a request;
//! * [`address`]: whose address it is, behind proxies that are trusted;
//! * [`extract`]: the identities of a request;
//! * [`headers`]: of answers;
//! * [`decision`]: decisions, and who makes them.
//!
//! With the features `tower` (also `axum` and `tonic`) or `actix`: a `Guard`, which stands before a service; the modules
//! `response`, `guard`, `tower`, `actix`. With `remote`: a client of Tidegate servers that decides in the place of an engine,
//! `remote`.

#[cfg(feature = "actix")]
pub mod actix;
pub mod address;
pub mod decision;
pub mod extract;
#[cfg(feature = "guard")]
pub mod guard;
pub mod headers;
#[cfg(feature = "remote")]
pub mod remote;
pub mod request_head;
#[cfg(feature = "guard")]
pub mod response;
#[cfg(feature = "tower")]
pub mod tower;

/// The code of the document is compiled and run.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../docs/middleware.md")]
    struct Middleware;
}
