//! Limits of which nodes take tokens ahead (`leased`), or whose use they tell each other (`synced`), over a real store.

use std::{collections::HashMap, time::Duration};

use redis::cmd;
use tidegate::{Identity, Request};
use tidegate_fleet::store::StoreSettings;

use crate::{
    load::{Load, load},
    nodes::{PATIENT, allowed, four, limit, node, run},
    rig::{Redis, wait_for},
};

#[test]
fn tokens_that_were_taken_ahead_are_never_above_the_limit() {
    let redis = Redis::start();
    run(async {
        for algorithm in ["token_bucket", "fixed_window", "sliding_window_counter"] {
            redis.ask::<()>(cmd("FLUSHALL").arg("SYNC")).expect("it answers");
            let period = if algorithm == "token_bucket" { "1d" } else { "300d" };
            let nodes = four(&[redis.url()], &limit("leased", algorithm, 1_000, period)).await;
            let found = allowed(&nodes, 400, "ada").await;
            let left: u64 = nodes.iter().map(|node| node.shared.figures().leased_out).sum();
            assert!(found <= 1_000, "{algorithm}: {found}");
            assert!(found as u64 + left >= 1_000, "{algorithm}: {found}, {left}");
            let asked: u64 = nodes.iter().map(|node| node.shared.figures().asked).sum();
            assert!(asked < 400, "{algorithm}: {asked} scripts for 1,600 checks");
        }
    });
}

#[test]
fn leases_under_load_use_the_limit_and_no_more() {
    let redis = Redis::start();
    run(async {
        let nodes = four(&[redis.url()], &limit("leased", "token_bucket", 1_000, "1s")).await;
        let found = Load::of(&load(&nodes, 2_000, Duration::from_secs(4)).await);
        assert_eq!((found.offered, found.degraded), (32_000, 0));
        assert!((4_850..=found.most()).contains(&found.admitted), "{found:?}");
    });
}

/// What was lent to nobody counts as out, as much as may be out: the others charge the store, and none of them in vain.
#[test]
fn a_limit_of_which_leases_were_lost_is_used_by_those_that_are_there() {
    let redis = Redis::start();
    run(async {
        let nodes = four(&[redis.url()], &limit("leased", "token_bucket", 1_000, "1s")).await;
        let who = [Identity::new("user", "ada").expect("valid")];
        let request = Request::new(&who).expect("valid");
        for _ in 0..20 {
            assert!(nodes[0].check("ada").await.allowed);
            nodes[0].shared.forget(&request);
        }
        let found = Load::of(&load(&nodes, 500, Duration::from_secs(4)).await);
        assert_eq!((found.offered, found.degraded), (8_000, 0), "{found:?}");
        // Who loses a race is asked again at once: after 5 ms he would lose the next, and callers fell behind by seconds.
        assert!(found.lasted < Duration::from_secs(6), "{found:?}");
        // What comes back is used, and some of what was there.
        assert!((4_400..=found.most()).contains(&found.admitted), "{found:?}");
        let held: u64 = nodes.iter().map(|node| node.shared.figures().leased_out).sum();
        let scripts = redis.commands()["evalsha"];
        assert!(held < 10 && scripts > 1_000, "they charged the store: {held} held, {scripts} scripts");
    });
}

#[test]
fn a_lease_is_renewed_in_one_script_whatever_others_took_meanwhile() {
    let redis = Redis::start();
    run(async {
        let nodes = four(&[redis.url()], &limit("leased", "token_bucket", 1_000_000, "1s")).await;
        let mut before = HashMap::new();
        for turn in 0..14 {
            if turn == 4 {
                before = redis.commands();
            }
            // Each finds that three others took tokens since it did.
            for node in &nodes {
                let asked = node.shared.figures().asked;
                while node.shared.figures().asked == asked {
                    assert!(node.check_of(&[("user", "ada")], 1_000).await.allowed);
                }
                tokio::time::sleep(Duration::from_millis(60)).await;
            }
        }
        let after = redis.commands();
        let since = |name| after[name] - before[name];
        // What changes nothing is asked again.
        let (scripts, written) = (since("evalsha"), since("set"));
        assert!(scripts >= 40 && written >= scripts * 9 / 10, "{scripts} scripts wrote {written} times");
    });
}

