//! Strict limits, for which every check asks the store: nodes are engines of this process, the store is real.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use redis::{Commands, cmd};
use serde_json::{Value, json};
use tidegate::{Degraded, Identity, Request, Retry, internals::BeginResult};
use tidegate_fleet::store::StoreSettings;
use tidegate_testkit::{cluster::Cluster, redis::Redis, wait_for};
use tokio::task::JoinSet;

use crate::nodes::{PATIENT, allowed, four, left_becomes, limit, node, publish, run, until, wide};

fn strict(algorithm: &str, count: u64, period: &str) -> Value {
    limit("strict", algorithm, count, period)
}

#[test]
fn four_nodes_admit_together_what_one_would() {
    let redis = Redis::start();
    run(async {
        for algorithm in
            ["token_bucket", "leaky_bucket", "fixed_window", "sliding_window_counter", "sliding_window_log"]
        {
            redis.ask::<()>(cmd("FLUSHALL").arg("SYNC")).expect("it answers");
            // Windows of 300 days do not end during a test, but for 13 seconds of a year.
            let period = if algorithm == "token_bucket" || algorithm == "leaky_bucket" { "1h" } else { "300d" };
            let nodes = four(&[redis.url()], &strict(algorithm, 10, period)).await;
            for at in 0..10 {
                let said = nodes[at % 4].check("ada").await;
                assert_eq!(
                    (said.allowed, said.remaining, said.degraded),
                    (true, Some(9 - at as u64), None),
                    "{algorithm}"
                );
            }
            for node in &nodes {
                let said = node.check("ada").await;
                assert!(!said.allowed && matches!(said.retry, Retry::After(_)), "{algorithm}: {said:?}");
                assert_eq!(node.check_of(&[("user", "ada")], 11).await.retry, Retry::Never, "{algorithm}");
                assert!(node.check_of(&[("user", "bob")], 0).await.allowed, "{algorithm}: a look charges nothing");
            }
            assert_eq!(nodes[0].check_of(&[("user", "bob")], 10).await.remaining, Some(0), "{algorithm}");
        }
    });
}

#[test]
fn checks_that_wait_for_the_same_key_are_charged_together() {
    let redis = Redis::start();
    run(async {
        for algorithm in ["token_bucket", "fixed_window", "sliding_window_counter", "sliding_window_log"] {
            redis.ask::<()>(cmd("FLUSHALL").arg("SYNC")).expect("it answers");
            redis.ask::<()>(cmd("CONFIG").arg("RESETSTAT")).expect("it answers");
            let period = if algorithm == "token_bucket" { "1d" } else { "300d" };
            let nodes = four(&[redis.url()], &strict(algorithm, 300, period)).await;
            assert_eq!(allowed(&nodes, 200, "ada").await, 300, "{algorithm}");
            let asked = redis.commands()["evalsha"];
            assert!(asked < 400, "{algorithm}: {asked} scripts for 800 checks");
        }
    });
}

#[test]
fn charges_are_given_back_when_another_identity_denies() {
    let redis = Redis::start();
    run(async {
        for algorithm in ["token_bucket", "fixed_window"] {
            redis.ask::<()>(cmd("FLUSHALL").arg("SYNC")).expect("it answers");
            let period = if algorithm == "token_bucket" { "1d" } else { "300d" };
            let node = node(&[redis.url()], PATIENT, &strict(algorithm, 10, period)).await;
            publish(&node.engine, &json!([strict(algorithm, 10, period)]), &json!([strict(algorithm, 2, period)]));
            let both = [("user", "ada"), ("ip", "192.0.2.1")];
            for _ in 0..2 {
                assert!(node.check_of(&both, 1).await.allowed);
            }
            for _ in 0..5 {
                assert!(!node.check_of(&both, 1).await.allowed);
            }
            // Two tokens were used.
            left_becomes(&node, &[("user", "ada")], 8).await;
        }
    });
}

