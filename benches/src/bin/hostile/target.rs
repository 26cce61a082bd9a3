//! The server under attack, and the callers whose answers are timed.

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    ops::Range,
    path::Path,
    process::Command,
    slice,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::thread::gettid;
use serde_json::json;
use tidegate_benches::{
    BenchResult,
    admin_session::AdminSession,
    histogram::Histogram,
    servers::{CLIENT_CPU, ServerProcess, free_port, is_whole_over_http, tidegate_command},
    store::start_redis,
};
use tidegate_service::grpc::proto::tidegate::v1::rate_limiter_client::RateLimiterClient;
use tokio::runtime;
use tonic::transport::Endpoint;

use crate::{
    CALLERS, LEAD,
    attacker::{ATTACKERS, Attack, Attacker},
    requests::{check, check_of, grpc_check, post, read_as},
};

/// The number of users and keys of the timed callers, which take turns.
const KEYS: usize = 1_000;
/// Part of the answer to a check that was decided without the store.
const DEGRADED: &[u8] = b"\"degraded\":\"";

/// A server under attack, with the counts of the attack.
pub(crate) struct Target {
    pub(crate) http: SocketAddr,
    pub(crate) resp: SocketAddr,
    pub(crate) grpc: SocketAddr,
    pub(crate) admin: SocketAddr,
    /// The request with which the timed user reads from the admin server.
    read: Vec<u8>,
    /// The request with which the hostile user reads from the admin server.
    pub(crate) hostile_read: Vec<u8>,
    pub(crate) is_over: AtomicBool,
    /// The number of attacks.
    pub(crate) attacks: AtomicU64,
    /// The number of attacks that ended in an error.
    pub(crate) failed: AtomicU64,
    /// The number of new users and keys that the attack has used, each of them once.
    used_numbers: AtomicU64,
    /// The number of checks of the timed caller that were decided without the store.
    pub(crate) degraded: AtomicU64,
    _servers: [ServerProcess; 2],
}

