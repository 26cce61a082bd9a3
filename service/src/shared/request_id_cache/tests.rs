//! Tests of the request ID cache over an engine with a manual clock.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Barrier,
        atomic::{AtomicBool, AtomicUsize},
    },
    thread,
    time::Duration,
};

use tidegate::{Identity, Snapshot, clock::ManualClock, formats::Format, time::Timestamp};

use super::*;

const SECRET: [u8; 16] = [7; 16];
const GOOD: CallerKey = CallerKey::for_test(1);
const HOSTILE: CallerKey = CallerKey::for_test(2);

/// A policy of three requests a minute for each user; a `guest` is only counted.
const THREE: &str = r#"
    [domains.default]
    defaults = { user = "free", ip = "free", guest = "counted" }
    [[domains.default.tiers]]
    id = "free"
    limits = [{ id = "minute", algorithm = "fixed_window", limit = 3, period = "1m" }]
    [[domains.default.tiers]]
    id = "counted"
    limits = [{ id = "minute", algorithm = "fixed_window", limit = 3, period = "1m", mode = "shadow" }]
    [domains.shop]
    defaults = { user = "free" }
    [[domains.shop.tiers]]
    id = "free"
    limits = [{ id = "minute", algorithm = "fixed_window", limit = 3, period = "1m" }]
"#;

fn cache() -> RequestIdCache {
    RequestIdCache::new(SECRET, CallerShare::percent(50))
}

fn engine() -> (Engine<ManualClock>, ManualClock) {
    let clock = ManualClock::at(Timestamp::from_nanos(1_700_000_040 * SECOND_NS));
    let engine = Engine::for_simulation(100_000, clock.clone(), 7);
    engine.publish(Snapshot::parse(THREE, Format::Toml).expect("a right policy")).expect("room");
    (engine, clock)
}

/// Returns how many outcomes were forgotten: those of callers that had their share, and those of a full shard.
fn forgotten(cache: &RequestIdCache) -> [u64; 2] {
    cache.forgotten.by_reason().map(|(_, count)| count)
}

fn id(text: &str) -> (RequestId<'_>, CallKind) {
    (RequestId::new(text).expect("valid"), CallKind::Check)
}

fn check_of<'e>(
    caller: CallerKey,
    cache: &RequestIdCache,
    engine: &'e Engine<ManualClock>,
    name: &str,
    request: &Request<'_>,
) -> Result<Decision<'e>, Reused> {
    let decide = || (engine.check(request), ReservationOutcome::None);
    cache.decide_once(engine, id(name), caller, request, decide).map(|(decision, _)| decision)
}

fn check<'e>(
    cache: &RequestIdCache,
    engine: &'e Engine<ManualClock>,
    name: &str,
    request: &Request<'_>,
) -> Result<Decision<'e>, Reused> {
    check_of(GOOD, cache, engine, name, request)
}

#[test]
fn a_repeat_has_the_outcome_of_the_first_request_for_a_minute() {
    let ((engine, clock), cache) = (engine(), cache());
    let who = [Identity::new("user", "ada").expect("valid")];
    let request = Request::new(&who).expect("valid");
    let remaining = |name| check(&cache, &engine, name, &request).expect("the same").remaining();
    assert_eq!([remaining("1"), remaining("2"), remaining("1"), remaining("2")], [Some(2), Some(1), Some(2), Some(1)]);
    clock.advance(Duration::from_nanos(LIFE_NS - 1));
    assert_eq!(remaining("1"), Some(2));
    clock.advance(Duration::from_nanos(1));
    // It is another minute now, also for the limit.
    assert_eq!([remaining("1"), remaining("1"), remaining("3")], [Some(2), Some(2), Some(1)]);
    assert_eq!((cache.repeats(), forgotten(&cache)), (4, [0, 0]));
}

#[test]
fn a_denial_is_decided_anew() {
    let ((engine, clock), cache) = (engine(), cache());
    let who = [Identity::new("user", "ada").expect("valid")];
    let four = Request::new(&who).and_then(|request| request.cost(3)).expect("valid");
    assert!(check(&cache, &engine, "1", &four).expect("the first").is_allowed());
    let one = Request::new(&who).expect("valid");
    assert!(!check(&cache, &engine, "2", &one).expect("the first").is_allowed());
    assert_eq!(cache.len(), 1);
    clock.advance(Duration::from_nanos(59 * SECOND_NS + SECOND_NS));
    assert!(check(&cache, &engine, "2", &one).expect("not remembered").is_allowed());
}

