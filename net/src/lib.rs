//! Network building blocks that Tidegate's servers, nodes and middleware share. The crate depends on no other crate of
//! Tidegate, and without features on none at all.
//!
//! * [`tls`] (feature `tls`): the certificate of a listener, read again when its files change, and the TLS of clients.

#[cfg(feature = "tls")]
pub mod tls;
