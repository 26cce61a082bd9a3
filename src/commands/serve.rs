//! `tidegate serve`: the control plane and the listeners for checks in one process.

use std::sync::Arc;

use clap::Args;
use tidegate_admin::Admin;
use tidegate_service::grpc::AdminApiClient;

use crate::{
    output::{CommandError, CommandStatus},
    server::{
        control_plane::{ControlPlaneArguments, LocalNode, serve},
        listeners::{ListenersArguments, close},
        process::{bind, raise_descriptors, runtime, start_logging, url},
        traces::TraceExporter,
    },
    value_parsers::{SampleRate, sample_rate},
};

/// Runs everything in one process: checks over HTTP and gRPC, the REST API, and the dashboard.
///
/// The first start publishes an example policy, and prints a link by which the first administrator signs in.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tidegate serve
  tidegate serve --data /var/lib/tidegate --environment prod-eu --production
  tidegate serve --admin 127.0.0.1:0 --http 127.0.0.1:0    any free ports; it prints them
  tidegate serve --redis redis://127.0.0.1:6379            shares limits with nodes and other servers

Ctrl+C or SIGTERM stops it once open requests have ended. A published policy survives a crash at any time.")]
pub(crate) struct ServeArguments {
    #[command(flatten)]
    pub(crate) control: ControlPlaneArguments,
    #[command(flatten)]
    listeners: ListenersArguments,
    /// Keep the requests of one identity in N in memory for 15 minutes, so that policies can be tried on them (what-if): 1/N,
    /// such as 1/10, or off.
    #[arg(long, value_name = "SHARE", env = "TIDEGATE_RECORD", default_value = "off", value_parser = sample_rate)]
    record: SampleRate,
}

pub(crate) fn run(arguments: &ServeArguments, no_color: bool) -> Result<CommandStatus, CommandError> {
    let ServeArguments { control, listeners: settings, record } = arguments;
    start_logging(&control.log, no_color)?;
    raise_descriptors(settings.connections_max() + Admin::CONNECTIONS_MAX);
    let admin = bind(control.admin, "the dashboard", "--admin")?;
    let bound = settings.bind()?;
    let exporter = settings.traces.start(&control.node_name())?;
    runtime()?.block_on(async {
        let engine = settings.engine();
        let urls = Some(bound.urls.clone());
        let own_url = url(control.scheme(), &admin)?;
        let process = bound.process();
        let client = AdminApiClient::own(&own_url).map_err(|error| CommandError(error.to_string()))?;
        let store = bound.store(&engine).await?;
        let traces = exporter.as_ref().map(TraceExporter::traces);
        let listeners = bound.listeners(Arc::clone(&engine), store.clone(), client, None, traces)?;
        let node = LocalNode { engine, store: store.clone(), record: *record, urls, process };
        let outcome = Box::pin(serve(control, admin, node, Some((listeners, settings.drain_delay())))).await;
        close(store).await;
        outcome
    })
}
