//! Parses the addresses of a store. Its errors show no part of an address, since an address may hold a password.

use std::fmt;

use percent_encoding::percent_decode_str;
use redis::{
    ClientTlsConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo, TlsCertificates,
};
use tidegate_net::tls::{ClientTls, OwnCertificate, install_provider};

use crate::store::{
    error::{StoreError, TlsPart},
    key::KeySecret,
};

const HOW: &str = "write redis://HOST:PORT or redis://USER:PASSWORD@HOST:PORT, and rediss:// for TLS";

const PASSWORD: &str =
    "in its user and password write %40 for @, %2F for /, %3F for ?, %23 for #, %2C for a comma and %25 for %";

const SENTINELS: &str = "write redis-sentinel://HOST:PORT/MASTER for each Sentinel";

/// The port of a Sentinel whose URL states none.
const SENTINEL_PORT: u16 = 26_379;

/// The addresses of a store, the prefix of its keys, and the credentials to reach it.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreAddress {
    /// The URL of one server (`redis://HOST:PORT`), the URLs of some servers of a cluster, or those of the Sentinels of
    /// a master (`redis-sentinel://HOST:PORT/MASTER`).
    pub urls: Vec<String>,
    /// The first part of the name of every key, `tidegate` unless given: 1 to 64 letters, digits, dots, colons, `-` and
    /// `_`. Fleets with different prefixes share nothing, even on the same server.
    pub prefix: String,
    /// The TLS settings of URLs that ask for it (`rediss://`).
    pub tls: StoreTls,
    /// The secret from which the names of keys are derived.
    pub secret: KeySecret,
}

/// The certificates that a node trusts and presents on TLS connections to its store.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct StoreTls {
    /// Authorities, PEM: one of them must have signed the certificate of a server. Unless given, those that the machine
    /// trusts.
    pub authorities: Option<Vec<u8>>,
    /// The certificate that the node presents to a server that asks for one.
    pub client: Option<ClientCertificate>,
}

/// A client certificate and its key.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The certificate and its chain, PEM.
    pub certificate: Vec<u8>,
    /// The key, PEM.
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
    /// Checks the certificates, if the servers are reached over TLS (`is_used`).
    pub(crate) fn check(&self, is_used: bool) -> Result<Option<TlsCertificates>, StoreError> {
        if !is_used {
            let part = match self {
                Self { authorities: Some(_), .. } => TlsPart::Authorities,
                Self { client: Some(_), .. } => TlsPart::Client,
                _ => return Ok(None),
            };
            let why = "no address asks for TLS: write rediss:// in the place of redis://".to_owned();
            return Err(StoreError::Tls { part, why });
        }
        let check = |tls: ClientTls<'_>, part| {
            tls.config().map(drop).map_err(|error| StoreError::Tls { part, why: error.to_string() })
        };
        // The Redis client takes its TLS provider from the process alone.
        install_provider();
        let authorities = self.authorities.as_deref();
        check(ClientTls { machine: authorities.is_none(), authorities, own: None }, TlsPart::Authorities)?;
        let own = self.client.as_ref().map(|own| OwnCertificate { certificate: &own.certificate, key: &own.key });
        check(ClientTls { machine: false, authorities: None, own }, TlsPart::Client)?;
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

pub(crate) enum Servers {
    Single(ConnectionInfo),
    /// Some servers of a cluster.
    Cluster(Vec<ConnectionInfo>),
    Watched(WatchedMaster),
}

impl Servers {
    /// Returns the servers that the URLs name; of a watched master its Sentinels.
    pub(crate) fn infos(&self) -> &[ConnectionInfo] {
        match self {
            Self::Single(info) => std::slice::from_ref(info),
            Self::Cluster(infos) => infos,
            Self::Watched(master) => &master.sentinels,
        }
    }

    pub(crate) fn use_tls(&self) -> bool {
        self.infos().iter().any(is_tls)
    }
}

/// A master, and the Sentinels that watch it.
#[derive(Clone)]
pub(crate) struct WatchedMaster {
    pub(crate) sentinels: Vec<ConnectionInfo>,
    pub(crate) name: String,
    /// The user, the password and the database of the master.
    pub(crate) settings: RedisConnectionInfo,
}

struct ParsedUrl {
    info: ConnectionInfo,
    /// The name of the master and the settings of its servers, if the URL is that of a Sentinel.
    master: Option<(String, RedisConnectionInfo)>,
}

