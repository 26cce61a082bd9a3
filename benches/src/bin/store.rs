//! A hot key in a real Redis, by the ways in which nodes may charge it together: what a decision costs, and how many
//! commands it takes.
//!
//! - `swaps`: reads the word, makes the engine's step, and writes it if nobody wrote meanwhile; else again.
//! - `swaps, in turn`: the same, one check after the other on each node.
//! - `swaps, together`: the same, with all checks of a node that wait in one step.
//! - `additions, one by one`: the script of the store, a check a call.
//! - `additions, together`: as `Shared` asks, with the checks that wait charged in one call.
//!
//! Four nodes of this process, each with so many checks that wait at once; Redis has one processor, the nodes the other.
#![expect(clippy::print_stdout, reason = "a report")]
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
use tidegate::{
    Decide, Identity, Request,
    algorithm::{Meter, Verdict},
};
use tidegate_benches::{
    record::Spread,
    servers::{Outcome, pin_client, turns},
    store::{engine, redis, scripts},
};
use tidegate_fleet::store::{Shared, StoreAddress, StoreSettings};
use tokio::{runtime, sync::Mutex, task::JoinSet};

const NODES: usize = 4;
const WAYS: [&str; 5] = ["swaps", "swaps, in turn", "swaps, together", "additions, one by one", "additions, together"];

/// Charges a hot key of a real Redis in several ways, in turn.
#[derive(Parser)]
struct Arguments {
    /// Rounds; in each, every way is taken once.
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// How long each is taken, in milliseconds.
    #[arg(long, default_value_t = 1_000)]
    millis: u64,
    /// Checks that wait at once, on each node.
    #[arg(long, default_value_t = 16)]
    waiting: usize,
}

/// A word with a step: writes it where nobody wrote meanwhile, and says what is there.
const SWAP: &str = "
local found = redis.call('GET', KEYS[1]) or ''
if found ~= ARGV[1] then return {0, found} end
redis.call('SET', KEYS[1], ARGV[2], 'EX', 3)
return {1, ARGV[2]}";

/// So much that everything is allowed: each decision is a charge.
const METER: &str = "token_bucket/1000000/1000000000/1000000";

/// What nodes did, for as long as they may.
#[derive(Default)]
struct Count {
    decided: AtomicU64,
    denied: AtomicU64,
}

/// A word as this node knows it, and the way to the store.
struct Swaps {
    connection: MultiplexedConnection,
    script: Script,
    meter: Meter,
}

impl Swaps {
    /// Charges so many checks at once: none of them is written alone.
    async fn charge(&self, known: &mut String, checks: u64, count: &Count) -> Outcome<()> {
        loop {
            let now = u64::try_from(SystemTime::UNIX_EPOCH.elapsed()?.as_nanos())?;
            let mut word = known.parse().unwrap_or(0);
            for _ in 0..checks {
                match self.meter.step(word, now, 1) {
                    Verdict::Admit(after) => word = after,
                    _ => return Err("everything is allowed".into()),
                }
            }
            let mut connection = self.connection.clone();
            let mut asked = self.script.key("hot");
            let (is_made, found): (bool, String) =
                asked.arg(known.as_str()).arg(word).invoke_async(&mut connection).await?;
            *known = found;
            if is_made {
                count.decided.fetch_add(checks, Ordering::Relaxed);
                return Ok(());
            }
        }
    }
}

async fn check(shared: &Shared<tidegate::clock::SystemClock>, count: &Count) -> Outcome<()> {
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

/// Lets all nodes charge the key in one way; answers decisions a second, and commands of the store a decision.
async fn take(way: usize, url: &str, arguments: &Arguments) -> Outcome<(f64, f64)> {
    let (client, address) = (redis::Client::open(url)?, StoreAddress::new(&[url]));
    let mut watch = client.get_connection()?;
    let settings = StoreSettings { timeout: Duration::from_secs(5), ..StoreSettings::default() };
    let (count, mut tasks) = (Arc::new(Count::default()), JoinSet::new());
    let end = Instant::now() + Duration::from_millis(arguments.millis);
    let calls_before = scripts(&mut watch)?;
    for _ in 0..NODES {
        let connection = client.get_multiplexed_async_connection().await?;
        let swaps =
            Arc::new(Swaps { connection, script: Script::new(SWAP), meter: METER.parse().map_err(|_| "a meter")? });
        let known = Arc::new(Mutex::new(String::new()));
        let together = Arc::new(Shared::new(engine(1_000_000, "strict")?, &address, settings).await?);
        for at in 0..arguments.waiting {
            let (count, swaps, known) = (Arc::clone(&count), Arc::clone(&swaps), Arc::clone(&known));
            let shared = if WAYS[way] == "additions, one by one" {
                Arc::new(Shared::new(engine(1_000_000, "strict")?, &address, settings).await?)
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
    let calls = scripts(&mut watch)? - calls_before;
    let () = redis::cmd("FLUSHALL").query(&mut watch)?;
    Ok((decided * 1e3 / arguments.millis as f64, calls as f64 / decided))
}

fn main() -> Outcome<()> {
    let arguments = Arguments::parse();
    pin_client()?;
    let (server, url) = redis(Some(0))?;
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let mut taken: HashMap<usize, Vec<(f64, f64)>> = HashMap::new();
    for way in turns(arguments.rounds, WAYS.len()) {
        taken.entry(way).or_default().push(runtime.block_on(take(way, &url, &arguments))?);
    }
    println!(
        "{NODES} nodes, {} checks waiting on each, {} rounds of {} ms",
        arguments.waiting, arguments.rounds, arguments.millis
    );
    for (way, name) in WAYS.iter().enumerate() {
        let rate = Spread::of(taken[&way].iter().map(|(rate, _)| *rate / 1e3));
        let calls = Spread::of(taken[&way].iter().map(|(_, calls)| *calls));
        println!(
            "{name:<24} {:>7.1} ({:.1} to {:.1}) thousand decisions/s, {:.3} ({:.3} to {:.3}) scripts a decision",
            rate.median, rate.least, rate.most, calls.median, calls.least, calls.most
        );
    }
    drop(server);
    Ok(())
}
