//! Opens connections to servers of a store, within times that all kinds of stores share.

use std::time::Duration;

use redis::{
    Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo, RedisResult, TlsCertificates,
    io::tcp::TcpSettings,
};

/// A connection that takes longer is given up.
pub(crate) const CONNECT_IN: Duration = Duration::from_secs(1);
/// The limit for an answer; the check that asked has gone before.
pub(crate) const ANSWER_IN: Duration = Duration::from_secs(10);
/// The same, where another server may come in the place of one that is gone: in a cluster, and with Sentinels.
pub(crate) const MOVED_IN: Duration = Duration::from_secs(1);
/// What the other machine has not even received by then is lost, and the connection with it: a machine that vanished says
/// nothing, and one that stands receives.
const RECEIVED_IN: Duration = Duration::from_secs(2);

/// A question does not wait for the answer to the one before it.
pub(crate) fn tcp() -> TcpSettings {
    let settings = TcpSettings::default().set_nodelay(true);
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    let settings = settings.set_user_timeout(RECEIVED_IN);
    settings
}

/// Returns a client of a server; over TLS where there are certificates.
pub(crate) fn open(info: ConnectionInfo, tls: Option<&TlsCertificates>) -> RedisResult<Client> {
    match tls {
        Some(tls) => Client::build_with_tls(info, tls.clone()),
        None => Client::open(info),
    }
}

/// Returns a client of the server at this host and port; over TLS where there are certificates.
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
