//! The network by which peers are distinguished.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
};

/// The network by which peers are distinguished: an IPv4 address, or the first 64 bits of an IPv6 address, since one host has all
/// addresses with the same first 64 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PeerNetwork(IpAddr);

impl PeerNetwork {
    /// Returns the address that stands for the network: of IPv6 the lowest.
    #[must_use]
    pub fn address(self) -> IpAddr {
        self.0
    }
}

impl From<IpAddr> for PeerNetwork {
    fn from(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64))),
            address @ IpAddr::V4(_) => address,
        })
    }
}

impl fmt::Display for PeerNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V4(address) => write!(f, "{address}"),
            IpAddr::V6(address) => write!(f, "{address}/64"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_distinguished_by_address_and_by_64_bits_of_ipv6() {
        let network = |address: &str| PeerNetwork::from(address.parse::<IpAddr>().expect("an address"));
        assert_eq!(network("2001:db8:1:2::1"), network("2001:db8:1:2:ffff:ffff:ffff:ffff"));
        assert_ne!(network("2001:db8:1:2::1"), network("2001:db8:1:3::1"));
        assert_ne!(network("192.0.2.1"), network("192.0.2.2"));
        assert_eq!(network("192.0.2.1"), network("::ffff:192.0.2.1"));
        assert_eq!(network("::ffff:192.0.2.1").to_string(), "192.0.2.1");
        assert_eq!(network("2001:db8:1:2::1").to_string(), "2001:db8:1:2::/64");
        assert_eq!(network("2001:db8:1:2::1").address().to_string(), "2001:db8:1:2::");
    }
}
