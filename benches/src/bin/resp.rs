//! Compares checks over the Redis protocol with a bare server that answers a constant, with `GET` of redis-server, and with
//! throttlecrab's server.
//!
//! It measures commands a second one by one and sixteen at once, and the time to an answer at a fixed rate. Servers have one
//! processor, the client has the other.
//!
//!     cargo build --release --no-default-features && cargo run --release -p tidegate-benches --bin resp

#![expect(clippy::print_stdout, reason = "the program prints its figures")]

use std::{path::Path, process::Command, time::Duration};

use clap::Parser;
use tempfile::TempDir;
use tidegate_benches::{
    BenchResult,
    latency::Latencies,
    servers::{
        CLIENT_CPU, CONNECTIONS, ServerArguments, ServerProcess, free_port, pin_client, pinned, tidegate_command, turns,
    },
    spread::Spread,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    runtime,
    task::{LocalSet, spawn_local},
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const KEYS: usize = 1_000;
/// The numbers of commands that are sent at once.
const DEPTHS: [usize; 2] = [1, 16];
/// The arguments of a throttle command after its key: burst, count per period, and period.
const NUMBERS: [&str; 3] = ["1000000", "1000000", "1"];
/// The reply of the bare server to each command.
const CONSTANT: &[u8] = b"*5\r\n:0\r\n:1000001\r\n:1000000\r\n:-1\r\n:1\r\n";

/// Measures the Redis protocol. Takes `redis-benchmark` and `redis-server` (packages of Debian) and two processors.
#[derive(Debug, Parser)]
struct CommandLine {
    #[command(flatten)]
    arguments: ServerArguments,
}

fn main() -> BenchResult<()> {
    let CommandLine { arguments } = CommandLine::parse();
    if let Some(port) = arguments.bare {
        return bare(port);
    }
    let folder = TempDir::new()?;
    // Ours is the second side, and is compared with each of the others.
    let mut sides = vec![Side::bare()?, Side::tidegate(&arguments.binary, folder.path())?, Side::redis(folder.path())?];
    if let Some(binary) = &arguments.throttlecrab {
        sides.push(Side::throttlecrab(binary)?);
    }
    pin_client()?;
    let mut figures: Vec<Figures> = sides.iter().map(|_| Figures::default()).collect();
    // For each side and depth, about as many commands as take `seconds`.
    let mut counts = Vec::new();
    for side in &sides {
        let count = |depth| Ok(format!("{:.0}", side.benchmark(depth, "50000")?.0 * arguments.seconds as f64));
        counts.push(DEPTHS.into_iter().map(count).collect::<BenchResult<Vec<_>>>()?);
    }
    for place in turns(arguments.rounds, sides.len()) {
        let (side, of) = (&sides[place], &mut figures[place]);
        for ((depth, count), of) in DEPTHS.into_iter().zip(&counts[place]).zip([&mut of.single, &mut of.piped]) {
            let (per_second, ns) = side.benchmark(depth, count)?;
            of.per_second.push(per_second);
            of.processor_ns.push(ns);
        }
        let length = Duration::from_secs(arguments.seconds);
        of.latency.record(&side.server.timed(&side.requests(), is_whole, arguments.rate, length)?);
    }
    report(&sides, &figures, arguments.rate);
    Ok(())
}

fn report(sides: &[Side], figures: &[Figures], rate: u64) {
    for (side, Figures { single, piped, latency }) in sides.iter().zip(figures) {
        println!(
            "{:13} {:.0} commands/s, sixteen at once {:.0}; {:.0} ns of the processor each, sixteen at once {:.0}; at {rate}/s: {}",
            side.server.name,
            Spread::of(&single.per_second),
            Spread::of(&piped.per_second),
            Spread::of(&single.processor_ns),
            Spread::of(&piped.processor_ns),
            latency.text()
        );
    }
    let ours = &figures[1];
    for (other, goals) in [(0, ["none", "0.6"]), (2, ["none", "1"]), (3, ["1.1", "4"])] {
        let Some(theirs) = figures.get(other) else { continue };
        let ratio = |theirs: &Throughput, ours: &Throughput| {
            Spread::by_round(&theirs.processor_ns, &ours.processor_ns, |theirs, ours| theirs / ours)
        };
        println!(
            "commands in the same time of the processor, of {}'s: {:.2} (goal: {}), sixteen at once {:.2} (goal: {})",
            sides[other].server.name,
            ratio(&theirs.single, &ours.single),
            goals[0],
            ratio(&theirs.piped, &ours.piped),
            goals[1]
        );
    }
    println!("{}", ours.latency.added_to_bare(&figures[0].latency));
}

/// The figures of one server, with one value for each round.
#[derive(Default)]
struct Figures {
    /// Commands one by one.
    single: Throughput,
    /// Sixteen commands at once.
    piped: Throughput,
    latency: Latencies,
}

/// Commands of `redis-benchmark` at full speed.
#[derive(Default)]
struct Throughput {
    per_second: Vec<f64>,
    /// The processor time of the server for each command. `redis-benchmark` is no faster than the servers, so this figure shows
    /// how many commands they could answer.
    processor_ns: Vec<f64>,
}

/// Runs the bare server, which answers a constant to each array without reading further. Keys have no asterisk, so counting
/// asterisks counts arrays.
fn bare(port: u16) -> BenchResult<()> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async {
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        loop {
            let (mut socket, _) = listener.accept().await?;
            socket.set_nodelay(true)?;
            spawn_local(async move {
                let (mut input, mut replies) = (vec![0; 16 << 10], Vec::new());
                while let Ok(bytes @ 1..) = socket.read(&mut input).await {
                    replies.clear();
                    for _ in input[..bytes].iter().filter(|byte| **byte == b'*') {
                        replies.extend_from_slice(CONSTANT);
                    }
                    if socket.write_all(&replies).await.is_err() {
                        break;
                    }
                }
            });
        }
    })
}

