//! Limits that nodes share through Redis or Valkey: an engine with a store.
//!
//! ```no_run
//! # async fn share() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//! use tidegate::{Decide, Engine, Identity, Request};
//! use tidegate_fleet::store::{SharedEngine, StoreAddress, StoreSettings};
//!
//! let engine = Arc::new(Engine::new()); // its policy has limits with sharing = "strict"
//! let address = StoreAddress::new(&["redis://127.0.0.1"]);
//! let shared = SharedEngine::new(Arc::clone(&engine), &address, StoreSettings::default()).await?;
//! let who = [Identity::new("user", "ada")?];
//! let request = Request::new(&who)?.endpoint("/api/v1/search")?;
//! let decision = shared.decide(&request).await;
//! println!("{} {:?}", decision.is_allowed(), decision.degraded());
//! # Ok(())
//! # }
//! ```
//!
//! The layers of `tidegate-middleware` take a [`SharedEngine`] wherever they take an engine. It needs Redis 5 or newer, or
//! Valkey. Its user needs `EVAL`, `EVALSHA`, `TIME`, `GET` and `SET` for keys that begin with the prefix (`tidegate:`
//! unless given), and `INFO`.

mod address;
mod client;
mod config;
mod error;
mod fault;
mod key;
mod local;
mod script;
mod shared;
#[cfg(test)]
mod simulation;
mod stats;

#[cfg(feature = "model")]
#[doc(hidden)]
pub use self::script::comparison::{ComparedBatch, ComparedStep, KEYS, ScriptComparison};
pub use self::{
    address::{ClientCertificate, StoreAddress, StoreTls},
    config::StoreSettings,
    error::{StoreError, TlsPart},
    fault::{FaultReport, StoreFault},
    key::KeySecret,
    shared::{SharedEngine, SharedReservation},
    stats::{StoreStats, WaitHistogram},
};
