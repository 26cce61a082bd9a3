//! `tidegate node`: the doors of an engine that follows an admin server.

use std::{
    convert::Infallible,
    fs,
    future::pending,
    io,
    path::PathBuf,
    sync::{Arc, OnceLock},
};

use tidegate_fleet::{Agent, AgentHandle, AgentStatus, ErrorCounts, NodeToken, PolicySource};
use tidegate_service::{self as service, ListenerErrors, grpc::AdminApiClient};
use tokio::sync::watch;

use crate::{
    cli::NodeArguments,
    output::{Ended, Failure, say},
    server::listeners::{BoundListeners, Urls, close},
    server::process::{Stopping, log_to_stderr, raise_descriptors, runtime},
    server::traces::Sending,
};

pub(crate) fn run(arguments: &NodeArguments, no_color: bool) -> Result<Ended, Failure> {
    log_to_stderr(&arguments.log, no_color)?;
    raise_descriptors(arguments.door.connections_max());
    runtime()?.block_on(serve(arguments, arguments.door.bind()?))
}

async fn serve(arguments: &NodeArguments, listeners: BoundListeners<'_>) -> Result<Ended, Failure> {
    let failure = |error: io::Error| Failure(error.to_string());
    let urls = listeners.urls.clone();
    let engine = arguments.door.engine();
    let mut follower =
        Agent::new(&arguments.admin_url, NodeToken::file(&arguments.token_file)).keeping_in(&arguments.data);
    if let Some(name) = &arguments.name {
        follower = follower.named(name);
    }
    let read = |file: &PathBuf| fs::read(file).map_err(|error| Failure::of_file(&file.display().to_string(), error));
    let trusted = arguments.ca.as_ref().map(read).transpose()?;
    let admin = AdminApiClient::to(&arguments.admin_url, trusted.as_deref());
    let admin = admin.map_err(|error| Failure(format!("{}: {error}", arguments.admin_url)))?;
    if let Some(pem) = trusted {
        follower = follower.trusting(pem);
    }
    // Reports begin before the doors, which need what follows.
    let errors = Arc::new(OnceLock::<ListenerErrors>::new());
    let counted = Arc::clone(&errors);
    let count = move || counted.get().map(ListenerErrors::by_kind).unwrap_or_default();
    let store = listeners.store(&engine).await?;
    let follower = follower.running_as(listeners.process(), ErrorCounts::of(count)).sharing_through(store.clone());
    let following = follower.start(Arc::clone(&engine)).await.map_err(|error| Failure(error.to_string()))?;
    // Ends after the doors.
    let sending = arguments.door.traces.start(following.name())?;
    let source = Arc::new(Followed(following.watch())) as Arc<dyn service::PolicyFeed>;
    let traces = sending.as_ref().map(Sending::traces);
    let doors = listeners.doors(engine, store.clone(), admin, Some(source), traces)?;
    errors.get_or_init(|| doors.errors());
    let doors = doors.serve().map_err(failure)?;
    let mut stopping = Stopping::new().map_err(failure)?;
    say(greeting(arguments, &following, &urls).as_bytes())?;
    let handle = doors.handle();
    let drain = async {
        let delay = stopping.told(arguments.door.drain_delay()).await;
        stopping.drain(&handle, delay).await;
        pending::<Infallible>().await
    };
    tokio::select! {
        served = doors => served.map_err(failure)?,
        never = drain => match never {},
    }
    close(store).await;
    following.leave().await;
    Ok(Ended::Well)
}

/// The admin server, as the door's health sees it.
#[derive(Debug)]
struct Followed(watch::Receiver<AgentStatus>);

impl service::PolicyFeed for Followed {
    fn is_heard(&self) -> bool {
        self.0.borrow().is_connected
    }
}

/// Where everything is.
fn greeting(arguments: &NodeArguments, following: &AgentHandle, urls: &Urls) -> String {
    let (version, name) = (env!("CARGO_PKG_VERSION"), following.name());
    let (admin, data, urls) = (&arguments.admin_url, arguments.data.display(), urls.lines());
    let AgentStatus { version: policy, source, .. } = following.status();
    let policy = match source {
        Some(PolicySource::LastGood) => {
            format!("version {policy} (the last good one, until the admin server is heard)")
        }
        Some(_) => format!("version {policy}"),
        None => "none until the admin server is heard: everything is allowed".to_owned(),
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