/// A server under load, with the command that it gets.
struct Side {
    server: ServerProcess,
    /// The name of the command.
    name: &'static str,
    /// The arguments after the key.
    numbers: &'static [&'static str],
}

impl Side {
    fn bare() -> BenchResult<Self> {
        Ok(Self { server: ServerProcess::start_bare()?, name: "CL.THROTTLE", numbers: &NUMBERS })
    }

    fn tidegate(binary: &Path, folder: &Path) -> BenchResult<Self> {
        let port = free_port()?;
        let command = tidegate_command(binary, &[("--resp", port)], &folder.join("data"));
        Ok(Self { server: ServerProcess::start("tidegate", command, port)?, name: "CL.THROTTLE", numbers: &NUMBERS })
    }

    fn redis(folder: &Path) -> BenchResult<Self> {
        let port = free_port()?;
        let mut command = pinned(Path::new("redis-server"));
        command.args(["--port", &port.to_string(), "--save", "", "--appendonly", "no", "--dir"]).arg(folder);
        // Each key gets a value, which `GET` then returns.
        let set =
            Self { server: ServerProcess::start("redis GET", command, port)?, name: "SET", numbers: &["1000000"] };
        set.benchmark(16, "50000")?;
        Ok(Self { name: "GET", numbers: &[], ..set })
    }

    fn throttlecrab(binary: &Path) -> BenchResult<Self> {
        Ok(Self { server: ServerProcess::start_throttlecrab(binary, "redis")?, name: "THROTTLE", numbers: &NUMBERS })
    }

    /// Sends `count` commands at full speed, `depth` at once. Returns commands a second, and the server's processor time for each
    /// in nanoseconds.
    fn benchmark(&self, depth: usize, count: &str) -> BenchResult<(f64, f64)> {
        let before = self.server.processor_time()?;
        let output = Command::new("taskset")
            .args(["-c", &CLIENT_CPU.to_string(), "redis-benchmark", "--csv", "-e"])
            .args(["-p", &self.server.port.to_string(), "-c", &CONNECTIONS.to_string(), "-r", &KEYS.to_string()])
            .args(["-P", &depth.to_string(), "-n", count])
            .args([self.name, "key:__rand_int__"])
            .args(self.numbers)
            .output()?;
        let report = String::from_utf8_lossy(&output.stdout);
        let figure = report.lines().last().and_then(|line| line.split("\",\"").nth(1)?.parse().ok());
        let figure = figure
            .ok_or_else(|| format!("{}: {report}{}", self.server.name, String::from_utf8_lossy(&output.stderr)))?;
        let took = self.server.processor_time()?.saturating_sub(before);
        Ok((figure, took.as_nanos() as f64 / count.parse::<f64>()?))
    }

    /// Returns the encoded commands, one for each key.
    fn requests(&self) -> Vec<String> {
        let request = |key| {
            let key = format!("key:{key:012}");
            let words = [self.name, &key].into_iter().chain(self.numbers.iter().copied());
            let words: Vec<String> = words.map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
            format!("*{}\r\n{}", words.len(), words.concat())
        };
        (0..KEYS).map(request).collect()
    }
}

/// Returns whether a reply is complete: five numbers, or the value of a key.
fn is_whole(answer: &[u8]) -> BenchResult<bool> {
    let lines = match answer.first() {
        None => return Ok(false),
        Some(b'*') => 6,
        Some(b'$') => 2,
        Some(_) => return Err(answer.escape_ascii().to_string().into()),
    };
    Ok(answer.windows(2).filter(|two| two == b"\r\n").count() == lines)
}
