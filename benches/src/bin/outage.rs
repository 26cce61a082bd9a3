//! Measures how soon nodes notice that their store has failed, and how long checks wait meanwhile, with default settings.
//!
//! Four nodes of this process check one key, whose limit is 1,000 a second, 8,000 times a second. Their store is a real Redis,
//! which is killed or stopped.
#![expect(clippy::print_stdout, reason = "the program prints a report")]
#![expect(clippy::disallowed_methods, reason = "time is what is measured")]

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use clap::Parser;
use rustix::process::{Pid, Signal, kill_process};
use tidegate::{Identity, Request, clock::SystemClock, internals::BeginResult};
use tidegate_benches::{
    BenchResult,
    servers::turns,
    spread::Spread,
    store::{connect_node, start_redis},
};
use tidegate_fleet::store::{SharedEngine, StoreSettings};
use tokio::{runtime, task::JoinSet};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const NODES: usize = 4;
/// The number of callers of each node.
const CALLERS: u32 = 8;
/// The time from one check of a caller to the next.
const CALL_PERIOD: Duration = Duration::from_millis(4);

/// The time for which checks run before the outage.
const BEFORE: Duration = Duration::from_secs(2);
/// The part of that time whose checks do not count.
const WARM_UP: Duration = Duration::from_millis(1_900);
/// The time for which checks run after the outage begins.
const AFTER: Duration = Duration::from_secs(1);

/// Stops the store for each way to share a limit, in turn.
#[derive(Parser)]
struct Arguments {
    /// Rounds; in each, the store is killed and stopped once for every way.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

/// A failure of the store, and the kind of the limit that it affects.
#[derive(Clone, Copy)]
struct Outage {
    sharing: &'static str,
    name: &'static str,
    signal: Signal,
}

/// The figures of one outage.
struct OutageFigures {
    /// Milliseconds from the failure until the last node skips the store.
    noticed_ms: f64,
    /// The longest wait of a check for the store in milliseconds, from just before the failure.
    longest_wait_ms: f64,
    /// The number of checks that waited for the store.
    waited: usize,
}

/// Checks periodically until `until`. Returns the wait of each check that began after `from`.
async fn call(
    shared: &SharedEngine<SystemClock>,
    caller: u32,
    (from, until): (Instant, Instant),
) -> BenchResult<Vec<Duration>> {
    let who = [Identity::new("user", "ada")?];
    let request = Request::new(&who)?;
    let mut waited = Vec::new();
    let began = Instant::now() + CALL_PERIOD * caller / CALLERS;
    for turn in 0.. {
        let due = began + CALL_PERIOD * turn;
        if due >= until {
            break;
        }
        tokio::time::sleep_until(due.into()).await;
        if let BeginResult::Pending(pending) = shared.begin(&request) {
            let asked = Instant::now();
            let answers = shared.ask(&pending).await;
            if asked >= from {
                waited.push(asked.elapsed());
            }
            let _ = shared.finish(pending, &answers);
        }
    }
    Ok(waited)
}

/// Starts a store and nodes, makes the store fail, and returns the figures.
fn measure(outage: Outage, runtime: &runtime::Runtime) -> BenchResult<OutageFigures> {
    let (server, url) = start_redis(None)?;
    let nodes = (0..NODES)
        .map(|_| runtime.block_on(connect_node(1_000, outage.sharing, &url, StoreSettings::default())))
        .collect::<BenchResult<Vec<_>>>()?;
    let began = Instant::now();
    let happens = began + BEFORE;
    let mut tasks = JoinSet::new();
    for shared in &nodes {
        for caller in 0..CALLERS {
            let (shared, time) = (Arc::clone(shared), (began + WARM_UP, happens + AFTER));
            let called = async move { call(&shared, caller, time).await.map_err(|it| it.to_string()) };
            tasks.spawn_on(called, runtime.handle());
        }
    }
    thread::sleep(happens.saturating_duration_since(Instant::now()));
    if nodes.iter().any(|node| node.stats().opened > 0) {
        return Err("a node skipped the store before it failed: this machine is too busy".into());
    }
    let pid = Pid::from_raw(i32::try_from(server.id())?).ok_or("no process")?;
    let happened = Instant::now();
    kill_process(pid, outage.signal)?;
    while !nodes.iter().all(|node| node.stats().is_open) {
        if happened.elapsed() > AFTER {
            return Err("a node did not notice the failure".into());
        }
        thread::sleep(Duration::from_micros(200));
    }
    let noticed = happened.elapsed();
    let mut waited = Vec::new();
    while let Some(of_caller) = runtime.block_on(tasks.join_next()) {
        waited.extend(of_caller??);
    }
    let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
    let longest = waited.iter().max().copied().unwrap_or_default();
    Ok(OutageFigures { noticed_ms: ms(noticed), longest_wait_ms: ms(longest), waited: waited.len() })
}

fn main() -> BenchResult<()> {
    let arguments = Arguments::parse();
    let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let outages: Vec<_> = ["strict", "leased", "synced"]
        .into_iter()
        .flat_map(|sharing| {
            [("killed", Signal::KILL), ("stopped", Signal::STOP)].map(|(name, signal)| Outage { sharing, name, signal })
        })
        .collect();
    let mut figures: Vec<_> = outages.iter().map(|_| Vec::new()).collect();
    for turn in turns(arguments.rounds, outages.len()) {
        figures[turn].push(measure(outages[turn], &runtime)?);
    }
    println!("{NODES} nodes, {} rounds; milliseconds: median (least to most)", arguments.rounds);
    println!("noticed by all nodes | longest wait of a check | checks that waited, from 100 ms before it");
    for (outage, figures) in outages.iter().zip(&figures) {
        let noticed = Spread::of(figures.iter().map(|it| it.noticed_ms));
        let longest = Spread::of(figures.iter().map(|it| it.longest_wait_ms));
        let waited: usize = figures.iter().map(|it| it.waited).sum();
        println!("{:<7} {:<8} {noticed:>6.1} | {longest:>6.1} | {waited}", outage.sharing, outage.name);
    }
    Ok(())
}
