//! What every command that serves needs: addresses, threads, a log, and to be told to stop.

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

use crate::output::Failure;

pub(crate) fn bind(address: SocketAddr, what: &str, flag: &str) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).map_err(|error| {
        Failure(format!("cannot listen on {address} for {what}: {error}; choose another address with {flag}"))
    })
}

pub(crate) fn url(scheme: &str, listener: &TcpListener) -> Result<String, Failure> {
    let address = listener.local_addr().map_err(|error| Failure(error.to_string()))?;
    Ok(format!("{scheme}://{address}"))
}

pub(crate) fn runtime() -> Result<Runtime, Failure> {
    let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.map_err(|error| Failure(format!("no threads to serve with: {error}")))
}

/// Lets this process have as many file descriptors as the system gives it, and says how many where its doors take more
/// connections than that.
pub(crate) fn raise_descriptors(connections: usize) {
    let given = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: given.maximum, ..given }) {
        tracing::warn!(%error, "the number of file descriptors cannot be raised");
    }
    // None: as many as it wants.
    if let Some(descriptors) = getrlimit(Resource::Nofile).current
        && descriptors < connections as u64
    {
        tracing::warn!(
            descriptors,
            connections,
            "fewer file descriptors than the connections that are taken: more than that wait or are cut off; raise the hard limit"
        );
    }
}

pub(crate) fn log_to_stderr(filter: &str, no_color: bool) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(filter)
        .map_err(|error| Failure(format!("--log: {error}; write error, warn, info, debug or trace")))?;
    let colors = !no_color && io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_ansi(colors).init();
    limit_panic_reports();
    Ok(())
}

/// Hears that the process is to stop, from when it was made on.
pub(crate) struct Stopping {
    interrupt: Signal,
    terminate: Signal,
}

impl Stopping {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits for Ctrl+C or SIGTERM; the latter is for balancers to see, so `delay` is for it alone, and what it is then.
    pub(crate) async fn told(&mut self, delay: Duration) -> Duration {
        let delay = tokio::select! {
            _ = self.interrupt.recv() => Duration::ZERO,
            _ = self.terminate.recv() => delay,
        };
        tracing::info!("stopping: open requests may end");
        delay
    }

    /// Lets a door drain; a second signal ends its delay.
    pub(crate) async fn drain(&mut self, door: &Handle, delay: Duration) {
        tokio::select! {
            () = door.drain(delay) => return,
            _ = self.told(Duration::ZERO) => {}
        }
        door.drain(Duration::ZERO).await;
    }
}
