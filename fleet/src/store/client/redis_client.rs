//! Makes Redis clients of single servers, with the timeouts and TCP options that all kinds of stores share.

use std::time::Duration;

use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo,
    RedisResult, TlsCertificates, aio::MultiplexedConnection, io::tcp::TcpSettings,
};

/// The time limit for opening a connection.
pub(crate) const CONNECT_IN: Duration = Duration::from_secs(1);
/// The time limit for a reply. The check that waits for it gives up earlier.
pub(crate) const ANSWER_IN: Duration = Duration::from_secs(10);
/// The time limit for a reply where another server may take over from a lost one: in a cluster, and with Sentinels.
pub(crate) const MOVED_IN: Duration = Duration::from_secs(1);
/// The time within which the other machine must acknowledge data at the TCP level; after that the connection counts as
/// broken. A machine that vanished acknowledges nothing; one whose server is paused still does.
const RECEIVED_IN: Duration = Duration::from_secs(2);

/// Returns the TCP options. Without delay, so that a request does not wait for the reply to the one before it.
pub(crate) fn tcp() -> TcpSettings {
    let settings = TcpSettings::default().set_nodelay(true);
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    let settings = settings.set_user_timeout(RECEIVED_IN);
    settings
}

/// Makes a client of a server; over TLS where there are certificates.
pub(crate) fn open(info: ConnectionInfo, tls: Option<&TlsCertificates>) -> RedisResult<Client> {
    match tls {
        Some(tls) => Client::build_with_tls(info, tls.clone()),
        None => Client::open(info),
    }
}

/// Makes a client of the server at this host and port; over TLS where there are certificates.
pub(crate) fn client_of(
    host: String,
    port: u16,
    settings: RedisConnectionInfo,
    tls: Option<&TlsCertificates>,
) -> RedisResult<Client> {
    let address = match tls {
        Some(_) => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
        None => ConnectionAddr::Tcp(host, port),
    };
    open(address.into_connection_info()?.set_redis_settings(settings).set_tcp_settings(tcp()), tls)
}

/// Connects to a server, whose replies then have this time limit.
pub(crate) async fn connect(client: &Client, answer_in: Duration) -> RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new().set_connection_timeout(Some(CONNECT_IN));
    client.get_multiplexed_async_connection_with_config(&config.set_response_timeout(Some(answer_in))).await
}
