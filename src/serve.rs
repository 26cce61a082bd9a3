//! `tidegate serve`: binds, opens, says where it is, runs, and drains.

use std::{
    convert::Infallible,
    fs,
    future::pending,
    io::{self, IsTerminal},
    net::{SocketAddr, TcpListener},
    path::Path,
    sync::Arc,
    thread,
};

use rustix::system::uname;
use tidegate::Engine;
use tidegate_admin::{Admin, FiguresClock, PolicyFile, PolicyFileOutcome, Settings};
use tidegate_service::http::Http;
use tokio::{
    runtime,
    signal::unix::{SignalKind, signal},
    sync::oneshot,
};
use tracing_subscriber::EnvFilter;

use crate::{
    cli::ServeArguments,
    output::{Ended, Failure, complain, say},
    policy,
};

pub(crate) fn run(arguments: &ServeArguments, no_color: bool) -> Result<Ended, Failure> {
    log_to_stderr(&arguments.log, no_color)?;
    let admin = bind(arguments.admin, "the dashboard", "--admin")?;
    let http = bind(arguments.http, "checks over HTTP", "--http")?;
    let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| Failure(format!("no threads to serve with: {error}")))?;
    runtime.block_on(serve(arguments, admin, http))
}

async fn serve(arguments: &ServeArguments, admin: TcpListener, http: TcpListener) -> Result<Ended, Failure> {
    let failure = |error: io::Error| Failure(error.to_string());
    let has_tls = arguments.access.tls().is_some();
    let scheme = if has_tls { "https" } else { "http" };
    let admin_url = arguments.admin_url.clone().map_or_else(|| url(scheme, &admin), Ok)?;
    let http_url = url("http", &http)?;
    let is_exposed = !has_tls && !arguments.admin.ip().is_loopback() && arguments.admin_url.is_none();
    let engine = Arc::new(Engine::with_max_keys(arguments.max_keys));
    let policy = arguments.policy.as_deref().map(|file| policy_file(file, arguments.policy_force)).transpose()?;
    let settings = Settings {
        policy,
        url: arguments.admin_url.clone(),
        data: arguments.data.clone(),
        database: arguments.database.clone(),
        keeps_files: arguments.is_data_given,
        listener: admin,
        engine: Arc::clone(&engine),
        environment: arguments.environment.clone(),
        node: arguments.node.clone().unwrap_or_else(machine),
        figures_clock: FiguresClock::default(),
        keys: arguments.keys,
        record: arguments.record.0,
        check_url: Some(http_url.clone()),
        access: arguments.access.settings(),
    };
    let admin = Admin::open(settings).await.map_err(|error| Failure(error.to_string()))?;
    let workers = arguments.workers.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
    let door = Http { listener: http, engine, workers }.serve().map_err(failure)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failure)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failure)?;
    if admin.policy_file() == Some(PolicyFileOutcome::Kept) {
        complain(
            "warning: the file of --policy changed, but the live policy was edited since it was last published from there, so \
             that one stays in force; --policy-force publishes the file over it",
        );
    }
    if is_exposed {
        complain(
            "warning: the dashboard is reachable from other machines, without TLS; browsers keep a session over https only, so \
             give it a certificate with --admin-tls-cert, put a proxy with TLS before it and name its address with --admin-url, \
             or listen on loopback",
        );
    }
    say(greeting(arguments, &admin, &admin_url, &http_url).as_bytes())?;

    let door_handle = door.handle();
    let (stop_admin, told_to_stop) = oneshot::channel::<()>();
    let admin = admin.serve(async { drop(told_to_stop.await) });
    let drain = async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        tracing::info!("stopping: open requests may end");
        drop(stop_admin);
        door_handle.stop(true).await;
        pending::<Infallible>().await
    };
    tokio::select! {
        served = async { tokio::try_join!(admin, door) } => served.map(|_| Ended::Well).map_err(failure),
        never = drain => match never {},
    }
}

fn policy_file(file: &Path, force: bool) -> Result<PolicyFile, Failure> {
    let policy = policy::load_document(file)?;
    let name = fs::canonicalize(file).map_err(|error| Failure::of_file(&file.display().to_string(), error))?;
    Ok(PolicyFile { name: name.display().to_string(), policy, force })
}

/// Name of the machine, as the node's.
fn machine() -> String {
    uname().nodename().to_str().ok().filter(|name| !name.is_empty()).unwrap_or("local").to_owned()
}

fn bind(address: SocketAddr, what: &str, flag: &str) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).map_err(|error| {
        Failure(format!("cannot listen on {address} for {what}: {error}; choose another address with {flag}"))
    })
}

fn url(scheme: &str, listener: &TcpListener) -> Result<String, Failure> {
    let address = listener.local_addr().map_err(|error| Failure(error.to_string()))?;
    Ok(format!("{scheme}://{address}"))
}

/// Where everything is, and what to do first.
fn greeting(arguments: &ServeArguments, admin: &Admin, admin_url: &str, http_url: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let data = arguments.database.as_ref().map_or_else(|| arguments.data.display().to_string(), ToString::to_string);
    let policy = admin.policy_version();
    let note = match admin.policy_file() {
        Some(PolicyFileOutcome::Published) => " (from the file of --policy)",
        None if admin.is_first_start() => " (an example, to be changed)",
        _ => "",
    };
    let sign_in = admin.setup_path().map_or_else(String::new, |path| {
        format!(
            "There is no administrator yet. This link makes the first one, once, within 60 minutes:\n\
             sign in    {admin_url}{path}\n\n"
        )
    });
    format!(
        "Tidegate {version}\n\n\
         dashboard  {admin_url}\n\
         checks     {http_url}\n\
         data       {data}\n\
         policy     version {policy}{note}\n\n\
         {sign_in}\
         Ask for a decision from another terminal:\n  \
           tidegate check user=ada --server {http_url}\n  \
           curl -i {http_url}/v1/check --json '{{\"identities\": [{{\"kind\": \"user\", \"value\": \"ada\"}}]}}'\n\n\
         Ctrl+C stops.\n"
    )
}

fn log_to_stderr(filter: &str, no_color: bool) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(filter)
        .map_err(|error| Failure(format!("--log: {error}; write error, warn, info, debug or trace")))?;
    let colors = !no_color && io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_ansi(colors).init();
    Ok(())
}
