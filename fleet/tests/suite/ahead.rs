//! Limits of which nodes take tokens ahead (`leased`), or whose use they tell each other (`synced`), over a real store.

use std::{collections::HashMap, sync::Arc, time::Duration};

use redis::cmd;
use tidegate::{Identity, Request};
use tidegate_fleet::store::StoreSettings;
use tidegate_testkit::{PATIENCE, redis::Redis, wait_for};
use tokio::time::{Instant, sleep};

use crate::{
    load::{Load, Seen, least, load},
    nodes::{PATIENT, allowed, four, left_becomes, limit, node, run, until},
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
            let left: u64 = nodes.iter().map(|node| node.shared.stats().leased_out).sum();
            assert!(found <= 1_000, "{algorithm}: {found}");
            assert!(found as u64 + left >= 1_000, "{algorithm}: {found}, {left}");
            let asked: u64 = nodes.iter().map(|node| node.shared.stats().asked).sum();
            assert!(asked < 400, "{algorithm}: {asked} scripts for 1,600 checks");
        }
    });
}

/// Loads a leased limit and asserts that at least this much of it is used. An idle machine uses 97 %; on a busy one, tokens that
/// come back while the burst is full are lost.
fn leases_under_load(least: impl Fn(&[Seen]) -> usize) {
    let redis = Redis::start();
    run(async {
        let nodes = four(&[redis.url()], &limit("leased", "token_bucket", 1_000, "1s")).await;
        let seen = load(&nodes, 2_000, Duration::from_secs(4)).await;
        let found = Load::of(&seen);
        assert_eq!((found.offered, found.degraded), (32_000, 0));
        assert!((least(&seen)..=found.most()).contains(&found.admitted), "{found:?}");
    });
}

#[test]
fn leases_under_load_use_the_limit_and_no_more() {
    leases_under_load(least);
}

/// What was lent to nobody counts as out, as much as may be out: the others charge the store, and none of them in vain.
fn leases_that_were_lost(least: impl Fn(&[Seen]) -> usize, lasts_at_most: Duration) {
    let redis = Redis::start();
    run(async {
        let nodes = four(&[redis.url()], &limit("leased", "token_bucket", 1_000, "1s")).await;
        let who = [Identity::new("user", "ada").expect("valid")];
        let request = Request::new(&who).expect("valid");
        for _ in 0..20 {
            assert!(nodes[0].check("ada").await.allowed);
            nodes[0].shared.forget(&request);
        }
        let seen = load(&nodes, 500, Duration::from_secs(4)).await;
        let found = Load::of(&seen);
        assert_eq!((found.offered, found.degraded), (8_000, 0), "{found:?}");
        // A check that loses a race is asked again at once: after 5 ms it would lose the next, and callers fell behind by seconds.
        assert!(found.lasted < lasts_at_most, "{found:?}");
        // What comes back is used, and some of what was there.
        assert!((least(&seen)..=found.most()).contains(&found.admitted), "{found:?}");
        let held: u64 = nodes.iter().map(|node| node.shared.stats().leased_out).sum();
        let scripts = redis.commands()["evalsha"];
        assert!(held < 10 && scripts > 1_000, "they charged the store: {held} held, {scripts} scripts");
    });
}

#[test]
fn a_limit_of_which_leases_were_lost_is_used_by_those_that_are_there() {
    leases_that_were_lost(least, PATIENCE);
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
                let asked = node.shared.stats().asked;
                while node.shared.stats().asked == asked {
                    assert!(node.check_of(&[("user", "ada")], 1_000).await.allowed);
                }
                sleep(Duration::from_millis(60)).await;
            }
        }
        let after = redis.commands();
        let since = |name| after[name] - before[name];
        // What changes nothing is asked again.
        let (scripts, written) = (since("evalsha"), since("set"));
        assert!(scripts >= 40 && written >= scripts * 9 / 10, "{scripts} scripts wrote {written} times");
    });
}

/// Loads a synced limit on four nodes and asserts how far it is exceeded: by at most `unseen_at_most` tokens, or by what the nodes
/// spent between two exchanges, summed.
fn views_under_load(least: impl Fn(&[Seen]) -> usize, unseen_at_most: Option<u64>) {
    let redis = Redis::start();
    run(async {
        let nodes = four(&[redis.url()], &limit("synced", "token_bucket", 1_000, "1s")).await;
        let seen = load(&nodes, 2_000, Duration::from_secs(4)).await;
        let found = Load::of(&seen);
        assert_eq!((found.offered, found.degraded), (32_000, 0));
        // The last exchanges are over then.
        for node in &nodes {
            node.shared.close().await;
        }
        let untold = nodes.iter().map(|node| node.shared.stats().untold_max).sum();
        let most = found.most() + unseen_at_most.unwrap_or(untold) as usize;
        assert!((least(&seen)..=most).contains(&found.admitted), "{untold}: {found:?}");
    });
}

