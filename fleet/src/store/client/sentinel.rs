//! Finds the master through Sentinels, and connects to it. They name another server when they promote a replica.

use redis::{
    ConnectionInfo, ErrorKind, RedisError, RedisResult, TlsCertificates, Value, aio::MultiplexedConnection, cmd,
    from_redis_value,
};
use tokio::task::JoinSet;

use crate::store::{
    address::WatchedMaster,
    client::redis_client::{MOVED_IN, client_of, connect, open, tcp},
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
            match named {
                Ok(address) if tried.contains(&address) => {}
                Ok(address) => match self.connect_to(&address, tls).await {
                    Ok(connection) => return Ok(connection),
                    Err(error) => {
                        failure = error;
                        tried.push(address);
                    }
                },
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
        let mut connection = connect(&client_of(host.clone(), *port, self.settings.clone(), tls)?, MOVED_IN).await?;
        let role: Vec<Value> = cmd("ROLE").query_async(&mut connection).await?;
        match role.into_iter().next().map(from_redis_value::<String>) {
            Some(Ok(role)) if role == "master" => Ok(connection),
            _ => Err(RedisError::from((ErrorKind::Io, "the server that the Sentinels name is no master"))),
        }
    }
}

/// Asks one Sentinel for the address of the master.
async fn ask(sentinel: ConnectionInfo, master: String, tls: Option<TlsCertificates>) -> RedisResult<(String, u16)> {
    let mut connection = connect(&open(sentinel.set_tcp_settings(tcp()), tls.as_ref())?, MOVED_IN).await?;
    let command = cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(&master).to_owned();
    let address: Option<(String, u16)> = command.query_async(&mut connection).await?;
    address.ok_or_else(|| RedisError::from((ErrorKind::Client, "a Sentinel knows no master of this name", master)))
}
