//! The matcher map: finds the values whose matchers (exact texts, address blocks, prefixes) match a text.

mod exact;

use rapidhash::RapidHashMap;

use self::exact::ExactMap;
use crate::{
    base::address::IP,
    policy::matcher::{Block, Matcher, address},
};

/// A map from [`Matcher`]s to `T`.
#[derive(Clone, Debug)]
pub(crate) struct MatcherMap<T> {
    exact: ExactMap<T>,
    blocks: RapidHashMap<Block, T>,
    /// The sizes of the blocks in bits, the largest number (the smallest block) first; in a layer over another map, those of both.
    block_bits: Vec<u8>,
    prefixes: RapidHashMap<Box<str>, T>,
    /// The lengths of the prefixes, the longest first; in a layer over another map, those of both.
    prefix_lengths: Vec<usize>,
}

impl<T> Default for MatcherMap<T> {
    fn default() -> Self {
        Self {
            exact: ExactMap::default(),
            blocks: RapidHashMap::default(),
            block_bits: Vec::new(),
            prefixes: RapidHashMap::default(),
            prefix_lengths: Vec::new(),
        }
    }
}

impl<T> MatcherMap<T> {
    pub(crate) fn with_room_for(kind: &str, clients: usize) -> Self {
        let mut layer = Self::default();
        // Addresses are blocks; most values of other kinds are exact.
        if kind == IP {
            layer.blocks.reserve(clients);
        } else {
            layer.exact = ExactMap::with_room_for(clients);
        }
        layer
    }

    pub(crate) fn len(&self) -> usize {
        self.exact.len() + self.blocks.len() + self.prefixes.len()
    }

    /// Sets the value of a matcher and returns the value that it had.
    pub(crate) fn set(&mut self, matcher: Matcher<&str>, client: T) -> Option<T> {
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

    pub(crate) fn each(&self) -> impl Iterator<Item = (Matcher<&str>, &T)> {
        let exact = self.exact.each().map(|(value, client)| (Matcher::Exact(value), client));
        let blocks = self.blocks.iter().map(|(block, client)| (Matcher::Block(*block), client));
        let prefixes = self.prefixes.iter().map(|(prefix, client)| (Matcher::Prefix(&**prefix), client));
        exact.chain(blocks).chain(prefixes)
    }

    /// Returns the value of the closest matcher that matches `text`.
    #[inline]
    pub(crate) fn find(&self, text: &str) -> Option<&T> {
        self.exact.get(text).or_else(|| self.closest(text, |matcher| self.get(matcher)))
    }

    /// Reads the entry of an exact text ahead, as [`ClientMap::fetch`](super::client_map::ClientMap::fetch) says.
    pub(crate) fn fetch(&self, text: &str) {
        self.exact.fetch(text);
    }

    /// Returns the sizes of the blocks, in bits, the smallest block first.
    pub(crate) fn block_bits(&self) -> &[u8] {
        &self.block_bits
    }

    /// Returns an empty map to lay over this one: it knows the sizes of this one's blocks and prefixes.
    pub(crate) fn layer<U>(&self) -> MatcherMap<U> {
        let (block_bits, prefix_lengths) = (self.block_bits.clone(), self.prefix_lengths.clone());
        MatcherMap { block_bits, prefix_lengths, ..MatcherMap::default() }
    }

    /// Returns the value of a matcher to change, the default if there is none.
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

    /// Returns the value of each matcher that matches `value`, in no order.
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

    /// Returns the first result of `get` for the blocks and prefixes that match a value, the closest first.
    #[inline]
    pub(crate) fn closest<'c, C>(&self, value: &str, get: impl Fn(&Matcher<&str>) -> Option<&'c C>) -> Option<&'c C> {
        self.closest_block(value, &get).or_else(|| {
            // A prefix does not end within a character.
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

fn insert_descending<T: Ord>(list: &mut Vec<T>, value: T) {
    if let Err(place) = list.binary_search_by(|listed| value.cmp(listed)) {
        list.insert(place, value);
    }
}
