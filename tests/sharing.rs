//! One limit over four real nodes and a real Redis: what is admitted in all, also where Redis or a node is killed, or stands.

#[path = "support/fleet.rs"]
#[expect(dead_code, reason = "other tests need more of it")]
mod fleet;
#[path = "../fleet/tests/store/rig.rs"]
#[expect(dead_code, reason = "other tests need more of it")]
mod rig;
#[path = "support/server.rs"]
#[expect(dead_code, reason = "other tests need more of it")]
mod server;
#[path = "support/session.rs"]
#[expect(dead_code, reason = "other tests need more of it")]
mod session;
#[path = "support/shared.rs"]
#[expect(dead_code, reason = "other tests need more of it")]
mod shared;
#[path = "support/mod.rs"]
#[expect(dead_code, reason = "other tests need more of it")]
mod support;

use std::{
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{rig::Redis, server::Served, shared::Fleet, support::command};

/// Where a busy machine is not to be taken for a store that is away.
const PATIENT: &str = "2s";
const FOUR: [&str; 4] = ["n-1", "n-2", "n-3", "n-4"];

/// What is offered to each node: so many checks together, so often.
const TOGETHER: usize = 20;
const EACH: Duration = Duration::from_millis(10);

/// What a load came to.
#[derive(Clone, Copy, Default, Debug)]
struct Load {
    offered: usize,
    admitted: usize,
    degraded: usize,
    slowest: Duration,
}

/// Offers checks of one key to each node, for so long, while `meanwhile` happens; what each was answered, by the second.
#[expect(clippy::disallowed_methods, reason = "a load is so much in a time")]
fn load(nodes: &[Served], lasts: Duration, meanwhile: impl FnOnce()) -> Vec<Load> {
    let checks: Vec<_> = (0..TOGETHER).map(|_| json!({ "identities": [{ "kind": "user", "value": "ada" }] })).collect();
    let (body, began) = (json!({ "checks": checks }).to_string(), Instant::now());
    let offer = |node: &Served| {
        let (agent, url) = (ureq::Agent::new_with_defaults(), format!("{}/v1/check/batch", node.checks));
        let mut seconds = vec![Load::default(); lasts.as_secs() as usize];
        for turn in 0.. {
            let due = EACH * turn;
            if due >= lasts {
                return seconds;
            }
            thread::sleep(due.saturating_sub(began.elapsed()));
            let asked = Instant::now();
            let answer = agent.post(&url).content_type("application/json").send(&body);
            // A node that was killed answers nobody.
            let Ok(mut answer) = answer else { return seconds };
            let answer: Value = answer.body_mut().read_json().expect("JSON");
            let decisions = answer["decisions"].as_array().expect("decisions");
            let Some(second) = seconds.get_mut(began.elapsed().as_secs() as usize) else { continue };
            second.slowest = second.slowest.max(asked.elapsed());
            for decision in decisions {
                second.offered += 1;
                second.admitted += usize::from(decision["allowed"] == true);
                second.degraded += usize::from(!decision["degraded"].is_null());
            }
        }
        seconds
    };
    thread::scope(|scope| {
        let loads: Vec<_> = nodes.iter().map(|node| scope.spawn(|| offer(node))).collect();
        meanwhile();
        let mut all = vec![Load::default(); lasts.as_secs() as usize];
        for load in loads {
            for (all, second) in all.iter_mut().zip(load.join().expect("no panic")) {
                all.offered += second.offered;
                all.admitted += second.admitted;
                all.degraded += second.degraded;
                all.slowest = all.slowest.max(second.slowest);
            }
        }
        all
    })
}

fn sum(seconds: &[Load], of: impl Fn(&Load) -> usize) -> usize {
    seconds.iter().map(of).sum()
}

fn limit(sharing: &str) -> Value {
    json!({ "id": "s", "algorithm": "token_bucket", "limit": 1_000, "period": "1s", "sharing": sharing })
}

#[test]
fn four_nodes_hold_one_limit_under_eight_times_as_much() {
    for (sharing, least, most) in [("strict", 10_670, 11_000), ("leased", 10_670, 11_000), ("synced", 10_670, 12_100)] {
        let redis = Redis::start();
        let fleet = Fleet::start(&redis, &limit(sharing), (&FOUR, PATIENT));
        let seconds = load(&fleet.nodes, Duration::from_secs(10), || ());
        let (offered, admitted) = (sum(&seconds, |it| it.offered), sum(&seconds, |it| it.admitted));
        assert_eq!(sum(&seconds, |it| it.degraded), 0, "{sharing}: {seconds:?}");
        assert!(offered > 70_000, "{sharing}: {offered} offered");
        assert!((least..=most).contains(&admitted), "{sharing}: {admitted} of {offered}");
    }
}

#[test]
fn a_killed_redis_blocks_nobody_and_holds_the_limit_when_it_is_back() {
    for sharing in ["strict", "leased", "synced"] {
        let mut redis = Redis::start();
        let mut limit = limit(sharing);
        limit["on_failure"] = json!("closed");
        let fleet = Fleet::start(&redis, &limit, (&FOUR, "100ms"));
        let seconds = load(&fleet.nodes, Duration::from_secs(12), || {
            pause(Duration::from_secs(3));
            redis.kill();
            pause(Duration::from_secs(4));
            redis.start_again();
        });
        // What it is said to do: nothing is admitted; leases are spent to their end.
        assert_eq!(sum(&seconds[5..7], |it| it.admitted), 0, "{sharing}: {seconds:?}");
        // A second's pause after it is back, then its burst, then the limit.
        assert!(sum(&seconds[8..], |it| it.admitted) <= 1_000 + 4 * 1_000 + 1_000, "{sharing}: {seconds:?}");
        // A view repays first what was admitted by none that was corrected.
        let least = if sharing == "synced" { 0 } else { 800 };
        assert!(seconds[10..].iter().all(|it| (least..=1_300).contains(&it.admitted)), "{sharing}: {seconds:?}");
    }
}

#[test]
fn what_a_killed_node_held_is_never_above_the_limit() {
    let redis = Redis::start();
    let limit =
        json!({ "id": "s", "algorithm": "fixed_window", "limit": 5_000, "period": "300d", "sharing": "leased" });
    let mut fleet = Fleet::start(&redis, &limit, (&FOUR, PATIENT));
    let mut first = load(&fleet.nodes, Duration::from_secs(1), || ());
    fleet.nodes[0].kill();
    first.extend(load(&fleet.nodes[1..], Duration::from_secs(3), || ()));
    let admitted = sum(&first, |it| it.admitted);
    // All but what the dead one held, a quarter at most.
    assert!((3_750..=5_000).contains(&admitted), "{admitted}: {first:?}");
}

fn pause(time: Duration) {
    thread::sleep(time);
}
