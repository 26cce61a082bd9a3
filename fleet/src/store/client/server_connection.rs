//! The connection to a single server, or to the master that Sentinels name: reconnects when the connection breaks, and
//! when the server turns out to be a replica.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use redis::{
    Client, Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind, TlsCertificates, Value,
    aio::{ConnectionLike, MultiplexedConnection},
};
use tokio::{
    sync::OnceCell,
    time::{Instant, sleep},
};

use crate::{
    lock::lock,
    store::{
        address::WatchedMaster,
        client::redis_client::{ANSWER_IN, connect},
    },
};

/// The pause after which a failed attempt to connect is repeated, before the failure counts.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// The least age of a connection that is replaced because its server is a replica. It bounds how often a name that
/// still resolves to a replica is resolved.
const REPLACE_AFTER: Duration = Duration::from_secs(1);

/// A connection to one server, shared by concurrent requests, which do not wait for each other's replies.
pub(crate) struct ServerConnection {
    server: ServerTarget,
    current: Mutex<Arc<Attempt>>,
    made: AtomicU64,
}

pub(crate) enum ServerTarget {
    /// The server at a fixed address. Its name is resolved for each connection.
    At(Box<Client>),
    /// The master that Sentinels name.
    Watched(WatchedMaster, Option<TlsCertificates>),
}

/// One attempt to connect, and the connection that it opened. Requests that need it wait for the same attempt.
struct Attempt {
    since: Instant,
    connection: OnceCell<RedisResult<MultiplexedConnection>>,
}

impl Attempt {
    fn new() -> Arc<Self> {
        Arc::new(Self { since: Instant::now(), connection: OnceCell::new() })
    }
}

impl ServerConnection {
    /// Makes a connection that the first request opens.
    pub(crate) fn to(server: ServerTarget) -> Self {
        Self { server, current: Mutex::new(Attempt::new()), made: AtomicU64::new(0) }
    }

    pub(crate) async fn send(self: &Arc<Self>, command: &Cmd) -> RedisResult<Value> {
        self.exchange(command, false).await
    }

    /// Sends a command about a slot that is being moved to this server of a cluster, and returns the answer.
    pub(crate) async fn send_asking(self: &Arc<Self>, command: &Cmd) -> RedisResult<Value> {
        self.exchange(command, true).await
    }

    async fn exchange(self: &Arc<Self>, command: &Cmd, is_asking: bool) -> RedisResult<Value> {
        let attempt = Arc::clone(&lock(&self.current));
        let mut connection = self.connection(&attempt).await?;
        let answer = if is_asking {
            // Both commands go out together: `ASKING` is for the very next command.
            let both = redis::pipe().cmd("ASKING").add_command(command.clone()).to_owned();
            let answers = connection.req_packed_commands(&both, 0, 2).await;
            answers.and_then(|answers| answers.into_iter().map(Value::extract_error).last().unwrap_or(Ok(Value::Nil)))
        } else {
            connection.req_packed_command(command).await
        };
        let answer = answer.and_then(Value::extract_error);
        // With Sentinels another server may have taken over from one that did not answer.
        if let Err(error) = &answer
            && (error.is_unrecoverable_error()
                || matches!(self.server, ServerTarget::Watched(..)) && error.is_timeout()
                || is_of_replica(error) && attempt.since.elapsed() >= REPLACE_AFTER)
            && let Some(next) = self.replace(&attempt)
        {
            // The next request finds the connection open.
            let server = Arc::clone(self);
            tokio::spawn(async move { server.connection(&next).await.map(drop) });
        }
        answer
    }

    /// Returns the connection of an attempt, and starts the attempt if no other request has.
    async fn connection(&self, attempt: &Arc<Attempt>) -> RedisResult<MultiplexedConnection> {
        let connect = || async {
            let mut made = self.connect().await;
            if made.is_err() {
                sleep(RETRY_AFTER).await;
                made = self.connect().await;
            }
            self.made.fetch_add(u64::from(made.is_ok()), Ordering::Relaxed);
            made
        };
        let made = attempt.connection.get_or_init(connect).await.clone();
        if made.is_err() {
            self.replace(attempt);
        }
        made
    }

    async fn connect(&self) -> RedisResult<MultiplexedConnection> {
        match &self.server {
            ServerTarget::At(client) => connect(client, ANSWER_IN).await,
            ServerTarget::Watched(master, tls) => master.connect(tls.as_ref()).await,
        }
    }

    /// Returns the number of connections that were opened since the start.
    pub(crate) fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }

    /// Starts an attempt where there is no connection.
    pub(crate) fn reconnect(self: &Arc<Self>) {
        let attempt = Arc::clone(&lock(&self.current));
        if attempt.connection.get().is_none() {
            let server = Arc::clone(self);
            tokio::spawn(async move { server.connection(&attempt).await.map(drop) });
        }
    }

    /// Replaces this attempt by a new one, unless another request has.
    fn replace(&self, attempt: &Arc<Attempt>) -> Option<Arc<Attempt>> {
        let mut current = lock(&self.current);
        Arc::ptr_eq(&current, attempt).then(|| {
            *current = Attempt::new();
            Arc::clone(&current)
        })
    }
}

/// Returns whether a server refused a command because it is a replica, or a master without enough replicas, from which
/// another may have taken over. Redis 5 and 6 state that inside an error of the script.
fn is_of_replica(error: &RedisError) -> bool {
    use ServerErrorKind::{MasterDown, ReadOnly};
    matches!(error.kind(), ErrorKind::Server(ReadOnly | MasterDown))
        || error.code() == Some("NOREPLICAS")
        || error.detail().is_some_and(|detail| detail.contains("NOREPLICAS"))
        || error.detail().is_some_and(|detail| detail.contains("READONLY"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_is_known_by_its_errors() {
        let error = |text: &str| {
            let reply = redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).expect("a reply");
            reply.extract_error().expect_err("an error")
        };
        for (text, is_replica) in [
            ("READONLY You can't write against a read only replica.", true),
            ("READONLY You can't write against a read only replica. script: 5f9a, on @user_script:7.", true),
            (
                "ERR Error running script (call to f_5f9a): @user_script:7: @user_script: 7: -READONLY You can't write \
                 against a read only replica.",
                true,
            ),
            ("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", true),
            ("ERR Error running script (call to f_5f9a): @user_script:7: wrong number of arguments", false),
            ("NOREPLICAS Not enough good replicas to write.", true),
            ("LOADING Redis is loading the dataset in memory", false),
            ("NOSCRIPT No matching script. Please use EVAL.", false),
        ] {
            assert_eq!(is_of_replica(&error(text)), is_replica, "{text}");
        }
    }
}
