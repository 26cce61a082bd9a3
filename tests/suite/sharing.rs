//! One limit on four real nodes with a real store: the total that is admitted, also while the store is killed, stopped, slow or
//! fails over, and when a node is killed. The tests of the module `long` need an idle machine for their load: `scripts/test --all`
//! runs them one after the other. The other tests make a fixed number of checks, however long they take.
#![expect(clippy::print_stdout, reason = "what was seen, beside what it must be")]

use std::{
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tidegate_testkit::{cluster::Cluster, fault_proxy::FaultProxy, redis::Redis, wait_until};
use ureq::Agent;

use crate::support::{server::Served, shared::Fleet};

/// A timeout with which a busy machine does not look like a failed store.
const PATIENT: &str = "2s";
/// A timeout with which nodes notice soon that a store has failed.
const BRISK: &str = "100ms";
/// The seconds for which nodes skip a failed store.
const PAUSE: f64 = 1.0;

const FOUR: [&str; 4] = ["n-1", "n-2", "n-3", "n-4"];
const SHARINGS: [&str; 3] = ["strict", "leased", "synced"];

/// The limit in tokens a second, and its burst.
const RATE: usize = 1_000;

/// The time from one batch of a node to the next.
const EACH: Duration = Duration::from_millis(10);

/// Checks that a node decided together. Times are seconds since the load began.
#[derive(Clone, Copy, Debug)]
struct Batch {
    sharing: &'static str,
    asked_at: f64,
    told_at: f64,
    counts: Counts,
}

/// A load: checks of one key for each of these ways to share.
struct Load {
    sharings: &'static [&'static str],
    /// The number of checks in a batch, for each way of sharing, every [`EACH`], on each node.
    together: usize,
    lasts: f64,
}

impl Load {
    /// Sends the load to each node while `meanwhile` runs.
    #[expect(clippy::disallowed_methods, reason = "a load is so much in a time")]
    fn on(&self, nodes: &[Served], meanwhile: impl FnOnce(&dyn Fn(f64))) -> Vec<Batch> {
        let began = Instant::now();
        thread::scope(|scope| {
            let of_node = |node| self.sharings.iter().map(move |&sharing| (node, sharing));
            let offered: Vec<_> = nodes.iter().flat_map(of_node).collect();
            let loads: Vec<_> = offered
                .into_iter()
                .map(|(node, sharing)| scope.spawn(move || self.offer(node, sharing, began)))
                .collect();
            meanwhile(&|at| thread::sleep(Duration::from_secs_f64(at).saturating_sub(since(began))));
            loads.into_iter().flat_map(|load| load.join().expect("no panic")).collect()
        })
    }

    fn offer(&self, node: &Served, sharing: &'static str, began: Instant) -> Vec<Batch> {
        let question = Question::new(node, sharing, self.together);
        let mut told = Vec::new();
        for turn in 0.. {
            let due = EACH * turn;
            if due.as_secs_f64() >= self.lasts {
                break;
            }
            thread::sleep(due.saturating_sub(since(began)));
            let asked_at = since(began).as_secs_f64();
            // A killed node does not answer.
            let Some(counts) = question.ask() else { break };
            told.push(Batch { sharing, asked_at, told_at: since(began).as_secs_f64(), counts });
        }
        told
    }
}

/// A batch of checks of one key, for a node.
struct Question {
    agent: Agent,
    url: String,
    body: String,
}

/// The outcome of batches.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Counts {
    offered: usize,
    admitted: usize,
    degraded: usize,
    /// Checks that were admitted by a degraded decision.
    degraded_admitted: usize,
}

impl Question {
    fn new(node: &Served, sharing: &str, together: usize) -> Self {
        let check = json!({ "identities": [{ "kind": "tenant", "value": "ada" }], "endpoint": format!("/{sharing}") });
        let body = json!({ "checks": vec![check; together] }).to_string();
        Self { agent: Agent::new_with_defaults(), url: format!("{}/v1/check/batch", node.checks), body }
    }

