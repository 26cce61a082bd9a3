//! Compares ways in which nodes can charge a hot key in a real Redis: decisions a second, and commands a decision.
//!
//! - `swaps`: the node reads the bucket, makes the engine's step, and writes the result if no other node has written meanwhile;
//!   otherwise it tries again.
//! - `swaps, in turn`: the same, one check after the other on each node.
//! - `swaps, together`: the same, with all waiting checks of a node in one step.
//! - `additions, one by one`: the script of the store, with one check a call.
//! - `additions, together`: the calls of `SharedEngine`, which charge all waiting checks in one call.
//!
//! Four nodes of this process have a number of waiting checks each. Redis has one processor, the nodes have the other.
#![expect(clippy::print_stdout, reason = "the program prints a report")]
#![expect(clippy::disallowed_methods, reason = "time is what is measured")]

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use clap::Parser;
use redis::{Script, aio::MultiplexedConnection};
use tidegate::{Decide, Identity, Request, algorithm::Meter, internals::Verdict};
use tidegate_benches::{
    BenchResult,
    servers::{pin_client, turns},
    spread::Spread,
    store::{connect_node, script_calls, start_redis},
};
use tidegate_fleet::store::{SharedEngine, StoreSettings};
use tokio::{runtime, sync::Mutex, task::JoinSet};

const NODES: usize = 4;
const WAYS: [&str; 5] = ["swaps", "swaps, in turn", "swaps, together", "additions, one by one", "additions, together"];

/// Charges a hot key of a real Redis in several ways, in turn.
#[derive(Parser)]
struct Arguments {
    /// Rounds; in each, every way is measured once.
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Milliseconds for which each way is measured.
    #[arg(long, default_value_t = 1_000)]
    millis: u64,
    /// Checks that wait at once, on each node.
    #[arg(long, default_value_t = 16)]
    waiting: usize,
}

/// The script of a swap: writes the bucket if it is unchanged, and returns whether it did and the bucket.
const SWAP: &str = "
local found = redis.call('GET', KEYS[1]) or ''
if found ~= ARGV[1] then return {0, found} end
redis.call('SET', KEYS[1], ARGV[2], 'EX', 3)
return {1, ARGV[2]}";

/// A meter that allows everything, so that each decision is a charge.
const METER: &str = "token_bucket/1000000/1000000000/1000000";

/// The decisions of all nodes.
#[derive(Default)]
struct DecisionCounts {
    decided: AtomicU64,
    denied: AtomicU64,
}

/// A node that charges the key by swaps.
struct SwapNode {
    connection: MultiplexedConnection,
    script: Script,
    meter: Meter,
}

impl SwapNode {
    /// Charges `checks` checks with one write. `known` is the bucket as this node last read it.
    async fn charge(&self, known: &mut String, checks: u64, count: &DecisionCounts) -> BenchResult<()> {
        loop {
            let now = u64::try_from(SystemTime::UNIX_EPOCH.elapsed()?.as_nanos())?;
            let mut bucket = known.parse().unwrap_or(0);
            for _ in 0..checks {
                match self.meter.step(bucket, now, 1) {
                    Verdict::Admit(after) => bucket = after,
                    _ => return Err("everything is allowed".into()),
                }
            }
            let mut connection = self.connection.clone();
            let mut swap = self.script.key("hot");
            let (is_written, current): (bool, String) =
                swap.arg(known.as_str()).arg(bucket).invoke_async(&mut connection).await?;
            *known = current;
            if is_written {
                count.decided.fetch_add(checks, Ordering::Relaxed);
                return Ok(());
            }
        }
    }
}

/// Makes one check of the hot key, and counts its decision.
async fn check(shared: &SharedEngine<tidegate::clock::SystemClock>, count: &DecisionCounts) -> BenchResult<()> {
    let who = [Identity::new("user", "hot")?];
    let request = Request::new(&who)?;
    let decision = shared.decide(&request).await;
    if decision.degraded().is_some() {
        return Err("the store did not answer".into());
    }
    let counter = if decision.is_allowed() { &count.decided } else { &count.denied };
    counter.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Lets all nodes charge the key in one way. Returns decisions a second, and scripts of the store a decision.
async fn measure(way: usize, url: &str, arguments: &Arguments) -> BenchResult<(f64, f64)> {
    let client = redis::Client::open(url)?;
    let mut watch = client.get_connection()?;
    let settings = StoreSettings { timeout: Duration::from_secs(5), ..StoreSettings::default() };
    let (count, mut tasks) = (Arc::new(DecisionCounts::default()), JoinSet::new());
    let end = Instant::now() + Duration::from_millis(arguments.millis);
    let calls_before = script_calls(&mut watch)?;
    for _ in 0..NODES {
        let connection = client.get_multiplexed_async_connection().await?;
        let swaps =
            Arc::new(SwapNode { connection, script: Script::new(SWAP), meter: METER.parse().map_err(|_| "a meter")? });
        let known = Arc::new(Mutex::new(String::new()));
        let together = connect_node(1_000_000, "strict", url, settings).await?;
        for at in 0..arguments.waiting {
            let (count, swaps, known) = (Arc::clone(&count), Arc::clone(&swaps), Arc::clone(&known));
            let shared = if WAYS[way] == "additions, one by one" {
                connect_node(1_000_000, "strict", url, settings).await?
            } else {
                Arc::clone(&together)
            };
            let (waiting, mut own) = (arguments.waiting as u64, String::new());
            if WAYS[way] == "swaps, together" && at > 0 {
                continue;
            }
            tasks.spawn(async move {
                while Instant::now() < end {
                    let done = match WAYS[way] {
                        "swaps" => swaps.charge(&mut own, 1, &count).await,
                        "swaps, in turn" => swaps.charge(&mut *known.lock().await, 1, &count).await,
                        "swaps, together" => swaps.charge(&mut own, waiting, &count).await,
                        _ => check(&shared, &count).await,
                    };
                    done.map_err(|error| error.to_string())?;
                }
                Ok::<_, String>(())
            });
        }
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    if count.denied.load(Ordering::Relaxed) > 0 {
        return Err("everything is allowed".into());
    }
    let decided = count.decided.load(Ordering::Relaxed) as f64;
    let calls = script_calls(&mut watch)? - calls_before;
    let () = redis::cmd("FLUSHALL").query(&mut watch)?;
    Ok((decided * 1e3 / arguments.millis as f64, calls as f64 / decided))
}

fn main() -> BenchResult<()> {
    let arguments = Arguments::parse();
    pin_client()?;
    let (server, url) = start_redis(Some(0))?;
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let mut taken: HashMap<usize, Vec<(f64, f64)>> = HashMap::new();
    for way in turns(arguments.rounds, WAYS.len()) {
        taken.entry(way).or_default().push(runtime.block_on(measure(way, &url, &arguments))?);
    }
    println!(
        "{NODES} nodes, {} checks waiting on each, {} rounds of {} ms",
        arguments.waiting, arguments.rounds, arguments.millis
    );
    for (way, name) in WAYS.iter().enumerate() {
        let rate = Spread::of(taken[&way].iter().map(|(rate, _)| *rate / 1e3));
        let calls = Spread::of(taken[&way].iter().map(|(_, calls)| *calls));
        println!("{name:<24} {rate:>7.1} thousand decisions/s, {calls:.3} scripts a decision");
    }
    drop(server);
    Ok(())
}
