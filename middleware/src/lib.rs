//! Tidegate as middleware of a service: a guard for tower and actix-web that checks each request, and the client of a server.
//!
//! The modules from the ground up. Without features, for the servers of Tidegate too:
//!
//! * [`request_head`]: the trait through which the head of a request is read, whatever the framework;
//! * [`address`]: the client's address, behind trusted proxies;
//! * [`extract`]: the identities of a request;
//! * [`headers`]: the response headers of a decision;
//! * [`decision`]: a decision that owns its data, and the trait of what makes decisions.
//!
//! With the features `tower` (also `axum` and `tonic`) or `actix`, a `Guard`, which protects a service:
//!
//! * `response`: the response to a request that may not pass;
//! * `guard`: the guard, without types of a framework;
//! * `tower`, `actix`: the guard as a layer of tower, and as a middleware of actix-web.
//!
//! With the feature `remote`:
//!
//! * `remote`: the client of Tidegate servers, which decides instead of an engine.

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
