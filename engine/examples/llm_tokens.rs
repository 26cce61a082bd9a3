//! Limits the tokens of a language model, whose cost is known only after the answer: reserves an estimate, then settles the
//! real cost.
//!
//! `cargo run -p tidegate --example llm_tokens`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::{
    error::Error,
    time::{Duration, UNIX_EPOCH},
};

use tidegate::{Engine, Identity, Request, Retry, Snapshot, clock::ManualClock, formats::Format};

const POLICY: &str = r#"
    [domains.default]
    defaults = { team = "standard" }
    [[domains.default.tiers]]
    id = "standard"
    limits = [{ id = "tokens", algorithm = "token_bucket", limit = 60_000, period = "1m", burst = 20_000 }]
"#;

/// The lengths of a prompt, of the longest answer that it allows, and of the real answer, in tokens.
const CALLS: [(u64, u64, u64); 5] =
    [(900, 4_000, 350), (2_500, 8_000, 7_600), (300, 4_000, 4_000), (6_000, 4_000, 900), (1_200, 16_000, 2_100)];

fn main() -> Result<(), Box<dyn Error>> {
    let clock = ManualClock::at(UNIX_EPOCH + Duration::from_hours(24 * 20_718));
    let engine = Engine::for_simulation(1_000, clock.clone(), 1);
    engine.publish(Snapshot::parse(POLICY, Format::Toml)?)?;
    let team = [Identity::new("team", "search")?];
    let left = || engine.peek(&Request::new(&team).expect("one identity").without_cost()).remaining();

    println!("prompt + answer at most = reserved; then settled");
    for (prompt, answer_most, answer) in CALLS {
        let request = Request::new(&team)?.cost(prompt + answer_most)?;
        let reservation = loop {
            let (decision, reservation) = engine.reserve(&request);
            match (reservation, decision.retry()) {
                (Some(reservation), _) => break reservation,
                (None, Retry::After(wait)) => {
                    println!("{:6} do not fit into {:?}: wait {wait:?}", prompt + answer_most, decision.remaining());
                    clock.advance(wait);
                }
                (None, _) => return Err("the burst holds every one of these calls".into()),
            }
        };
        let reserved = left();
        clock.advance(Duration::from_secs(1)); // the model writes
        engine.settle(reservation, prompt + answer);
        println!("{prompt:6} + {answer_most:6}: {reserved:?} left while it writes, {:?} after {answer}", left());
    }

    // An answer that is longer than its reservation is charged in full, and the next call waits for it.
    clock.advance(Duration::from_mins(1));
    let (_, reservation) = engine.reserve(&Request::new(&team)?.cost(1_000)?);
    engine.settle(reservation.ok_or("the bucket is full")?, 25_000);
    let next = engine.check(&Request::new(&team)?);
    println!("25,000 instead of 1,000: {:?} left, and the next call: {:?}", next.remaining(), next.retry());
    // 5,000 above the burst of 20,000, and a token for the call: 5,001 of them, at 1,000 a second.
    assert_eq!(next.retry(), Retry::After(Duration::from_millis(5_001)));

    // A call that failed costs nothing.
    clock.advance(Duration::from_mins(1));
    let (_, reservation) = engine.reserve(&Request::new(&team)?.cost(16_000)?);
    engine.refund(reservation.ok_or("the bucket is full")?);
    assert_eq!(left(), Some(20_000));
    Ok(())
}
