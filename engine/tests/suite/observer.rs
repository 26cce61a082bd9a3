//! Observers see all decisions or an exact share of them, whom they were about, and nothing else.

use std::{
    num::NonZeroU32,
    sync::{
        Arc, Barrier, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
};

use tidegate::{
    Engine, Identity, Observed, Observer, Request, Snapshot, clock::ManualClock, formats::Format, time::Timestamp,
};
use tidegate_conformance::Deadline;

const NOW: u64 = 1_790_035_200_000_000_000;

const POLICY: &str = r#"
    [domains.default]
    defaults = { user = "t" }
    [[domains.default.tiers]]
    id = "t"
    limits = [
        { id = "hour", algorithm = "token_bucket", limit = 1000, period = "1h" },
        { id = "tight", algorithm = "token_bucket", limit = 1, period = "1h", mode = "shadow" },
    ]
    [[domains.default.rules]]
    id = "both"
    endpoint = "/both"
    per = ["user", "ip"]
    limits = [{ id = "hour", algorithm = "token_bucket", limit = 2, period = "1h" }]
    [[domains.default.rules]]
    id = "all"
    endpoint = "/all"
    per = "everyone"
    limits = [{ id = "hour", algorithm = "token_bucket", limit = 2, period = "1h" }]
"#;

/// One decision, as an observer saw it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct SeenDecision {
    identities: Vec<(String, Vec<u8>)>,
    counted: Vec<(String, Vec<u8>)>,
    is_allowed: bool,
    limit_id: Option<String>,
    remaining: Option<u64>,
    shadow_denied: Vec<String>,
    at: u64,
}

#[derive(Default)]
struct Log(Mutex<Vec<SeenDecision>>);

impl Observer for Log {
    fn observe(&self, observed: &Observed<'_>) {
        let owned = |(kind, value): (&str, &[u8])| (kind.to_owned(), value.to_owned());
        let decision = observed.decision();
        self.0.lock().expect("no panic").push(SeenDecision {
            identities: observed.identities().map(owned).collect(),
            counted: observed.counted().map(owned).collect(),
            is_allowed: decision.is_allowed(),
            limit_id: decision.limit_id().map(str::to_owned),
            remaining: decision.remaining(),
            shadow_denied: decision.shadow_denied().map(str::to_owned).collect(),
            at: observed.at().as_nanos(),
        });
    }
}

impl Log {
    fn taken(&self) -> Vec<SeenDecision> {
        std::mem::take(&mut self.0.lock().expect("no panic"))
    }
}

fn engine(policy: &str) -> Engine<ManualClock> {
    let engine = Engine::for_simulation(10_000, ManualClock::at(Timestamp::from_nanos(NOW)), 7);
    engine.publish(Snapshot::parse(policy, Format::Toml).expect("a good policy")).expect("few limits");
    engine
}

fn one_in(decisions: u32) -> NonZeroU32 {
    NonZeroU32::new(decisions).expect("not 0")
}

fn identity<'a>(kind: &'a str, value: &'a str) -> Identity<'a> {
    Identity::new(kind, value).expect("valid")
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, Vec<u8>)> {
    pairs.iter().map(|(kind, value)| ((*kind).to_owned(), value.as_bytes().to_owned())).collect()
}

#[test]
fn an_observer_sees_every_decision_of_four_threads() {
    const CHECKS: usize = 2_000;
    let (engine, log, start) = (engine(POLICY), Arc::new(Log::default()), Barrier::new(4));
    engine.observe(one_in(1), Arc::clone(&log));
    let run = |thread: usize| {
        let own = format!("user {thread}");
        let mut made = Vec::new();
        start.wait();
        for number in 0..CHECKS {
            // Every other check is of the user that all threads share.
            let user = if number % 2 == 0 { "shared" } else { &own };
            let who = [identity("user", user)];
            let decision = engine.check(&Request::new(&who).expect("valid"));
            made.push(SeenDecision {
                identities: pairs(&[("user", user)]),
                counted: pairs(&[("user", user)]),
                is_allowed: decision.is_allowed(),
                limit_id: decision.limit_id().map(str::to_owned),
                remaining: decision.remaining(),
                shadow_denied: decision.shadow_denied().map(str::to_owned).collect(),
                at: NOW,
            });
        }
        made
    };
    let mut made: Vec<SeenDecision> = thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|thread| scope.spawn(move || run(thread))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    let mut seen = log.taken();
    made.sort_unstable();
    seen.sort_unstable();
    assert_eq!(seen.len(), 4 * CHECKS);
    assert!(seen == made, "it saw something else");
    assert_eq!(seen.iter().filter(|seen| seen.is_allowed).count(), 5 * 1_000);
}

