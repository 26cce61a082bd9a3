//! SHA-256 digests as text.

use std::{
    fmt::Write,
    io::{self, Read},
};

use sha2::{Digest, Sha256};

/// Hex SHA-256.
pub(crate) fn sha256(bytes: impl AsRef<[u8]>) -> String {
    hex(Sha256::digest(bytes).as_slice())
}

/// Hex SHA-256 of all that a reader gives. It blocks.
pub(crate) fn sha256_of(mut reader: impl Read) -> io::Result<String> {
    let (mut digest, mut piece) = (Sha256::new(), vec![0; 64 << 10]);
    loop {
        match reader.read(&mut piece)? {
            0 => return Ok(hex(digest.finalize().as_slice())),
            bytes => digest.update(&piece[..bytes]),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut hex, byte| {
        // Writing to a String does not fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}
