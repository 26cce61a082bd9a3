//! Refuses requests of pages in browsers: pages of other origins, and pages whose host name was pointed at this machine (DNS
//! rebinding). Of the headers that it reads, callers other than browsers send `Host` alone.
//!
//! | path | pages of other origins | `Host`, where the listener is on loopback |
//! |---|---|---|
//! | checks, reservations | refused: they charge | checked |
//! | `/v1/authorize` | refused, unless a header is there that only a proxy writes: proxies pass on the `Origin` and `Sec-Fetch-Site` of their clients | checked if it has the port of this listener: proxies send the host of their client, or their own name for this server |
//! | `/metrics` | answered: a page can read no answer of another origin, and nothing is charged | checked: under a name that was pointed here, a page reads it |
//! | `/healthz`, `/readyz` | answered | not checked: balancers probe under any name, and the answer holds no secret |
//!
//! gRPC and the Redis protocol need none of this. No page can send a gRPC call: a browser speaks HTTP/2 over TLS alone,
//! and sends a preflight before the content type of gRPC. A request that a page sends to the listener of the Redis
//! protocol ends the connection.

use std::{
    borrow::Cow,
    net::{IpAddr, SocketAddr},
};

use actix_http::{HttpMessage as _, Request};
use actix_web::http::header::{HeaderValue, X_FORWARDED_FOR};

use super::{
    authorize_settings::Authorize,
    known_headers::KnownHeaders,
    routes::{AUTHORIZE, HEALTHZ, METRICS, READYZ},
};
use crate::shared::error::Error;

/// The port of a `Host` that names none.
const DEFAULT_PORT: u16 = 80;

/// The pages in browsers that may call, and the host names under which they may.
#[derive(Clone, Debug, Default)]
pub struct BrowserAccess {
    /// The origins whose pages may call, as browsers write them: `https://app.example`.
    pub origins: Vec<String>,
    /// The names, without a port, under which a listener on loopback may be called, beside `localhost` and loopback addresses.
    pub hosts: Vec<String>,
}

impl BrowserAccess {
    /// Returns an error where a page may have sent this request that may not send it.
    pub(super) fn admit(
        &self,
        route: &str,
        known: &KnownHeaders<'_>,
        authorize: &Authorize,
        listener: SocketAddr,
    ) -> Result<(), Error> {
        if matches!(route, HEALTHZ | READYZ) {
            return Ok(());
        }
        let host = host(known);
        // A request without a `Host` is HTTP/1.0, which no browser speaks.
        if let Some(host) = host.as_deref()
            && listener.ip().to_canonical().is_loopback()
        {
            let (name, port) = name_and_port(host);
            let is_for_proxy = route == AUTHORIZE && port != Some(listener.port());
            if !is_for_proxy && !self.is_own(name) {
                return Err(Error::Host(name.to_owned()));
            }
        }
        let may_be_cross_origin = match route {
            METRICS => true,
            AUTHORIZE => authorize.is_of_proxy(known.request),
            _ => false,
        };
        if !may_be_cross_origin && is_cross_origin(known, host.as_deref()) && !self.allows_origin(known) {
            let origin = known.origin.map(|origin| String::from_utf8_lossy(origin.as_bytes()));
            return Err(Error::Origin(origin.map(Cow::into_owned)));
        }
        Ok(())
    }

    /// Returns whether a listener on loopback may be called under this name.
    fn is_own(&self, name: &str) -> bool {
        let is_loopback = || {
            let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
            address.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
        };
        name.eq_ignore_ascii_case("localhost")
            || is_loopback()
            || self.hosts.iter().any(|own| own.eq_ignore_ascii_case(name))
    }

    /// Returns whether pages of the request's origin may call.
    fn allows_origin(&self, known: &KnownHeaders<'_>) -> bool {
        let origin = known.origin.map(HeaderValue::as_bytes);
        origin.is_some_and(|origin| self.origins.iter().any(|known| known.as_bytes().eq_ignore_ascii_case(origin)))
    }
}

impl Authorize {
    /// Returns whether a request has a header that proxies write by the documented recipes. A page cannot make a
    /// browser send one to another origin: the browser would send a preflight, which gets no permission here.
    fn is_of_proxy(&self, request: &Request) -> bool {
        let headers = request.headers();
        headers.contains_key(&self.endpoint_header)
            || headers.contains_key(&self.method_header)
            || headers.contains_key(X_FORWARDED_FOR)
    }
}

/// Returns the host name and port of the request; over HTTP/2 they are part of its target.
fn host<'r>(known: &KnownHeaders<'r>) -> Option<Cow<'r, str>> {
    match known.host {
        Some(host) => Some(String::from_utf8_lossy(host.as_bytes())),
        None => known.request.uri().authority().map(|authority| authority.as_str().into()),
    }
}

/// Splits a host into name and port. An IPv6 address keeps its brackets. The port is `None` where it is no number.
fn name_and_port(host: &str) -> (&str, Option<u16>) {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, port.parse().ok()),
        _ => (host, Some(DEFAULT_PORT)),
    }
}

/// Returns whether a browser says that a page of another origin sent this.
fn is_cross_origin(known: &KnownHeaders<'_>, host: Option<&str>) -> bool {
    match (known.sec_fetch_site.map(HeaderValue::as_bytes), known.origin.map(HeaderValue::as_bytes)) {
        (Some(b"same-origin" | b"none"), _) | (None, None) => false,
        (Some(_), _) => true,
        // Older browsers, and those that reach the server without TLS: host and port are those of the page.
        (None, Some(origin)) => {
            let of_page = str::from_utf8(origin).ok().and_then(|origin| Some(origin.split_once("://")?.1));
            !of_page.zip(host).is_some_and(|(of_page, host)| of_page.eq_ignore_ascii_case(host))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_recognized_in_every_spelling() {
        let browsers = BrowserAccess { hosts: vec!["limits.internal".to_owned()], ..BrowserAccess::default() };
        for (host, is_own, port) in [
            ("localhost", true, Some(80)),
            ("LocalHost:9080", true, Some(9_080)),
            ("127.0.0.1:9080", true, Some(9_080)),
            ("127.9.9.9", true, Some(80)),
            ("[::1]:9080", true, Some(9_080)),
            ("[::1]", true, Some(80)),
            ("[::ffff:127.0.0.1]", true, Some(80)),
            ("limits.internal:1", true, Some(1)),
            ("Limits.Internal", true, Some(80)),
            ("limits.internal.evil.example", false, Some(80)),
            ("localhost.evil.example", false, Some(80)),
            ("evil.example:9080", false, Some(9_080)),
            ("0.0.0.0:9080", false, Some(9_080)),
            ("192.0.2.7", false, Some(80)),
            ("localhost:http", true, None),
            ("", false, Some(80)),
        ] {
            let (name, given) = name_and_port(host);
            assert_eq!((browsers.is_own(name), given), (is_own, port), "{host}");
        }
    }
}