#[test]
fn a_request_id_with_a_different_request_is_an_error() {
    let ((engine, _), cache) = (engine(), cache());
    let identity = |kind, value| Identity::new(kind, value).expect("valid");
    let who = [identity("user", "ada"), identity("ip", "192.0.2.7")];
    let request = Request::new(&who).and_then(|it| it.endpoint("/a")).expect("valid").method("GET").tier("pro");
    assert!(check(&cache, &engine, "1", &request).is_ok());
    let turned = [who[1], who[0]];
    let others = [
        [identity("user", "bob"), who[1]],
        [identity("usr", "ada"), who[1]],
        [identity("user", "adai"), identity("p", "192.0.2.7")],
    ];
    let with = |who| Request::new(who).and_then(|it| it.endpoint("/a")).expect("valid").method("GET").tier("pro");
    let mut different = vec![
        request.method("POST"),
        request.tier("free"),
        request.endpoint("/b").expect("valid"),
        request.cost(2).expect("valid"),
        with(&turned),
        with(&who[..1]),
        Request::new(&who).and_then(|it| it.endpoint("/a")).expect("valid").method("GET"),
        Request::new(&who).expect("valid").method("GET").tier("pro"),
    ];
    different.extend(others.iter().map(|who| with(who)));
    for request in different {
        assert!(check(&cache, &engine, "1", &request).is_err(), "{request:?}");
    }
    let as_reservation = (RequestId::new("1").expect("valid"), CallKind::Reserve);
    assert!(cache.decide_once(&engine, as_reservation, GOOD, &request, || panic!("it is not decided")).is_err());
    // Another domain has ids of its own.
    assert!(check(&cache, &engine, "1", &request.domain("shop")).is_ok());
    assert!(check(&cache, &engine, "1", &request).is_ok(), "the first stands");
    assert_eq!(cache.len(), 2);
}

#[test]
fn a_concurrent_repeat_waits_for_the_outcome_of_the_first_request() {
    let ((engine, _), cache) = (engine(), cache());
    let who = [Identity::new("user", "ada").expect("valid")];
    let request = Request::new(&who).expect("valid");
    let (is_first_in, is_second_there) = (AtomicBool::new(false), AtomicBool::new(false));
    let until = |flag: &AtomicBool| {
        while !flag.load(Ordering::SeqCst) {
            thread::yield_now();
        }
    };
    thread::scope(|scope| {
        let second = scope.spawn(|| {
            until(&is_first_in);
            is_second_there.store(true, Ordering::SeqCst);
            let decided = cache.decide_once(&engine, id("1"), GOOD, &request, || panic!("charged twice"));
            let (decision, _) = decided.expect("the same");
            decision.remaining()
        });
        let first = cache.decide_once(&engine, id("1"), GOOD, &request, || {
            is_first_in.store(true, Ordering::SeqCst);
            until(&is_second_there);
            // Were it not for the lock, it would decide now.
            (0..100).for_each(|_| thread::yield_now());
            (engine.check(&request), ReservationOutcome::None)
        });
        let (decision, _) = first.expect("the first");
        assert_eq!(second.join().expect("no panic"), decision.remaining());
    });
    assert_eq!(cache.repeats(), 1);
}

#[test]
fn concurrent_requests_with_one_id_are_charged_once() {
    const THREADS: usize = 4;
    const IDS: usize = 2_000;
    let ((engine, _), cache) = (engine(), cache());
    let (decided, together) = (AtomicUsize::new(0), Barrier::new(THREADS));
    let told = |number: usize| {
        let (name, who) = (number.to_string(), number.to_string());
        let who = [Identity::new("user", &who).expect("valid")];
        let request = Request::new(&who).expect("valid");
        together.wait();
        let (decision, _) = cache
            .decide_once(&engine, id(&name), GOOD, &request, || {
                decided.fetch_add(1, Ordering::Relaxed);
                (engine.check(&request), ReservationOutcome::None)
            })
            .expect("the same");
        decision.remaining()
    };
    thread::scope(|scope| {
        let threads = [(); THREADS].map(|()| scope.spawn(|| (0..IDS).map(told).collect::<Vec<_>>()));
        for thread in threads {
            assert_eq!(thread.join().expect("no panic"), vec![Some(2); IDS]);
        }
    });
    assert_eq!(decided.into_inner(), IDS);
    assert_eq!(cache.repeats(), (IDS * (THREADS - 1)) as u64);
}

