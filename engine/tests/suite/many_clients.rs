//! A hundred thousand clients: each finds its own tier and override, and a publish of them all beside checks denies and
//! allows as before.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

use tidegate::{
    Engine, Identity, Request, Snapshot,
    clock::ManualClock,
    policy::{Client, Override, Policy},
    time::Timestamp,
};
use tidegate_conformance::Deadline;

const SECOND: u64 = 1_000_000_000;
const NOW: u64 = 1_790_035_200 * SECOND;
const CLIENTS: usize = 100_000;

/// Every tenth client has an override of its own, of every kind in turn; the others have one of ten tiers.
fn policy(limit_of_tier: impl Fn(usize) -> u64) -> Policy {
    let tiers: Vec<_> = (0..10)
        .map(|tier| {
            let limit = limit_of_tier(tier);
            format!(
                r#"{{"id":"t{tier}","limits":[{{"id":"l","algorithm":"fixed_window","limit":{limit},"period":"1m"}}]}}"#
            )
        })
        .collect();
    let text = format!(r#"{{"domains":{{"default":{{"defaults":{{"user":"t0"}},"tiers":[{}]}}}}}}"#, tiers.join(","));
    let mut policy: Policy = serde_json::from_str(&text).expect("a document");
    let own = |limit| {
        serde_json::from_str(&format!(r#"{{"id":"l","algorithm":"fixed_window","limit":{limit},"period":"1m"}}"#))
    };
    let clients = (0..CLIENTS).map(|client| Client {
        tier: Some(format!("t{}", client % 10)),
        exception: (client % 10 == 3).then(|| match client / 10 % 3 {
            0 => Override { blocked: true, ..Override::default() },
            1 => Override { unlimited: true, ..Override::default() },
            _ => Override { limits: vec![own(3).expect("a limit")], ..Override::default() },
        }),
        ..Client::new("user", name(client))
    });
    policy.domains.get_mut("default").expect("is there").clients = clients.collect();
    policy
}

/// Half of them share a prefix with others.
fn name(client: usize) -> String {
    if client.is_multiple_of(2) { format!("u{client}") } else { format!("team{}-u{client}", client % 100) }
}

/// Returns how many of twenty requests in a minute pass; `None`: all, without a limit.
fn expected(client: usize, limit_of_tier: impl Fn(usize) -> u64) -> Option<u64> {
    match (client % 10, client / 10 % 3) {
        (3, 0) => Some(0),
        (3, 1) => None,
        (3, _) => Some(3),
        (tier, _) => Some(limit_of_tier(tier)),
    }
}

#[test]
fn each_of_a_hundred_thousand_clients_gets_its_own() {
    let tier_limit = |tier: usize| tier as u64 + 5;
    let clock = ManualClock::at(Timestamp::from_nanos(NOW));
    let engine = Engine::for_simulation(200_000, clock, 7);
    engine.publish(Snapshot::compile(&policy(tier_limit)).expect("a good policy")).expect("few limits");
    for client in (0..CLIENTS).step_by(37) {
        let name = name(client);
        let who = [Identity::new("user", &name).expect("valid")];
        let request = Request::new(&who).expect("valid");
        let decisions: Vec<_> = (0..20).map(|_| engine.check(&request)).collect();
        let allowed = decisions.iter().filter(|it| it.is_allowed()).count() as u64;
        match expected(client, tier_limit) {
            Some(limit) => assert_eq!(allowed, limit, "{name}"),
            None => assert!(allowed == 20 && decisions[0].limit().is_none(), "{name}"),
        }
    }
    assert_eq!(engine.overflow_charges(), 0);
    // A user who is no client has the default tier.
    let who = [Identity::new("user", "u100000").expect("valid")];
    assert_eq!(engine.check(&Request::new(&who).expect("valid")).limit(), Some(5));
}

#[test]
fn a_hundred_thousand_clients_are_published_beside_checks() {
    let clock = ManualClock::at(Timestamp::from_nanos(NOW));
    let engine = Engine::for_simulation(10_000, clock, 7);
    let [few, many] = [5, 1_000_000].map(|limit| Arc::new(Snapshot::compile(&policy(|_| limit)).expect("good")));
    engine.publish(Arc::clone(&few)).expect("few limits");
    let (done, deadline) = (AtomicBool::new(false), Deadline::new());
    // The most checks of one thread, and the most versions that one thread saw.
    let (checked_most, versions_most) = (AtomicU64::new(0), AtomicU64::new(0));
    let has_shown = || checked_most.load(Ordering::SeqCst) > 20 && versions_most.load(Ordering::SeqCst) > 3;
    thread::scope(|scope| {
        let check = || {
            let name = name(8);
            let who = [Identity::new("user", &name).expect("valid")];
            let request = Request::new(&who).expect("valid");
            let (mut checked, mut versions) = (0u64, BTreeSet::new());
            while !done.load(Ordering::SeqCst) {
                let decision = engine.check(&request);
                // A decision is of one policy: the numbers of a version come with that version.
                let limit = if decision.policy_version() % 2 == 1 { 5 } else { 1_000_000 };
                assert_eq!(decision.limit(), Some(limit));
                checked += 1;
                versions.insert(decision.policy_version());
                checked_most.fetch_max(checked, Ordering::SeqCst);
                versions_most.fetch_max(versions.len() as u64, Ordering::SeqCst);
            }
        };
        (0..2).for_each(|_| drop(scope.spawn(check)));
        // The checks may get no processor during the first publishes.
        let mut round = 0;
        while round < 20 || (!has_shown() && !deadline.has_passed()) {
            let next = if round % 2 == 0 { &many } else { &few };
            engine.publish(Arc::clone(next)).expect("few limits");
            round += 1;
        }
        done.store(true, Ordering::SeqCst);
    });
    assert!(has_shown(), "{checked_most:?} checks saw {versions_most:?} versions: nothing was shown");
}
