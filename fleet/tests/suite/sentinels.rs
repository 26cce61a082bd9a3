//! A master that Sentinels watch, and the nodes that follow it.

use std::{sync::Arc, time::Duration};

use tidegate_fleet::store::{StoreAddress, StoreSettings, StoreTls};
use tidegate_testkit::{certificate::Authority, sentinel::Sentinels};
use tokio::time::Instant;

use crate::{
    load::{Load, load_since},
    nodes::{Node, PATIENT, limit, node, node_at, run, until},
};

/// Settings with which a store that does not answer is noticed soon.
const BRISK: StoreSettings = StoreSettings { timeout: Duration::from_millis(200), ..PATIENT };

async fn four(servers: &Sentinels, limit: &serde_json::Value) -> Vec<Arc<Node>> {
    let mut nodes = Vec::new();
    for _ in 0..4 {
        nodes.push(Arc::new(node(&servers.urls(), BRISK, limit).await));
    }
    nodes
}

async fn are_answered(nodes: &[Arc<Node>]) {
    for node in nodes {
        until("the store answers", async || node.check("ada").await.degraded.is_none()).await;
    }
}

/// Waits until the keys of nodes are on the promoted server: each check has a new key.
async fn go_on_with(servers: &Sentinels, promoted: usize, nodes: &[Arc<Node>]) {
    let keys = || servers.server(promoted).ask::<u64>(&redis::cmd("DBSIZE")).expect("it answers");
    let mut count = 0;
    for node in nodes {
        let before = keys();
        until("the promoted server has the key of a check", async || {
            count += 1;
            node.check(&format!("user-{count}")).await.degraded.is_none() && keys() > before
        })
        .await;
    }
}

#[test]
fn nodes_go_on_with_the_promoted_server_when_the_master_is_killed_under_load() {
    for sharing in ["strict", "leased", "synced"] {
        let mut servers = Sentinels::start();
        run(async {
            let mut limit = limit(sharing, "token_bucket", 1_000, "1d");
            limit["on_failure"] = serde_json::json!("closed");
            let nodes = four(&servers, &limit).await;
            are_answered(&nodes).await;
            servers.wait_for_replicas();
            let master = servers.master();
            let (loaded, began) = (nodes.clone(), Instant::now());
            let loading = tokio::spawn(async move { load_since(began, &loaded, 100, Duration::from_secs(9)).await });
            tokio::time::sleep(Duration::from_secs(2)).await;
            servers.kill(master);
            let killed = began.elapsed();
            let seen = loading.await.expect("no panic");
            go_on_with(&servers, 1 - master, &nodes).await;
            // The last charges may not be on the replica; then they are charged again.
            let last =
                Load::between(&seen, killed.saturating_sub(Duration::from_secs(1)), killed + Duration::from_secs(1));
            let all = Load::of(&seen);
            let untold: u64 = nodes.iter().map(|node| node.shared.stats().untold_max).sum();
            let untold = if sharing == "synced" { usize::try_from(untold).expect("few") } else { 0 };
            assert!(all.admitted <= 1_000 + last.admitted + untold, "{sharing}: {untold}: {all:?}, {last:?}");
            assert!(all.degraded > 0 || sharing == "leased", "{sharing}: the master was gone: {all:?}");
        });
    }
}

/// A node with an open circuit breaker asks the Sentinels every second. It does not wait for the end of the pause.
#[test]
fn a_promotion_ends_the_pause() {
    let mut servers = Sentinels::start();
    run(async {
        let settings = StoreSettings { pause: Duration::from_mins(10), ..BRISK };
        let node = node(&servers.urls(), settings, &limit("strict", "token_bucket", 1_000, "1d")).await;
        until("the store answers", async || node.check("ada").await.degraded.is_none()).await;
        servers.wait_for_replicas();
        servers.kill(servers.master());
        until("it is left alone", async || {
            node.check("ada").await;
            node.shared.stats().is_open
        })
        .await;
        until("the promoted server answers", async || node.check("ada").await.degraded.is_none()).await;
    });
}

#[test]
fn nodes_follow_a_planned_failover_and_leave_a_paused_master() {
    let servers = Sentinels::start();
    run(async {
        let nodes = four(&servers, &limit("strict", "token_bucket", 1_000, "1d")).await;
        are_answered(&nodes).await;
        let first = servers.master();
        servers.wait_for_replicas();
        servers.fail_over();
        go_on_with(&servers, 1 - first, &nodes).await;
        // The old master is a replica now. The new one is paused, with its connections open.
        servers.wait_for_replicas();
        servers.server(1 - first).pause();
        go_on_with(&servers, first, &nodes).await;
        servers.server(1 - first).resume();
        are_answered(&nodes).await;
    });
}

#[test]
fn nodes_start_before_the_sentinels_know_of_a_master_of_this_name() {
    let servers = Sentinels::start();
    run(async {
        let urls: Vec<_> = servers.urls().iter().map(|url| url.replace("/limits", "/another")).collect();
        let node = node(&urls, BRISK, &limit("strict", "token_bucket", 1_000, "1d")).await;
        assert!(node.check("ada").await.degraded.is_some());
        servers.name_master("another");
        are_answered(&[Arc::new(node)]).await;
    });
}

#[test]
fn sentinels_with_tls_and_passwords_are_asked_with_theirs() {
    let authority = Authority::new();
    let servers = Sentinels::with_tls(&authority);
    run(async {
        let tls = StoreTls { authorities: Some(authority.pem.clone().into_bytes()), client: None };
        let at = |urls: &[String]| StoreAddress { tls: tls.clone(), ..StoreAddress::new(urls) };
        let limit = limit("strict", "token_bucket", 1_000, "1d");
        let urls = servers.urls();
        for secret in ["of-servers", "of-sentinels"] {
            let wrong: Vec<_> = urls.iter().map(|url| url.replace(secret, "wrong")).collect();
            let refused = node_at(&at(&wrong), BRISK, &limit, 0).await;
            assert!(refused.check("ada").await.degraded.is_some(), "{secret}");
        }
        let nodes = [Arc::new(node_at(&at(&urls), BRISK, &limit, 0).await)];
        are_answered(&nodes).await;
        let master = servers.master();
        servers.wait_for_replicas();
        servers.fail_over();
        until("the other one is master", async || servers.master() != master).await;
        are_answered(&nodes).await;
        let of_database = redis::cmd("INFO").arg("keyspace").to_owned();
        let keys: String = servers.server(1 - master).ask(&of_database).expect("it answers");
        assert!(keys.contains("db2:"), "the database that the address names: {keys}");
    });
}
