//! The gRPC listener: its settings, and its start.

use std::{future::Future, io, net::TcpListener, sync::Arc, time::Duration};

use rustls::ServerConfig;
use tidegate::clock::Clock;
use tokio::sync::watch;

use super::{admin_client::AdminApiClient, call_handler::CallHandler, methods::KIND};
use crate::shared::{listener_counts::ListenerCounts, service_state::ServiceState, worker_threads::WorkerThreads};

/// The gRPC listener, before it starts.
#[derive(Debug)]
pub struct Grpc {
    /// The socket that accepts connections.
    pub listener: TcpListener,
    /// The client of the admin server, which changes rules and resets what was used.
    pub admin: AdminApiClient,
}

impl Grpc {
    /// Starts the listener, each worker thread with a handler of its own. The future that it returns resolves when all
    /// connections have ended after `stop`.
    pub(crate) fn serve<C: Clock>(
        self,
        shared: &Arc<ServiceState<C>>,
        ListenerCounts { latencies, connections }: ListenerCounts,
        workers: usize,
        tls: Option<ServerConfig>,
        (stop, drain): (watch::Receiver<bool>, Duration),
    ) -> io::Result<impl Future<Output = ()> + Send + use<C>> {
        let Self { listener, admin } = self;
        // The TLS of the other listeners, with HTTP/2 in it.
        let tls = tls.map(|mut config| {
            config.alpn_protocols = vec![b"h2".to_vec()];
            config
        });
        let (shared, admin) = (Arc::clone(shared), Arc::new(admin));
        let (name, timeouts) = (KIND.name, shared.timeouts);
        // HTTP/2 has no refusal before its first frames.
        let threads =
            WorkerThreads { listener, tls, connections, refusal: &[], name, count: workers, stop, drain, timeouts };
        threads.start(move || CallHandler::new(Arc::clone(&shared), &latencies, Arc::clone(&admin)))
    }
}
