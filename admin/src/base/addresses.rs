//! Client addresses: the network that one is counted with, and whether one is on this machine.

use std::net::IpAddr;

use openidconnect::url::{Host, Url};

/// Does what is sent there stay on this machine?
pub(crate) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => IpAddr::from(address).to_canonical().is_loopback(),
        None => false,
    }
}

/// Whom an address is counted with: of IPv6 its network of so many bits.
pub(crate) fn network(address: &str, bits: u8) -> String {
    address
        .parse::<IpAddr>()
        .map_or_else(|_| address.to_owned(), |address| tidegate::network(address, bits).to_string())
}
