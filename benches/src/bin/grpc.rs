//! Checks over gRPC, beside a bare tonic server that answers a constant, and throttlecrab's server: one by one, a thousand in
//! a call, on a stream, and the time to an answer at a fixed rate. Servers have one processor, whoever asks them the other.
//! Requests are written as they go over the wire and answers are only counted, so that asking costs less than answering.
//!
//!     cargo build --release --no-default-features && cargo run --release -p tidegate-benches --bin grpc

#![expect(clippy::disallowed_methods, reason = "time is what is measured")]
#![expect(clippy::print_stdout, reason = "it prints its figures")]

use std::{
    convert::Infallible,
    fs,
    future::{Ready, ready},
    net::Ipv4Addr,
    path::Path,
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use clap::Parser;
use prost::Message;
use serde_json::json;
use tempfile::TempDir;
use tidegate_benches::{
    histogram::Histogram,
    http2::{Connection, request},
    servers::{Arguments, Outcome, Server, free_port, log_errors, pin_client, pinned, spread, turns},
};
use tidegate_service::grpc::proto::{
    envoy::{
        extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor::Entry},
        service::ratelimit::v3::{RateLimitRequest as EnvoyRequest, RateLimitResponse as EnvoyResponse},
    },
    tidegate::v1::{
        BatchRateLimitRequest, BatchRateLimitResponse, CheckStreamRequest, CheckStreamResponse, RateLimitRequest,
        RateLimitResponse, check_stream_response::Result as Told,
    },
};
use tokio::runtime;
use tokio_stream::StreamExt;
use tonic::{
    Request, Response, Status, Streaming,
    body::Body,
    codegen::{BoxFuture, Service, http},
    server::{Grpc, NamedService, StreamingService, UnaryService},
};
use tonic_prost::ProstCodec;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Clients that are counted, one after the other; and the checks of a batch.
const USERS: usize = 1_000;
/// Connections, and the calls that are open on each.
const CONNECTIONS: usize = 16;
const CALLS: usize = 8;
/// Calls that servers take at least on one connection.
const CALLS_MAX: usize = 100;
/// Connections where one call has much to say.
const CONNECTIONS_OF_MUCH: usize = 4;
const CHECK: &str = "/tidegate.v1.RateLimiter/CheckRateLimit";
const BATCH: &str = "/tidegate.v1.RateLimiter/CheckRateLimitBatch";
const ENVOY: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
/// Somebody, and everyone together, as in the recipe of docs/envoy.md; an empty value is the user.
const DESCRIPTORS: [&[(&str, &str)]; 2] =
    [&[("user", ""), ("path", "/api/v1/posts"), ("method", "GET")], &[("path", "/api/v1/posts"), ("method", "GET")]];
const STREAM: &str = "/tidegate.v1.RateLimiter/CheckRateLimitStream";

/// Measures checks over gRPC. Takes two processors.
#[derive(Debug, Parser)]
struct Call {
    #[command(flatten)]
    arguments: Arguments,
}

