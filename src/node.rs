//! `tidegate node`: the doors of an engine that follows an admin server.

use std::{convert::Infallible, fs, future::pending, io, net::TcpListener, sync::Arc};

use tidegate::Engine;
use tidegate_fleet::{Follower, Following, Source, Status, Token};
use tidegate_service::{
    self as service,
    http::{CONNECTIONS_MAX, Http},
};

use crate::{
    cli::NodeArguments,
    output::{Ended, Failure, say},
    running::{Stopping, bind, decider, log_to_stderr, raise_descriptors, runtime, url, workers},
};

pub(crate) fn run(arguments: &NodeArguments, no_color: bool) -> Result<Ended, Failure> {
    log_to_stderr(&arguments.log, no_color)?;
    let workers = workers(arguments.door.workers);
    raise_descriptors(CONNECTIONS_MAX);
    let http = bind(arguments.door.http, "checks over HTTP", "--http")?;
    runtime()?.block_on(serve(arguments, http, workers))
}

async fn serve(arguments: &NodeArguments, http: TcpListener, workers: usize) -> Result<Ended, Failure> {
    let failure = |error: io::Error| Failure(error.to_string());
    let http_url = url(arguments.door.listening.scheme(), &http)?;
    let engine = Arc::new(Engine::with_max_keys(arguments.door.max_keys));
    let mut follower =
        Follower::new(&arguments.admin_url, Token::file(&arguments.token_file)).keeping_in(&arguments.data);
    if let Some(name) = &arguments.name {
        follower = follower.named(name);
    }
    if let Some(file) = &arguments.ca {
        let pem = fs::read(file).map_err(|error| Failure::of_file(&file.display().to_string(), error))?;
        follower = follower.trusting(pem);
    }
    let following = follower.start(Arc::clone(&engine)).await.map_err(|error| Failure(error.to_string()))?;
    let following = Arc::new(Followed(following));
    let settings = arguments.door.listening.settings(Some(Arc::clone(&following) as Arc<dyn service::Source>))?;
    let authorize = arguments.door.authorize.settings()?;
    let door =
        Http { listener: http, decider: decider(&engine)?, authorize, workers, settings }.serve().map_err(failure)?;
    let mut stopping = Stopping::new().map_err(failure)?;
    say(greeting(arguments, &following.0, &http_url).as_bytes())?;
    let handle = door.handle();
    let drain = async {
        let delay = stopping.told(arguments.door.listening.drain_delay()).await;
        stopping.drain(&handle, delay).await;
        pending::<Infallible>().await
    };
    tokio::select! {
        served = door => served.map(|()| Ended::Well).map_err(failure),
        never = drain => match never {},
    }
}

/// The admin server, as the door's health sees it.
#[derive(Debug)]
struct Followed(Following);

impl service::Source for Followed {
    fn is_heard(&self) -> bool {
        self.0.status().is_connected
    }
}

/// Where everything is.
fn greeting(arguments: &NodeArguments, following: &Following, http_url: &str) -> String {
    let (version, name) = (env!("CARGO_PKG_VERSION"), following.name());
    let (admin, data) = (&arguments.admin_url, arguments.data.display());
    let Status { version: policy, source, .. } = following.status();
    let policy = match source {
        Some(Source::LastGood) => format!("version {policy} (the last good one, until the admin server is heard)"),
        Some(_) => format!("version {policy}"),
        None => "none until the admin server is heard: everything is allowed".to_owned(),
    };
    format!(
        "Tidegate {version}\n\n\
         node       {name}\n\
         follows    {admin}\n\
         checks     {http_url}\n\
         data       {data}\n\
         policy     {policy}\n\n\
         Ctrl+C stops.\n"
    )
}
