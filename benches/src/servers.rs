//! Server processes under load: each server runs on one processor, the client on the other.
#![expect(clippy::disallowed_methods, reason = "time is what is measured")]

use std::{
    env, fs,
    io::{ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::thread::{CpuSet, sched_setaffinity};
use serde_json::{Value, json};

use crate::{BenchResult, histogram::Histogram};

/// The processor of the servers.
const SERVER_CPU: usize = 0;
/// The processor of the client.
pub const CLIENT_CPU: usize = 1;
/// The number of connections of a client, all of them kept alive.
pub const CONNECTIONS: usize = 64;

/// Command line of the programs that compare servers.
#[derive(Debug, clap::Args)]
pub struct ServerArguments {
    /// Tidegate's binary.
    #[arg(long, default_value = "target/release/tidegate")]
    pub binary: PathBuf,
    /// throttlecrab's, if it is to take part: cargo install throttlecrab-server --root target/peers (needs protoc)
    #[arg(long)]
    pub throttlecrab: Option<PathBuf>,
    /// Rounds; in each, every server is measured once.
    #[arg(long, default_value_t = 9)]
    pub rounds: usize,
    /// Seconds for which each server is measured in a round.
    #[arg(long, default_value_t = 2)]
    pub seconds: u64,
    /// Requests a second whose answers are timed.
    #[arg(long, default_value_t = 20_000)]
    pub rate: u64,
    /// Be the bare server, at this port.
    #[arg(long, hide = true)]
    pub bare: Option<u16>,
}

/// Returns the sides in the order in which they are measured: all of them in each round, which begins with another one.
pub fn turns(rounds: usize, sides: usize) -> impl Iterator<Item = usize> {
    (0..rounds).flat_map(move |round| (0..sides).map(move |turn| (round + turn) % sides))
}

/// Logs errors only, as the measured servers do. Without a filter a process spends a sixth of a call over HTTP/2 on spans that
/// are not logged, because the crates of actix pass them on to `log`.
pub fn log_errors() {
    tracing_subscriber::fmt().with_env_filter("error").init();
}

/// Pins this process to the processor of the client.
pub fn pin_client() -> BenchResult<()> {
    let mut cpu = CpuSet::new();
    cpu.set(CLIENT_CPU);
    Ok(sched_setaffinity(None, &cpu)?)
}

/// A server process, which is killed on drop.
#[derive(Debug)]
pub struct ServerProcess {
    /// The name in reports.
    pub name: &'static str,
    /// The port on 127.0.0.1 at which the server listens.
    pub port: u16,
    child: Child,
}

impl ServerProcess {
    /// Runs `command`, and waits until the server listens at `port`.
    pub fn start(name: &'static str, command: Command, port: u16) -> BenchResult<Self> {
        Self::spawn(name, command, port, Stdio::null())
    }

    /// Does the same as [`ServerProcess::start`], and also returns the standard output of the server.
    pub fn start_with_output(name: &'static str, command: Command, port: u16) -> BenchResult<(Self, ChildStdout)> {
        let mut server = Self::spawn(name, command, port, Stdio::piped())?;
        let output = server.child.stdout.take().ok_or("no output")?;
        Ok((server, output))
    }

    /// Starts this program a second time as the bare server.
    pub fn start_bare() -> BenchResult<Self> {
        let port = free_port()?;
        let mut command = pinned(&env::current_exe()?);
        command.args(["--bare", &port.to_string()]);
        Self::start("bare", command, port)
    }

    /// Starts throttlecrab's server with one of its protocols: `http`, `grpc` or `redis`.
    pub fn start_throttlecrab(binary: &Path, protocol: &str) -> BenchResult<Self> {
        let port = free_port()?;
        let mut command = pinned(binary);
        command.args([format!("--{protocol}"), format!("--{protocol}-port"), port.to_string()]);
        command.args(["--log-level", "error"]);
        Self::start("throttlecrab", command, port)
    }

    fn spawn(name: &'static str, mut command: Command, port: u16, output: Stdio) -> BenchResult<Self> {
        let child = command.stdout(output).spawn()?;
        let server = Self { name, port, child };
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if began.elapsed() > Duration::from_secs(20) {
                return Err(format!("{name} does not listen").into());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    /// Returns the ID of the process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the processor time that the server has used, to a hundredth of a second.
    pub fn processor_time(&self) -> BenchResult<Duration> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        // The fields after the name, which may contain spaces; times are the 14th and 15th field, in ticks of 10 ms.
        let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        let ticks = fields.skip(11).take(2).map(str::parse::<u64>).sum::<Result<u64, _>>()?;
        Ok(Duration::from_millis(10 * ticks))
    }

    /// Sends `rate` requests a second for this `length`, and returns the time to each answer in nanoseconds, counted from when
    /// the request was due. `is_whole` returns whether an answer is complete, or an error if the answer is not a success.
    pub fn timed(
        &self,
        requests: &[impl AsRef<[u8]>],
        is_whole: impl Fn(&[u8]) -> BenchResult<bool>,
        rate: u64,
        length: Duration,
    ) -> BenchResult<Histogram> {
        self.timed_beside(requests, is_whole, rate, length, || Ok(()))
    }

    /// Does the same as [`ServerProcess::timed`], and calls `beside` again and again meanwhile, which must not block.
    pub fn timed_beside(
        &self,
        requests: &[impl AsRef<[u8]>],
        is_whole: impl Fn(&[u8]) -> BenchResult<bool>,
        rate: u64,
        length: Duration,
        mut beside: impl FnMut() -> BenchResult<()>,
    ) -> BenchResult<Histogram> {
        let connect = |_| -> BenchResult<TcpStream> {
            let socket = TcpStream::connect(("127.0.0.1", self.port))?;
            socket.set_nodelay(true)?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        let mut idle = (0..CONNECTIONS).map(connect).collect::<BenchResult<Vec<_>>>()?;
        let mut pending: Vec<PendingRequest> = Vec::with_capacity(CONNECTIONS);
        let (mut took, mut sent, mut buffer) = (Histogram::default(), 0, [0; 4_096]);
        let all = rate * length.as_secs();
        let began = Instant::now();
        while took.total() < all {
            let due = Duration::from_nanos(sent * 1_000_000_000 / rate);
            if sent < all
                && began.elapsed() >= due
                && let Some(mut socket) = idle.pop()
            {
                socket.write_all(requests[sent as usize % requests.len()].as_ref())?;
                pending.push(PendingRequest { socket, due, answer: Vec::new() });
                sent += 1;
            }
            beside()?;
            let mut place = 0;
            while place < pending.len() {
                let request = &mut pending[place];
                match request.socket.read(&mut buffer) {
                    Ok(0) => return Err(format!("{}: a connection was closed", self.name).into()),
                    Ok(bytes) => request.answer.extend_from_slice(&buffer[..bytes]),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error.into()),
                }
                if is_whole(&request.answer)? {
                    let request = pending.swap_remove(place);
                    took.record(began.elapsed().saturating_sub(request.due).as_nanos() as u64);
                    idle.push(request.socket);
                } else {
                    place += 1;
                }
            }
            if began.elapsed() > 3 * length {
                return Err(format!("{}: {} of {all} answers in {:?}", self.name, took.total(), 3 * length).into());
            }
        }
        Ok(took)
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = (self.child.kill(), self.child.wait());
    }
}

struct PendingRequest {
    socket: TcpStream,
    due: Duration,
    answer: Vec<u8>,
}

/// Returns a command that runs `binary` on the processor of the servers.
#[must_use]
pub fn pinned(binary: &Path) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", &SERVER_CPU.to_string()]).arg(binary);
    command
}

/// Returns the command that runs Tidegate's server with one worker on the processor of the servers.
///
/// `listeners` are options such as `--http` with their ports. HTTP, gRPC and the admin server get any free port otherwise.
#[must_use]
pub fn tidegate_command(binary: &Path, listeners: &[(&str, u16)], data: &Path) -> Command {
    let mut command = pinned(binary);
    command.args(["serve", "--workers", "1", "--log", "error", "--data"]).arg(data);
    let defaults = ["--http", "--grpc", "--admin"].map(|option| (option, 0));
    let unnamed = defaults.iter().filter(|(option, _)| listeners.iter().all(|(named, _)| named != option));
    for (option, port) in listeners.iter().chain(unnamed) {
        command.args([option, &*format!("127.0.0.1:{port}")]);
    }
    command
}

/// Writes a policy to `folder`, and returns its file: each user has one limit that admits everything, and `rules` are added.
pub fn write_policy(folder: &Path, rules: &[Value]) -> BenchResult<PathBuf> {
    let tiers = json!([{ "id": "free", "limits": [wide_limit()] }]);
    let domain = json!({ "defaults": { "user": "free" }, "tiers": tiers, "rules": rules });
    let file = folder.join("policy.json");
    fs::write(&file, json!({ "domains": { "default": domain } }).to_string())?;
    Ok(file)
}

/// Returns a limit of a policy that admits everything.
#[must_use]
pub fn wide_limit() -> Value {
    json!({ "id": "second", "algorithm": "token_bucket", "limit": 1_000_000, "period": "1s" })
}

/// Returns whether an HTTP response has arrived with its whole body, or an error if its status is not 200.
pub fn is_whole_over_http(answer: &[u8]) -> BenchResult<bool> {
    let Some(head) = answer.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(false) };
    let text = std::str::from_utf8(&answer[..head])?.to_ascii_lowercase();
    if !text.starts_with("http/1.1 200") {
        return Err(text.into());
    }
    let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")).ok_or("no length")?;
    Ok(answer.len() >= head + 4 + length.parse::<usize>()?)
}

/// Returns a port at which no process listens.
pub fn free_port() -> BenchResult<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}
