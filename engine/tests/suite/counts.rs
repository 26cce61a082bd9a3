//! The counts of the engine's decisions: totals and per limit, over publishes and threads.

use std::thread;

use tidegate::{Counts, Engine, Identity, Publish, PublishError, Request, Snapshot, Totals, formats::Format};

fn policy(limit: u64) -> Snapshot {
    let text = format!(
        r#"
        [domains.default]
        defaults = {{ user = "t" }}
        [[domains.default.tiers]]
        id = "t"
        limits = [{{ id = "day", algorithm = "fixed_window", limit = {limit}, period = "1d" }}]
        [[domains.default.clients]]
        kind = "user"
        value = "eve"
        override = {{ blocked = true, reason = "abuse" }}
        [[domains.default.rules]]
        id = "x"
        endpoint = "/x"
        per = "everyone"
        limits = [{{ id = "day", algorithm = "fixed_window", limit = 2, period = "1d" }}]
        "#
    );
    Snapshot::parse(&text, Format::Toml).expect("a good policy")
}

fn counts(engine: &Engine) -> Vec<(&str, Counts)> {
    engine.limit_counts().into_iter().map(|(limit, counts)| (engine.limit_name(limit), counts)).collect()
}

#[test]
fn decisions_are_counted_by_limit_and_in_all() {
    let engine = Engine::with_max_keys(1_000);
    engine.publish(policy(5)).expect("few limits");
    let (user, ip) = ([Identity::new("user", "ada").expect("valid")], [Identity::new("ip", "::1").expect("valid")]);
    let to_x = Request::new(&user).expect("valid").endpoint("/x").expect("valid");
    // Two pass both limits, the third is refused by the rule, and its tier is not charged.
    let allowed = (0..3).filter(|_| engine.check(&to_x).is_allowed()).count();
    assert_eq!(allowed, 2);
    // The policy has no limit for addresses, and no domain of this name.
    assert!(engine.check(&Request::new(&ip).expect("valid")).is_allowed());
    assert!(engine.check(&Request::new(&user).expect("valid").domain("elsewhere")).is_allowed());
    // By handle: three more fill the tier, the fourth is refused.
    let mut handle = engine.handle("default/tier:t/day", "user").expect("the policy has it");
    let by_handle = (0..4).filter(|_| handle.check(b"ada").is_allowed()).count();
    assert_eq!(by_handle, 3);
    // A client's own limits are in the totals alone.
    let eve = [Identity::new("user", "eve").expect("valid")];
    assert!(!engine.check(&Request::new(&eve).expect("valid")).is_allowed());
    let expected = [
        ("default/tier:t/day", Counts { allowed: 5, denied: 1, owner_allowed: 5, ..Counts::default() }),
        ("default/rule:x/day", Counts { allowed: 2, denied: 1, owner_allowed: 2, ..Counts::default() }),
    ];
    assert_eq!(counts(&engine), expected);
    assert_eq!(engine.totals(), Totals { allowed: 7, denied: 3, no_limit: 2, unknown_domain: 1 });
    // A publish keeps what was counted.
    engine.publish(policy(6)).expect("few limits");
    assert_eq!(counts(&engine), expected);
    // A publish that takes the limits away keeps them too.
    let gone = engine.limit_counts();
    engine.publish(Snapshot::default()).expect("no limits");
    assert!(engine.limit_counts().is_empty());
    assert!(gone.into_iter().all(|(limit, counts)| engine.counts(limit) == Some(counts)));
}

