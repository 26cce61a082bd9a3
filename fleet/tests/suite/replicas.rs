//! Servers that become replicas while nodes are connected to them.

use std::time::Duration;

use tidegate_testkit::{fault_proxy::FaultProxy, redis::Redis};
use tokio::time::Instant;

use crate::nodes::{PATIENT, limit, node, run, until};

#[test]
fn a_node_leaves_a_server_that_becomes_a_replica() {
    for sharing in ["strict", "leased", "synced"] {
        let (first, second) = (Redis::start(), Redis::start());
        // The name of the store leads to the first server, and then to the other one.
        let name = FaultProxy::before(first.address());
        run(async {
            let limit = limit(sharing, "fixed_window", 100, "300d");
            let one = node(&[name.url()], PATIENT, &limit).await;
            until("the store answers", async || one.check("ada").await.degraded.is_none()).await;
            second.replicate(&first);
            let keys = || second.ask::<u64>(&redis::cmd("DBSIZE")).expect("it answers");
            let before = keys();
            name.lead_to(second.address());
            second.promote();
            first.replicate(&second);
            // The connection to the first server stays open, and its answer to a charge is an error.
            until("the other one has a new key", async || {
                let is_counted = one.check("bob").await.degraded.is_none();
                is_counted && keys() > before
            })
            .await;
        });
    }
}

#[test]
fn a_name_that_leads_to_a_replica_is_resolved_once_a_second_at_most() {
    let (master, replica) = (Redis::start(), Redis::start());
    replica.replicate(&master);
    run(async {
        let one = node(&[replica.url()], PATIENT, &limit("strict", "fixed_window", 100, "300d")).await;
        let (began, before) = (Instant::now(), replica.connections());
        let mut asked = 0;
        until("it is connected to three times more", async || {
            assert!(one.check("ada").await.degraded.is_some(), "a replica charges nothing");
            asked += 1;
            // Each request has a connection of its own.
            replica.connections() - before - asked >= 3
        })
        .await;
        assert!(began.elapsed() >= Duration::from_secs(2), "{:?}", began.elapsed());
    });
}
