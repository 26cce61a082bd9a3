//! How soon nodes notice that their store is gone, and how long checks wait meanwhile, with the settings that they have unless
//! told: four nodes of this process, one key with a limit of 1,000 a second of which 8,000 are asked for, and a real Redis that
//! is killed, or stands.
#![expect(clippy::print_stdout, reason = "a report")]
#![expect(clippy::disallowed_methods, reason = "time is what is measured")]

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use clap::Parser;
use rustix::process::{Pid, Signal, kill_process};
use tidegate::{Begun, Identity, Request, clock::SystemClock};
use tidegate_benches::{
    record::Spread,
    servers::{Outcome, turns},
    store::{engine, redis},
};
use tidegate_fleet::store::{Shared, StoreAddress, StoreSettings};
use tokio::{runtime, task::JoinSet};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const NODES: usize = 4;
/// Of each node, and how often each of them asks.
const CALLERS: u32 = 8;
const EACH: Duration = Duration::from_millis(4);

/// How long the load goes on before it happens, for how much of that it is not watched, and for how long it goes on after.
const BEFORE: Duration = Duration::from_secs(2);
const UNWATCHED: Duration = Duration::from_millis(1_900);
const AFTER: Duration = Duration::from_secs(1);

/// Takes the store away, for each way to share a limit, in turn.
#[derive(Parser)]
struct Arguments {
    /// Rounds; in each, the store is killed and stopped once for every way.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

/// What happens to the store, and to limits of which kind.
#[derive(Clone, Copy)]
struct Outage {
    sharing: &'static str,
    name: &'static str,
    signal: Signal,
}

/// What was seen, in milliseconds.
struct Seen {
    /// Since it happened, until the last node leaves the store alone.
    noticed: f64,
    /// The longest wait of a check for the store, from before it happened on.
    longest: f64,
    waited: usize,
}

/// Checks until it is time; answers how long each waited that began after `from`.
async fn call(shared: &Shared<SystemClock>, caller: u32, (from, until): (Instant, Instant)) -> Outcome<Vec<Duration>> {
    let who = [Identity::new("user", "ada")?];
    let request = Request::new(&who)?;
    let mut waited = Vec::new();
    let began = Instant::now() + EACH * caller / CALLERS;
    for turn in 0.. {
        let due = began + EACH * turn;
        if due >= until {
            break;
        }
        tokio::time::sleep_until(due.into()).await;
        if let Begun::Pending(pending) = shared.begin(&request) {
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

fn take(outage: Outage, runtime: &runtime::Runtime) -> Outcome<Seen> {
    let (server, url) = redis(None)?;
    let nodes = (0..NODES)
        .map(|_| {
            let address = StoreAddress::new(&[&url]);
            let shared = Shared::new(engine(1_000, outage.sharing)?, &address, StoreSettings::default());
            Ok(Arc::new(runtime.block_on(shared)?))
        })
        .collect::<Outcome<Vec<_>>>()?;
    let began = Instant::now();
    let happens = began + BEFORE;
    let mut tasks = JoinSet::new();
    for shared in &nodes {
        for caller in 0..CALLERS {
            let (shared, time) = (Arc::clone(shared), (began + UNWATCHED, happens + AFTER));
            let called = async move { call(&shared, caller, time).await.map_err(|it| it.to_string()) };
            tasks.spawn_on(called, runtime.handle());
        }
    }
    thread::sleep(happens.saturating_duration_since(Instant::now()));
    if nodes.iter().any(|node| node.stats().opened > 0) {
        return Err("the store was left alone before it was gone: this machine is too busy".into());
    }
    let pid = Pid::from_raw(i32::try_from(server.id())?).ok_or("no process")?;
    let happened = Instant::now();
    kill_process(pid, outage.signal)?;
    while !nodes.iter().all(|node| node.stats().is_open) {
        if happened.elapsed() > AFTER {
            return Err("it was not noticed".into());
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
    Ok(Seen { noticed: ms(noticed), longest: ms(longest), waited: waited.len() })
}

fn main() -> Outcome<()> {
    let arguments = Arguments::parse();
    let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let outages: Vec<_> = ["strict", "leased", "synced"]
        .into_iter()
        .flat_map(|sharing| {
            [("killed", Signal::KILL), ("stopped", Signal::STOP)].map(|(name, signal)| Outage { sharing, name, signal })
        })
        .collect();
    let mut seen: Vec<_> = outages.iter().map(|_| Vec::new()).collect();
    for turn in turns(arguments.rounds, outages.len()) {
        seen[turn].push(take(outages[turn], &runtime)?);
    }
    println!("{NODES} nodes, {} rounds; milliseconds: median (least to most)", arguments.rounds);
    println!("noticed by all nodes | longest wait of a check | checks that waited, from 100 ms before it");
    for (outage, seen) in outages.iter().zip(&seen) {
        let of = |figure: fn(&Seen) -> f64| Spread::of(seen.iter().map(figure));
        let (noticed, longest) = (of(|it| it.noticed), of(|it| it.longest));
        println!(
            "{:<7} {:<8} {:>6.1} ({:.1} to {:.1}) | {:>6.1} ({:.1} to {:.1}) | {}",
            outage.sharing,
            outage.name,
            noticed.median,
            noticed.least,
            noticed.most,
            longest.median,
            longest.least,
            longest.most,
            seen.iter().map(|it| it.waited).sum::<usize>(),
        );
    }
    Ok(())
}
