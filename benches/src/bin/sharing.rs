//! What it costs to share a limit, by the ways in which nodes may: four nodes of this process, 100,000 keys by Zipf's law, a
//! limit of 10,000 a second for each, a real Redis. Decisions a second, commands of Redis a decision, and how long a check is
//! blocked on the store.
#![expect(clippy::print_stdout, reason = "a report")]
#![expect(clippy::disallowed_methods, reason = "time is what is measured")]

use std::{
    collections::HashMap,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use clap::Parser;
use tidegate::{Begun, Decide, Identity, Request, clock::SystemClock};
use tidegate_benches::{
    random::{Zipf, drawn},
    record::Spread,
    servers::{Outcome, turns},
    store::{engine, redis, scripts},
};
use tidegate_fleet::store::{Shared, StoreAddress, StoreSettings};
use tokio::{runtime, task::JoinSet};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const NODES: usize = 4;
const KEYS: u32 = 100_000;

/// Tasks of each node that meet keys before it counts.
const MEETING: u32 = 256;

/// Shares a limit in each way, in turn.
#[derive(Parser)]
struct Arguments {
    /// Rounds; in each, every way is taken once.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// How long each is taken before it counts, in milliseconds, after each node has met each key.
    #[arg(long, default_value_t = 20_000)]
    warm_millis: u64,
    /// How long it counts, in milliseconds: by default so long that each lease is renewed in it once.
    #[arg(long, default_value_t = 45_000)]
    millis: u64,
    /// Callers of each node, each with one check at a time.
    #[arg(long, default_value_t = 16)]
    waiting: usize,
    /// Ways to take.
    #[arg(long, value_delimiter = ',', default_values = ["local", "strict", "leased", "synced"], value_parser = ["local", "strict", "leased", "synced"])]
    ways: Vec<String>,
}

/// What callers did.
#[derive(Default)]
struct Took {
    decided: u64,
    degraded: u64,
    /// Nanoseconds for which each was blocked that had to wait for the store.
    blocked: Vec<u64>,
}

/// Checks until it is time; what comes before `from` does not count.
async fn call(
    shared: &Shared<SystemClock>,
    keys: &[Box<str>],
    start: usize,
    (from, until): (Instant, Instant),
) -> Outcome<Took> {
    let mut took = Took::default();
    let mut next = keys.iter().cycle().skip(start);
    loop {
        // The clock is read once for many checks, after which others have their turn.
        tokio::task::yield_now().await;
        let began = Instant::now();
        if began >= until {
            return Ok(took);
        }
        let is_counted = began >= from;
        for key in next.by_ref().take(64) {
            let who = [Identity::new("user", key)?];
            let request = Request::new(&who)?;
            let decision = match shared.begin(&request) {
                Begun::Decided(decision) => decision,
                Begun::Pending(pending) => {
                    let began = Instant::now();
                    let answers = shared.ask(&pending).await;
                    let decision = shared.finish(pending, &answers);
                    if is_counted {
                        took.blocked.push(u64::try_from(began.elapsed().as_nanos())?);
                    }
                    decision
                }
            };
            if is_counted {
                took.decided += 1;
                took.degraded += u64::from(decision.degraded().is_some());
            }
        }
    }
}

/// Has each node meet each key once, many of them at a time.
async fn meet(nodes: &[Arc<Shared<SystemClock>>]) -> Outcome<()> {
    let mut tasks = JoinSet::new();
    for (node, from) in nodes.iter().flat_map(|node| (0..MEETING).map(move |from| (Arc::clone(node), from))) {
        tasks.spawn(async move {
            for key in (from..KEYS).step_by(MEETING as usize) {
                let key = name(key);
                let who = [Identity::new("user", &key).map_err(|it| it.to_string())?];
                let request = Request::new(&who).map_err(|it| it.to_string())?;
                let _ = node.decide(&request).await;
            }
            Ok::<_, String>(())
        });
    }
    while let Some(met) = tasks.join_next().await {
        met??;
    }
    Ok(())
}

fn name(key: u32) -> Box<str> {
    format!("user-{key:010}").into()
}

/// What one way came to.
struct Figures {
    rate: f64,
    scripts: f64,
    degraded: u64,
    waited: f64,
    p50_us: f64,
    p99_us: f64,
}

fn take(
    way: &str,
    url: &str,
    runtime: &runtime::Runtime,
    keys: &Arc<[Box<str>]>,
    arguments: &Arguments,
) -> Outcome<Figures> {
    let client = redis::Client::open(url)?;
    let mut watch = client.get_connection()?;
    let settings = StoreSettings { timeout: Duration::from_secs(1), ..StoreSettings::default() };
    let nodes = (0..NODES)
        .map(|_| {
            Ok(Arc::new(runtime.block_on(Shared::new(engine(10_000, way)?, &StoreAddress::new(&[url]), settings))?))
        })
        .collect::<Outcome<Vec<_>>>()?;
    runtime.block_on(meet(&nodes))?;
    let from = Instant::now() + Duration::from_millis(arguments.warm_millis);
    let until = from + Duration::from_millis(arguments.millis);
    let callers = arguments.waiting;
    let mut tasks = JoinSet::new();
    for (node, shared) in nodes.iter().enumerate() {
        for caller in 0..callers {
            let (shared, keys) = (Arc::clone(shared), Arc::clone(keys));
            // Each begins elsewhere.
            let start = (node * callers + caller) * keys.len() / (nodes.len() * callers);
            let called = async move { call(&shared, &keys, start, (from, until)).await.map_err(|it| it.to_string()) };
            tasks.spawn_on(called, runtime.handle());
        }
    }
    thread::sleep(from.saturating_duration_since(Instant::now()));
    let before = scripts(&mut watch)?;
    thread::sleep(until.saturating_duration_since(Instant::now()));
    let asked = scripts(&mut watch)? - before;
    let mut all = Took::default();
    while let Some(took) = runtime.block_on(tasks.join_next()) {
        let took = took??;
        all.decided += took.decided;
        all.degraded += took.degraded;
        all.blocked.extend(took.blocked);
    }
    all.blocked.sort_unstable();
    let at = |percent: usize| all.blocked.get(all.blocked.len() * percent / 100).map_or(0.0, |&ns| ns as f64 / 1e3);
    drop(nodes);
    // What is asked in the background ends before the next begins.
    let mut last = 0;
    while last != scripts(&mut watch)? {
        last = scripts(&mut watch)?;
        thread::sleep(Duration::from_millis(300));
    }
    let () = redis::cmd("FLUSHALL").query(&mut watch)?;
    Ok(Figures {
        rate: all.decided as f64 * 1e3 / arguments.millis as f64,
        scripts: asked as f64 * 1e3 / arguments.millis as f64,
        degraded: all.degraded,
        waited: all.blocked.len() as f64 / all.decided as f64,
        p50_us: at(50),
        p99_us: at(99),
    })
}

fn main() -> Outcome<()> {
    let arguments = Arguments::parse();
    let (server, url) = redis(None)?;
    let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut zipf = Zipf::new(7, KEYS);
    // Drawn before: it takes as long as a check.
    let keys: Arc<[Box<str>]> = drawn(1 << 21, || zipf.draw()).into_iter().map(name).collect();
    let mut taken: HashMap<usize, Vec<Figures>> = HashMap::new();
    for way in turns(arguments.rounds, arguments.ways.len()) {
        taken.entry(way).or_default().push(take(&arguments.ways[way], &url, &runtime, &keys, &arguments)?);
    }
    println!("{NODES} nodes, {KEYS} keys, {} rounds of {} ms", arguments.rounds, arguments.millis);
    println!("thousand decisions/s | Redis scripts/s | decisions a script | waited | p50, p99 of those that waited");
    for (way, name) in arguments.ways.iter().enumerate() {
        let of = |figure: fn(&Figures) -> f64| Spread::of(taken[&way].iter().map(figure));
        let (rate, scripts) = (of(|it| it.rate / 1e3), of(|it| it.scripts));
        println!(
            "{name:<8} {:>8.1} ({:.1} to {:.1}) | {:>8.0} ({:.0} to {:.0}) | {:>8.1} | {:.4} % | {:.0} us, {:.0} us | degraded {}",
            rate.median,
            rate.least,
            rate.most,
            scripts.median,
            scripts.least,
            scripts.most,
            of(|it| it.rate / it.scripts).median,
            of(|it| it.waited * 100.0).median,
            of(|it| it.p50_us).median,
            of(|it| it.p99_us).median,
            taken[&way].iter().map(|it| it.degraded).sum::<u64>(),
        );
    }
    drop(server);
    Ok(())
}
