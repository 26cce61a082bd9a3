//! Errors of a store's settings, and of a store that does not answer.

use derive_more::{Display, Error};

/// The reason why a store cannot be used.
#[derive(Debug, Display, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// An address is invalid.
    #[display("{}: {why}", address_name(*place, *of))]
    Address {
        /// The index of the address, from 0.
        place: usize,
        /// The number of addresses.
        of: usize,
        /// The problem and its remedy. The text has no part of the address, which may hold a password.
        why: String,
    },
    /// The prefix of the keys is empty, too long or has a character that is not allowed.
    #[display("the key prefix: {why}; write 1 to 64 letters, digits, dots, colons, - and _")]
    Prefix {
        /// The problem.
        why: String,
    },
    /// The TLS settings cannot be used.
    #[display("TLS to the store: {why}")]
    Tls {
        /// The setting with the problem.
        part: TlsPart,
        /// The problem. The text has no part of a certificate or a key.
        why: String,
    },
    /// The secret of the keys is too short.
    #[display("the secret of the keys: it has fewer than 16 bytes")]
    Secret,
    /// The store did not answer in time.
    #[display("the store: it did not answer in time")]
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

/// Returns `the address`, `the second of 3 addresses` or `address 10 of 12`.
fn address_name(place: usize, of: usize) -> String {
    const PLACES: [&str; 9] = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth"];
    match PLACES.get(place) {
        _ if of < 2 => "the address".to_owned(),
        Some(which) => format!("the {which} of {of} addresses"),
        None => format!("address {} of {of}", place + 1),
    }
}
