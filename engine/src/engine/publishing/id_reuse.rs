//! Tests of the reuse of ids: they are taken back when no policy has their names, and a bucket of one name never counts
//! for another.

use std::time::Duration;

use crate::{
    Identity,
    base::{
        clock::ManualClock,
        time::{Nanos, Timestamp},
    },
    engine::{limit_ids::LimitIds, names::LimitIndex, publishing::PublishError, state::Engine},
    policy::{
        compiled::Snapshot,
        document::{Algorithm, Domain, Limit, Policy, Tier},
        request::Request,
    },
    storage::{atomic_update::Swap, counters::Counts, layout::Slot},
};

const START: Nanos = 1_790_000_000_000_000_000;
const HOUR: Nanos = 3_600_000_000_000;

/// Returns an engine that can know this many limits at a time.
fn engine(max_keys: usize, limits_max: usize) -> (Engine<ManualClock>, ManualClock) {
    let clock = ManualClock::at(Timestamp::from_nanos(START));
    let mut engine = Engine::for_simulation(max_keys, clock.clone(), 7);
    engine.publisher.get_mut().expect("no panic").limit_ids = LimitIds::with_capacity(limits_max);
    (engine, clock)
}

/// Returns a policy in which users have one limit of this name: two at once, and as many an hour.
fn policy(id: &str, algorithm: Algorithm) -> Snapshot {
    let tier = Tier::new("user", vec![Limit::new(id, algorithm, 2, "1h")]);
    let mut domain = Domain::default();
    domain.defaults.insert("user".to_owned(), "user".to_owned());
    domain.tiers.push(tier);
    Snapshot::compile(&Policy { domains: [("default".to_owned(), domain)].into() }).expect("a policy")
}

fn named(id: &str) -> Snapshot {
    policy(id, Algorithm::TokenBucket)
}

fn is_allowed(engine: &Engine<ManualClock>) -> bool {
    let ada = [Identity::new("user", "ada").expect("valid")];
    engine.check(&Request::new(&ada).expect("valid")).is_allowed()
}

/// Returns how many of three checks are allowed.
fn allowed(engine: &Engine<ManualClock>) -> usize {
    (0..3).filter(|_| is_allowed(engine)).count()
}

fn name(id: &str) -> String {
    format!("default/tier:user/{id}")
}

#[test]
fn any_number_of_names_published_in_turn_each_has_its_own_quota() {
    const ROOM: usize = 16;
    let (engine, clock) = engine(100, ROOM);
    for round in 0..10 * ROOM {
        let snapshot = named(&format!("l{round}"));
        assert_eq!(engine.has_room_for(&snapshot), Ok(()));
        engine.publish(snapshot).expect("there is room");
        assert_eq!(allowed(&engine), 2, "in round {round}");
        assert!(engine.known_limits() <= ROOM);
        // Some are idle when their ids are wanted, others are not.
        clock.advance(Duration::from_nanos(if round % (3 * ROOM) == 0 { HOUR } else { 0 }));
    }
    // The counts stay under the name that they were counted for.
    let first = Counts { allowed: 2, denied: 1, owner_allowed: 2, ..Counts::default() };
    assert_eq!((engine.limit_name(LimitIndex(0)), engine.counts(LimitIndex(0))), (&*name("l0"), Some(first)));
}

#[test]
fn unused_ids_are_taken_back_before_they_are_needed() {
    let (engine, clock) = engine(100, 64);
    for round in 0..8 {
        engine.publish(named(&format!("l{round}"))).expect("there is room");
        assert!(is_allowed(&engine));
    }
    assert_eq!(engine.known_limits(), 8, "all are used");
    clock.advance(Duration::from_nanos(HOUR));
    for round in 8..20 {
        engine.publish(named(&format!("l{round}"))).expect("there is room");
    }
    assert!(engine.known_limits() < 8, "{} of 64", engine.known_limits());
}

#[test]
fn a_name_that_comes_back_keeps_what_was_used_until_its_id_is_needed() {
    let (engine, _) = engine(100, 2);
    let publish = |id| engine.publish(named(id)).map(drop).expect("there is room");
    publish("a");
    assert_eq!(allowed(&engine), 2);
    publish("b");
    publish("a");
    assert_eq!(allowed(&engine), 0, "it is used up still");
    // Nothing of b is used, so its id is taken.
    publish("c");
    publish("a");
    assert_eq!(allowed(&engine), 0);
    publish("b");
    // Something of a is used, and there is no other id.
    publish("d");
    publish("a");
    assert_eq!(allowed(&engine), 2);
}

#[test]
fn a_handle_on_an_older_policy_holds_its_ids() {
    let (engine, _) = engine(100, 2);
    engine.publish(named("a")).expect("there is room");
    let mut handle = engine.handle(&name("a"), "user").expect("it is there");
    assert!(handle.check_n("ada", 2).expect("valid").is_allowed());
    engine.publish(named("b")).expect("there is room");
    assert_eq!(engine.has_room_for(&named("c")), Err(PublishError::TooManyLimits));
    assert_eq!(engine.publish(named("c")), Err(PublishError::TooManyLimits));
    assert_eq!((engine.version(), engine.known_limits()), (2, 2));
    assert_eq!(allowed(&engine), 2, "the policy in force decides");
    // The next check takes the newest policy, which does not have its limit.
    assert_eq!(handle.check("ada").limit_id(), None);
    assert_eq!(engine.has_room_for(&named("c")), Ok(()));
    assert_eq!(engine.publish(named("c")), Ok(3));
    assert_eq!(allowed(&engine), 2);
}

#[test]
fn reservations_and_saved_decisions_of_a_name_do_not_touch_the_next_name_with_its_id() {
    let (engine, _) = engine(100, 2);
    engine.publish(named("a")).expect("there is room");
    let ada = [Identity::new("user", "ada").expect("valid")];
    let ada = Request::new(&ada).expect("valid");
    let (decision, [first, second]) = (engine.peek(&ada).save(), [(); 2].map(|()| engine.reserve(&ada).1));
    for id in ["b", "c"] {
        engine.publish(named(id)).expect("there is room");
    }
    assert_eq!(engine.known_limits(), 2);
    engine.settle(first.expect("it was allowed"), 2);
    engine.refund(second.expect("it was allowed"));
    assert_eq!(allowed(&engine), 2, "neither was charged or refunded to c");
    assert_eq!(engine.restore(&decision).limit_id(), Some(&*name("a")));
}

#[test]
fn rings_and_overflow_buckets_are_emptied_with_the_id() {
    let (engine, _) = engine(1, 2);
    for round in 0..100 {
        engine.publish(policy(&format!("l{round}"), Algorithm::SlidingWindowLog)).expect("there is room");
        assert_eq!(allowed(&engine), 2);
    }
    assert_eq!(engine.log_charges_without_ring(), 0, "there are sixteen");
    let rings: u64 = (0..2).map(|id| engine.buckets.table.shares.rings(id).get()).sum();
    assert_eq!(rings, 2, "one of the name in each place");

    let is_used = |id| engine.buckets.table.shares.overflow(id).iter().any(|cell| Swap::load(cell) != Slot::EMPTY);
    engine.publish(named("a")).expect("there is room");
    for number in 0..100_u32 {
        let value = number.to_string();
        let user = [Identity::new("user", &value).expect("valid")];
        let _ = engine.check(&Request::new(&user).expect("valid"));
    }
    assert!(is_used(0) || is_used(1), "there is no room for a hundred keys");
    for id in ["b", "c", "d"] {
        engine.publish(named(id)).expect("there is room");
    }
    assert!(!is_used(0) && !is_used(1));
}
