//! Helpers that start nodes which share a limit through a real Redis.

use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::TempDir;
use tidegate_testkit::{redis::Redis, wait_for};

use super::{
    fleet::write_token,
    server::Served,
    session::{Session, check},
};

/// An admin server whose users have one limit, and nodes that share it.
pub(crate) struct Fleet {
    pub(crate) nodes: Vec<Served>,
    pub(crate) admin: Served,
    pub(crate) ana: Session,
    folder: TempDir,
    settings: Vec<String>,
}

/// Publishes this limit of all users, on top of the first version.
pub(crate) fn publish(admin: &Served, ana: &Session, limit: &Value) {
    let etag = ana.get(admin, "/tiers/free")["etag"].clone();
    let change = json!({ "op": "put", "kind": "tier", "id": "free", "value": { "id": "free", "limits": [limit] } });
    publish_all(admin, ana, &json!([change]), &json!({ "tier:free": etag }));
}

fn publish_all(admin: &Served, ana: &Session, changes: &Value, if_match: &Value) {
    let list = json!({ "base_version": 1, "message": "shared", "if_match": if_match, "changes": changes });
    let (status, made) = ana.send(admin, "POST", "/policy/changes", &list);
    assert_eq!(status, 201, "{made}");
}

impl Fleet {
    /// Starts a fleet with nodes of these names, and with the timeout of their store.
    pub(crate) fn start(redis: &Redis, limit: &Value, nodes: (&[&str], &str)) -> Self {
        Self::of(&redis.url(), |admin, ana| publish(admin, ana, limit), nodes)
    }

    /// Starts a fleet as `start` does, with limits that each tenant has at these endpoints.
    pub(crate) fn with_rules(urls: &str, rules: &[(&str, Value)], nodes: (&[&str], &str)) -> Self {
        let create = |(id, limit): &(&str, Value)| {
            let rule = json!({ "id": id, "endpoint": format!("/{id}"), "per": "tenant", "limits": [limit] });
            json!({ "op": "create", "kind": "rule", "id": id, "value": rule })
        };
        let changes = rules.iter().map(create).collect();
        Self::of(urls, |admin, ana| publish_all(admin, ana, &changes, &json!({})), nodes)
    }

    fn of(urls: &str, publish: impl FnOnce(&Served, &Session), (names, timeout): (&[&str], &str)) -> Self {
        let folder = TempDir::new().expect("a folder");
        let admin = Served::admin_alone("127.0.0.1:0", &folder.path().join("admin"), &[]);
        let ana = Session::of_first_administrator(&admin);
        let token = folder.path().join("token");
        let (_, made) = ana.send(&admin, "POST", "/tokens", &json!({ "name": "fleet", "scope": "node" }));
        write_token(&token, made["secret"].as_str().expect("a secret"));
        publish(&admin, &ana);
        let settings = ["--redis", urls, "--redis-timeout", timeout, "--redis-pause", "1s"].map(str::to_owned).to_vec();
        let mut fleet = Self { nodes: Vec::new(), admin, ana, folder, settings };
        for name in names {
            let node = fleet.start_node(name);
            wait_for("the policy is in force", || (check(&node, "warm").1["policy_version"] == 2).then_some(()));
            fleet.nodes.push(node);
        }
        fleet
    }

    /// Starts a node of this name, on the data folder of earlier nodes of the name.
    pub(crate) fn start_node(&self, name: &str) -> Served {
        let settings: Vec<_> = self.settings.iter().map(String::as_str).collect();
        Served::node_with(&self.admin.admin, &self.token(), name, &self.data(name), &settings)
    }

    /// Returns the file with the token of nodes.
    pub(crate) fn token(&self) -> PathBuf {
        self.folder.path().join("token")
    }

    /// Returns the folder of the node of this name.
    pub(crate) fn data(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}
