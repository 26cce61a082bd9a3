//! Tidegate's fleet: an engine that follows an admin server.
//!
//! What is published there is pushed to every node, checked, compiled beside the checks, swapped in, kept as the last good
//! one, and acknowledged. Once a second a node tells what it counted; it answers what an operator asks. Three lines:
//!
//! ```no_run
//! # async fn follow() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//! use tidegate::Engine;
//! use tidegate_fleet::{Agent, Token};
//!
//! let engine = Arc::new(Engine::new());
//! let agent = Agent::new("https://admin.example:8080", Token::file("/run/secrets/tidegate"));
//! let handle = agent.keeping_in("/var/lib/my-service").start(Arc::clone(&engine)).await?;
//! // ... engine.check(...); the engine follows until `handle` is dropped. After `leave` the admin server raises no alert.
//! handle.leave().await;
//! # Ok(())
//! # }
//! ```
//!
//! Without the admin server it starts with the last good policy, and goes on with the one it has; it comes back by itself,
//! with pauses that grow and are never those of its neighbours.
//!
//! The files, from the ground up: a file uses only what stands before it in the list of its folder, which a test checks.
//!
//! * `src`: `lock`, `counts`, `store`, `wire`, `agent`;
//! * `counts` (counts of decisions): `latency`, `totals`, `limit_owner`, `sampler`, `counters`;
//! * `store` (limits that nodes share through Redis): `error`, `config`, `key`, `address`, `fault`, `stats`, `script`, `client`, `local`, `shared`, `simulation`;
//! * `store/script` (the script that the store runs, its arguments and its answers): `record`, `grant`, `op`, `plan`, `encode`, `decode`, `argument`, `script_model`, `comparison`;
//! * `store/client` (connections, and what goes out together): `clock_reading`, `redis_client`, `fault_log`, `sentinel`, `server_connection`, `cluster_connection`, `store_connection`, `epoch`, `queue`, `batcher`, `health`;
//! * `store/local` (what a node decides by itself): `lease`, `synced`, `quota`, `local_quotas`, `renewal`, `exchange`;
//! * `store/simulation` (nodes and a store in virtual time, for tests): `random`, `mutation`, `network`, `node`, `judge`, `scenario`, `history`, `check`, `run`, `plan`, `late_answer`;
//! * `wire` (messages between nodes and the admin server): `payload`, `event_reader`, `stream`, `report`, `query`, `truncate`;
//! * `agent` (what a node does): `process`, `status`, `describe`, `http_client`, `live_tail`, `query_handler`, `compiled_policy`, `last_good`, `node`, `apply`, `report`, `admin_stream`, `start`.

mod agent;
mod counts;
mod lock;
pub mod store;
pub mod wire;

pub use agent::{
    describe,
    http_client::Token,
    process::{ErrorCounts, resident_bytes},
    query_handler::QueryHandler,
    start::{Agent, AgentHandle, StartError},
    status::{Source, Status},
};
pub use counts::{
    counters::{CountedLimit, Counters, IntervalCounts},
    latency::LatencyHistogram,
    limit_owner::{OwnerKind, owner_of},
    sampler::{HITTER_HALF_LIFE, SAMPLED_ONE_IN, SKETCH_ENTRIES, Sample, SampleExtension, Sampler},
    totals::{DecisionTotals, LimitTotals},
};

/// The code of the document is compiled.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../docs/fleet.md")]
    struct Fleet;
}
