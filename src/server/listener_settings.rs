//! Settings of how the doors listen, and to whom.

use std::{path::PathBuf, sync::Arc, time::Duration};

use clap::Args;
use tidegate::time::parse_period;
use tidegate_net::tls::{Tls, TlsFiles};
use tidegate_service::{
    CONNECTIONS_MAX, ConnectionCaps, DEFAULT_PEER_CONNECTIONS, DRAIN_DELAY_MAX, ListenerSettings, PolicyFeed, Timeouts,
    Tokens, Traces, http::BrowserAccess,
};

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
    /// Behind a token may stand its rights (check, reserve, reset; check and reserve unless any is given) and the domains in
    /// which it has them: `TOKEN check domain=shop domain=search`. Health takes none; metrics have
    /// --metrics-tokens. The file is read again when it changes.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_CHECK_TOKENS")]
    check_tokens: Option<PathBuf>,
    /// Tokens, one in each line, of which a scrape of the metrics has to send one, over HTTP and gRPC. Without it everyone may
    /// read them. The file is read again when it changes.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_METRICS_TOKENS")]
    metrics_tokens: Option<PathBuf>,
    /// An origin whose pages may ask for checks over HTTP from browsers, such as `https://app.example`; pages of all others are
    /// refused. Several are given one by one, or with commas between them.
    #[arg(long, value_name = "ORIGIN", env = "TIDEGATE_ALLOWED_ORIGIN", value_delimiter = ',', value_parser = origin)]
    allowed_origin: Vec<String>,
    /// A name under which the HTTP API may be called where it listens on loopback, beside localhost and 127.0.0.1: others are
    /// refused, since a page may have its own name point there. Without a port. Several are given one by one, or with commas
    /// between them.
    #[arg(long, value_name = "NAME", env = "TIDEGATE_ALLOWED_HOST", value_delimiter = ',', value_parser = host)]
    allowed_host: Vec<String>,
    /// After SIGTERM, how long checks are answered on while /readyz says 503, so that balancers go elsewhere first; 20s at
    /// most. All requests that are open then have what is left of 30 s.
    #[arg(long, value_name = "PERIOD", env = "TIDEGATE_DRAIN_DELAY", default_value = "3s", value_parser = delay)]
    drain_delay: Duration,
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
        source: Option<Arc<dyn PolicyFeed>>,
        traces: Option<Traces>,
    ) -> Result<ListenerSettings, Failure> {
        let files = self.tls_cert.clone().zip(self.tls_key.clone());
        let files = files.map(|(certificate, key)| TlsFiles { certificate, key, clients: self.tls_client_ca.clone() });
        let tls = files.map(Tls::open).transpose().map_err(|error| Failure(format!("no TLS: {error}")))?;
        let tokens = self.check_tokens.clone().map(Tokens::open).transpose();
        let tokens = tokens.map_err(|error| Failure(format!("--check-tokens: {error}")))?;
        let metrics_tokens = self.metrics_tokens.clone().map(Tokens::open_without_rights).transpose();
        let metrics_tokens = metrics_tokens.map_err(|error| Failure(format!("--metrics-tokens: {error}")))?;
        Ok(ListenerSettings {
            workers,
            tls,
            tokens,
            metrics_tokens,
            browsers: BrowserAccess { origins: self.allowed_origin.clone(), hosts: self.allowed_host.clone() },
            drain_delay: self.drain_delay(),
            source,
            traces,
            timeouts: Timeouts::default(),
            connections: ConnectionCaps::new(CONNECTIONS_MAX, self.connections_per_peer),
        })
    }

    pub(crate) fn drain_delay(&self) -> Duration {
        self.drain_delay
    }

    pub(crate) fn has_tls(&self) -> bool {
        self.tls_cert.is_some()
    }

    /// What is missing for other machines to call these listeners safely, as a warning has it; `None`: nothing.
    pub(crate) fn missing_protection(&self) -> Option<&'static str> {
        let is_caller_known = self.check_tokens.is_some() || self.tls_client_ca.is_some();
        match (self.has_tls(), is_caller_known) {
            (true, true) => None,
            (false, true) => Some("without TLS, so tokens and identities can be read on the way: give --tls-cert"),
            (true, false) => Some("and everyone may ask and charge there: give --check-tokens, or --tls-client-ca"),
            (false, false) => Some(
                "without TLS, and everyone may ask and charge there: give --tls-cert, and --check-tokens or --tls-client-ca",
            ),
        }
    }
}

/// `0s` is none.
fn delay(text: &str) -> Result<Duration, String> {
    let delay = if text == "0s" { Duration::ZERO } else { parse_period(text).map_err(|why| why.to_string())? };
    if delay > DRAIN_DELAY_MAX { Err("20s at most".to_owned()) } else { Ok(delay) }
}

/// A scheme, a host and a port, as browsers write them: without a path.
fn origin(text: &str) -> Result<String, String> {
    let is_origin = text.split_once("://").is_some_and(|(scheme, host)| {
        !scheme.is_empty()
            && !host.is_empty()
            && !host.contains(['/', '?', '#', '*'])
            && !host.contains(char::is_whitespace)
    });
    is_origin.then(|| text.to_owned()).ok_or_else(|| {
        "write the scheme and the host, and the port unless it is that of the scheme: https://app.example".to_owned()
    })
}

/// A host name, or an address of IPv4.
fn host(text: &str) -> Result<String, String> {
    let is_host = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    is_host.then(|| text.to_owned()).ok_or_else(|| "write a name without a port, such as limits.internal".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_and_hosts_are_read_as_browsers_write_them() {
        for (text, is_origin) in [
            ("https://app.example", true),
            ("http://localhost:3000", true),
            ("chrome-extension://abcdef", true),
            ("https://app.example/", false),
            ("https://*.example", false),
            ("app.example", false),
            ("null", false),
            ("", false),
        ] {
            assert_eq!(origin(text).is_ok(), is_origin, "{text}");
        }
        for (text, is_host) in [
            ("limits.internal", true),
            ("tide_gate-1", true),
            ("limits.internal:80", false),
            ("http://a", false),
            ("", false),
        ] {
            assert_eq!(host(text).is_ok(), is_host, "{text}");
        }
    }
}
