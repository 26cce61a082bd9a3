//! The settings of the dashboard: sessions, TLS, trusted proxies, and sign-in by an identity provider.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use tidegate::time::parse_period;
use tidegate_admin::{Access, IpNet, TlsFiles};
use tidegate_middleware::address::parse_network;

use crate::{output::CommandError, server::oidc::OidcArguments};

/// The shortest lifetime of a session. The last use of a session is stored only once a minute.
const IDLE_MIN: Duration = Duration::from_mins(5);

#[derive(Debug, Args)]
pub(crate) struct DashboardArguments {
    /// The lifetime of a session that is not used; 5m or more.
    #[arg(long, value_name = "PERIOD", env = "TIDEGATE_SESSION_IDLE", default_value = "12h", value_parser = session_period)]
    session_idle: Duration,
    /// The longest lifetime of a session, even if it is used; 5m or more.
    #[arg(long, value_name = "PERIOD", env = "TIDEGATE_SESSION_LIFE", default_value = "7d", value_parser = session_period)]
    session_life: Duration,
    /// The certificate of the dashboard and the REST API, with its intermediate certificates; a PEM file. They then use TLS. The file
    /// is read again when it changes.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_ADMIN_TLS_CERT", requires = "admin_tls_key")]
    admin_tls_cert: Option<PathBuf>,
    /// The private key of that certificate; a PEM file.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_ADMIN_TLS_KEY", requires = "admin_tls_cert")]
    admin_tls_key: Option<PathBuf>,
    /// The address or network of a trusted proxy before the dashboard. For its requests, the client address in the audit log, in
    /// sessions and for the login limiter is read from `X-Forwarded-For`. Repeat the option for several, or separate them by
    /// commas.
    #[arg(long, value_name = "CIDR", env = "TIDEGATE_ADMIN_TRUSTED_PROXY", value_delimiter = ',', value_parser = parse_network)]
    admin_trusted_proxy: Vec<IpNet>,
    #[command(flatten)]
    oidc: OidcArguments,
}

impl DashboardArguments {
    pub(crate) fn settings(&self) -> Result<Access, CommandError> {
        Ok(Access {
            session_idle: self.session_idle,
            session_life: self.session_life,
            tls: self.tls(),
            trusted_proxies: self.admin_trusted_proxy.clone(),
            oidc: self.oidc.settings()?,
        })
    }

    /// Returns the scheme of the URL at which the dashboard listens.
    pub(crate) fn scheme(&self) -> &'static str {
        if self.tls().is_some() { "https" } else { "http" }
    }

    /// Returns the files of the certificate, if there is one.
    fn tls(&self) -> Option<TlsFiles> {
        let (certificate, key) = self.admin_tls_cert.clone().zip(self.admin_tls_key.clone())?;
        Some(TlsFiles { certificate, key, clients: None })
    }
}

fn session_period(text: &str) -> Result<Duration, String> {
    let period = parse_period(text).map_err(|why| why.to_string())?;
    if period < IDLE_MIN { Err("write a period of 5m or more".to_owned()) } else { Ok(period) }
}
