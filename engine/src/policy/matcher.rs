//! Matchers: tests whether a value is the exact text, in the address block, or begins with the prefix that a policy names.

use std::{cmp::Reverse, net::IpAddr, ops::Deref};

use crate::base::address::{IP, REMOTE_ADDRESS};

/// How a client's value matches. `S` is `&str` of one that was just read.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Matcher<S = Box<str>> {
    Exact(S),
    /// Addresses that share the first bits.
    Block(Block),
    Prefix(S),
}

/// A block of addresses. One address is a block of all its bits, so that every way to write it is the same client.
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

    /// The block of this address alone, whichever way it is written.
    fn whole(address: IpAddr) -> Self {
        let address = address.to_canonical();
        Self::of(address, if address.is_ipv4() { 32 } else { 128 })
    }

    /// Returns whether the block has this address, which is in its usual form: see [`IpAddr::to_canonical`].
    pub(crate) fn contains(self, address: IpAddr) -> bool {
        self == Self::of(address, self.bits)
    }

    /// The block of the addresses that begin with `10.1.` or `2001:db8:`.
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

/// Of matchers that match the same value, the least is the closest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Nearness {
    Exact,
    /// Its bits.
    Block(Reverse<u8>),
    /// Its bytes.
    Prefix(Reverse<usize>),
}

impl<'v> Matcher<&'v str> {
    /// Reads a client's value: exact, a prefix with `*` at the end, or for the kind `ip` an address or a CIDR block. A
    /// prefix of addresses is a block, so that the longest wins whichever way it is written. Of the kind `remote_address` an
    /// address is one in each spelling, and everything else a text.
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

    /// With a text of its own.
    pub(crate) fn owned(self) -> Matcher {
        match self {
            Self::Exact(value) => Matcher::Exact(value.into()),
            Self::Block(block) => Matcher::Block(block),
            Self::Prefix(prefix) => Matcher::Prefix(prefix.into()),
        }
    }
}

impl Matcher {
    /// Returns the same with the text of this one.
    pub(crate) fn borrowed(&self) -> Matcher<&str> {
        match self {
            Self::Exact(value) => Matcher::Exact(value),
            Self::Block(block) => Matcher::Block(*block),
            Self::Prefix(prefix) => Matcher::Prefix(prefix),
        }
    }
}

impl<S: Deref<Target = str>> Matcher<S> {
    pub(crate) fn nearness(&self) -> Nearness {
        match self {
            Self::Exact(_) => Nearness::Exact,
            Self::Block(block) => Nearness::Block(Reverse(block.bits)),
            Self::Prefix(prefix) => Nearness::Prefix(Reverse(prefix.len())),
        }
    }

    /// Returns the block, if it is one.
    pub(crate) fn block(&self) -> Option<Block> {
        match self {
            Self::Block(block) => Some(*block),
            Self::Exact(_) | Self::Prefix(_) => None,
        }
    }

    /// Does it match every value that `other` matches?
    #[cfg(feature = "tools")]
    pub(crate) fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Prefix(prefix), Self::Prefix(value) | Self::Exact(value)) => value.starts_with(&**prefix),
            // What is no address matches no block.
            (Self::Prefix(prefix), Self::Block(_)) => prefix.is_empty(),
            (Self::Exact(exact), Self::Exact(value)) => **exact == **value,
            (Self::Block(wide), Self::Block(narrow)) => {
                let mask = if wide.bits == 0 { 0 } else { u128::MAX << (128 - u32::from(wide.bits)) };
                wide.is_v6 == narrow.is_v6 && wide.bits <= narrow.bits && narrow.network & mask == wide.network
            }
            _ => false,
        }
    }

    /// Does it match this value? For conditions; clients are looked up in a [`ClientMap`].
    pub(crate) fn matches(&self, value: &str) -> bool {
        match self {
            Self::Exact(exact) => **exact == *value,
            Self::Prefix(prefix) => value.starts_with(&**prefix),
            Self::Block(block) => address(value).is_some_and(|address| block.contains(address)),
        }
    }
}

/// An address that somebody sent. An IPv4 address that an IPv6 socket wrote (`::ffff:192.0.2.7`) is that IPv4 address.
pub(crate) fn address(value: &str) -> Option<IpAddr> {
    value.parse().ok().map(|address: IpAddr| address.to_canonical())
}

#[cfg(all(test, not(engine_loom)))]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_are_none_are_refused() {
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
