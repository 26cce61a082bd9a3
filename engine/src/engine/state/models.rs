//! Loom models of whole checks: several limits at once, giving back, publishing. Each model says how many preemptions
//! it allows. A publish swaps its pointer in one step here, as arc-swap promises.

use std::{sync::Arc, time::Duration};

use loom::{model::Builder, thread};

use crate::{
    Identity,
    base::{
        clock::ManualClock,
        time::{Nanos, Timestamp},
    },
    engine::{limit_ids::LimitIds, state::Engine},
    policy::{
        compiled::Snapshot,
        document::{Algorithm, Domain, Limit, Policy, Tier},
        request::Request,
    },
};

const START: Nanos = 1_790_000_000_000_000_000;

type Modelled = Arc<Engine<ManualClock>>;

/// Checks all interleavings with at most this many preemptions.
fn check_within(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    builder.check(model);
}

fn engine(policy: &Arc<Snapshot>) -> (Modelled, ManualClock) {
    let clock = ManualClock::at(Timestamp::from_nanos(START));
    let engine = Engine::for_simulation(1, clock.clone(), 7);
    engine.publish(Arc::clone(policy)).expect("few limits");
    (Arc::new(engine), clock)
}

/// Compiles a policy in which the identities of each kind have a tier of the same name, with one limit.
fn compiled<const N: usize>(limits: [(&str, Limit); N]) -> Arc<Snapshot> {
    let mut domain = Domain::default();
    for (kind, limit) in limits {
        domain.defaults.insert(kind.to_owned(), kind.to_owned());
        domain.tiers.push(Tier::new(kind, vec![limit]));
    }
    Arc::new(Snapshot::compile(&Policy { domains: [("default".to_owned(), domain)].into() }).expect("a policy"))
}

/// Returns a limit of one second.
fn limit(id: &str, algorithm: Algorithm, limit: u64, burst: Option<u64>) -> Limit {
    Limit { burst, ..Limit::new(id, algorithm, limit, "1s") }
}

/// Returns a policy in which a user meets limit `a` and an address limit `b`, buckets with these bursts that get one
/// token a second.
fn policy(burst_of_a: u64, burst_of_b: u64) -> Arc<Snapshot> {
    let bucket = |id: &str, burst: u64| limit(id, Algorithm::TokenBucket, 1, Some(burst));
    compiled([("user", bucket("a", burst_of_a)), ("ip", bucket("b", burst_of_b))])
}

/// Returns whether a request of one user and one address is allowed, in this order of kinds.
fn is_allowed(engine: &Engine<ManualClock>, kinds: &[&str]) -> bool {
    let who: Vec<_> = kinds.iter().map(|kind| Identity::new(kind, "7").expect("valid")).collect();
    engine.check(&Request::new(&who).expect("valid")).is_allowed()
}

const USER: &[&str] = &["user"];
const IP: &[&str] = &["ip"];
const BOTH: &[&str] = &["user", "ip"];
const BOTH_TURNED: &[&str] = &["ip", "user"];

#[test]
fn what_a_check_took_before_a_later_limit_refused_is_given_back() {
    let policy = policy(2, 1);
    check_within(3, move || {
        let (engine, _) = engine(&policy);
        let other = Arc::clone(&engine);
        let thread = thread::spawn(move || is_allowed(&other, BOTH));
        let allowed = u32::from(is_allowed(&engine, BOTH)) + u32::from(thread.join().expect("no panic"));
        assert_eq!(allowed, 1, "the address has one token, and whoever takes it is not refused elsewhere");
        // The check that lost gave the user's token back, and no more than that.
        assert!(is_allowed(&engine, USER) && !is_allowed(&engine, USER) && !is_allowed(&engine, IP));
    });
}

#[test]
fn checks_that_meet_two_limits_in_opposite_orders_admit_no_more_than_either() {
    let policy = policy(1, 1);
    check_within(3, move || {
        let (engine, _) = engine(&policy);
        let other = Arc::clone(&engine);
        let thread = thread::spawn(move || is_allowed(&other, BOTH_TURNED));
        let allowed = u32::from(is_allowed(&engine, BOTH)) + u32::from(thread.join().expect("no panic"));
        // Each may take the token that the other needs: then both are refused, and both have given back.
        assert!(allowed <= 1);
        assert_eq!((is_allowed(&engine, USER), is_allowed(&engine, IP)), (allowed == 0, allowed == 0));
    });
}

