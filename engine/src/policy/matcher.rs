//! Matchers of values: find the client that an identity is. An exact value wins, then the smallest address block, then the
//! longest prefix.

use std::{
    cmp::Reverse,
    fmt,
    hash::BuildHasher,
    hint::black_box,
    mem,
    net::IpAddr,
    ops::{Deref, Range},
    sync::Arc,
};

use arrayvec::ArrayString;
use hashbrown::{HashTable, hash_table::Entry};
use rapidhash::{RapidHashMap, fast::RandomState as RapidState};

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
    fn of(address: IpAddr, bits: u8) -> Self {
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
fn address(value: &str) -> Option<IpAddr> {
    value.parse().ok().map(|address: IpAddr| address.to_canonical())
}

/// What is known of each client of one kind. A copy shares what was there when it was made: of a hundred thousand clients
/// most are the same in the next version of a policy.
#[derive(Clone, Debug)]
pub(crate) struct ClientMap<T> {
    base: Arc<MatcherMap<T>>,
    /// What is other than in the base: another client, or none.
    over: Option<Box<MatcherMap<Option<T>>>>,
    len: usize,
}

impl<T> Default for ClientMap<T> {
    fn default() -> Self {
        Self { base: Arc::default(), over: None, len: 0 }
    }
}

impl<T> ClientMap<T> {
    /// For about so many clients of a kind.
    pub(crate) fn with_room_for(kind: &str, clients: usize) -> Self {
        Self { base: Arc::new(MatcherMap::with_room_for(kind, clients)), over: None, len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds a client; false when its value was there.
    pub(crate) fn insert(&mut self, matcher: Matcher<&str>, client: T) -> bool {
        let is_new = match Arc::get_mut(&mut self.base) {
            Some(base) if self.over.is_none() => base.set(matcher, client).is_none(),
            _ => {
                self.get(&matcher).is_none() && {
                    self.over().set(matcher, Some(client));
                    true
                }
            }
        };
        self.len += usize::from(is_new);
        is_new
    }

    /// Takes a client away.
    pub(crate) fn remove(&mut self, matcher: Matcher<&str>) -> Option<T>
    where
        T: Copy,
    {
        let removed = *self.get(&matcher)?;
        self.over().set(matcher, None);
        self.len -= 1;
        Some(removed)
    }

    /// The client of this very value.
    pub(crate) fn get(&self, matcher: &Matcher<&str>) -> Option<&T> {
        match self.over.as_ref().and_then(|over| over.get(matcher)) {
            Some(told) => told.as_ref(),
            None => self.base.get(matcher),
        }
    }

    /// The client that `value` is.
    #[inline]
    pub(crate) fn find(&self, value: &str) -> Option<&T> {
        if self.len == 0 {
            return None;
        }
        match &self.over {
            None => self.base.exact.get(value).or_else(|| self.base.closest(value, |matcher| self.base.get(matcher))),
            Some(over) => self.get(&Matcher::Exact(value)).or_else(|| over.closest(value, |matcher| self.get(matcher))),
        }
    }

    /// Reads the entry where a value that matches as it is most likely stands, and waits for nothing: a look-up that comes soon finds
    /// it at hand.
    pub(crate) fn fetch(&self, value: &str) {
        self.base.exact.fetch(value);
    }

    /// Returns the bits of the smallest block of clients that this address is in, if it has more than `least`; 0 otherwise.
    pub(crate) fn named_bits(&self, address: IpAddr, least: u8) -> u8 {
        let block_bits = self.over.as_ref().map_or(&self.base.block_bits, |over| &over.block_bits);
        let mut smaller = block_bits.iter().copied().take_while(|&bits| bits > least);
        smaller.find(|&bits| self.get(&Matcher::Block(Block::of(address, bits))).is_some()).unwrap_or(0)
    }

    fn over(&mut self) -> &mut MatcherMap<Option<T>> {
        self.over.get_or_insert_with(|| {
            let MatcherMap { block_bits, prefix_lengths, .. } = &*self.base;
            let (block_bits, prefix_lengths) = (block_bits.clone(), prefix_lengths.clone());
            Box::new(MatcherMap { block_bits, prefix_lengths, ..MatcherMap::default() })
        })
    }
}

/// A layer of this part of its base is paid by each look-up; a copy of both is paid once.
const OVER_PARTS: usize = 8;

impl<T: Copy> ClientMap<T> {
    /// A copy to be changed, of one kind.
    pub(crate) fn to_be_changed(&self, kind: &str) -> Self {
        match &self.over {
            Some(over) if over.len() > self.base.len() / OVER_PARTS => {
                let mut copy = Self::with_room_for(kind, self.len);
                for (matcher, client) in self.base.each().filter(|(matcher, _)| over.get(matcher).is_none()) {
                    copy.insert(matcher, *client);
                }
                for (matcher, client) in over.each().filter_map(|(matcher, told)| Some((matcher, (*told)?))) {
                    copy.insert(matcher, client);
                }
                copy
            }
            _ => self.clone(),
        }
    }
}

/// Values by what they match: texts, blocks of addresses, and beginnings of texts.
#[derive(Clone, Debug)]
pub(crate) struct MatcherMap<T> {
    exact: Exact<T>,
    blocks: RapidHashMap<Block, T>,
    /// Sizes of the blocks, in bits, largest (the smallest block) first; of a layer over another, those of both.
    block_bits: Vec<u8>,
    prefixes: RapidHashMap<Box<str>, T>,
    /// Lengths of the prefixes, longest first; of a layer over another, those of both.
    prefix_lengths: Vec<usize>,
}

impl<T> Default for MatcherMap<T> {
    fn default() -> Self {
        Self {
            exact: Exact::default(),
            blocks: RapidHashMap::default(),
            block_bits: Vec::new(),
            prefixes: RapidHashMap::default(),
            prefix_lengths: Vec::new(),
        }
    }
}

impl<T> MatcherMap<T> {
    fn with_room_for(kind: &str, clients: usize) -> Self {
        let mut layer = Self::default();
        // Addresses are blocks, most others exact.
        if kind == IP {
            layer.blocks.reserve(clients);
        } else {
            layer.exact = Exact::with_room_for(clients);
        }
        layer
    }

    fn len(&self) -> usize {
        self.exact.table.len() + self.blocks.len() + self.prefixes.len()
    }

    /// What was there.
    fn set(&mut self, matcher: Matcher<&str>, client: T) -> Option<T> {
        match matcher {
            Matcher::Exact(value) => self.exact.set(value, client),
            Matcher::Block(block) => {
                insert_descending(&mut self.block_bits, block.bits);
                self.blocks.insert(block, client)
            }
            Matcher::Prefix(prefix) => {
                insert_descending(&mut self.prefix_lengths, prefix.len());
                self.prefixes.insert(prefix.into(), client)
            }
        }
    }

    pub(crate) fn get(&self, matcher: &Matcher<&str>) -> Option<&T> {
        match matcher {
            Matcher::Exact(value) => self.exact.get(value),
            Matcher::Block(block) => self.blocks.get(block),
            Matcher::Prefix(prefix) => self.prefixes.get(*prefix),
        }
    }

    fn each(&self) -> impl Iterator<Item = (Matcher<&str>, &T)> {
        let exact = self.exact.each().map(|(value, client)| (Matcher::Exact(value), client));
        let blocks = self.blocks.iter().map(|(block, client)| (Matcher::Block(*block), client));
        let prefixes = self.prefixes.iter().map(|(prefix, client)| (Matcher::Prefix(&**prefix), client));
        exact.chain(blocks).chain(prefixes)
    }

    /// Returns the place of a matcher, to add to.
    pub(crate) fn entry(&mut self, matcher: &Matcher) -> &mut T
    where
        T: Default,
    {
        match matcher {
            Matcher::Exact(value) => self.exact.entry(value),
            Matcher::Block(block) => {
                insert_descending(&mut self.block_bits, block.bits);
                self.blocks.entry(*block).or_default()
            }
            Matcher::Prefix(prefix) => {
                insert_descending(&mut self.prefix_lengths, prefix.len());
                self.prefixes.entry(prefix.clone()).or_default()
            }
        }
    }

    /// Returns what is kept for each matcher that matches a value, in no order.
    pub(crate) fn matching(&self, value: &str) -> impl Iterator<Item = &T> {
        let blocks = address(value).filter(|_| !self.block_bits.is_empty()).into_iter().flat_map(move |address| {
            let most = if address.is_ipv4() { 32 } else { 128 };
            let sizes = self.block_bits.iter().filter(move |&&bits| bits <= most);
            sizes.filter_map(move |&bits| self.blocks.get(&Block::of(address, bits)))
        });
        let starts = self.prefix_lengths.iter().filter_map(|&length| value.get(..length));
        let prefixes = starts.filter_map(|start| self.prefixes.get(start));
        self.exact.get(value).into_iter().chain(blocks).chain(prefixes)
    }

    /// What `get` has for the closest of the blocks and prefixes that match a value.
    #[inline]
    fn closest<'c, C>(&self, value: &str, get: impl Fn(&Matcher<&str>) -> Option<&'c C>) -> Option<&'c C> {
        self.closest_block(value, &get).or_else(|| {
            // A prefix is a text: it does not end within a character.
            let mut starts = self.prefix_lengths.iter().filter_map(|&length| value.get(..length));
            starts.find_map(|start| get(&Matcher::Prefix(start)))
        })
    }

    fn closest_block<'c, C>(&self, value: &str, get: impl Fn(&Matcher<&str>) -> Option<&'c C>) -> Option<&'c C> {
        if self.block_bits.is_empty() {
            return None;
        }
        let address = address(value)?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let mut sizes = self.block_bits.iter().filter(|&&bits| bits <= most);
        sizes.find_map(|&bits| get(&Matcher::Block(Block::of(address, bits))))
    }
}

