//! Measures the time to an answer beside a hostile caller at another address, and without it.
//!
//! The timed callers use HTTP, the Redis protocol and gRPC; one more has its limit in a real Redis, and one is a user of the
//! admin server. The server has one worker and one processor. The callers and Redis share the other processor, where the hostile
//! caller runs only while the timed callers wait (`chrt` puts its threads into the scheduler's idle class). `busy loops` is the
//! control: the same threads compute and send no request to the server. The difference of a row from that row is the delay of
//! the server.
//!
//!     cargo build --release --no-default-features && cargo run --release -p tidegate-benches --bin hostile

#![expect(clippy::print_stdout, clippy::disallowed_methods, reason = "the program prints the times that it measures")]

mod attacker;
mod requests;
mod target;

use std::{path::PathBuf, sync::atomic::Ordering, time::Duration};

use clap::Parser;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tempfile::TempDir;
use tidegate_benches::{
    BenchResult,
    servers::{pin_client, turns},
    spread::Spread,
};

use crate::{attacker::SIDES, target::Target};

/// The time for which an attack runs before answers are timed.
const LEAD: Duration = Duration::from_millis(500);

/// Measures checks beside a hostile caller. Takes two processors.
#[derive(Debug, Parser)]
struct CommandLine {
    /// Tidegate's binary.
    #[arg(long, default_value = "target/release/tidegate")]
    binary: PathBuf,
    /// Rounds; in each, answers are timed alone and beside every attack, each with a server of its own.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds for which answers are timed.
    #[arg(long, default_value_t = 2)]
    seconds: u64,
    /// Checks a second of each caller whose answers are timed.
    #[arg(long, default_value_t = 400)]
    rate: u32,
    /// Measure only attacks whose name contains this text, and `alone` and `busy loops`.
    #[arg(long, default_value = "")]
    only: String,
}

/// The names of the callers whose answers are timed.
const CALLERS: [&str; 5] = ["HTTP", "CL.THROTTLE", "gRPC", "store", "admin"];

/// The figures of one side, with one value for each round.
#[derive(Default)]
struct Figures {
    /// Milliseconds of each caller at the median and at the 99th percentile.
    took: [[Vec<f64>; 2]; CALLERS.len()],
    /// Attacks a second.
    attacks: Vec<f64>,
    /// The share of the attacks that ended in an error.
    failed: Vec<f64>,
    /// The number of checks that were decided without the store.
    degraded: Vec<f64>,
}

fn main() -> BenchResult<()> {
    let CommandLine { binary, rounds, seconds, rate, only } = CommandLine::parse();
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    pin_client()?;
    let sides: Vec<_> = (0..).zip(SIDES).filter(|(place, (name, _))| *place < 2 || name.contains(&only)).collect();
    let mut figures: Vec<_> = sides.iter().map(|_| Figures::default()).collect();
    for place in turns(rounds, sides.len()) {
        let folder = TempDir::new()?;
        let target = Target::start(&binary, folder.path())?;
        let (_, (_, attack)) = sides[place];
        let took = target.measure_beside(attack, rate, Duration::from_secs(seconds))?;
        let of = &mut figures[place];
        for (figures, took) in of.took.iter_mut().zip(took) {
            for (figures, quantile) in figures.iter_mut().zip([0.5, 0.99]) {
                figures.push(took.quantile(quantile) as f64 / 1e6);
            }
        }
        let [attacks, failed] = [&target.attacks, &target.failed].map(|count| count.load(Ordering::Relaxed) as f64);
        of.attacks.push(attacks / (LEAD.as_secs_f64() + seconds as f64));
        of.failed.push(failed / attacks.max(1.0));
        of.degraded.push(target.degraded.load(Ordering::Relaxed) as f64);
    }
    println!("{rate} checks a second of each caller, milliseconds: median of {rounds} rounds (least to most)");
    for ((_, (name, _)), Figures { took, attacks, failed, degraded }) in sides.iter().zip(&figures) {
        println!("{name}: {:.0} attacks a second, {:.2} of them to an error", Spread::of(attacks), Spread::of(failed));
        println!("    checks that the store did not answer: {:.0}", Spread::of(degraded));
        for (caller, [p50, p99]) in CALLERS.iter().zip(took) {
            println!("    {caller:12} p50 {:.2}, p99 {:.2}", Spread::of(p50), Spread::of(p99));
        }
    }
    Ok(())
}