#[test]
fn refunds_of_a_key_that_all_nodes_charge_are_not_lost() {
    let redis = Redis::start();
    run(async {
        for algorithm in ["token_bucket", "fixed_window"] {
            redis.ask::<()>(cmd("FLUSHALL").arg("SYNC")).expect("it answers");
            let period = if algorithm == "token_bucket" { "1d" } else { "300d" };
            let nodes = four(&[redis.url()], &strict(algorithm, 2, period)).await;
            for node in &nodes {
                publish(
                    &node.engine,
                    &json!([strict(algorithm, 2, period)]),
                    &json!([strict(algorithm, 1_000, period)]),
                );
            }
            let mut checks = JoinSet::new();
            for turn in 0..800 {
                let node = Arc::clone(&nodes[turn % 4]);
                // Each of a hundred checks may twice.
                let user = format!("u-{}", turn / 4 % 100);
                checks.spawn(async move { node.check_of(&[("user", &user), ("ip", "192.0.2.1")], 1).await.allowed });
            }
            let admitted = checks.join_all().await.into_iter().filter(|&is_allowed| is_allowed).count();
            assert_eq!(admitted, 200, "{algorithm}: of addresses there is enough for all of them");
            // A bucket does not get back what time may have repaid meanwhile: less than a second of each charge.
            let unsure = if algorithm == "token_bucket" { 600 / 86 } else { 0 };
            let unused = 1_000 - admitted as u64;
            let mut left = None;
            until("what was charged in vain is back", async || {
                left = nodes[0].check_of(&[("ip", "192.0.2.1")], 0).await.remaining;
                left.is_some_and(|left| left + unsure >= unused)
            })
            .await;
            let is_whole = |left: u64| (unused - unsure..=unused).contains(&left);
            assert!(left.is_some_and(is_whole), "{algorithm}: {left:?} are left, {admitted} were admitted");
        }
    });
}

/// Settles reservations of a limit of 10 an hour at the largest cost, and asserts that the bucket owes 10 above its
/// burst.
#[test]
fn the_debt_of_a_settlement_in_the_store_is_repaid_in_one_period() {
    let redis = Redis::start();
    run(async {
        for (sharing, user) in [("strict", "ada"), ("synced", "bob")] {
            let node = node(&[redis.url()], PATIENT, &limit(sharing, "token_bucket", 10, "1h")).await;
            let who = [Identity::new("user", user).expect("valid")];
            let request = Request::new(&who).expect("valid");
            let mut reserved = Vec::new();
            for _ in 0..3 {
                let Some(BeginResult::Pending(pending)) = node.shared.begin_if_shared(&request, false) else {
                    panic!("it is shared")
                };
                let answers = node.shared.ask(&pending).await;
                reserved.extend(node.shared.finish_reserved(pending, &answers).1);
            }
            assert_eq!(reserved.len(), 3, "{sharing}");
            for reserved in reserved {
                assert_eq!(reserved.actual_max(16), 16, "{sharing}");
                node.shared.settle(reserved, u64::MAX);
            }
            // The charge is sent in the background: an hour for the debt, and six minutes for the next token.
            let owed = Duration::from_mins(65)..=Duration::from_mins(66);
            let mut retry = Retry::Now;
            until("the excess is charged", async || {
                retry = node.check(user).await.retry;
                matches!(retry, Retry::After(wait) if wait >= *owed.start())
            })
            .await;
            assert!(matches!(retry, Retry::After(wait) if owed.contains(&wait)), "{sharing}: {retry:?}");
        }
    });
}