#[test]
fn views_under_load_are_above_the_limit_by_what_an_interval_admits() {
    views_under_load(least, None);
}

#[test]
fn what_was_taken_and_not_used_goes_back() {
    let redis = Redis::start();
    run(async {
        let one = node(&[redis.url()], PATIENT, &limit("leased", "token_bucket", 1_000, "1d")).await;
        let other = node(&[redis.url()], PATIENT, &limit("leased", "token_bucket", 1_000, "1d")).await;
        assert!(one.check("ada").await.allowed);
        assert!(one.shared.stats().leased_out > 1);
        one.shared.close().await;
        assert_eq!(one.shared.stats().leased_out, 0);
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
        let began = Instant::now();
        assert!(one.check("ada").await.allowed);
        // It knows of no lease when it asks, and its own charge is forgotten in three seconds.
        assert!(other.check("ada").await.allowed);
        let keys = redis.keys().expect("it answers");
        assert_eq!(keys.len(), 1, "{keys:?}");
        let lives: i64 = redis.ask(cmd("TTL").arg(&keys[0])).expect("it answers");
        let passed = i64::try_from(began.elapsed().as_secs()).expect("few");
        assert!((119 - passed..=122).contains(&lives), "{lives} s after {passed}");
    });
}

/// Tokens that are out of the only key that there is.
fn out_of(redis: &Redis) -> u64 {
    let keys = redis.keys().expect("it answers");
    assert_eq!(keys.len(), 1, "{keys:?}");
    let value: String = redis.ask(cmd("GET").arg(&keys[0])).expect("it answers");
    // HEAD|EPOCH,NOW,BEFORE|...
    let leases = value.split('|').nth(1).expect("leases");
    leases.split(',').skip(1).map(|tokens| tokens.parse::<u64>().expect("tokens")).sum()
}

/// Two leases of this life after a node died nothing of it is out. Returns false where the machine was too slow for a lease of that
/// life, so that some ran out that were in use.
async fn a_node_dies(redis: &Redis, lease: Duration) -> bool {
    redis.ask::<()>(cmd("FLUSHALL").arg("SYNC")).expect("it answers");
    let leased = limit("leased", "fixed_window", 200, "300d");
    let settings = StoreSettings { lease, ..PATIENT };
    let start = async || node(&[redis.url()], settings, &leased).await;
    let (dead, other, began) = (start().await, start().await, Instant::now());
    assert!(dead.check("ada").await.allowed);
    let held = dead.shared.stats().leased_out;
    // It dies: nothing is given back, and its last counts are lost.
    dead.shared.forget(&Request::new(&[Identity::new("user", "ada").expect("valid")]).expect("valid"));
    assert!(other.check("ada").await.allowed);
    let out = out_of(redis);
    other.shared.close().await;
    let out_at_last = out_of(redis);
    if began.elapsed() > lease / 2 {
        return false;
    }
    assert!(held > 1 && out > held, "{held}");
    assert_eq!(out_at_last, held, "of the dead one");
    sleep(2 * lease + Duration::from_millis(100)).await;
    let mut after = Vec::new();
    for _ in 0..4 {
        after.push(Arc::new(start().await));
    }
    let began = Instant::now();
    let found = allowed(&after, 60, "ada").await as u64;
    assert!(found < 200 - held, "{found} after {held}");
    // A lease may be under way.
    let mut left = 0;
    until("all that is out is of those that live", async || {
        left = after.iter().map(|node| node.shared.stats().leased_out).sum();
        out_of(redis) == left
    })
    .await;
    // Not given back, nor over.
    let is_quick = began.elapsed() < lease / 2;
    // What others hold at the end is theirs.
    assert!(!is_quick || found + 1 + held + left >= 200, "{found} after {held}, {left} left");
    is_quick
}

#[test]
fn what_a_dead_node_held_is_over_after_two_leases_and_counts_as_spent() {
    let redis = Redis::start();
    run(async {
        for _ in 0..20 {
            if a_node_dies(&redis, Duration::from_secs(2)).await {
                return;
            }
        }
        panic!("leases ran out that were in use, each time");
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
        // A node that has spent nothing asks the store, and sees all.
        let late = node(&[redis.url()], PATIENT, &limit("strict", "fixed_window", 100, "300d")).await;
        left_becomes(&late, &[("user", "ada")], 60).await;
        // The next charges are sent to the store, and none of them twice.
        for node in &nodes {
            assert!(node.check("ada").await.allowed);
        }
        left_becomes(&late, &[("user", "ada")], 56).await;
    });
    let _ = wait_for("it is there", || redis.commands().get("evalsha").copied());
}

