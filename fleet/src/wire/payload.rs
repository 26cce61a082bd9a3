//! Packs a document for its way to a node: deflated, in base64, so that it fits one line of a stream. Unpacking stops
//! at the stated length, and fails unless the digest is right.

use std::{
    fmt,
    io::{Read, Write},
};

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use flate2::{Compression, read::DeflateDecoder, write::DeflateEncoder};
use sha2::{Digest, Sha256};

/// The longest document, bytes: that of a million clients.
pub const BYTES_MAX: u64 = 128 << 20;

/// Why a payload is not the document that it should be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Damaged {
    /// It says that it is longer than fits.
    TooLong(u64),
    /// It is no base64, or what is in it is not deflated.
    Unreadable(String),
    /// It is longer or shorter than it says.
    Length {
        /// What it says.
        said: u64,
    },
    /// It is another document.
    Digest,
}

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the snapshot was damaged on its way: ")?;
        match self {
            Self::TooLong(bytes) => write!(f, "{bytes} bytes; at most {BYTES_MAX} fit"),
            Self::Unreadable(why) => f.write_str(why),
            Self::Length { said } => write!(f, "it does not have the {said} bytes that it should have"),
            Self::Digest => f.write_str("its SHA-256 is not the one that it should have"),
        }
    }
}

impl std::error::Error for Damaged {}

/// Hex SHA-256.
#[must_use]
pub fn sha256(bytes: impl AsRef<[u8]>) -> String {
    hex(&Sha256::digest(bytes))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect()
}

/// Packs a document, fast rather than small.
#[must_use]
pub fn pack(document: &str) -> String {
    let mut encoder = DeflateEncoder::new(Vec::with_capacity(document.len() / 4), Compression::fast());
    // Writing to memory does not fail.
    let packed = encoder.write_all(document.as_bytes()).and_then(|()| encoder.finish()).unwrap_or_default();
    STANDARD_NO_PAD.encode(packed)
}

/// Unpacks a document of so many bytes with this digest.
///
/// # Errors
///
/// Where it is not that document.
pub fn unpack(packed: &str, bytes: u64, digest: &str) -> Result<String, Damaged> {
    if bytes > BYTES_MAX {
        return Err(Damaged::TooLong(bytes));
    }
    let deflated = STANDARD_NO_PAD.decode(packed).map_err(|error| Damaged::Unreadable(error.to_string()))?;
    let mut document = Vec::with_capacity(bytes as usize);
    // One byte more tells that it is longer.
    let mut decoder = DeflateDecoder::new(&*deflated).take(bytes + 1);
    decoder.read_to_end(&mut document).map_err(|error| Damaged::Unreadable(error.to_string()))?;
    if document.len() as u64 != bytes {
        return Err(Damaged::Length { said: bytes });
    }
    if sha256(&document) != digest {
        return Err(Damaged::Digest);
    }
    String::from_utf8(document).map_err(|error| Damaged::Unreadable(error.to_string()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_was_packed_is_unpacked(document in ".{0,2000}") {
            let (packed, digest) = (pack(&document), sha256(&document));
            prop_assert_eq!(unpack(&packed, document.len() as u64, &digest), Ok(document));
        }

        #[test]
        fn one_changed_letter_is_seen(document in "[a-z]{1,500}", place in any::<prop::sample::Index>(), letter in "[A-Za-z0-9]") {
            let (packed, digest) = (pack(&document), sha256(&document));
            let mut changed = packed.clone().into_bytes();
            let place = place.index(changed.len());
            changed[place] = letter.as_bytes()[0];
            let changed = String::from_utf8(changed).expect("ASCII");
            // There may be another packing of the very same document.
            let unpacked = unpack(&changed, document.len() as u64, &digest);
            prop_assert!(unpacked == Ok(document) || unpacked.is_err() && changed != packed);
        }
    }

    #[test]
    fn nothing_is_unpacked_beyond_what_it_says() {
        let bomb = "a".repeat(1 << 20);
        let (packed, digest) = (pack(&bomb), sha256(&bomb));
        assert!(packed.len() < bomb.len() / 20);
        assert_eq!(unpack(&packed, 100, &digest), Err(Damaged::Length { said: 100 }));
        assert_eq!(unpack(&packed, (1 << 20) + 1, &digest), Err(Damaged::Length { said: (1 << 20) + 1 }));
        assert_eq!(unpack(&packed, u64::MAX, &digest), Err(Damaged::TooLong(u64::MAX)));
        assert_eq!(unpack(&packed, 1 << 20, &sha256("b")), Err(Damaged::Digest));
        assert!(matches!(unpack("!", 1, &digest), Err(Damaged::Unreadable(_))));
    }
}
