//! The settings of the store through which nodes share limits.

use std::{
    convert::Infallible,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use clap::Args;
use tidegate::{Engine, clock::SystemClock, time::parse_period};
use tidegate_fleet::store::{
    ClientCertificate, KeySecret, SharedEngine, StoreAddress, StoreError, StoreSettings, StoreTls, TlsPart,
};

use crate::output::CommandError;

#[derive(Debug, Args)]
pub(crate) struct StoreArguments {
    #[arg(long, value_name = "URL", env = "TIDEGATE_REDIS", hide_env_values = true, value_delimiter = ',', value_parser = store_url,
        help = "The Redis or Valkey server through which nodes share limits (sharing: strict, leased or synced): \
                redis://USER:PASSWORD@HOST:PORT/DATABASE, rediss:// for TLS, or unix:///PATH. Only the host is required. All \
                nodes with the same store share such limits; without a store each node counts them alone, as on_failure of the \
                limit says. For a cluster, give a few of its servers: repeat the option, or separate them by commas. For \
                Sentinel, give each Sentinel: redis-sentinel://USER:PASSWORD@HOST:PORT/MASTER/DATABASE, with the user and \
                password of the servers, or rediss-sentinel:// for TLS. The store need not be running at the start. In a user \
                or password write %40 for @, %2F for /, %3F for ?, %23 for #, %2C for a comma and %25 for %. Other users of the \
                machine can read flags, so give a password by the variable or the file")]
    redis: Vec<StoreUrl>,
    /// Certificates of the authorities to trust for the store, over TLS (rediss://, rediss-sentinel://); a PEM file. The default is
    /// those of the system.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_REDIS_CA")]
    redis_ca: Option<PathBuf>,
    /// The client certificate for a store that requires one; a PEM file.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_REDIS_CERT", requires = "redis_key")]
    redis_cert: Option<PathBuf>,
    /// The private key of that certificate; a PEM file.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_REDIS_KEY", requires = "redis_cert")]
    redis_key: Option<PathBuf>,
    /// The prefix of every key in the store: 1 to 64 letters, digits, dots, colons, - and _. All nodes of a fleet need the same
    /// prefix. Fleets with the same Redis need different ones, unless they should share limits.
    #[arg(long, value_name = "PREFIX", env = "TIDEGATE_REDIS_PREFIX", default_value = "tidegate")]
    redis_prefix: String,
    /// The file with the secret from which the names of keys in the store are derived, 16 bytes or more. With a secret, a reader of
    /// the store cannot find the client of a key by guessing. All nodes need the same one. By default the admin server creates
    /// one, keeps it in its database, and sends it to its nodes.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_REDIS_SECRET_FILE", conflicts_with = "redis_plain_keys")]
    redis_secret_file: Option<PathBuf>,
    /// Derive the names of keys in the store without a secret, as earlier releases did: for servers with different databases that
    /// already share limits, or for an upgrade that keeps the state of all limits. All nodes then need this option.
    #[arg(long, env = "TIDEGATE_REDIS_PLAIN_KEYS")]
    redis_plain_keys: bool,
    /// The longest wait of a check for the store. Then `on_failure` of the limit decides. Use the time of a few round trips.
    #[arg(long, value_name = "PERIOD", env = "TIDEGATE_REDIS_TIMEOUT", default_value = "5ms", value_parser = parse_period)]
    redis_timeout: Duration,
    /// The circuit breaker: after this many consecutive failures (timeouts or broken connections) checks skip the store for
    /// --redis-pause.
    #[arg(long, value_name = "N", env = "TIDEGATE_REDIS_FAILURES", default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(1..))]
    redis_failures: u32,
    /// The time for which checks skip the store after --redis-failures. Then one request tests whether it works again.
    #[arg(long, value_name = "PERIOD", env = "TIDEGATE_REDIS_PAUSE", default_value = "30s", value_parser = parse_period)]
    redis_pause: Duration,
    /// The interval at which nodes exchange the usage of synced limits through the store. Such a limit may be exceeded by what all nodes admit in
    /// this time: a shorter interval is more exact, and sends more requests to the store.
    #[arg(long, value_name = "PERIOD", env = "TIDEGATE_SYNC_INTERVAL", default_value = "100ms", value_parser = parse_period)]
    sync_interval: Duration,
}

