//! Matchers: test the value of an identity against an exact text, an address block or a prefix that a policy names.

use std::{cmp::Reverse, net::IpAddr, ops::Deref};

use crate::base::address::{IP, REMOTE_ADDRESS};

/// A test of an identity's value, as clients and conditions of rules name it. `S` is `&str` while a policy is read.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Matcher<S = Box<str>> {
    Exact(S),
    /// Matches addresses of the block.
    Block(Block),
    Prefix(S),
}

/// A block of addresses. One address is a block of all its bits, so that all spellings of it are the same client.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct Block {
    pub(crate) bits: u8,
    is_v6: bool,
    /// The address, left-aligned, with the bits beyond the block zero.
    network: u128,
}

impl Block {
    pub(crate) fn of(address: IpAddr, bits: u8) -> Self {
        let (is_v6, left_aligned) = match address {
            IpAddr::V4(v4) => (false, u128::from(v4.to_bits()) << 96),
            IpAddr::V6(v6) => (true, v6.to_bits()),
        };
        let network = if bits == 0 { 0 } else { left_aligned & (u128::MAX << (128 - u32::from(bits))) };
        Self { bits, is_v6, network }
    }

    /// Returns the block of one address, in its canonical form.
    fn whole(address: IpAddr) -> Self {
        let address = address.to_canonical();
        Self::of(address, if address.is_ipv4() { 32 } else { 128 })
    }

    /// Returns whether the block contains this address, which must be in its canonical form: see [`IpAddr::to_canonical`].
    pub(crate) fn contains(self, address: IpAddr) -> bool {
        self == Self::of(address, self.bits)
    }

    /// Returns the block of a textual prefix of addresses such as `10.1.` or `2001:db8:`.
    fn of_prefix(prefix: &str) -> Option<Self> {
        let (parts, separator, part_bits, parts_max) = match prefix.strip_suffix('.') {
            Some(parts) => (parts, '.', 8, 3),
            None => (prefix.strip_suffix(':')?, ':', 16, 7),
        };
        let count = parts.split(separator).count();
        let is_part = |part: &str| !part.is_empty();
        if count > parts_max || !parts.split(separator).all(is_part) {
            return None;
        }
        // The same address with zeros for the rest.
        let rest = if separator == '.' { ".0".repeat(4 - count) } else { "::".to_owned() };
        Some(Self::of(format!("{parts}{rest}").parse().ok()?, (part_bits * count) as u8))
    }
}

/// The specificity of a matcher. Of matchers that match the same value, the one with the least is the closest: the exact value,
/// then the smallest block, then the longest prefix.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum MatcherSpecificity {
    Exact,
    /// Ordered by the bits of the block.
    Block(Reverse<u8>),
    /// Ordered by the bytes of the prefix.
    Prefix(Reverse<usize>),
}

