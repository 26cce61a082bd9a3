//! The engine against the conformance suite: the pure step, the bucket without a table, the limiter without a policy,
//! the engine with one, and the two halves of a check that asks a store.

mod engine;
mod fleet;
mod limiters;
mod regressions;
mod step;

use std::time::Duration;

use tidegate::{
    Decision, Engine, Identity, Request, Retry, Snapshot, clock::Clock, internals::Verdict, policy, time::Timestamp,
};
use tidegate_conformance::{CheckOutcome, CheckReply, Coverage, Effort, Implementation, KEYS, LimitNumbers, conform};

use self::{
    engine::Engines,
    fleet::Fleets,
    limiters::{Limiters, Rated},
    step::{Buckets, Steps, meter},
};

/// The algorithms of the engine.
const ALGORITHMS: &[policy::Algorithm] = &[
    policy::Algorithm::TokenBucket,
    policy::Algorithm::LeakyBucket,
    policy::Algorithm::FixedWindow,
    policy::Algorithm::SlidingWindowCounter,
    policy::Algorithm::SlidingWindowLog,
];

/// Holds an implementation of these algorithms to the suite.
fn run(implementation: &dyn Implementation, algorithms: &[policy::Algorithm], histories: u32) -> Coverage {
    let effort = Effort { algorithms: algorithms.to_vec(), histories, steps: 60 };
    conform(implementation, &effort).expect("it conforms")
}

/// Returns the algorithms that are a step over one word: all but the log, whose steps are stricter than the rule.
fn steps() -> Vec<policy::Algorithm> {
    let ten = |algorithm| LimitNumbers {
        algorithm,
        limit: 10,
        period_ns: 1_000_000_000,
        calendar: None,
        burst: None,
        max_debt: None,
    };
    ALGORITHMS.iter().copied().filter(|algorithm| meter(&ten(*algorithm)).is_some()).collect()
}

fn assert_every_operation(seen: &Coverage) {
    let each =
        [seen.stalled, seen.one_short, seen.foretold, seen.gave_back, seen.excesses, seen.resets, seen.publishes];
    assert!(each.iter().all(|count| *count > 0), "{seen:?}");
}

#[test]
fn the_pure_step_conforms() {
    assert_every_operation(&run(&Steps, &steps(), 2_000));
}

#[test]
fn the_bucket_that_stands_alone_conforms_also_under_threads() {
    let seen = run(&Buckets, &steps(), 1_500);
    assert!(seen.stalled > 0 && seen.one_short > 0 && seen.turns > 0, "{seen:?}");
}

#[test]
fn a_limiter_without_a_policy_conforms_also_under_threads() {
    let seen = run(&Limiters, &steps(), 1_500);
    assert!(seen.stalled > 0 && seen.one_short > 0 && seen.foretold > 0 && seen.turns > 0, "{seen:?}");
}

#[test]
fn a_limiter_whose_numbers_come_with_each_check_conforms_also_under_threads() {
    let seen = run(&Rated, &[policy::Algorithm::TokenBucket], 1_000);
    assert!(seen.stalled > 0 && seen.one_short > 0 && seen.foretold > 0 && seen.turns > 0, "{seen:?}");
}

#[test]
fn the_engine_conforms_also_under_threads() {
    let seen = run(&Engines, ALGORITHMS, 2_000);
    assert_every_operation(&seen);
    assert!(seen.calendars > 0 && seen.turns > 0, "{seen:?}");
}

#[test]
fn a_check_in_two_halves_conforms_also_under_threads() {
    let seen = run(&Fleets, &steps(), 1_000);
    assert!(seen.one_short > 0 && seen.turns > 0, "{seen:?}");
}

fn outcome(verdict: Verdict) -> CheckOutcome {
    match verdict {
        Verdict::Admit(_) => CheckOutcome::Allowed,
        Verdict::Later { wait_ns } => CheckOutcome::Later { wait_ns },
        Verdict::Never => CheckOutcome::Never,
    }
}

fn retry(retry: Retry) -> CheckOutcome {
    match retry {
        Retry::Now => CheckOutcome::Allowed,
        Retry::After(wait) => CheckOutcome::Later { wait_ns: wait.as_nanos() as u64 },
        Retry::Never => CheckOutcome::Never,
    }
}

fn answer(decision: &Decision<'_>) -> CheckReply {
    let ns = |duration: Duration| duration.as_nanos() as u64;
    let at = decision.reset_at().zip(decision.reset_after()).map(|(at, after)| Timestamp::from(at - after).as_nanos());
    CheckReply {
        at,
        outcome: retry(decision.retry()),
        remaining: decision.remaining(),
        // A limit that admits nothing says nothing about its quota.
        reset_after_ns: decision.reset_after().map(ns),
        delay_ns: Some(ns(decision.delay())),
    }
}

/// A policy with limits of these numbers, for identities of kind `k`; `None` where a policy cannot say or carry them.
fn policy(numbers: &LimitNumbers, limits: impl FnOnce(policy::Limit) -> Vec<policy::Limit>) -> Option<Snapshot> {
    let period = match numbers.calendar {
        Some(calendar) => calendar.period().to_owned(),
        None => format!("{}ms", numbers.period_ns / 1_000_000),
    };
    let limit = policy::Limit {
        burst: numbers.burst,
        max_debt: numbers.max_debt,
        ..policy::Limit::new("l", numbers.algorithm, numbers.limit, period)
    };
    let tier = policy::Tier::new("t", limits(limit));
    let domain = policy::Domain {
        timezone: numbers.calendar.map(|calendar| calendar.zone.to_owned()),
        defaults: [("k".to_owned(), "t".to_owned())].into(),
        tiers: vec![tier],
        ..policy::Domain::default()
    };
    let policy = policy::Policy { domains: [("default".to_owned(), domain)].into() };
    numbers.period_ns.is_multiple_of(1_000_000).then(|| Snapshot::compile(&policy).ok())?
}

/// Makes an engine in whose table the same keys collide for the same numbers, and others for others.
fn engine<C: Clock>(numbers: &LimitNumbers, policy: Snapshot, clock: C) -> Engine<C> {
    let engine = Engine::for_simulation(16, clock, numbers.limit);
    engine.publish(policy).expect("few limits");
    engine
}

const NAMES: [&str; KEYS as usize] = ["ada", "ben", "cy"];

/// Asks about a call of `cost` by this key.
fn ask<T>(key: u8, cost: u64, what: impl FnOnce(&Request<'_>) -> T) -> T {
    let who = [Identity::new("k", NAMES[usize::from(key)]).expect("valid")];
    let request = Request::new(&who).expect("valid");
    what(&if cost == 0 { request.without_cost() } else { request.cost(cost).expect("valid") })
}
