//! The client map: finds the client of a policy that an identity matches. Copies of a map share the clients that did not change.

use std::{net::IpAddr, sync::Arc};

use crate::policy::{
    matcher::{Block, Matcher},
    matcher_map::MatcherMap,
};

/// A map from the values of the clients of one kind to `T`. A copy shares the entries that existed when it was made: of a hundred
/// thousand clients most are the same in the next version of a policy.
#[derive(Clone, Debug)]
pub(crate) struct ClientMap<T> {
    base: Arc<MatcherMap<T>>,
    /// The entries that differ from the base; `None` marks a client that was removed.
    over: Option<Box<MatcherMap<Option<T>>>>,
    len: usize,
}

impl<T> Default for ClientMap<T> {
    fn default() -> Self {
        Self { base: Arc::default(), over: None, len: 0 }
    }
}

impl<T> ClientMap<T> {
    /// Returns an empty map with room for about this many clients of a kind.
    pub(crate) fn with_room_for(kind: &str, clients: usize) -> Self {
        Self { base: Arc::new(MatcherMap::with_room_for(kind, clients)), over: None, len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds a client. Returns false, and changes nothing, if there is one of the same value.
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

    pub(crate) fn remove(&mut self, matcher: Matcher<&str>) -> Option<T>
    where
        T: Copy,
    {
        let removed = *self.get(&matcher)?;
        self.over().set(matcher, None);
        self.len -= 1;
        Some(removed)
    }

    /// Returns the client that was added with this matcher.
    pub(crate) fn get(&self, matcher: &Matcher<&str>) -> Option<&T> {
        match self.over.as_ref().and_then(|over| over.get(matcher)) {
            Some(changed) => changed.as_ref(),
            None => self.base.get(matcher),
        }
    }

    /// Returns the closest client that matches the value of an identity.
    #[inline]
    pub(crate) fn find(&self, value: &str) -> Option<&T> {
        if self.len == 0 {
            return None;
        }
        match &self.over {
            None => self.base.find(value),
            Some(over) => self.get(&Matcher::Exact(value)).or_else(|| over.closest(value, |matcher| self.get(matcher))),
        }
    }

    /// Reads the entry where an exact match of `value` would be, without waiting for the memory: a look-up soon after finds it in
    /// the cache.
    pub(crate) fn fetch(&self, value: &str) {
        self.base.fetch(value);
    }

    /// Returns the bits of the smallest block of clients that this address is in, if it has more than `least`; 0 otherwise.
    pub(crate) fn named_bits(&self, address: IpAddr, least: u8) -> u8 {
        let block_bits = self.over.as_ref().map_or(self.base.block_bits(), |over| over.block_bits());
        let mut smaller = block_bits.iter().copied().take_while(|&bits| bits > least);
        smaller.find(|&bits| self.get(&Matcher::Block(Block::of(address, bits))).is_some()).unwrap_or(0)
    }

    fn over(&mut self) -> &mut MatcherMap<Option<T>> {
        self.over.get_or_insert_with(|| Box::new(self.base.layer()))
    }
}

/// A layer costs each look-up a little, a copy costs once: a layer that is larger than
/// the base divided by this is copied together with it.
const OVER_PARTS: usize = 8;

impl<T: Copy> ClientMap<T> {
    /// Returns a copy to change, of the clients of `kind`.
    pub(crate) fn copy_to_change(&self, kind: &str) -> Self {
        match &self.over {
            Some(over) if over.len() > self.base.len() / OVER_PARTS => {
                let mut copy = Self::with_room_for(kind, self.len);
                for (matcher, client) in self.base.each().filter(|(matcher, _)| over.get(matcher).is_none()) {
                    copy.insert(matcher, *client);
                }
                for (matcher, client) in over.each().filter_map(|(matcher, changed)| Some((matcher, (*changed)?))) {
                    copy.insert(matcher, client);
                }
                copy
            }
            _ => self.clone(),
        }
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
        assert!(!clients.insert(Matcher::parse("api_key", "p-*").expect("valid"), 9), "a repeated value is refused");
    }
}
