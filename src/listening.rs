//! Settings of how the doors listen, and to whom.

use std::{path::PathBuf, sync::Arc, time::Duration};

use clap::Args;
use tidegate::time::parse_period;
use tidegate_service::{
    CONNECTIONS_MAX, ConnectionCaps, DEFAULT_PEER_CONNECTIONS, DRAIN_DELAY_MAX, Periods, Settings, Source, Tokens,
    Traces,
};
use tidegate_tls::{Tls, TlsFiles};

use crate::{cli::connections, output::Failure};

#[derive(Debug, Args)]
pub(crate) struct ListeningArguments {
    /// The certificate of the doors where checks are asked for, with those that lead to a known one; PEM. They speak TLS then. It
    /// is read again when it changes.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_TLS_CERT", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The key of that certificate; PEM.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_TLS_KEY", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Who signed the certificates that callers of checks have to show (mutual TLS); PEM. It is read again when it changes.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_TLS_CLIENT_CA", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,
    /// Tokens, one in each line, of which callers of checks have to send one: `Authorization: Bearer TOKEN`, or X-Tidegate-Token.
    /// Health and metrics take none. The file is read again when it changes.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_CHECK_TOKENS")]
    check_tokens: Option<PathBuf>,
    /// After SIGTERM, how long checks are answered on while /readyz says 503, so that balancers go elsewhere first; 20s at
    /// most. All requests that are open then have what is left of 30 s.
    #[arg(long, value_name = "PERIOD", env = "TIDEGATE_DRAIN_DELAY", default_value = "3s", value_parser = delay)]
    drain_delay: u64,
    /// Connections that one address may have at each port for checks, of 10,000; of IPv6, the first 64 bits are one address.
    /// Where tokens are asked for, a fifth of them over the Redis protocol need not have sent one. Raise it where all callers
    /// come by one address: a NAT, or a balancer.
    #[arg(long, value_name = "N", env = "TIDEGATE_CONNECTIONS_PER_PEER", default_value_t = DEFAULT_PEER_CONNECTIONS,
        value_parser = connections)]
    connections_per_peer: usize,
}

impl ListeningArguments {
    /// `source`: where policies come from, if that is another process.
    pub(crate) fn settings(
        &self,
        workers: usize,
        source: Option<Arc<dyn Source>>,
        traces: Option<Traces>,
    ) -> Result<Settings, Failure> {
        let files = self.tls_cert.clone().zip(self.tls_key.clone());
        let files = files.map(|(certificate, key)| TlsFiles { certificate, key, clients: self.tls_client_ca.clone() });
        let tls = files.map(Tls::open).transpose().map_err(|error| Failure(format!("no TLS: {error}")))?;
        let tokens = self.check_tokens.clone().map(Tokens::open).transpose();
        let tokens = tokens.map_err(|error| Failure(format!("--check-tokens: {error}")))?;
        Ok(Settings {
            workers,
            tls,
            tokens,
            drain_delay: self.drain_delay(),
            source,
            traces,
            periods: Periods::default(),
            connections: ConnectionCaps::new(CONNECTIONS_MAX, self.connections_per_peer),
        })
    }

    pub(crate) fn drain_delay(&self) -> Duration {
        Duration::from_nanos(self.drain_delay)
    }

    pub(crate) fn has_tls(&self) -> bool {
        self.tls_cert.is_some()
    }
}

/// In nanoseconds; `0s` is none.
fn delay(text: &str) -> Result<u64, String> {
    let delay = if text == "0s" { 0 } else { parse_period(text)? };
    if Duration::from_nanos(delay) > DRAIN_DELAY_MAX { Err("20s at most".to_owned()) } else { Ok(delay) }
}
