//! The address of a client: behind trusted proxies, and of IPv6 only its network.

use std::net::IpAddr;

use ipnet::IpNet;
pub use tidegate::network;
use tidegate_net::trusted_proxy::client;
pub use tidegate_net::trusted_proxy::{AddressError, Forwarding, parse_network};

use crate::request_head::RequestHead;

/// Bits of an IPv6 address that a client has in common with himself, unless told otherwise: whoever has one address of such
/// a network has them all.
pub const V6_BITS: u8 = tidegate::IPV6_PREFIX;

/// How addresses are read.
#[derive(Clone, Debug)]
pub struct Addresses {
    trusted: Vec<IpNet>,
    forwarding: Forwarding,
    v6_bits: u8,
}

impl Default for Addresses {
    /// Trusts nobody, so whoever has the connection is the client.
    fn default() -> Self {
        Self { trusted: Vec::new(), forwarding: Forwarding::default(), v6_bits: V6_BITS }
    }
}

impl Addresses {
    /// Believes these proxies. Behind each of them the client is whom it says that it asks for.
    #[must_use]
    pub fn trusting(self, proxies: impl IntoIterator<Item = IpNet>) -> Self {
        Self { trusted: proxies.into_iter().collect(), ..self }
    }

    /// Reads another header of proxies.
    #[must_use]
    pub fn told_by(self, forwarding: Forwarding) -> Self {
        Self { forwarding, ..self }
    }

    /// Cuts IPv6 addresses to so many bits, 1 to 128.
    pub fn v6_bits(self, bits: u8) -> Result<Self, AddressError> {
        if !(1..=128).contains(&bits) {
            return Err(AddressError::Bits(bits));
        }
        Ok(Self { v6_bits: bits, ..self })
    }

    /// The client's address; `None` where that of the connection is not known.
    pub fn client(&self, head: &(impl RequestHead + ?Sized)) -> Option<IpAddr> {
        Some(client(head.peer()?, &head.header(self.forwarding.header()), self.forwarding, &self.trusted))
    }

    /// Whom the client is counted as: his address, of IPv6 the first one of his network. It is in every block of at most
    /// that many bits that the address itself is in, so clients of a policy that are CIDR blocks are found by it.
    pub fn identity(&self, head: &(impl RequestHead + ?Sized)) -> Option<IpAddr> {
        self.client(head).map(|address| self.network(address))
    }

    /// Returns the first address of the network that an IPv6 address is counted as, and an IPv4 address as it is.
    pub(crate) fn network(&self, address: IpAddr) -> IpAddr {
        network(address, self.v6_bits)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_network_is_the_first_address_that_shares_its_bits(address: u128, bits in 1_u8..=128) {
            let whole = Ipv6Addr::from_bits(address | 1 << 127);
            let cut = network(whole.into(), bits);
            let block = IpNet::new(cut, bits).expect("a block");
            prop_assert_eq!(block.network(), cut);
            prop_assert!(block.contains(&IpAddr::V6(whole)));
        }
    }

    #[test]
    fn whoever_has_one_address_of_a_network_has_them_all() {
        let cut = |address: &str, bits| network(address.parse().expect("an address"), bits).to_string();
        assert_eq!(cut("2001:db8:1:2:3::4", 64), "2001:db8:1:2::");
        assert_eq!(cut("2001:db8:1:2:3::4", 48), "2001:db8:1::");
        assert_eq!(cut("2001:db8:1:2:3::4", 128), "2001:db8:1:2:3::4");
        assert_eq!((cut("192.0.2.1", 48).as_str(), cut("::ffff:192.0.2.1", 64).as_str()), ("192.0.2.1", "192.0.2.1"));
        for bits in [0, 129] {
            assert!(Addresses::default().v6_bits(bits).is_err(), "{bits}");
        }
    }
}
