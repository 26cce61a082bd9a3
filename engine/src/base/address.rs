//! IP addresses: the kinds of identities whose values are addresses, and the network by which an IPv6 address is counted.

use std::net::{IpAddr, Ipv6Addr};

/// The default number of leading bits by which IPv6 addresses are counted together: one customer usually has a network of this
/// size.
pub const IPV6_PREFIX: u8 = 64;

/// The kind of identity whose values are addresses.
pub(crate) const IP: &str = "ip";
/// The kind of Envoy's descriptor entries of this name. Their values are addresses, unless the configuration of Envoy sets others.
pub(crate) const REMOTE_ADDRESS: &str = "remote_address";

/// Returns the first address of the network that an IPv6 address is in by its first `v6_bits` bits. IPv4 addresses stay whole; one
/// that is mapped into IPv6 (`::ffff:192.0.2.7`) becomes that IPv4 address.
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
