//! Epoch keys, which detect lost data: each holds a random number that the first node wrote. A server where a node
//! finds another number, or none, has lost its keys.

use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering},
};

use crate::{lock::lock, store::key::KeyNames};

/// The hash tags of the epoch keys in a cluster: each is in the middle of a sixteenth of the 16,384 slots, in their
/// order. A master with fewer slots may have none.
const TAGS: [&str; 16] =
    ["18", "3", "65", "223", "19", "2", "64", "222", "265", "23", "218", "49", "264", "22", "219", "48"];

/// The epoch keys of a store, and the epochs that this node knows.
#[derive(Debug)]
pub(crate) struct Epochs {
    keys: Vec<String>,
    /// The epoch of each key; empty: none is known.
    known: Mutex<Vec<String>>,
    turn: AtomicUsize,
}

impl Epochs {
    pub(crate) fn new(keys: &KeyNames, is_cluster: bool) -> Self {
        let tags = if is_cluster { &TAGS[..] } else { &TAGS[..1] };
        let keys: Vec<_> = tags.iter().map(|tag| keys.epoch(tag)).collect();
        let known = Mutex::new(vec![String::new(); keys.len()]);
        Self { keys, known, turn: AtomicUsize::new(0) }
    }

    /// Returns the indexes of all keys.
    pub(crate) fn places(&self) -> std::ops::Range<usize> {
        0..self.keys.len()
    }

    /// Returns the index of the next key, round robin.
    pub(crate) fn next_place(&self) -> usize {
        self.turn.fetch_add(1, Ordering::Relaxed) % self.keys.len()
    }

    pub(crate) fn key(&self, place: usize) -> &str {
        &self.keys[place]
    }

    /// Returns the known epoch of a key; empty: none is known.
    pub(crate) fn known(&self, place: usize) -> String {
        lock(&self.known)[place].clone()
    }

    /// Records the epoch that was found. Returns whether the server lost its keys: another epoch was known.
    pub(crate) fn learn(&self, place: usize, found: &str) -> bool {
        let mut known = lock(&self.known);
        let is_lost = !known[place].is_empty() && known[place] != found;
        found.clone_into(&mut known[place]);
        is_lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::key::KeySecret;

    #[test]
    fn keys_are_lost_where_another_epoch_or_none_is_found() {
        let keys = KeyNames::with("p", &KeySecret::Unkeyed).expect("it is right");
        let epochs = Epochs::new(&keys, true);
        assert_eq!(epochs.places().len(), 16);
        assert!(!epochs.learn(1, "a"), "the first that is found");
        assert!(!epochs.learn(1, "a"));
        assert!(epochs.learn(1, ""), "it is gone");
        assert!(!epochs.learn(1, "b"), "a new one begins");
        assert!(epochs.learn(1, "c"), "another node began one");
        assert_eq!((epochs.known(1), epochs.known(2)), ("c".to_owned(), String::new()));
    }

    #[test]
    fn keys_are_used_round_robin() {
        let keys = KeyNames::with("p", &KeySecret::Unkeyed).expect("it is right");
        let epochs = Epochs::new(&keys, true);
        let places: Vec<_> = (0..17).map(|_| epochs.next_place()).collect();
        assert_eq!((places[0], places[15], places[16]), (0, 15, 0));
        assert_eq!(Epochs::new(&keys, false).places(), 0..1);
    }
}
