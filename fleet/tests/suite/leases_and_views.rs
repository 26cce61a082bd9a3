//! Limits whose tokens nodes take in advance (`leased`), or whose use they exchange (`synced`), over a real store.

use std::{collections::HashMap, sync::Arc, time::Duration};

use redis::cmd;
use tidegate::{Identity, Request};
use tidegate_fleet::store::StoreSettings;
use tidegate_testkit::{PATIENCE, redis::Redis, wait_for};
use tokio::time::{Instant, sleep};

use crate::{
    load::{Load, TimedCheck, least, load},
    nodes::{PATIENT, allowed, four, left_becomes, limit, node, run, until},
};

#[test]
fn leased_tokens_never_exceed_the_limit() {
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

/// Loads a leased limit and asserts that at least this much of it is used. An idle machine uses 97 %; a busy one loses
/// tokens that come back while the burst is full.
fn leases_under_load(least: impl Fn(&[TimedCheck]) -> usize) {
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

/// Loads a limit whose leases were lost: their tokens count as out, as many as may be. Asserts that the other nodes use
/// the rest, without charges in vain.
fn leases_that_were_lost(least: impl Fn(&[TimedCheck]) -> usize, lasts_at_most: Duration) {
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
        // A check that loses a race is sent again at once: after a pause of 5 ms it would lose the next one, and
        // callers would fall behind by seconds.
        assert!(found.lasted < lasts_at_most, "{found:?}");
        // The tokens that come back are used, and some of those of the beginning.
        assert!((least(&seen)..=found.most()).contains(&found.admitted), "{found:?}");
        let held: u64 = nodes.iter().map(|node| node.shared.stats().leased_out).sum();
        let scripts = redis.commands()["evalsha"];
        assert!(held < 10 && scripts > 1_000, "they charged the store: {held} held, {scripts} scripts");
    });
}

#[test]
fn a_limit_whose_leases_were_lost_is_used_by_the_other_nodes() {
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
            // Each node finds that three others took tokens since its last request.
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
        // An answer that changes nothing is not sent again.
        let (scripts, written) = (since("evalsha"), since("set"));
        assert!(scripts >= 40 && written >= scripts * 9 / 10, "{scripts} scripts wrote {written} times");
    });
}