#[test]
fn checks_under_way_deny_a_neighbour_early_by_their_cost_at_most() {
    /// Checks again and again on each node, for a user with no tokens left at an address whose charges all go back.
    const CALLERS: u64 = 2;
    const LIMIT: u64 = 400;
    let cluster = Cluster::start();
    run(async {
        let nodes = four(&cluster.urls(), &strict("fixed_window", 1, "300d")).await;
        for node in &nodes {
            let user = strict("fixed_window", 1, "300d");
            publish(&node.engine, &json!([user]), &json!([strict("fixed_window", LIMIT, "300d")]));
        }
        assert!(nodes[0].check("ada").await.allowed);
        let (mut callers, denied, is_over) = (JoinSet::new(), Arc::new(AtomicU64::new(0)), Arc::default());
        for node in nodes.iter().cycle().take(nodes.len() * CALLERS as usize) {
            let (node, denied, is_over) = (Arc::clone(node), Arc::clone(&denied), Arc::<AtomicBool>::clone(&is_over));
            callers.spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    let said = node.check_of(&[("user", "ada"), ("ip", "192.0.2.1")], 1).await;
                    assert_eq!((said.allowed, said.degraded), (false, None));
                    denied.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut admitted = 0;
        for turn in 0..LIMIT {
            // The callers go on between two of these checks.
            until("others are denied", async || denied.load(Ordering::Relaxed) > turn).await;
            let node = &nodes[(turn % 4) as usize];
            admitted += u64::from(node.check_of(&[("ip", "192.0.2.1")], 1).await.allowed);
        }
        let denied = denied.load(Ordering::Relaxed);
        is_over.store(true, Ordering::Relaxed);
        callers.join_all().await;
        // For each caller the check under way, and the one before it, whose refund may be under way.
        let under_way = 4 * CALLERS * 2;
        assert!(denied > LIMIT, "{denied} were under way meanwhile");
        assert!((LIMIT - under_way..=LIMIT).contains(&admitted), "{admitted} of {LIMIT}");
        // All of it went back.
        left_becomes(&nodes[0], &[("ip", "192.0.2.1")], LIMIT - admitted).await;
    });
}

#[test]
fn the_newest_numbers_count_on_all_nodes() {
    let redis = Redis::start();
    run(async {
        for algorithm in ["token_bucket", "fixed_window", "sliding_window_counter", "sliding_window_log"] {
            redis.ask::<()>(cmd("FLUSHALL").arg("SYNC")).expect("it answers");
            let period = if algorithm == "token_bucket" { "1d" } else { "300d" };
            let nodes = four(&[redis.url()], &strict(algorithm, 10, period)).await;
            for node in &nodes {
                assert!(node.check("ada").await.allowed);
            }
            publish(&nodes[0].engine, &json!([strict(algorithm, 6, period)]), &wide());
            assert_eq!(nodes[0].check("ada").await.remaining, Some(1), "{algorithm}: four were used, and this one");
            // Nodes that do not have the version yet use its numbers all the same.
            assert!(nodes[1].check("ada").await.allowed, "{algorithm}");
            for node in &nodes {
                assert!(!node.check("ada").await.allowed, "{algorithm}");
            }
        }
    });
}

#[test]
fn keys_show_no_identity_and_expire() {
    for sharing in ["strict", "leased", "synced"] {
        let redis = Redis::start();
        run(async {
            let node = node(&[redis.url()], PATIENT, &limit(sharing, "token_bucket", 1_000, "10ms")).await;
            assert!(node.check("ada@example.com").await.allowed);
            // The charges of a view are sent, and all leases are back.
            node.shared.close().await;
        });
        let mut connection = redis.connect().expect("it listens");
        let keys = redis.keys().expect("few");
        let sent = keys.iter().filter(|key| key.contains(":sent:")).count();
        assert_eq!((keys.len(), sent), if sharing == "synced" { (2, 1) } else { (1, 0) }, "{sharing}: {keys:?}");
        for key in &keys {
            assert!(key.starts_with("tidegate:1:{") && !key.contains("ada"), "{sharing}: {key}");
            let life: i64 = connection.ttl(key).expect("it is there");
            // The store remembers for a minute which node sent what.
            let most = if key.contains(":sent:") { 60 } else { 2 };
            assert!((1..=most).contains(&life), "{sharing}: {key}: {life}");
        }
    }
}

#[test]
fn a_store_that_forgot_its_scripts_gets_them_again() {
    let redis = Redis::start();
    run(async {
        let node = node(&[redis.url()], PATIENT, &strict("token_bucket", 10, "1d")).await;
        for left in [9, 8] {
            redis.ask::<()>(cmd("SCRIPT").arg("FLUSH")).expect("it answers");
            assert_eq!(node.check("ada").await.remaining, Some(left));
        }
    });
}

#[test]
fn on_failure_of_each_limit_decides_until_the_store_is_back() {
    for (on_failure, expected) in [
        (json!({ "local": 0.5 }), [true, true, true, true, true, false, false]),
        (json!("open"), [true; 7]),
        (json!("closed"), [false; 7]),
    ] {
        let mut redis = Redis::start();
        run(async {
            let mut limit = strict("token_bucket", 10, "1d");
            limit["on_failure"] = on_failure.clone();
            let node = node(&[redis.url()], PATIENT, &limit).await;
            assert_eq!(node.check("ada").await.degraded, None);
            redis.kill();
            for allowed in expected {
                let said = node.check("ada").await;
                assert_eq!((said.allowed, said.degraded), (allowed, Some(Degraded::StoreFailed)), "{on_failure}");
            }
            redis.start_again();
            // Checks go on while one in each pause tries the store.
            let mut said = node.check("ada").await;
            until("it is asked again", async || {
                if said.degraded.is_some() {
                    said = node.check("ada").await;
                }
                said.degraded.is_none()
            })
            .await;
            // The store came back empty: one burst more, and nothing was counted twice.
            assert_eq!((said.allowed, said.remaining, said.degraded), (true, Some(9), None), "{on_failure}");
        });
    }
}

#[test]
fn a_check_that_gave_up_is_not_charged() {
    let redis = Redis::start();
    run(async {
        // Checks go on without end.
        let settings = StoreSettings { timeout: Duration::from_millis(50), failures_max: 10_000, ..PATIENT };
        let node = Arc::new(node(&[redis.url()], settings, &strict("fixed_window", 1_000, "300d")).await);
        while node.check("ada").await.degraded.is_some() {}
        let before = node.check_of(&[("user", "ada")], 0).await.remaining.expect("it has one");
        redis.pause();
        let mut checks = JoinSet::new();
        for _ in 0..300 {
            let node = Arc::clone(&node);
            checks.spawn(async move { node.check("ada").await.degraded });
        }
        let said = checks.join_all().await;
        assert!(said.iter().all(|degraded| *degraded == Some(Degraded::StoreFailed)));
        redis.resume();
        let mut said = node.check_of(&[("user", "ada")], 0).await;
        while said.degraded.is_some() {
            said = node.check_of(&[("user", "ada")], 0).await;
        }
        // The requests that were sent before the caller was known to have given up: the first, and a script or two of
        // those that waited with it.
        let charged = before - said.remaining.expect("it has one");
        assert!(charged <= 1 + 2 * 64, "{charged} of 300");
    });
}

#[test]
fn a_store_that_does_not_answer_is_skipped() {
    let redis = Redis::start();
    run(async {
        let settings = StoreSettings { timeout: Duration::from_millis(50), pause: Duration::from_mins(10), ..PATIENT };
        let node = node(&[redis.url()], settings, &strict("token_bucket", 1_000, "1d")).await;
        // The first check may be slow.
        while node.check("bob").await.degraded.is_some() {}
        redis.pause();
        for _ in 0..100 {
            assert_eq!(node.check("ada").await.degraded, Some(Degraded::StoreFailed));
        }
        redis.resume();
        let asked = wait_for("what was asked before is answered", || {
            let asked = redis.commands()["evalsha"];
            (asked >= 6).then_some(asked)
        });
        assert!(asked < 20, "after five failures it is not asked any more: {asked}");
    });
}

#[test]
fn a_cluster_is_asked_though_a_master_is_killed() {
    let mut cluster = Cluster::that_fails_over();
    run(async {
        let users = ["ada", "bob", "cyd", "dan", "eve", "fay", "gus", "hal"];
        let nodes = four(&cluster.urls(), &strict("token_bucket", 8, "1d")).await;
        for user in users {
            for node in &nodes {
                let said = node.check(user).await;
                assert_eq!((said.allowed, said.degraded), (true, None), "{user}");
            }
        }
        cluster.wait_for_replicas();
        cluster.kill_master_of("ada");
        for user in users {
            // The replicas had all keys, so four tokens are left.
            let mut found = 0;
            until("a check is denied by the store", async || {
                let said = nodes[found % 4].check(user).await;
                found += usize::from(said.allowed && said.degraded.is_none());
                !said.allowed && said.degraded.is_none()
            })
            .await;
            assert_eq!(found, 4, "{user}");
        }
    });
}
