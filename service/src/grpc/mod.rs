//! Checks over gRPC: the services of `proto/`, and those by which clients of gRPC ask how a server is and what it serves.
//!
//! Its parts: `door` (a connection, and each call on it), `body`, `answers` and `codec` (messages in and out), `wire` (those of checks),
//! `stream` (many of them on one call), `limiter`, `config`, `health` and `envoy` (the services), `admin` (calls of the admin server), `status` (refusals).

mod admin_client;
pub(crate) mod check_message;
mod check_stream;
#[doc(hidden)]
pub mod codec;
mod config;
mod connection;
mod health;
mod limiter;
mod request_body;
pub(crate) mod response_body;
mod status;

use std::{future::Future, io, net::TcpListener, sync::Arc, time::Duration};

use rustls::ServerConfig;
use tidegate::clock::Clock;
use tidegate_listener::ConnectionLimiter;
use tokio::sync::watch;
use tonic::Status;

pub use self::admin_client::Admin;
use self::connection::Door;
pub(crate) use self::connection::KIND;
pub use crate::envoy::decide_descriptors;
use crate::{
    http::error::Error,
    listeners::Shared,
    shared::{latency::DoorLatencies, worker_threads::Lanes},
};

/// Messages, services and clients as they are made from `proto/`: a module for each package.
#[allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    rustdoc::broken_intra_doc_links
)]
pub mod proto {
    tonic::include_proto!("packages");

    /// What is served, for clients that ask.
    pub(crate) const DESCRIPTORS: &[u8] = tonic::include_file_descriptor_set!("descriptors");
}

/// The gRPC door.
#[derive(Debug)]
pub struct Grpc {
    /// Where connections come in.
    pub listener: TcpListener,
    /// Where rules are changed, and what was used is forgotten, for those who may.
    pub admin: Admin,
}

impl Grpc {
    /// Opens it, each lane with a door of its own; what it returns goes on until all connections have ended after `stop`.
    pub(crate) fn serve<C: Clock>(
        self,
        shared: &Arc<Shared<C>>,
        latencies: &DoorLatencies,
        workers: usize,
        tls: Option<ServerConfig>,
        (stop, drain): (watch::Receiver<bool>, Duration),
        connections: Arc<ConnectionLimiter>,
    ) -> io::Result<impl Future<Output = ()> + Send + use<C>> {
        let Self { listener, admin } = self;
        // TLS as that of the other doors, and HTTP/2 in it.
        let tls = tls.map(|mut config| {
            config.alpn_protocols = vec![b"h2".to_vec()];
            config
        });
        let (shared, latencies, admin) = (Arc::clone(shared), latencies.clone(), Arc::new(admin));
        let (name, periods) = (KIND.name, shared.periods);
        // HTTP/2 has no refusal that would come before its first frames.
        let lanes = Lanes { listener, tls, connections, refusal: &[], name, count: workers, stop, drain, periods };
        lanes.open(move || Door::new(Arc::clone(&shared), &latencies, Arc::clone(&admin)))
    }
}

/// A refusal, which is counted; of a part of a message, which stands at `within`.
pub(crate) fn refuse<C>(shared: &Shared<C>, error: &Error, within: Option<&str>) -> Status {
    let (status, code) = status::status(error, within);
    tracing::debug!(code, message = status.message(), "refused");
    shared.metrics.refused(KIND.name, code);
    status
}
