//! A server process with a gRPC listener, for tests.

use std::{
    net::SocketAddr,
    ops::{Deref, DerefMut},
};

use tidegate_middleware::{
    address::AddressReader,
    extract::{Extractor, Extractors},
};
use tidegate_service::{
    ListenerSettings,
    grpc::{
        AdminApiClient, Grpc,
        proto::tidegate::v1::{
            RateLimitRequest, rate_limiter_client::RateLimiterClient,
            rate_limiter_config_client::RateLimiterConfigClient, rate_limiter_health_client::RateLimiterHealthClient,
        },
    },
    http::Authorize,
};
use tidegate_testkit::{PATIENCE, port::ReservedPort};
use tonic::transport::{Channel, Endpoint};

pub(crate) use crate::process::START;
use crate::process::{Process, listen};

/// A server that ends with the test.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    process: Process,
    /// The port on which no admin server listens.
    _absent_admin: Option<ReservedPort>,
}

impl Deref for Server {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl DerefMut for Server {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.process
    }
}

impl Server {
    /// Starts a server with this policy in TOML.
    pub(crate) fn with(policy: &str) -> Self {
        Self::listening(policy, ListenerSettings::default())
    }

    /// Starts a server with this policy and these settings.
    pub(crate) fn listening(policy: &str, settings: ListenerSettings) -> Self {
        let server = Self::alone(settings);
        server.publish(policy);
        server
    }

    /// Starts a server without a policy, whose admin server cannot be reached.
    pub(crate) fn alone(settings: ListenerSettings) -> Self {
        let admin = ReservedPort::new();
        let server = Self::beside(&format!("http://{}", admin.address()), settings);
        Self { _absent_admin: Some(admin), ..server }
    }

    /// Starts a server without a policy, beside an admin server.
    pub(crate) fn beside(admin: &str, settings: ListenerSettings) -> Self {
        let authorize = Authorize::new(
            Extractors::new(["ip=address".parse::<Extractor>().expect("one")], AddressReader::default()).expect("one"),
        );
        let (listener, address) = listen();
        let admin = AdminApiClient::to(admin, None).expect("a client").answering_within(PATIENCE);
        let grpc = Grpc { listener, admin };
        let process = Process::start(settings, authorize, |doors, _| doors.grpc(grpc));
        Self { address, process, _absent_admin: None }
    }

    /// Opens a new connection.
    pub(crate) async fn channel(&self) -> Channel {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address)).expect("an address");
        endpoint.timeout(PATIENCE).connect().await.expect("the server listens")
    }

    pub(crate) async fn limiter(&self) -> RateLimiterClient<Channel> {
        RateLimiterClient::new(self.channel().await)
    }

    pub(crate) async fn config(&self) -> RateLimiterConfigClient<Channel> {
        RateLimiterConfigClient::new(self.channel().await)
    }

    pub(crate) async fn health(&self) -> RateLimiterHealthClient<Channel> {
        RateLimiterHealthClient::new(self.channel().await)
    }
}

/// Returns a check of one user.
pub(crate) fn user(value: &str) -> RateLimitRequest {
    RateLimitRequest { identifier: value.to_owned(), identifier_type: "user".to_owned(), ..RateLimitRequest::default() }
}
