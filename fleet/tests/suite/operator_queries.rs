//! Queries of operators to a store: they inspect keys, and clear what was used.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::json;
use tidegate::{Identity, Request, Snapshot, internals::StoreAnswer};
use tidegate_fleet::store::StoreSettings;
use tidegate_testkit::{cluster::Cluster, fault_proxy::FaultProxy, redis::Redis};

use crate::nodes::{Node, PATIENT, limit, node, publish, run, until};

/// Returns what the store has used of each limit of a user at an address, in their order; `None` where it did not
/// answer.
async fn used(node: &Node, users: &[&str]) -> Vec<Vec<Option<u64>>> {
    let who: Vec<_> = users
        .iter()
        .map(|user| [Identity::new("user", user).expect("valid"), Identity::new("ip", "192.0.2.1").expect("valid")])
        .collect();
    let requests: Vec<_> = who.iter().map(|who| Request::new(who).expect("valid")).collect();
    let pending: Vec<_> =
        requests.iter().map(|one| node.engine.begin_inspection(one).expect("shared limits")).collect();
    let answers = node.shared.look(&pending.iter().collect::<Vec<_>>()).await;
    assert_eq!(answers.len(), users.len());
    let each = pending.iter().zip(&answers).map(|(pending, answers)| {
        assert_eq!(answers.len(), pending.charges().count());
        let found = node.engine.inspect_with(pending, answers).limits;
        let shared = found.iter().filter(|limit| limit.limit_id.ends_with("/s") || limit.limit_id.ends_with("/more"));
        let left = shared.zip(answers).map(|(limit, answer)| {
            (*answer != StoreAnswer::Failed).then(|| limit.state.limit() - limit.state.remaining())
        });
        left.collect()
    });
    each.collect()
}

/// Publishes two shared limits of users, and one of addresses.
fn share(node: &Node) {
    let shared = limit("strict", "fixed_window", 100, "300d");
    let more = json!({ "id": "more", "algorithm": "sliding_window_counter", "limit": 100, "period": "300d", "sharing": "strict" });
    publish(&node.engine, &json!([shared, more]), &json!([shared]));
}

#[test]
fn all_keys_of_a_query_go_out_together() {
    let redis = Redis::start();
    run(async {
        let one = node(&[redis.url()], PATIENT, &limit("strict", "fixed_window", 100, "300d")).await;
        share(&one);
        for user in ["ada", "bob", "bob"] {
            assert!(one.check_of(&[("user", user), ("ip", "192.0.2.1")], 1).await.allowed);
        }
        let before = redis.commands()["evalsha"];
        let told = used(&one, &["ada", "bob", "eve"]).await;
        assert_eq!(told, [[Some(1), Some(1), Some(3)], [Some(2), Some(2), Some(3)], [Some(0), Some(0), Some(3)]]);
        assert_eq!(redis.commands()["evalsha"] - before, 1, "nine keys in one script");
        assert_eq!(used(&one, &[]).await, Vec::<Vec<_>>::new());
        assert_eq!(redis.commands()["evalsha"] - before, 1, "no key, no request");
    });
}

#[test]
fn a_query_covers_all_slots_of_a_cluster() {
    let cluster = Cluster::start();
    run(async {
        let one = node(&cluster.urls(), PATIENT, &limit("strict", "fixed_window", 100, "300d")).await;
        share(&one);
        assert!(one.check_of(&[("user", "ada"), ("ip", "192.0.2.1")], 1).await.allowed);
        assert_eq!(used(&one, &["ada", "bob"]).await, [[Some(1); 3], [Some(0), Some(0), Some(1)]]);
        let who = [Identity::new("user", "ada").expect("valid"), Identity::new("ip", "192.0.2.1").expect("valid")];
        assert_eq!(one.shared.clear(&Request::new(&who).expect("valid")).await.expect("it answers"), 3);
        assert_eq!(used(&one, &["ada"]).await, [[Some(0); 3]]);
    });
}

#[test]
fn operators_wait_for_a_store_that_is_too_slow_for_checks() {
    let redis = Redis::start();
    let proxy = FaultProxy::before(redis.address());
    run(async {
        let operator_timeout = Duration::from_secs(20);
        let settings = StoreSettings { operator_timeout, ..StoreSettings::default() };
        let strict = limit("strict", "fixed_window", 100, "300d");
        let one = node(&[proxy.url()], settings, &strict).await;
        share(&one);
        let quick = node(&[redis.url()], PATIENT, &strict).await;
        share(&quick);
        for _ in 0..5 {
            assert!(quick.check_of(&[("user", "ada"), ("ip", "192.0.2.1")], 1).await.allowed);
        }
        proxy.delay(Duration::from_millis(100));
        for _ in 0..10 {
            assert!(one.check("bob").await.degraded.is_some(), "five milliseconds are not enough");
        }
        assert!(one.shared.stats().is_open);
        assert_eq!(used(&one, &["ada"]).await, [[Some(5); 3]]);
        let who = [Identity::new("user", "ada").expect("valid")];
        let ada = Request::new(&who).expect("valid");
        assert_eq!(one.shared.clear(&ada).await.expect("it answers"), 2);
        assert_eq!(used(&quick, &["ada"]).await, [[Some(0), Some(0), Some(5)]]);
        assert!(one.shared.stats().is_open, "checks learn nothing from it");
        // But not forever.
        let usual = node(&[proxy.url()], StoreSettings::default(), &strict).await;
        share(&usual);
        proxy.delay(Duration::from_secs(5));
        assert_eq!(used(&usual, &["ada"]).await, [[None; 3]]);
        assert!(usual.shared.clear(&ada).await.is_err());
    });
}

