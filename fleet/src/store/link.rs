//! The connection to the store: one server, the master of Sentinels, or a cluster; made when it is first needed, and again when it broke.

use std::{collections::HashMap, sync::Arc, time::Duration};

use redis::{
    Client, Cmd, ConnectionInfo, ErrorKind, RedisError, RedisResult, Script, ServerErrorKind, TlsCertificates,
    aio::ConnectionLike,
    cluster::{ClusterClient, ClusterClientBuilder},
    cluster_async::ClusterConnection,
    cluster_routing::{MultipleNodeRoutingInfo, RoutingInfo},
    io::tcp::TcpSettings,
};
use sha2::{Digest, Sha256};
use tokio::{sync::OnceCell, time::timeout};

use super::{
    address::Servers,
    server::{Server, ServerConnection},
};

/// A connection that takes longer is given up.
pub(super) const CONNECT_IN: Duration = Duration::from_secs(1);
/// What has no answer by then is let go of; the check that asked has gone before.
pub(super) const ANSWER_IN: Duration = Duration::from_secs(10);
/// The same, where another server may come in the place of one that is gone: in a cluster, and with Sentinels.
pub(super) const MOVED_IN: Duration = Duration::from_secs(1);
/// What the other machine has not even received by then is lost, and the connection with it: a machine that vanished says
/// nothing, and one that stands receives.
const RECEIVED_IN: Duration = Duration::from_secs(2);

#[derive(Clone)]
enum Connection {
    Server(Arc<ServerConnection>),
    Cluster(Arc<Cluster>),
}

/// What it consists of is known once some server of it answered.
struct Cluster {
    client: ClusterClient,
    connection: OnceCell<ClusterConnection>,
}

/// Asks the script. Clones share a connection, over which questions go out without waiting for one another's answers.
#[derive(Clone)]
pub(super) struct Link {
    connection: Connection,
    id: u64,
    code: &'static str,
    hash: String,
}

impl Link {
    /// Returns a connection to servers that need not be there yet.
    pub(super) fn to(
        servers: Servers,
        tls: Option<TlsCertificates>,
        prefix: &str,
        code: &'static str,
    ) -> RedisResult<Self> {
        let id = id_of(&servers, prefix);
        let to = |server| Connection::Server(Arc::new(ServerConnection::to(server)));
        let connection = match servers {
            Servers::Single(info) => to(Server::At(Box::new(open(info.set_tcp_settings(tcp()), tls.as_ref())?))),
            Servers::Watched(master) => to(Server::Watched(master, tls)),
            Servers::Cluster(infos) => {
                // Tried again here: a charge whose answer was lost is not sent twice.
                let builder = ClusterClientBuilder::new(infos)
                    .retries(0)
                    .connection_timeout(CONNECT_IN)
                    .response_timeout(MOVED_IN)
                    .tcp_settings(tcp());
                let client = if let Some(tls) = tls { builder.certs(tls) } else { builder }.build()?;
                Connection::Cluster(Arc::new(Cluster { client, connection: OnceCell::new() }))
            }
        };
        Ok(Self { connection, id, code, hash: Script::new(code).get_hash().to_owned() })
    }

    /// Returns a number of 52 bits that the same addresses and the same prefix have.
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self.connection, Connection::Cluster(_))
    }

    /// Runs the script, and loads it where it is not known. An error: it may have run.
    pub(super) async fn run(
        &self,
        keys: &[String],
        arguments: &[Vec<u8>],
        patience: Duration,
    ) -> RedisResult<Vec<String>> {
        let by_hash = call("EVALSHA", &self.hash, keys, arguments);
        match self.send(by_hash, patience).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                self.send(call("EVAL", self.code, keys, arguments), patience).await
            }
            answered => answered,
        }
    }

    /// Returns what each server says of itself: of a cluster each master.
    pub(super) async fn info(&self, patience: Duration) -> RedisResult<Vec<String>> {
        let connection = self.connection.clone();
        let asked = async move {
            match connection {
                Connection::Server(server) => {
                    Ok(vec![redis::from_redis_value(server.send(&redis::cmd("INFO")).await?)?])
                }
                Connection::Cluster(cluster) => {
                    let masters = (MultipleNodeRoutingInfo::AllMasters, None);
                    let command = redis::cmd("INFO");
                    let told =
                        cluster.connection().await?.route_command(command, RoutingInfo::MultiNode(masters)).await?;
                    let told: HashMap<String, String> = redis::from_redis_value(told.extract_error()?)?;
                    Ok(told.into_values().collect())
                }
            }
        };
        timeout(patience, asked).await.unwrap_or_else(|_| Err(late()))
    }

    async fn send(&self, command: Cmd, patience: Duration) -> RedisResult<Vec<String>> {
        let connection = self.connection.clone();
        let mut asked = Box::pin(async move {
            match connection {
                Connection::Server(server) => server.send(&command).await,
                Connection::Cluster(cluster) => cluster.connection().await?.req_packed_command(&command).await,
            }
        });
        if let Ok(answer) = timeout(patience, &mut asked).await {
            return redis::from_redis_value(answer?.extract_error()?).map_err(RedisError::from);
        }
        // A connection that is being made is made for the next.
        tokio::spawn(timeout(CONNECT_IN + ANSWER_IN, asked));
        Err(late())
    }
}

impl Cluster {
    async fn connection(&self) -> RedisResult<ClusterConnection> {
        Ok(self.connection.get_or_try_init(|| self.client.get_async_connection()).await?.clone())
    }
}

fn late() -> RedisError {
    RedisError::from((ErrorKind::Io, "it took too long"))
}

/// The server that was asked did not run the script, since the key has moved: it may be sent again.
pub(super) fn has_moved(error: &RedisError) -> bool {
    use ServerErrorKind::{Ask, Moved, TryAgain};
    matches!(error.kind(), ErrorKind::Server(Moved | Ask | TryAgain))
}

/// A question does not wait for the answer to the one before it.
pub(super) fn tcp() -> TcpSettings {
    let settings = TcpSettings::default().set_nodelay(true);
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    let settings = settings.set_user_timeout(RECEIVED_IN);
    settings
}

/// Returns a client of a server; over TLS where there are certificates.
pub(super) fn open(info: ConnectionInfo, tls: Option<&TlsCertificates>) -> RedisResult<Client> {
    match tls {
        Some(tls) => Client::build_with_tls(info, tls.clone()),
        None => Client::open(info),
    }
}

fn id_of(servers: &Servers, prefix: &str) -> u64 {
    let name = |info: &ConnectionInfo| format!("{} {}", info.addr(), info.redis_settings().db());
    let mut names: Vec<_> = servers.infos().iter().map(name).collect();
    names.sort();
    if let Servers::Watched(master) = servers {
        names.push(format!("{} {}", master.name, master.settings.db()));
    }
    names.push(prefix.to_owned());
    let digest = Sha256::digest(names.join("\n"));
    digest.iter().take(8).fold(0, |sum, &byte| sum << 8 | u64::from(byte)) >> 12
}

fn call(how: &str, script: &str, keys: &[String], arguments: &[Vec<u8>]) -> Cmd {
    let mut command = redis::cmd(how);
    command.arg(script).arg(keys.len()).arg(keys).arg(arguments);
    command
}
