//! The control plane: its settings, its start, and its end together with the listeners beside it.

use std::{
    convert::Infallible,
    fs,
    future::pending,
    io,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use clap::{Args, builder::FalseyValueParser};
use rustix::system::uname;
use tidegate::{Engine, clock::SystemClock};
use tidegate_admin::{
    Admin, ConnectionCaps, DatabaseUrl, ErrorCounts, FiguresClock, Keys, Periods, PolicyFile, PolicyFileOutcome,
    Process, Settings,
};
use tidegate_fleet::store::SharedEngine;
use tidegate_service::{DEFAULT_PEER_CONNECTIONS, Listeners, RunningListeners};
use tokio::sync::oneshot;

use crate::{
    output::{CommandError, CommandStatus, print_diagnostic, print_result},
    policy_file,
    server::{
        dashboard_settings::DashboardArguments,
        listeners::ListenerUrls,
        process::{StopSignals, url},
    },
    value_parsers::{SampleRate, connections, database_url, node_name},
};

/// The settings of a control plane.
#[derive(Debug, Args)]
pub(crate) struct ControlPlaneArguments {
    /// The address on which the dashboard and the REST API listen. Beyond loopback, use a certificate (--admin-tls-cert) or a
    /// proxy with TLS: browsers then send the session only over https.
    #[arg(long, value_name = "ADDRESS", env = "TIDEGATE_ADMIN", default_value = "127.0.0.1:8080")]
    pub(crate) admin: SocketAddr,
    /// The URL at which users open the dashboard, if it differs from --admin: behind a proxy with TLS, for example.
    #[arg(long, value_name = "URL", env = "TIDEGATE_ADMIN_URL", value_parser = crate::value_parsers::base_url)]
    admin_url: Option<String>,
    /// The data directory: the database, and the runs and logs of what-if. It is created if it does not exist. Only the user who
    /// runs the server can open its files. With --database it is used only if it is given, for runs and logs.
    #[arg(long, value_name = "FOLDER", env = "TIDEGATE_DATA", default_value = "./tidegate-data")]
    pub(crate) data: PathBuf,
    /// Whether a flag, a variable or the file gives the data directory.
    #[arg(skip)]
    pub(crate) is_data_given: bool,
    #[arg(long, value_name = "URL", env = "TIDEGATE_DATABASE", hide_env_values = true, value_parser = database_url,
        help = "A PostgreSQL database, in place of the one in the data directory: postgres://USER:PASSWORD@HOST/NAME. Two servers \
                may use the same one: what one publishes reaches the other. Other users of the machine can read flags, so give \
                a password by the variable or the file")]
    database: Option<DatabaseUrl>,
    /// A policy file. The server publishes it at its start if it changed since it was last published from there. If the live
    /// policy was edited since, the live policy stays in force.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_POLICY")]
    policy: Option<PathBuf>,
    /// Publish the file of --policy even if the live policy was edited since.
    #[arg(long, env = "TIDEGATE_POLICY_FORCE", value_parser = FalseyValueParser::new())]
    policy_force: bool,
    /// The name of this environment, which the dashboard shows on each page.
    #[arg(long, value_name = "NAME", env = "TIDEGATE_ENVIRONMENT")]
    environment: Option<String>,
    /// Mark this environment as production: the dashboard shows a stripe on each page.
    #[arg(long, env = "TIDEGATE_PRODUCTION", value_parser = FalseyValueParser::new())]
    production: bool,
    /// The name of this node in metrics. The default is the name of the machine. Servers with the same database need different
    /// names.
    #[arg(long, value_name = "NAME", env = "TIDEGATE_NODE", value_parser = node_name)]
    node: Option<String>,
    /// The form in which the dashboard shows identities from traffic: clear, truncated (the network of an address, the first characters of
    /// another value), or hashed.
    #[arg(long, value_name = "HOW", env = "TIDEGATE_KEYS", default_value_t = Keys::default())]
    keys: Keys,
    #[command(flatten)]
    dashboard: DashboardArguments,
    /// The most connections to the dashboard and the REST API from one address, of 5,120 in all. The first 64 bits of an IPv6
    /// address count as one address. Raise it if many nodes or users share an address, behind a NAT or a proxy.
    #[arg(long, value_name = "N", env = "TIDEGATE_ADMIN_CONNECTIONS_PER_PEER", default_value_t = DEFAULT_PEER_CONNECTIONS,
        value_parser = connections)]
    admin_connections_per_peer: usize,
    /// The log filter for standard error: error, warn, info, debug or trace, for all modules or by module (MODULE=LEVEL,...).
    #[arg(long, value_name = "FILTER", env = "TIDEGATE_LOG", default_value = "info,actix_server=warn,actix_http=off")]
    pub(crate) log: String,
}

impl ControlPlaneArguments {
    /// Returns the name of this node: by default that of the machine.
    pub(crate) fn node_name(&self) -> String {
        let machine = || uname().nodename().to_str().ok().filter(|name| !name.is_empty()).unwrap_or("local").to_owned();
        self.node.clone().unwrap_or_else(machine)
    }

    /// Returns the scheme of the URL at which the dashboard listens.
    pub(crate) fn scheme(&self) -> &'static str {
        self.dashboard.scheme()
    }
}

/// The engine in this process, and what belongs to it.
pub(crate) struct LocalNode {
    pub(crate) engine: Arc<Engine>,
    pub(crate) store: Option<Arc<SharedEngine<SystemClock>>>,
    pub(crate) record: SampleRate,
    /// The URLs of its listeners; `None` if it has none.
    pub(crate) urls: Option<ListenerUrls>,
    pub(crate) process: Process,
}

