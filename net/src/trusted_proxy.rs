//! The address of a client behind trusted proxies, from the headers in which each proxy writes for whom it asks.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr, SocketAddr},
};

use ipnet::{IpNet, Ipv4Net};

/// The header in which proxies write the address of their client.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Forwarding {
    /// `X-Forwarded-For`: addresses.
    #[default]
    XForwardedFor,
    /// `Forwarded` of RFC 7239: the parameter `for`.
    Forwarded,
}

impl Forwarding {
    /// The header, in lower case.
    #[must_use]
    pub fn header(self) -> &'static str {
        match self {
            Self::XForwardedFor => "x-forwarded-for",
            Self::Forwarded => "forwarded",
        }
    }
}

/// Returns the nearest address that is no trusted proxy's: each proxy adds the address of its own client, to the right. A value
/// that is no address (also `unknown` and names that hide one) does not count: the client is then the proxy that wrote it.
///
/// `lines` are the header's values in the order in which they came. An IPv4 address that an IPv6 socket wrote
/// (`::ffff:192.0.2.7`) is that IPv4 address.
#[must_use]
pub fn client(peer: IpAddr, lines: &[&[u8]], forwarding: Forwarding, trusted: &[IpNet]) -> IpAddr {
    let mut nearest = peer.to_canonical();
    let mut before = lines.iter().rev().flat_map(|line| FromRight::of(line, b',')).map(|hop| address(hop, forwarding));
    while trusted.iter().any(|network| network.contains(&nearest)) {
        match before.next() {
            Some(Some(address)) => nearest = address,
            _ => break,
        }
    }
    nearest
}

/// Reads a network of proxies: `10.0.0.0/8`, or one address.
pub fn parse_network(text: &str) -> Result<IpNet, AddressError> {
    let network = text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    let network = network.map_err(|_| AddressError::Network)?;
    // A network of IPv4 addresses as IPv6 sockets write them.
    if let IpNet::V6(mapped) = network
        && let Some(address) = mapped.addr().to_ipv4_mapped()
        && let Some(bits) = mapped.prefix_len().checked_sub(96)
    {
        return Ipv4Net::new(address, bits).map(IpNet::V4).map_err(|_| AddressError::Network);
    }
    Ok(network)
}

/// Returns the address that a proxy wrote for its client.
fn address(hop: &[u8], forwarding: Forwarding) -> Option<IpAddr> {
    let text = str::from_utf8(hop).ok()?.trim_ascii();
    match forwarding {
        Forwarding::XForwardedFor => parse_address(text),
        Forwarding::Forwarded => {
            let mut nodes = FromRight::of(text.as_bytes(), b';').filter_map(|pair| {
                let (name, value) = str::from_utf8(pair).ok()?.split_once('=')?;
                name.trim_ascii().eq_ignore_ascii_case("for").then(|| value.trim_ascii())
            });
            // A value that is given twice does not count.
            let (node, None) = (nodes.next()?, nodes.next()) else { return None };
            let unquoted = node.strip_prefix('"').and_then(|node| node.strip_suffix('"'));
            parse_address(unquoted.unwrap_or(node))
        }
    }
}

/// Reads an address, with or without port, IPv6 with or without brackets. The port is anything, since RFC 7239 lets it be
/// hidden. An IPv4 address that an IPv6 socket wrote is that IPv4 address.
#[must_use]
pub fn parse_address(text: &str) -> Option<IpAddr> {
    let bare = text.parse::<IpAddr>().or_else(|_| text.parse::<SocketAddr>().map(|socket| socket.ip()));
    let address = bare.ok().or_else(|| match text.strip_prefix('[') {
        Some(rest) => {
            let (address, after) = rest.split_once(']')?;
            (after.is_empty() || after.starts_with(':')).then(|| address.parse::<Ipv6Addr>().ok())?.map(IpAddr::V6)
        }
        None => text.split_once(':')?.0.parse().ok().map(IpAddr::V4),
    })?;
    Some(address.to_canonical())
}

/// Parts of a header between separators that stand in no quoted string, the last first. Quotes are paired from the right: what
/// a trusted proxy wrote is whole, and what stands to the left of it may be anything.
struct FromRight<'a> {
    rest: Option<&'a [u8]>,
    separator: u8,
}

impl<'a> FromRight<'a> {
    fn of(line: &'a [u8], separator: u8) -> Self {
        Self { rest: Some(line), separator }
    }
}

impl<'a> Iterator for FromRight<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest?;
        let mut is_quoted = false;
        for (at, &byte) in rest.iter().enumerate().rev() {
            if byte == b'"' {
                let escapes = rest[..at].iter().rev().take_while(|&&byte| byte == b'\\').count();
                is_quoted ^= !is_quoted || escapes.is_multiple_of(2);
            } else if byte == self.separator && !is_quoted {
                self.rest = Some(&rest[..at]);
                return Some(&rest[at + 1..]);
            }
        }
        self.rest = None;
        Some(rest)
    }
}

/// A setting of addresses that is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AddressError {
    /// A prefix of this many bits, which an IPv6 address does not have.
    Bits(u8),
    /// Neither an address nor a network.
    Network,
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bits(bits) => write!(f, "an IPv6 address cannot be cut to {bits} bits; give 1 to 128"),
            Self::Network => f.write_str("an address such as 10.0.0.7, or a network such as 10.0.0.0/8"),
        }
    }
}

