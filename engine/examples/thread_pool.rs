//! Checks one limit from a pool of threads, without locks: together they get exactly what the limit allows.
//!
//! `cargo run -p tidegate --example thread_pool`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::{
    error::Error,
    sync::{
        Barrier,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use tidegate::{
    Engine, Retry, Snapshot,
    clock::{Clock, SystemClock},
    formats::Format,
};

const POLICY: &str = r#"
    [domains.default]
    defaults = { tenant = "standard" }
    [[domains.default.tiers]]
    id = "standard"
    limits = [{ id = "jobs", algorithm = "token_bucket", limit = 200, period = "1s", burst = 50 }]
"#;
const THREADS: usize = 4;

fn main() -> Result<(), Box<dyn Error>> {
    let engine = Engine::with_max_keys(1_000);
    engine.publish(Snapshot::parse(POLICY, Format::Toml)?)?;
    let jobs = engine.handle("default/tier:standard/jobs", "tenant").ok_or("the limit is there")?;

    let (clock, start, done) = (SystemClock::new(), Barrier::new(THREADS), AtomicU64::new(0));
    let began = clock.now();
    let by_thread: Vec<u64> = thread::scope(|scope| {
        let work = |mut jobs: tidegate::Handle<'_>| {
            start.wait();
            let mut own = 0;
            while done.load(Ordering::Relaxed) < 200 {
                match jobs.check(b"acme").retry() {
                    Retry::Now => {
                        own += 1;
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                    // Other threads wait for the same token: a thread that is too late gets a new time.
                    Retry::After(wait) => thread::sleep(wait),
                    Retry::Never => break,
                }
            }
            own
        };
        // Each thread has a handle of its own. Clones are cheap, and count in the same buckets.
        let threads: Vec<_> =
            (0..THREADS).map(|_| (work, jobs.clone())).map(|(work, jobs)| scope.spawn(move || work(jobs))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_default()).collect()
    });
    let (took, jobs) = (clock.now().duration_since(began), by_thread.iter().sum::<u64>());
    println!("{jobs} jobs in {took:.2?}, by thread {by_thread:?}");

    // The threads never get more than the burst and the tokens that came back since.
    assert!(jobs as f64 <= 50.0 + 200.0 * took.as_secs_f64());
    assert_eq!(engine.totals().allowed, jobs);
    println!("{} checks were denied, each told when to come back", engine.totals().denied);
    Ok(())
}
