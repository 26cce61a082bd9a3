//! The listeners of a server or a node: their settings, their sockets, and their start.

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
    wire::{ListenerAddress, Process},
};
use tidegate_service::{
    CONNECTIONS_MAX, DEFAULT_CALLER_SHARE, DEFAULT_SETTLE_MULTIPLE, Decider, Listeners, PolicyFeed, Traces,
    grpc::{AdminApiClient, Grpc},
    http::Http,
    resp::{Operators, Resp},
};

use crate::{
    output::{CommandError, print_diagnostic},
    server::authorize::AuthorizeArguments,
    server::listener_settings::ListenerSettingsArguments,
    server::process::{bind, url},
    server::store::StoreArguments,
    server::traces::TracesArguments,
    value_parsers::{clock_step, max_keys, workers},
};

/// The settings of a process that answers checks.
#[derive(Debug, Args)]
pub(crate) struct ListenersArguments {
    /// The address of the HTTP API for checks, also of /metrics, /healthz and /readyz.
    #[arg(long, value_name = "ADDRESS", env = "TIDEGATE_HTTP", default_value = "127.0.0.1:9080")]
    http: SocketAddr,
    /// The address of the gRPC API for checks, also of Envoy's rate limit service.
    #[arg(long, value_name = "ADDRESS", env = "TIDEGATE_GRPC", default_value = "127.0.0.1:9090")]
    grpc: SocketAddr,
    /// The address of the listener for checks over the Redis protocol, such as 127.0.0.1:6379. By default there is none.
    #[arg(long, value_name = "ADDRESS", env = "TIDEGATE_RESP")]
    resp: Option<SocketAddr>,
    /// The most keys at once, 24 bytes of memory each.
    #[arg(long, value_name = "N", env = "TIDEGATE_MAX_KEYS", default_value_t = tidegate::DEFAULT_MAX_KEYS,
        value_parser = max_keys)]
    max_keys: usize,
    /// The largest share of the key table for one limit, in percent, if the policy has several limits. --max-keys is two thirds of
    /// the table.
    #[arg(long, value_name = "PERCENT", env = "TIDEGATE_LIMIT_SHARE",
        default_value_t = TableShares::default().limit_percent, value_parser = clap::value_parser!(u8).range(1..=100))]
    limit_share: u8,
    /// The largest share of the key table for one domain, in percent, if the policy has several domains.
    #[arg(long, value_name = "PERCENT", env = "TIDEGATE_DOMAIN_SHARE",
        default_value_t = TableShares::default().domain_percent, value_parser = clap::value_parser!(u8).range(1..=100))]
    domain_share: u8,
    /// The highest cost at which a reservation is settled, as a multiple of its estimate; or one burst of its largest limit, if that
    /// is more. A higher cost is refused, so that one error does not use up a shared limit.
    #[arg(long, value_name = "N", env = "TIDEGATE_SETTLE_MULTIPLE", default_value_t = DEFAULT_SETTLE_MULTIPLE,
        value_parser = clap::value_parser!(u64).range(1..))]
    settle_multiple: u64,
    /// The largest share of one caller in the open reservations, and in the remembered request IDs, in percent, while no other caller
    /// has any. It shrinks as others have more: at 50 a caller may have as many as are free, at 100 one caller may have all.
    #[arg(long, value_name = "PERCENT", env = "TIDEGATE_CALLER_SHARE", default_value_t = DEFAULT_CALLER_SHARE,
        value_parser = clap::value_parser!(u8).range(1..=100))]
    caller_share: u8,
    /// The step of the system clock, 10ms to 1m, above which limits react at once. A clock set forward: they follow it. Set back by
    /// less than a minute: they wait for it. Set back by more: they go on, and only windows and the ends of overrides follow it.
    /// Smaller steps they follow gradually.
    #[arg(long, value_name = "PERIOD", env = "TIDEGATE_CLOCK_STEP", default_value = "1s", value_parser = clock_step)]
    clock_step: Duration,
    /// The number of threads that answer checks at each listener, 1 to 1024. The default is the number of processors.
    #[arg(long, value_name = "N", env = "TIDEGATE_WORKERS", value_parser = workers)]
    workers: Option<usize>,
    #[command(flatten)]
    settings: ListenerSettingsArguments,
    #[command(flatten)]
    authorize: AuthorizeArguments,
    #[command(flatten)]
    store: Box<StoreArguments>,
    #[command(flatten)]
    pub(crate) traces: TracesArguments,
}

/// The URLs of the listeners.
#[derive(Clone)]
pub(crate) struct ListenerUrls {
    pub(crate) http: String,
    grpc: String,
    resp: Option<String>,
}

