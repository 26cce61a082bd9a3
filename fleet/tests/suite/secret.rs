//! The secret from which the names of keys are derived.

use tidegate_fleet::store::{KeySecret, StoreAddress, StoreFault};
use tidegate_testkit::redis::Redis;

use crate::nodes::{Node, PATIENT, limit, node_at, run, until};

async fn with(redis: &Redis, secret: KeySecret, sharing: &str) -> Node {
    let address = StoreAddress { secret, ..StoreAddress::new(&[redis.url()]) };
    node_at(&address, PATIENT, &limit(sharing, "fixed_window", 100, "300d"), 0).await
}

#[test]
fn nodes_with_the_same_secret_share_a_limit() {
    let redis = Redis::start();
    let given = |text: &str| KeySecret::Given(text.as_bytes().to_vec());
    run(async {
        let mut remaining = Vec::new();
        for secret in [
            given("the secret of one fleet"),
            given("the secret of one fleet"),
            given("of another fleet"),
            KeySecret::Unkeyed,
        ] {
            remaining.push(with(&redis, secret, "strict").await.check("ada").await.remaining);
        }
        assert_eq!(remaining, [Some(99), Some(98), Some(99), Some(99)]);
    });
    assert_eq!(redis.keys().expect("few").len(), 3);
}

#[test]
fn a_store_is_not_asked_before_the_secret_is_sent() {
    for sharing in ["strict", "leased", "synced"] {
        let redis = Redis::start();
        run(async {
            let node = with(&redis, KeySecret::Sent, sharing).await;
            assert!(node.check("ada").await.degraded.is_some(), "{sharing}");
            let faults = |node: &Node| node.shared.stats().faults.into_iter().map(|it| it.code).collect::<Vec<_>>();
            assert_eq!(faults(&node), [StoreFault::NoSecret]);
            assert_eq!(redis.keys().expect("few"), Vec::<String>::new());
            node.shared.take_key_secret(Some(b"a secret"));
            until("the store is asked", async || node.check("ada").await.degraded.is_none()).await;
            assert_eq!(faults(&node), []);
        });
    }
}

/// Charges under the old names are sent, and leases go back, before a limit starts anew.
#[test]
fn a_new_secret_gives_back_leases_and_sends_views() {
    for sharing in ["leased", "synced"] {
        let redis = Redis::start();
        run(async {
            let node = with(&redis, KeySecret::Unkeyed, sharing).await;
            for _ in 0..5 {
                assert!(node.check("ada").await.allowed);
            }
            node.shared.take_key_secret(Some(b"a secret"));
            let others = with(&redis, KeySecret::Unkeyed, "strict").await;
            // A lease under way counts as out until it expires: at most a sixteenth of the limit.
            let out_at_most = if sharing == "leased" { 6 } else { 0 };
            until("all that was used counts", async || {
                let left = others.check_of(&[("user", "ada")], 0).await.remaining;
                left.is_some_and(|left| (95 - out_at_most..=95).contains(&left))
            })
            .await;
            assert!(node.check("ada").await.remaining >= Some(90), "{sharing}: it starts anew");
        });
    }
}
