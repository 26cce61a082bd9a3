//! The Redis protocol, beside a bare server that answers a constant, redis-server's own `GET`, and throttlecrab's server:
//! commands a second one by one and sixteen at once, and the time to an answer at a fixed rate. Servers have one processor,
//! whoever asks them the other.
//!
//!     cargo build --release --no-default-features && cargo run --release -p tidegate-benches --bin resp

#![expect(clippy::print_stdout, reason = "it prints its figures")]

use std::{path::Path, process::Command, time::Duration};

use clap::Parser;
use tempfile::TempDir;
use tidegate_benches::servers::{
    Arguments, CLIENT_CPU, CONNECTIONS, Outcome, Server, free_port, pin_client, pinned, spread, turns,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    runtime,
    task::{LocalSet, spawn_local},
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Keys that are counted.
const KEYS: usize = 1_000;
/// How many commands are sent at once.
const DEPTHS: [usize; 2] = [1, 16];
/// What the bare server answers to each command.
const CONSTANT: &[u8] = b"*5\r\n:0\r\n:1000001\r\n:1000000\r\n:-1\r\n:1\r\n";

/// Measures the Redis protocol. Takes `redis-benchmark` and `redis-server` (packages of Debian) and two processors.
#[derive(Debug, Parser)]
struct Call {
    #[command(flatten)]
    arguments: Arguments,
}

fn main() -> Outcome<()> {
    let Call { arguments } = Call::parse();
    if let Some(port) = arguments.bare {
        return bare(port);
    }
    let folder = TempDir::new()?;
    // Ours is the second, and is compared with each of the others.
    let mut sides = vec![Side::bare()?, Side::tidegate(&arguments.binary, folder.path())?, Side::redis(folder.path())?];
    if let Some(binary) = &arguments.throttlecrab {
        sides.push(Side::throttlecrab(binary)?);
    }
    pin_client()?;
    let mut figures: Vec<Figures> = sides.iter().map(|_| Figures::default()).collect();
    // Of each, about as many commands as take so long.
    let mut counts = Vec::new();
    for side in &sides {
        let count = |depth| Ok(format!("{:.0}", side.benchmark(depth, "50000")?.0 * arguments.seconds as f64));
        counts.push(DEPTHS.into_iter().map(count).collect::<Outcome<Vec<_>>>()?);
    }
    for place in turns(arguments.rounds, sides.len()) {
        let (side, of) = (&sides[place], &mut figures[place]);
        for (depth, count) in DEPTHS.into_iter().zip(&counts[place]) {
            let (per_second, ns) = side.benchmark(depth, count)?;
            let (rates, times) =
                if depth == 1 { (&mut of.single, &mut of.single_ns) } else { (&mut of.piped, &mut of.piped_ns) };
            rates.push(per_second);
            times.push(ns);
        }
        let length = Duration::from_secs(arguments.seconds);
        let took = side.server.timed(&side.requests(), is_whole, arguments.rate, length)?;
        of.p50_us.push(took.quantile(0.5) as f64 / 1e3);
        of.p99_us.push(took.quantile(0.99) as f64 / 1e3);
    }
    for (side, of) in sides.iter().zip(&figures) {
        println!(
            "{:13} {} commands/s, sixteen at once {}; {} ns of the processor each, sixteen at once {}; at {}/s: p50 {} us, p99 {} us",
            side.server.name,
            spread(&of.single, 0),
            spread(&of.piped, 0),
            spread(&of.single_ns, 0),
            spread(&of.piped_ns, 0),
            arguments.rate,
            spread(&of.p50_us, 0),
            spread(&of.p99_us, 0)
        );
    }
    for (other, goals) in [(0, ["none", "0.6"]), (2, ["none", "1"]), (3, ["1.1", "4"])] {
        let Some(theirs) = figures.get(other) else { continue };
        let ratio = |of: fn(&Figures) -> &Vec<f64>| -> Vec<f64> {
            of(theirs).iter().zip(of(&figures[1])).map(|(theirs, ours)| theirs / ours).collect()
        };
        println!(
            "commands in the same time of the processor, of {}'s: {} (goal: {}), sixteen at once {} (goal: {})",
            sides[other].server.name,
            spread(&ratio(|of| &of.single_ns), 2),
            goals[0],
            spread(&ratio(|of| &of.piped_ns), 2),
            goals[1]
        );
    }
    let added = |of: fn(&Figures) -> &Vec<f64>| -> Vec<f64> {
        of(&figures[1]).iter().zip(of(&figures[0])).map(|(ours, bare)| ours - bare).collect()
    };
    println!("added to the bare server's p50: {} us (goal: under 200)", spread(&added(|of| &of.p50_us), 0));
    println!("added to the bare server's p99: {} us (goal: under 1000)", spread(&added(|of| &of.p99_us), 0));
    Ok(())
}

/// One figure for each round.
#[derive(Default)]
struct Figures {
    /// Commands a second, one by one.
    single: Vec<f64>,
    /// The same, sixteen at once.
    piped: Vec<f64>,
    /// Of the server's processor, for each command. `redis-benchmark` is no faster than the servers, so how many commands they
    /// would answer shows here.
    single_ns: Vec<f64>,
    piped_ns: Vec<f64>,
    p50_us: Vec<f64>,
    p99_us: Vec<f64>,
}

/// Answers a constant to each array that comes, and looks no further into it. Keys have no asterisk.
fn bare(port: u16) -> Outcome<()> {
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

/// A server that is asked.
struct Side {
    server: Server,
    /// The command, but for its key.
    name: &'static str,
    numbers: &'static [&'static str],
}

impl Side {
    fn bare() -> Outcome<Self> {
        let port = free_port()?;
        let mut command = pinned(&std::env::current_exe()?);
        command.args(["--bare", &port.to_string()]);
        Self::start("bare", command, port, ("CL.THROTTLE", &["1000000", "1000000", "1"]))
    }

    fn tidegate(binary: &Path, folder: &Path) -> Outcome<Self> {
        let port = free_port()?;
        let mut command = pinned(binary);
        command.args([
            "serve",
            "--admin",
            "127.0.0.1:0",
            "--http",
            "127.0.0.1:0",
            "--grpc",
            "127.0.0.1:0",
            "--workers",
            "1",
            "--log",
            "error",
        ]);
        command.arg("--resp").arg(format!("127.0.0.1:{port}")).arg("--data").arg(folder.join("data"));
        Self::start("tidegate", command, port, ("CL.THROTTLE", &["1000000", "1000000", "1"]))
    }

    fn redis(folder: &Path) -> Outcome<Self> {
        let port = free_port()?;
        let mut command = pinned(Path::new("redis-server"));
        command.args(["--port", &port.to_string(), "--save", "", "--appendonly", "no", "--dir"]).arg(folder);
        let side = Self::start("redis GET", command, port, ("GET", &[]))?;
        // So that there is something at each key.
        let set = Self { name: "SET", numbers: &["1000000"], ..side };
        set.benchmark(16, "50000")?;
        Ok(Self { name: "GET", numbers: &[], ..set })
    }

    fn throttlecrab(binary: &Path) -> Outcome<Self> {
        let port = free_port()?;
        let mut command = pinned(binary);
        command.args(["--redis", "--redis-port", &port.to_string(), "--log-level", "error"]);
        Self::start("throttlecrab", command, port, ("THROTTLE", &["1000000", "1000000", "1"]))
    }

    fn start(
        name: &'static str,
        command: Command,
        port: u16,
        (of, numbers): (&'static str, &'static [&'static str]),
    ) -> Outcome<Self> {
        Ok(Self { server: Server::start(name, command, port)?, name: of, numbers })
    }

    /// Commands a second, as many as there can be, of so many, of which so many are sent at once.
    fn benchmark(&self, depth: usize, count: &str) -> Outcome<(f64, f64)> {
        let before = self.server.processor_time()?;
        let output = Command::new("taskset")
            .args(["-c", &CLIENT_CPU.to_string(), "redis-benchmark", "--csv", "-e"])
            .args(["-p", &self.server.port.to_string(), "-c", &CONNECTIONS.to_string(), "-r", &KEYS.to_string()])
            .args(["-P", &depth.to_string(), "-n", count])
            .args([self.name, "key:__rand_int__"])
            .args(self.numbers)
            .output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        let figure = said.lines().last().and_then(|line| line.split("\",\"").nth(1)?.parse().ok());
        let figure =
            figure.ok_or_else(|| format!("{}: {said}{}", self.server.name, String::from_utf8_lossy(&output.stderr)))?;
        let took = self.server.processor_time()?.saturating_sub(before);
        Ok((figure, took.as_nanos() as f64 / count.parse::<f64>()?))
    }

    /// As they go over the wire, one for each key.
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

/// Five numbers, or what is at that key.
fn is_whole(answer: &[u8]) -> Outcome<bool> {
    let lines = match answer.first() {
        None => return Ok(false),
        Some(b'*') => 6,
        Some(b'$') => 2,
        Some(_) => return Err(answer.escape_ascii().to_string().into()),
    };
    Ok(answer.windows(2).filter(|two| two == b"\r\n").count() == lines)
}