/// Values that match as they are. A long one stands behind the one before it: a hundred thousand pieces of memory would take as
/// long to make as all the rest of a snapshot.
#[derive(Clone)]
struct Exact<T> {
    /// The long ones.
    texts: String,
    table: HashTable<(Text, T)>,
    hasher: RapidState,
}

/// The most bytes of a value that stands in its entry.
const SHORT_MAX: usize = 16;

/// A value: in its entry where it is short, which saves a wait for memory, or its place among the texts of its map.
#[derive(Clone)]
enum Text {
    Short(ArrayString<SHORT_MAX>),
    Long(Range<usize>),
}

impl Text {
    /// Returns the text of a value, which is written behind the `texts` where it is long.
    fn new(value: &str, texts: &mut String) -> Self {
        ArrayString::from(value).map_or_else(
            |_| {
                let start = texts.len();
                texts.push_str(value);
                Self::Long(start..texts.len())
            },
            Self::Short,
        )
    }

    #[inline(always)]
    fn of<'t>(&'t self, texts: &'t str) -> &'t str {
        match self {
            Self::Short(value) => value,
            Self::Long(place) => &texts[place.clone()],
        }
    }
}

impl<T> Default for Exact<T> {
    fn default() -> Self {
        Self::with_room_for(0)
    }
}

