//! The address of a client: behind trusted proxies, and with IPv6 the network that the client is counted as.

use std::net::IpAddr;

use ipnet::IpNet;
pub use tidegate::network;
use tidegate_net::trusted_proxy::client;
pub use tidegate_net::trusted_proxy::{AddressError, Forwarding, parse_network};

use crate::request_head::RequestHead;

/// The number of leading bits of an IPv6 address that identify a client, unless set otherwise: a client that has one address of
/// such a network has all of them.
pub const V6_BITS: u8 = tidegate::IPV6_PREFIX;

/// Finds the address of a client.
#[derive(Clone, Debug)]
pub struct AddressReader {
    trusted: Vec<IpNet>,
    forwarding: Forwarding,
    v6_bits: u8,
}

impl Default for AddressReader {
    /// Trusts no proxy: the peer of the connection is the client.
    fn default() -> Self {
        Self { trusted: Vec::new(), forwarding: Forwarding::default(), v6_bits: V6_BITS }
    }
}

impl AddressReader {
    /// Trusts these proxies: behind each of them the client is the one that the proxy names in its header.
    #[must_use]
    pub fn trusting(self, proxies: impl IntoIterator<Item = IpNet>) -> Self {
        Self { trusted: proxies.into_iter().collect(), ..self }
    }

    /// Reads this header of proxies; `X-Forwarded-For` unless set.
    #[must_use]
    pub fn forwarded_by(self, forwarding: Forwarding) -> Self {
        Self { forwarding, ..self }
    }

    /// Counts an IPv6 client by this many leading bits of its address, 1 to 128.
    pub fn v6_bits(self, bits: u8) -> Result<Self, AddressError> {
        if !(1..=128).contains(&bits) {
            return Err(AddressError::Bits(bits));
        }
        Ok(Self { v6_bits: bits, ..self })
    }

    /// Returns the client's address; `None` if the address of the connection is not known.
    pub fn client(&self, head: &(impl RequestHead + ?Sized)) -> Option<IpAddr> {
        Some(client(head.peer()?, &head.header(self.forwarding.header()), self.forwarding, &self.trusted))
    }

    /// Returns the address that the client is counted as: its own, or with IPv6 the first one of its network. That is in every
    /// block of at most that many bits that has the client's address, so the clients of a policy that are CIDR blocks match it.
    pub fn identity(&self, head: &(impl RequestHead + ?Sized)) -> Option<IpAddr> {
        self.client(head).map(|address| self.network(address))
    }

    /// Returns the first address of the network that an IPv6 address is counted as, and an IPv4 address unchanged.
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
    fn addresses_of_one_network_are_counted_as_its_first_address() {
        let cut = |address: &str, bits| network(address.parse().expect("an address"), bits).to_string();
        assert_eq!(cut("2001:db8:1:2:3::4", 64), "2001:db8:1:2::");
        assert_eq!(cut("2001:db8:1:2:3::4", 48), "2001:db8:1::");
        assert_eq!(cut("2001:db8:1:2:3::4", 128), "2001:db8:1:2:3::4");
        assert_eq!((cut("192.0.2.1", 48).as_str(), cut("::ffff:192.0.2.1", 64).as_str()), ("192.0.2.1", "192.0.2.1"));
        for bits in [0, 129] {
            assert!(AddressReader::default().v6_bits(bits).is_err(), "{bits}");
        }
    }
}
