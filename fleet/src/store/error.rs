//! Errors of the settings of a store, and of a store that does not answer.

use std::fmt;

/// Why the store cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum StoreError {
    /// An address is none.
    Address {
        /// Which one, from 0.
        place: usize,
        /// Of so many.
        of: usize,
        /// What is wrong, and what to do; it has no word of the address, which may hold a password.
        why: String,
    },
    /// The prefix of the keys has a character that it may not have, or too many.
    Prefix {
        /// What is wrong.
        why: String,
    },
    /// TLS to the store cannot be used as it is given.
    Tls {
        /// The part that is wrong.
        part: TlsPart,
        /// What is wrong with it; it has no word of a certificate or a key.
        why: String,
    },
    /// The secret of the keys is too short.
    Secret,
    /// There was no answer in time.
    Silent,
}

/// A part of [`StoreTls`](super::StoreTls).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TlsPart {
    /// The authorities whose certificates servers have.
    Authorities,
    /// The client's certificate and its key.
    Client,
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const PLACES: [&str; 9] =
            ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth"];
        let (place, of, why) = match self {
            Self::Address { place, of, why } => (*place, *of, why),
            Self::Prefix { why } => {
                return write!(f, "the key prefix: {why}; write 1 to 64 letters, digits, dots, colons, - and _");
            }
            Self::Secret => return f.write_str("the secret of the keys: it has fewer than 16 bytes"),
            Self::Tls { why, .. } => return write!(f, "TLS to the store: {why}"),
            Self::Silent => return f.write_str("the store: it did not answer in time"),
        };
        match PLACES.get(place) {
            _ if of < 2 => write!(f, "the address: {why}"),
            Some(which) => write!(f, "the {which} of {of} addresses: {why}"),
            None => write!(f, "address {} of {of}: {why}", place + 1),
        }
    }
}

impl std::error::Error for StoreError {}