/// A bucket of one token, and one more in a second. The first token is charged at 0 and given back by a thread that
/// stalls; another is charged at 5 seconds. A third one then would make two at one instant.
#[test]
fn a_late_give_back_mints_nothing() {
    let policy = policy(1, 1);
    check_within(3, move || {
        let (engine, clock) = engine(&policy);
        let who = [Identity::new("user", "7").expect("valid")];
        let (decision, reservation) = engine.reserve(&Request::new(&who).expect("valid"));
        assert!(decision.is_allowed());
        let other = Arc::clone(&engine);
        let thread = thread::spawn(move || reservation.into_iter().for_each(|reservation| other.refund(reservation)));
        clock.advance(Duration::from_secs(5));
        let second = is_allowed(&engine, USER);
        thread.join().expect("no panic");
        assert!(second, "time has brought the token back");
        assert!(!is_allowed(&engine, USER), "two at one instant");
    });
}

#[test]
fn a_reset_beside_a_check_and_a_refund_leaves_one_burst_at_most() {
    let policy = policy(2, 1);
    check_within(2, move || {
        let (engine, _) = engine(&policy);
        let who = [Identity::new("user", "7").expect("valid")];
        let (_, reservation) = engine.reserve(&Request::new(&who).expect("valid"));
        let [refunds, checks] = [(); 2].map(|()| Arc::clone(&engine));
        let refund = thread::spawn(move || reservation.into_iter().for_each(|reservation| refunds.refund(reservation)));
        let check = thread::spawn(move || is_allowed(&checks, USER));
        let who = [Identity::new("user", "7").expect("valid")];
        engine.reset(&Request::new(&who).expect("valid"));
        refund.join().expect("no panic");
        assert!(check.join().expect("no panic"));
        // The reset forgot the first charge, and the check's if that came before it.
        let left = (0..3).filter(|_| is_allowed(&engine, USER)).count();
        assert!((1..=2).contains(&left), "{left} after a reset, at most one check and a refund of what is forgotten");
    });
}

#[test]
fn a_publish_beside_a_check_loses_no_charge() {
    let (wide, narrow) = (policy(2, 1), policy(1, 1));
    check_within(2, move || {
        let (engine, _) = engine(&wide);
        let other = Arc::clone(&engine);
        let thread = thread::spawn(move || is_allowed(&other, USER));
        engine.publish(Arc::clone(&narrow)).expect("few limits");
        // The check used the new numbers or the old ones: its token stays used.
        assert!(thread.join().expect("no panic"));
        assert!(!is_allowed(&engine, USER), "one was used of one");
    });
}

#[test]
fn a_handle_of_before_a_publish_charges_by_the_new_numbers() {
    let (wide, narrow) = (policy(2, 1), policy(1, 1));
    check_within(2, move || {
        let (engine, _) = engine(&wide);
        let other = Arc::clone(&engine);
        let thread = thread::spawn(move || {
            let mut handle = other.handle("default/tier:user/a", "user").expect("is there");
            (0..2).filter(|_| handle.check("7").is_allowed()).count()
        });
        engine.publish(Arc::clone(&narrow)).expect("few limits");
        let allowed = thread.join().expect("no panic");
        assert!((1..=2).contains(&allowed));
        assert!(!is_allowed(&engine, USER), "{allowed} were used, and one fits");
    });
}

/// Loom has four generations, so that a thread can sleep through all of them.
#[test]
fn a_check_that_slept_until_the_generations_came_round_does_not_take_a_newer_bucket_for_an_older() {
    let policies: [_; 5] = [2, 3, 2, 3, 2].map(|burst| policy(burst, 1));
    check_within(2, move || {
        let [first, second, rest @ ..] = &policies;
        let (engine, _) = engine(first);
        engine.publish(Arc::clone(second)).expect("few limits");
        let other = Arc::clone(&engine);
        let thread = thread::spawn(move || is_allowed(&other, USER));
        for next in rest {
            engine.publish(Arc::clone(next)).expect("few limits");
        }
        let here = is_allowed(&engine, USER);
        let there = thread.join().expect("no panic");
        assert!(here && there, "two fit");
        assert!(!is_allowed(&engine, USER), "and no more");
    });
}

/// The key has a slot already, and the check may be about to convert it as of the second policy when it falls asleep.
/// If it then finds the slot as it was, it leaves numbers that no policy has.
#[test]
fn a_bucket_that_a_sleeper_left_with_numbers_of_no_policy_is_denied_until_it_is_idle() {
    let policies: [_; 5] = [2, 3, 2, 3, 2].map(|burst| policy(burst, 1));
    check_within(2, move || {
        let [first, rest @ ..] = &policies;
        let (engine, clock) = engine(first);
        assert!(is_allowed(&engine, USER));
        let other = Arc::clone(&engine);
        let thread = thread::spawn(move || {
            let mut handle = other.handle("default/tier:user/a", "user").expect("is there");
            handle.check("7").is_allowed()
        });
        for next in rest {
            engine.publish(Arc::clone(next)).expect("few limits");
        }
        assert!(thread.join().expect("no panic"), "two fit");
        assert!(!is_allowed(&engine, USER), "and no more");
        clock.advance(Duration::from_secs(2));
        assert!(is_allowed(&engine, USER) && is_allowed(&engine, USER), "time has brought both back");
    });
}