/// The URL of a store. It may have a password, so `Debug` does not print it.
#[derive(Clone)]
struct StoreUrl(String);

impl std::fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StoreUrl")
    }
}

/// Accepts any text. The URL is checked when the store is opened: clap would print a wrong one, with its password.
#[expect(clippy::unnecessary_wraps, reason = "the signature of a parser of clap")]
fn store_url(text: &str) -> Result<StoreUrl, Infallible> {
    Ok(StoreUrl(text.to_owned()))
}

impl StoreArguments {
    /// Opens the store, if there is one, on the runtime of the process.
    pub(crate) async fn open(
        &self,
        engine: &Arc<Engine>,
    ) -> Result<Option<Arc<SharedEngine<SystemClock>>>, CommandError> {
        let (ca, cert, key) = (self.redis_ca.as_deref(), self.redis_cert.as_deref(), self.redis_key.as_deref());
        let secret = self.redis_secret_file.as_deref();
        if self.redis.is_empty() {
            let given = [("--redis-ca", ca), ("--redis-cert", cert), ("--redis-secret-file", secret)]
                .into_iter()
                .find(|(_, file)| file.is_some());
            let unused = |(flag, _)| CommandError(format!("{flag} needs --redis: the URL of the store"));
            return given.map_or(Ok(None), |given| Err(unused(given)));
        }
        let authorities = ca.map(|file| read("--redis-ca", file)).transpose()?;
        let own = cert.zip(key).map(|(cert, key)| {
            Ok(ClientCertificate { certificate: read("--redis-cert", cert)?, key: read("--redis-key", key)? })
        });
        let tls = StoreTls { authorities, client: own.transpose()? };
        let urls = self.redis.iter().map(|StoreUrl(url)| url.clone()).collect();
        let given = secret.map(|file| read("--redis-secret-file", file)).transpose()?;
        let key_secret = match given {
            Some(bytes) => KeySecret::Given(bytes.trim_ascii_end().to_vec()),
            None if self.redis_plain_keys => KeySecret::Plain,
            None => KeySecret::Sent,
        };
        let address = StoreAddress { urls, prefix: self.redis_prefix.clone(), tls, secret: key_secret };
        let settings = StoreSettings {
            timeout: self.redis_timeout,
            failures_max: self.redis_failures,
            pause: self.redis_pause,
            sync_interval: self.sync_interval,
            ..StoreSettings::default()
        };
        let opened = SharedEngine::new(Arc::clone(engine), &address, settings).await;
        opened.map(|store| Some(Arc::new(store))).map_err(|error| {
            CommandError(match (&error, ca, cert.zip(key)) {
                (StoreError::Secret, ..) => {
                    let file = secret.map(|file| file.display().to_string()).unwrap_or_default();
                    format!("--redis-secret-file {file}: the secret has fewer than 16 bytes; write 16 or more")
                }
                (StoreError::Prefix { .. }, ..) => format!("--redis-prefix: {error}"),
                (StoreError::Tls { part: TlsPart::Authorities, why }, Some(ca), _) => {
                    format!("--redis-ca {}: {why}", ca.display())
                }
                (StoreError::Tls { part: TlsPart::Authorities, why }, None, _) => format!("--redis-ca: {why}"),
                (StoreError::Tls { part: TlsPart::Client, why }, _, Some((cert, key))) => {
                    format!("--redis-cert {}, --redis-key {}: {why}", cert.display(), key.display())
                }
                _ => format!("--redis: {error}"),
            })
        })
    }
}

fn read(flag: &str, file: &Path) -> Result<Vec<u8>, CommandError> {
    fs::read(file).map_err(|error| CommandError(format!("{flag} {}: {error}", file.display())))
}
