//! `tidegate serve` and `tidegate admin`: binds, opens, says where it is, runs, and drains.

use std::{convert::Infallible, fs, future::pending, io, net::TcpListener, path::Path, sync::Arc, time::Duration};

use rustix::system::uname;
use tidegate::{Engine, clock::SystemClock};
use tidegate_admin::{
    Admin, ConnectionCaps, ErrorCounts, FiguresClock, Periods, PolicyFile, PolicyFileOutcome, Process, Settings,
};
use tidegate_fleet::store::SharedEngine;
use tidegate_service::{Listeners, RunningListeners, grpc::AdminApiClient};
use tokio::sync::oneshot;

use crate::{
    cli::{ControlArguments, ServeArguments, Share},
    output::{Ended, Failure, complain, say},
    policy_file,
    server::authorize::AddressArguments,
    server::listeners::{Urls, build, close},
    server::process::{Stopping, bind, log_to_stderr, raise_descriptors, runtime, url},
    server::traces::Sending,
};

/// Room for keys where nobody checks.
const ALONE_KEYS: usize = 1_000;

pub(crate) fn run(arguments: &ServeArguments, no_color: bool) -> Result<Ended, Failure> {
    log_to_stderr(&arguments.control.log, no_color)?;
    raise_descriptors(arguments.door.connections_max() + Admin::CONNECTIONS_MAX);
    let admin = bind(arguments.control.admin, "the dashboard", "--admin")?;
    let listeners = arguments.door.bind()?;
    let sending = arguments.door.traces.start(&node_name(&arguments.control))?;
    runtime()?.block_on(async {
        let engine = arguments.door.engine();
        let urls = Some(listeners.urls.clone());
        let own = url(arguments.control.access.scheme(), &admin)?;
        let process = listeners.process();
        let way = AdminApiClient::own(&own).map_err(|error| Failure(error.to_string()))?;
        let store = listeners.store(&engine).await?;
        let traces = sending.as_ref().map(Sending::traces);
        let doors = listeners.doors(Arc::clone(&engine), store.clone(), way, None, traces)?;
        let node = Node { engine, store: store.clone(), record: arguments.record, urls, process };
        let ended = Box::pin(serve(&arguments.control, admin, node, Some((doors, arguments.door.drain_delay())))).await;
        close(store).await;
        ended
    })
}

/// `tidegate admin`: the control plane, whose engine compiles and answers no checks.
pub(crate) fn run_alone(
    arguments: &ControlArguments,
    addresses: &AddressArguments,
    no_color: bool,
) -> Result<Ended, Failure> {
    log_to_stderr(&arguments.log, no_color)?;
    raise_descriptors(Admin::CONNECTIONS_MAX);
    let admin = bind(arguments.admin, "the dashboard", "--admin")?;
    let engine = Arc::new(Engine::with_max_keys(ALONE_KEYS).with_ipv6_prefix(addresses.ipv6_prefix));
    let node = Node { engine, store: None, record: Share(None), urls: None, process: build() };
    runtime()?.block_on(serve(arguments, admin, node, None))
}

/// What decides beside the control plane.
struct Node {
    engine: Arc<Engine>,
    store: Option<Arc<SharedEngine<SystemClock>>>,
    record: Share,
    /// Where it answers; `None`: nowhere.
    urls: Option<Urls>,
    process: Process,
}

