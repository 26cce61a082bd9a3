//! The connection to the store, which runs the script: over one server, the master that Sentinels name, or a cluster.
//! It is opened when it is first needed, and reopened when it breaks.

use std::{sync::Arc, time::Duration};

use redis::{Cmd, ConnectionInfo, ErrorKind, RedisError, RedisResult, Script, ServerErrorKind, TlsCertificates, Value};
use sha2::{Digest, Sha256};
use tokio::time::{Instant, timeout};

use crate::store::{
    address::Servers,
    client::{
        cluster_connection::StoreCluster,
        fault_log::FaultLog,
        redis_client::{ANSWER_IN, CONNECT_IN, open, tcp},
        server_connection::{ServerConnection, ServerTarget},
    },
    script::encode::SCRIPT,
};

#[derive(Clone)]
enum StoreTarget {
    Server(Arc<ServerConnection>),
    Cluster(Arc<StoreCluster>),
    #[cfg(test)]
    Simulated(Arc<crate::store::simulation::Wire>),
}

impl StoreTarget {
    async fn send(&self, command: &Cmd) -> RedisResult<Value> {
        match self {
            Self::Server(server) => server.send(command).await,
            Self::Cluster(cluster) => cluster.send(command).await,
            #[cfg(test)]
            Self::Simulated(wire) => wire.send(command).await,
        }
    }
}

/// A connection to the store. Clones share it, and requests do not wait for each other's replies.
#[derive(Clone)]
pub(crate) struct StoreConnection {
    target: StoreTarget,
    pub(crate) faults: Arc<FaultLog>,
    /// A number of 52 bits that is the same for the same addresses and prefix.
    pub(crate) id: u64,
    script_hash: String,
}

impl StoreConnection {
    /// Makes a connection to servers that need not be reachable yet.
    pub(crate) fn to(servers: Servers, tls: Option<TlsCertificates>, prefix: &str) -> RedisResult<Self> {
        let id = id_of(&servers, prefix);
        let to = |server| StoreTarget::Server(Arc::new(ServerConnection::to(server)));
        let target = match servers {
            Servers::Single(info) => to(ServerTarget::At(Box::new(open(info.set_tcp_settings(tcp()), tls.as_ref())?))),
            Servers::Watched(master) => to(ServerTarget::Watched(master, tls)),
            Servers::Cluster(infos) => StoreTarget::Cluster(Arc::new(StoreCluster::of(infos, tls)?)),
        };
        Ok(Self::over(target, id))
    }

    /// Makes a connection to the store of a simulation.
    #[cfg(test)]
    pub(crate) fn simulated(wire: Arc<crate::store::simulation::Wire>) -> Self {
        Self::over(StoreTarget::Simulated(wire), 0)
    }

    fn over(target: StoreTarget, id: u64) -> Self {
        Self { target, faults: Arc::default(), id, script_hash: Script::new(SCRIPT).get_hash().to_owned() }
    }

    pub(crate) fn is_cluster(&self) -> bool {
        match &self.target {
            StoreTarget::Server(_) => false,
            StoreTarget::Cluster(_) => true,
            #[cfg(test)]
            StoreTarget::Simulated(wire) => wire.is_cluster(),
        }
    }

    /// Reconnects in the background where no request does: to the master that Sentinels name now, or to a server that
    /// is back. The client of a cluster does this itself.
    pub(crate) fn reconnect(&self) {
        if let StoreTarget::Server(server) = &self.target {
            server.reconnect();
        }
    }

    /// Returns the number of connections since the start; for a cluster 0.
    pub(crate) fn connections(&self) -> u64 {
        if let StoreTarget::Server(server) = &self.target { server.made() } else { 0 }
    }

    /// Runs the script, and loads it where the server does not know it. After an error it may have run.
    pub(crate) async fn run(
        &self,
        keys: &[String],
        arguments: &[Vec<u8>],
        patience: Duration,
    ) -> RedisResult<Vec<String>> {
        let by_hash = call("EVALSHA", &self.script_hash, keys, arguments);
        match self.send(by_hash, patience).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                self.send(call("EVAL", SCRIPT, keys, arguments), patience).await
            }
            answered => answered,
        }
    }

    /// Returns the output of `INFO` of each server; of a cluster, of each master.
    pub(crate) async fn info(&self, patience: Duration) -> RedisResult<Vec<String>> {
        let asked = async {
            if let StoreTarget::Cluster(cluster) = &self.target {
                return cluster.info().await;
            }
            Ok(vec![redis::from_redis_value(self.target.send(&redis::cmd("INFO")).await?)?])
        };
        timeout(patience, asked).await.unwrap_or_else(|_| Err(late()))
    }

    async fn send(&self, command: Cmd, patience: Duration) -> RedisResult<Vec<String>> {
        let target = self.target.clone();
        let mut asked = Box::pin(async move { target.send(&command).await });
        if let Ok(answer) = timeout(patience, &mut asked).await {
            return redis::from_redis_value(answer?).map_err(RedisError::from);
        }
        // The request goes on in the background, so that the next request finds the connection open. Its late outcome
        // shows the cause of the silence.
        let (faults, since) = (Arc::clone(&self.faults), Instant::now());
        tokio::spawn(async move {
            if let Ok(Err(error)) = timeout(CONNECT_IN + ANSWER_IN, asked).await {
                faults.meet_late(&error, since);
            }
        });
        Err(late())
    }
}

fn late() -> RedisError {
    RedisError::from((ErrorKind::Io, "it took too long"))
}

/// Returns whether the server did not run the script because the key has moved, so that it may be sent again.
pub(crate) fn has_moved(error: &RedisError) -> bool {
    use ServerErrorKind::{Ask, Moved, TryAgain};
    matches!(error.kind(), ErrorKind::Server(Moved | Ask | TryAgain))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::address;

    fn id(urls: &[&str], prefix: &str) -> u64 {
        let urls: Vec<_> = urls.iter().map(|url| (*url).to_owned()).collect();
        id_of(&address::parse(&urls).expect("addresses"), prefix)
    }

    #[test]
    fn a_store_is_known_by_its_addresses_its_master_and_its_prefix() {
        let (a, b) = ("redis-sentinel://a/limits", "redis-sentinel://b/limits");
        let of_two = id(&[a, b], "tidegate");
        assert_eq!(of_two, id(&[b, "redis-sentinel://a:26379/limits?sentinel_password=x"], "tidegate"));
        assert_eq!(id(&["redis://a"], "p"), id(&["redis://user:password@a:6379/0"], "p"));
        let others = [
            id(&[a, b], "shop"),
            id(&[a], "tidegate"),
            id(&["redis-sentinel://a/others", "redis-sentinel://b/others"], "tidegate"),
            id(&["redis-sentinel://a/limits/1", "redis-sentinel://b/limits/1"], "tidegate"),
            id(&["redis://a:26379", "redis://b:26379"], "tidegate"),
        ];
        assert!(!others.contains(&of_two), "{of_two}: {others:?}");
        assert!(others.iter().all(|id| *id < 1 << 52));
    }
}
