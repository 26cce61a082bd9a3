//! The cost of the guard for a service, under criterion: the service alone, the service behind the guard, and the check alone.
//! Also a check of a server on this machine, over a kept connection.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    hint::black_box,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    pin::pin,
    sync::{Arc, mpsc},
    task::{Context, Poll, Waker},
    thread,
    time::Duration,
};

use criterion::{Criterion, criterion_group, criterion_main};
use http::{Request as HttpRequest, Response};
use tidegate::{Engine, Identity, Request, Snapshot, formats::Format};
use tidegate_middleware::{guard::Guard, remote::Remote, tower::Peer};
use tidegate_service::{
    Decider, ListenerSettings, Listeners,
    http::{Authorize, Http},
};
use tower_layer::Layer;
use tower_service::Service;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ADDRESS: [u8; 4] = [192, 0, 2, 7];

/// Returns an engine with one limit, which `limit` lets admit all requests or none.
fn engine(limit: u64) -> Arc<Engine> {
    let policy = format!(
        r#"
        [domains.default]
        defaults = {{ ip = "free", user = "free" }}
        [[domains.default.tiers]]
        id = "free"
        limits = [{{ id = "second", algorithm = "token_bucket", limit = {limit}, period = "1s" }}]
        "#
    );
    let engine = Arc::new(Engine::new());
    engine.publish(Snapshot::parse(&policy, Format::Toml).expect("a policy")).expect("few limits");
    engine
}

/// A service that answers at once.
#[derive(Clone)]
struct Hello;

impl<B> Service<HttpRequest<B>> for Hello {
    type Response = Response<()>;
    type Error = Infallible;
    type Future = Ready<Result<Response<()>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: HttpRequest<B>) -> Self::Future {
        black_box(request.headers().len());
        ready(Ok(Response::new(())))
    }
}

/// Returns a request like those of a browser.
fn request() -> HttpRequest<()> {
    HttpRequest::get("/api/v1/users/7/posts?page=2")
        .header("host", "service.example")
        .header("user-agent", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0")
        .header("accept", "application/json")
        .header("x-user-id", "user-4711")
        .extension(Peer(SocketAddr::from((ADDRESS, 4711))))
        .body(())
        .expect("a request")
}

/// Returns the output of a future that is ready at its first poll.
fn ready_now<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("engines do not wait"),
    }
}

fn guard(c: &mut Criterion) {
    let mut group = c.benchmark_group("guard");
    let template = request();
    group.bench_function("the service alone", |b| b.iter(|| ready_now(Hello.call(template.clone()))));
    let admits = engine(1_000_000_000);
    let address = std::net::IpAddr::from(ADDRESS).to_string();
    let check = |engine: &Engine| {
        let who = [Identity::new("ip", black_box(&address)).expect("valid")];
        let request = Request::new(&who).and_then(|it| it.endpoint("/api/v1/users/7/posts")).expect("valid");
        engine.check(&request.method("GET")).is_allowed()
    };
    group.bench_function("the check alone", |b| b.iter(|| check(&admits)));
    for (name, limit, identities) in [
        ("behind the guard", 1_000_000_000, "ip=address"),
        ("behind the guard, by a header", 1_000_000_000, "user=header:x-user-id"),
        ("behind the guard, denied", 0, "ip=address"),
    ] {
        let mut service = Guard::new(engine(limit), identities.parse().expect("valid")).layer(Hello);
        group.bench_function(name, |b| b.iter(|| ready_now(service.call(template.clone())).map(drop)));
    }
    group.finish();
}

/// Starts an HTTP listener in a thread of its own, and returns its address.
fn serve() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("bound");
    let (started, starts) = mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let decider = Arc::new(Decider::new(engine(1_000_000_000)).expect("random numbers"));
            let http = Http { listener, authorize: Authorize::default() };
            let server = Listeners::new(decider, ListenerSettings::default(), http).serve().expect("a listener");
            started.send(()).expect("the caller waits");
            server.await
        })
    });
    starts.recv().expect("the listener starts");
    address
}

fn remote(c: &mut Criterion) {
    let address = serve().to_string();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let remote = Remote::to([&*address]).expect("an address").deadline(Duration::from_secs(10));
    let who = [Identity::new("ip", "192.0.2.7").expect("valid")];
    let request = Request::new(&who).expect("valid");
    c.bench_function("a check of a server", |b| {
        b.iter_custom(|checks| {
            runtime.block_on(async {
                let began = tokio::time::Instant::now();
                for _ in 0..checks {
                    let ruling = remote.check(&request).await.expect("a valid check");
                    assert_eq!(ruling.degraded, None);
                }
                began.elapsed()
            })
        });
    });
}

criterion_group!(benches, guard, remote);
criterion_main!(benches);
