//! Limits over a real cluster whose slots move, and whose masters are paused.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use serde_json::json;
use tidegate_fleet::store::StoreSettings;
use tidegate_testkit::cluster::Cluster;
use tokio::task::JoinSet;

use crate::nodes::{Node, PATIENT, four, limit, node, publish, run, until, wide};
use crate::permissions::as_documented_user_of_cluster;

/// The outcome of a load: the checks that four nodes admitted, and those that they decided without the store.
#[derive(Debug, Default)]
struct Load {
    allowed: usize,
    degraded: usize,
}

/// Checks on each node until the load is over.
async fn load(nodes: &[Arc<Node>], is_over: &Arc<AtomicBool>) -> Load {
    let mut loads = JoinSet::new();
    for node in nodes {
        let (node, is_over) = (Arc::clone(node), Arc::clone(is_over));
        loads.spawn(async move {
            let mut load = Load::default();
            while !is_over.load(Ordering::Relaxed) {
                let said = node.check("ada").await;
                load.allowed += usize::from(said.allowed);
                load.degraded += usize::from(said.degraded.is_some());
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            load
        });
    }
    let mut sum = Load::default();
    while let Some(load) = loads.join_next().await {
        let load = load.expect("no panic");
        (sum.allowed, sum.degraded) = (sum.allowed + load.allowed, sum.degraded + load.degraded);
    }
    sum
}

/// Returns the key of Ada's limit.
fn key(cluster: &Cluster) -> String {
    let mut keys = cluster.nodes().iter().flat_map(|node| node.keys().expect("few"));
    keys.find(|key| !key.contains(":sent:")).expect("a key")
}

/// The slot of a limit moves round the masters, key by key, under load. Every check is decided, and no token is
/// admitted twice or lost.
#[test]
fn a_slot_that_is_moved_under_load_keeps_its_limit() {
    const LIMIT: u64 = 1_000_000;
    for sharing in ["strict", "leased", "synced"] {
        let cluster = Cluster::start();
        let urls = as_documented_user_of_cluster(&cluster);
        run(async {
            let nodes = four(&urls, &limit(sharing, "fixed_window", LIMIT, "300d")).await;
            if sharing == "strict" {
                // Two keys of one script, of which one may have moved and the other not.
                let limits = json!([limit(sharing, "fixed_window", LIMIT, "300d"), {
                    "id": "more", "algorithm": "sliding_window_counter", "limit": LIMIT, "period": "300d", "sharing": sharing,
                }]);
                for node in &nodes {
                    publish(&node.engine, &limits, &wide());
                }
            }
            assert!(nodes[0].check("ada").await.allowed);
            until("it is in the store", async || !cluster.nodes().iter().all(|it| it.keys().expect("few").is_empty()))
                .await;
            let before = ["MOVED", "ASK", "TRYAGAIN"].map(|code| cluster.count_errors(code));
            let is_over = Arc::new(AtomicBool::new(false));
            let moved = thread::scope(|scope| {
                let moving = scope.spawn(|| {
                    let key = key(&cluster);
                    for _ in 0..3 {
                        cluster.move_slot_of(&key, Duration::from_millis(20));
                    }
                    is_over.store(true, Ordering::Relaxed);
                });
                let loaded =
                    tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(load(&nodes, &is_over)));
                moving.join().expect("no panic");
                loaded
            });
            let after = ["MOVED", "ASK", "TRYAGAIN"].map(|code| cluster.count_errors(code));
            assert!(moved.allowed > 100 && moved.degraded == 0, "{sharing}: {moved:?}");
            // The events that must occur: a slot changes its owner, a key is asked for in its new place, and keys of
            // one script are apart.
            let met: Vec<_> = before.iter().zip(&after).map(|(before, after)| after - before).collect();
            assert!(met[0] > 0, "{sharing}: {met:?}");
            // The other sharing modes ask the store seldom.
            assert!(sharing != "strict" || met[1] > 0 && met[2] > 0, "{met:?}");
            for node in &nodes {
                assert_eq!(node.shared.stats().faults, [], "{sharing}: a slot that moves is no fault");
                node.shared.close().await;
            }
            let used = LIMIT
                - node(&cluster.urls(), PATIENT, &limit("strict", "fixed_window", LIMIT, "300d"))
                    .await
                    .check_of(&[("user", "ada")], 0)
                    .await
                    .remaining
                    .expect("a limit");
            assert_eq!(used as usize, moved.allowed + 1, "{sharing}: {moved:?}, {met:?}");
        });
    }
}

/// A master is paused with its connections open. Its replica takes over, and nodes switch to it by themselves.
#[test]
fn a_paused_master_is_left_for_its_replica() {
    const LIMIT: usize = 400;
    let settings = StoreSettings {
        timeout: Duration::from_millis(200),
        failures_max: 5,
        pause: Duration::from_millis(300),
        ..PATIENT
    };
    let cluster = Cluster::that_fails_over();
    run(async {
        let limit = json!({
            "id": "s", "algorithm": "fixed_window", "limit": LIMIT, "period": "300d", "sharing": "strict", "on_failure": "closed",
        });
        let mut nodes = Vec::new();
        for _ in 0..4 {
            nodes.push(node(&cluster.urls(), settings, &limit).await);
        }
        let mut allowed = 0;
        for node in nodes.iter().cycle().take(100) {
            allowed += usize::from(node.check("ada").await.allowed);
        }
        cluster.wait_for_replicas();
        let key = key(&cluster);
        let stands = cluster.place_of_master(&key);
        cluster.pause(stands);
        let mut answered = [false; 4];
        until("the replica answers all", async || {
            for (node, answered) in nodes.iter().zip(&mut answered) {
                let said = node.check("ada").await;
                allowed += usize::from(said.allowed);
                *answered |= said.degraded.is_none();
            }
            answered == [true; 4]
        })
        .await;
        // Nothing was lost: the replica had everything.
        let mut denied = 0;
        while denied < 4 {
            for node in &nodes {
                let said = node.check("ada").await;
                allowed += usize::from(said.allowed);
                denied += usize::from(!said.allowed && said.degraded.is_none());
            }
        }
        assert_eq!(allowed, LIMIT);
    });
}

/// Scripts go to masters alone.
#[test]
fn replicas_are_not_asked() {
    let cluster = Cluster::start();
    run(async {
        let nodes = four(&cluster.urls(), &limit("strict", "fixed_window", 1_000, "300d")).await;
        for user in 0..200 {
            assert!(nodes[user % 4].check(&format!("user-{user}")).await.allowed);
        }
    });
    let mut masters = 0;
    for node in cluster.nodes() {
        if node.info("replication", "role") == "master" {
            masters += usize::from(node.scripts() > 0);
        } else {
            assert_eq!(node.scripts(), 0, "a replica");
        }
    }
    assert_eq!(masters, 3);
}
