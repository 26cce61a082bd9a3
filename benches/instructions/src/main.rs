//! Repeats one kind of work a number of times, for `scripts/instructions`, which counts the instructions.
//!
//! The seed, the clock and the keys are the same in every run. Every count includes the setup, so the difference of two counts is
//! the cost of the work.

use std::{env, hint::black_box, sync::Arc};

use tidegate::{
    Decision, Engine, Identity, Request, Snapshot,
    clock::ManualClock,
    policy::{Algorithm, Domain, Limit, Mode, Policy, Sharing, Tier},
    time::Timestamp,
};

/// Returns a policy in which each user has one limit and each address three; the tier `none` has a limit that one check uses up.
///
/// It is built from structs, because parsing it from text would need several times as many crates.
fn policy() -> Policy {
    let limit = |id: &str, algorithm, limit, period: &str, burst| Limit {
        id: id.to_owned(),
        algorithm,
        limit,
        period: period.to_owned(),
        burst,
        max_debt: None,
        mode: Mode::default(),
        sharing: Sharing::default(),
        on_failure: None,
    };
    let bucket = |id: &str| limit(id, Algorithm::TokenBucket, 1_000_000_000, "1s", Some(1_000_000));
    let tier = |id: &str, limits| Tier { id: id.to_owned(), description: None, limits, unlimited: false };
    let mut domain = Domain::default();
    domain.defaults.insert("user".to_owned(), "one".to_owned());
    domain.defaults.insert("ip".to_owned(), "three".to_owned());
    domain.tiers = vec![
        tier("one", vec![bucket("l")]),
        tier("none", vec![limit("l", Algorithm::TokenBucket, 1, "1d", Some(1))]),
        tier(
            "three",
            vec![
                bucket("second"),
                limit("minute", Algorithm::SlidingWindowCounter, 1_000_000, "1m", None),
                limit("day", Algorithm::FixedWindow, 10_000_000, "1d", None),
            ],
        ),
    ];
    Policy { domains: [("default".to_owned(), domain)].into() }
}

/// A collection that reads each decision and keeps none.
struct DiscardDecisions;

impl<'e> Extend<Decision<'e>> for DiscardDecisions {
    fn extend<T: IntoIterator<Item = Decision<'e>>>(&mut self, decisions: T) {
        for decision in decisions {
            black_box(decision.is_allowed());
        }
    }
}

#[expect(clippy::panic, reason = "an unknown kind of work is an error of the caller")]
fn main() {
    let [work, rounds] = [1, 2].map(|place| env::args().nth(place).expect("the work, and the number of its rounds"));
    let rounds: u64 = rounds.parse().expect("a number of rounds");
    let clock = ManualClock::at(Timestamp::from_nanos(1_790_035_200_000_000_000));
    let engine = Engine::for_simulation(1_000, clock, 7);
    engine.publish(Arc::new(Snapshot::compile(&policy()).expect("a policy"))).expect("few limits");
    let key = *b"sixteen bytes !!";
    let handle = |limit, kind| engine.handle(limit, kind).expect("the policy has it");
    match work.as_str() {
        "hit" | "denial" => {
            let mut handle = handle(if work == "hit" { "default/tier:one/l" } else { "default/tier:none/l" }, "user");
            for _ in 0..rounds {
                black_box(handle.check(black_box(key)).is_allowed());
            }
        }
        "window" | "costs" => {
            let (mut handle, cost) = match work.as_str() {
                "window" => (handle("default/tier:three/day", "ip"), 1),
                _ => (handle("default/tier:one/l", "user"), 2),
            };
            for _ in 0..rounds {
                black_box(handle.check_n(black_box(key), black_box(cost)).expect("in range").is_allowed());
            }
        }
        "three_limits" => {
            let who = [Identity::new("ip", "192.0.2.1").expect("valid")];
            let request = Request::new(&who).expect("valid");
            for _ in 0..rounds {
                black_box(engine.check(black_box(&request)).is_allowed());
            }
        }
        // Rounds of 64 checks each.
        "batch" => {
            let mut handle = handle("default/tier:one/l", "user");
            let keys: [u64; 64] = std::array::from_fn(|number| number as u64);
            for _ in 0..rounds {
                handle.check_batch(black_box(&keys), &mut DiscardDecisions);
            }
        }
        _ => panic!("hit, denial, window, costs, three_limits or batch"),
    }
}
