//! The connection to a cluster. It follows a slot that is being moved, and leaves a paused server for the replica that
//! took its place.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use redis::{
    Cmd, ConnectionInfo, ErrorKind, RedisConnectionInfo, RedisError, RedisResult, ServerErrorKind, TlsCertificates,
    Value,
    aio::ConnectionLike,
    cluster::{ClusterClient, ClusterClientBuilder},
    cluster_async::ClusterConnection,
    cluster_routing::{MultipleNodeRoutingInfo, RoutingInfo},
};
use tokio::{
    sync::OnceCell,
    time::{Instant, timeout},
};

use crate::{
    lock::lock,
    store::client::{
        redis_client::{CONNECT_IN, MOVED_IN, client_of, tcp},
        server_connection::{ServerConnection, ServerTarget},
    },
};

/// The least age of a connection that is replaced because a server of the cluster does not answer.
const REPLACE_AFTER: Duration = Duration::from_secs(2);

/// The time limit for a new connection to all servers.
const MADE_IN: Duration = Duration::from_secs(10);

/// A connection to all servers of a cluster, shared by concurrent requests.
pub(crate) struct StoreCluster {
    client: ClusterClient,
    /// The user and the password of the servers.
    settings: RedisConnectionInfo,
    tls: Option<TlsCertificates>,
    current: Mutex<CurrentConnection>,
    /// The server to which a slot was being moved last, by its address.
    importing: Mutex<Option<(String, Arc<ServerConnection>)>>,
}

/// The current connection and its age. It knows the cluster's servers and slots once one of them has answered.
struct CurrentConnection {
    connection: Arc<OnceCell<ClusterConnection>>,
    since: Instant,
    is_replaced: bool,
}

impl StoreCluster {
    /// Returns a connection to the cluster of these servers, which the first request opens.
    pub(crate) fn of(infos: Vec<ConnectionInfo>, tls: Option<TlsCertificates>) -> RedisResult<Self> {
        let settings = infos.first().map(|info| info.redis_settings().clone()).unwrap_or_default();
        // A charge whose reply was lost must not be sent twice, so the client does not retry; its callers do where it
        // is safe.
        let builder = ClusterClientBuilder::new(infos)
            .retries(0)
            .connection_timeout(CONNECT_IN)
            .response_timeout(MOVED_IN)
            .tcp_settings(tcp());
        let client = if let Some(tls) = &tls { builder.certs(tls.clone()) } else { builder }.build()?;
        let current = CurrentConnection { connection: Arc::default(), since: Instant::now(), is_replaced: false };
        Ok(Self { client, settings, tls, current: Mutex::new(current), importing: Mutex::default() })
    }

    /// Sends a command to the master of its keys, and returns the answer.
    pub(crate) async fn send(self: &Arc<Self>, command: &Cmd) -> RedisResult<Value> {
        let answer = self.connection().await?.req_packed_command(command).await.and_then(Value::extract_error);
        if let Err(error) = &answer {
            if error.kind() == ErrorKind::Server(ServerErrorKind::Ask)
                && let Some((address, _)) = error.redirect_node()
                && let Ok(server) = self.importing(address)
            {
                return server.send_asking(command).await;
            }
            if error.is_timeout() {
                self.replace();
            }
        }
        answer
    }

    /// Returns the output of `INFO` of each master.
    pub(crate) async fn info(&self) -> RedisResult<Vec<String>> {
        let masters = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
        let answers = self.connection().await?.route_command(redis::cmd("INFO"), masters).await?;
        let answers: HashMap<String, String> = redis::from_redis_value(answers.extract_error()?)?;
        Ok(answers.into_values().collect())
    }

    async fn connection(&self) -> RedisResult<ClusterConnection> {
        let connection = Arc::clone(&lock(&self.current).connection);
        Ok(connection.get_or_try_init(|| self.client.get_async_connection()).await?.clone())
    }

    /// Opens a new connection in the background, which asks the cluster for its current masters. The old one is used
    /// until then.
    ///
    /// The client does this itself when a connection breaks, but not for a server that is paused.
    fn replace(self: &Arc<Self>) {
        {
            let mut current = lock(&self.current);
            if current.is_replaced || current.since.elapsed() < REPLACE_AFTER {
                return;
            }
            current.is_replaced = true;
        }
        let cluster = Arc::clone(self);
        tokio::spawn(async move {
            let made = timeout(MADE_IN, cluster.client.get_async_connection()).await;
            let mut current = lock(&cluster.current);
            (current.since, current.is_replaced) = (Instant::now(), false);
            match made {
                Ok(Ok(connection)) => current.connection = Arc::new(OnceCell::new_with(Some(connection))),
                Ok(Err(error)) => tracing::debug!(%error, "the cluster was not connected to anew"),
                Err(_) => tracing::debug!("the cluster was not connected to anew in time"),
            }
        });
    }

    /// Returns a connection to the server to which a slot is being moved. Until that server has the whole slot, it
    /// accepts only requests that the old server redirected.
    fn importing(&self, address: &str) -> RedisResult<Arc<ServerConnection>> {
        let mut importing = lock(&self.importing);
        if let Some((known, server)) = &*importing
            && known == address
        {
            return Ok(Arc::clone(server));
        }
        let (host, port) = address.rsplit_once(':').ok_or_else(no_address)?;
        let port = port.parse().map_err(|_| no_address())?;
        let client = client_of(host.to_owned(), port, self.settings.clone(), self.tls.as_ref())?;
        let server = Arc::new(ServerConnection::to(ServerTarget::At(Box::new(client))));
        *importing = Some((address.to_owned(), Arc::clone(&server)));
        Ok(server)
    }
}

fn no_address() -> RedisError {
    RedisError::from((ErrorKind::UnexpectedReturnType, "a redirection has no address"))
}
