//! Tests that the log, metrics, health, alerts and the API name a fault of the store, and stop when it is over.

use serde_json::{Value, json};
use tidegate_testkit::{redis::Redis, wait_for, wait_until};

use crate::support::{server::Served, session::check, shared::Fleet};

fn get(node: &Served, path: &str) -> String {
    let mut answer = ureq::get(format!("{}{path}", node.checks)).call().expect("an answer");
    answer.body_mut().read_to_string().expect("text")
}

impl Fleet {
    /// Returns the state of the node's store at the admin server.
    fn store_of(&self, name: &str) -> Value {
        let nodes = self.ana.get(&self.admin, "/nodes");
        let nodes = nodes["items"].as_array().expect("nodes");
        nodes.iter().find(|node| node["node"] == name).expect("it is there")["store"].clone()
    }

    /// Returns the message of the alert with this code about the node.
    fn alert(&self, code: &str, name: &str) -> Option<String> {
        let alerts = self.ana.get(&self.admin, "/alerts");
        let alerts = alerts["items"].as_array().expect("alerts");
        let alert = alerts.iter().find(|alert| alert["code"] == code && alert["node"] == name)?;
        Some(alert["message"].as_str().expect("words").to_owned())
    }
}

#[test]
fn a_store_that_became_a_replica_is_named_everywhere() {
    let (redis, master) = (Redis::with(&["--maxmemory-policy", "allkeys-lru"]), Redis::start());
    let limit =
        json!({ "id": "s", "algorithm": "fixed_window", "limit": 1_000, "period": "300d", "sharing": "strict" });
    let fleet = Fleet::start(&redis, &limit, (&["n-1"], "2s"));
    let node = &fleet.nodes[0];
    assert!(check(node, "ada").1.get("degraded").is_none());
    let alert = wait_for("an alert", || fleet.alert("node_store_evicts", "n-1"));
    assert!(alert.contains("maxmemory-policy is allkeys-lru"), "{alert}");
    assert!(get(node, "/healthz").contains("the store: evicts: it evicts keys when its memory is full"));
    assert!(node.has_logged("the store: it evicts keys when its memory is full"));
    let follow = |of: &[&str]| redis.ask::<()>(redis::cmd("REPLICAOF").arg(of)).expect("it answers");
    follow(&["127.0.0.1", &master.address().port().to_string()]);
    let fault = wait_for("it is told", || {
        assert_eq!(check(node, "ada").0, 200);
        let fault = fleet.store_of("n-1")["faults"][0].clone();
        (fault["code"] == "read_only").then_some(fault)
    });
    let message = fault["message"].as_str().expect("words");
    assert!(message.starts_with("it is a replica, which takes no writes (READONLY "), "{message}");
    assert!(
        message.ends_with("; point the address at the master, or name the sentinels or the cluster, which know it")
    );
    let alert = wait_for("an alert", || fleet.alert("node_store_away", "n-1"));
    assert!(alert.contains("is left alone by it: read_only: it is a replica"), "{alert}");
    let metrics = get(node, "/metrics");
    assert!(metrics.contains("tidegate_store_fault{code=\"read_only\"} 1\n"), "{metrics}");
    assert!(metrics.contains("tidegate_store_fault{code=\"out_of_memory\"} 0\n"), "{metrics}");
    assert!(!metrics.contains("tidegate_store_fault_errors_total{code=\"read_only\"} 0\n"), "{metrics}");
    let health = get(node, "/healthz");
    assert!(health.contains("decided without it: read_only: it is a replica"), "{health}");
    assert_eq!(node.count_logged("it is a replica, which takes no writes"), 1, "once, of many checks");

    follow(&["NO", "ONE"]);
    wait_until("it is over", || {
        let is_over =
            fleet.store_of("n-1")["faults"].as_array().expect("a list").iter().all(|it| it["code"] != "read_only");
        is_over && check(node, "ada").1.get("degraded").is_none()
    });
    wait_until("the alert is closed", || fleet.alert("node_store_away", "n-1").is_none());
    let is_over = || get(node, "/metrics").contains("tidegate_store_fault{code=\"read_only\"} 0\n");
    wait_until("a page of metrics that was made since", is_over);
    wait_until("the log has it", || node.has_logged("read_only is over"));
    // It has what its master had: nothing.
    assert!(get(node, "/healthz").contains("keys_lost: it lost keys"), "{}", get(node, "/healthz"));
    let alert = wait_for("an alert", || fleet.alert("node_store_lost_keys", "n-1"));
    assert!(alert.contains("its epoch is another"), "{alert}");
}
