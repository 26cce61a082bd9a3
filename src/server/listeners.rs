//! The doors of a server or a node: settings, addresses, and what opens them.

use std::{
    net::{SocketAddr, TcpListener},
    sync::Arc,
    thread,
    time::Duration,
};

use clap::Args;
use tidegate::{Engine, RatedLimiter, TableShares, clock::SystemClock};
use tidegate_fleet::{
    store::SharedEngine,
    wire::{DoorAddress, Process},
};
use tidegate_service::{
    CONNECTIONS_MAX, DEFAULT_CALLER_SHARE, DEFAULT_SETTLE_MULTIPLE, Decider, Listeners, PolicyFeed, Traces,
    grpc::{AdminApiClient, Grpc},
    http::Http,
    resp::{Operators, Resp},
};

use crate::{
    cli::{clock_step, max_keys, workers},
    output::{Failure, complain},
    server::authorize::AuthorizeArguments,
    server::listener_settings::ListeningArguments,
    server::process::{bind, url},
    server::store::StoreArguments,
    server::traces::TracesArguments,
};

/// Of whoever answers checks.
#[derive(Debug, Args)]
pub(crate) struct DoorArguments {
    /// Where checks over HTTP are answered, and /metrics, /healthz and /readyz.
    #[arg(long, value_name = "ADDRESS", env = "TIDEGATE_HTTP", default_value = "127.0.0.1:9080")]
    http: SocketAddr,
    /// Where checks over gRPC are answered.
    #[arg(long, value_name = "ADDRESS", env = "TIDEGATE_GRPC", default_value = "127.0.0.1:9090")]
    grpc: SocketAddr,
    /// Where the Redis protocol is spoken, such as 127.0.0.1:6379; nowhere unless given.
    #[arg(long, value_name = "ADDRESS", env = "TIDEGATE_RESP")]
    resp: Option<SocketAddr>,
    /// Room for so many keys at once, 24 bytes each.
    #[arg(long, value_name = "N", env = "TIDEGATE_MAX_KEYS", default_value_t = tidegate::DEFAULT_MAX_KEYS,
        value_parser = max_keys)]
    max_keys: usize,
    /// Keys of one limit take at most so many per cent of the table, where the policy has several limits; two thirds of the table
    /// are `--max-keys`.
    #[arg(long, value_name = "PERCENT", env = "TIDEGATE_LIMIT_SHARE",
        default_value_t = TableShares::default().limit_percent, value_parser = clap::value_parser!(u8).range(1..=100))]
    limit_share: u8,
    /// Keys of all limits of one domain take at most so many per cent of the table, where the policy has several domains.
    #[arg(long, value_name = "PERCENT", env = "TIDEGATE_DOMAIN_SHARE",
        default_value_t = TableShares::default().domain_percent, value_parser = clap::value_parser!(u8).range(1..=100))]
    domain_share: u8,
    /// A reservation is settled at so many times its estimate at most, or at one burst of the largest limit that it met, where
    /// that is more; a larger cost is refused, so that one wrong one does not deny what many share.
    #[arg(long, value_name = "N", env = "TIDEGATE_SETTLE_MULTIPLE", default_value_t = DEFAULT_SETTLE_MULTIPLE,
        value_parser = clap::value_parser!(u64).range(1..))]
    settle_multiple: u64,
    /// The part of the places for open reservations, and of those for request ids, that one caller may have while no other has
    /// any, in percent. It is smaller the more others have: at 50 a caller may have as many as are free. At 100 one may have all.
    #[arg(long, value_name = "PERCENT", env = "TIDEGATE_CALLER_SHARE", default_value_t = DEFAULT_CALLER_SHARE,
        value_parser = clap::value_parser!(u8).range(1..=100))]
    caller_share: u8,
    /// Where the system's clock is set by more than this (10ms to 1m), limits act at once: set forward, they follow it; set
    /// back by less than a minute, they wait for it; set back by more, they go on, and only windows and the ends of overrides
    /// follow it. What is less they follow little by little.
    #[arg(long, value_name = "PERIOD", env = "TIDEGATE_CLOCK_STEP", default_value = "1s", value_parser = clock_step)]
    clock_step: Duration,
    /// Threads that answer checks at each door; one for each processor unless given.
    #[arg(long, value_name = "N", env = "TIDEGATE_WORKERS", value_parser = workers)]
    workers: Option<usize>,
    #[command(flatten)]
    listening: ListeningArguments,
    #[command(flatten)]
    authorize: AuthorizeArguments,
    #[command(flatten)]
    store: Box<StoreArguments>,
    #[command(flatten)]
    pub(crate) traces: TracesArguments,
}

/// Where the doors are.
#[derive(Clone)]
pub(crate) struct Urls {
    pub(crate) http: String,
    grpc: String,
    resp: Option<String>,
}

impl Urls {
    /// As a greeting has them.
    pub(crate) fn lines(&self) -> String {
        let redis = self.resp.as_ref().map_or_else(String::new, |url| format!("redis      {url}\n"));
        format!("checks     {}\ngrpc       {}\n{redis}", self.http, self.grpc)
    }
}

/// The sockets of the listeners, which are bound.
pub(crate) struct BoundListeners<'a> {
    arguments: &'a DoorArguments,
    http: TcpListener,
    grpc: TcpListener,
    resp: Option<TcpListener>,
    pub(crate) urls: Urls,
}