/// Loads a synced limit on four nodes and asserts how far it is exceeded: by at most `unseen_at_most` tokens, or by the
/// sum of what the nodes spent between two exchanges.
fn views_under_load(least: impl Fn(&[TimedCheck]) -> usize, unseen_at_most: Option<u64>) {
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
fn unused_tokens_of_a_lease_go_back() {
    let redis = Redis::start();
    run(async {
        let one = node(&[redis.url()], PATIENT, &limit("leased", "token_bucket", 1_000, "1d")).await;
        let other = node(&[redis.url()], PATIENT, &limit("leased", "token_bucket", 1_000, "1d")).await;
        assert!(one.check("ada").await.allowed);
        assert!(one.shared.stats().leased_out > 1);
        one.shared.close().await;
        assert_eq!(one.shared.stats().leased_out, 0);
        // All tokens but the used one.
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
        // The node knows of no lease when it asks, and its own charge expires in three seconds.
        assert!(other.check("ada").await.allowed);
        let keys = redis.keys().expect("it answers");
        assert_eq!(keys.len(), 1, "{keys:?}");
        let lives: i64 = redis.ask(cmd("TTL").arg(&keys[0])).expect("it answers");
        let passed = i64::try_from(began.elapsed().as_secs()).expect("few");
        assert!((119 - passed..=122).contains(&lives), "{lives} s after {passed}");
    });
}

/// Returns the lent tokens of the only key.
fn out_of(redis: &Redis) -> u64 {
    let keys = redis.keys().expect("it answers");
    assert_eq!(keys.len(), 1, "{keys:?}");
    let value: String = redis.ask(cmd("GET").arg(&keys[0])).expect("it answers");
    // HEAD|EPOCH,NOW,BEFORE|...
    let leases = value.split('|').nth(1).expect("leases");
    leases.split(',').skip(1).map(|tokens| tokens.parse::<u64>().expect("tokens")).sum()
}

/// Runs a node that dies, and asserts that its tokens are no longer out two lives of a lease later. Returns `false`
/// where the machine was too slow for this life, so that leases in use ran out.
async fn kill_a_node(redis: &Redis, lease: Duration) -> bool {
    redis.ask::<()>(cmd("FLUSHALL").arg("SYNC")).expect("it answers");
    let leased = limit("leased", "fixed_window", 200, "300d");
    let settings = StoreSettings { lease, ..PATIENT };
    let start = async || node(&[redis.url()], settings, &leased).await;
    let (dead, other, began) = (start().await, start().await, Instant::now());
    assert!(dead.check("ada").await.allowed);
    let held = dead.shared.stats().leased_out;
    // The node dies: it gives nothing back, and its last counts are lost.
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
    // The tokens were not given back, nor have they expired.
    let is_quick = began.elapsed() < lease / 2;
    // What other nodes hold at the end is theirs.
    assert!(!is_quick || found + 1 + held + left >= 200, "{found} after {held}, {left} left");
    is_quick
}

#[test]
fn tokens_of_a_dead_node_count_as_spent_after_two_lives_of_a_lease() {
    let redis = Redis::start();
    run(async {
        for _ in 0..20 {
            if kill_a_node(&redis, Duration::from_secs(2)).await {
                return;
            }
        }
        panic!("leases ran out that were in use, each time");
    });
}

#[test]
fn what_a_view_spent_reaches_other_nodes_once() {
    let redis = Redis::start();
    run(async {
        let nodes = four(&[redis.url()], &limit("synced", "fixed_window", 100, "300d")).await;
        for node in &nodes {
            for _ in 0..10 {
                assert!(node.check("ada").await.allowed);
            }
        }
        // A node that has spent nothing asks the store, and sees everything.
        let late = node(&[redis.url()], PATIENT, &limit("strict", "fixed_window", 100, "300d")).await;
        left_becomes(&late, &[("user", "ada")], 60).await;
        // The next charges are sent to the store, each of them once.
        for node in &nodes {
            assert!(node.check("ada").await.allowed);
        }
        left_becomes(&late, &[("user", "ada")], 56).await;
    });
    let _ = wait_for("it is there", || redis.commands().get("evalsha").copied());
}

/// Ten exchanges take ten intervals; a busy machine may take twenty times as long.
#[test]
fn a_view_is_exchanged_in_each_interval() {
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

/// Exchanges many views over a store that must answer within `timeout`, and asserts that it never counts as gone.
fn exchange_many_views(timeout: Duration) {
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
fn many_views_are_exchanged_together_and_the_breaker_stays_closed() {
    exchange_many_views(Duration::from_secs(2));
}

/// A node that has made many views since its last exchange charges further keys in the store.
#[test]
fn new_keys_above_the_most_are_charged_in_the_store() {
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
        // Views that exist go on.
        assert!(one.check("u-0").await.allowed);
        assert_eq!(one.shared.stats().asked, asked);
    });
}

#[test]
fn a_node_that_stops_during_an_exchange_has_sent_everything() {
    let redis = Redis::start();
    run(async {
        let settings = StoreSettings { sync_interval: Duration::from_millis(20), ..PATIENT };
        for turn in 0..60 {
            let one = node(&[redis.url()], settings, &limit("synced", "fixed_window", 1_000, "300d")).await;
            // At any point of an exchange.
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
fn tokens_spent_after_a_reset_count() {
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
            // The charge of this view is sent, though an earlier view sent as much.
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
    fn tokens_of_a_dead_node_count_as_spent_after_two_minutes() {
        let redis = Redis::start();
        assert!(run(kill_a_node(&redis, StoreSettings::default().lease)), "half a minute was too short");
    }

    #[test]
    #[ignore = "long: full load on an idle machine"]
    fn leases_under_load_use_the_limit_but_for_three_percent() {
        leases_under_load(|_| 4_850);
    }

    #[test]
    #[ignore = "long: full load on an idle machine"]
    fn a_limit_whose_leases_were_lost_is_used_in_time() {
        leases_that_were_lost(|_| 4_400, Duration::from_secs(6));
    }

    #[test]
    #[ignore = "long: full load on an idle machine"]
    fn views_under_load_are_above_the_limit_by_800_at_most() {
        views_under_load(|_| 4_850, Some(800));
    }

    /// One script takes much less than the hundred milliseconds in which a silence is noticed, all of them much more.
    #[test]
    #[ignore = "long: answers within 20 ms, as an idle machine gives them"]
    fn many_views_are_exchanged_within_a_short_timeout() {
        exchange_many_views(Duration::from_millis(20));
    }
}
