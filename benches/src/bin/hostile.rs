//! The time to an answer of a caller over HTTP, one over the Redis protocol and one over gRPC, alone and beside a hostile caller
//! at another address. The server has one worker and one processor. The callers share the other one, where the hostile one runs only while
//! the timed ones wait (its threads are of the scheduler's idle class, by `chrt`). `busy loops` is the control: the same threads,
//! which compute and leave the server alone. What a row has more than that row is what the server takes longer.
//!
//!     cargo build --release --no-default-features && cargo run --release -p tidegate-benches --bin hostile

#![expect(clippy::print_stdout, clippy::disallowed_methods, reason = "it prints the times that it measures")]

use std::{
    fs, hint,
    io::{self, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    ops::Range,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use clap::Parser;
use prost::Message;
use rustix::{
    process::{Resource, Rlimit, getrlimit, setrlimit},
    thread::gettid,
};
use serde_json::json;
use tempfile::TempDir;
use tidegate_benches::{
    histogram::Histogram,
    http2,
    servers::{Outcome, Server, free_port, is_whole_over_http, pin_client, pinned, spread, turns},
};
use tidegate_service::grpc::proto::tidegate::v1::{
    BatchRateLimitRequest, RateLimitRequest, rate_limiter_client::RateLimiterClient,
};
use tokio::{
    net::TcpSocket,
    runtime::{self, Runtime},
};
use tonic::transport::Endpoint;

/// Users, and keys, of the callers that are timed, one after the other.
const KEYS: usize = 1_000;
/// How long an attack goes on before answers are timed.
const LEAD: Duration = Duration::from_millis(500);
/// How long connections are held, and how long is waited for an answer.
const HELD: Duration = Duration::from_millis(500);
const HOSTILE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// The threads of the hostile caller.
const ATTACKERS: usize = 8;
/// Connections of each of them that is to have many: nearly all that one address may have.
const CONNECTIONS: usize = 150;

/// Measures checks beside a hostile caller. Takes two processors.
#[derive(Debug, Parser)]
struct Call {
    /// Tidegate's binary.
    #[arg(long, default_value = "target/release/tidegate")]
    binary: PathBuf,
    /// Rounds; in each, answers are timed alone and beside every attack, each by a server of its own.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds for which answers are timed.
    #[arg(long, default_value_t = 2)]
    seconds: u64,
    /// Checks a second of each caller whose answers are timed.
    #[arg(long, default_value_t = 400)]
    rate: u32,
    /// Only attacks whose name has this in it, beside `alone` and `busy loops`.
    #[arg(long, default_value = "")]
    only: String,
}

/// An action that each thread of the hostile caller repeats. An error: the server ended a connection, or did not answer.
type Attack = fn(&Attacker) -> io::Result<()>;

const SIDES: [(&str, Option<Attack>); 15] = [
    ("alone", None),
    ("busy loops", Some(compute)),
    ("bodies that do not end", Some(Attacker::begin_bodies)),
    ("connections that say nothing", Some(Attacker::hold_connections)),
    ("connections that end at once", Some(Attacker::open_and_close)),
    ("batches whose answers are not read", Some(Attacker::read_nothing)),
    ("new users without end", Some(Attacker::bring_users)),
    ("new keys of CL.THROTTLE without end", Some(Attacker::bring_keys)),
    ("scrapes of the metrics", Some(Attacker::scrape)),
    ("batches of 64 on 1,200 connections", Some(Attacker::flood_batches)),
    ("100 commands on 1,200 connections", Some(Attacker::flood_commands)),
    ("gRPC: batches that are not read", Some(Attacker::read_nothing_over_grpc)),
    ("gRPC: batches of 64 on 1,200 conn.", Some(Attacker::flood_calls)),
    ("admin: wrong passwords", Some(Attacker::guess_passwords)),
    ("admin: bodies that do not end", Some(Attacker::begin_sign_ins)),
];

/// The callers whose answers are timed.
const CALLERS: [&str; 3] = ["HTTP", "CL.THROTTLE", "gRPC"];

/// The figures of one side, of each round: milliseconds of each caller at both quantiles, attacks a second, and the part of them
/// that ended in an error.
#[derive(Default)]
struct Figures {
    took: [[Vec<f64>; 2]; CALLERS.len()],
    attacks: Vec<f64>,
    failed: Vec<f64>,
}

fn main() -> Outcome<()> {
    let Call { binary, rounds, seconds, rate, only } = Call::parse();
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    pin_client()?;
    let sides: Vec<_> = (0..).zip(SIDES).filter(|(place, (name, _))| *place < 2 || name.contains(&only)).collect();
    let mut figures: Vec<_> = sides.iter().map(|_| Figures::default()).collect();
    for place in turns(rounds, sides.len()) {
        let folder = TempDir::new()?;
        let target = Target::start(&binary, folder.path())?;
        let (_, (_, attack)) = sides[place];
        let took = target.beside(attack, rate, Duration::from_secs(seconds))?;
        let of = &mut figures[place];
        for (figures, took) in of.took.iter_mut().zip(took) {
            for (figures, quantile) in figures.iter_mut().zip([0.5, 0.99]) {
                figures.push(took.quantile(quantile) as f64 / 1e6);
            }
        }
        let [attacks, failed] = [&target.attacks, &target.failed].map(|count| count.load(Ordering::Relaxed) as f64);
        of.attacks.push(attacks / (LEAD.as_secs_f64() + seconds as f64));
        of.failed.push(failed / attacks.max(1.0));
    }
    println!("{rate} checks a second of each caller, milliseconds: median of {rounds} rounds (least to most)");
    for ((_, (name, _)), Figures { took, attacks, failed }) in sides.iter().zip(&figures) {
        println!("{name}: {} attacks a second, {} of them to an error", spread(attacks, 0), spread(failed, 2));
        for (caller, [p50, p99]) in CALLERS.iter().zip(took) {
            println!("    {caller:12} p50 {}, p99 {}", spread(p50, 2), spread(p99, 2));
        }
    }
    Ok(())
}

fn check(user: &str) -> String {
    json!({ "identities": [{ "kind": "user", "value": user }] }).to_string()
}

fn post(path: &str, body: &str) -> Vec<u8> {
    let head = format!("POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n");
    format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// The control: leaves the server alone.
#[expect(clippy::unnecessary_wraps, reason = "it stands among attacks")]
fn compute(_: &Attacker) -> io::Result<()> {
    (0..1_000_000).for_each(|number| {
        hint::black_box(number);
    });
    Ok(())
}

/// Five numbers, of which the first says that the key is allowed.
fn is_allowed_over_resp(answer: &[u8]) -> Outcome<bool> {
    let is_whole = answer.windows(2).filter(|two| two == b"\r\n").count() == 6;
    if is_whole && !answer.starts_with(b"*5\r\n:0\r\n") {
        return Err(answer.escape_ascii().to_string().into());
    }
    Ok(is_whole)
}

/// Calls `ask` with 0, 1, 2 and so on, so many times a second. Returns how long each took since it was due.
fn timed(mut ask: impl FnMut(usize) -> Outcome<()>, rate: u32, length: Duration) -> Outcome<Histogram> {
    let (mut took, began) = (Histogram::default(), Instant::now());
    for number in 0.. {
        let due = Duration::from_secs(1) / rate * number;
        if due >= length {
            break;
        }
        thread::sleep(due.saturating_sub(began.elapsed()));
        ask(number as usize)?;
        took.record(began.elapsed().saturating_sub(due).as_nanos() as u64);
    }
    Ok(took)
}

/// Asks by these requests in turn, on one connection.
fn by_socket(
    to: SocketAddr,
    requests: &[Vec<u8>],
    is_whole: impl Fn(&[u8]) -> Outcome<bool>,
) -> Outcome<impl FnMut(usize) -> Outcome<()>> {
    let (mut socket, mut room) = (TcpStream::connect(to)?, vec![0; 64 << 10]);
    socket.set_nodelay(true)?;
    Ok(move |number: usize| {
        socket.write_all(&requests[number % requests.len()])?;
        let mut bytes = 0;
        while !is_whole(&room[..bytes])? {
            match socket.read(&mut room[bytes..])? {
                0 => return Err("the connection was closed".into()),
                read => bytes += read,
            }
        }
        Ok(())
    })
}

/// Asks over gRPC about one user after the other, on one connection.
fn by_grpc(to: SocketAddr) -> Outcome<impl FnMut(usize) -> Outcome<()>> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let channel = runtime.block_on(Endpoint::from_shared(format!("http://{to}"))?.connect())?;
    let mut limiter = RateLimiterClient::new(channel);
    Ok(move |number: usize| {
        let told = runtime.block_on(limiter.check_rate_limit(of_user(&format!("g{}", number % KEYS))))?.into_inner();
        if told.allowed { Ok(()) } else { Err("it is denied".into()) }
    })
}

fn of_user(user: &str) -> RateLimitRequest {
    RateLimitRequest { identifier: user.to_owned(), identifier_type: "user".to_owned(), ..RateLimitRequest::default() }
}

/// A server that is attacked.
struct Target {
    http: SocketAddr,
    resp: SocketAddr,
    grpc: SocketAddr,
    admin: SocketAddr,
    is_over: AtomicBool,
    /// Attacks that were done, and those of them that ended in an error.
    attacks: AtomicU64,
    failed: AtomicU64,
    /// Users or keys that were brought so far: each is another one.
    brought: AtomicU64,
    _server: Server,
}

impl Target {
    fn start(binary: &Path, folder: &Path) -> Outcome<Arc<Self>> {
        let [http, resp, grpc, admin] = [free_port()?, free_port()?, free_port()?, free_port()?];
        let limit = json!({ "id": "second", "algorithm": "token_bucket", "limit": 1_000_000, "period": "1s" });
        let tiers = json!([{ "id": "free", "limits": [limit] }]);
        let policy = json!({ "domains": { "default": { "defaults": { "user": "free" }, "tiers": tiers } } });
        let file = folder.join("policy.json");
        fs::write(&file, policy.to_string())?;
        let mut command = pinned(binary);
        command.args(["serve", "--workers", "1", "--log", "error"]);
        for (listener, port) in [("--http", http), ("--resp", resp), ("--grpc", grpc), ("--admin", admin)] {
            command.args([listener, &format!("127.0.0.1:{port}")]);
        }
        command.arg("--policy").arg(file).arg("--data").arg(folder.join("data"));
        let server = Server::start("tidegate", command, http)?;
        let [http, resp, grpc, admin] = [http, resp, grpc, admin].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        Ok(Arc::new(Self {
            http,
            resp,
            grpc,
            admin,
            is_over: AtomicBool::default(),
            attacks: AtomicU64::default(),
            failed: AtomicU64::default(),
            brought: AtomicU64::default(),
            _server: server,
        }))
    }

    /// Times the answers of each of [`CALLERS`] while this attack goes on.
    fn beside(
        self: &Arc<Self>,
        attack: Option<Attack>,
        rate: u32,
        length: Duration,
    ) -> Outcome<[Histogram; CALLERS.len()]> {
        // Each key has its bucket.
        self.measure(1_500, Duration::from_secs(1))?;
        thread::scope(|scope| {
            for _ in 0..if attack.is_some() { ATTACKERS } else { 0 } {
                scope.spawn(|| self.attack(attack));
            }
            thread::sleep(LEAD);
            let measured = self.measure(rate, length);
            self.is_over.store(true, Ordering::Relaxed);
            measured
        })
    }

    fn measure(&self, rate: u32, length: Duration) -> Outcome<[Histogram; CALLERS.len()]> {
        let over_http = || {
            let checks: Vec<_> = (0..KEYS).map(|user| post("/v1/check", &check(&format!("u{user}")))).collect();
            timed(by_socket(self.http, &checks, is_whole_over_http)?, rate, length)
        };
        let over_resp = || {
            let throttles: Vec<_> =
                (0..KEYS).map(|key| format!("CL.THROTTLE k{key} 99 1000000 1\r\n").into_bytes()).collect();
            timed(by_socket(self.resp, &throttles, is_allowed_over_resp)?, rate, length)
        };
        let over_grpc = || timed(by_grpc(self.grpc)?, rate, length);
        thread::scope(|scope| {
            let over_http = scope.spawn(|| over_http().map_err(|error| error.to_string()));
            let over_resp = scope.spawn(|| over_resp().map_err(|error| error.to_string()));
            let over_grpc = over_grpc()?;
            let [over_http, over_resp] = [over_http, over_resp].map(|thread| thread.join().map_err(|_| "it panicked"));
            Ok([over_http??, over_resp??, over_grpc])
        })
    }

    fn attack(self: &Arc<Self>, attack: Option<Attack>) {
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let thread = gettid().as_raw_nonzero().to_string();
        let has_yielded = Command::new("chrt").args(["--idle", "--pid", "0", &thread]).status();
        assert!(has_yielded.is_ok_and(|status| status.success()), "chrt of util-linux is there");
        let (Ok(runtime), Some(attack)) = (runtime, attack) else { return };
        let attacker = Attacker { target: Arc::clone(self), runtime };
        while !self.is_over.load(Ordering::Relaxed) {
            // An error is what an attack may come to.
            if attack(&attacker).is_err() {
                self.failed.fetch_add(1, Ordering::Relaxed);
            }
            self.attacks.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn numbers(&self, count: u64) -> Range<u64> {
        let first = self.brought.fetch_add(count, Ordering::Relaxed);
        first..first + count
    }
}

/// A thread of the hostile caller.
struct Attacker {
    target: Arc<Target>,
    runtime: Runtime,
}

impl Attacker {
    /// A tenth of a body of 1 MiB, on many connections.
    fn begin_bodies(&self) -> io::Result<()> {
        let head = post("/v1/check", &" ".repeat(1 << 20));
        self.hold(self.target.http, 20, &head[..100 << 10])
    }

    fn hold_connections(&self) -> io::Result<()> {
        self.hold(self.target.resp, CONNECTIONS, b"")
    }

    fn open_and_close(&self) -> io::Result<()> {
        self.connect(self.target.http).map(drop)
    }

    fn read_nothing(&self) -> io::Result<()> {
        self.hold(self.target.http, 1, &post("/v1/check/batch", &self.batch(10_000)))
    }

    fn bring_users(&self) -> io::Result<()> {
        self.exchange(self.target.http, &post("/v1/check/batch", &self.batch(1_000)))
    }

    fn bring_keys(&self) -> io::Result<()> {
        let key = |number| format!("CL.THROTTLE key-{number} 0 1 31536000\r\n");
        self.exchange(self.target.resp, self.target.numbers(1_000).map(key).collect::<String>().as_bytes())
    }

    fn scrape(&self) -> io::Result<()> {
        self.exchange(self.target.http, b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    }

    fn flood_batches(&self) -> io::Result<()> {
        let batch = post("/v1/check/batch", &self.batch(64));
        self.flood(self.target.http, |_| batch.clone())
    }

    fn flood_commands(&self) -> io::Result<()> {
        let commands = "CL.THROTTLE hostile 99 1000000 1\r\n".repeat(100).into_bytes();
        self.flood(self.target.resp, |_| commands.clone())
    }

    /// A batch of 1,000 users on each of three streams, for whose answers there is no window.
    fn read_nothing_over_grpc(&self) -> io::Result<()> {
        let mut said = http2::opening(0);
        for stream in [1, 3, 5] {
            http2::append(&mut said, stream, &self.grpc_batch(1_000));
        }
        self.hold(self.target.grpc, 20, &said)
    }

    fn flood_calls(&self) -> io::Result<()> {
        let batch = self.grpc_batch(64);
        self.flood(self.target.grpc, |time| {
            let mut said = if time == 0 { http2::opening(1 << 20) } else { Vec::new() };
            http2::append(&mut said, 2 * time + 1, &batch);
            said
        })
    }

    /// Another name on each connection. Most tries are refused: the address has made too many.
    fn guess_passwords(&self) -> io::Result<()> {
        let name = self.target.numbers(1).start;
        let body = json!({ "name": format!("user-{name}"), "password": "correct horse" }).to_string();
        self.exchange(self.target.admin, &post("/api/v1/session", &body))
    }

    /// All but the end of the longest body of a stranger.
    fn begin_sign_ins(&self) -> io::Result<()> {
        let sign_in = post("/api/v1/session", &" ".repeat(8 << 10));
        self.hold(self.target.admin, CONNECTIONS, &sign_in[..sign_in.len() - 1])
    }

    fn grpc_batch(&self, checks: u64) -> Vec<u8> {
        let requests = self.target.numbers(checks).map(|number| of_user(&format!("new-{number}"))).collect();
        let message = BatchRateLimitRequest { requests }.encode_to_vec();
        http2::request("/tidegate.v1.RateLimiter/CheckRateLimitBatch", &message)
    }

    fn connect(&self, to: SocketAddr) -> io::Result<TcpStream> {
        let stream = self.runtime.block_on(async {
            let socket = TcpSocket::new_v4()?;
            socket.bind((HOSTILE, 0).into())?;
            socket.connect(to).await?.into_std()
        })?;
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(HELD))?;
        stream.set_write_timeout(Some(HELD))?;
        Ok(stream)
    }

    /// Opens connections, says this on each, and holds them for a while. The server may end them before.
    fn hold(&self, to: SocketAddr, count: usize, said: &[u8]) -> io::Result<()> {
        let mut held = Vec::new();
        for _ in 0..count {
            let mut stream = self.connect(to)?;
            if stream.write_all(said).is_ok() {
                held.push(stream);
            }
        }
        thread::sleep(HELD);
        Ok(())
    }

    /// Sends what `said` returns for 0 to 19 on many connections at once, and reads what comes.
    fn flood(&self, to: SocketAddr, said: impl Fn(u32) -> Vec<u8>) -> io::Result<()> {
        let mut streams = (0..CONNECTIONS).map(|_| self.connect(to)).collect::<io::Result<Vec<_>>>()?;
        let mut room = vec![0; 64 << 10];
        for time in 0..20 {
            let said = said(time);
            for stream in &mut streams {
                stream.write_all(&said)?;
            }
            for stream in &mut streams {
                if stream.read(&mut room)? == 0 || self.target.is_over.load(Ordering::Relaxed) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Sends this ten times on one connection, and reads what comes at once.
    fn exchange(&self, to: SocketAddr, said: &[u8]) -> io::Result<()> {
        let (mut stream, mut room) = (self.connect(to)?, vec![0; 1 << 20]);
        for _ in 0..10 {
            stream.write_all(said)?;
            if stream.read(&mut room)? == 0 || self.target.is_over.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(())
    }

    fn batch(&self, checks: u64) -> String {
        let checks: Vec<String> = self.target.numbers(checks).map(|number| check(&format!("new-{number}"))).collect();
        format!(r#"{{"checks":[{}]}}"#, checks.join(","))
    }
}
