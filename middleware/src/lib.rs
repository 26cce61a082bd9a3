//! Tidegate before a service: what turns a request over HTTP into the engine's [`Request`](tidegate::Request), and its
//! [`Decision`](tidegate::Decision) into an answer.
//!
//! Without features, for doors and middleware of every framework, from the ground up:
//!
//! * [`head`]: what is read of a request;
//! * [`address`]: whose address it is, behind proxies that are trusted;
//! * [`extract`]: the identities of a request;
//! * [`headers`]: of answers.

pub mod address;
pub mod extract;
pub mod head;
pub mod headers;
