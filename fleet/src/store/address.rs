//! Addresses of a store, read: what is wrong with one is said without a word of it, since it may hold a password.

use std::fmt;

use redis::{ClientTlsConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, TlsCertificates};
use tidegate_tls::{ClientTls, Own, install_provider};

use super::{KeySecret, StoreError, TlsPart};

const HOW: &str = "write redis://HOST:PORT or redis://USER:PASSWORD@HOST:PORT, and rediss:// for TLS";

const PASSWORD: &str =
    "in its user and password write %40 for @, %2F for /, %3F for ?, %23 for #, %2C for a comma and %25 for %";

/// Where a store is, and what its keys begin with.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreAddress {
    /// The URL of one server (`redis://HOST:PORT`), or those of some servers of a cluster.
    pub urls: Vec<String>,
    /// The first part of the name of every key, `tidegate` unless given: 1 to 64 letters, digits, dots, colons, `-` and `_`.
    /// Fleets with different prefixes share nothing, also where they share a server.
    pub prefix: String,
    /// TLS of URLs that ask for it (`rediss://`).
    pub tls: StoreTls,
    /// The secret with which the names of keys are derived.
    pub secret: KeySecret,
}

/// The certificates that a node checks, and shows, on connections to its store over TLS.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct StoreTls {
    /// PEM: authorities, one of which must have signed the certificate of a server. Those that the machine trusts, unless given.
    pub authorities: Option<Vec<u8>>,
    /// The certificate that the node shows to a server that asks for one.
    pub client: Option<ClientCertificate>,
}

/// A certificate and its key.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// PEM: the certificate, and those that lead from it to one that the server knows.
    pub certificate: Vec<u8>,
    /// PEM: its key.
    pub key: Vec<u8>,
}

impl StoreAddress {
    /// Returns the address of the store at these URLs, with the usual prefix and the machine's authorities.
    #[must_use]
    pub fn new<U: AsRef<str>>(urls: &[U]) -> Self {
        let urls = urls.iter().map(|url| url.as_ref().to_owned()).collect();
        Self { urls, prefix: "tidegate".to_owned(), tls: StoreTls::default(), secret: KeySecret::default() }
    }
}

/// Shows no certificate, and no key.
impl fmt::Debug for StoreTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreTls").finish_non_exhaustive()
    }
}

/// Shows no key.
impl fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCertificate").finish_non_exhaustive()
    }
}

impl StoreTls {
    /// Checks the certificates, if one of the servers is reached over TLS.
    pub(super) fn check(&self, servers: &[ConnectionInfo]) -> Result<Option<TlsCertificates>, StoreError> {
        let of = |part| move |why: String| StoreError::Tls { part, why };
        let given = match self {
            Self { authorities: Some(_), .. } => Some(TlsPart::Authorities),
            Self { client: Some(_), .. } => Some(TlsPart::Client),
            _ => None,
        };
        if !servers.iter().any(is_tls) {
            let unused =
                |part| of(part)("no address asks for TLS: write rediss:// in the place of redis://".to_owned());
            return given.map_or(Ok(None), |part| Err(unused(part)));
        }
        // A library that takes a provider from the process alone makes the connections.
        install_provider();
        let authorities = self.authorities.as_deref();
        let servers = ClientTls { machine: authorities.is_none(), authorities, own: None };
        servers.config().map_err(|error| of(TlsPart::Authorities)(error.to_string()))?;
        let own = self.client.as_ref().map(|own| Own { certificate: &own.certificate, key: &own.key });
        let client = ClientTls { machine: false, authorities: None, own };
        client.config().map_err(|error| of(TlsPart::Client)(error.to_string()))?;
        let client_tls = self.client.clone();
        Ok(Some(TlsCertificates {
            root_cert: self.authorities.clone(),
            client_tls: client_tls.map(|own| ClientTlsConfig { client_cert: own.certificate, client_key: own.key }),
        }))
    }
}

fn is_tls(server: &ConnectionInfo) -> bool {
    matches!(server.addr(), ConnectionAddr::TcpTls { .. })
}

/// Shows no URL, which may hold a password.
impl fmt::Debug for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreAddress").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

/// Of one server, or of some of a cluster.
pub(super) fn read(urls: &[String]) -> Result<Vec<ConnectionInfo>, StoreError> {
    let at = |place: usize| move |why: String| StoreError::Address { place, of: urls.len(), why };
    let each = urls.iter().enumerate().map(|(place, url)| read_one(url).map_err(at(place)));
    let infos = each.collect::<Result<Vec<_>, _>>()?;
    if let [first, others @ ..] = &infos[..]
        && !others.is_empty()
    {
        for (place, info) in infos.iter().enumerate() {
            fits_cluster(info, first).map_err(|why| at(place)(why.to_owned()))?;
        }
    }
    if infos.is_empty() { Err(at(0)("there is none".to_owned())) } else { Ok(infos) }
}