    /// Sends one batch. Returns `None` if the node does not respond.
    fn ask(&self) -> Option<Counts> {
        let mut answer = self.agent.post(&self.url).content_type("application/json").send(&self.body).ok()?;
        let answer: Value = answer.body_mut().read_json().expect("JSON");
        let decisions = answer["decisions"].as_array().expect("decisions");
        let count = |is: &dyn Fn(&Value) -> bool| decisions.iter().filter(|it| is(it)).count();
        Some(Counts {
            offered: decisions.len(),
            admitted: count(&|it| it["allowed"] == true),
            degraded: count(&|it| !it["degraded"].is_null()),
            degraded_admitted: count(&|it| !it["degraded"].is_null() && it["allowed"] == true),
        })
    }
}

/// Sends this number of batches of 20 checks to each of the nodes at the same time. Returns the sum of the decisions.
fn ask_all(nodes: &[Served], sharing: &str, batches: usize) -> Counts {
    thread::scope(|scope| {
        let of_node = |node| {
            scope.spawn(move || {
                let question = Question::new(node, sharing, 20);
                (0..batches).map(|_| question.ask().expect("the node answers")).fold(Counts::default(), added)
            })
        };
        let asked: Vec<_> = nodes.iter().map(of_node).collect();
        asked.into_iter().map(|node| node.join().expect("no panic")).fold(Counts::default(), added)
    })
}

fn added(sum: Counts, it: Counts) -> Counts {
    Counts {
        offered: sum.offered + it.offered,
        admitted: sum.admitted + it.admitted,
        degraded: sum.degraded + it.degraded,
        degraded_admitted: sum.degraded_admitted + it.degraded_admitted,
    }
}

fn since(began: Instant) -> Duration {
    began.elapsed()
}

/// The sum of the checks of one way of sharing that began and ended in a period.
#[derive(Debug)]
struct Sum {
    counts: Counts,
    /// Tokens above the limit, in the part of that time in which these were most; below 0 it was never used up.
    excess: f64,
}

fn sum(told: &[Batch], sharing: &str, (from, until): (f64, f64)) -> Sum {
    let mut of: Vec<_> =
        told.iter().filter(|it| it.sharing == sharing && it.asked_at >= from && it.told_at <= until).collect();
    let counts = of.iter().map(|it| it.counts).fold(Counts::default(), added);
    of.sort_by(|one, other| one.told_at.total_cmp(&other.told_at));
    let mut excess = f64::NEG_INFINITY;
    for first in &of {
        let mut in_part = 0;
        for it in of.iter().filter(|it| it.asked_at >= first.asked_at) {
            in_part += it.counts.admitted;
            let part = it.told_at - first.asked_at;
            excess = excess.max(in_part as f64 - RATE as f64 * (1.0 + part));
        }
    }
    Sum { counts, excess }
}

fn limit(sharing: &str, on_failure: &Value) -> Value {
    json!({
        "id": "s", "algorithm": "token_bucket", "limit": RATE, "period": "1s", "sharing": sharing, "on_failure": on_failure,
    })
}

/// Returns the sum of a metric over all nodes.
fn figure(nodes: &[Served], name: &str) -> f64 {
    let of = |node: &Served| {
        let mut answer = ureq::get(format!("{}/metrics", node.checks)).call().expect("an answer");
        let text = answer.body_mut().read_to_string().expect("text");
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse::<f64>().ok());
        value.expect(name)
    };
    nodes.iter().map(of).sum()
}

/// A fault of a store, with times in seconds: when it happens, from when until when all nodes skip the store, and when it ends.
struct Fault {
    happens: f64,
    away: (f64, f64),
    ends: f64,
    /// The number of bursts that the store forgets.
    forgets: f64,
    /// Whether the store still responds, too late, while it counts as unavailable.
    answers_late: bool,
}