#[test]
fn an_observer_sees_who_was_counted_and_by_which_entry_point() {
    let (engine, log) = (engine(POLICY), Arc::new(Log::default()));
    engine.observe(one_in(1), Arc::clone(&log));
    let who = [identity("ip", "192.0.2.1"), identity("user", "ada")];
    let request = Request::new(&who).expect("valid");
    let to = |endpoint| request.endpoint(endpoint).expect("valid");
    // The user's tier alone; the shadow does not mind the first.
    let _ = engine.check(&request);
    // Address and user together are the tightest, now and when they deny.
    for _ in 0..3 {
        let _ = engine.check(&to("/both"));
    }
    let _ = engine.check(&to("/all"));
    // No limit decides in a domain that does not exist.
    let _ = engine.check(&request.domain("elsewhere"));
    let all = pairs(&[("ip", "192.0.2.1"), ("user", "ada")]);
    let ada = pairs(&[("user", "ada")]);
    let seen = log.taken();
    assert!(seen.iter().all(|seen| seen.identities == all && seen.at == NOW));
    let told: Vec<_> = seen
        .iter()
        .map(|seen| (seen.is_allowed, seen.limit_id.as_deref(), &seen.counted, seen.shadow_denied.len()))
        .collect();
    let (both, everyone) = (Some("default/rule:both/hour"), Some("default/rule:all/hour"));
    let no_identity = Vec::new();
    assert_eq!(
        told,
        [
            (true, Some("default/tier:t/hour"), &ada, 0),
            (true, both, &all, 1),
            (true, both, &all, 1),
            (false, both, &all, 0),
            (true, everyone, &no_identity, 1),
            (true, None, &no_identity, 0),
        ]
    );

    // The other entry points: batches, reservations, checks that may ask a store, and handles.
    let mut decisions = Vec::new();
    engine.check_batch(&[request, request], &mut decisions);
    let _ = engine.reserve(&request);
    let _ = engine.begin(&request);
    assert_eq!(log.taken().len(), 4);
    let mut handle = engine.handle("default/tier:t/hour", "user").expect("the policy has it");
    let longest = [b'x'; 1_024];
    let _ = handle.check(longest);
    let _ = handle.clone().check_n([0xFF, 0], 2_000).expect("valid");
    let by_handle = log.taken();
    let key = |value: &[u8]| vec![("user".to_owned(), value.to_owned())];
    assert_eq!(
        (by_handle[0].is_allowed, &by_handle[0].identities, &by_handle[0].counted),
        (true, &key(&longest), &key(&longest))
    );
    assert_eq!((by_handle[1].is_allowed, &by_handle[1].counted), (false, &key(&[0xFF, 0])));
    // The policy loses the limit: allowed without one.
    engine.publish(Snapshot::default()).expect("no limits");
    let _ = handle.check(b"x");
    let seen = log.taken();
    assert_eq!((seen[0].limit_id.as_ref(), &seen[0].identities, &seen[0].counted), (None, &key(b"x"), &no_identity));
}

#[test]
fn what_charges_nothing_is_not_shown() {
    let (engine, log) = (engine(POLICY), Arc::new(Log::default()));
    engine.observe(one_in(1), Arc::clone(&log));
    let who = [identity("user", "ada")];
    let request = Request::new(&who).expect("valid");
    let _ = engine.peek(&request);
    let _ = engine.check(&request.without_cost());
    let _ = engine.reserve(&request.without_cost());
    engine.reset(&request);
    assert_eq!(log.taken(), []);
}

