//! An agent that keeps an engine on the policy of an admin server, and a store of limits that several engines share.
//!
//! The admin server pushes each published policy to every node. The agent checks it, compiles it without blocking checks,
//! swaps it in, saves it as the last good one, and acknowledges it. It reports once a second what the engine counted, and
//! answers the queries of operators. Three lines start it:
//!
//! ```no_run
//! # async fn follow() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//! use tidegate::Engine;
//! use tidegate_fleet::{Agent, NodeToken};
//!
//! let engine = Arc::new(Engine::new());
//! let agent = Agent::new("https://admin.example:8080", NodeToken::file("/run/secrets/tidegate"));
//! let handle = agent.keeping_in("/var/lib/my-service").start(Arc::clone(&engine)).await?;
//! // ... engine.check(...); the engine follows until `handle` is dropped. After `leave` the admin server raises no alert.
//! handle.leave().await;
//! # Ok(())
//! # }
//! ```
//!
//! Without the admin server the agent starts with the last good policy, and keeps the one that it has. It reconnects by
//! itself, with pauses that grow and differ between nodes.
//!
//! The files, from the ground up: a file uses only files before it in the list of its folder, which a test checks.
//!
//! * `src`: `lock`, `counts`, `store`, `wire`, `agent`;
//! * `counts` (counts of decisions): `latency`, `totals`, `limit_owner`, `sampler`, `counters`;
//! * `store` (limits that nodes share through Redis): `error`, `config`, `key`, `address`, `fault`, `stats`, `script`, `client`, `local`, `shared`, `simulation`;
//! * `store/script` (the script that the store runs, its arguments and its answers): `record`, `grant`, `op`, `plan`, `encode`, `decode`, `argument`, `script_model`, `comparison`;
//! * `store/client` (connections, batches of requests, and the health of the store): `clock_reading`, `redis_client`, `fault_log`, `sentinel`, `server_connection`, `cluster_connection`, `store_connection`, `epoch`, `queue`, `batcher`, `health`;
//! * `store/local` (the leases and views with which a node decides by itself): `lease`, `synced`, `quota`, `local_quotas`, `renewal`, `exchange`;
//! * `store/simulation` (test only: nodes and a store in virtual time): `random`, `mutation`, `network`, `node`, `judge`, `scenario`, `history`, `check`, `run`, `plan`, `late_answer`;
//! * `wire` (the protocol between nodes and the admin server): `payload`, `event_reader`, `stream`, `report`, `query`, `truncate`;
//! * `agent` (follows the admin server, reports to it and answers its queries): `process`, `status`, `describe`, `http_client`, `live_tail`, `query_handler`, `compiled_policy`, `last_good`, `node`, `apply`, `report`, `admin_stream`, `start`.

mod agent;
mod counts;
mod lock;
pub mod store;
pub mod wire;

pub use agent::{
    describe,
    http_client::NodeToken,
    process::{ErrorCounts, resident_bytes},
    query_handler::QueryHandler,
    start::{Agent, AgentHandle, AgentStartError},
    status::{AgentStatus, PolicySource},
};
pub use counts::{
    counters::{CountedLimit, Counters, IntervalCounts},
    latency::LatencyHistogram,
    limit_owner::{OwnerKind, owner_of},
    sampler::{HITTER_HALF_LIFE, SAMPLED_ONE_IN, SKETCH_ENTRIES, Sample, SampleExtension, Sampler},
    totals::{DecisionTotals, LimitTotals},
};
