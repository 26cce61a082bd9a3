//! Settings of the store that nodes share limits through.

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

use crate::output::Failure;

#[derive(Debug, Args)]
pub(crate) struct StoreArguments {
    #[arg(long, value_name = "URL", env = "TIDEGATE_REDIS", hide_env_values = true, value_delimiter = ',', value_parser = address,
        help = "Redis or Valkey where limits are kept that nodes share (sharing strict, leased or synced): \
                redis://USER:PASSWORD@HOST:PORT/DATABASE, of which all but the host may be left out, rediss:// for TLS, or \
                unix:///PATH. Nodes with \
                the same store hold such limits together; without one each counts them alone, as their on_failure says. Several \
                addresses, each with its own flag or with commas between them, are of one cluster; a few of its servers are \
                enough. Sentinels are redis-sentinel://USER:PASSWORD@HOST:PORT/MASTER/DATABASE, with user and password of the \
                servers, and rediss-sentinel:// for TLS: name each Sentinel of the master. It need not be there when this starts. In user and password write %40 for @, %2F for /, %3F for ?, %23 \
                for #, %2C for a comma and %25 for %. Flags are seen by others on \
                the machine: give a password by the variable or the file")]
    redis: Vec<Address>,
    /// Certificates of the authorities that sign those of the store's servers, PEM; the authorities that this machine trusts,
    /// unless given. For addresses that ask for TLS (rediss://, rediss-sentinel://).
    #[arg(long, value_name = "FILE", env = "TIDEGATE_REDIS_CA")]
    redis_ca: Option<PathBuf>,
    /// The certificate that is shown to a store that asks for one, PEM.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_REDIS_CERT", requires = "redis_key")]
    redis_cert: Option<PathBuf>,
    /// Its key, PEM.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_REDIS_KEY", requires = "redis_cert")]
    redis_key: Option<PathBuf>,
    /// First part of the name of every key in the store: 1 to 64 letters, digits, dots, colons, - and _. Fleets that use the same
    /// Redis and should not share limits need different prefixes. All nodes of a fleet need the same one.
    #[arg(long, value_name = "PREFIX", env = "TIDEGATE_REDIS_PREFIX", default_value = "tidegate")]
    redis_prefix: String,
    /// File with the secret from which the names of keys in the store are derived, 16 bytes or more. With a secret, a reader of the
    /// store cannot find out by trying which client a key is of. All nodes need the same one. Unless given, the admin server makes one,
    /// keeps it in its database, and sends it to its nodes.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_REDIS_SECRET_FILE", conflicts_with = "redis_plain_keys")]
    redis_secret_file: Option<PathBuf>,
    /// Derive the names of keys without a secret, as releases before did: for servers of several databases that share limits already,
    /// and an upgrade in which no limit starts anew. All nodes need it then.
    #[arg(long, env = "TIDEGATE_REDIS_PLAIN_KEYS")]
    redis_plain_keys: bool,
    /// No check waits longer for the store; then what the limit says for that case decides. A few round trips to the store are
    /// right.
    #[arg(long, value_name = "PERIOD", env = "TIDEGATE_REDIS_TIMEOUT", default_value = "5ms", value_parser = parse_period)]
    redis_timeout: Duration,
    /// After so many failures in a row, timeouts or broken connections, the store is left alone, so that checks do not wait for
    /// what is gone.
    #[arg(long, value_name = "N", env = "TIDEGATE_REDIS_FAILURES", default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(1..))]
    redis_failures: u32,
    /// For so long it is left alone; then one question tries whether it is back, and so on.
    #[arg(long, value_name = "PERIOD", env = "TIDEGATE_REDIS_PAUSE", default_value = "30s", value_parser = parse_period)]
    redis_pause: Duration,
    /// How often nodes tell each other, through the store, what was used of synced limits. Those may be exceeded by what all nodes
    /// admit in this time; shorter is more exact, and asks the store more often.
    #[arg(long, value_name = "PERIOD", env = "TIDEGATE_SYNC_INTERVAL", default_value = "100ms", value_parser = parse_period)]
    sync_interval: Duration,
}

/// Of a store; it may have a password, so it does not show.
#[derive(Clone)]
struct Address(String);

impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Address")
    }
}

/// Whether it is one is seen when it is opened: what clap has to say about a value repeats it, with the password.
#[expect(clippy::unnecessary_wraps, reason = "what a parser of clap gives")]
fn address(text: &str) -> Result<Address, Infallible> {
    Ok(Address(text.to_owned()))
}

impl StoreArguments {
    /// Opens the store, if there is one, on the runtime of the process.
    pub(crate) async fn open(&self, engine: &Arc<Engine>) -> Result<Option<Arc<SharedEngine<SystemClock>>>, Failure> {
        let (ca, cert, key) = (self.redis_ca.as_deref(), self.redis_cert.as_deref(), self.redis_key.as_deref());
        let secret = self.redis_secret_file.as_deref();
        if self.redis.is_empty() {
            let given = [("--redis-ca", ca), ("--redis-cert", cert), ("--redis-secret-file", secret)]
                .into_iter()
                .find(|(_, file)| file.is_some());
            let unused = |(flag, _)| Failure(format!("{flag}: there is no store; --redis says where it is"));
            return given.map_or(Ok(None), |given| Err(unused(given)));
        }
        let authorities = ca.map(|file| read("--redis-ca", file)).transpose()?;
        let own = cert.zip(key).map(|(cert, key)| {
            Ok(ClientCertificate { certificate: read("--redis-cert", cert)?, key: read("--redis-key", key)? })
        });
        let tls = StoreTls { authorities, client: own.transpose()? };
        let urls = self.redis.iter().map(|Address(url)| url.clone()).collect();
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
            Failure(match (&error, ca, cert.zip(key)) {
                (StoreError::Secret, ..) => {
                    let file = secret.map(|file| file.display().to_string()).unwrap_or_default();
                    format!("--redis-secret-file {file}: it has fewer than 16 bytes")
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

fn read(flag: &str, file: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(file).map_err(|error| Failure(format!("{flag} {}: {error}", file.display())))
}