/// All ways to share at the same time, each with another behaviour without the store.
fn holds(fault: &Fault, url: &str, happen: impl FnOnce(&dyn Fn(f64))) {
    let on_failure = [json!("closed"), json!("open"), json!({ "local": 0.1 })];
    let rules: Vec<_> = SHARINGS.iter().zip(&on_failure).map(|(&it, on_failure)| (it, limit(it, on_failure))).collect();
    let fleet = Fleet::with_rules(url, &rules, (&FOUR, BRISK));
    // A pause after it is back, and a period.
    let holds_from = fault.ends + PAUSE + 0.5 + 1.0;
    let lasts = holds_from + 3.0;
    let told = Load { sharings: &SHARINGS, together: 5, lasts }.on(&fleet.nodes, happen);
    for sharing in SHARINGS {
        let before = sum(&told, sharing, (0.0, fault.happens));
        let away = sum(&told, sharing, fault.away);
        let after = sum(&told, sharing, (holds_from, lasts));
        println!("{sharing}: before {before:?}, away {away:?}, after {after:?}");
        assert!(before.counts.degraded == 0 && before.counts.admitted > 1_000, "{sharing}: {before:?}");
        let seconds = fault.away.1 - fault.away.0;
        // What is lent by a store that answers late is spent all the same.
        let lent = if sharing == "leased" { RATE / 4 } else { 0 };
        assert!(away.counts.offered as f64 > 1_800.0 * seconds, "{sharing}: {away:?}");
        assert!(away.counts.degraded + lent >= away.counts.offered, "{sharing}: {away:?}");
        match sharing {
            "strict" => assert_eq!(away.counts.admitted, 0, "{away:?}"),
            // A late answer that there is nothing to lend denies for a 16th of the period. What it lends is bounded above.
            "leased" if fault.answers_late => {
                assert_eq!(away.counts.degraded_admitted, away.counts.degraded, "{away:?}");
            }
            "leased" => assert_eq!(away.counts.admitted, away.counts.offered, "{away:?}"),
            // A tenth of the limit on each node.
            _ => {
                let tenths = 4.0 * 0.1 * RATE as f64;
                let admitted = away.counts.admitted as f64;
                assert!((0.8 * tenths * seconds..=tenths * (1.0 + seconds)).contains(&admitted), "{away:?}");
            }
        }
        // The limit holds again, and is had: a view repays first what it had not known.
        assert!(after.counts.degraded == 0 && after.counts.offered > 5_000, "{sharing}: {after:?}");
        assert!(after.counts.admitted >= if sharing == "synced" { 1_500 } else { 2_700 }, "{sharing}: {after:?}");
        let bound = if sharing == "synced" { figure(&fleet.nodes, "tidegate_store_untold_tokens_max") } else { 0.0 };
        assert!(after.excess <= bound, "{sharing}: {bound}: {after:?}");
    }
    let strict = sum(&told, "strict", (0.0, lasts));
    assert!(strict.excess <= fault.forgets * RATE as f64, "nothing is counted twice, or lost: {strict:?}");
    // A busy machine may notice a timeout late, but no check waits for the store itself.
    let slowest = told.iter().map(|it| it.told_at - it.asked_at).fold(0.0, f64::max);
    let (waits, short) = ("tidegate_store_wait_seconds_count", "tidegate_store_wait_seconds_bucket{le=\"0.25\"}");
    let (waits, short) = (figure(&fleet.nodes, waits), figure(&fleet.nodes, short));
    println!("{waits} waited, {short} of them for at most 250 ms; slowest batch {slowest:.3} s");
    assert!(waits > 1_000.0 && waits - short < 0.5 && slowest < 1.0, "{waits} waited, {short} not long; {slowest} s");
}

/// A limit that is not refilled while a test runs.
fn fixed(sharing: &str, limit: usize) -> Value {
    json!({
        "id": "s", "algorithm": "fixed_window", "limit": limit, "period": "300d", "sharing": sharing, "on_failure": "closed",
    })
}

/// A timeout within which an available store responds on a busy machine.
const VERY_PATIENT: &str = "50s";

/// Four nodes that get four times a limit at the same time admit exactly the limit together. Unspent tokens of leases are not
/// returned yet.
#[test]
fn four_nodes_keep_one_limit_under_four_times_its_load() {
    const LIMIT: usize = 400;
    for sharing in ["strict", "leased"] {
        let redis = Redis::start();
        let fleet = Fleet::with_rules(&redis.url(), &[(sharing, fixed(sharing, LIMIT))], (&FOUR, VERY_PATIENT));
        let seen = ask_all(&fleet.nodes, sharing, 20);
        assert_eq!((seen.offered, seen.degraded), (4 * LIMIT, 0), "{sharing}: {seen:?}");
        assert!(seen.admitted <= LIMIT, "{sharing}: {seen:?}");
        if sharing == "strict" {
            assert_eq!(seen.admitted, LIMIT, "{seen:?}");
        } else {
            // A quarter may be out.
            assert!(seen.admitted >= LIMIT - LIMIT / 4, "{seen:?}");
        }
    }
}