impl Target {
    /// Starts Redis and the server, and creates the users of the admin server.
    pub(crate) fn start(binary: &Path, folder: &Path) -> BenchResult<Arc<Self>> {
        // Redis listens before free ports for the server are chosen.
        let (redis, store) = start_redis(Some(CLIENT_CPU as u32))?;
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
        let listeners = [("--http", http), ("--resp", resp), ("--grpc", grpc), ("--admin", admin)];
        let mut command = tidegate_command(binary, &listeners, &folder.join("data"));
        command.arg("--policy").arg(file).args(["--redis", &store]);
        let (server, output) = ServerProcess::start_with_output("tidegate", command, http)?;
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
            used_numbers: AtomicU64::default(),
            degraded: AtomicU64::default(),
            _servers: [server, redis],
        }))
    }

    /// Times the answers of each of [`CALLERS`] during an attack.
    pub(crate) fn measure_beside(
        self: &Arc<Self>,
        attack: Option<Attack>,
        rate: u32,
        length: Duration,
    ) -> BenchResult<[Histogram; CALLERS.len()]> {
        // Gives each key its bucket before the measurement.
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

    /// Times the answers of each of [`CALLERS`].
    fn measure(&self, rate: u32, length: Duration) -> BenchResult<[Histogram; CALLERS.len()]> {
        let over_http = || {
            let checks: Vec<_> = (0..KEYS).map(|user| post("/v1/check", &check(&format!("u{user}")))).collect();
            timed(socket_caller(self.http, &checks, is_whole_over_http)?, rate, length)
        };
        let over_resp = || {
            let throttles: Vec<_> =
                (0..KEYS).map(|key| format!("CL.THROTTLE k{key} 99 1000000 1\r\n").into_bytes()).collect();
            timed(socket_caller(self.resp, &throttles, is_allowed_over_resp)?, rate, length)
        };
        let over_grpc = || timed(grpc_caller(self.grpc)?, rate, length);
        let of_store = || {
            let checks: Vec<_> =
                (0..KEYS).map(|user| post("/v1/check", &check_of("member", &format!("m{user}")))).collect();
            timed(socket_caller(self.http, &checks, |answer| self.is_whole_of_store(answer))?, rate, length)
        };
        let of_admin =
            || timed(socket_caller(self.admin, slice::from_ref(&self.read), is_whole_over_http)?, rate, length);
        let callers: [&(dyn Fn() -> BenchResult<Histogram> + Sync); CALLERS.len()] =
            [&over_http, &over_resp, &over_grpc, &of_store, &of_admin];
        thread::scope(|scope| {
            let threads = callers.map(|caller| scope.spawn(|| caller().map_err(|error| error.to_string())));
            let took = threads.map(|thread| thread.join().unwrap_or_else(|_| Err("a caller panicked".to_owned())));
            let took = took.into_iter().collect::<Result<Vec<_>, _>>()?;
            took.try_into().map_err(|_| "one for each caller".into())
        })
    }

    /// Does the same as [`is_whole_over_http`], and counts checks that were decided without the store.
    fn is_whole_of_store(&self, answer: &[u8]) -> BenchResult<bool> {
        let is_whole = is_whole_over_http(answer)?;
        if is_whole && answer.windows(DEGRADED.len()).any(|part| part == DEGRADED) {
            self.degraded.fetch_add(1, Ordering::Relaxed);
        }
        Ok(is_whole)
    }

    /// Runs one thread of the attack until it is over.
    fn attack(self: &Arc<Self>, attack: Option<Attack>) {
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let thread = gettid().as_raw_nonzero().to_string();
        let has_yielded = Command::new("chrt").args(["--idle", "--pid", "0", &thread]).status();
        assert!(has_yielded.is_ok_and(|status| status.success()), "chrt of util-linux is there");
        let (Ok(runtime), Some(attack)) = (runtime, attack) else { return };
        let attacker = Attacker { target: Arc::clone(self), runtime };
        while !self.is_over.load(Ordering::Relaxed) {
            if attack(&attacker).is_err() {
                self.failed.fetch_add(1, Ordering::Relaxed);
            }
            self.attacks.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns numbers of users or keys that no attack has used yet.
    pub(crate) fn new_numbers(&self, count: u64) -> Range<u64> {
        let first = self.used_numbers.fetch_add(count, Ordering::Relaxed);
        first..first + count
    }
}

/// Returns whether a reply of `CL.THROTTLE` is complete: five numbers, the first of which says that the key is allowed.
fn is_allowed_over_resp(answer: &[u8]) -> BenchResult<bool> {
    let is_whole = answer.windows(2).filter(|two| two == b"\r\n").count() == 6;
    if is_whole && !answer.starts_with(b"*5\r\n:0\r\n") {
        return Err(answer.escape_ascii().to_string().into());
    }
    Ok(is_whole)
}

/// Calls `call` with 0, 1, 2 and so on, `rate` times a second. Returns the duration of each call, counted from when it was due.
fn timed(mut call: impl FnMut(usize) -> BenchResult<()>, rate: u32, length: Duration) -> BenchResult<Histogram> {
    let (mut took, began) = (Histogram::default(), Instant::now());
    for number in 0.. {
        let due = Duration::from_secs(1) / rate * number;
        if due >= length {
            break;
        }
        thread::sleep(due.saturating_sub(began.elapsed()));
        call(number as usize)?;
        took.record(began.elapsed().saturating_sub(due).as_nanos() as u64);
    }
    Ok(took)
}

/// Returns a function that sends these requests in turn on one connection, and waits for the answer.
fn socket_caller(
    to: SocketAddr,
    requests: &[Vec<u8>],
    is_whole: impl Fn(&[u8]) -> BenchResult<bool>,
) -> BenchResult<impl FnMut(usize) -> BenchResult<()>> {
    let (mut socket, mut buffer) = (TcpStream::connect(to)?, vec![0; 64 << 10]);
    socket.set_nodelay(true)?;
    Ok(move |number: usize| {
        socket.write_all(&requests[number % requests.len()])?;
        let mut bytes = 0;
        while !is_whole(&buffer[..bytes])? {
            match socket.read(&mut buffer[bytes..])? {
                0 => return Err("the connection was closed".into()),
                read => bytes += read,
            }
        }
        Ok(())
    })
}

/// Returns a function that checks one user after the other over gRPC, on one connection.
fn grpc_caller(to: SocketAddr) -> BenchResult<impl FnMut(usize) -> BenchResult<()>> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let channel = runtime.block_on(Endpoint::from_shared(format!("http://{to}"))?.connect())?;
    let mut limiter = RateLimiterClient::new(channel);
    Ok(move |number: usize| {
        let response =
            runtime.block_on(limiter.check_rate_limit(grpc_check(&format!("g{}", number % KEYS))))?.into_inner();
        if response.allowed { Ok(()) } else { Err("a check was denied".into()) }
    })
}
