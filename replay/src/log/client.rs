//! Finds the client of a line: an address, or a host name if that is enabled.

use std::{
    borrow::Cow,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use ipnet::IpNet;
use tidegate::IPV6_PREFIX;
use tidegate_net::trusted_proxy::{Forwarding, client, parse_address};

use super::line_error::LineError;

const NO_ADDRESS: &str = "it does not begin with an address";
const HOST_NAME: &str =
    "it does not begin with an address; where the server writes host names, --host-names reads them";

/// Settings of how clients are found, by the code that also serves `/v1/authorize`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientOptions {
    /// Trusted proxies: in a list of addresses such as `X-Forwarded-For`, the client is the last one that is not a proxy.
    pub trusted_proxies: Vec<IpNet>,
    /// Prefix length, 1 to 128, by which IPv6 addresses are counted, unless the policy names a smaller network.
    pub ipv6_prefix: u8,
    /// Accepts a host name as a client, as servers write it that look names up.
    pub host_names: bool,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self { trusted_proxies: private_networks(), ipv6_prefix: IPV6_PREFIX, host_names: false }
    }
}

/// Returns the networks of proxies that are trusted by default: loopback, private and link-local addresses.
#[must_use]
pub fn private_networks() -> Vec<IpNet> {
    let v4 = ["10.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16"];
    let v6 = ["::1/128", "fc00::/7", "fe80::/10"];
    v4.iter().chain(&v6).filter_map(|network| network.parse().ok()).collect()
}

impl ClientOptions {
    /// Reads an address or a list of addresses, with the proxy nearest to the server last; `forwarded` is a list from
    /// another field of the line. Returns `None` if the line names no client.
    pub(crate) fn read<'l>(
        &self,
        text: Cow<'l, str>,
        forwarded: Option<&str>,
    ) -> Result<Option<Cow<'l, str>>, LineError> {
        let forwarded = forwarded.map(str::trim).filter(|list| !is_nothing(list));
        let text = match trimmed(text) {
            text if !is_nothing(&text) => text,
            _ => return forwarded.map(|list| self.read_forwarded(list)).transpose(),
        };
        if forwarded.is_none() && text.parse::<Ipv4Addr>().is_ok() {
            return Ok(Some(text));
        }
        let (before, last) = text.rsplit_once(',').unwrap_or(("", &text));
        let Some(peer) = parse_address(last.trim()) else {
            return match is_host_name(&text) {
                true if self.host_names => Ok(Some(text)),
                true => Err(LineError::of(HOST_NAME, text.as_bytes())),
                false => Err(LineError::of(NO_ADDRESS, text.as_bytes())),
            };
        };
        let lists = [before.as_bytes()];
        let lists: &[&[u8]] = if before.is_empty() { &[] } else { &lists };
        let address = client(peer, lists, Forwarding::XForwardedFor, &self.trusted_proxies);
        let address = forwarded.map_or(address, |list| behind(address, list, &self.trusted_proxies));
        Ok(Some(Cow::Owned(address.to_string())))
    }

    /// Reads a proxy's list for a line that names no peer.
    fn read_forwarded<'l>(&self, list: &str) -> Result<Cow<'l, str>, LineError> {
        const PEER: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let trusted: Vec<IpNet> = self.trusted_proxies.iter().copied().chain([PEER.into()]).collect();
        match behind(PEER, list, &trusted) {
            PEER => Err(LineError::of(NO_ADDRESS, list)),
            address => Ok(Cow::Owned(address.to_string())),
        }
    }
}

/// Returns the client behind a peer, by a list such as `X-Forwarded-For` or `Forwarded` (RFC 7239).
fn behind(peer: IpAddr, list: &str, trusted: &[IpNet]) -> IpAddr {
    let is_pairs = list.to_ascii_lowercase().contains("for=");
    let forwarding = if is_pairs { Forwarding::Forwarded } else { Forwarding::XForwardedFor };
    // IIS writes a space as a plus.
    client(peer, &[list.replace('+', " ").as_bytes()], forwarding, trusted)
}

/// Returns whether this is an address as servers write it, with or without a port, or the first one of a list.
pub(crate) fn is_address(text: &[u8]) -> bool {
    str::from_utf8(text).is_ok_and(|text| parse_address(text.strip_suffix(',').unwrap_or(text)).is_some())
}

/// Returns whether a field states that there is no address, or that the peer is a Unix socket.
pub(crate) fn is_nothing(text: &str) -> bool {
    matches!(text, "" | "-" | "\"-\"" | "unknown" | "unix:" | "@")
}

fn is_host_name(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte))
}

