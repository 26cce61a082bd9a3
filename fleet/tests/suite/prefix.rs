//! Fleets that share one store, each with a prefix of its own.

use tidegate_fleet::store::{SharedEngine, StoreAddress, StoreError};
use tidegate_testkit::redis::Redis;

use crate::nodes::{PATIENT, limit, node_at, run, until};

fn with_prefix(redis: &Redis, prefix: &str) -> StoreAddress {
    StoreAddress { prefix: prefix.to_owned(), ..StoreAddress::new(&[redis.url()]) }
}

#[test]
fn fleets_with_different_prefixes_do_not_see_each_other() {
    for sharing in ["strict", "leased", "synced"] {
        let redis = Redis::start();
        run(async {
            let limit = limit(sharing, "fixed_window", 20, "300d");
            let mut nodes = Vec::new();
            for prefix in ["tidegate", "shop", "shop", "team-7:limits.v2"] {
                nodes.push(node_at(&with_prefix(&redis, prefix), PATIENT, &limit, 0).await);
            }
            // One fleet uses up its limit, and a node of it knows that.
            until("the limit is used up", async || !nodes[1].check("ada").await.allowed).await;
            until("the other node denies", async || !nodes[2].check("ada").await.allowed).await;
            for of_another in [&nodes[0], &nodes[3]] {
                let said = of_another.check("ada").await;
                assert!(said.allowed && said.degraded.is_none(), "{sharing}: {said:?}");
            }
            for node in &nodes {
                node.shared.close().await;
            }
            let ids: Vec<_> = nodes.iter().map(|node| node.shared.store_id()).collect();
            assert_eq!(ids[1], ids[2]);
            assert!(ids[0] != ids[1] && ids[1] != ids[3] && ids[0] != ids[3], "{ids:?}");
        });
        let keys: Vec<String> = redis.ask(redis::cmd("KEYS").arg("*")).expect("few");
        for prefix in ["tidegate:1:{", "shop:1:{", "team-7:limits.v2:1:{"] {
            assert!(keys.iter().any(|key| key.starts_with(prefix)), "{sharing}: {prefix}: {keys:?}");
        }
    }
}

#[test]
fn a_prefix_that_would_move_keys_to_one_slot_is_refused() {
    let redis = Redis::start();
    run(async {
        let engine = std::sync::Arc::new(tidegate::Engine::new());
        let refused = SharedEngine::new(engine, &with_prefix(&redis, "{all}"), PATIENT).await;
        assert!(matches!(refused, Err(StoreError::Prefix { .. })), "{refused:?}");
    });
}