/// Both keys have slots already, so that a charge is the swap of what a preview saw. The publish changes the second
/// limit alone: if the check has to start over, it has the first one's token to give back.
#[test]
fn a_publish_between_the_looks_of_a_check_and_its_charges_loses_none_of_them() {
    let (wide, narrow) = (policy(2, 3), policy(2, 2));
    check_within(2, move || {
        let (engine, _) = engine(&wide);
        assert!(is_allowed(&engine, BOTH));
        let other = Arc::clone(&engine);
        let thread = thread::spawn(move || is_allowed(&other, BOTH));
        engine.publish(Arc::clone(&narrow)).expect("few limits");
        assert!(thread.join().expect("no panic"));
        assert!(!is_allowed(&engine, USER) && !is_allowed(&engine, IP), "two were used of two, of either");
    });
}

/// Three names come one after the other, and the engine has room for two at a time.
#[test]
fn a_name_that_takes_the_id_of_another_meets_none_of_its_charges() {
    let named = |id: &str| compiled([("user", limit(id, Algorithm::TokenBucket, 1, Some(2)))]);
    let policies = ["a", "b", "c"].map(named);
    check_within(2, move || {
        let [first, second, third] = &policies;
        let mut engine = Engine::for_simulation(1, ManualClock::at(Timestamp::from_nanos(START)), 7);
        engine.publisher.get_mut().expect("no panic").limit_ids = LimitIds::with_capacity(2);
        let engine = Arc::new(engine);
        engine.publish(Arc::clone(first)).expect("there is room");
        let other = Arc::clone(&engine);
        let thread = thread::spawn(move || {
            let who = [Identity::new("user", "7").expect("valid")];
            let decision = other.check(&Request::new(&who).expect("valid"));
            assert!(decision.is_allowed(), "two fit, under each name");
            decision.limit_id().map(str::to_owned)
        });
        engine.publish(Arc::clone(second)).expect("there is room");
        // While the check works by the first policy, that policy holds its id.
        let is_refused = engine.publish(Arc::clone(third)).is_err();
        let charged = thread.join().expect("no panic");
        if is_refused {
            engine.publish(Arc::clone(third)).expect("the check has ended");
        }
        let is_of_third = charged.as_deref() == Some("default/tier:user/c");
        let left = (0..3).filter(|_| is_allowed(&engine, USER)).count();
        assert_eq!(left, 2 - usize::from(is_of_third), "{charged:?} was charged");
        // A late charge of another name would be a slot of its own, with the id of the third.
        let (id, mut slots) = (engine.active.load_full().limits[0].id, 0);
        engine.buckets.table.clear(|limit| limit == id, |_| false, |_| slots += 1);
        assert!(slots <= 1, "{slots} slots of one key");
    });
}

/// Returns a policy with a window of one second that admits this many.
fn window(most: u64) -> Arc<Snapshot> {
    compiled([("user", limit("a", Algorithm::FixedWindow, most, None))])
}

#[test]
fn a_charge_of_a_window_that_has_just_begun_outlives_a_publish() {
    let (one, two) = (window(1), window(2));
    check_within(2, move || {
        let (engine, clock) = engine(&one);
        assert!(is_allowed(&engine, USER));
        let [checks, publishes] = [(); 2].map(|()| Arc::clone(&engine));
        let two = Arc::clone(&two);
        let publish = thread::spawn(move || publishes.publish(two).map(drop).expect("few limits"));
        clock.advance(Duration::from_secs(1));
        let check = thread::spawn(move || is_allowed(&checks, USER));
        assert!(check.join().expect("no panic"), "the window is new");
        publish.join().expect("no panic");
        let left = (0..3).filter(|_| is_allowed(&engine, USER)).count();
        assert_eq!(left, 1, "one was used of two");
    });
}

#[test]
fn a_window_that_is_rolled_converted_reset_and_checked_at_once_admits_at_most_one_limit_more() {
    let (one, two) = (window(1), window(2));
    check_within(2, move || {
        let (engine, clock) = engine(&one);
        assert!(is_allowed(&engine, USER));
        let [checks, publishes] = [(); 2].map(|()| Arc::clone(&engine));
        let two = Arc::clone(&two);
        let check = thread::spawn(move || is_allowed(&checks, USER));
        let publish = thread::spawn(move || publishes.publish(two).map(drop).expect("few limits"));
        clock.advance(Duration::from_secs(1));
        let who = [Identity::new("user", "7").expect("valid")];
        engine.reset(&Request::new(&who).expect("valid"));
        let checked = check.join().expect("no panic");
        publish.join().expect("no panic");
        // The check may have used the old window, or the reset may have forgotten it.
        let left = (0..3).filter(|_| is_allowed(&engine, USER)).count();
        assert!((2 - usize::from(checked)..=2).contains(&left), "{left} after a check that was {checked}");
    });
}