#[test]
fn a_sample_is_an_exact_share_of_each_threads_decisions() {
    const RUNS: usize = 50;
    for share in [1, 2, 7, 64, 100] {
        let (engine, log) = (engine(POLICY), Arc::new(Log::default()));
        engine.observe(one_in(share), Arc::clone(&log));
        // Threads of their own, whose count of decisions begins here.
        thread::scope(|scope| {
            for thread in 0..4 {
                let (engine, own) = (&engine, format!("user {thread}"));
                scope.spawn(move || {
                    let who = [identity("user", &own)];
                    for _ in 0..RUNS * share as usize {
                        let _ = engine.check(&Request::new(&who).expect("valid"));
                    }
                });
            }
        });
        let seen = log.taken();
        for thread in 0..4 {
            let own = pairs(&[("user", &format!("user {thread}"))]);
            assert_eq!(seen.iter().filter(|seen| seen.identities == own).count(), RUNS, "one in {share}");
        }
    }
}

/// Two users who take turns: one in two is both of them, not always the same one.
#[test]
fn no_rhythm_of_the_traffic_hides_from_a_sample() {
    for share in [2, 4, 10] {
        let (engine, log) = (engine(POLICY), Arc::new(Log::default()));
        engine.observe(one_in(share), Arc::clone(&log));
        thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..1_000 * share {
                    let who = [identity("user", if number % 2 == 0 { "ada" } else { "eve" })];
                    let _ = engine.check(&Request::new(&who).expect("valid"));
                }
            });
        });
        let ada = pairs(&[("user", "ada")]);
        let of_ada = log.taken().iter().filter(|seen| seen.identities == ada).count();
        assert!((400..600).contains(&of_ada), "one in {share}: {of_ada} of 1,000");
    }
}

#[test]
fn an_observer_sees_the_fields_of_the_request() {
    #[derive(Default)]
    struct Requests(Mutex<Vec<Option<String>>>);

    impl Observer for Requests {
        fn observe(&self, observed: &Observed<'_>) {
            let said = observed.request().map(|parts| {
                let who: Vec<_> =
                    parts.identities.iter().map(|who| format!("{}={}", who.kind(), who.value())).collect();
                format!(
                    "{who:?} {} {:?} {:?} {} {:?}",
                    parts.domain, parts.method, parts.endpoint, parts.cost, parts.tier
                )
            });
            self.0.lock().expect("no panic").push(said);
        }
    }

    let (engine, requests) = (engine(POLICY), Arc::new(Requests::default()));
    engine.observe(one_in(1), Arc::clone(&requests));
    let who = [identity("ip", "192.0.2.1"), identity("user", "ada")];
    let request = Request::new(&who).expect("valid");
    let _ = engine.check(&request);
    let whole = request.endpoint("/a?b").and_then(|request| request.cost(7)).expect("valid");
    let _ = engine.check(&whole.method("PUT").domain("web").tier("pro"));
    let _ = engine.handle("default/tier:t/hour", "user").expect("it is there").check("ada");
    let seen = requests.0.lock().expect("no panic");
    let plain = r#"["ip=192.0.2.1", "user=ada"] default None None 1 None"#;
    let full = r#"["ip=192.0.2.1", "user=ada"] web Some("PUT") Some("/a?b") 7 Some("pro")"#;
    assert_eq!(*seen, [Some(plain.to_owned()), Some(full.to_owned()), None]);
}

