//! The parts of the process that every serving command needs: sockets, threads, file descriptors, a log, and signals to stop.

use std::{
    io::{self, IsTerminal},
    net::{SocketAddr, TcpListener},
    time::Duration,
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tidegate_service::{Handle, limit_panic_reports};
use tokio::{
    runtime::{self, Runtime},
    signal::unix::{Signal, SignalKind, signal},
};
use tracing_subscriber::EnvFilter;

use crate::output::CommandError;

pub(crate) fn bind(address: SocketAddr, what: &str, flag: &str) -> Result<TcpListener, CommandError> {
    TcpListener::bind(address).map_err(|error| {
        CommandError(format!("cannot listen on {address} for {what}: {error}; choose another address with {flag}"))
    })
}

pub(crate) fn url(scheme: &str, listener: &TcpListener) -> Result<String, CommandError> {
    let address = listener.local_addr().map_err(|error| CommandError(error.to_string()))?;
    Ok(format!("{scheme}://{address}"))
}

/// Creates the runtime of a server.
pub(crate) fn runtime() -> Result<Runtime, CommandError> {
    let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.map_err(|error| CommandError(format!("cannot start threads: {error}")))
}

/// Creates the runtime of a command that does one thing.
pub(crate) fn current_thread_runtime() -> Result<Runtime, CommandError> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| CommandError(format!("cannot start the runtime: {error}")))
}

/// Raises the limit of file descriptors to the hard limit, and warns if the listeners accept more connections than that.
pub(crate) fn raise_descriptors(connections: usize) {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        tracing::warn!(%error, "cannot raise the limit of file descriptors");
    }
    // `None` is no limit.
    if let Some(descriptors) = getrlimit(Resource::Nofile).current
        && descriptors < connections as u64
    {
        tracing::warn!(
            descriptors,
            connections,
            "there are fewer file descriptors than connections that the listeners accept, so connections above that number wait \
             or are cut off; raise the hard limit (ulimit -Hn)"
        );
    }
}

pub(crate) fn start_logging(filter: &str, no_color: bool) -> Result<(), CommandError> {
    let filter = EnvFilter::try_new(filter)
        .map_err(|error| CommandError(format!("--log: {error}; write error, warn, info, debug or trace")))?;
    let colors = !no_color && io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_ansi(colors).init();
    limit_panic_reports();
    Ok(())
}

/// The signals that stop the process. A signal counts from when this was made.
pub(crate) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits for Ctrl+C or SIGTERM. Returns the drain delay: `delay` after SIGTERM, so that load balancers notice; none after
    /// Ctrl+C.
    pub(crate) async fn wait(&mut self, delay: Duration) -> Duration {
        let delay = tokio::select! {
            _ = self.interrupt.recv() => Duration::ZERO,
            _ = self.terminate.recv() => delay,
        };
        tracing::info!("stopping: waits for open requests to end");
        delay
    }

    /// Drains the listeners. A second signal ends the delay.
    pub(crate) async fn drain(&mut self, listeners: &Handle, delay: Duration) {
        tokio::select! {
            () = listeners.drain(delay) => return,
            _ = self.wait(Duration::ZERO) => {}
        }
        listeners.drain(Duration::ZERO).await;
    }
}
