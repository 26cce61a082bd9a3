//! Simulates a day of traffic in a second: the engine reads the time from a clock that the program sets by hand.
//!
//! `cargo run -p tidegate --example virtual_time`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use tidegate::{Engine, Identity, Request, Snapshot, clock::ManualClock, formats::Format, time::SECOND_NS};

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
const LOAD: [u64; 24] = [1, 1, 1, 1, 1, 2, 4, 8, 12, 14, 15, 12, 9, 11, 14, 16, 14, 10, 8, 6, 5, 4, 2, 1];

fn main() -> Result<(), Box<dyn Error>> {
    // The beginning of a day in 2026. The same seed and the same arrivals give the same day, every time.
    let midnight = 1_790_035_200 * SECOND_NS;
    let clock = ManualClock::at(midnight);
    let engine = Engine::for_simulation(1_000, clock.clone(), 1);
    engine.publish(Snapshot::parse(POLICY, Format::Toml)?)?;
    let ada = [Identity::new("user", "ada")?];
    let request = Request::new(&ada)?;

    println!("hour  allowed  denied");
    for (hour, load) in (0_u64..).zip(LOAD) {
        let before = engine.totals();
        for minute in hour * 60..(hour + 1) * 60 {
            for n in 0..load {
                clock.set(midnight + minute * 60 * SECOND_NS + n * 60 * SECOND_NS / load);
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
    let requests: u64 = LOAD.iter().sum::<u64>() * 60;
    let totals = engine.totals();
    assert_eq!(totals.allowed + totals.denied, requests);
    for (limit, counts) in engine.limit_counts() {
        println!("{}: allowed {}, was the first to refuse {}", engine.limit_name(limit), counts.allowed, counts.denied);
    }

    // Time only goes forward: a clock that is set back stays where it is.
    clock.set(midnight);
    let stands = engine.peek(&request);
    assert!(stands.reset_at() > Some(std::time::Duration::from_nanos(midnight + 23 * 3_600 * SECOND_NS)));
    Ok(())
}
