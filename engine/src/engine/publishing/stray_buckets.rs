//! Tests of stray buckets, whose numbers no policy in force has. A check leaves one if it stalls while generations come
//! round.

use std::{sync::Arc, time::Duration};

use crate::{
    Identity,
    base::{
        clock::ManualClock,
        time::{Nanos, Timestamp},
    },
    engine::{decision::Decision, state::Engine},
    policy::{compiled::Snapshot, formats::Format, request::Request},
    storage::layout::BucketState,
};

const START: Nanos = 1_790_000_000_000_000_000;

/// Returns a policy for two kinds of client, each with one limit of two requests within ten seconds; that of the users
/// is `user`.
fn policy(user: &str) -> Arc<Snapshot> {
    let text = format!(
        r#"
        [domains.default]
        defaults = {{ user = "user", ip = "ip" }}
        [[domains.default.tiers]]
        id = "user"
        limits = [{{ id = "l", {user} }}]
        [[domains.default.tiers]]
        id = "ip"
        limits = [{{ id = "l", algorithm = "fixed_window", limit = 100, period = "10s" }}]
        "#
    );
    Arc::new(Snapshot::parse(&text, Format::Toml).expect("a policy"))
}

const LIMITS: [&str; 4] = [
    r#"algorithm = "token_bucket", limit = 2, period = "10s""#,
    r#"algorithm = "fixed_window", limit = 2, period = "10s""#,
    r#"algorithm = "sliding_window_counter", limit = 2, period = "10s""#,
    r#"algorithm = "sliding_window_log", limit = 2, period = "10s""#,
];

/// Returns an engine in which one of the two requests of a user is used, and the buckets have numbers that are yet to
/// come.
fn with_strays(limit: &str) -> (Engine<ManualClock>, ManualClock) {
    let clock = ManualClock::at(Timestamp::from_nanos(START));
    let engine = Engine::for_simulation(100, clock.clone(), 7);
    engine.publish(policy(limit)).expect("few limits");
    assert!(check(&engine, &["user"]).is_allowed() && check(&engine, &["ip"]).is_allowed());
    make_stray(&engine);
    (engine, clock)
}

fn make_stray(engine: &Engine<ManualClock>) {
    engine.buckets.table.sweep(|_| true, |_, held, _| BucketState { generation: held.generation.next(), ..held });
}

fn check<'e>(engine: &'e Engine<ManualClock>, kinds: &[&str]) -> Decision<'e> {
    let who: Vec<_> = kinds.iter().map(|kind| Identity::new(kind, "7").expect("valid")).collect();
    engine.check(&Request::new(&who).expect("valid"))
}

#[test]
fn a_stray_bucket_counts_as_used_and_says_until_when() {
    for limit in LIMITS {
        let (engine, clock) = with_strays(limit);
        let refused = check(&engine, &["user"]);
        assert!(!refused.is_allowed(), "{limit}");
        let crate::Retry::After(wait) = refused.retry() else { panic!("{limit}: {refused:?}") };
        clock.advance(wait);
        assert!(check(&engine, &["user"]).is_allowed(), "{limit}: after {wait:?}");
    }
}

#[test]
fn a_stray_bucket_that_is_idle_has_all_of_its_quota() {
    for limit in LIMITS {
        let (engine, clock) = with_strays(limit);
        clock.advance(Duration::from_mins(1));
        let allowed = (0..3).filter(|_| check(&engine, &["user"]).is_allowed()).count();
        assert_eq!(allowed, 2, "{limit}");
    }
}

type CheckCall<'a> = &'a dyn Fn(&Engine<ManualClock>);

#[test]
fn every_kind_of_check_decides_a_stray_bucket() {
    for limit in LIMITS {
        let who = [Identity::new("user", "7").expect("valid"), Identity::new("ip", "7").expect("valid")];
        let requests = [Request::new(&who).expect("valid"), Request::new(&who[..1]).expect("valid")];
        let calls: [CheckCall<'_>; 6] = [
            &|engine| assert!(!check(engine, &["user", "ip"]).is_allowed()),
            &|engine| assert!(!engine.peek(&requests[0]).is_allowed()),
            &|engine| {
                let mut handle = engine.handle("default/tier:user/l", "user").expect("is there");
                assert!(!handle.check_n("7", 2).expect("valid").is_allowed());
            },
            &|engine| {
                let mut decisions = Vec::new();
                engine.check_batch(&requests, &mut decisions);
                assert!(decisions.iter().all(|decision| !decision.is_allowed()));
            },
            &|engine| {
                let (decision, reservation) = engine.reserve(&requests[0]);
                assert!(!decision.is_allowed() && reservation.is_none());
            },
            &|engine| {
                engine.reset(&requests[1]);
                assert!(check(engine, &["user"]).is_allowed(), "nothing is used");
            },
        ];
        for call in calls {
            call(&with_strays(limit).0);
        }
    }
}

#[test]
fn a_stray_bucket_of_a_limit_that_admits_nothing_is_refused() {
    let (engine, _) = with_strays(LIMITS[0]);
    engine.publish(policy(r#"algorithm = "token_bucket", limit = 0, period = "10s""#)).expect("few limits");
    make_stray(&engine);
    let who = [Identity::new("user", "7").expect("valid"), Identity::new("ip", "7").expect("valid")];
    assert!(!engine.peek(&Request::new(&who).expect("valid")).is_allowed());
    assert!(!check(&engine, &["user"]).is_allowed());
}

/// Otherwise a later publish would take it for a bucket of the numbers before, or of its own.
#[test]
fn a_publish_that_changes_the_limit_leaves_no_stray_bucket() {
    for (limit, next) in LIMITS.into_iter().zip(LIMITS.map(|limit| limit.replace("limit = 2", "limit = 3"))) {
        let (engine, clock) = with_strays(limit);
        // The buckets are now two generations ahead: they have neither the new numbers nor those before them.
        make_stray(&engine);
        engine.publish(policy(&next)).expect("few limits");
        let active = engine.active.load_full();
        let changed = active.limits.iter().find(|limit| limit.has_changed()).expect("the user's");
        let buckets = std::cell::Cell::new(0);
        engine.buckets.table.sweep(
            |id| id == changed.id,
            |_, held, _| {
                assert_eq!(held.generation, changed.generation, "{limit}");
                buckets.set(buckets.get() + 1);
                held
            },
        );
        assert_eq!(buckets.get(), 1, "{limit}");
        clock.advance(Duration::from_mins(1));
        assert_eq!((0..4).filter(|_| check(&engine, &["user"]).is_allowed()).count(), 3, "{limit}");
    }
}
