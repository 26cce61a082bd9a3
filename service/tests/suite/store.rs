//! Tests of a limit of a store over all listeners of one process.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use tidegate::{Engine, RatedLimiter, Snapshot, clock::SystemClock, formats::Format};
use tidegate_fleet::store::{SharedEngine, StoreAddress, StoreSettings};
use tidegate_service::{
    Decider, Handle, ListenerSettings, Listeners,
    grpc::{
        AdminApiClient, Grpc,
        proto::{
            envoy::{
                extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor::Entry},
                service::ratelimit::v3::{
                    RateLimitRequest as EnvoyRequest, rate_limit_service_client::RateLimitServiceClient,
                },
            },
            tidegate::v1::{
                CheckStreamRequest, RateLimitRequest, check_stream_response::Result as Told,
                rate_limiter_client::RateLimiterClient,
            },
        },
    },
    http::{Authorize, Http},
    resp::Resp,
};
use tidegate_testkit::{PATIENCE, fault_proxy::FaultProxy, hostile, redis::Redis, wait_until};
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint};

use crate::http::support::{Connection, request};

const POLICY: &str = r#"
[domains.default]
defaults = { user = "free" }
[[domains.default.tiers]]
id = "free"
limits = [{ id = "day", algorithm = "fixed_window", limit = 3, period = "1d", sharing = "strict" }]
"#;

fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("bound");
    (listener, address)
}

struct Server {
    http: SocketAddr,
    grpc: SocketAddr,
    resp: SocketAddr,
    handle: Handle,
    /// The proxy before the store.
    proxy: FaultProxy,
    redis: Redis,
}

impl Server {
    fn start() -> Self {
        let redis = Redis::start();
        let proxy = FaultProxy::before(redis.address());
        let address = StoreAddress::new(&[proxy.url()]);
        let ((http_in, http), (grpc_in, grpc), (resp_in, resp)) = (listen(), listen(), listen());
        let (started, handle) = mpsc::channel();
        thread::spawn(move || {
            runtime().block_on(async {
                let engine = Arc::new(Engine::with_max_keys(20_000));
                engine.publish(Snapshot::parse(POLICY, Format::Toml).expect("a right policy")).expect("room");
                // Patient, since the machine may be busy and the proxy delays the store.
                let settings = StoreSettings { timeout: PATIENCE, ..StoreSettings::default() };
                let store = SharedEngine::new(Arc::clone(&engine), &address, settings).await.expect("an address");
                let decider = Decider::new(engine).expect("random numbers").with_store(Some(Arc::new(store)));
                let mut settings = ListenerSettings { workers: 2, ..ListenerSettings::default() };
                settings.browsers.hosts.push("tidegate".to_owned());
                let doors = Listeners::new(
                    Arc::new(decider),
                    settings,
                    Http { listener: http_in, authorize: Authorize::default() },
                );
                let admin = AdminApiClient::to("http://127.0.0.1:1", None).expect("an address");
                let throttle = Arc::new(RatedLimiter::<SystemClock>::with_max_keys(1_000));
                let doors = doors.grpc(Grpc { listener: grpc_in, admin });
                let doors = doors.resp(Resp { listener: resp_in, throttle, operators: None });
                let running = doors.serve().expect("they listen");
                started.send(running.handle()).expect("the test waits");
                running.await.expect("it ends well");
            });
        });
        let handle = handle.recv().expect("it starts");
        Self { http, grpc, resp, handle, proxy, redis }
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
        let told = agent.post(format!("http://{}{path}", self.http)).send(body.to_string());
        let text = told.expect("an answer").body_mut().read_to_string().expect("text");
        if text.is_empty() { Value::Null } else { serde_json::from_str(&text).expect("JSON") }
    }

    fn is_allowed(&self, body: &Value) -> bool {
        let told = self.post("/v1/check", body);
        assert!(told["degraded"].is_null(), "{told}");
        told["allowed"] == true
    }