fn read_one(url: &str) -> Result<ConnectionInfo, String> {
    let Some((scheme, rest)) = url.split_once("://") else {
        let what = if url.is_empty() { "it is empty" } else { "it does not begin with redis://" };
        return Err(format!("{what}: {HOW}"));
    };
    match scheme {
        "redis" | "rediss" | "valkey" | "valkeys" => {}
        "unix" | "redis+unix" | "valkey+unix" => {
            return url.into_connection_info().map_err(|_| "it is no path: write unix:///PATH/TO/SOCKET".to_owned());
        }
        _ => return Err(format!("it does not begin with redis://: {HOW}")),
    }
    let (authority, after) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    if after.contains('@') {
        return Err(format!("there is a / or ? or # before its @: {PASSWORD}"));
    }
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    if host.is_empty() || host.starts_with(':') {
        return Err(format!("it has no host: {HOW}; {PASSWORD}"));
    }
    if after.contains('#') {
        return Err(format!("it has a #, which says nothing there: {HOW}"));
    }
    let database = after.split('?').next().unwrap_or_default().trim_matches('/');
    if !database.is_empty() && database.parse::<u32>().is_err() {
        return Err("what follows the / after its host is no number of a database, such as 0".to_owned());
    }
    let port = host.rsplit_once(':').filter(|(name, _)| !name.starts_with('[') || name.ends_with(']'));
    if port.is_some_and(|(_, port)| port.parse::<u16>().is_err()) {
        let unless = if authority.contains('@') { PASSWORD } else { HOW };
        return Err(format!("what follows the : after its host is no port from 1 to 65535: {unless}"));
    }
    url.into_connection_info().map_err(|_| format!("it cannot be read: {HOW}; {PASSWORD}"))
}

/// Beside others of a cluster, which are asked alike.
fn fits_cluster(info: &ConnectionInfo, first: &ConnectionInfo) -> Result<(), &'static str> {
    let (its, others) = (info.redis_settings(), first.redis_settings());
    if matches!(info.addr(), ConnectionAddr::Unix(_)) {
        return Err(
            "it is a socket on this machine; several addresses are of one cluster, which is reached by HOST:PORT",
        );
    }
    if is_tls(info) != is_tls(first) {
        return Err(
            "one of it and the first one asks for TLS (rediss://), and the other does not; several addresses are of one \
                    cluster, all with TLS or all without",
        );
    }
    if (its.username(), its.password()) != (others.username(), others.password()) {
        return Err(
            "its user or password is another than the first one's; several addresses are of one cluster, all with the \
                    same",
        );
    }
    if its.db() != 0 {
        return Err("it names a database; several addresses are of one cluster, which has none but 0");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(urls: &[&str]) -> String {
        let urls: Vec<_> = urls.iter().map(|url| (*url).to_owned()).collect();
        read(&urls).expect_err("it is wrong").to_string()
    }

    #[test]
    fn what_is_wrong_is_said_without_the_password() {
        for (url, said) in [
            ("", "it is empty: write redis://HOST:PORT"),
            ("127.0.0.1:6379", "it does not begin with redis://"),
            ("http://secret@host", "it does not begin with redis://"),
            ("rediss://:secret@host:6379#insecure", "it has a #"),
            ("valkeys://:secret@", "it has no host"),
            ("redis://", "it has no host"),
            ("redis://:secret@", "it has no host"),
            ("redis://:secret@:6379", "it has no host"),
            ("redis://:secret/word@host:6379", "%2F for /"),
            ("redis://:secret#word@host", "%23 for #"),
            ("redis://me:12#secret@host", "%23 for #"),
            ("redis://me:secret?@host", "%3F for ?"),
            ("redis://:secret@host:66000", "no port from 1 to 65535"),
            ("redis://host:secret", "no port from 1 to 65535"),
            ("redis://:secret@host/first", "number of a database"),
            ("redis://:secret@host:6379#tls", "it has a #"),
            ("redis://:secret@0.0.0.0", "it cannot be read"),
            ("redis://:secret@ho st", "it cannot be read"),
            ("unix://", "it is no path"),
        ] {
            let told = why(&[url]);
            assert!(told.contains(said) && !told.contains("secret"), "{url}: {told}");
            assert!(told.starts_with("the address: "), "{told}");
        }
    }

    #[test]
    fn which_of_several_it_is_stands_first() {
        assert!(why(&["redis://a", "redis://b", "c"]).starts_with("the third of 3 addresses: it does not begin"));
        let nine = ["redis://a"; 9];
        assert!(why(&[&nine[..], &["b"]].concat()).starts_with("address 10 of 10: it does not begin"));
        for (second, said) in [
            ("redis://:secret@b", "its user or password is another"),
            ("unix:///run/redis", "it is a socket"),
            ("rediss://b", "asks for TLS"),
            ("redis://b/1", "it names a database"),
        ] {
            let told = why(&["redis://a", second]);
            assert!(told.starts_with("the second of 2 addresses: ") && told.contains(said), "{told}");
            assert!(!told.contains("secret"), "{told}");
        }
    }

    #[test]
    fn what_can_be_an_address_is_one() {
        for url in [
            "redis://127.0.0.1",
            "redis://localhost:6380/3",
            "redis://[::1]:6379",
            "redis://[::1]",
            "valkey://store.internal",
            "rediss://store.internal:6380/2",
            "valkeys://:p@[::1]",
            "redis://me:p%40ss%2Fw%23rd@host:6379/0",
            "redis://:p@ss@host",
            "unix:///run/redis.sock",
        ] {
            assert!(read(&[url.to_owned()]).is_ok(), "{url}");
        }
        let infos = read(&["redis://me:p%40ss%2Fw%23rd@host".to_owned()]).expect("an address");
        assert_eq!(infos[0].redis_settings().password(), Some("p@ss/w#rd"));
        let cluster = ["redis://:p@a:1", "redis://:p@b:2"].map(str::to_owned);
        assert_eq!(read(&cluster).expect("addresses").len(), 2);
    }
}