impl DoorArguments {
    /// Connections of all doors together.
    pub(crate) fn connections_max(&self) -> usize {
        CONNECTIONS_MAX * (2 + usize::from(self.resp.is_some()))
    }

    pub(crate) fn engine(&self) -> Arc<Engine> {
        let shares = TableShares { limit_percent: self.limit_share, domain_percent: self.domain_share };
        let clock = SystemClock::with_step(self.clock_step);
        let engine = Engine::with_clock(self.max_keys, clock).with_shares(shares);
        Arc::new(engine.with_ipv6_prefix(self.authorize.addresses.ipv6_prefix))
    }

    fn workers(&self) -> usize {
        self.workers.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from))
    }

    /// How long they answer on after SIGTERM.
    pub(crate) fn drain_delay(&self) -> Duration {
        self.listening.drain_delay()
    }

    pub(crate) fn bind(&self) -> Result<BoundListeners<'_>, Failure> {
        let http = bind(self.http, "checks over HTTP", "--http")?;
        let grpc = bind(self.grpc, "checks over gRPC", "--grpc")?;
        let resp = self.resp.map(|address| bind(address, "the Redis protocol", "--resp")).transpose()?;
        let (scheme, of_redis) = if self.listening.has_tls() { ("https", "rediss") } else { ("http", "redis") };
        let urls = Urls {
            http: url(scheme, &http)?,
            grpc: url(scheme, &grpc)?,
            resp: resp.as_ref().map(|resp| url(of_redis, resp)).transpose()?,
        };
        let listeners = BoundListeners { arguments: self, http, grpc, resp, urls };
        listeners.warn_if_exposed();
        Ok(listeners)
    }
}

impl BoundListeners<'_> {
    /// Warns of listeners that other machines reach, and that lack protection for it.
    fn warn_if_exposed(&self) {
        let Self { arguments, http, grpc, resp, urls } = self;
        let is_public = |listener: &TcpListener| {
            listener.local_addr().is_ok_and(|address| !address.ip().to_canonical().is_loopback())
        };
        let listeners =
            [(Some(http), Some(&urls.http)), (Some(grpc), Some(&urls.grpc)), (resp.as_ref(), urls.resp.as_ref())];
        let public =
            listeners.into_iter().filter_map(|(listener, url)| url.filter(|_| listener.is_some_and(is_public)));
        let public: Vec<&str> = public.map(String::as_str).collect();
        if let Some(missing) = arguments.listening.missing_protection()
            && !public.is_empty()
        {
            complain(format_args!(
                "warning: checks are answered to other machines at {}, {missing}; or listen on loopback",
                public.join(", ")
            ));
        }
    }

    /// With what the doors run, as the admin server is told: no secrets, no files.
    pub(crate) fn process(&self) -> Process {
        let Self { arguments, urls, .. } = self;
        let doors = [("http", Some(&urls.http)), ("grpc", Some(&urls.grpc)), ("resp", urls.resp.as_ref())];
        let door = |(protocol, url): (&str, Option<&String>)| {
            Some(DoorAddress { protocol: protocol.to_owned(), address: url?.clone() })
        };
        Process {
            doors: doors.into_iter().filter_map(door).collect(),
            has_tls: arguments.listening.has_tls(),
            has_traces: arguments.traces.is_on(),
            max_keys: Some(arguments.max_keys as u64),
            workers: Some(arguments.workers() as u64),
            ..build()
        }
    }

    /// Opens the store of limits that this engine shares with others.
    pub(crate) async fn store(&self, engine: &Arc<Engine>) -> Result<Option<Arc<SharedEngine<SystemClock>>>, Failure> {
        self.arguments.store.open(engine).await
    }

    /// `admin`: the way to the admin server; `source`: where policies come from, if that is another process.
    pub(crate) fn doors(
        self,
        engine: Arc<Engine>,
        store: Option<Arc<SharedEngine<SystemClock>>>,
        admin: AdminApiClient,
        source: Option<Arc<dyn PolicyFeed>>,
        traces: Option<Traces>,
    ) -> Result<Listeners<SystemClock>, Failure> {
        let arguments = self.arguments;
        let clock = engine.clock().clone();
        let decider = Decider::new(engine);
        let decider = decider.map_err(|error| Failure(format!("no random numbers: {error}")))?;
        let decider = decider.with_store(store).with_settle_multiple(arguments.settle_multiple);
        let decider = Arc::new(decider.with_caller_share(arguments.caller_share));
        let settings = arguments.listening.settings(arguments.workers(), source, traces)?;
        let http = Http { listener: self.http, authorize: arguments.authorize.settings()? };
        let operators = Some(Arc::new(admin.clone()) as Arc<dyn Operators>);
        let doors = Listeners::new(decider, settings, http).grpc(Grpc { listener: self.grpc, admin });
        Ok(match self.resp {
            None => doors,
            Some(listener) => {
                let throttle = Arc::new(RatedLimiter::with_groups(arguments.max_keys, clock));
                doors.resp(Resp { listener, throttle, operators })
            }
        })
    }
}

/// Gives back what this process holds of a store, when its doors have ended.
pub(crate) async fn close(store: Option<Arc<SharedEngine<SystemClock>>>) {
    if let Some(store) = store {
        store.close().await;
    }
}

/// Of a process without doors: the commit that this was built from, where the build was told (`TIDEGATE_COMMIT`).
pub(crate) fn build() -> Process {
    Process { commit: option_env!("TIDEGATE_COMMIT").map(str::to_owned), ..Process::default() }
}
