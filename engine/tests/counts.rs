//! What the engine counts of its decisions: totals and per limit, over publishes and threads.

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
    // Nobody said anything about addresses; and nobody knows this domain.
    assert!(engine.check(&Request::new(&ip).expect("valid")).is_allowed());
    assert!(engine.check(&Request::new(&user).expect("valid").domain("elsewhere")).is_allowed());
    // By handle: three more fill the tier, the fourth is refused.
    let mut handle = engine.handle("default/tier:t/day", "user").expect("the policy has it");
    let by_handle = (0..4).filter(|_| handle.check(b"ada", 1).expect("valid").is_allowed()).count();
    assert_eq!(by_handle, 3);
    // A client's own limits are in the totals alone.
    let eve = [Identity::new("user", "eve").expect("valid")];
    assert!(!engine.check(&Request::new(&eve).expect("valid")).is_allowed());
    let expected = [
        ("default/tier:t/day", Counts { allowed: 5, denied: 1, ..Counts::default() }),
        ("default/rule:x/day", Counts { allowed: 2, denied: 1, ..Counts::default() }),
    ];
    assert_eq!(counts(&engine), expected);
    assert_eq!(engine.totals(), Totals { allowed: 7, denied: 3, no_limit: 2, unknown_domain: 1 });
    // A publish keeps what was counted.
    engine.publish(policy(6)).expect("few limits");
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
    assert_eq!(counts(&engine)[0].1, Counts { allowed, denied, ..Counts::default() });
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
}
