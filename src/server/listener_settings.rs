//! The settings of all listeners: TLS, tokens, browsers, connections, and how they drain.

use std::{path::PathBuf, sync::Arc, time::Duration};

use clap::Args;
use tidegate::time::parse_period;
use tidegate_net::tls::{Tls, TlsFiles};
use tidegate_service::{
    CONNECTIONS_MAX, ConnectionCaps, DEFAULT_PEER_CONNECTIONS, DRAIN_DELAY_MAX, ListenerSettings, PolicyFeed, Timeouts,
    Tokens, Traces, http::BrowserAccess,
};

use crate::{output::CommandError, value_parsers::connections};

#[derive(Debug, Args)]
pub(crate) struct ListenerSettingsArguments {
    /// The certificate of the listeners for checks, with its intermediate certificates; a PEM file. The listeners then use TLS. The
    /// file is read again when it changes.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_TLS_CERT", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The private key of that certificate; a PEM file.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_TLS_KEY", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// The authorities whose certificates callers must show (mutual TLS); a PEM file. It is read again when it changes.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_TLS_CLIENT_CA", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,
    /// A file of tokens, one per line. Callers must then send one of them: `Authorization: Bearer TOKEN`, or X-Tidegate-Token. After
    /// a token may follow its rights (check, reserve, reset; default: check and reserve) and the domains where it has them:
    /// `TOKEN check domain=shop domain=search`. Health checks need no token; metrics have --metrics-tokens. The file is read
    /// again when it changes.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_CHECK_TOKENS")]
    check_tokens: Option<PathBuf>,
    /// A file of tokens, one per line, for the metrics over HTTP and gRPC. Without it everyone can read the metrics. The file is
    /// read again when it changes.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_METRICS_TOKENS")]
    metrics_tokens: Option<PathBuf>,
    /// An origin whose web pages may call the HTTP API from a browser, such as `https://app.example`. Pages of other origins are
    /// refused. Repeat the option for several, or separate them by commas.
    #[arg(long, value_name = "ORIGIN", env = "TIDEGATE_ALLOWED_ORIGIN", value_delimiter = ',', value_parser = origin)]
    allowed_origin: Vec<String>,
    /// A host name, without a port, by which clients may call the HTTP API on loopback, besides localhost and 127.0.0.1. Other names
    /// are refused, since a web page could let its own name point there (DNS rebinding). Repeat the option for several, or
    /// separate them by commas.
    #[arg(long, value_name = "NAME", env = "TIDEGATE_ALLOWED_HOST", value_delimiter = ',', value_parser = host)]
    allowed_host: Vec<String>,
    /// The time to answer checks after SIGTERM while /readyz answers 503, so that load balancers stop sending requests; 0s to 20s.
    /// Open requests then have the rest of 30 s to end.
    #[arg(long, value_name = "PERIOD", env = "TIDEGATE_DRAIN_DELAY", default_value = "3s", value_parser = delay)]
    drain_delay: Duration,
    /// The most connections from one address to each listener for checks, of 10,000 in all. The first 64 bits of an IPv6 address
    /// count as one address. With --check-tokens, only a fifth of them may be unauthenticated over the Redis protocol. Raise it
    /// if all callers share an address, behind a NAT or a load balancer.
    #[arg(long, value_name = "N", env = "TIDEGATE_CONNECTIONS_PER_PEER", default_value_t = DEFAULT_PEER_CONNECTIONS,
        value_parser = connections)]
    connections_per_peer: usize,
}

impl ListenerSettingsArguments {
    /// Reads the files, and returns the settings. `source` is the origin of policies, if that is another process.
    pub(crate) fn settings(
        &self,
        workers: usize,
        source: Option<Arc<dyn PolicyFeed>>,
        traces: Option<Traces>,
    ) -> Result<ListenerSettings, CommandError> {
        let files = self.tls_cert.clone().zip(self.tls_key.clone());
        let files = files.map(|(certificate, key)| TlsFiles { certificate, key, clients: self.tls_client_ca.clone() });
        let tls = files
            .map(Tls::open)
            .transpose()
            .map_err(|error| CommandError(format!("--tls-cert, --tls-key, --tls-client-ca: {error}")))?;
        let tokens = self.check_tokens.clone().map(Tokens::open).transpose();
        let tokens = tokens.map_err(|error| CommandError(format!("--check-tokens: {error}")))?;
        let metrics_tokens = self.metrics_tokens.clone().map(Tokens::open_without_rights).transpose();
        let metrics_tokens = metrics_tokens.map_err(|error| CommandError(format!("--metrics-tokens: {error}")))?;
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

    /// Describes what is missing for other machines to call these listeners safely; `None` if nothing is.
    pub(crate) fn missing_protection(&self) -> Option<&'static str> {
        let is_caller_known = self.check_tokens.is_some() || self.tls_client_ca.is_some();
        match (self.has_tls(), is_caller_known) {
            (true, true) => None,
            (false, true) => {
                Some("without TLS, so others on the network can read tokens and identities; give --tls-cert")
            }
            (true, false) => Some("and every caller may check and charge; give --check-tokens or --tls-client-ca"),
            (false, false) => Some(
                "without TLS, and every caller may check and charge; give --tls-cert, and --check-tokens or --tls-client-ca",
            ),
        }
    }
}

/// Parses a drain delay, from `0s`, which is none.
fn delay(text: &str) -> Result<Duration, String> {
    let delay = if text == "0s" { Duration::ZERO } else { parse_period(text).map_err(|why| why.to_string())? };
    if delay > DRAIN_DELAY_MAX { Err("write a period from 0s to 20s".to_owned()) } else { Ok(delay) }
}

/// Parses an origin as browsers write it: a scheme, a host and a port, without a path.
fn origin(text: &str) -> Result<String, String> {
    let is_origin = text.split_once("://").is_some_and(|(scheme, host)| {
        !scheme.is_empty()
            && !host.is_empty()
            && !host.contains(['/', '?', '#', '*'])
            && !host.contains(char::is_whitespace)
    });
    is_origin.then(|| text.to_owned()).ok_or_else(|| {
        "write the scheme, the host, and the port unless it is the default, such as https://app.example".to_owned()
    })
}

/// Parses a host name, or an IPv4 address.
fn host(text: &str) -> Result<String, String> {
    let is_host = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    is_host
        .then(|| text.to_owned())
        .ok_or_else(|| "write a host name without a port, such as limits.internal".to_owned())
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