#[test]
fn the_oldest_outcome_is_forgotten_where_there_is_no_room() {
    let ((engine, clock), cache) = (engine(), RequestIdCache::with_capacity(SECRET, 640, CallerShare::percent(100)));
    let ask = |number: usize| {
        let who = number.to_string();
        let who = [Identity::new("user", &who).expect("valid")];
        let request = Request::new(&who).expect("valid");
        check(&cache, &engine, &number.to_string(), &request).expect("its own").remaining()
    };
    (0..10_000).for_each(|number| assert_eq!(ask(number), Some(2)));
    assert_eq!(cache.len(), 640);
    assert_eq!(forgotten(&cache), [0, 10_000 - 640]);
    assert_eq!((ask(9_999), cache.repeats()), (Some(2), 1), "the newest is there");
    assert_eq!(ask(0), Some(1), "the oldest is not");
    // What is over makes room, and nothing else has to go.
    clock.advance(Duration::from_nanos(LIFE_NS));
    let before = forgotten(&cache);
    (20_000..20_300).for_each(|number| assert_eq!(ask(number), Some(2)));
    assert_eq!(forgotten(&cache), before);
    assert!(cache.len() < 640, "{}", cache.len());
}

#[test]
fn a_caller_above_its_share_loses_its_own_oldest_outcomes() {
    let ((engine, _), cache) = (engine(), RequestIdCache::with_capacity(SECRET, 6_400, CallerShare::percent(50)));
    let ask = |caller: CallerKey, name: &str| {
        let who = [Identity::new("user", name).expect("valid")];
        let request = Request::new(&who).expect("valid");
        check_of(caller, &cache, &engine, name, &request).expect("its own").remaining()
    };
    let names: Vec<_> = (0..100).map(|number| format!("good-{number}")).collect();
    for name in &names {
        assert_eq!(ask(GOOD, name), Some(2));
    }
    (0..20_000).for_each(|number| assert_eq!(ask(HOSTILE, &number.to_string()), Some(2)));
    let remembered = cache.len();
    assert!((3_200..=3_300).contains(&remembered), "half of the places that the other one left: {remembered}");
    assert_eq!(forgotten(&cache), [20_100 - remembered as u64, 0]);
    assert_eq!(ask(HOSTILE, "19999"), Some(2), "the newest of its own is there");
    assert_eq!(ask(HOSTILE, "0"), Some(1), "the oldest of its own is not");
    let repeats = cache.repeats();
    for name in &names {
        assert_eq!(ask(GOOD, name), Some(2));
    }
    assert_eq!(cache.repeats(), repeats + 100, "the other one lost none");
    // Where the other one needs as much, both have the same.
    for number in 0..20_000 {
        ask(GOOD, &format!("more-{number}"));
        ask(HOSTILE, &format!("other-{number}"));
    }
    for shares in cache.shards.iter().map(|shard| lock(shard).shares()) {
        assert!(shares.of(&GOOD).abs_diff(shares.of(&HOSTILE)) <= 4 && shares.of(&GOOD) >= 30, "{shares:?}");
    }
    assert_eq!(forgotten(&cache)[1], 0);
}

#[test]
fn requests_that_charged_nothing_are_not_remembered() {
    let ((engine, _), cache) = (engine(), cache());
    let repeats = |kind: &str| {
        let who = [Identity::new(kind, "ada").expect("valid")];
        let request = Request::new(&who).expect("valid");
        for _ in 0..2 {
            assert!(check(&cache, &engine, kind, &request).expect("the same").is_allowed());
        }
        cache.repeats()
    };
    assert_eq!((repeats("stranger"), cache.len()), (0, 0), "no limit counts it");
    assert_eq!((repeats("guest"), cache.len()), (1, 1), "a limit counts it that denies nothing");
    assert_eq!((repeats("user"), cache.len()), (2, 2));
}

#[test]
fn a_panic_leaves_no_outcome_behind() {
    let ((engine, _), cache) = (engine(), cache());
    let who = [Identity::new("user", "ada").expect("valid")];
    let request = Request::new(&who).expect("valid");
    let panics = || cache.decide_once(&engine, id("1"), GOOD, &request, || panic!("as an observer might"));
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    assert_eq!(check(&cache, &engine, "1", &request).expect("the first").remaining(), Some(2));
}
