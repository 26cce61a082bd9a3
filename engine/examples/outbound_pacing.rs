//! Calls to other people's services, each at the pace that it allows: ten a second for each host, two at once.
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

    // Many tasks may wait for one host: they go one after the other, in the order in which they came.
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

    // A call that is of no use later than that. What a call weighs is its cost.
    let deadline = Instant::now() + Duration::from_millis(450);
    loop {
        match pace.wait_n_until("a.example", 2, deadline).await {
            Ok(()) => call("a.example", "that is worth two", start).await,
            Err(WaitError::TooLate) => break println!("{:>4} ms  no further one fits", start.elapsed().as_millis()),
            Err(never) => return Err(never),
        }
    }

    // Whoever gives up while waiting has taken nothing.
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