impl std::error::Error for AddressError {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn trusted() -> [IpNet; 2] {
        ["10.0.0.0/8", "2001:db8:1::/48"].map(|network| parse_network(network).expect("a network"))
    }

    fn found(peer: &str, lines: &[&str], forwarding: Forwarding) -> String {
        let lines: Vec<&[u8]> = lines.iter().map(|line| line.as_bytes()).collect();
        client(peer.parse().expect("an address"), &lines, forwarding, &trusted()).to_string()
    }

    #[test]
    fn only_trusted_proxies_say_who_asks() {
        for (peer, lines, expected) in [
            ("192.0.2.1", &["198.51.100.7"][..], "192.0.2.1"),
            ("10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.1", &[""], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.7"], "198.51.100.7"),
            ("::ffff:10.0.0.1", &["::ffff:198.51.100.7"], "198.51.100.7"),
            // What stands to the left of the nearest untrusted address was written by that client.
            ("10.0.0.1", &["10.0.0.9, 198.51.100.7 ,10.1.1.1"], "198.51.100.7"),
            ("10.0.0.1", &["10.0.0.9, 203.0.113.5", "198.51.100.7", "10.1.1.1"], "198.51.100.7"),
            ("10.0.0.1", &["\"", "198.51.100.7, 10.1.1.1"], "198.51.100.7"),
            ("10.0.0.1", &["\"203.0.113.5, 198.51.100.7"], "198.51.100.7"),
            ("10.0.0.1", &["2001:db8:1::5,10.0.0.2"], "2001:db8:1::5"),
            ("10.0.0.1", &["198.51.100.7, nonsense"], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.7, nonsense, 10.0.0.2"], "10.0.0.2"),
            ("10.0.0.1", &["198.51.100.7, unknown, 10.0.0.2"], "10.0.0.2"),
            // Proxies that add ports and brackets.
            ("10.0.0.1", &["198.51.100.7:4711"], "198.51.100.7"),
            ("10.0.0.1", &["[2001:db8::7]:4711, 10.0.0.2:80"], "2001:db8::7"),
            ("10.0.0.1", &["[2001:db8::7]"], "2001:db8::7"),
            ("10.0.0.1", &["[::ffff:198.51.100.7]:1"], "198.51.100.7"),
            ("10.0.0.1", &["198.51.100.7:, 10.0.0.2"], "198.51.100.7"),
            ("10.0.0.1", &["[2001:db8::7]x"], "10.0.0.1"),
            ("10.0.0.1", &["[198.51.100.7]"], "10.0.0.1"),
        ] {
            assert_eq!(found(peer, lines, Forwarding::XForwardedFor), expected, "{peer}: {lines:?}");
        }
    }

    #[test]
    fn forwarded_is_read_as_rfc_7239_has_it() {
        for (lines, expected) in [
            (&["for=198.51.100.7"][..], "198.51.100.7"),
            (&["For=\"[2001:db8:cafe::17]:4711\""], "2001:db8:cafe::17"),
            (&["for=198.51.100.7;proto=http;by=203.0.113.43"], "198.51.100.7"),
            (&["proto=https ; FOR = \"198.51.100.7:_port\""], "198.51.100.7"),
            (&["for=192.0.2.43, for=198.51.100.17"], "198.51.100.17"),
            (&["for=192.0.2.43", "for=198.51.100.17;host=\"a,b;for=1.2.3.4\", for=10.0.0.2"], "198.51.100.17"),
            (&["for=198.51.100.17;host=\"a\\\",for=1.2.3.4;\\\\\", for=10.0.0.2"], "198.51.100.17"),
            // A quote that is left open ends at what a trusted proxy wrote.
            (&["for=\"1.2.3.4, for=198.51.100.17"], "198.51.100.17"),
            (&["for=198.51.100.7, for=unknown"], "10.0.0.1"),
            (&["for=198.51.100.7, for=_hidden, for=10.0.0.2"], "10.0.0.2"),
            (&["for=198.51.100.7, proto=http"], "10.0.0.1"),
            (&["for=198.51.100.7;for=192.0.2.1"], "10.0.0.1"),
            (&["198.51.100.7"], "10.0.0.1"),
        ] {
            assert_eq!(found("10.0.0.1", lines, Forwarding::Forwarded), expected, "{lines:?}");
        }
    }

    proptest! {
        /// The nearest address stays the nearest, whatever a client writes into the header.
        #[test]
        fn a_client_cannot_choose_another_address_for_itself(said in "[\\x20-\\x7e]{0,60}", own_line: bool) {
            for (forwarding, added) in [
                (Forwarding::XForwardedFor, "198.51.100.7, 10.0.0.2"),
                (Forwarding::Forwarded, "for=198.51.100.7;host=\"x\\\\\", for=10.0.0.2"),
            ] {
                let joined = format!("{said}, {added}");
                let lines = if own_line { vec![said.as_str(), added] } else { vec![joined.as_str()] };
                prop_assert_eq!(found("10.0.0.1", &lines, forwarding), "198.51.100.7");
            }
        }
    }

    #[test]
    fn a_proxy_is_an_address_or_a_network() {
        for (text, name) in
            [("10.0.0.7", "10.0.0.7/32"), ("10.0.0.0/8", "10.0.0.0/8"), ("2001:db8::/32", "2001:db8::/32")]
        {
            assert_eq!(parse_network(text).map(|network| network.to_string()), Ok(name.to_owned()));
        }
        assert!(["", "proxy", "10.0.0.0/33", "10.0.0.7:80"].into_iter().all(|text| parse_network(text).is_err()));
    }
}
