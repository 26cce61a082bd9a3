//! Simulates a day of traffic in a second: the engine reads the time from a clock that the program sets by hand.
//!
//! `cargo run -p tidegate --example virtual_time`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::{
    error::Error,
    time::{Duration, UNIX_EPOCH},
};

use tidegate::{Engine, Identity, Request, Snapshot, clock::ManualClock, formats::Format};

const POLICY: &str = r#"
    [domains.default]
    defaults = { user = "free" }
    [[domains.default.tiers]]
    id = "free"
    limits = [
      { id = "minute", algorithm = "token_bucket", limit = 12, period = "1m" },
      { id = "day",    algorithm = "fixed_window", limit = 6_000, period = "1d" },
    ]
"#;

/// Requests a minute, by the hour: quiet at night, two peaks.
const LOAD: [u32; 24] = [1, 1, 1, 1, 1, 2, 4, 8, 12, 14, 15, 12, 9, 11, 14, 16, 14, 10, 8, 6, 5, 4, 2, 1];

fn main() -> Result<(), Box<dyn Error>> {
    // The beginning of a day in 2026. The same seed and the same arrivals give the same day, every time.
    let midnight = UNIX_EPOCH + Duration::from_hours(24 * 20_718);
    let clock = ManualClock::at(midnight);
    let engine = Engine::for_simulation(1_000, clock.clone(), 1);
    engine.publish(Snapshot::parse(POLICY, Format::Toml)?)?;
    let ada = [Identity::new("user", "ada")?];
    let request = Request::new(&ada)?;

    println!("hour  allowed  denied");
    for (hour, load) in (0..).zip(LOAD) {
        let before = engine.totals();
        for minute in hour * 60..(hour + 1) * 60 {
            for n in 0..load {
                clock.set(midnight + Duration::from_secs(minute * 60) + Duration::from_secs(u64::from(n) * 60) / load);
                let _ = engine.check(&request);
            }
        }
        let now = engine.totals();
        let (allowed, denied) = (now.allowed - before.allowed, now.denied - before.denied);
        println!(
            "{hour:4}  {allowed:7}  {denied:6}  {}{}",
            "#".repeat(allowed as usize / 20),
            "x".repeat(denied as usize / 20)
        );
    }
    let requests = u64::from(LOAD.iter().sum::<u32>()) * 60;
    let totals = engine.totals();
    assert_eq!(totals.allowed + totals.denied, requests);
    for (limit, counts) in engine.limit_counts() {
        println!("{}: allowed {}, was the first to refuse {}", engine.limit_name(limit), counts.allowed, counts.denied);
    }

    // Time only goes forward: a clock that is set back stays where it is.
    clock.set(midnight);
    let stands = engine.peek(&request);
    assert!(stands.reset_at() > Some(midnight + Duration::from_hours(23)));
    Ok(())
}
