//! Measures the cost of shared limits for each way of sharing: decisions a second, commands of Redis a decision, and how long a
//! check is blocked on the store.
//!
//! Four nodes of this process check 100,000 keys, drawn by Zipf's law, with a limit of 10,000 a second for each key. Their store
//! is a real Redis.
#![expect(clippy::print_stdout, reason = "the program prints a report")]
#![expect(clippy::disallowed_methods, reason = "time is what is measured")]

use std::{
    collections::HashMap,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use clap::Parser;
use tidegate::{Decide, Identity, Request, clock::SystemClock, internals::BeginResult};
use tidegate_benches::{
    BenchResult,
    random::{Zipf, draw_many},
    servers::turns,
    spread::Spread,
    store::{connect_node, script_calls, start_redis},
};
use tidegate_fleet::store::{SharedEngine, StoreSettings};
use tokio::{runtime, task::JoinSet};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const NODES: usize = 4;
const KEYS: u32 = 100_000;

/// The number of tasks of each node that check all keys before the measurement.
const WARM_UP_TASKS: u32 = 256;

/// Shares a limit in each way, in turn.
#[derive(Parser)]
struct Arguments {
    /// Rounds; in each, every way of sharing is measured once.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Milliseconds for which each way runs before the measurement, after each node has checked each key.
    #[arg(long, default_value_t = 20_000)]
    warm_millis: u64,
    /// Milliseconds for which each way is measured: by default enough to renew each lease once.
    #[arg(long, default_value_t = 45_000)]
    millis: u64,
    /// Callers of each node, each with one check at a time.
    #[arg(long, default_value_t = 16)]
    waiting: usize,
    /// Ways of sharing to measure.
    #[arg(long, value_delimiter = ',', default_values = ["local", "strict", "leased", "synced"], value_parser = ["local", "strict", "leased", "synced"])]
    ways: Vec<String>,
}

/// The counts of callers.
#[derive(Default)]
struct CallerCounts {
    decided: u64,
    degraded: u64,
    /// The nanoseconds for which each check was blocked that had to wait for the store.
    blocked: Vec<u64>,
}

/// Checks keys until `until`; checks before `from` do not count.
async fn call(
    shared: &SharedEngine<SystemClock>,
    keys: &[Box<str>],
    start: usize,
    (from, until): (Instant, Instant),
) -> BenchResult<CallerCounts> {
    let mut counts = CallerCounts::default();
    let mut next = keys.iter().cycle().skip(start);
    loop {
        // Reads the clock once for many checks, and lets other tasks run before.
        tokio::task::yield_now().await;
        let began = Instant::now();
        if began >= until {
            return Ok(counts);
        }
        let is_counted = began >= from;
        for key in next.by_ref().take(64) {
            let who = [Identity::new("user", key)?];
            let request = Request::new(&who)?;
            let decision = match shared.begin(&request) {
                BeginResult::Decided(decision) => decision,
                BeginResult::Pending(pending) => {
                    let began = Instant::now();
                    let answers = shared.ask(&pending).await;
                    let decision = shared.finish(pending, &answers);
                    if is_counted {
                        counts.blocked.push(u64::try_from(began.elapsed().as_nanos())?);
                    }
                    decision
                }
            };
            if is_counted {
                counts.decided += 1;
                counts.degraded += u64::from(decision.degraded().is_some());
            }
        }
    }
}

/// Lets each node check each key once, many keys at a time.
async fn check_all_keys(nodes: &[Arc<SharedEngine<SystemClock>>]) -> BenchResult<()> {
    let mut tasks = JoinSet::new();
    for (node, from) in nodes.iter().flat_map(|node| (0..WARM_UP_TASKS).map(move |from| (Arc::clone(node), from))) {
        tasks.spawn(async move {
            for key in (from..KEYS).step_by(WARM_UP_TASKS as usize) {
                let key = name(key);
                let who = [Identity::new("user", &key).map_err(|it| it.to_string())?];
                let request = Request::new(&who).map_err(|it| it.to_string())?;
                let _ = node.decide(&request).await;
            }
            Ok::<_, String>(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}

fn name(key: u32) -> Box<str> {
    format!("user-{key:010}").into()
}

/// The figures of one way of sharing.
struct Figures {
    /// Decisions a second.
    rate: f64,
    /// Scripts of the store a second.
    scripts: f64,
    /// The number of checks that were decided without the store.
    degraded: u64,
    /// The share of checks that waited for the store.
    waited: f64,
    p50_us: f64,
    p99_us: f64,
}

/// Measures one way of sharing.
fn measure(
    way: &str,
    url: &str,
    runtime: &runtime::Runtime,
    keys: &Arc<[Box<str>]>,
    arguments: &Arguments,
) -> BenchResult<Figures> {
    let client = redis::Client::open(url)?;
    let mut watch = client.get_connection()?;
    let settings = StoreSettings { timeout: Duration::from_secs(1), ..StoreSettings::default() };
    let nodes = (0..NODES)
        .map(|_| runtime.block_on(connect_node(10_000, way, url, settings)))
        .collect::<BenchResult<Vec<_>>>()?;
    runtime.block_on(check_all_keys(&nodes))?;
    let from = Instant::now() + Duration::from_millis(arguments.warm_millis);
    let until = from + Duration::from_millis(arguments.millis);
    let callers = arguments.waiting;
    let mut tasks = JoinSet::new();
    for (node, shared) in nodes.iter().enumerate() {
        for caller in 0..callers {
            let (shared, keys) = (Arc::clone(shared), Arc::clone(keys));
            // Each caller begins at another key.
            let start = (node * callers + caller) * keys.len() / (nodes.len() * callers);
            let called = async move { call(&shared, &keys, start, (from, until)).await.map_err(|it| it.to_string()) };
            tasks.spawn_on(called, runtime.handle());
        }
    }
    thread::sleep(from.saturating_duration_since(Instant::now()));
    let before = script_calls(&mut watch)?;
    thread::sleep(until.saturating_duration_since(Instant::now()));
    let calls = script_calls(&mut watch)? - before;
    let mut all = CallerCounts::default();
    while let Some(took) = runtime.block_on(tasks.join_next()) {
        let took = took??;
        all.decided += took.decided;
        all.degraded += took.degraded;
        all.blocked.extend(took.blocked);
    }
    all.blocked.sort_unstable();
    let at = |percent: usize| all.blocked.get(all.blocked.len() * percent / 100).map_or(0.0, |&ns| ns as f64 / 1e3);
    drop(nodes);
    // Waits until background requests have ended, so that they do not burden the next measurement.
    let mut last = 0;
    while last != script_calls(&mut watch)? {
        last = script_calls(&mut watch)?;
        thread::sleep(Duration::from_millis(300));
    }
    let () = redis::cmd("FLUSHALL").query(&mut watch)?;
    Ok(Figures {
        rate: all.decided as f64 * 1e3 / arguments.millis as f64,
        scripts: calls as f64 * 1e3 / arguments.millis as f64,
        degraded: all.degraded,
        waited: all.blocked.len() as f64 / all.decided as f64,
        p50_us: at(50),
        p99_us: at(99),
    })
}

fn main() -> BenchResult<()> {
    let arguments = Arguments::parse();
    let (server, url) = start_redis(None)?;
    let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut zipf = Zipf::new(7, KEYS);
    // Keys are drawn beforehand, because drawing takes as long as a check.
    let keys: Arc<[Box<str>]> = draw_many(1 << 21, || zipf.draw()).into_iter().map(name).collect();
    let mut taken: HashMap<usize, Vec<Figures>> = HashMap::new();
    for way in turns(arguments.rounds, arguments.ways.len()) {
        taken.entry(way).or_default().push(measure(&arguments.ways[way], &url, &runtime, &keys, &arguments)?);
    }
    println!("{NODES} nodes, {KEYS} keys, {} rounds of {} ms", arguments.rounds, arguments.millis);
    println!("thousand decisions/s | Redis scripts/s | decisions a script | waited | p50, p99 of those that waited");
    for (way, name) in arguments.ways.iter().enumerate() {
        let of = |figure: fn(&Figures) -> f64| Spread::of(taken[&way].iter().map(figure));
        let (rate, scripts) = (of(|it| it.rate / 1e3), of(|it| it.scripts));
        println!(
            "{name:<8} {rate:>8.1} | {scripts:>8.0} | {:>8.1} | {:.4} % | {:.0} us, {:.0} us | degraded {}",
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