async fn serve(
    arguments: &ControlArguments,
    listener: TcpListener,
    node: Node,
    doors: Option<(Listeners<SystemClock>, Duration)>,
) -> Result<Ended, Failure> {
    let failure = |error: io::Error| Failure(error.to_string());
    let admin_url = arguments.admin_url.clone().map_or_else(|| url(arguments.access.scheme(), &listener), Ok)?;
    let policy = arguments.policy.as_deref().map(|file| policy_file(file, arguments.policy_force)).transpose()?;
    let errors = doors.as_ref().map(|(doors, _)| doors.errors());
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
        is_node: doors.is_some(),
        node: node_name(arguments),
        figures_clock: FiguresClock::default(),
        keys: arguments.keys,
        record: node.record.0,
        check_url: node.urls.as_ref().map(|urls| urls.http.clone()),
        process: node.process,
        errors: errors.map(|errors| ErrorCounts::of(move || errors.by_kind())).unwrap_or_default(),
        access: arguments.access.settings()?,
        connections: ConnectionCaps::new(Admin::CONNECTIONS_MAX, arguments.admin_connections_per_peer),
        periods: Periods::default(),
    };
    let admin = Admin::open(settings).await.map_err(|error| Failure(error.to_string()))?;
    let delay = doors.as_ref().map_or(Duration::ZERO, |(_, delay)| *delay);
    let doors = doors.map(|(doors, _)| doors.serve()).transpose().map_err(failure)?;
    let mut stopping = Stopping::new().map_err(failure)?;
    match admin.policy_file() {
        Some(PolicyFileOutcome::Kept) => complain(
            "warning: the file of --policy changed, but the live policy was edited since it was last published from there, so \
             that one stays in force; --policy-force publishes the file over it",
        ),
        Some(PolicyFileOutcome::Waits) => complain(
            "warning: the file of --policy changed, but the newest version went to some nodes only, so the file was not \
             published; give that version to all or take it back (tidegate policy rollout), and start again",
        ),
        _ => {}
    }
    if admin.is_exposed() {
        complain(
            "warning: the dashboard is reachable from other machines, without TLS; browsers keep a session over https only, so \
             give it a certificate with --admin-tls-cert, put a proxy with TLS before it and name its https:// address with --admin-url, \
             or listen on loopback",
        );
    }
    if admin.is_folder_open() {
        let data = arguments.data.display();
        complain(format_args!(
            "warning: other users of this machine may look into the data folder {data}; they cannot open its files, but close it \
             all the same: chmod 700 {data}"
        ));
    }
    say(greeting(arguments, &admin, &admin_url, node.urls.as_ref()).as_bytes())?;

    let handle = doors.as_ref().map(RunningListeners::handle);
    let (stop_admin, told_to_stop) = oneshot::channel::<()>();
    let admin = admin.serve(async { drop(told_to_stop.await) });
    let doors = async {
        match doors {
            Some(doors) => doors.await,
            // It ends with the admin server.
            None => Ok(()),
        }
    };
    let drain = async {
        let delay = stopping.told(delay).await;
        if let Some(doors) = handle {
            stopping.drain(&doors, delay).await;
        }
        drop(stop_admin);
        pending::<Infallible>().await
    };
    tokio::select! {
        served = async { tokio::try_join!(admin, doors) } => served.map(|_| Ended::Well).map_err(failure),
        never = drain => match never {},
    }
}

fn policy_file(file: &Path, force: bool) -> Result<PolicyFile, Failure> {
    let policy = policy_file::load_document(file)?;
    let name = fs::canonicalize(file).map_err(|error| Failure::of_file(&file.display().to_string(), error))?;
    Ok(PolicyFile { name: name.display().to_string(), policy, force })
}

/// That of the machine, unless one is given.
fn node_name(arguments: &ControlArguments) -> String {
    let machine = || uname().nodename().to_str().ok().filter(|name| !name.is_empty()).unwrap_or("local").to_owned();
    arguments.node.clone().unwrap_or_else(machine)
}

/// Where everything is, and what to do first.
fn greeting(arguments: &ControlArguments, admin: &Admin, admin_url: &str, urls: Option<&Urls>) -> String {
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
    let doors = urls.map_or_else(
        || "checks     by the nodes that follow this server: tidegate node --help\n".to_owned(),
        Urls::lines,
    );
    let ask = urls.map_or_else(String::new, |Urls { http: http_url, .. }| {
        format!(
            "Ask for a decision from another terminal:\n  \
               tidegate check user=ada --server {http_url}\n  \
               curl -i {http_url}/v1/check --json '{{\"identities\": [{{\"kind\": \"user\", \"value\": \"ada\"}}]}}'\n\n"
        )
    });
    format!(
        "Tidegate {version}\n\n\
         dashboard  {admin_url}\n\
         {doors}\
         data       {data}\n\
         policy     version {policy}{note}\n\n\
         {sign_in}\
         {ask}\
         Ctrl+C stops.\n"
    )
}
