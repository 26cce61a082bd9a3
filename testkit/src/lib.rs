//! Servers, ports and certificates for the tests of all crates: Redis or Valkey, alone, with Sentinels or as a cluster; Envoy and other proxies;
//! a proxy that delays and drops answers; databases on a `PostgreSQL` server; a hostile caller.
//!
//! Tests only: what does not work panics with the reason. Each guard releases what it holds when it is dropped, and helper
//! processes also end when the test process is killed (see [`process`]).

pub mod certificate;
pub mod cluster;
#[cfg(doctest)]
mod documents;
pub mod fault_proxy;
pub mod hostile;
pub mod layers;
pub mod port;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod process;
pub mod proxy;
pub mod redis;
pub mod sentinel;
mod wait;

pub use self::wait::{PATIENCE, wait_for, wait_until};