/// The nodes respond without the store, and admit nothing. After its restart the store is empty and admits the limit once more.
#[test]
fn a_killed_redis_admits_nothing_and_one_limit_after_its_restart() {
    const LIMIT: usize = 400;
    let mut redis = Redis::start();
    let rules = [("strict", fixed("strict", LIMIT))];
    let fleet = Fleet::with_rules(&redis.url(), &rules, (&FOUR, VERY_PATIENT));
    let before = ask_all(&fleet.nodes, "strict", 2);
    assert_eq!(before, Counts { offered: 160, admitted: 160, degraded: 0, degraded_admitted: 0 });
    redis.kill();
    let away = ask_all(&fleet.nodes, "strict", 5);
    assert_eq!(away, Counts { offered: 400, admitted: 0, degraded: 400, degraded_admitted: 0 });
    // No node waited for the store, which is left alone.
    let is_away = |node: &Served| figure(std::slice::from_ref(node), "tidegate_store_up") < 0.5;
    assert!(fleet.nodes.iter().all(is_away));
    redis.start_again();
    let mut after = Counts::default();
    for node in &fleet.nodes {
        let question = Question::new(node, "strict", 1);
        wait_until("the node asks the store again", || {
            let counts = question.ask().expect("the node answers");
            after = added(after, counts);
            counts.degraded == 0
        });
    }
    assert!(after.admitted <= 4, "each node asked the store once: {after:?}");
    let rest = ask_all(&fleet.nodes, "strict", 20);
    assert_eq!((rest.degraded, after.admitted + rest.admitted), (0, LIMIT), "{after:?}, {rest:?}");
}

mod long {
    use super::*;

    #[test]
    #[ignore = "long: full load, for which it wants the machine for itself"]
    fn four_nodes_keep_one_limit_under_eight_times_its_load() {
        for sharing in SHARINGS {
            let redis = Redis::start();
            let rules = [(sharing, limit(sharing, &json!("closed")))];
            let fleet = Fleet::with_rules(&redis.url(), &rules, (&FOUR, PATIENT));
            let sharings = SHARINGS
                .iter()
                .position(|it| *it == sharing)
                .map(|place| &SHARINGS[place..=place])
                .expect("one of them");
            let told = Load { sharings, together: 20, lasts: 10.0 }.on(&fleet.nodes, |_| ());
            let seen = sum(&told, sharing, (0.0, f64::INFINITY));
            println!("{sharing}: {seen:?}");
            // All of them, also where a slow machine takes longer for it.
            assert!(seen.counts.offered == 80_000 && seen.counts.degraded == 0, "{sharing}: {seen:?}");
            // 97 % of what the limit has in ten seconds.
            assert!(seen.counts.admitted >= 10_670, "{sharing}: {seen:?}");
            if sharing == "synced" {
                let bound = figure(&fleet.nodes, "tidegate_store_untold_tokens_max");
                println!("the bound: {bound}");
                // And at most a tenth of what the limit has.
                assert!(seen.excess <= bound.min(1_100.0), "{bound}: {seen:?}");
            } else {
                assert!(seen.excess <= 0.0, "{sharing}: {seen:?}");
            }
        }
    }

    #[test]
    #[ignore = "long: full load, for which it wants the machine for itself"]
    fn a_killed_redis_blocks_no_check_and_the_limit_holds_after_its_restart() {
        let mut redis = Redis::start();
        let url = redis.url();
        holds(
            &Fault { happens: 2.0, away: (2.5, 11.9), ends: 12.0, forgets: 1.0, answers_late: false },
            &url,
            |wait_until| {
                wait_until(2.0);
                redis.kill();
                wait_until(12.0);
                redis.start_again();
            },
        );
    }

