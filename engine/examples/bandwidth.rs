//! Limits bandwidth by bytes: a download is sent in chunks, and each chunk costs its length.
//!
//! `cargo run -p tidegate --example bandwidth`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::{
    error::Error,
    time::{Duration, UNIX_EPOCH},
};

use tidegate::{Engine, Retry, Snapshot, clock::ManualClock, formats::Format};

/// A megabyte a second for each customer, and up to a quarter of one at once.
const POLICY: &str = r#"
    [domains.default]
    defaults = { customer = "basic" }
    [[domains.default.tiers]]
    id = "basic"
    limits = [{ id = "bytes", algorithm = "token_bucket", limit = 1_000_000, period = "1s", burst = 250_000 }]
"#;
const RATE: u32 = 1_000_000;
const BURST: u64 = 250_000;

fn main() -> Result<(), Box<dyn Error>> {
    let clock = ManualClock::at(UNIX_EPOCH + Duration::from_hours(24 * 20_718));
    let engine = Engine::for_simulation(1_000, clock.clone(), 1);
    engine.publish(Snapshot::parse(POLICY, Format::Toml)?)?;
    // The limit is known, so a handle is the fastest way to check it.
    let mut bytes = engine.handle("default/tier:basic/bytes", "customer").ok_or("the limit is there")?;

    let file = vec![7; 5_000_000];
    let (mut sent, mut waited, mut waits) = (0, Duration::ZERO, 0);
    for chunk in file.chunks(64 * 1_024) {
        loop {
            match bytes.check_n(b"acme", chunk.len() as u64)?.retry() {
                Retry::Now => break,
                // Waiting exactly that long is enough.
                Retry::After(wait) => {
                    clock.advance(wait);
                    waited += wait;
                    waits += 1;
                }
                Retry::Never => return Err("a chunk is smaller than the burst".into()),
            }
        }
        sent += chunk.len() as u64;
    }
    println!("{sent} bytes in {:.3} s with {waits} waits", waited.as_secs_f64());
    // The burst is sent at once, and the rest at the rate, exact to the nanosecond.
    assert_eq!(waited, Duration::from_secs(sent - BURST) / RATE);

    // A smaller cost may be admitted where a large one is denied, so look at what fits before you cut a chunk.
    clock.advance(Duration::from_millis(100));
    let denied = bytes.check_n(b"acme", 200_000)?;
    println!("200,000 bytes: {:?}, but {:?} would go now", denied.retry(), denied.remaining());
    assert!(bytes.check_n(b"acme", denied.remaining().ok_or("a limit decided")?)?.is_allowed());

    // A cost above the burst never fits. The decision says so, so that the customer does not retry for ever.
    assert_eq!(bytes.check_n(b"acme", BURST + 1)?.retry(), Retry::Never);
    Ok(())
}
