//! Finds the master through Sentinels, and connects to it. They name another server when they promote a replica.

use redis::{
    AsyncConnectionConfig, Client, ConnectionInfo, ErrorKind, RedisError, RedisResult, TlsCertificates, Value,
    aio::MultiplexedConnection, cmd, from_redis_value,
};
use tokio::task::JoinSet;

use crate::store::{
    address::WatchedMaster,
    client::redis_client::{CONNECT_IN, MOVED_IN, client_of, open, tcp},
};

impl WatchedMaster {
    /// Asks all Sentinels, and connects to the first server that one of them names and that itself says it is the
    /// master.
    pub(crate) async fn connect(&self, tls: Option<&TlsCertificates>) -> RedisResult<MultiplexedConnection> {
        let mut lookups = JoinSet::new();
        for sentinel in &self.sentinels {
            lookups.spawn(ask(sentinel.clone(), self.name.clone(), tls.cloned()));
        }
        let mut failure = RedisError::from((ErrorKind::Io, "no Sentinel answered"));
        let mut tried = Vec::new();
        while let Some(named) = lookups.join_next().await {
            // The task neither panics nor is cancelled.
            let Ok(named) = named else { continue };
            let connected = match named {
                Ok(address) if tried.contains(&address) => continue,
                Ok(address) => {
                    let connected = self.connect_to(&address, tls).await;
                    tried.push(address);
                    connected
                }
                Err(error) => Err(error),
            };
            match connected {
                Ok(connection) => return Ok(connection),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// Connects to a server, unless it says that it is no master: its Sentinel may be out of date or cut off.
    async fn connect_to(
        &self,
        (host, port): &(String, u16),
        tls: Option<&TlsCertificates>,
    ) -> RedisResult<MultiplexedConnection> {
        let mut connection = connect(client_of(host.clone(), *port, self.settings.clone(), tls)?).await?;
        let role: Vec<Value> = cmd("ROLE").query_async(&mut connection).await?;
        match role.into_iter().next().map(from_redis_value::<String>) {
            Some(Ok(role)) if role == "master" => Ok(connection),
            _ => Err(RedisError::from((ErrorKind::Io, "the server that the Sentinels name is no master"))),
        }
    }
}

/// Asks one Sentinel for the address of the master.
async fn ask(sentinel: ConnectionInfo, master: String, tls: Option<TlsCertificates>) -> RedisResult<(String, u16)> {
    let mut connection = connect(open(sentinel.set_tcp_settings(tcp()), tls.as_ref())?).await?;
    let command = cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(&master).to_owned();
    let address: Option<(String, u16)> = command.query_async(&mut connection).await?;
    address.ok_or_else(|| RedisError::from((ErrorKind::Client, "a Sentinel knows no master of this name", master)))
}

/// Connects to a server, with a short time limit, since another server may take over from one that does not answer.
async fn connect(client: Client) -> RedisResult<MultiplexedConnection> {
    let config =
        AsyncConnectionConfig::new().set_connection_timeout(Some(CONNECT_IN)).set_response_timeout(Some(MOVED_IN));
    client.get_multiplexed_async_connection_with_config(&config).await
}
