//! Compares checks over gRPC with a bare tonic server that answers a constant, and with throttlecrab's server.
//!
//! It measures checks one by one, a thousand in a call and on a stream, and the time to an answer at a fixed rate. Servers have
//! one processor, the client has the other. The client sends requests that were encoded before and only counts responses, so
//! that it needs less time than the server.
//!
//!     cargo build --release --no-default-features && cargo run --release -p tidegate-benches --bin grpc

#![expect(clippy::disallowed_methods, reason = "time is what is measured")]
#![expect(clippy::print_stdout, reason = "the program prints its figures")]

use std::{
    collections::VecDeque,
    convert::Infallible,
    future::{Ready, ready},
    net::Ipv4Addr,
    path::Path,
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use clap::Parser;
use prost::Message;
use tempfile::TempDir;
use tidegate_benches::{
    BenchResult,
    histogram::Histogram,
    http2::{Http2Connection, request},
    latency::Latencies,
    servers::{
        ServerArguments, ServerProcess, free_port, log_errors, pin_client, tidegate_command, turns, write_policy,
    },
    spread::Spread,
};
use tidegate_service::grpc::proto::{
    envoy::{
        extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor::Entry},
        service::ratelimit::v3::{RateLimitRequest as EnvoyRequest, RateLimitResponse as EnvoyResponse},
    },
    tidegate::v1::{
        BatchRateLimitRequest, BatchRateLimitResponse, CheckStreamRequest, CheckStreamResponse, RateLimitRequest,
        RateLimitResponse, check_stream_response::Result as StreamResult,
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

/// The number of users whose checks take turns, which is also the number of checks in a batch.
const USERS: usize = 1_000;
const CONNECTIONS: usize = 16;
/// The number of calls that are open on each connection.
const CALLS: usize = 8;
/// The number of open calls on a connection that every server accepts.
const CALLS_MAX: usize = 100;
/// The number of connections for batches and streams.
const BULK_CONNECTIONS: usize = 4;
const CHECK: &str = "/tidegate.v1.RateLimiter/CheckRateLimit";
const BATCH: &str = "/tidegate.v1.RateLimiter/CheckRateLimitBatch";
const STREAM: &str = "/tidegate.v1.RateLimiter/CheckRateLimitStream";
const ENVOY: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
/// The descriptors of one user and of all users together, as in the recipe of docs/envoy.md. The empty value stands for the
/// user.
const DESCRIPTORS: [&[(&str, &str)]; 2] =
    [&[("user", ""), ("path", "/api/v1/posts"), ("method", "GET")], &[("path", "/api/v1/posts"), ("method", "GET")]];

/// Measures checks over gRPC. Takes two processors.
#[derive(Debug, Parser)]
struct CommandLine {
    #[command(flatten)]
    arguments: ServerArguments,
}

fn main() -> BenchResult<()> {
    let CommandLine { arguments } = CommandLine::parse();
    if let Some(port) = arguments.bare {
        log_errors();
        return bare(port);
    }
    let folder = TempDir::new()?;
    // Ours is the second side, and is compared with each of the others.
    let mut sides = vec![Side::bare()?, Side::tidegate(&arguments.binary, folder.path())?];
    if let Some(binary) = &arguments.throttlecrab {
        sides.push(Side::throttlecrab(binary)?);
    }
    pin_client()?;
    let mut figures: Vec<Figures> = sides.iter().map(|_| Figures::default()).collect();
    for place in turns(arguments.rounds, sides.len()) {
        figures[place].measure(&sides[place], &arguments)?;
    }
    report(&sides, &figures, arguments.rate);
    Ok(())
}

fn report(sides: &[Side], figures: &[Figures], rate: u64) {
    for (side, of) in sides.iter().zip(figures) {
        let (name, per_second) = (side.server.name, Spread::of(&of.single));
        let p999 = Spread::of(&of.latency.p999_us);
        println!("{name:13} {per_second:.0} calls/s; at {rate}/s: {}, p99.9 {p999:.0} us", of.latency.text());
        if side.has_our_methods {
            println!("{name:13} {:.0} messages/s on streams", Spread::of(&of.streamed));
        }
    }
    let (bare, ours) = (&figures[0], &figures[1]);
    let ratio = |ours: &[f64], theirs: &[f64]| Spread::by_round(ours, theirs, |ours, theirs| ours / theirs);
    println!("of the bare server's calls/s: {:.2} (goal: 0.9)", ratio(&ours.single, &bare.single));
    println!("of its messages/s on streams: {:.2} (goal: 0.8)", ratio(&ours.streamed, &bare.streamed));
    if let Some(throttlecrab) = figures.get(2) {
        println!("of throttlecrab's calls/s: {:.2} (goal: 1.2)", ratio(&ours.single, &throttlecrab.single));
    }
    println!("decisions/s in batches of {USERS}: {:.0} (goal: 2000000)", Spread::of(&ours.batched));
    println!("Envoy's calls/s with one descriptor: {:.0}", Spread::of(&ours.one_descriptor));
    println!("of the bare server's calls/s: {:.2} (goal: 1.1)", ratio(&ours.one_descriptor, &bare.single));
    println!("Envoy's calls/s with two descriptors: {:.0}", Spread::of(&ours.two_descriptors));
    let p999 = Spread::of(&ours.envoy_latency.p999_us);
    println!("Envoy's p99.9 with two descriptors, at {rate}/s: {p999:.0} us (goal: under 5000)");
    println!("{}", ours.latency.added_to_bare(&bare.latency));
}

/// Returns an encoded request of Envoy with these descriptors.
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

/// The figures of one server, with one value for each round.
#[derive(Default)]
struct Figures {
    /// Calls a second.
    single: Vec<f64>,
    /// Messages a second on streams.
    streamed: Vec<f64>,
    /// Decisions a second in batches.
    batched: Vec<f64>,
    /// Envoy's calls a second with one descriptor.
    one_descriptor: Vec<f64>,
    /// Envoy's calls a second with two descriptors.
    two_descriptors: Vec<f64>,
    latency: Latencies,
    /// The latency of Envoy's calls with two descriptors.
    envoy_latency: Latencies,
}

impl Figures {
    fn measure(&mut self, side: &Side, arguments: &ServerArguments) -> BenchResult<()> {
        let length = Duration::from_secs(arguments.seconds);
        side.verify_responses()?;
        self.single.push(side.calls(&side.checks, (CONNECTIONS, CALLS), length)?);
        self.latency.record(&side.timed(&side.checks, arguments.rate, length)?);
        if side.has_our_methods {
            self.streamed.push(side.stream(length)?);
        }
        if side.server.name == "tidegate" {
            let calls = side.calls(&[request(BATCH, &batch())], (BULK_CONNECTIONS, 1), length)?;
            self.batched.push(calls * USERS as f64);
            let [one, two] = [1, 2].map(|descriptors| -> Vec<Vec<u8>> {
                (0..USERS).map(|user| request(ENVOY, &envoy(user, &DESCRIPTORS[..descriptors]))).collect()
            });
            self.one_descriptor.push(side.calls(&one, (CONNECTIONS, CALLS), length)?);
            self.two_descriptors.push(side.calls(&two, (CONNECTIONS, CALLS), length)?);
            self.envoy_latency.record(&side.timed(&two, arguments.rate, length)?);
        }
        Ok(())
    }
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

/// A server under load, with the calls that it gets.
struct Side {
    server: ServerProcess,
    /// The encoded calls, one for each user.
    checks: Vec<Vec<u8>>,
    /// Whether the server has the methods of `tidegate.v1`.
    has_our_methods: bool,
}

impl Side {
    fn bare() -> BenchResult<Self> {
        Ok(Self::ours(ServerProcess::start_bare()?))
    }

    fn tidegate(binary: &Path, folder: &Path) -> BenchResult<Self> {
        let (policy, port) = (write_policy(folder, &[])?, free_port()?);
        let mut command = tidegate_command(binary, &[("--grpc", port)], &folder.join("data"));
        command.arg("--policy").arg(policy);
        Ok(Self::ours(ServerProcess::start("tidegate", command, port)?))
    }

    fn ours(server: ServerProcess) -> Self {
        let checks = (0..USERS).map(|user| request(CHECK, &check(user).encode_to_vec())).collect();
        Self { server, checks, has_our_methods: true }
    }

    fn throttlecrab(binary: &Path) -> BenchResult<Self> {
        /// The request of throttlecrab's .proto file.
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
        let throttle = |user| Throttle {
            key: format!("u{user}"),
            max_burst: 1_000_000,
            count_per_period: 1_000_000,
            period: 1,
            quantity: 1,
        };
        let path = "/throttlecrab.RateLimiter/Throttle";
        let checks = (0..USERS).map(|user| request(path, &throttle(user).encode_to_vec())).collect();
        Ok(Self { server: ServerProcess::start_throttlecrab(binary, "grpc")?, checks, has_our_methods: false })
    }

    fn connect(&self, count: usize) -> BenchResult<Vec<Http2Connection>> {
        (0..count).map(|_| Http2Connection::connect(self.server.port)).collect()
    }

    /// Verifies that checks are allowed, and that each check of a batch has an answer.
    fn verify_responses(&self) -> BenchResult<()> {
        let mut connection = Http2Connection::connect(self.server.port)?;
        let response = connection.call_and_wait(&self.checks[0])?;
        if self.has_our_methods && !RateLimitResponse::decode(&*response)?.allowed {
            return Err(format!("{}: a check was denied", self.server.name).into());
        }
        if self.server.name == "tidegate" {
            let response = BatchRateLimitResponse::decode(&*connection.call_and_wait(&request(BATCH, &batch()))?)?;
            if response.responses.len() != USERS || !response.responses.iter().all(|check| check.allowed) {
                return Err("a batch was not allowed".into());
            }
            let response =
                EnvoyResponse::decode(&*connection.call_and_wait(&request(ENVOY, &envoy(0, &DESCRIPTORS)))?)?;
            if response.overall_code != 1 || response.statuses.len() != DESCRIPTORS.len() {
                return Err(format!("Envoy got {response:?}").into());
            }
        }
        Ok(())
    }

    /// Returns calls a second, with `connections` connections and `open` calls on each.
    fn calls(&self, calls: &[Vec<u8>], (connections, open): (usize, usize), length: Duration) -> BenchResult<f64> {
        let mut connections = self.connect(connections)?;
        let mut next = calls.iter().cycle();
        let (began, mut ended) = (Instant::now(), 0_u64);
        while began.elapsed() < length {
            for connection in &mut connections {
                while connection.open_calls() < open
                    && let Some(call) = next.next()
                {
                    connection.call(call);
                }
                ended += connection.poll()?;
            }
        }
        Ok(ended as f64 / began.elapsed().as_secs_f64())
    }

    /// Returns messages a second, with one stream on each connection.
    fn stream(&self, length: Duration) -> BenchResult<f64> {
        let message = |user: usize| {
            let message = CheckStreamRequest { correlation_id: user as u64, request: Some(check(user)) };
            let message = message.encode_to_vec();
            [&[0], &(message.len() as u32).to_be_bytes()[..], &message].concat()
        };
        let messages: Vec<u8> = (0..USERS).flat_map(message).collect();
        let mut connections = self.connect(BULK_CONNECTIONS)?;
        for connection in &mut connections {
            connection.open_stream(STREAM);
        }
        let began = Instant::now();
        while began.elapsed() < length {
            for connection in &mut connections {
                connection.send_messages(&messages);
                connection.poll()?;
            }
        }
        let answers: u64 = connections.iter().map(Http2Connection::message_count).sum();
        Ok(answers as f64 / began.elapsed().as_secs_f64())
    }

    /// Makes `rate` of these calls a second, and returns the time to each response in nanoseconds, counted from when the call was
    /// due.
    fn timed(&self, calls: &[Vec<u8>], rate: u64, length: Duration) -> BenchResult<Histogram> {
        let mut connections = self.connect(CONNECTIONS)?;
        let mut due = vec![VecDeque::<Duration>::new(); CONNECTIONS];
        let (mut took, mut sent) = (Histogram::default(), 0);
        let all = rate * length.as_secs();
        let began = Instant::now();
        while took.total() < all {
            let next = Duration::from_nanos(sent * 1_000_000_000 / rate);
            let place = sent as usize % CONNECTIONS;
            // A server rejects calls beyond its limit of open calls.
            if sent < all && began.elapsed() >= next && connections[place].open_calls() < CALLS_MAX {
                connections[place].call(&calls[sent as usize % calls.len()]);
                due[place].push_back(next);
                sent += 1;
            }
            for (connection, due) in connections.iter_mut().zip(&mut due) {
                // Responses on one connection arrive in the order of their calls here.
                for _ in 0..connection.poll()? {
                    let due = due.pop_front().ok_or("a response without a call")?;
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

/// Runs the bare server: tonic on one thread, which reads requests and answers a constant.
fn bare(port: u16) -> BenchResult<()> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let server = tonic::transport::Server::builder().add_service(BareService);
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
struct BareService;

impl NamedService for BareService {
    const NAME: &'static str = "tidegate.v1.RateLimiter";
}

impl Service<http::Request<Body>> for BareService {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            Ok(match request.uri().path() {
                STREAM => Grpc::new(ProstCodec::default()).streaming(Self, request).await,
                _ => Grpc::new(ProstCodec::default()).unary(Self, request).await,
            })
        })
    }
}

impl UnaryService<RateLimitRequest> for BareService {
    type Response = RateLimitResponse;
    type Future = Ready<Result<Response<RateLimitResponse>, Status>>;

    fn call(&mut self, _: Request<RateLimitRequest>) -> Self::Future {
        ready(Ok(Response::new(constant())))
    }
}

impl StreamingService<CheckStreamRequest> for BareService {
    type Response = CheckStreamResponse;
    type ResponseStream = Pin<Box<dyn tokio_stream::Stream<Item = Result<CheckStreamResponse, Status>> + Send>>;
    type Future = Ready<Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<Streaming<CheckStreamRequest>>) -> Self::Future {
        let responses = request.into_inner().map(|message| {
            let correlation_id = message?.correlation_id;
            Ok(CheckStreamResponse { correlation_id, result: Some(StreamResult::Response(constant())) })
        });
        let responses: Self::ResponseStream = Box::pin(responses);
        ready(Ok(Response::new(responses)))
    }
}