pub(crate) fn parse(urls: &[String]) -> Result<Servers, StoreError> {
    let at = |place: usize| move |why: String| StoreError::Address { place, of: urls.len(), why };
    let each = urls.iter().enumerate().map(|(place, url)| parse_one(url).map_err(at(place)));
    let mut all = each.collect::<Result<Vec<_>, _>>()?;
    if let [first, _, ..] = &all[..] {
        for (place, one) in all.iter().enumerate() {
            fits(one, first).map_err(|why| at(place)(why.to_owned()))?;
        }
    }
    let master = all.first_mut().and_then(|first| first.master.take());
    let mut infos: Vec<_> = all.into_iter().map(|one| one.info).collect();
    Ok(match (master, infos.len()) {
        (Some((name, settings)), _) => Servers::Watched(WatchedMaster { sentinels: infos, name, settings }),
        (None, 2..) => Servers::Cluster(infos),
        (None, _) => Servers::Single(infos.pop().ok_or_else(|| at(0)("there is none".to_owned()))?),
    })
}

fn parse_one(url: &str) -> Result<ParsedUrl, String> {
    let Some((scheme, rest)) = url.split_once("://") else {
        let what = if url.is_empty() { "it is empty" } else { "it does not begin with redis://" };
        return Err(format!("{what}: {HOW}"));
    };
    let of_sentinel = scheme.strip_suffix("-sentinel");
    let scheme = of_sentinel.unwrap_or(scheme);
    match scheme {
        "redis" | "rediss" | "valkey" | "valkeys" => {}
        "unix" | "redis+unix" | "valkey+unix" if of_sentinel.is_none() => {
            let info = url.into_connection_info();
            let info = info.map_err(|_| "it is no path: write unix:///PATH/TO/SOCKET".to_owned())?;
            return Ok(ParsedUrl { info, master: None });
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
    let (path, query) = after.split_once('?').unwrap_or((after, ""));
    let path = path.trim_matches('/');
    let (master, database) = match of_sentinel {
        Some(_) => path.split_once('/').unwrap_or((path, "")),
        None => ("", path),
    };
    if !database.is_empty() && database.parse::<u32>().is_err() {
        let after = if of_sentinel.is_some() { "the name of its master" } else { "its host" };
        return Err(format!("what follows the / after {after} is no number of a database, such as 0"));
    }
    let port = host.rsplit_once(':').filter(|(name, _)| !name.starts_with('[') || name.ends_with(']'));
    if port.is_some_and(|(_, port)| port.parse::<u16>().is_err()) {
        let unless = if authority.contains('@') { PASSWORD } else { HOW };
        return Err(format!("what follows the : after its host is no port from 1 to 65535: {unless}"));
    }
    let info = |url: &str| url.into_connection_info().map_err(|_| format!("it cannot be read: {HOW}; {PASSWORD}"));
    if of_sentinel.is_none() {
        return Ok(ParsedUrl { info: info(url)?, master: None });
    }
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if master.is_empty() || !master.chars().all(is_allowed) {
        return Err(format!("it has no name of a master, of letters, digits, dots, - and _: {SENTINELS}"));
    }
    let port = if port.is_some() { String::new() } else { format!(":{SENTINEL_PORT}") };
    let sentinel = info(&format!("{scheme}://{authority}{port}"))?;
    let of_servers = sentinel.redis_settings().clone().set_db(database.parse().unwrap_or(0));
    let info = sentinel.set_redis_settings(sentinel_settings(query)?);
    Ok(ParsedUrl { info, master: Some((master.to_owned(), of_servers)) })
}

/// Parses the user and the password of a Sentinel itself.
fn sentinel_settings(query: &str) -> Result<RedisConnectionInfo, String> {
    let mut settings = RedisConnectionInfo::default();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = percent_decode_str(value).decode_utf8().map_err(|_| format!("it is not UTF-8 text: {PASSWORD}"))?;
        settings = match name {
            "sentinel_user" => settings.set_username(value),
            "sentinel_password" => settings.set_password(value),
            _ => {
                return Err(
                    "after its ? stands something else than sentinel_user=... and sentinel_password=...".to_owned()
                );
            }
        };
    }
    if settings.username().is_some() && settings.password().is_none() {
        return Err("it has a sentinel_user without a sentinel_password".to_owned());
    }
    Ok(settings)
}

/// Checks that several URLs name one cluster, or the Sentinels of one master.
fn fits(one: &ParsedUrl, first: &ParsedUrl) -> Result<(), &'static str> {
    if matches!(one.info.addr(), ConnectionAddr::Unix(_)) {
        return Err(
            "it is a socket on this machine; several addresses are of one cluster, which is reached by HOST:PORT",
        );
    }
    if is_tls(&one.info) != is_tls(&first.info) {
        return Err(
            "one of it and the first one asks for TLS (rediss://), and the other does not; several addresses all \
                    have TLS, or none of them has",
        );
    }
    let (its, others) = match (&one.master, &first.master) {
        (Some((master, its)), Some((other, others))) => {
            if (master, its.db()) != (other, others.db()) {
                return Err(
                    "its master or database is another than the first one's; several Sentinels are of one master, \
                            all with the same",
                );
            }
            (its, others)
        }
        (None, None) => {
            if one.info.redis_settings().db() != 0 {
                return Err("it names a database; several addresses are of one cluster, which has none but 0");
            }
            (one.info.redis_settings(), first.info.redis_settings())
        }
        _ => {
            return Err(
                "one of it and the first one is of a Sentinel, and the other is not; give those of the Sentinels alone",
            );
        }
    };
    if (its.username(), its.password()) != (others.username(), others.password()) {
        return Err("its user or password is another than the first one's; several addresses all have the same");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(urls: &[&str]) -> String {
        let urls: Vec<_> = urls.iter().map(|url| (*url).to_owned()).collect();
        parse(&urls).map(drop).expect_err("it is wrong").to_string()
    }

    #[test]
    fn errors_state_the_problem_without_the_password() {
        for (url, expected) in [
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
            ("redis-sentinel://:secret@host:26379", "no name of a master"),
            ("redis-sentinel://host/my master", "no name of a master"),
            ("redis-sentinel://host/mymaster/first", "after the name of its master is no number"),
            ("redis-sentinel://host:secret/mymaster", "no port from 1 to 65535"),
            ("redis-sentinel://host/mymaster?password=secret", "sentinel_user=..."),
            ("redis-sentinel://host/mymaster?sentinel_user=secret", "without a sentinel_password"),
            ("redis-sentinel://host/mymaster?sentinel_password=%FFsecret", "it is not UTF-8"),
            ("redis-sentinel://host/mymaster#insecure", "it has a #"),
            ("unix-sentinel:///run/redis.sock", "it does not begin with redis://"),
        ] {
            let message = why(&[url]);
            assert!(message.contains(expected) && !message.contains("secret"), "{url}: {message}");
            assert!(message.starts_with("the address: "), "{message}");
        }
    }

    #[test]
    fn errors_name_the_address_among_several() {
        assert!(why(&["redis://a", "redis://b", "c"]).starts_with("the third of 3 addresses: it does not begin"));
        let nine = ["redis://a"; 9];
        assert!(why(&[&nine[..], &["b"]].concat()).starts_with("address 10 of 10: it does not begin"));
        for (second, expected) in [
            ("redis://:secret@b", "its user or password is another"),
            ("unix:///run/redis", "it is a socket"),
            ("rediss://b", "asks for TLS"),
            ("redis://b/1", "it names a database"),
        ] {
            let message = why(&["redis://a", second]);
            assert!(message.starts_with("the second of 2 addresses: ") && message.contains(expected), "{message}");
            assert!(!message.contains("secret"), "{message}");
        }
    }

    #[test]
    fn valid_addresses_are_parsed() {
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
            assert!(parse(&[url.to_owned()]).is_ok(), "{url}");
        }
        let server = parse(&["redis://me:p%40ss%2Fw%23rd@host".to_owned()]).expect("an address");
        assert_eq!(server.infos()[0].redis_settings().password(), Some("p@ss/w#rd"));
        let cluster = ["redis://:p@a:1", "redis://:p@b:2"].map(str::to_owned);
        assert!(matches!(parse(&cluster).expect("addresses"), Servers::Cluster(infos) if infos.len() == 2));
    }

    #[test]
    fn addresses_of_sentinels_name_their_master() {
        let urls = [
            "rediss-sentinel://me:p%40ss@one.internal/my.master-1/3?sentinel_user=ana&sentinel_password=a+%2B%26",
            "valkeys-sentinel://me:p%40ss@[::1]:5000/my.master-1/3",
        ];
        let Servers::Watched(of) = parse(&urls.map(str::to_owned)).expect("addresses") else { panic!("of Sentinels") };
        assert_eq!((of.name.as_str(), of.settings.db()), ("my.master-1", 3));
        assert_eq!((of.settings.username(), of.settings.password()), (Some("me"), Some("p@ss")));
        let sentinels: Vec<_> = of.sentinels.iter().map(|info| info.addr().to_string()).collect();
        assert_eq!(sentinels, ["one.internal:26379", "::1:5000"]);
        assert!(of.sentinels.iter().all(is_tls));
        let own = of.sentinels.iter().map(|info| (info.redis_settings().username(), info.redis_settings().password()));
        assert_eq!(own.collect::<Vec<_>>(), [(Some("ana"), Some("a++&")), (None, None)]);
        for (second, expected) in [
            ("redis-sentinel://b/other", "its master or database"),
            ("redis-sentinel://b/m/1", "its master or database"),
            ("redis-sentinel://:secret@b/m", "its user or password is another"),
            ("rediss-sentinel://b/m", "asks for TLS"),
            ("redis://b", "is of a Sentinel"),
            ("b", "it does not begin with redis://"),
        ] {
            let message = why(&["redis-sentinel://a/m", second]);
            assert!(message.starts_with("the second of 2 addresses: ") && message.contains(expected), "{message}");
            assert!(!message.contains("secret"), "{message}");
        }
    }
}
