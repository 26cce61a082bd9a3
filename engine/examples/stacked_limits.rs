//! Checks three limits on one request: 10 at once, 100 a minute, 200 a day. All are charged, or none.
//!
//! `cargo run -p tidegate --example stacked_limits`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::{
    error::Error,
    time::{Duration, UNIX_EPOCH},
};

use tidegate::{Engine, Identity, Request, Retry, Snapshot, clock::ManualClock, formats::Format};

const POLICY: &str = r#"
    [domains.default]
    defaults = { user = "free" }
    [[domains.default.tiers]]
    id = "free"
    limits = [
      { id = "burst",  algorithm = "token_bucket", limit = 5,   period = "1s", burst = 10 },
      { id = "minute", algorithm = "token_bucket", limit = 100, period = "1m" },
      { id = "day",    algorithm = "fixed_window", limit = 200, period = "1d" },
    ]
"#;

fn main() -> Result<(), Box<dyn Error>> {
    // The beginning of a day in 2026, on a clock that the program moves.
    let clock = ManualClock::at(UNIX_EPOCH + Duration::from_hours(24 * 20_718));
    let engine = Engine::for_simulation(1_000, clock.clone(), 1);
    engine.publish(Snapshot::parse(POLICY, Format::Toml)?)?;
    let ada = [Identity::new("user", "ada")?];
    let request = Request::new(&ada)?;

    // A user who sends as many requests as they may meets each limit in turn.
    let (mut admitted, mut said) = (0, "");
    loop {
        let decision = engine.check(&request);
        let Retry::After(wait) = decision.retry() else {
            admitted += 1;
            continue;
        };
        let limit = decision.limit_id().unwrap_or_default();
        if said != limit {
            println!("{admitted:3} admitted, then {limit} says: come back in {wait:?}");
            said = limit;
        }
        if limit == "default/tier:free/day" {
            break;
        }
        clock.advance(wait);
    }
    assert_eq!(admitted, 200);

    // A denial charges nothing, whichever limit refuses: the other two get all of their quota back meanwhile.
    for _ in 0..60 {
        clock.advance(Duration::from_secs(1));
        assert!(!engine.check(&request).is_allowed());
    }
    let mut minute = engine.handle("default/tier:free/minute", "user").ok_or("the limit is there")?;
    assert!(minute.check_n(b"ada", 100)?.is_allowed());
    for (limit, counts) in engine.limit_counts() {
        println!(
            "{:24} allowed {:3}, was the first to refuse {:3}",
            engine.limit_name(limit),
            counts.allowed,
            counts.denied
        );
    }

    // The decision shows what is left of the tightest limit.
    clock.advance(Duration::from_hours(24));
    let decision = engine.check(&request);
    println!("the next day: {:?} left of {}", decision.remaining(), decision.limit_id().unwrap_or_default());
    assert_eq!((decision.limit_id(), decision.remaining()), (Some("default/tier:free/burst"), Some(9)));
    assert!(decision.reset_after() <= Some(Duration::from_secs(2)));
    Ok(())
}
