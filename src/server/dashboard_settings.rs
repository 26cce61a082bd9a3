//! Settings of how people sign in at the dashboard.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use tidegate::time::parse_period;
use tidegate_admin::{Access, IpNet, TlsFiles};
use tidegate_middleware::address::parse_network;

use crate::{output::Failure, server::oidc::OidcArguments};

/// The shortest that a session may live without being used: that it was used is written once a minute.
const IDLE_MIN: Duration = Duration::from_mins(5);

#[derive(Debug, Args)]
pub(crate) struct AccessArguments {
    /// How long a session lives without being used; 5m or more.
    #[arg(long, value_name = "PERIOD", env = "TIDEGATE_SESSION_IDLE", default_value = "12h", value_parser = idle)]
    session_idle: Duration,
    /// How long a session lives, however much it is used.
    #[arg(long, value_name = "PERIOD", env = "TIDEGATE_SESSION_LIFE", default_value = "7d", value_parser = idle)]
    session_life: Duration,
    /// The certificate of the dashboard and its REST calls, with those that lead to a known one; PEM. They are served over TLS
    /// then. It is read again when it changes.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_ADMIN_TLS_CERT", requires = "admin_tls_key")]
    admin_tls_cert: Option<PathBuf>,
    /// The key of that certificate; PEM.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_ADMIN_TLS_KEY", requires = "admin_tls_cert")]
    admin_tls_key: Option<PathBuf>,
    /// The address or network of a proxy before the dashboard. For requests that come through it, the address in the audit log,
    /// in sessions and in limits of tries is read from `X-Forwarded-For`. Several are given one by one, or with commas between them.
    #[arg(long, value_name = "CIDR", env = "TIDEGATE_ADMIN_TRUSTED_PROXY", value_delimiter = ',', value_parser = parse_network)]
    admin_trusted_proxy: Vec<IpNet>,
    #[command(flatten)]
    oidc: OidcArguments,
}

impl AccessArguments {
    pub(crate) fn settings(&self) -> Result<Access, Failure> {
        Ok(Access {
            session_idle: self.session_idle,
            session_life: self.session_life,
            tls: self.tls(),
            trusted_proxies: self.admin_trusted_proxy.clone(),
            oidc: self.oidc.settings()?,
        })
    }

    /// Of the address of the dashboard.
    pub(crate) fn scheme(&self) -> &'static str {
        if self.tls().is_some() { "https" } else { "http" }
    }

    /// The files of the certificate.
    pub(crate) fn tls(&self) -> Option<TlsFiles> {
        let (certificate, key) = self.admin_tls_cert.clone().zip(self.admin_tls_key.clone())?;
        Some(TlsFiles { certificate, key, clients: None })
    }
}

fn idle(text: &str) -> Result<Duration, String> {
    let period = parse_period(text).map_err(|why| why.to_string())?;
    if period < IDLE_MIN { Err("5m or more".to_owned()) } else { Ok(period) }
}
