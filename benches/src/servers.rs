//! Servers beside each other: each is a process on one processor, and whoever asks has the other. What binaries that measure
//! them share.
#![expect(clippy::disallowed_methods, reason = "time is what is measured")]

use std::{
    error::Error,
    fs,
    io::{ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::thread::{CpuSet, sched_setaffinity};

use crate::histogram::Histogram;

/// What a measurement comes to, or why it came to nothing.
pub type Outcome<T> = Result<T, Box<dyn Error>>;

/// Where servers run, and where those who ask do.
const SERVER_CPU: usize = 0;
/// The other one.
pub const CLIENT_CPU: usize = 1;
/// Connections, all of them kept alive.
pub const CONNECTIONS: usize = 64;

/// What the command line of such a measurement takes.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Tidegate's binary.
    #[arg(long, default_value = "target/release/tidegate")]
    pub binary: PathBuf,
    /// throttlecrab's, if it is to take part: cargo install throttlecrab-server --root target/peers (needs protoc)
    #[arg(long)]
    pub throttlecrab: Option<PathBuf>,
    /// Rounds; in each, every server is asked once.
    #[arg(long, default_value_t = 9)]
    pub rounds: usize,
    /// How long each is asked, in seconds.
    #[arg(long, default_value_t = 2)]
    pub seconds: u64,
    /// Questions a second whose answers are timed.
    #[arg(long, default_value_t = 20_000)]
    pub rate: u64,
    /// Be the bare server, at this port.
    #[arg(long, hide = true)]
    pub bare: Option<u16>,
}

/// The places of those that are asked, one after the other: all of them in each round, which begins with another one.
pub fn turns(rounds: usize, sides: usize) -> impl Iterator<Item = usize> {
    (0..rounds).flat_map(move |round| (0..sides).map(move |turn| (round + turn) % sides))
}

/// Logs errors alone, as the servers that are measured do. A process without any filter spends a sixth of a call over HTTP/2 on
/// spans that are not logged: the crates of actix have them passed on to `log` then.
pub fn log_errors() {
    tracing_subscriber::fmt().with_env_filter("error").init();
}

/// Keeps this process to the processor of those who ask.
pub fn pin_client() -> Outcome<()> {
    let mut cpu = CpuSet::new();
    cpu.set(CLIENT_CPU);
    Ok(sched_setaffinity(None, &cpu)?)
}

/// A server that is asked. It ends when it is dropped.
#[derive(Debug)]
pub struct Server {
    /// As figures name it.
    pub name: &'static str,
    /// Where it listens, on this machine.
    pub port: u16,
    child: Child,
}

impl Server {
    /// Runs `command`, and waits until it listens at this port.
    pub fn start(name: &'static str, command: Command, port: u16) -> Outcome<Self> {
        Self::start_printing(name, command, port, Stdio::null())
    }

    /// Runs `command`, and waits until it listens at this port. Also returns its output.
    pub fn start_with_output(name: &'static str, command: Command, port: u16) -> Outcome<(Self, ChildStdout)> {
        let mut server = Self::start_printing(name, command, port, Stdio::piped())?;
        let output = server.child.stdout.take().ok_or("no output")?;
        Ok((server, output))
    }

    fn start_printing(name: &'static str, mut command: Command, port: u16, output: Stdio) -> Outcome<Self> {
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

    /// Of its process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The processor's time that it has taken, to a hundredth of a second.
    pub fn processor_time(&self) -> Outcome<Duration> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        // After the name, which may hold spaces: the 14th and 15th of all, in ticks of 10 ms.
        let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        let ticks = fields.skip(11).take(2).map(str::parse::<u64>).sum::<Result<u64, _>>()?;
        Ok(Duration::from_millis(10 * ticks))
    }

    /// How long answers take at so many requests a second, in nanoseconds since each was due. `is_whole`: is all of an answer
    /// there? An error: it is not one of success.
    pub fn timed(
        &self,
        requests: &[impl AsRef<[u8]>],
        is_whole: impl Fn(&[u8]) -> Outcome<bool>,
        rate: u64,
        length: Duration,
    ) -> Outcome<Histogram> {
        self.timed_beside(requests, is_whole, rate, length, || Ok(()))
    }

    /// The same, while `beside` is called again and again; it must not wait.
    pub fn timed_beside(
        &self,
        requests: &[impl AsRef<[u8]>],
        is_whole: impl Fn(&[u8]) -> Outcome<bool>,
        rate: u64,
        length: Duration,
        mut beside: impl FnMut() -> Outcome<()>,
    ) -> Outcome<Histogram> {
        let connect = |_| -> Outcome<TcpStream> {
            let socket = TcpStream::connect(("127.0.0.1", self.port))?;
            socket.set_nodelay(true)?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        let mut idle = (0..CONNECTIONS).map(connect).collect::<Outcome<Vec<_>>>()?;
        let mut asked: Vec<Asked> = Vec::with_capacity(CONNECTIONS);
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
                asked.push(Asked { socket, due, answer: Vec::new() });
                sent += 1;
            }
            beside()?;
            let mut place = 0;
            while place < asked.len() {
                let of = &mut asked[place];
                match of.socket.read(&mut buffer) {
                    Ok(0) => return Err(format!("{}: a connection was closed", self.name).into()),
                    Ok(bytes) => of.answer.extend_from_slice(&buffer[..bytes]),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error.into()),
                }
                if is_whole(&of.answer)? {
                    let of = asked.swap_remove(place);
                    took.record(began.elapsed().saturating_sub(of.due).as_nanos() as u64);
                    idle.push(of.socket);
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

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = (self.child.kill(), self.child.wait());
    }
}

/// A request that waits for its answer.
struct Asked {
    socket: TcpStream,
    due: Duration,
    answer: Vec<u8>,
}

/// The binary, on the servers' processor.
#[must_use]
pub fn pinned(binary: &Path) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", &SERVER_CPU.to_string()]).arg(binary);
    command
}

/// Returns whether an answer over HTTP is there with its whole body. An error: it is not one of success.
pub fn is_whole_over_http(answer: &[u8]) -> Outcome<bool> {
    let Some(head) = answer.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(false) };
    let text = std::str::from_utf8(&answer[..head])?.to_ascii_lowercase();
    if !text.starts_with("http/1.1 200") {
        return Err(text.into());
    }
    let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")).ok_or("no length")?;
    Ok(answer.len() >= head + 4 + length.parse::<usize>()?)
}

/// A port at which nobody listens.
pub fn free_port() -> Outcome<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// The median, with the least and the most.
#[must_use]
pub fn spread(figures: &[f64], digits: usize) -> String {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len() - 1;
    format!("{:.digits$} ({:.digits$} to {:.digits$})", sorted[last / 2], sorted[0], sorted[last])
}
