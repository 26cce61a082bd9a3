//! Tidegate's fleet: an engine that follows an admin server.
//!
//! What is published there is pushed to every node, checked, compiled beside the checks, swapped in, kept as the last good
//! one, and acknowledged. Once a second a node tells what it counted; it answers what an operator asks. Three lines:
//!
//! ```no_run
//! # async fn follow() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//! use tidegate::Engine;
//! use tidegate_fleet::{Follower, Token};
//!
//! let engine = Arc::new(Engine::new());
//! let follower = Follower::new("https://admin.example:8080", Token::file("/run/secrets/tidegate"));
//! let following = follower.keeping_in("/var/lib/my-service").start(Arc::clone(&engine)).await?;
//! // ... engine.check(...); the engine follows until `following` is dropped. One that leaves is missed by nobody.
//! following.leave().await;
//! # Ok(())
//! # }
//! ```
//!
//! Without the admin server it starts with the last good policy, and goes on with the one it has; it comes back by itself,
//! with pauses that grow and are never those of its neighbours.
//!
//! From the ground up: `latency`, `counted` (what was counted in a stretch of time), `owners` (tiers and rules), `watcher`
//! (what no counter tells), `counters` (what an engine counted), `wire` (what nodes and the admin server say to each other),
//! `payload` (a document on its way), `fit` (what is told fits), `sse` (the stream, read), `compiled` (a policy as a follower
//! has it), `last_good` (what lies on the disk), `words` (how a limit stands), `lookout` and `answers`
//! (what an operator asks), `process` (what a process tells of itself), [`store`] (limits that nodes share through Redis), `reports` (what is told), `calls` (HTTP), `node` (what a follower does), `follower`.

mod agent;
mod counts;
mod lock;
pub mod store;
pub mod wire;

pub use agent::{
    describe,
    follower::{Follower, Following, StartError},
    http_client::Token,
    process::{ErrorCounts, resident_bytes},
    queries::Answers,
    status::{Source, Status},
};
pub use counts::{
    counters::{Counted, Counters, Figure},
    latency::Latency,
    owner::{Owner, owner_of},
    sampler::{Also, ENTRIES, HALF_LIFE, ONE_IN, Sample, Watcher},
    totals::{Part, Whole},
};
pub use wire::{
    event_reader::{Event, EventReader, TooLong},
    payload,
};

/// The code of the document is compiled.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../docs/fleet.md")]
    struct Fleet;
}