#[test]
fn several_observers_see_each_its_own_exact_share() {
    const CHECKS: u32 = 4_200;
    let (engine, shares) = (engine(POLICY), [1, 2, 7, 100]);
    let logs = shares.map(|_| Arc::new(Log::default()));
    // Added by threads that meet, while checks go on.
    thread::scope(|scope| {
        for (share, log) in shares.into_iter().zip(&logs) {
            let engine = &engine;
            scope.spawn(move || engine.observe(one_in(share), Arc::clone(log)));
        }
    });
    thread::scope(|scope| {
        scope.spawn(|| {
            let who = [identity("user", "ada")];
            for _ in 0..CHECKS {
                let _ = engine.check(&Request::new(&who).expect("valid"));
            }
        });
    });
    for (share, log) in shares.into_iter().zip(&logs) {
        assert_eq!(log.taken().len() as u32, CHECKS / share, "one in {share}");
    }
}

#[test]
fn a_removed_observer_is_dropped_and_sees_nothing_and_its_place_is_reused() {
    let (engine, stays) = (engine(POLICY), Arc::new(Log::default()));
    let check = || {
        let who = [identity("user", "ada")];
        let _ = engine.check(&Request::new(&who).expect("valid"));
    };
    let first = Arc::new(Log::default());
    let id = engine.observe(one_in(1), Arc::clone(&first));
    let other = engine.observe(one_in(1), Arc::clone(&stays));
    check();
    engine.stop_observing(id);
    assert_eq!(Arc::strong_count(&first), 1, "it is dropped");
    check();
    let second = Arc::new(Log::default());
    let next = engine.observe(one_in(1), Arc::clone(&second));
    // An observer that leaves twice does not remove the next one.
    engine.stop_observing(id);
    check();
    assert_eq!((first.taken().len(), second.taken().len(), stays.taken().len()), (1, 1, 3));
    engine.stop_observing(next);
    engine.stop_observing(other);
    check();
    assert_eq!((second.taken().len(), stays.taken().len()), (0, 0));
    assert!(format!("{engine:?}").contains("observers: 0"), "{engine:?}");
}

/// Observers are added and removed while four threads decide: each sees decisions of its own share alone, and none after it left.
#[test]
fn observers_come_and_go_beside_checks() {
    struct Share {
        one_in: NonZeroU32,
        seen: Arc<AtomicU32>,
        has_left: Arc<AtomicBool>,
    }

    impl Observer for Share {
        fn observe(&self, observed: &Observed<'_>) {
            assert_eq!(observed.one_in(), self.one_in);
            self.seen.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl Drop for Share {
        fn drop(&mut self) {
            self.has_left.store(true, Ordering::Relaxed);
        }
    }

    let (engine, is_over, deadline) = (engine(POLICY), AtomicBool::new(false), Deadline::new());
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let who = [identity("user", "ada")];
                while !is_over.load(Ordering::Relaxed) {
                    let _ = engine.check(&Request::new(&who).expect("valid"));
                }
            });
        }
        // A machine that is busy with other things may let no check run between the two: it goes on until one did.
        let come_and_go = |shares: [u32; 2]| {
            let seen = Arc::new(AtomicU32::new(0));
            let mut left = Vec::new();
            for share in shares.into_iter().cycle() {
                let is_seen = seen.load(Ordering::Relaxed) > 0 || deadline.has_passed();
                if left.len() >= 400 && is_seen {
                    break;
                }
                let has_left = Arc::new(AtomicBool::new(false));
                let (one_in, seen) = (one_in(share), Arc::clone(&seen));
                let id = engine.observe(one_in, Share { one_in, seen, has_left: Arc::clone(&has_left) });
                thread::yield_now();
                engine.stop_observing(id);
                left.push(has_left);
            }
            (seen, left)
        };
        let others = scope.spawn(move || come_and_go([1, 3]));
        let (seen, left) = come_and_go([2, 5]);
        let (of_others, others_left) = others.join().expect("no panic");
        is_over.store(true, Ordering::Relaxed);
        assert!(seen.load(Ordering::Relaxed) > 0 && of_others.load(Ordering::Relaxed) > 0);
        for has_left in left.iter().chain(&others_left) {
            Deadline::new().wait_until("the drop of an observer", || has_left.load(Ordering::Relaxed));
        }
    });
}
