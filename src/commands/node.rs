//! `tidegate node`: the listeners of an engine that follows an admin server.

use std::{
    convert::Infallible,
    fs,
    future::pending,
    io,
    path::PathBuf,
    sync::{Arc, OnceLock},
};

use clap::Args;
use tidegate_fleet::{Agent, AgentHandle, AgentStatus, ErrorCounts, NodeToken, PolicySource};
use tidegate_service::{ListenerErrors, PolicyFeed, grpc::AdminApiClient};
use tokio::{sync::watch, task::block_in_place};

use crate::{
    output::{CommandError, CommandStatus, print_result},
    server::{
        listeners::{BoundListeners, ListenerUrls, ListenersArguments, close},
        process::{StopSignals, raise_descriptors, runtime, start_logging},
        traces::TraceExporter,
    },
    value_parsers::{base_url, node_name},
};

/// Runs a node: it follows an admin server, and answers checks by its policy.
///
/// It starts with the last good policy that it has stored, reconnects by itself after the admin server was away, and applies
/// each published policy between two checks. It needs a token with the scope `node`, which an administrator creates in the
/// dashboard.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tidegate node --admin http://127.0.0.1:8080 --token-file node.token
  tidegate node --admin https://admin.example --token-file /run/secrets/tidegate --name edge-1 --data /var/lib/tidegate
  TIDEGATE_REDIS=redis://:PASSWORD@store:6379 tidegate node --admin https://admin.example --token-file node.token

The node reads the token before each connection, so you can replace the file at any time. GET /readyz answers 200 once there
is a policy. Ctrl+C or SIGTERM stops the node once open requests have ended. Killing it loses nothing.")]
pub(crate) struct NodeArguments {
    /// The URL of the admin server.
    #[arg(long = "admin", value_name = "URL", env = "TIDEGATE_ADMIN_URL", value_parser = base_url)]
    admin_url: String,
    /// The file with the token of the node.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_TOKEN_FILE")]
    token_file: PathBuf,
    /// The name of the node, which no other node has. The default is the name of the machine and a random suffix, which is kept
    /// in the data directory.
    #[arg(long, value_name = "NAME", env = "TIDEGATE_NODE", value_parser = node_name)]
    name: Option<String>,
    /// The data directory, which keeps the last good policy. It is created if it does not exist.
    #[arg(long, value_name = "FOLDER", env = "TIDEGATE_DATA", default_value = "./tidegate-data")]
    data: PathBuf,
    /// Certificates of authorities to trust in addition to those of the system; a PEM file.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_CA")]
    ca: Option<PathBuf>,
    #[command(flatten)]
    listeners: ListenersArguments,
    /// The log filter for standard error: error, warn, info, debug or trace, for all modules or by module (MODULE=LEVEL,...).
    #[arg(long, value_name = "FILTER", env = "TIDEGATE_LOG", default_value = "info,actix_server=warn,actix_http=off")]
    log: String,
}

pub(crate) fn run(arguments: &NodeArguments, no_color: bool) -> Result<CommandStatus, CommandError> {
    start_logging(&arguments.log, no_color)?;
    raise_descriptors(arguments.listeners.connections_max());
    runtime()?.block_on(serve(arguments, arguments.listeners.bind()?))
}

async fn serve(arguments: &NodeArguments, listeners: BoundListeners<'_>) -> Result<CommandStatus, CommandError> {
    let failure = |error: io::Error| CommandError(error.to_string());
    let urls = listeners.urls.clone();
    let engine = arguments.listeners.engine();
    let mut agent =
        Agent::new(&arguments.admin_url, NodeToken::file(&arguments.token_file)).keeping_in(&arguments.data);
    if let Some(name) = &arguments.name {
        agent = agent.named(name);
    }
    let read =
        |file: &PathBuf| fs::read(file).map_err(|error| CommandError::of_file(&file.display().to_string(), error));
    let trusted = arguments.ca.as_ref().map(read).transpose()?;
    let admin = AdminApiClient::to(&arguments.admin_url, trusted.as_deref());
    let admin = admin.map_err(|error| CommandError(format!("{}: {error}", arguments.admin_url)))?;
    if let Some(pem) = trusted {
        agent = agent.trusting(pem);
    }
    // Reports begin before the listeners exist, so their error counts come later.
    let errors = Arc::new(OnceLock::<ListenerErrors>::new());
    let counted = Arc::clone(&errors);
    let count = move || counted.get().map(ListenerErrors::by_kind).unwrap_or_default();
    let store = listeners.store(&engine).await?;
    let agent = agent.running_as(listeners.process(), ErrorCounts::of(count)).sharing_through(store.clone());
    let handle = agent.start(Arc::clone(&engine)).await.map_err(|error| CommandError(error.to_string()))?;
    // It must end after the listeners. Its HTTP client may not be made on a thread of the runtime.
    let exporter = block_in_place(|| arguments.listeners.traces.start(handle.name()))?;
    let source = Arc::new(AdminServerFeed(handle.watch())) as Arc<dyn PolicyFeed>;
    let traces = exporter.as_ref().map(TraceExporter::traces);
    let listeners = listeners.listeners(engine, store.clone(), admin, Some(source), traces)?;
    errors.get_or_init(|| listeners.errors());
    let listeners = listeners.serve().map_err(failure)?;
    let mut signals = StopSignals::new().map_err(failure)?;
    print_result(greeting(arguments, &handle, &urls).as_bytes())?;
    let running = listeners.handle();
    let drain = async {
        let delay = signals.wait(arguments.listeners.drain_delay()).await;
        signals.drain(&running, delay).await;
        pending::<Infallible>().await
    };
    tokio::select! {
        served = listeners => served.map_err(failure)?,
        never = drain => match never {},
    }
    close(store).await;
    handle.leave().await;
    Ok(CommandStatus::Success)
}

/// The connection to the admin server, for the health check of the listeners.
#[derive(Debug)]
struct AdminServerFeed(watch::Receiver<AgentStatus>);

impl PolicyFeed for AdminServerFeed {
    fn is_heard(&self) -> bool {
        self.0.borrow().is_connected
    }
}

/// Formats the text that the start prints: the URLs, and the policy.
fn greeting(arguments: &NodeArguments, handle: &AgentHandle, urls: &ListenerUrls) -> String {
    let (version, name) = (env!("CARGO_PKG_VERSION"), handle.name());
    let (admin, data, urls) = (&arguments.admin_url, arguments.data.display(), urls.lines());
    let AgentStatus { version: policy, source, .. } = handle.status();
    let policy = match source {
        Some(PolicySource::LastGood) => {
            format!("version {policy} (the last good one, until the admin server is reached)")
        }
        Some(_) => format!("version {policy}"),
        None => "none until the admin server is reached: everything is allowed".to_owned(),
    };
    format!(
        "Tidegate {version}\n\n\
         node       {name}\n\
         follows    {admin}\n\
         {urls}\
         data       {data}\n\
         policy     {policy}\n\n\
         Ctrl+C stops.\n"
    )
}