fn main() -> Outcome<()> {
    let Call { arguments } = Call::parse();
    if let Some(port) = arguments.bare {
        log_errors();
        return bare(port);
    }
    let folder = TempDir::new()?;
    // Ours is the second, and is compared with each of the others.
    let mut sides = vec![Side::bare()?, Side::tidegate(&arguments.binary, folder.path())?];
    if let Some(binary) = &arguments.throttlecrab {
        sides.push(Side::throttlecrab(binary)?);
    }
    pin_client()?;
    let length = Duration::from_secs(arguments.seconds);
    let mut figures: Vec<Figures> = sides.iter().map(|_| Figures::default()).collect();
    for place in turns(arguments.rounds, sides.len()) {
        let (side, of) = (&sides[place], &mut figures[place]);
        side.answers_rightly()?;
        of.single.push(side.calls(&side.checks, (CONNECTIONS, CALLS), length)?);
        let took = side.timed(&side.checks, arguments.rate, length)?;
        of.p50_us.push(took.quantile(0.5) as f64 / 1e3);
        of.p99_us.push(took.quantile(0.99) as f64 / 1e3);
        of.p999_us.push(took.quantile(0.999) as f64 / 1e3);
        if side.speaks_ours {
            of.streamed.push(side.stream(length)?);
        }
        if side.server.name == "tidegate" {
            let calls = side.calls(&[request(BATCH, &batch())], (CONNECTIONS_OF_MUCH, 1), length)?;
            of.batched.push(calls * USERS as f64);
            for (descriptors, to) in [(1, &mut of.one_descriptor), (2, &mut of.two_descriptors)] {
                let calls: Vec<_> =
                    (0..USERS).map(|user| request(ENVOY, &envoy(user, &DESCRIPTORS[..descriptors]))).collect();
                to.push(side.calls(&calls, (CONNECTIONS, CALLS), length)?);
                if descriptors == DESCRIPTORS.len() {
                    let took = side.timed(&calls, arguments.rate, length)?;
                    of.envoy_p999_us.push(took.quantile(0.999) as f64 / 1e3);
                }
            }
        }
    }
    for (side, of) in sides.iter().zip(&figures) {
        println!(
            "{:13} {} calls/s; at {}/s: p50 {} us, p99 {} us, p99.9 {} us",
            side.server.name,
            spread(&of.single, 0),
            arguments.rate,
            spread(&of.p50_us, 0),
            spread(&of.p99_us, 0),
            spread(&of.p999_us, 0)
        );
        if side.speaks_ours {
            println!("{:13} {} messages/s on streams", side.server.name, spread(&of.streamed, 0));
        }
    }
    let beside = |place: usize, of: fn(&Figures) -> &Vec<f64>, with: fn((&f64, &f64)) -> f64| -> Vec<f64> {
        of(&figures[1]).iter().zip(of(&figures[place])).map(with).collect()
    };
    let ratio = |(ours, theirs): (&f64, &f64)| ours / theirs;
    let more = |(ours, theirs): (&f64, &f64)| ours - theirs;
    println!("of the bare server's calls/s: {} (goal: 0.9)", spread(&beside(0, |of| &of.single, ratio), 2));
    println!("of its messages/s on streams: {} (goal: 0.8)", spread(&beside(0, |of| &of.streamed, ratio), 2));
    if sides.len() > 2 {
        println!("of throttlecrab's calls/s: {} (goal: 1.2)", spread(&beside(2, |of| &of.single, ratio), 2));
    }
    println!("decisions/s in batches of {USERS}: {} (goal: 2000000)", spread(&figures[1].batched, 0));
    let of_bare = figures[1].one_descriptor.iter().zip(&figures[0].single).map(ratio).collect::<Vec<_>>();
    println!("Envoy's calls/s with one descriptor: {}", spread(&figures[1].one_descriptor, 0));
    println!("of the bare server's calls/s: {} (goal: 1.1)", spread(&of_bare, 2));
    println!("Envoy's calls/s with two descriptors: {}", spread(&figures[1].two_descriptors, 0));
    println!(
        "Envoy's p99.9 with two descriptors, at {}/s: {} us (goal: under 5000)",
        arguments.rate,
        spread(&figures[1].envoy_p999_us, 0)
    );
    println!("added to the bare server's p50: {} us (goal: under 200)", spread(&beside(0, |of| &of.p50_us, more), 0));
    println!("added to the bare server's p99: {} us (goal: under 1000)", spread(&beside(0, |of| &of.p99_us, more), 0));
    Ok(())
}

/// A request of Envoy's with these descriptors, each of some entries.
fn envoy(user: usize, descriptors: &[&[(&str, &str)]]) -> Vec<u8> {
    let user = format!("u{user}");
    let entry = |(key, value): &(&str, &str)| Entry {
        key: (*key).to_owned(),
        value: if value.is_empty() { user.clone().into_bytes() } else { value.as_bytes().to_vec() },
    };
    let descriptor = |entries: &&[(&str, &str)]| RateLimitDescriptor {
        entries: entries.iter().map(entry).collect(),
        ..RateLimitDescriptor::default()
    };
    let descriptors = descriptors.iter().map(descriptor).collect();
    EnvoyRequest { domain: "default".to_owned(), descriptors, hits_addend: 0 }.encode_to_vec()
}

/// One figure for each round.
#[derive(Default)]
struct Figures {
    single: Vec<f64>,
    streamed: Vec<f64>,
    batched: Vec<f64>,
    one_descriptor: Vec<f64>,
    two_descriptors: Vec<f64>,
    envoy_p999_us: Vec<f64>,
    p50_us: Vec<f64>,
    p99_us: Vec<f64>,
    p999_us: Vec<f64>,
}

fn check(user: usize) -> RateLimitRequest {
    RateLimitRequest {
        identifier: format!("u{user}"),
        identifier_type: "user".to_owned(),
        ..RateLimitRequest::default()
    }
}

fn batch() -> Vec<u8> {
    BatchRateLimitRequest { requests: (0..USERS).map(check).collect() }.encode_to_vec()
}