/// Handles go from thread to thread, are cloned, and end; what they counted stays.
#[test]
fn decisions_of_handles_are_counted_wherever_the_handles_go() {
    const THREADS: u64 = 4;
    const CHECKS: u64 = 1_000;
    let engine = Engine::with_max_keys(10_000);
    engine.publish(policy(1)).expect("few limits");
    let mut handles: Vec<_> = {
        let handle = engine.handle("default/tier:t/day", "user").expect("the policy has it");
        (0..THREADS).map(|_| handle.clone()).collect()
    };
    for round in 0..3 {
        handles = thread::scope(|scope| {
            let turns: Vec<_> = (0..THREADS)
                .zip(handles)
                .map(|(number, mut handle)| {
                    scope.spawn(move || {
                        // Each key once, and once too often.
                        for key in 0..CHECKS / 2 {
                            let key = key + (round * THREADS + number) * CHECKS;
                            assert!(handle.check(key).is_allowed());
                            assert!(!handle.check(key).is_allowed());
                        }
                        handle
                    })
                })
                .collect();
            turns.into_iter().map(|turn| turn.join().expect("no panic")).collect()
        });
        // The next round has each on another thread. A handle counts on in the same place, also when its limit was
        // gone in between.
        engine.publish(Snapshot::default()).expect("no limits");
        engine.publish(policy(1)).expect("few limits");
        // One ends, and another takes its counters.
        drop(handles.pop());
        handles.extend(engine.handle("default/tier:t/day", "user"));
    }
    drop(handles);
    let each = 3 * THREADS * CHECKS / 2;
    let totals = engine.totals();
    assert_eq!((totals.allowed, totals.denied), (each, each));
    let expected = Counts { allowed: each, denied: each, owner_allowed: each, ..Counts::default() };
    assert_eq!(counts(&engine)[0].1, expected);
}

/// A tier of three limits, one a shadow that refuses everything after the first request of a key, for users and addresses.
#[test]
fn a_request_is_counted_once_by_each_limit_and_by_their_owner() {
    let text = r#"
        [domains.default]
        defaults = { user = "t", ip = "t" }
        [[domains.default.tiers]]
        id = "t"
        limits = [
            { id = "minute", algorithm = "fixed_window", limit = 10, period = "1d" },
            { id = "try", algorithm = "fixed_window", limit = 1, period = "1d", mode = "shadow" },
            { id = "harder", algorithm = "fixed_window", limit = 1, period = "1d", mode = "shadow" },
        ]
        [[domains.default.rules]]
        id = "x"
        endpoint = "/x"
        per = "everyone"
        limits = [{ id = "day", algorithm = "fixed_window", limit = 3, period = "1d" }]
    "#;
    let engine = Engine::with_max_keys(1_000);
    engine.publish(Snapshot::parse(text, Format::Toml).expect("a good policy")).expect("few limits");
    let both = [Identity::new("user", "ada").expect("valid"), Identity::new("ip", "::1").expect("valid")];
    let to_x = Request::new(&both).expect("valid").endpoint("/x").expect("valid");
    assert_eq!((0..5).filter(|_| engine.check(&to_x).is_allowed()).count(), 3);
    let shadow = Counts { allowed: 1, shadow_denied: 2, ..Counts::default() };
    let expected = [
        ("default/tier:t/minute", Counts { allowed: 3, owner_allowed: 3, ..Counts::default() }),
        ("default/tier:t/try", Counts { owner_shadow_denied: 2, ..shadow }),
        ("default/tier:t/harder", shadow),
        ("default/rule:x/day", Counts { allowed: 3, denied: 2, owner_allowed: 3, ..Counts::default() }),
    ];
    assert_eq!(counts(&engine), expected);
    // Another user from the same address: the shadows agree for the one, and not for the other.
    let bob = [Identity::new("user", "bob").expect("valid"), both[1]];
    assert!(engine.check(&Request::new(&bob).expect("valid")).is_allowed());
    let tried = Counts { allowed: 1, shadow_denied: 3, owner_shadow_denied: 3, ..Counts::default() };
    assert_eq!(counts(&engine)[1].1, tried);
    // A handle asks one limit alone: it counts for the tier, whichever it is.
    let mut handle = engine.handle("default/tier:t/harder", "user").expect("the policy has it");
    assert!(handle.check(b"cyd").is_allowed());
    let sum = |what: fn(&Counts) -> u64| counts(&engine)[..3].iter().map(|(_, counts)| what(counts)).sum::<u64>();
    assert_eq!((sum(|counts| counts.owner_allowed), sum(|counts| counts.owner_shadow_denied)), (5, 3));
}

