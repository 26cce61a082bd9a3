//! How users sign in.

use std::time::Duration;

use ipnet::IpNet;
use tidegate_net::tls::TlsFiles;

use crate::{auth::oidc::Oidc, base::secrets::SessionLife};

/// How people sign in.
#[derive(Clone, Debug)]
pub struct Access {
    /// How long a session lives without being used: whole seconds, 5 minutes or more.
    pub session_idle: Duration,
    /// How long a session lives, however much it is used: whole seconds.
    pub session_life: Duration,
    /// The certificate of the listener; without one it speaks no TLS.
    pub tls: Option<TlsFiles>,
    /// Proxies whose `X-Forwarded-For` says who asks.
    pub trusted_proxies: Vec<IpNet>,
    /// A provider by which people may sign in.
    pub oidc: Option<Oidc>,
}

impl Default for Access {
    fn default() -> Self {
        Self {
            session_idle: Duration::from_hours(12),
            session_life: Duration::from_hours(7 * 24),
            tls: None,
            trusted_proxies: Vec::new(),
            oidc: None,
        }
    }
}

impl Access {
    pub(crate) fn session_life(&self) -> SessionLife {
        let seconds = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX >> 1);
        SessionLife { idle_s: seconds(self.session_idle), whole_s: seconds(self.session_life) }
    }
}
