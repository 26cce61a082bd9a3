//! The time to an answer of callers over HTTP, the Redis protocol and gRPC, of one whose limit is in a real Redis, and of a user of
//! the admin server, alone and beside a hostile caller at another address. The server has one worker and one processor. The
//! callers and Redis share the other one, where the hostile one runs only while the timed ones wait (its threads are of the
//! scheduler's idle class, by `chrt`). `busy loops` is the control: the same threads, which compute and leave the server alone.
//! What a row has more than that row is what the server takes longer.
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
    slice,
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
    admin_session::AdminSession,
    histogram::Histogram,
    http2,
    servers::{CLIENT_CPU, Outcome, Server, free_port, is_whole_over_http, pin_client, pinned, spread, turns},
    store::redis,
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
/// Stands in the answer to a check that was decided without the store.
const DEGRADED: &[u8] = b"\"degraded\":\"";
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

const SIDES: [(&str, Option<Attack>); 18] = [
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
    ("store: batches of 1,000 new users", Some(Attacker::bring_shared_users)),
    ("store: batches of 64 on 1,200 conn.", Some(Attacker::flood_shared_batches)),
    ("gRPC: batches that are not read", Some(Attacker::read_nothing_over_grpc)),
    ("gRPC: batches of 64 on 1,200 conn.", Some(Attacker::flood_calls)),
    ("admin: wrong passwords", Some(Attacker::guess_passwords)),
    ("admin: bodies that do not end", Some(Attacker::begin_sign_ins)),
    ("admin: a viewer's reads on 1,200 conn.", Some(Attacker::flood_reads)),
];

/// The callers whose answers are timed.
const CALLERS: [&str; 5] = ["HTTP", "CL.THROTTLE", "gRPC", "store", "admin"];

/// The figures of one side, of each round: milliseconds of each caller at both quantiles, attacks a second, the part of them
/// that ended in an error, and the checks that were decided without the store.
#[derive(Default)]
struct Figures {
    took: [[Vec<f64>; 2]; CALLERS.len()],
    attacks: Vec<f64>,
    failed: Vec<f64>,
    degraded: Vec<f64>,
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
        of.degraded.push(target.degraded.load(Ordering::Relaxed) as f64);
    }
    println!("{rate} checks a second of each caller, milliseconds: median of {rounds} rounds (least to most)");
    for ((_, (name, _)), Figures { took, attacks, failed, degraded }) in sides.iter().zip(&figures) {
        println!("{name}: {} attacks a second, {} of them to an error", spread(attacks, 0), spread(failed, 2));
        println!("    checks that the store did not answer: {}", spread(degraded, 0));
        for (caller, [p50, p99]) in CALLERS.iter().zip(took) {
            println!("    {caller:12} p50 {}, p99 {}", spread(p50, 2), spread(p99, 2));
        }
    }
    Ok(())
}

/// A check of a user.
fn check(user: &str) -> String {
    check_of("user", user)
}

/// A check of an identity; limits of the kind `member` are in the store.
fn check_of(kind: &str, value: &str) -> String {
    json!({ "identities": [{ "kind": kind, "value": value }] }).to_string()
}

/// A `GET` of the audit log by the session of this cookie, which reads from the database.
fn read_as(cookie: &str) -> Vec<u8> {
    format!("GET /api/v1/audit?limit=20 HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {cookie}\r\n\r\n").into_bytes()
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
    /// Reads of the admin server by the user who is timed, and by the hostile one.
    read: Vec<u8>,
    hostile_read: Vec<u8>,
    is_over: AtomicBool,
    /// Attacks that were done, and those of them that ended in an error.
    attacks: AtomicU64,
    failed: AtomicU64,
    /// Users or keys that were brought so far: each is another one.
    brought: AtomicU64,
    /// Checks of the timed caller that were decided without the store.
    degraded: AtomicU64,
    _servers: [Server; 2],
}

