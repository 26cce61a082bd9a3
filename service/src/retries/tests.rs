use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Barrier,
        atomic::{AtomicBool, AtomicUsize},
    },
    thread,
};

use tidegate::{Identity, Snapshot, clock::ManualClock, formats::Format};

use super::*;

const SECRET: [u8; 16] = [7; 16];

/// Everybody gets three a minute.
const THREE: &str = r#"
    [domains.default]
    defaults = { user = "free", ip = "free" }
    [[domains.default.tiers]]
    id = "free"
    limits = [{ id = "minute", algorithm = "fixed_window", limit = 3, period = "1m" }]
"#;

fn engine() -> (Engine<ManualClock>, ManualClock) {
    let clock = ManualClock::at(1_700_000_040 * SECOND_NS);
    let engine = Engine::for_simulation(100_000, clock.clone(), 7);
    engine.publish(Snapshot::parse(THREE, Format::Toml).expect("a right policy")).expect("room");
    (engine, clock)
}

fn id(text: &str) -> (RequestId<'_>, Call) {
    (RequestId::new(text).expect("valid"), Call::Check)
}

fn check<'e>(
    retries: &Retries,
    engine: &'e Engine<ManualClock>,
    name: &str,
    request: &Request<'_>,
) -> Result<Decision<'e>, Reused> {
    retries.once(engine, id(name), request, || (engine.check(request), None)).map(|(decision, _)| decision)
}

#[test]
fn a_repeat_is_told_what_the_first_was_told_for_a_minute() {
    let ((engine, clock), retries) = (engine(), Retries::new(SECRET));
    let who = [Identity::new("user", "ada").expect("valid")];
    let request = Request::new(&who).expect("valid");
    let remaining = |name| check(&retries, &engine, name, &request).expect("the same").remaining();
    assert_eq!([remaining("1"), remaining("2"), remaining("1"), remaining("2")], [Some(2), Some(1), Some(2), Some(1)]);
    clock.advance(LIFE_NS - 1);
    assert_eq!(remaining("1"), Some(2));
    clock.advance(1);
    // It is another minute now, also for the limit.
    assert_eq!([remaining("1"), remaining("1"), remaining("3")], [Some(2), Some(2), Some(1)]);
    assert_eq!((retries.repeats(), retries.forgotten()), (4, 0));
}

#[test]
fn a_denial_is_decided_anew() {
    let ((engine, clock), retries) = (engine(), Retries::new(SECRET));
    let who = [Identity::new("user", "ada").expect("valid")];
    let four = Request::new(&who).and_then(|request| request.cost(3)).expect("valid");
    assert!(check(&retries, &engine, "1", &four).expect("the first").is_allowed());
    let one = Request::new(&who).expect("valid");
    assert!(!check(&retries, &engine, "2", &one).expect("the first").is_allowed());
    assert_eq!(retries.len(), 1);
    clock.advance(59 * SECOND_NS + SECOND_NS);
    assert!(check(&retries, &engine, "2", &one).expect("not remembered").is_allowed());
}

#[test]
fn all_that_a_request_says_must_be_the_same() {
    let ((engine, _), retries) = (engine(), Retries::new(SECRET));
    let identity = |kind, value| Identity::new(kind, value).expect("valid");
    let who = [identity("user", "ada"), identity("ip", "192.0.2.7")];
    let request = Request::new(&who).and_then(|it| it.endpoint("/a")).expect("valid").method("GET").tier("pro");
    assert!(check(&retries, &engine, "1", &request).is_ok());
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
        assert!(check(&retries, &engine, "1", &request).is_err(), "{request:?}");
    }
    let as_reservation = (RequestId::new("1").expect("valid"), Call::Reserve);
    assert!(retries.once(&engine, as_reservation, &request, || panic!("it is not decided")).is_err());
    // Another domain has ids of its own.
    assert!(check(&retries, &engine, "1", &request.domain("shop")).is_ok());
    assert!(check(&retries, &engine, "1", &request).is_ok(), "the first stands");
    assert_eq!(retries.len(), 2);
}

#[test]
fn a_second_request_that_comes_while_the_first_is_decided_waits_for_its_answer() {
    let ((engine, _), retries) = (engine(), Retries::new(SECRET));
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
            let (decision, _) = retries.once(&engine, id("1"), &request, || panic!("charged twice")).expect("the same");
            decision.remaining()
        });
        let first = retries.once(&engine, id("1"), &request, || {
            is_first_in.store(true, Ordering::SeqCst);
            until(&is_second_there);
            // Were it not for the lock, it would decide now.
            (0..100).for_each(|_| thread::yield_now());
            (engine.check(&request), None)
        });
        let (decision, _) = first.expect("the first");
        assert_eq!(second.join().expect("no panic"), decision.remaining());
    });
    assert_eq!(retries.repeats(), 1);
}

#[test]
fn crowds_with_one_id_are_charged_once() {
    const THREADS: usize = 4;
    const IDS: usize = 2_000;
    let ((engine, _), retries) = (engine(), Retries::new(SECRET));
    let (decided, together) = (AtomicUsize::new(0), Barrier::new(THREADS));
    let told = |number: usize| {
        let (name, who) = (number.to_string(), number.to_string());
        let who = [Identity::new("user", &who).expect("valid")];
        let request = Request::new(&who).expect("valid");
        together.wait();
        let (decision, _) = retries
            .once(&engine, id(&name), &request, || {
                decided.fetch_add(1, Ordering::Relaxed);
                (engine.check(&request), None)
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
    assert_eq!(retries.repeats(), (IDS * (THREADS - 1)) as u64);
}

#[test]
fn where_there_is_no_room_the_oldest_goes() {
    let ((engine, clock), retries) = (engine(), Retries::with_room(SECRET, 640));
    let ask = |number: usize| {
        let who = number.to_string();
        let who = [Identity::new("user", &who).expect("valid")];
        let request = Request::new(&who).expect("valid");
        check(&retries, &engine, &number.to_string(), &request).expect("its own").remaining()
    };
    (0..10_000).for_each(|number| assert_eq!(ask(number), Some(2)));
    assert_eq!(retries.len(), 640);
    assert_eq!(retries.forgotten(), 10_000 - 640);
    assert_eq!((ask(9_999), retries.repeats()), (Some(2), 1), "the newest is there");
    assert_eq!(ask(0), Some(1), "the oldest is not");
    // What is over makes room without anybody losing his.
    clock.advance(LIFE_NS);
    let forgotten = retries.forgotten();
    (20_000..20_300).for_each(|number| assert_eq!(ask(number), Some(2)));
    assert_eq!(retries.forgotten(), forgotten);
    assert!(retries.len() < 640, "{}", retries.len());
}

#[test]
fn a_panic_leaves_nothing_behind() {
    let ((engine, _), retries) = (engine(), Retries::new(SECRET));
    let who = [Identity::new("user", "ada").expect("valid")];
    let request = Request::new(&who).expect("valid");
    let panics = || retries.once(&engine, id("1"), &request, || panic!("as an observer might"));
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    assert_eq!(check(&retries, &engine, "1", &request).expect("the first").remaining(), Some(2));
}