/// A server that is asked.
struct Side {
    server: Server,
    /// Calls as they go over the wire, one for each user.
    checks: Vec<Vec<u8>>,
    /// Has it the methods of `tidegate.v1`?
    speaks_ours: bool,
}

impl Side {
    fn bare() -> Outcome<Self> {
        let port = free_port()?;
        let mut command = pinned(&std::env::current_exe()?);
        command.args(["--bare", &port.to_string()]);
        Ok(Self::ours(Server::start("bare", command, port)?))
    }

    fn tidegate(binary: &Path, folder: &Path) -> Outcome<Self> {
        let port = free_port()?;
        let limit = json!({ "id": "second", "algorithm": "token_bucket", "limit": 1_000_000, "period": "1s" });
        let tiers = json!([{ "id": "free", "limits": [limit] }]);
        let policy = json!({ "domains": { "default": { "defaults": { "user": "free" }, "tiers": tiers } } });
        let file = folder.join("policy.json");
        fs::write(&file, policy.to_string())?;
        let mut command = pinned(binary);
        command.args(["serve", "--admin", "127.0.0.1:0", "--http", "127.0.0.1:0", "--workers", "1", "--log", "error"]);
        command.arg("--grpc").arg(format!("127.0.0.1:{port}"));
        command.arg("--policy").arg(file).arg("--data").arg(folder.join("data"));
        Ok(Self::ours(Server::start("tidegate", command, port)?))
    }

    fn ours(server: Server) -> Self {
        let checks = (0..USERS).map(|user| request(CHECK, &check(user).encode_to_vec())).collect();
        Self { server, checks, speaks_ours: true }
    }

    fn throttlecrab(binary: &Path) -> Outcome<Self> {
        /// Its request, by its own .proto.
        #[derive(Message)]
        struct Throttle {
            #[prost(string, tag = "1")]
            key: String,
            #[prost(int32, tag = "2")]
            max_burst: i32,
            #[prost(int32, tag = "3")]
            count_per_period: i32,
            #[prost(int32, tag = "4")]
            period: i32,
            #[prost(int32, tag = "5")]
            quantity: i32,
        }
        let port = free_port()?;
        let mut command = pinned(binary);
        command.args(["--grpc", "--grpc-port", &port.to_string(), "--log-level", "error"]);
        let throttle = |user| Throttle {
            key: format!("u{user}"),
            max_burst: 1_000_000,
            count_per_period: 1_000_000,
            period: 1,
            quantity: 1,
        };
        let path = "/throttlecrab.RateLimiter/Throttle";
        let checks = (0..USERS).map(|user| request(path, &throttle(user).encode_to_vec())).collect();
        Ok(Self { server: Server::start("throttlecrab", command, port)?, checks, speaks_ours: false })
    }

    fn connect(&self, count: usize) -> Outcome<Vec<Connection>> {
        (0..count).map(|_| Connection::to(self.server.port)).collect()
    }

    /// Are checks allowed, and all of a batch answered?
    fn answers_rightly(&self) -> Outcome<()> {
        let mut connection = Connection::to(self.server.port)?;
        let told = connection.answer(&self.checks[0])?;
        if self.speaks_ours && !RateLimitResponse::decode(&*told)?.allowed {
            return Err(format!("{}: a check was denied", self.server.name).into());
        }
        if self.server.name == "tidegate" {
            let told = BatchRateLimitResponse::decode(&*connection.answer(&request(BATCH, &batch()))?)?;
            if told.responses.len() != USERS || !told.responses.iter().all(|told| told.allowed) {
                return Err("a batch was not allowed".into());
            }
            let told = EnvoyResponse::decode(&*connection.answer(&request(ENVOY, &envoy(0, &DESCRIPTORS)))?)?;
            if told.overall_code != 1 || told.statuses.len() != DESCRIPTORS.len() {
                return Err(format!("Envoy was told {told:?}").into());
            }
        }
        Ok(())
    }

    /// Calls a second, with so many connections, and calls open on each.
    fn calls(&self, calls: &[Vec<u8>], (connections, open): (usize, usize), length: Duration) -> Outcome<f64> {
        let mut connections = self.connect(connections)?;
        let mut next = calls.iter().cycle();
        let (began, mut ended) = (Instant::now(), 0_u64);
        while began.elapsed() < length {
            for connection in &mut connections {
                while connection.open() < open
                    && let Some(call) = next.next()
                {
                    connection.call(call);
                }
                ended += connection.turn()?;
            }
        }
        Ok(ended as f64 / began.elapsed().as_secs_f64())
    }