impl Target {
    fn start(binary: &Path, folder: &Path) -> Outcome<Arc<Self>> {
        // It listens before other ports are looked for.
        let (redis, store) = redis(Some(CLIENT_CPU as u32))?;
        let [http, resp, grpc, admin] = [free_port()?, free_port()?, free_port()?, free_port()?];
        let limit = |sharing: &str| json!([{ "id": "s", "algorithm": "token_bucket", "limit": 1_000_000, "period": "1s", "sharing": sharing }]);
        let tiers = json!([
            { "id": "free", "limits": limit("local") },
            { "id": "shared", "limits": limit("strict") },
        ]);
        let defaults = json!({ "user": "free", "member": "shared" });
        let policy = json!({ "domains": { "default": { "defaults": defaults, "tiers": tiers } } });
        let file = folder.join("policy.json");
        fs::write(&file, policy.to_string())?;
        let mut command = pinned(binary);
        command.args(["serve", "--workers", "1", "--log", "error"]);
        for (listener, port) in [("--http", http), ("--resp", resp), ("--grpc", grpc), ("--admin", admin)] {
            command.args([listener, &format!("127.0.0.1:{port}")]);
        }
        command.arg("--policy").arg(file).arg("--data").arg(folder.join("data")).args(["--redis", &store]);
        let (server, output) = Server::start_with_output("tidegate", command, http)?;
        let session = AdminSession::set_up(output)?;
        let hostile = session.add_viewer("hostile")?;
        let [http, resp, grpc, admin] = [http, resp, grpc, admin].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        Ok(Arc::new(Self {
            http,
            resp,
            grpc,
            admin,
            read: read_as(&session.cookie),
            hostile_read: read_as(&hostile.cookie),
            is_over: AtomicBool::default(),
            attacks: AtomicU64::default(),
            failed: AtomicU64::default(),
            brought: AtomicU64::default(),
            degraded: AtomicU64::default(),
            _servers: [server, redis],
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
        self.degraded.store(0, Ordering::Relaxed);
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
        let of_store = || {
            let checks: Vec<_> =
                (0..KEYS).map(|user| post("/v1/check", &check_of("member", &format!("m{user}")))).collect();
            timed(by_socket(self.http, &checks, |answer| self.is_whole_of_store(answer))?, rate, length)
        };
        let of_admin = || timed(by_socket(self.admin, slice::from_ref(&self.read), is_whole_over_http)?, rate, length);
        let callers: [&(dyn Fn() -> Outcome<Histogram> + Sync); CALLERS.len()] =
            [&over_http, &over_resp, &over_grpc, &of_store, &of_admin];
        thread::scope(|scope| {
            let threads = callers.map(|caller| scope.spawn(|| caller().map_err(|error| error.to_string())));
            let took = threads.map(|thread| thread.join().unwrap_or_else(|_| Err("it panicked".to_owned())));
            let took = took.into_iter().collect::<Result<Vec<_>, _>>()?;
            took.try_into().map_err(|_| "one for each caller".into())
        })
    }

    /// The same as [`is_whole_over_http`]; counts what was decided without the store.
    fn is_whole_of_store(&self, answer: &[u8]) -> Outcome<bool> {
        let is_whole = is_whole_over_http(answer)?;
        if is_whole && answer.windows(DEGRADED.len()).any(|part| part == DEGRADED) {
            self.degraded.fetch_add(1, Ordering::Relaxed);
        }
        Ok(is_whole)
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

    fn bring_shared_users(&self) -> io::Result<()> {
        self.exchange(self.target.http, &post("/v1/check/batch", &self.batch_of("member", 1_000)))
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

    fn flood_shared_batches(&self) -> io::Result<()> {
        let batch = post("/v1/check/batch", &self.batch_of("member", 64));
        self.flood(self.target.http, |_| batch.clone())
    }

    fn flood_reads(&self) -> io::Result<()> {
        self.flood(self.target.admin, |_| self.target.hostile_read.clone())
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
        self.batch_of("user", checks)
    }

    fn batch_of(&self, kind: &str, checks: u64) -> String {
        let check = |number| check_of(kind, &format!("new-{number}"));
        let checks: Vec<String> = self.target.numbers(checks).map(check).collect();
        format!(r#"{{"checks":[{}]}}"#, checks.join(","))
    }
}
