//! Paces outbound calls to other services: ten a second for each host, two at once.
//!
//! `cargo run -p tidegate --example outbound_pacing`

#![expect(clippy::print_stdout, reason = "the example shows when each call goes out")]

use std::{sync::Arc, time::Duration};

use tidegate::{KeyedLimiter, Rate, WaitError};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

const PACE: Rate = Rate::per_second(10).burst(2);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), WaitError> {
    let pace = Arc::new(KeyedLimiter::with_max_keys(PACE, 1_000));
    let start = Instant::now();

    // Many tasks may wait for one host: they proceed one after the other, in the order of their arrival.
    let mut calls = JoinSet::new();
    for number in 1..=6 {
        for host in ["a.example", "b.example"] {
            let pace = Arc::clone(&pace);
            calls.spawn(async move {
                pace.wait(host).await?;
                call(host, number, start).await;
                Ok(())
            });
        }
    }
    calls.join_all().await.into_iter().collect::<Result<(), WaitError>>()?;

    // These calls are of no use after the deadline. Each has a cost of two.
    let deadline = Instant::now() + Duration::from_millis(450);
    loop {
        match pace.wait_n_until("a.example", 2, deadline).await {
            Ok(()) => call("a.example", "that is worth two", start).await,
            Err(WaitError::TooLate) => break println!("{:>4} ms  no further one fits", start.elapsed().as_millis()),
            Err(never) => return Err(never),
        }
    }

    // A task that gives up while it waits has taken nothing.
    tokio::select! {
        waited = pace.wait_n("a.example", 2) => waited?,
        () = sleep(Duration::from_millis(20)) => println!("{:>4} ms  gave up", start.elapsed().as_millis()),
    }
    Ok(())
}

async fn call(host: &str, what: impl std::fmt::Display, start: Instant) {
    println!("{:>4} ms  {host}: call {what}", start.elapsed().as_millis());
    sleep(Duration::from_millis(5)).await;
}
