//! `tidegate serve` and `tidegate admin`: binds, opens, says where it is, runs, and drains.

use std::{convert::Infallible, fs, future::pending, io, net::TcpListener, path::Path, sync::Arc, time::Duration};

use rustix::system::uname;
use tidegate::{Engine, clock::SystemClock};
use tidegate_admin::{Admin, FiguresClock, PolicyFile, PolicyFileOutcome, Settings};
use tidegate_service::{
    Running,
    http::{CONNECTIONS_MAX, Http},
};
use tokio::sync::oneshot;

use crate::{
    cli::{ControlArguments, ServeArguments, Share},
    output::{Ended, Failure, complain, say},
    policy,
    running::{Stopping, bind, decider, log_to_stderr, raise_descriptors, runtime, url, workers},
};

/// Room for keys where nobody checks.
const ALONE_KEYS: usize = 1_000;

pub(crate) fn run(arguments: &ServeArguments, no_color: bool) -> Result<Ended, Failure> {
    log_to_stderr(&arguments.control.log, no_color)?;
    let workers = workers(arguments.door.workers);
    raise_descriptors(CONNECTIONS_MAX + Admin::CONNECTIONS_MAX);
    let admin = bind(arguments.control.admin, "the dashboard", "--admin")?;
    let http = bind(arguments.door.http, "checks over HTTP", "--http")?;
    runtime()?.block_on(async {
        let listening = &arguments.door.listening;
        let check_url = url(listening.scheme(), &http)?;
        let settings = listening.settings(None)?;
        let engine = Arc::new(Engine::with_max_keys(arguments.door.max_keys));
        let authorize = arguments.door.authorize.settings()?;
        let door = Http { listener: http, decider: decider(&engine)?, authorize, workers, settings };
        let node = Node { engine, record: arguments.record, check_url: Some(check_url) };
        Box::pin(serve(&arguments.control, admin, node, Some((door, listening.drain_delay())))).await
    })
}

/// `tidegate admin`: the control plane, whose engine compiles and answers no checks.
pub(crate) fn run_alone(arguments: &ControlArguments, no_color: bool) -> Result<Ended, Failure> {
    log_to_stderr(&arguments.log, no_color)?;
    raise_descriptors(Admin::CONNECTIONS_MAX);
    let admin = bind(arguments.admin, "the dashboard", "--admin")?;
    let node = Node { engine: Arc::new(Engine::with_max_keys(ALONE_KEYS)), record: Share(None), check_url: None };
    runtime()?.block_on(serve(arguments, admin, node, None))
}

/// What decides beside the control plane.
struct Node {
    engine: Arc<Engine>,
    record: Share,
    /// Where it answers; `None`: nowhere.
    check_url: Option<String>,
}

async fn serve(
    arguments: &ControlArguments,
    listener: TcpListener,
    node: Node,
    door: Option<(Http<SystemClock>, Duration)>,
) -> Result<Ended, Failure> {
    let failure = |error: io::Error| Failure(error.to_string());
    let has_tls = arguments.access.tls().is_some();
    let scheme = if has_tls { "https" } else { "http" };
    let admin_url = arguments.admin_url.clone().map_or_else(|| url(scheme, &listener), Ok)?;
    let policy = arguments.policy.as_deref().map(|file| policy_file(file, arguments.policy_force)).transpose()?;
    let settings = Settings {
        policy,
        url: arguments.admin_url.clone(),
        data: arguments.data.clone(),
        database: arguments.database.clone(),
        keeps_files: arguments.is_data_given,
        listener,
        engine: node.engine,
        environment: arguments.environment.clone(),
        is_node: door.is_some(),
        node: arguments.node.clone().unwrap_or_else(machine),
        figures_clock: FiguresClock::default(),
        keys: arguments.keys,
        record: node.record.0,
        check_url: node.check_url.clone(),
        access: arguments.access.settings()?,
    };
    let admin = Admin::open(settings).await.map_err(|error| Failure(error.to_string()))?;
    let delay = door.as_ref().map_or(Duration::ZERO, |(_, delay)| *delay);
    let door = door.map(|(door, _)| door.serve()).transpose().map_err(failure)?;
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
    say(greeting(arguments, &admin, &admin_url, node.check_url.as_deref()).as_bytes())?;

    let door_handle = door.as_ref().map(Running::handle);
    let (stop_admin, told_to_stop) = oneshot::channel::<()>();
    let admin = admin.serve(async { drop(told_to_stop.await) });
    let door = async {
        match door {
            Some(door) => door.await,
            // It ends with the admin server.
            None => Ok(()),
        }
    };
    let drain = async {
        let delay = stopping.told(delay).await;
        if let Some(door) = door_handle {
            stopping.drain(&door, delay).await;
        }
        drop(stop_admin);
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

/// Where everything is, and what to do first.
fn greeting(arguments: &ControlArguments, admin: &Admin, admin_url: &str, http_url: Option<&str>) -> String {
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
    let checks =
        http_url.map_or_else(|| "by the nodes that follow this server: tidegate node --help".to_owned(), str::to_owned);
    let ask = http_url.map_or_else(String::new, |http_url| {
        format!(
            "Ask for a decision from another terminal:\n  \
               tidegate check user=ada --server {http_url}\n  \
               curl -i {http_url}/v1/check --json '{{\"identities\": [{{\"kind\": \"user\", \"value\": \"ada\"}}]}}'\n\n"
        )
    });
    format!(
        "Tidegate {version}\n\n\
         dashboard  {admin_url}\n\
         checks     {checks}\n\
         data       {data}\n\
         policy     version {policy}{note}\n\n\
         {sign_in}\
         {ask}\
         Ctrl+C stops.\n"
    )
}