pub(crate) fn trimmed(text: Cow<'_, str>) -> Cow<'_, str> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.trim()),
        Cow::Owned(text) => Cow::Owned(text.trim().to_owned()),
    }
}

/// Returns whether an address is one that the internet or a private network routes; `12:2001:db8::1` is not.
pub(crate) fn is_plausible(text: &str) -> bool {
    match parse_address(text) {
        Some(IpAddr::V6(address)) => {
            address == Ipv6Addr::LOCALHOST || matches!(address.segments()[0], 0x2000..=0x3fff | 0xfc00..=0xfebf)
        }
        Some(IpAddr::V4(_)) => true,
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str, forwarded: Option<&str>) -> Result<Option<String>, String> {
        let found = ClientOptions::default().read(text.into(), forwarded);
        found.map(|found| found.map(Cow::into_owned)).map_err(|why| why.to_string())
    }

    #[test]
    fn every_private_network_is_parsed() {
        assert_eq!(private_networks().len(), 8);
    }

    #[test]
    fn a_list_is_read_from_the_right_past_proxies() {
        for (text, forwarded, client) in [
            ("192.0.2.10", None, Some("192.0.2.10")),
            ("192.0.2.10, 10.0.0.1", None, Some("192.0.2.10")),
            ("203.0.113.9, 192.0.2.10,10.0.0.1,10.0.0.2", None, Some("192.0.2.10")),
            ("10.0.0.3, 10.0.0.1", None, Some("10.0.0.3")),
            ("192.0.2.10, unknown, 10.0.0.1", None, Some("10.0.0.1")),
            ("10.0.0.1", Some("203.0.113.9, 192.0.2.10"), Some("192.0.2.10")),
            ("198.51.100.1", Some("192.0.2.10"), Some("198.51.100.1")),
            ("10.0.0.1", Some("203.0.113.9,+192.0.2.10,+10.0.0.2"), Some("192.0.2.10")),
            ("10.0.0.1", Some("-"), Some("10.0.0.1")),
            ("-", Some("192.0.2.10, 10.0.0.1"), Some("192.0.2.10")),
            ("unix:", Some("192.0.2.10"), Some("192.0.2.10")),
            ("10.0.0.1", Some("for=192.0.2.10, for=\"[fd00::1]:5\""), Some("192.0.2.10")),
            ("unix:", Some("For=192.0.2.10"), Some("192.0.2.10")),
            ("-", None, None),
            ("", None, None),
            (" unknown ", None, None),
        ] {
            assert_eq!(read(text, forwarded), Ok(client.map(str::to_owned)), "{text} {forwarded:?}");
        }
    }

    #[test]
    fn a_name_is_a_client_only_where_names_are_asked_for() {
        for (text, has_advice) in
            [("host.example", true), ("192.0.2", false), ("192.0.2.256", false), ("host:80", false), ("a b", false)]
        {
            let refused = read(text, None).expect_err(text);
            assert!(refused.contains(&format!("`{text}`")), "{refused}");
            assert_eq!(refused.contains("--host-names"), has_advice, "{refused}");
        }
        let names = ClientOptions { host_names: true, ..ClientOptions::default() };
        assert_eq!(names.read("host.example".into(), None), Ok(Some("host.example".into())));
        assert!(names.read("a b".into(), None).is_err() && names.read("192.0.2.256".into(), None).is_err());
    }

    proptest! {
        /// An IPv4 address is one client however a server spells it.
        #[test]
        fn every_spelling_of_an_ipv4_address_is_one_client(bits: u32, port: u16) {
            let address = Ipv4Addr::from_bits(bits);
            for text in [
                address.to_string(),
                format!("{address}:{port}"),
                format!("::ffff:{address}"),
                format!("[::FFFF:{address}]:{port}"),
                format!(" {address} "),
            ] {
                prop_assert_eq!(read(&text, None), Ok(Some(address.to_string())), "{}", text);
            }
        }

        /// An IPv6 address is one client however a server spells it.
        #[test]
        fn every_spelling_of_an_ipv6_address_is_one_client(high: u64, low: u64, port: u16) {
            let address = Ipv6Addr::from_bits(u128::from(high | 1 << 61) << 64 | u128::from(low));
            let long: Vec<String> = address.segments().iter().map(|part| format!("{part:04X}")).collect();
            let long = long.join(":");
            for text in [address.to_string(), long.clone(), format!("[{address}]"), format!("[{long}]:{port}")] {
                prop_assert_eq!(read(&text, None), Ok(Some(address.to_string())), "{}", text);
            }
        }
    }
}