impl<'v> Matcher<&'v str> {
    /// Parses the value of a client or condition: an exact text, a prefix with `*` at the end, or for the kind `ip` an address or
    /// a CIDR block. A prefix of addresses becomes a block, so that the longest wins in either notation. For the kind
    /// `remote_address` all spellings of an address are equal, and everything else is a text.
    pub(crate) fn parse(kind: &str, value: &'v str) -> Result<Self, String> {
        if let Some(prefix) = value.strip_suffix('*') {
            return match prefix {
                "" => Ok(Self::Prefix("")),
                _ if kind == IP => Block::of_prefix(prefix).map(Self::Block).ok_or_else(|| {
                    format!("`{value}` is no whole part of an address; write 10.1.*, 2001:db8:* or a CIDR block")
                }),
                _ => Ok(Self::Prefix(prefix)),
            };
        }
        if kind == REMOTE_ADDRESS
            && let Ok(address) = value.parse::<IpAddr>()
        {
            return Ok(Self::Block(Block::whole(address)));
        }
        if kind != IP {
            return Ok(Self::Exact(value));
        }
        let (address, bits) = value.split_once('/').map_or((value, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr =
            address.parse().map_err(|_| format!("`{value}` is neither an address nor a CIDR block"))?;
        let address = if bits.is_none() { address.to_canonical() } else { address };
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits.map(str::parse::<u8>) {
            None => most,
            Some(Ok(bits)) if bits <= most => bits,
            Some(_) => return Err(format!("`{value}`: a block has 0 to {most} bits")),
        };
        let block = Block::of(address, bits);
        if block.network != Block::of(address, most).network {
            return Err(format!("`{value}` names an address inside the block; write the block's first address"));
        }
        Ok(Self::Block(block))
    }

    pub(crate) fn owned(self) -> Matcher {
        match self {
            Self::Exact(value) => Matcher::Exact(value.into()),
            Self::Block(block) => Matcher::Block(block),
            Self::Prefix(prefix) => Matcher::Prefix(prefix.into()),
        }
    }
}

impl Matcher {
    pub(crate) fn borrowed(&self) -> Matcher<&str> {
        match self {
            Self::Exact(value) => Matcher::Exact(value),
            Self::Block(block) => Matcher::Block(*block),
            Self::Prefix(prefix) => Matcher::Prefix(prefix),
        }
    }
}

impl<S: Deref<Target = str>> Matcher<S> {
    pub(crate) fn specificity(&self) -> MatcherSpecificity {
        match self {
            Self::Exact(_) => MatcherSpecificity::Exact,
            Self::Block(block) => MatcherSpecificity::Block(Reverse(block.bits)),
            Self::Prefix(prefix) => MatcherSpecificity::Prefix(Reverse(prefix.len())),
        }
    }

    /// Returns whether this matches every value that `other` matches.
    #[cfg(feature = "tools")]
    pub(crate) fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Prefix(prefix), Self::Prefix(value) | Self::Exact(value)) => value.starts_with(&**prefix),
            // A block matches addresses only.
            (Self::Prefix(prefix), Self::Block(_)) => prefix.is_empty(),
            (Self::Exact(exact), Self::Exact(value)) => **exact == **value,
            (Self::Block(wide), Self::Block(narrow)) => {
                let mask = if wide.bits == 0 { 0 } else { u128::MAX << (128 - u32::from(wide.bits)) };
                wide.is_v6 == narrow.is_v6 && wide.bits <= narrow.bits && narrow.network & mask == wide.network
            }
            _ => false,
        }
    }

    /// Returns whether this matches a value. Clients are looked up in a [`ClientMap`](super::client_map::ClientMap) instead.
    pub(crate) fn matches(&self, value: &str) -> bool {
        match self {
            Self::Exact(exact) => **exact == *value,
            Self::Prefix(prefix) => value.starts_with(&**prefix),
            Self::Block(block) => address(value).is_some_and(|address| block.contains(address)),
        }
    }
}

/// Parses the address of a request. An IPv4-mapped IPv6 address (`::ffff:192.0.2.7`) becomes the IPv4 address.
pub(crate) fn address(value: &str) -> Option<IpAddr> {
    value.parse().ok().map(|address: IpAddr| address.to_canonical())
}

#[cfg(all(test, not(engine_loom)))]
mod tests {
    use super::*;

    #[test]
    fn invalid_addresses_are_refused() {
        for value in [
            "10*",
            "10.1*",
            "1.2.3.4.*",
            "300.*",
            "x*",
            ".*",
            ":*",
            "10..1.*",
            "2001:db8::*",
            "localhost",
            "10.0.0.0/33",
            "::/129",
            "10.0.0.0/x",
            "10.0.0.1/8",
            "10.0.0.0/-1",
            "",
        ] {
            assert!(Matcher::parse("ip", value).is_err(), "{value}");
        }
        assert!(Matcher::parse("user", "10.0.0.1/8").is_ok());
    }
}