#[test]
fn views_under_load_are_above_the_limit_by_what_an_interval_admits() {
    let redis = Redis::start();
    run(async {
        let nodes = four(&[redis.url()], &limit("synced", "token_bucket", 1_000, "1s")).await;
        let found = Load::of(&load(&nodes, 2_000, Duration::from_secs(4)).await);
        assert_eq!((found.offered, found.degraded), (32_000, 0));
        assert!((4_850..=found.most() + 800).contains(&found.admitted), "{found:?}");
    });
}

#[test]
fn what_was_taken_and_not_used_goes_back() {
    let redis = Redis::start();
    run(async {
        let one = node(&[redis.url()], PATIENT, &limit("leased", "token_bucket", 1_000, "1d")).await;
        let other = node(&[redis.url()], PATIENT, &limit("leased", "token_bucket", 1_000, "1d")).await;
        assert!(one.check("ada").await.allowed);
        assert!(one.shared.figures().leased_out > 1);
        one.shared.close().await;
        assert_eq!(one.shared.figures().leased_out, 0);
        // All but the one that was used.
        assert_eq!(other.check_of(&[("user", "ada")], 999).await.remaining, Some(0));
        assert!(!other.check_of(&[("user", "ada")], 1).await.allowed);
    });
}

#[test]
fn a_key_lives_as_long_as_its_leases() {
    let redis = Redis::start();
    run(async {
        let one = node(&[redis.url()], PATIENT, &limit("leased", "token_bucket", 1_000, "1s")).await;
        let other = node(&[redis.url()], PATIENT, &limit("strict", "token_bucket", 1_000, "1s")).await;
        assert!(one.check("ada").await.allowed);
        // It knows of no lease when it asks, and its own charge is forgotten in three seconds.
        assert!(other.check("ada").await.allowed);
        let keys: Vec<String> = redis.ask(cmd("KEYS").arg("tidegate:*")).expect("it answers");
        assert_eq!(keys.len(), 1, "{keys:?}");
        let lives: i64 = redis.ask(cmd("TTL").arg(&keys[0])).expect("it answers");
        assert!((110..=122).contains(&lives), "{lives} s");
    });
}

/// Tokens that are out of the only key that there is.
fn out_of(redis: &Redis) -> u64 {
    let keys: Vec<String> = redis.ask(cmd("KEYS").arg("tidegate:*")).expect("it answers");
    assert_eq!(keys.len(), 1, "{keys:?}");
    let value: String = redis.ask(cmd("GET").arg(&keys[0])).expect("it answers");
    // HEAD|EPOCH,NOW,BEFORE|...
    let leases = value.split('|').nth(1).expect("leases");
    leases.split(',').skip(1).map(|tokens| tokens.parse::<u64>().expect("tokens")).sum()
}

#[test]
#[ignore = "takes two minutes; scripts/test runs it beside others"]
fn what_a_dead_node_held_is_over_after_two_minutes_and_counts_as_spent() {
    let redis = Redis::start();
    run(async {
        let leased = limit("leased", "fixed_window", 1_000, "300d");
        let (dead, other) =
            (node(&[redis.url()], PATIENT, &leased).await, node(&[redis.url()], PATIENT, &leased).await);
        assert!(dead.check("ada").await.allowed);
        let held = dead.shared.figures().leased_out;
        // It dies: nothing is given back, and nobody knows what it spent.
        dead.shared.forget(&Request::new(&[Identity::new("user", "ada").expect("valid")]).expect("valid"));
        assert!(other.check("ada").await.allowed);
        assert!(held > 1 && out_of(&redis) > held, "{held}");
        other.shared.close().await;
        assert_eq!(out_of(&redis), held, "of the dead one");
        tokio::time::sleep(Duration::from_secs(121)).await;
        let after = four(&[redis.url()], &leased).await;
        let found = allowed(&after, 500, "ada").await as u64;
        // A lease may be under way.
        let left = wait_for("all that is out is of those that live", || {
            let left: u64 = after.iter().map(|node| node.shared.figures().leased_out).sum();
            (out_of(&redis) == left).then_some(left)
        });
        // What others hold at the end is theirs.
        assert!(found + 1 + held <= 1_000 && found + 1 + held + left >= 1_000, "{found} after {held}, {left} left");
    });
}