#[test]
fn a_busy_key_is_cleared() {
    clear_a_busy_key(PATIENT.timeout);
}

/// Clears a key while others charge it, each within `timeout`.
fn clear_a_busy_key(timeout: Duration) {
    let redis = Redis::start();
    run(async {
        let strict = limit("strict", "fixed_window", 1_000_000, "300d");
        let settings = StoreSettings { timeout, ..PATIENT };
        let one = Arc::new(node(&[redis.url()], settings, &strict).await);
        let proxy = FaultProxy::before(redis.address());
        let other = node(&[proxy.url()], settings, &strict).await;
        let is_over = Arc::new(AtomicBool::new(false));
        let checks: Vec<_> = (0..4).map(|_| Arc::new(AtomicU64::new(0))).collect();
        let busy: Vec<_> = checks
            .iter()
            .map(|checks| {
                let (one, is_over, checks) = (Arc::clone(&one), Arc::clone(&is_over), Arc::clone(checks));
                tokio::spawn(async move {
                    while !is_over.load(Ordering::Relaxed) {
                        one.check("ada").await;
                        checks.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        // The value that was seen has changed by the time the answer arrives.
        proxy.delay(Duration::from_millis(50));
        let who = [Identity::new("user", "ada").expect("valid")];
        let counts = || -> Vec<u64> { checks.iter().map(|checks| checks.load(Ordering::Relaxed)).collect() };
        for _ in 0..5 {
            // Each caller goes on between two clearings.
            let before = counts();
            until("it is busy", async || counts().iter().zip(&before).all(|(now, before)| now - before > 4)).await;
            assert_eq!(other.shared.clear(&Request::new(&who).expect("valid")).await.expect("it answers"), 1);
        }
        is_over.store(true, Ordering::Relaxed);
        for task in busy {
            task.await.expect("no panic");
        }
        assert!(counts().iter().all(|&checks| checks > 20), "it was busy: {:?}", counts());
    });
}

#[test]
fn a_limit_that_everyone_shares_is_cleared_too() {
    let redis = Redis::start();
    run(async {
        let shared = limit("strict", "fixed_window", 2, "300d");
        let node = node(&[redis.url()], PATIENT, &shared).await;
        let policy = json!({ "domains": { "default": { "rules": [
            { "id": "all", "endpoint": "*", "per": "everyone", "limits": [shared] },
        ] } } });
        let policy = serde_json::from_value(policy).expect("a policy");
        node.engine.publish(Snapshot::compile(&policy).expect("it is right")).expect("few limits");
        assert!(node.check("ada").await.allowed && node.check("bob").await.allowed);
        assert!(!node.check("eve").await.allowed);
        let who = [Identity::new("user", "ada").expect("valid")];
        let request = Request::new(&who).expect("valid");
        assert_eq!(node.shared.clear(&request).await.expect("it answers"), 1);
        node.shared.forget(&request);
        assert!(node.check("eve").await.allowed);
    });
}

/// Other checks go on between the clearing of the store and the reset of each node.
#[test]
fn tokens_leased_after_a_clearing_count() {
    let redis = Redis::start();
    run(async {
        let leased = limit("leased", "fixed_window", 100, "300d");
        let (one, other) = (node(&[redis.url()], PATIENT, &leased).await, node(&[redis.url()], PATIENT, &leased).await);
        let who = [Identity::new("user", "ada").expect("valid")];
        let request = Request::new(&who).expect("valid");
        let mut admitted = [0_u32; 3];
        for (round, admitted) in admitted.iter_mut().enumerate() {
            // Both nodes hold a lease.
            for node in [&one, &other] {
                assert!(node.check("ada").await.allowed, "{round}");
            }
            assert_eq!(one.shared.clear(&request).await.expect("it answers"), 1);
            one.shared.forget(&request);
            for _ in 0..10 {
                *admitted += u32::from(one.check("ada").await.allowed);
            }
            other.shared.forget(&request);
            for _ in 0..100 {
                for node in [&one, &other] {
                    *admitted += u32::from(node.check("ada").await.allowed);
                }
            }
            assert_eq!(one.shared.clear(&request).await.expect("it answers"), 1);
            one.shared.forget(&request);
            other.shared.forget(&request);
        }
        assert!(admitted.iter().all(|&admitted| (75..=100).contains(&admitted)), "{admitted:?}");
    });
}

#[test]
fn a_check_that_waits_while_its_key_is_forgotten_is_decided_by_the_store() {
    let redis = Redis::start();
    let proxy = FaultProxy::before(redis.address());
    run(async {
        let one = Arc::new(node(&[proxy.url()], PATIENT, &limit("leased", "fixed_window", 100, "300d")).await);
        let asked = || redis.commands().get("evalsha").copied().unwrap_or_default();
        let before = asked();
        // Answers are late, and requests are not.
        proxy.delay(Duration::from_secs(1));
        let checks: Vec<_> = (0..5)
            .map(|_| {
                let one = Arc::clone(&one);
                tokio::spawn(async move { one.check("ada").await })
            })
            .collect();
        until("the store is asked", async || asked() > before).await;
        let who = [Identity::new("user", "ada").expect("valid")];
        one.shared.forget(&Request::new(&who).expect("valid"));
        for check in checks {
            let said = check.await.expect("no panic");
            assert!(said.allowed && said.degraded.is_none(), "{said:?}");
        }
    });
}

mod long {
    use super::*;

    #[test]
    #[ignore = "long: half a second is enough for each check on an idle machine"]
    fn a_busy_key_is_cleared_while_checks_take_half_a_second_at_most() {
        clear_a_busy_key(Duration::from_millis(500));
    }
}