/// A client's own limit stands in the place of the tier's first.
#[test]
fn a_tier_counts_clients_with_a_limit_of_their_own() {
    let text = r#"
        [domains.default]
        defaults = { user = "t" }
        [[domains.default.tiers]]
        id = "t"
        limits = [
            { id = "minute", algorithm = "fixed_window", limit = 10, period = "1d" },
            { id = "day", algorithm = "fixed_window", limit = 10, period = "1d" },
            { id = "year", algorithm = "fixed_window", limit = 10, period = "1d" },
        ]
        [[domains.default.clients]]
        kind = "user"
        value = "eve"
        override = { reason = "more", limits = [{ id = "minute", algorithm = "fixed_window", limit = 20, period = "1d" }] }
    "#;
    let engine = Engine::with_max_keys(1_000);
    engine.publish(Snapshot::parse(text, Format::Toml).expect("a good policy")).expect("few limits");
    for name in ["ada", "eve", "eve"] {
        let who = [Identity::new("user", name).expect("valid")];
        assert!(engine.check(&Request::new(&who).expect("valid")).is_allowed());
    }
    let of = |allowed, owner_allowed| Counts { allowed, owner_allowed, ..Counts::default() };
    let expected =
        [("default/tier:t/minute", of(1, 1)), ("default/tier:t/day", of(3, 2)), ("default/tier:t/year", of(3, 0))];
    assert_eq!(counts(&engine), expected);
}

#[test]
fn threads_lose_no_count() {
    // More than have a stripe of their own on any machine.
    const THREADS: usize = 140;
    const CHECKS: usize = 1_000;
    let engine = Engine::with_max_keys(1_000);
    engine.publish(policy(CHECKS as u64)).expect("few limits");
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let user = [Identity::new("user", "ada").expect("valid")];
                let request = Request::new(&user).expect("valid");
                for _ in 0..CHECKS {
                    let _ = engine.check(&request);
                }
            });
        }
    });
    let (allowed, denied) = (CHECKS as u64, (CHECKS * (THREADS - 1)) as u64);
    assert_eq!(counts(&engine)[0].1, Counts { allowed, denied, owner_allowed: allowed, ..Counts::default() });
    assert_eq!(engine.totals(), Totals { allowed, denied, ..Totals::default() });
}

#[test]
fn versions_counted_elsewhere_only_rise() {
    let engine = Engine::with_max_keys(10);
    engine.publish(Publish::of(policy(1)).under_version(17)).expect("above 0");
    assert_eq!(engine.version(), 17);
    let refused = engine.publish(Publish::of(policy(2)).under_version(17));
    assert_eq!(refused, Err(PublishError::OldVersion { given: 17, present: 17 }));
    assert_eq!(engine.publish(policy(3)), Ok(18));
    // Above what a version can be.
    let refused = engine.publish(Publish::of(policy(4)).under_version(1 << 53).counted_anew());
    assert_eq!(refused, Err(PublishError::OldVersion { given: 1 << 53, present: 18 }));
}

/// A handle, and what was used, go along.
#[test]
fn versions_can_be_counted_anew() {
    let engine = Engine::with_max_keys(10);
    engine.publish(Publish::of(policy(10)).under_version(17)).expect("above 0");
    let who = [Identity::new("user", "ada").expect("valid")];
    let request = Request::new(&who).expect("valid");
    let seen = |limit: u64, remaining: u64, version: u64| {
        let decision = engine.check(&request);
        let seen = (decision.limit(), decision.remaining(), decision.policy_version(), engine.version());
        assert_eq!(seen, (Some(limit), Some(remaining), version, version));
    };
    seen(10, 9, 17);
    for (turn, version) in [3, 3, 2, 900, 17].into_iter().enumerate() {
        let (turn, anew) = (turn as u64, Publish::of(policy(11 + turn as u64)).under_version(version).counted_anew());
        assert_eq!(engine.publish(anew), Ok(version));
        seen(11 + turn, 9, version);
    }
    assert_eq!(engine.publish(policy(20)), Ok(18), "then they rise again");
    let mut refused = engine.publish(Publish::of(policy(1)).under_version(18).counted_anew());
    for _ in 0..3_000 {
        refused = refused.and_then(|_| engine.publish(Publish::of(policy(1)).under_version(18).counted_anew()));
    }
    assert_eq!(refused, Err(PublishError::OldVersion { given: 18, present: 18 }), "not for ever");
    assert_eq!(engine.publish(policy(1)), Ok(19));
}
