//! Network building blocks that Tidegate's servers, nodes and middleware share. The crate depends on no other crate of
//! Tidegate; what needs a runtime or TLS is behind a feature.
//!
//! * [`backoff`]: the pauses between attempts to connect;
//! * [`breaker`] (feature `breaker`): a circuit breaker;
//! * [`trusted_proxy`]: the address of a client behind trusted proxies;
//! * [`tls`] (feature `tls`): the certificate of a listener, read again when its files change, and the TLS of clients.

pub mod backoff;
#[cfg(feature = "breaker")]
pub mod breaker;
#[cfg(feature = "tls")]
pub mod tls;
pub mod trusted_proxy;
