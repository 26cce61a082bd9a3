//! Packs a document for one line of the stream: deflated, in base64. Unpacking stops at the stated length, and fails
//! unless the digest matches.

use std::io::{Read, Write};

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use derive_more::Display;
use flate2::{Compression, read::DeflateDecoder, write::DeflateEncoder};
use sha2::{Digest, Sha256};

/// The most bytes of a document: a policy with a million clients fits.
pub const BYTES_MAX: u64 = 128 << 20;

/// The reason why a payload is not the document that was sent.
#[derive(Clone, PartialEq, Eq, Debug, Display)]
#[display("the snapshot was damaged on its way: {_variant}")]
#[non_exhaustive]
pub enum PayloadError {
    /// The stated length is more than [`BYTES_MAX`].
    #[display("{_0} bytes; at most {BYTES_MAX} fit")]
    TooLong(u64),
    /// The payload is not base64, or its content is not deflated.
    #[display("{_0}")]
    Unreadable(String),
    /// The document is longer or shorter than stated.
    #[display("it does not have the {said} bytes that it should have")]
    Length {
        /// The stated length in bytes.
        said: u64,
    },
    /// The digest is that of another document.
    #[display("its SHA-256 is not the one that it should have")]
    Digest,
}

impl std::error::Error for PayloadError {}

/// Returns the SHA-256 of these bytes in hex.
#[must_use]
pub fn sha256(bytes: impl AsRef<[u8]>) -> String {
    let digits = Sha256::digest(bytes).into_iter().flat_map(|byte| [byte >> 4, byte & 15]);
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

/// Unpacks a document that has this many bytes and this digest.
///
/// # Errors
///
/// The payload is not that document.
pub fn unpack(packed: &str, bytes: u64, digest: &str) -> Result<String, PayloadError> {
    if bytes > BYTES_MAX {
        return Err(PayloadError::TooLong(bytes));
    }
    let deflated = STANDARD_NO_PAD.decode(packed).map_err(|error| PayloadError::Unreadable(error.to_string()))?;
    let mut document = Vec::with_capacity(bytes as usize);
    // One byte more shows that the document is longer.
    let mut decoder = DeflateDecoder::new(&*deflated).take(bytes + 1);
    decoder.read_to_end(&mut document).map_err(|error| PayloadError::Unreadable(error.to_string()))?;
    if document.len() as u64 != bytes {
        return Err(PayloadError::Length { said: bytes });
    }
    if sha256(&document) != digest {
        return Err(PayloadError::Digest);
    }
    String::from_utf8(document).map_err(|error| PayloadError::Unreadable(error.to_string()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn unpacking_reverses_packing(document in ".{0,2000}") {
            let (packed, digest) = (pack(&document), sha256(&document));
            prop_assert_eq!(unpack(&packed, document.len() as u64, &digest), Ok(document));
        }

        #[test]
        fn a_changed_letter_is_an_error(document in "[a-z]{1,500}", place in any::<prop::sample::Index>(), letter in "[A-Za-z0-9]") {
            let (packed, digest) = (pack(&document), sha256(&document));
            let mut changed = packed.clone().into_bytes();
            let place = place.index(changed.len());
            changed[place] = letter.as_bytes()[0];
            let changed = String::from_utf8(changed).expect("ASCII");
            // The same document may have another valid packing.
            let unpacked = unpack(&changed, document.len() as u64, &digest);
            prop_assert!(unpacked == Ok(document) || unpacked.is_err() && changed != packed);
        }
    }

    #[test]
    fn unpacking_stops_at_the_stated_length() {
        let bomb = "a".repeat(1 << 20);
        let (packed, digest) = (pack(&bomb), sha256(&bomb));
        assert!(packed.len() < bomb.len() / 20);
        assert_eq!(unpack(&packed, 100, &digest), Err(PayloadError::Length { said: 100 }));
        assert_eq!(unpack(&packed, (1 << 20) + 1, &digest), Err(PayloadError::Length { said: (1 << 20) + 1 }));
        assert_eq!(unpack(&packed, u64::MAX, &digest), Err(PayloadError::TooLong(u64::MAX)));
        assert_eq!(unpack(&packed, 1 << 20, &sha256("b")), Err(PayloadError::Digest));
        assert!(matches!(unpack("!", 1, &digest), Err(PayloadError::Unreadable(_))));
    }
}