impl<T> Exact<T> {
    fn with_room_for(values: usize) -> Self {
        Self { texts: String::new(), table: HashTable::with_capacity(values), hasher: RapidState::default() }
    }

    fn set(&mut self, value: &str, client: T) -> Option<T> {
        match self.entry_of(value) {
            (Entry::Occupied(known), _) => Some(mem::replace(&mut known.into_mut().1, client)),
            (Entry::Vacant(free), texts) => {
                free.insert((Text::new(value, texts), client));
                None
            }
        }
    }

    fn entry(&mut self, value: &str) -> &mut T
    where
        T: Default,
    {
        match self.entry_of(value) {
            (Entry::Occupied(known), _) => &mut known.into_mut().1,
            (Entry::Vacant(free), texts) => &mut free.insert((Text::new(value, texts), T::default())).into_mut().1,
        }
    }

    /// Returns the entry of a value, and the texts to which a new one is added.
    fn entry_of(&mut self, value: &str) -> (Entry<'_, (Text, T)>, &mut String) {
        let Self { texts, table, hasher } = self;
        let is_it = |(known, _): &(Text, T)| known.of(texts) == value;
        let hash = |(known, _): &(Text, T)| hasher.hash_one(known.of(texts));
        (table.entry(hasher.hash_one(value), is_it, hash), texts)
    }

    fn get(&self, value: &str) -> Option<&T> {
        if self.table.is_empty() {
            return None;
        }
        let found = self.table.find(self.hasher.hash_one(value), |(known, _)| known.of(&self.texts) == value);
        found.map(|(_, client)| client)
    }

    fn fetch(&self, value: &str) {
        if !self.table.is_empty() {
            let likely = self.table.find(self.hasher.hash_one(value), |_| true);
            black_box(likely.is_some_and(|(known, _)| matches!(known, Text::Short(_))));
        }
    }

    fn each(&self) -> impl Iterator<Item = (&str, &T)> {
        self.table.iter().map(|(known, client)| (known.of(&self.texts), client))
    }
}

impl<T: fmt::Debug> fmt::Debug for Exact<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.each()).finish()
    }
}

fn insert_descending<T: Ord>(list: &mut Vec<T>, value: T) {
    if let Err(place) = list.binary_search_by(|listed| value.cmp(listed)) {
        list.insert(place, value);
    }
}

#[cfg(all(test, not(engine_loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_longest_match_wins() {
        let mut clients = ClientMap::default();
        let values = ["10.0.0.0/8", "10.1.*", "10.1.2.3", "*", "2001:db8:*", "2001:db8::1", "0.0.0.0/0"];
        for (client, value) in values.iter().enumerate() {
            assert!(clients.insert(Matcher::parse("ip", value).expect("valid"), client as u32));
        }
        for (value, expected) in [
            ("10.1.2.3", Some(2)),
            ("10.1.2.4", Some(1)),
            ("10.2.0.0", Some(0)),
            ("192.0.2.1", Some(6)),
            ("2001:0db8:0:0::1", Some(5)),
            ("2001:db8::2", Some(4)),
            ("::1", Some(3)),
            ("x", Some(3)),
            // As an IPv6 socket writes them.
            ("::ffff:10.1.2.3", Some(2)),
            ("::ffff:10.2.0.0", Some(0)),
        ] {
            assert_eq!(clients.find(value).copied(), expected, "{value}");
        }
    }

    #[test]
    fn prefixes_are_bytes_and_the_longest_wins() {
        let mut clients = ClientMap::default();
        for (client, value) in ["*", "p-*", "p-é*", "p-é1"].iter().enumerate() {
            assert!(clients.insert(Matcher::parse("api_key", value).expect("valid"), client as u32));
        }
        for (value, expected) in [("q", 0), ("p-", 1), ("p-é", 2), ("p-é2", 2), ("p-é1", 3), ("p-ê", 1)] {
            assert_eq!(clients.find(value), Some(&expected), "{value}");
        }
        assert!(!clients.insert(Matcher::parse("api_key", "p-*").expect("valid"), 9), "a repeated value is told");
    }

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