/// Runs the control plane, with the listeners and their drain delay if there are any, until a signal stops it.
pub(crate) async fn serve(
    arguments: &ControlPlaneArguments,
    listener: TcpListener,
    node: LocalNode,
    listeners: Option<(Listeners<SystemClock>, Duration)>,
) -> Result<CommandStatus, CommandError> {
    let failure = |error: io::Error| CommandError(error.to_string());
    let admin_url = arguments.admin_url.clone().map_or_else(|| url(arguments.scheme(), &listener), Ok)?;
    let policy = arguments.policy.as_deref().map(|file| policy_file(file, arguments.policy_force)).transpose()?;
    let errors = listeners.as_ref().map(|(listeners, _)| listeners.errors());
    let settings = Settings {
        policy,
        url: arguments.admin_url.clone(),
        data: arguments.data.clone(),
        database: arguments.database.clone(),
        keeps_files: arguments.is_data_given,
        listener,
        engine: node.engine,
        store: node.store,
        environment: arguments.environment.clone(),
        production: arguments.production,
        is_node: listeners.is_some(),
        node: arguments.node_name(),
        figures_clock: FiguresClock::default(),
        keys: arguments.keys,
        record: node.record.0,
        check_url: node.urls.as_ref().map(|urls| urls.http.clone()),
        process: node.process,
        errors: errors.map(|errors| ErrorCounts::of(move || errors.by_kind())).unwrap_or_default(),
        access: arguments.dashboard.settings()?,
        connections: ConnectionCaps::new(Admin::CONNECTIONS_MAX, arguments.admin_connections_per_peer),
        periods: Periods::default(),
    };
    let admin = Admin::open(settings).await.map_err(|error| CommandError(error.to_string()))?;
    let delay = listeners.as_ref().map_or(Duration::ZERO, |(_, delay)| *delay);
    let listeners = listeners.map(|(listeners, _)| listeners.serve()).transpose().map_err(failure)?;
    let mut signals = StopSignals::new().map_err(failure)?;
    match admin.policy_file() {
        Some(PolicyFileOutcome::Kept) => print_diagnostic(
            "warning: the file of --policy changed, but the live policy was edited since the file was last published, so the live \
             policy stays in force; --policy-force publishes the file over it",
        ),
        Some(PolicyFileOutcome::Waits) => print_diagnostic(
            "warning: the file of --policy changed, but the newest version is still rolled out to some nodes only, so the file was \
             not published; complete that rollout or revert it (tidegate policy rollout), and start again",
        ),
        _ => {}
    }
    if admin.is_exposed() {
        print_diagnostic(
            "warning: other machines can reach the dashboard without TLS, and browsers keep a session only over https; give it a \
             certificate with --admin-tls-cert, put a proxy with TLS before it and give its https:// URL with --admin-url, or \
             listen on loopback",
        );
    }
    if admin.is_folder_open() {
        let data = arguments.data.display();
        print_diagnostic(format_args!(
            "warning: other users of this machine can list the data directory {data}, though they cannot open its files; run: \
             chmod 700 {data}"
        ));
    }
    print_result(greeting(arguments, &admin, &admin_url, node.urls.as_ref()).as_bytes())?;

    let handle = listeners.as_ref().map(RunningListeners::handle);
    let (stop_admin, stopped) = oneshot::channel::<()>();
    let admin = admin.serve(async { drop(stopped.await) });
    let listeners = async {
        match listeners {
            Some(listeners) => listeners.await,
            // The admin server alone says when the process ends.
            None => Ok(()),
        }
    };
    let drain = async {
        let delay = signals.wait(delay).await;
        if let Some(listeners) = handle {
            signals.drain(&listeners, delay).await;
        }
        drop(stop_admin);
        pending::<Infallible>().await
    };
    tokio::select! {
        served = async { tokio::try_join!(admin, listeners) } => served.map(|_| CommandStatus::Success).map_err(failure),
        never = drain => match never {},
    }
}

fn policy_file(file: &Path, force: bool) -> Result<PolicyFile, CommandError> {
    let policy = policy_file::load_document(file)?;
    let name = fs::canonicalize(file).map_err(|error| CommandError::of_file(&file.display().to_string(), error))?;
    Ok(PolicyFile { name: name.display().to_string(), policy, force })
}

/// Formats the text that the start prints: the URLs, and what to do first.
fn greeting(arguments: &ControlPlaneArguments, admin: &Admin, admin_url: &str, urls: Option<&ListenerUrls>) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let data = arguments.database.as_ref().map_or_else(|| arguments.data.display().to_string(), ToString::to_string);
    let policy = admin.policy_version();
    let note = match admin.policy_file() {
        Some(PolicyFileOutcome::Published) => " (from the file of --policy)",
        None if admin.is_first_start() => " (an example: change it)",
        _ => "",
    };
    let sign_in = admin.setup_path().map_or_else(String::new, |path| {
        format!(
            "There is no administrator yet. This link creates the first one. It works once, within 60 minutes:\n\
             sign in    {admin_url}{path}\n\n"
        )
    });
    let listeners = urls.map_or_else(
        || "checks     on the nodes that follow this server: tidegate node --help\n".to_owned(),
        ListenerUrls::lines,
    );
    let example = urls.map_or_else(String::new, |ListenerUrls { http: http_url, .. }| {
        format!(
            "Check a request from another terminal:\n  \
               tidegate check user=ada --server {http_url}\n  \
               curl -i {http_url}/v1/check --json '{{\"identities\": [{{\"kind\": \"user\", \"value\": \"ada\"}}]}}'\n\n"
        )
    });
    format!(
        "Tidegate {version}\n\n\
         dashboard  {admin_url}\n\
         {listeners}\
         data       {data}\n\
         policy     version {policy}{note}\n\n\
         {sign_in}\
         {example}\
         Ctrl+C stops.\n"
    )
}
