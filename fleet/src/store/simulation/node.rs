//! Test only: the limits of a simulation, and the nodes that share them.

use std::{sync::Arc, time::Duration};

use serde_json::json;
use tidegate::{
    Engine, Identity, Publish, Request, Snapshot,
    clock::Clock,
    policy::{Algorithm, Sharing},
    time::{Nanos, SECOND_NS, Timestamp},
};
use tokio::time::Instant;

use super::network::{Network, Wire};
use crate::store::{
    client::store_connection::StoreConnection,
    config::StoreSettings,
    key::{KeyNames, KeySecret},
    shared::SharedEngine,
};

/// A shared limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct SharedLimit {
    pub(super) sharing: Sharing,
    pub(super) algorithm: Algorithm,
    pub(super) tokens: u64,
    pub(super) period_s: u64,
    /// The burst of a bucket.
    pub(super) burst: u64,
}

impl SharedLimit {
    pub(super) fn is_bucket(&self) -> bool {
        matches!(self.algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket)
    }

    pub(super) fn capacity(&self) -> u64 {
        if self.is_bucket() { self.burst } else { self.tokens }
    }

    pub(super) fn period_ns(&self) -> Nanos {
        self.period_s * SECOND_NS
    }

    fn document(&self, id: usize) -> serde_json::Value {
        let mut limit = json!({
            "id": format!("limit-{id}"), "algorithm": self.algorithm, "limit": self.tokens, "period": format!("{}s", self.period_s),
            "sharing": self.sharing, "on_failure": "closed",
        });
        if self.is_bucket() {
            limit["burst"] = self.burst.into();
        }
        limit
    }
}

/// Compiles a policy with these limits of users.
pub(super) fn snapshot(limits: &[SharedLimit]) -> Arc<Snapshot> {
    let limits: Vec<_> = limits.iter().enumerate().map(|(id, limit)| limit.document(id)).collect();
    let policy = json!({ "domains": { "default": {
        "defaults": { "user": "user" },
        "tiers": [{ "id": "user", "limits": limits }],
    } } });
    let policy = serde_json::from_value(policy).expect("a policy");
    Arc::new(Snapshot::compile(&policy).expect("it is right"))
}

/// The clock of a node: virtual time that starts at an instant of its own.
pub(super) struct NodeClock {
    began: Instant,
    at_first: Nanos,
}

impl Clock for NodeClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.at_first) + self.began.elapsed()
    }
}

/// A node: an engine with shared limits.
pub(super) struct SimulatedNode {
    /// The place in the simulation. Another node takes it when this one is dead.
    pub(super) place: usize,
    pub(super) shared: SharedEngine<NodeClock>,
    pub(super) wire: Arc<Wire>,
    pub(super) began: Instant,
}

impl SimulatedNode {
    /// Starts a node whose clock shows `at_first`.
    pub(super) async fn start(
        network: &Arc<Network>,
        place: usize,
        (snapshot, version): (Arc<Snapshot>, u64),
        settings: StoreSettings,
        at_first: Nanos,
    ) -> Self {
        let began = Instant::now();
        let engine = Engine::for_simulation(64, NodeClock { began, at_first }, place as u64);
        engine.publish(Publish::of(snapshot).under_version(version)).expect("few limits");
        let wire = Wire::new(network);
        let connection = StoreConnection::simulated(Arc::clone(&wire));
        let keys = KeyNames::with("tidegate", &KeySecret::Unkeyed).expect("a prefix");
        let shared = SharedEngine::over(Arc::new(engine), connection, keys, settings).await;
        Self { place, shared, wire, began }
    }

    pub(super) fn publish(&self, snapshot: &Arc<Snapshot>, version: u64) {
        if self.shared.engine().version() < version {
            let publish = Publish::of(Arc::clone(snapshot)).under_version(version);
            self.shared.engine().publish(publish).expect("few limits");
        }
    }

    /// Returns the most tokens of a key that the node has spent and that no answer covered, at any time so far or now.
    pub(super) fn untold_max(&self) -> u64 {
        self.shared.stats().untold_max.max(self.shared.quotas.unanswered_max())
    }

    /// Returns the name of the key of a limit.
    pub(super) fn key(&self, user: &str, limit: usize) -> String {
        let who = [Identity::new("user", user).expect("a user")];
        let request = Request::new(&who).expect("a request");
        let pending = self.shared.engine().begin_inspection(&request).expect("a limit of the store");
        let charge = pending.charges().find(|charge| place_of(charge.limit_id) == limit).expect("the limit");
        self.shared.keys().name(&charge).key
    }

    pub(super) fn age(&self) -> Duration {
        self.began.elapsed()
    }
}

/// Returns the index of a limit from its full name.
pub(super) fn place_of(limit_id: &str) -> usize {
    limit_id.rsplit(|sign: char| !sign.is_ascii_digit()).next().and_then(|id| id.parse().ok()).expect("a place")
}
