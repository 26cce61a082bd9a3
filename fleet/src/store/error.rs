//! Errors of a store's settings, and of a store that does not answer.

use std::fmt;

/// The reason why a store cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum StoreError {
    /// An address is invalid.
    Address {
        /// The index of the address, from 0.
        place: usize,
        /// The number of addresses.
        of: usize,
        /// The problem and its remedy. The text has no part of the address, which may hold a password.
        why: String,
    },
    /// The prefix of the keys is empty, too long or has a character that is not allowed.
    Prefix {
        /// The problem.
        why: String,
    },
    /// The TLS settings cannot be used.
    Tls {
        /// The setting with the problem.
        part: TlsPart,
        /// The problem. The text has no part of a certificate or a key.
        why: String,
    },
    /// The secret of the keys is too short.
    Secret,
    /// The store did not answer in time.
    Silent,
}

/// A part of [`StoreTls`](super::StoreTls).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TlsPart {
    /// The authorities.
    Authorities,
    /// The client certificate and its key.
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