#[test]
fn what_a_view_spent_is_told_to_others_once() {
    let redis = Redis::start();
    run(async {
        let nodes = four(&[redis.url()], &limit("synced", "fixed_window", 100, "300d")).await;
        for node in &nodes {
            for _ in 0..10 {
                assert!(node.check("ada").await.allowed);
            }
        }
        // Who asks the store for a look at it, with nothing of its own, sees all.
        let late = node(&[redis.url()], PATIENT, &limit("strict", "fixed_window", 100, "300d")).await;
        let mut left = None;
        for _ in 0..100 {
            left = late.check_of(&[("user", "ada")], 0).await.remaining;
            if left == Some(60) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(left, Some(60));
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(late.check_of(&[("user", "ada")], 0).await.remaining, Some(60), "told once");
    });
    let _ = wait_for("it is there", || redis.commands().get("evalsha").copied());
}

#[test]
fn many_views_are_told_together_and_nobody_takes_the_store_for_gone() {
    const USERS: usize = 5_000;
    let redis = Redis::start();
    run(async {
        // One script takes far less, all of them far more than the hundred milliseconds in which a silence is noticed.
        let settings = StoreSettings { timeout: Duration::from_millis(20), ..PATIENT };
        let one = node(&[redis.url()], settings, &limit("synced", "fixed_window", 10, "300d")).await;
        let users: Vec<_> = (0..USERS).map(|user| format!("u-{user}")).collect();
        for _ in 0..3 {
            for user in &users {
                assert!(one.check(user).await.allowed);
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        let late = node(&[redis.url()], PATIENT, &limit("strict", "fixed_window", 10, "300d")).await;
        for user in [&users[0], &users[USERS / 2], &users[USERS - 1]] {
            let mut left = None;
            for _ in 0..1_000 {
                left = late.check_of(&[("user", user)], 0).await.remaining;
                if left == Some(7) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            assert_eq!(left, Some(7), "{user}");
        }
        let figures = one.shared.figures();
        assert!(figures.asked >= USERS as u64 / 64 && figures.opened == 0, "{figures:?}");
    });
}

#[test]
fn a_node_that_stops_during_an_exchange_has_told_all() {
    let redis = Redis::start();
    run(async {
        let settings = StoreSettings { sync_interval: Duration::from_millis(20), ..PATIENT };
        for turn in 0..60 {
            let one = node(&[redis.url()], settings, &limit("synced", "fixed_window", 1_000, "300d")).await;
            // Wherever the exchange is.
            tokio::time::sleep(Duration::from_micros(turn * 377)).await;
            assert!(one.check("ada").await.allowed);
            tokio::time::sleep(Duration::from_micros(turn * 733 % 23_000)).await;
            one.shared.close().await;
        }
        let late = node(&[redis.url()], PATIENT, &limit("strict", "fixed_window", 1_000, "300d")).await;
        assert_eq!(late.check_of(&[("user", "ada")], 0).await.remaining, Some(940));
    });
}

#[test]
fn what_is_spent_after_a_reset_counts() {
    let redis = Redis::start();
    run(async {
        let limit = |sharing| limit(sharing, "fixed_window", 100, "300d");
        let one = node(&[redis.url()], PATIENT, &limit("synced")).await;
        let late = node(&[redis.url()], PATIENT, &limit("strict")).await;
        let who = [Identity::new("user", "ada").expect("valid")];
        for used in [7, 3, 5] {
            for _ in 0..used {
                assert!(one.check("ada").await.allowed);
            }
            let mut left = None;
            for _ in 0..100 {
                left = late.check_of(&[("user", "ada")], 0).await.remaining;
                if left == Some(100 - used) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            assert_eq!(left, Some(100 - used), "what this view spent is told, though one before it told as much");
            let request = Request::new(&who).expect("valid");
            assert_eq!(one.shared.clear(&request).await.expect("it answers"), 1);
            one.shared.forget(&request);
            assert_eq!(late.check_of(&[("user", "ada")], 0).await.remaining, Some(100));
        }
    });
}