impl ListenerUrls {
    /// Formats the URLs for the text that the start prints.
    pub(crate) fn lines(&self) -> String {
        let redis = self.resp.as_ref().map_or_else(String::new, |url| format!("redis      {url}\n"));
        format!("checks     {}\ngrpc       {}\n{redis}", self.http, self.grpc)
    }
}

/// The sockets of the listeners, which are bound.
pub(crate) struct BoundListeners<'a> {
    arguments: &'a ListenersArguments,
    http: TcpListener,
    grpc: TcpListener,
    resp: Option<TcpListener>,
    pub(crate) urls: ListenerUrls,
}

impl ListenersArguments {
    /// Returns the most connections of all listeners together.
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

    /// Returns how long the listeners answer checks after SIGTERM.
    pub(crate) fn drain_delay(&self) -> Duration {
        self.settings.drain_delay()
    }

    pub(crate) fn bind(&self) -> Result<BoundListeners<'_>, CommandError> {
        let http = bind(self.http, "checks over HTTP", "--http")?;
        let grpc = bind(self.grpc, "checks over gRPC", "--grpc")?;
        let resp = self.resp.map(|address| bind(address, "the Redis protocol", "--resp")).transpose()?;
        let (scheme, redis_scheme) = if self.settings.has_tls() { ("https", "rediss") } else { ("http", "redis") };
        let urls = ListenerUrls {
            http: url(scheme, &http)?,
            grpc: url(scheme, &grpc)?,
            resp: resp.as_ref().map(|resp| url(redis_scheme, resp)).transpose()?,
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
        if let Some(missing) = arguments.settings.missing_protection()
            && !public.is_empty()
        {
            print_diagnostic(format_args!(
                "warning: other machines can reach the listeners at {}, {missing}; or listen on loopback",
                public.join(", ")
            ));
        }
    }

    /// Describes this process for the admin server, without secrets and files.
    pub(crate) fn process(&self) -> Process {
        let Self { arguments, urls, .. } = self;
        let listeners = [("http", Some(&urls.http)), ("grpc", Some(&urls.grpc)), ("resp", urls.resp.as_ref())];
        let address = |(protocol, url): (&str, Option<&String>)| {
            Some(ListenerAddress { protocol: protocol.to_owned(), address: url?.clone() })
        };
        Process {
            doors: listeners.into_iter().filter_map(address).collect(),
            has_tls: arguments.settings.has_tls(),
            has_traces: arguments.traces.is_on(),
            max_keys: Some(arguments.max_keys as u64),
            workers: Some(arguments.workers() as u64),
            ..build_info()
        }
    }

    /// Opens the store through which this engine shares limits, if there is one.
    pub(crate) async fn store(
        &self,
        engine: &Arc<Engine>,
    ) -> Result<Option<Arc<SharedEngine<SystemClock>>>, CommandError> {
        self.arguments.store.open(engine).await
    }

    /// Makes the listeners. `admin` is the client of the admin server; `source` is the origin of policies, if that is another process.
    pub(crate) fn listeners(
        self,
        engine: Arc<Engine>,
        store: Option<Arc<SharedEngine<SystemClock>>>,
        admin: AdminApiClient,
        source: Option<Arc<dyn PolicyFeed>>,
        traces: Option<Traces>,
    ) -> Result<Listeners<SystemClock>, CommandError> {
        let arguments = self.arguments;
        let clock = engine.clock().clone();
        let decider = Decider::new(engine);
        let decider = decider.map_err(|error| CommandError(format!("the system has no random numbers: {error}")))?;
        let decider = decider.with_store(store).with_settle_multiple(arguments.settle_multiple);
        let decider = Arc::new(decider.with_caller_share(arguments.caller_share));
        let settings = arguments.settings.settings(arguments.workers(), source, traces)?;
        let http = Http { listener: self.http, authorize: arguments.authorize.settings()? };
        let operators = Some(Arc::new(admin.clone()) as Arc<dyn Operators>);
        let listeners = Listeners::new(decider, settings, http).grpc(Grpc { listener: self.grpc, admin });
        Ok(match self.resp {
            None => listeners,
            Some(listener) => {
                let throttle = Arc::new(RatedLimiter::with_groups(arguments.max_keys, clock));
                listeners.resp(Resp { listener, throttle, operators })
            }
        })
    }
}

/// Returns to the store the tokens that this process holds, once its listeners have ended.
pub(crate) async fn close(store: Option<Arc<SharedEngine<SystemClock>>>) {
    if let Some(store) = store {
        store.close().await;
    }
}

/// Describes a process without listeners: the commit that it was built from, if `TIDEGATE_COMMIT` named it for the build.
pub(crate) fn build_info() -> Process {
    Process { commit: option_env!("TIDEGATE_COMMIT").map(str::to_owned), ..Process::default() }
}
