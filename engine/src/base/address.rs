//! IP addresses: which kinds of identities have them as values, and the network that an IPv6 address is counted as.

use std::net::{IpAddr, Ipv6Addr};

/// Bits of an IPv6 address that are counted together unless another number is set: one customer usually has a network of this
/// size.
pub const IPV6_PREFIX: u8 = 64;

/// The kind of identity whose values are addresses.
pub(crate) const IP: &str = "ip";
/// The kind of Envoy's descriptor entries of this name. Their values are addresses, unless someone set them otherwise.
pub(crate) const REMOTE_ADDRESS: &str = "remote_address";

/// The first address of the network that has the first `v6_bits` bits of an IPv6 address; IPv4 addresses stay whole. An IPv4
/// address that is mapped into IPv6 (`::ffff:192.0.2.7`) is that IPv4 address.
///
/// ```
/// let address = "2001:DB8:1:2:3::4".parse()?;
/// assert_eq!(tidegate::network(address, 64).to_string(), "2001:db8:1:2::");
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[must_use]
pub fn network(address: IpAddr, v6_bits: u8) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let beyond = u128::MAX.checked_shr(u32::from(v6_bits)).unwrap_or(0);
            Ipv6Addr::from_bits(address.to_bits() & !beyond).into()
        }
        address @ IpAddr::V4(_) => address,
    }
}