    fn remaining(&self, user: &str) -> Value {
        let told = self.post("/v1/check", &json!({"identities": who(user), "peek": true}));
        assert!(told["degraded"].is_null(), "{told}");
        told["remaining"].clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        runtime().block_on(self.handle.drain(Duration::ZERO));
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

async fn channel(address: SocketAddr) -> Channel {
    Endpoint::try_from(format!("http://{address}")).expect("an address").connect().await.expect("it listens")
}

fn who(user: &str) -> Value {
    json!([{"kind": "user", "value": user}])
}

#[test]
fn a_limit_of_a_store_holds_over_http() {
    let server = Server::start();
    let ada = json!({"identities": who("ada")});
    assert_eq!([(); 4].map(|()| server.is_allowed(&ada)), [true, true, true, false]);
    let bob = json!({"identities": who("bob")});
    let batch = server.post("/v1/check/batch", &json!({"checks": [bob, bob, bob, bob]}));
    let allowed: Vec<_> = (0..4).map(|place| batch["decisions"][place]["allowed"] == true).collect();
    assert_eq!(allowed, [true, true, true, false], "{batch}");
    let cyd = server.post("/v1/reserve", &json!({"identities": who("cyd"), "cost": 3}));
    assert_eq!(server.remaining("cyd"), 0);
    server.post("/v1/settle", &json!({"reservation": cyd["reservation"], "actual": 0}));
    // The charge is given back after the response.
    wait_until("it is given back", || server.remaining("cyd") == 3);
    let dan = json!({"identities": who("dan"), "request_id": "1"});
    assert_eq!([(); 5].map(|()| server.is_allowed(&dan)), [true; 5]);
    assert_eq!(server.remaining("dan"), 2, "charged once");
    let metrics = ureq::get(format!("http://{}/metrics", server.http)).call().expect("an answer");
    let metrics = metrics.into_body().read_to_string().expect("text");
    for line in [
        "tidegate_store_up 1\n",
        "tidegate_store_errors_total 0\n",
        "tidegate_store_untold_tokens_max ",
        "tidegate_store_seconds_total ",
        "tidegate_store_wait_seconds_bucket{le=\"0.005\"} ",
        "tidegate_store_wait_seconds_count ",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
}

/// The store answers nothing for a while, so the queries that it received by then are all that each peer may have at a time.
#[test]
fn a_peer_with_many_queries_of_the_store_leaves_others_their_quota() {
    const BATCHES: usize = 4;
    const CHECKS: usize = 1_000;
    /// The places of one peer at the store.
    const PLACES: u64 = 16;
    let server = Server::start();
    let grace = json!({"identities": who("grace")});
    assert!(server.is_allowed(&grace), "the store knows the script");
    let before = server.redis.scripts();
    server.proxy.hold(true);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let stream = runtime.spawn(hostile_stream(server.grpc, CHECKS as u64));
    wait_until("the stream has all places of its peer", || server.redis.scripts() >= before + PLACES);
    let batch = |number: usize| {
        let checks: Vec<Value> =
            (0..CHECKS).map(|check| json!({"identities": who(&format!("{number}-{check}"))})).collect();
        let mut hostile = Connection::over(hostile::connect(server.http));
        let body = json!({"checks": checks}).to_string();
        hostile.write(request("/v1/check/batch", "Content-Type: application/json\r\n", body));
        hostile
    };
    let mut batches: Vec<Connection> = (0..BATCHES).map(batch).collect();
    let allowed = thread::scope(|scope| {
        let asked = [(); 10].map(|()| scope.spawn(|| server.is_allowed(&grace)));
        wait_until("another peer has one, too", || server.redis.scripts() > before + PLACES);
        assert_eq!(server.redis.scripts(), before + PLACES + 1, "checks of one user go out together");
        server.proxy.hold(false);
        asked.into_iter().map(|one| one.join().expect("no panic")).filter(|allowed| *allowed).count()
    });
    assert_eq!(allowed, 2);
    for batch in &mut batches {
        let decisions = batch.answer().json()["decisions"].clone();
        let decisions = decisions.as_array().expect("a list");
        assert!(decisions.len() == CHECKS && decisions.iter().all(|one| one["allowed"] == true));
    }
    assert_eq!(runtime.block_on(stream).expect("no panic"), CHECKS as u64);
}

/// Sends checks of this many new users on a stream of the hostile peer. Returns how many were allowed.
async fn hostile_stream(to: SocketAddr, checks: u64) -> u64 {
    let endpoint = Endpoint::try_from(format!("http://{to}")).expect("an address");
    let channel = endpoint.local_address(Some(hostile::ADDRESS.into())).connect().await.expect("it listens");
    let messages = (1..=checks).map(|correlation_id| {
        let (identifier, identifier_type) = (format!("stream-{correlation_id}"), "user".to_owned());
        let request = RateLimitRequest { identifier, identifier_type, ..RateLimitRequest::default() };
        CheckStreamRequest { correlation_id, request: Some(request) }
    });
    let messages: Vec<_> = messages.collect();
    let stream = RateLimiterClient::new(channel).check_rate_limit_stream(tokio_stream::iter(messages)).await;
    let (mut answers, mut allowed) = (stream.expect("a stream").into_inner(), 0);
    while let Some(answer) = answers.message().await.expect("an answer") {
        allowed += u64::from(matches!(answer.result, Some(Told::Response(response)) if response.allowed));
    }
    allowed
}

#[test]
fn a_limit_of_a_store_holds_over_grpc_and_for_envoy() {
    let server = Server::start();
    runtime().block_on(async {
        let mut limiter = RateLimiterClient::new(channel(server.grpc).await);
        let request = |user: &str| RateLimitRequest {
            identifier: user.to_owned(),
            identifier_type: "user".to_owned(),
            ..RateLimitRequest::default()
        };
        let mut allowed = Vec::new();
        for _ in 0..4 {
            allowed.push(limiter.check_rate_limit(request("ada")).await.expect("an answer").into_inner().allowed);
        }
        assert_eq!(allowed, [true, true, true, false]);
        let messages = (1..=600).map(|correlation_id| CheckStreamRequest {
            correlation_id,
            request: Some(request(if correlation_id % 2 == 0 { "bob" } else { "cyd" })),
        });
        let messages: Vec<_> = messages.collect();
        let mut answers =
            limiter.check_rate_limit_stream(tokio_stream::iter(messages)).await.expect("a stream").into_inner();
        let mut allowed = Vec::new();
        for correlation_id in 1..=600 {
            let answer = answers.message().await.expect("an answer").expect("one for each");
            assert_eq!(answer.correlation_id, correlation_id);
            if let Some(Told::Response(response)) = answer.result
                && response.allowed
            {
                allowed.push(correlation_id);
            }
        }
        assert_eq!(allowed, [1, 2, 3, 4, 5, 6]);
        let mut envoy = RateLimitServiceClient::new(channel(server.grpc).await);
        let descriptor = |user: &str, hits| RateLimitDescriptor {
            entries: vec![Entry { key: "user".to_owned(), value: user.into() }],
            hits_addend: Some(hits),
            ..RateLimitDescriptor::default()
        };
        let mut code = async |descriptors| {
            let request = EnvoyRequest { domain: "default".to_owned(), descriptors, hits_addend: 0 };
            envoy.should_rate_limit(request).await.expect("an answer").into_inner().overall_code
        };
        assert_eq!(code(vec![descriptor("dan", 2), descriptor("ada", 1)]).await, 2, "ada has none left");
        let begun = Instant::now();
        while code(vec![descriptor("dan", 3)]).await != 1 {
            // The charge of dan in the request with ada is given back after the response.
            assert!(begun.elapsed() < PATIENCE, "it is not given back");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(code(vec![descriptor("dan", 1)]).await, 2);
    });
}

#[test]
fn a_limit_of_a_store_holds_over_the_redis_protocol() {
    let server = Server::start();
    let mut stream = TcpStream::connect(server.resp).expect("it listens");
    stream.write_all(&[&b"TIDEGATE.CHECK user ada *\r\n"[..]; 4].concat()).expect("it is read");
    stream.write_all(b"PING\r\nQUIT\r\n").expect("it is read");
    let mut told = String::new();
    stream.read_to_string(&mut told).expect("it ends");
    let is_denied: Vec<_> = told.split("*6\r\n").skip(1).map(|reply| reply.starts_with(":1")).collect();
    assert_eq!(is_denied, [false, false, false, true], "{told}");
    assert!(told.ends_with("+PONG\r\n+OK\r\n"), "{told}");
}