/// Ten exchanges take ten intervals; twenty times as long is for a busy machine.
#[test]
fn what_a_view_spends_is_told_in_each_interval() {
    let redis = Redis::start();
    run(async {
        let one = node(&[redis.url()], PATIENT, &limit("synced", "fixed_window", 1_000_000, "300d")).await;
        let began = Instant::now();
        while one.shared.stats().asked < 10 {
            assert!(began.elapsed() < 20 * 10 * PATIENT.sync_interval, "{:?}", one.shared.stats());
            assert!(one.check("ada").await.allowed);
            sleep(Duration::from_millis(5)).await;
        }
    });
}

/// Tells many views over a store that is to answer within `timeout`, and never counts as gone.
fn tell_many_views(timeout: Duration) {
    const USERS: usize = 5_000;
    let redis = Redis::start();
    run(async {
        let settings = StoreSettings { timeout, ..PATIENT };
        let one = node(&[redis.url()], settings, &limit("synced", "fixed_window", 10, "300d")).await;
        let users: Vec<_> = (0..USERS).map(|user| format!("u-{user}")).collect();
        for _ in 0..3 {
            for user in &users {
                assert!(one.check(user).await.allowed);
            }
            sleep(Duration::from_millis(200)).await;
        }
        let late = node(&[redis.url()], PATIENT, &limit("strict", "fixed_window", 10, "300d")).await;
        for user in [&users[0], &users[USERS / 2], &users[USERS - 1]] {
            left_becomes(&late, &[("user", user)], 7).await;
        }
        let figures = one.shared.stats();
        assert!(figures.asked >= USERS as u64 / 64 && figures.opened == 0, "{figures:?}");
    });
}

#[test]
fn many_views_are_told_together_and_nobody_takes_the_store_for_gone() {
    tell_many_views(Duration::from_secs(2));
}

/// A node that has made many views since it told any has the store charge further keys.
#[test]
fn new_keys_without_end_are_charged_in_the_store() {
    const VIEWS: usize = 8_192;
    const LIMIT: usize = 10;
    let redis = Redis::start();
    run(async {
        let settings = StoreSettings { sync_interval: Duration::from_hours(1), ..PATIENT };
        let one = node(&[redis.url()], settings, &limit("synced", "fixed_window", LIMIT as u64, "300d")).await;
        let late = node(&[redis.url()], PATIENT, &limit("strict", "fixed_window", LIMIT as u64, "300d")).await;
        for user in 0..VIEWS {
            assert!(one.check(&format!("u-{user}")).await.allowed);
        }
        assert_eq!(one.shared.stats().asked, 0, "nothing is told for an hour");
        for used in 1..=LIMIT {
            assert!(one.check("ada").await.allowed);
            let left = (LIMIT - used) as u64;
            assert_eq!(late.check_of(&[("user", "ada")], 0).await.remaining, Some(left), "at once");
        }
        assert!(!one.check("ada").await.allowed);
        let asked = one.shared.stats().asked;
        assert_eq!(asked, LIMIT as u64 + 1, "one for each check");
        // Views that there are go on.
        assert!(one.check("u-0").await.allowed);
        assert_eq!(one.shared.stats().asked, asked);
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
            sleep(Duration::from_micros(turn * 377)).await;
            assert!(one.check("ada").await.allowed);
            sleep(Duration::from_micros(turn * 733 % 23_000)).await;
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
            // What this view spent is told, though one before it told as much.
            left_becomes(&late, &[("user", "ada")], 100 - used).await;
            let request = Request::new(&who).expect("valid");
            assert_eq!(one.shared.clear(&request).await.expect("it answers"), 1);
            one.shared.forget(&request);
            assert_eq!(late.check_of(&[("user", "ada")], 0).await.remaining, Some(100));
        }
    });
}

/// Bounds that a busy machine does not keep, and the real life of a lease.
mod long {
    use super::*;

    #[test]
    #[ignore = "long: takes two minutes, the real life of a lease twice"]
    fn what_a_dead_node_held_is_over_after_two_minutes_and_counts_as_spent() {
        let redis = Redis::start();
        assert!(run(a_node_dies(&redis, StoreSettings::default().lease)), "half a minute was too short");
    }

    #[test]
    #[ignore = "long: full load on an idle machine"]
    fn leases_under_load_use_the_limit_but_for_three_percent() {
        leases_under_load(|_| 4_850);
    }

    #[test]
    #[ignore = "long: full load on an idle machine"]
    fn a_limit_of_which_leases_were_lost_is_used_in_time() {
        leases_that_were_lost(|_| 4_400, Duration::from_secs(6));
    }

    #[test]
    #[ignore = "long: full load on an idle machine"]
    fn views_under_load_are_above_the_limit_by_800_at_most() {
        views_under_load(|_| 4_850, Some(800));
    }

    /// One script takes far less, all of them far more than the hundred milliseconds in which a silence is noticed.
    #[test]
    #[ignore = "long: answers within 20 ms, as an idle machine gives them"]
    fn many_views_are_told_together_within_a_short_timeout() {
        tell_many_views(Duration::from_millis(20));
    }
}
