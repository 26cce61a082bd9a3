//! Nodes that start before their store does.

use std::time::Duration;

use tidegate_fleet::store::StoreSettings;
use tidegate_testkit::{cluster::Cluster, redis::Redis};

use crate::nodes::{Node, PATIENT, limit, node, run, until};

const SETTINGS: StoreSettings = StoreSettings {
    timeout: Duration::from_millis(200),
    failures_max: 5,
    pause: Duration::from_millis(300),
    ..PATIENT
};

/// Asserts that a node counts alone until the store is there.
async fn is_alone(node: &Node) {
    for _ in 0..5 {
        assert!(node.check("ada").await.degraded.is_some(), "no store answers");
    }
    until("it is left alone", async || node.shared.stats().is_open).await;
}

/// Waits until the store counts the checks of a node, and returns the count. The circuit breaker closes soon, with or
/// without checks.
async fn joins(node: &Node) -> u64 {
    until("no check is made, and it sees that the store is back", async || !node.shared.stats().is_open).await;
    let mut said = node.check("ada").await;
    until("it is asked", async || {
        if said.degraded.is_some() {
            said = node.check("ada").await;
        }
        said.degraded.is_none()
    })
    .await;
    // Nothing that was counted alone is there.
    assert!(said.remaining >= Some(95), "{said:?}");
    said.remaining.expect("it has one")
}

#[test]
fn a_node_that_starts_before_its_store_connects_to_it_later() {
    for (sharing, algorithm) in [
        ("strict", "fixed_window"),
        ("strict", "sliding_window_log"),
        ("leased", "fixed_window"),
        ("synced", "fixed_window"),
    ] {
        let mut redis = Redis::start();
        redis.kill();
        run(async {
            let one = node(&[redis.url()], SETTINGS, &limit(sharing, algorithm, 100, "300d")).await;
            is_alone(&one).await;
            redis.start_again();
            let left = joins(&one).await;
            let said = one.check("ada").await;
            assert_eq!((said.degraded, said.remaining), (None, Some(left - 1)), "{sharing}, {algorithm}");
        });
    }
}

#[test]
fn a_node_that_starts_before_its_cluster_connects_to_it_later() {
    let mut cluster = Cluster::start();
    cluster.kill_all();
    run(async {
        let one = node(&cluster.urls(), SETTINGS, &limit("leased", "fixed_window", 100, "300d")).await;
        is_alone(&one).await;
        cluster.start_again();
        joins(&one).await;
    });
}

#[test]
fn the_first_check_finds_the_connection_made() {
    let redis = Redis::start();
    run(async {
        let one = node(&[redis.url()], SETTINGS, &limit("strict", "fixed_window", 100, "300d")).await;
        let commands = redis.commands();
        assert_eq!(commands.get("eval"), Some(&1), "it is greeted, with the script");
        assert_eq!(one.check("ada").await.degraded, None);
        assert_eq!(redis.commands()["eval"], 1);
    });
}
