//! The gRPC listener: its settings, and its start.

use std::{future::Future, io, net::TcpListener, sync::Arc};

use tidegate::clock::Clock;

use super::{admin_client::AdminApiClient, call_handler::CallHandler};
use crate::shared::{service_state::ServiceState, worker_threads::WorkerThreads};

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
        mut threads: WorkerThreads,
    ) -> io::Result<impl Future<Output = ()> + Send + use<C>> {
        // The TLS of the other listeners, with HTTP/2 in it.
        if let Some(tls) = &mut threads.tls {
            tls.alpn_protocols = vec![b"h2".to_vec()];
        }
        let (shared, admin) = (Arc::clone(shared), Arc::new(self.admin));
        // HTTP/2 has no refusal before its first frames.
        threads.start(self.listener, &[], move |latencies| {
            CallHandler::new(Arc::clone(&shared), latencies, Arc::clone(&admin))
        })
    }
}