    /// Messages a second, on a stream for each connection.
    fn stream(&self, length: Duration) -> Outcome<f64> {
        let message = |user: usize| {
            let message = CheckStreamRequest { correlation_id: user as u64, request: Some(check(user)) };
            let message = message.encode_to_vec();
            [&[0], &(message.len() as u32).to_be_bytes()[..], &message].concat()
        };
        let messages: Vec<u8> = (0..USERS).flat_map(message).collect();
        let mut connections = self.connect(CONNECTIONS_OF_MUCH)?;
        for connection in &mut connections {
            connection.open_stream(STREAM);
        }
        let began = Instant::now();
        while began.elapsed() < length {
            for connection in &mut connections {
                connection.say(&messages);
                connection.turn()?;
            }
        }
        let answers: u64 = connections.iter().map(Connection::messages).sum();
        Ok(answers as f64 / began.elapsed().as_secs_f64())
    }

    /// How long answers to these take at so many calls a second, in nanoseconds since each was due.
    fn timed(&self, calls: &[Vec<u8>], rate: u64, length: Duration) -> Outcome<Histogram> {
        let mut connections = self.connect(CONNECTIONS)?;
        let mut due = vec![std::collections::VecDeque::<Duration>::new(); CONNECTIONS];
        let (mut took, mut sent) = (Histogram::default(), 0);
        let all = rate * length.as_secs();
        let began = Instant::now();
        while took.total() < all {
            let next = Duration::from_nanos(sent * 1_000_000_000 / rate);
            let place = sent as usize % CONNECTIONS;
            // Whoever opens more calls than a server takes is refused.
            if sent < all && began.elapsed() >= next && connections[place].open() < CALLS_MAX {
                connections[place].call(&calls[sent as usize % calls.len()]);
                due[place].push_back(next);
                sent += 1;
            }
            for (connection, due) in connections.iter_mut().zip(&mut due) {
                // Answers to calls of one connection come in their order here.
                for _ in 0..connection.turn()? {
                    let due = due.pop_front().ok_or("an answer to nothing")?;
                    took.record(began.elapsed().saturating_sub(due).as_nanos() as u64);
                }
            }
            if began.elapsed() > 3 * length {
                return Err(format!("{}: {} of {all} answers", self.server.name, took.total()).into());
            }
        }
        Ok(took)
    }
}

/// tonic's own server on one thread, which reads requests and answers a constant.
fn bare(port: u16) -> Outcome<()> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let server = tonic::transport::Server::builder().add_service(Bare);
    Ok(runtime.block_on(server.serve((Ipv4Addr::LOCALHOST, port).into()))?)
}

fn constant() -> RateLimitResponse {
    RateLimitResponse {
        allowed: true,
        remaining_tokens: 999_999,
        reset_time: 1_700_000_001,
        limit: Some(1_000_000),
        remaining: Some(999_999),
        reset_after_ms: Some(1),
        retry_after_ms: Some(0),
        delay_ms: Some(0),
        limit_id: Some("default/tier:free/second".to_owned()),
        policy_version: 1,
        ..RateLimitResponse::default()
    }
}

#[derive(Clone)]
struct Bare;

impl NamedService for Bare {
    const NAME: &'static str = "tidegate.v1.RateLimiter";
}

impl Service<http::Request<Body>> for Bare {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, asked: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            Ok(match asked.uri().path() {
                STREAM => Grpc::new(ProstCodec::default()).streaming(Self, asked).await,
                _ => Grpc::new(ProstCodec::default()).unary(Self, asked).await,
            })
        })
    }
}

impl UnaryService<RateLimitRequest> for Bare {
    type Response = RateLimitResponse;
    type Future = Ready<Result<Response<RateLimitResponse>, Status>>;

    fn call(&mut self, _: Request<RateLimitRequest>) -> Self::Future {
        ready(Ok(Response::new(constant())))
    }
}

impl StreamingService<CheckStreamRequest> for Bare {
    type Response = CheckStreamResponse;
    type ResponseStream = Pin<Box<dyn tokio_stream::Stream<Item = Result<CheckStreamResponse, Status>> + Send>>;
    type Future = Ready<Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, asked: Request<Streaming<CheckStreamRequest>>) -> Self::Future {
        let answers = asked.into_inner().map(|asked| {
            let correlation_id = asked?.correlation_id;
            Ok(CheckStreamResponse { correlation_id, result: Some(Told::Response(constant())) })
        });
        let answers: Self::ResponseStream = Box::pin(answers);
        ready(Ok(Response::new(answers)))
    }
}