    #[test]
    #[ignore = "long: full load, for which it wants the machine for itself"]
    fn a_paused_redis_blocks_no_check_and_the_limit_holds_after_it() {
        let redis = Redis::start();
        holds(
            &Fault { happens: 2.0, away: (2.5, 6.9), ends: 7.0, forgets: 0.0, answers_late: false },
            &redis.url(),
            |wait_until| {
                wait_until(2.0);
                redis.pause();
                wait_until(7.0);
                redis.resume();
            },
        );
    }

    #[test]
    #[ignore = "long: full load, for which it wants the machine for itself"]
    fn a_redis_that_delays_and_loses_replies_blocks_no_check_and_the_limit_holds_after_it() {
        let redis = Redis::start();
        let proxy = FaultProxy::before(redis.address());
        holds(
            &Fault { happens: 2.0, away: (2.5, 4.9), ends: 8.0, forgets: 0.0, answers_late: true },
            &proxy.url(),
            |wait_until| {
                wait_until(2.0);
                proxy.delay(Duration::from_millis(200));
                wait_until(5.0);
                proxy.delay(Duration::ZERO);
                proxy.drop_half(true);
                wait_until(8.0);
                proxy.drop_half(false);
            },
        );
    }

    #[test]
    #[ignore = "long: full load, for which it wants the machine for itself"]
    #[expect(clippy::disallowed_methods, reason = "for how long the replica was cut off")]
    fn a_cluster_continues_when_a_master_is_killed() {
        const LASTS: f64 = 14.0;
        let mut cluster = Cluster::that_fails_over();
        let rules: Vec<_> = SHARINGS.iter().map(|&it| (it, limit(it, &json!("closed")))).collect();
        let fleet = Fleet::with_rules(&cluster.urls().join(","), &rules, (&FOUR, BRISK));
        let (mut killed_after, cut_at) = (Duration::ZERO, 2.0);
        let told = Load { sharings: &SHARINGS, together: 5, lasts: LASTS }.on(&fleet.nodes, |wait_until| {
            wait_until(cut_at);
            let began = Instant::now();
            // Its replica hears nothing of what is granted until it is killed.
            let master = cluster.cut_off();
            thread::sleep(Duration::from_millis(20));
            cluster.kill(master);
            killed_after = since(began);
        });
        let killed_at = cut_at + killed_after.as_secs_f64();
        for sharing in SHARINGS {
            let (all, last) = (sum(&told, sharing, (0.0, LASTS)), sum(&told, sharing, (LASTS - 3.0, LASTS)));
            let is_forgotten = |it: &&Batch| it.sharing == sharing && it.told_at >= cut_at && it.asked_at <= killed_at;
            let forgotten: usize = told.iter().filter(is_forgotten).map(|it| it.counts.admitted).sum();
            println!("{sharing}: {all:?}, last {last:?}, {forgotten} admitted while the replica was cut off");
            assert!(last.counts.degraded == 0 && last.counts.admitted >= 2_700, "{sharing} goes on: {last:?}");
            let more = match sharing {
                // Lent meanwhile, and spent after.
                "leased" => RATE as f64 / 4.0,
                "synced" => figure(&fleet.nodes, "tidegate_store_untold_tokens_max"),
                _ => 0.0,
            };
            assert!(all.excess <= forgotten as f64 + more, "{sharing}: {forgotten}, {more}: {all:?}");
        }
    }

    #[test]
    #[ignore = "long: full load, for which it wants the machine for itself"]
    fn tokens_of_a_killed_node_never_exceed_the_limit() {
        let redis = Redis::start();
        let limit =
            json!({ "id": "s", "algorithm": "fixed_window", "limit": 5_000, "period": "300d", "sharing": "leased" });
        let mut fleet = Fleet::with_rules(&redis.url(), &[("leased", limit)], (&FOUR, PATIENT));
        let load = |lasts| Load { sharings: &["leased"], together: 20, lasts };
        let mut told = load(0.5).on(&fleet.nodes, |_| ());
        fleet.nodes[0].kill();
        told.extend(load(3.0).on(&fleet.nodes[1..], |_| ()));
        let admitted: usize = told.iter().map(|it| it.counts.admitted).sum();
        // All but what the dead one held, a quarter at most.
        assert!((3_750..=5_000).contains(&admitted), "{admitted}");
    }
}
