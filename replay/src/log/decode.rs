//! Decodes the bytes of a log to text: gzip or plain, UTF-8 or UTF-16 with a byte order mark, and bounds its length. Other
//! compressions give an error that names them.

use std::{
    fmt,
    io::{self, Cursor, Read},
};

use encoding_rs_io::DecodeReaderBytesBuilder;
use flate2::read::MultiGzDecoder;

/// First bytes of every gzip file (RFC 1952, section 2.3.1). No line of text begins with them.
const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];
/// First bytes of compressed files that are not read, the name of the compression, and the command that decompresses them.
const PACKED: [(&[u8], &str, &str); 7] = [
    (&[0x1f, 0x9d], "compress", "uncompress -c"),
    (&[0x28, 0xb5, 0x2f, 0xfd], "zstd", "zstd -dc"),
    (&[0x50, 0x2a, 0x4d, 0x18], "zstd", "zstd -dc"),
    (&[0xfd, b'7', b'z', b'X', b'Z', 0], "xz", "xz -dc"),
    (b"BZh", "bzip2", "bzip2 -dc"),
    (&[0x04, 0x22, 0x4d, 0x18], "lz4", "lz4 -dc"),
    (b"PK\x03\x04", "zip", "unzip -p"),
];
/// Number of bytes that identify the type of a file.
const MAGIC_BYTES: u64 = 6;

/// Returns a reader of the text of `input`. Concatenated gzip files, as rotation may leave them, are one log.
pub(crate) fn plain<'i>(input: impl Read + 'i) -> io::Result<Box<dyn Read + 'i>> {
    let (first, whole) = peek(input)?;
    if first.starts_with(GZIP_MAGIC) {
        text(MultiGzDecoder::new(whole))
    } else if let Some((_, name, unpack)) = PACKED.iter().find(|(magic, ..)| first.starts_with(magic)) {
        Err(refused(format!("it is packed by {name}, which is not read; write {unpack} FILE | tidegate replay -")))
    } else {
        text(whole)
    }
}

/// Returns a reader of UTF-8 without a byte order mark; invalid bytes are passed on.
fn text<'i>(input: impl Read + 'i) -> io::Result<Box<dyn Read + 'i>> {
    let (first, whole) = peek(input)?;
    // A log begins with ASCII characters, which in UTF-16 have a zero byte.
    let order = match first[..] {
        [1..=127, 0, 1..=127, 0, ..] => "LE",
        [0, 1..=127, 0, 1..=127, ..] => "BE",
        _ => {
            return Ok(Box::new(
                DecodeReaderBytesBuilder::new().strip_bom(true).utf8_passthru(true).bom_override(true).build(whole),
            ));
        }
    };
    Err(refused(format!(
        "it is UTF-16 without a byte order mark, which is not read; write iconv -f UTF-16{order} -t UTF-8 FILE | tidegate replay -"
    )))
}

fn peek<'i>(mut input: impl Read + 'i) -> io::Result<(Vec<u8>, impl Read + 'i)> {
    let mut first = Vec::with_capacity(MAGIC_BYTES as usize);
    input.by_ref().take(MAGIC_BYTES).read_to_end(&mut first)?;
    Ok((first.clone(), Cursor::new(first).chain(input)))
}

fn refused(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// A reader that returns at most `bytes_max` bytes, and fails with [`LogTooLong`] if there are more.
pub(crate) struct BoundedReader<R> {
    input: R,
    left: u64,
    bytes_max: u64,
}

impl<R: Read> BoundedReader<R> {
    pub(crate) fn new(input: R, bytes_max: u64) -> Self {
        Self { input, left: bytes_max, bytes_max }
    }
}

impl<R: Read> Read for BoundedReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // One more byte than fits distinguishes a log that is too long from one of exactly that length.
        let most = usize::try_from(self.left.saturating_add(1)).unwrap_or(usize::MAX).min(buffer.len());
        let bytes = self.input.read(&mut buffer[..most])?;
        let left = self.left.checked_sub(bytes as u64);
        self.left = left.ok_or_else(|| io::Error::other(LogTooLong(self.bytes_max)))?;
        Ok(bytes)
    }
}

/// Error: the decompressed log has more bytes than this.
#[derive(Debug)]
pub(crate) struct LogTooLong(pub(crate) u64);

impl fmt::Display for LogTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the log has more than {} bytes when unpacked; send a part of it", self.0)
    }
}

impl std::error::Error for LogTooLong {}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<String, String> {
        let mut text = String::new();
        let outcome = plain(bytes).and_then(|mut log| log.read_to_string(&mut text));
        outcome.map(|_| text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_mark_of_the_byte_order_is_skipped_and_utf_16_is_read() {
        let utf16 = |to_bytes: fn(u16) -> [u8; 2], mark: &str| {
            format!("{mark}a \u{fc}\n").encode_utf16().flat_map(to_bytes).collect::<Vec<u8>>()
        };
        for log in [
            "a \u{fc}\n".as_bytes(),
            "\u{feff}a \u{fc}\n".as_bytes(),
            &utf16(u16::to_le_bytes, "\u{feff}"),
            &utf16(u16::to_be_bytes, "\u{feff}"),
        ] {
            assert_eq!(read(log).as_deref(), Ok("a \u{fc}\n"), "{log:?}");
        }
        for (log, order) in [(utf16(u16::to_le_bytes, "12"), "UTF-16LE"), (utf16(u16::to_be_bytes, "12"), "UTF-16BE")] {
            assert!(read(&log).expect_err("named").contains(order), "{order}");
        }
    }

    #[test]
    fn other_compressions_are_named_with_the_way_out() {
        for (magic, name, unpack) in PACKED {
            let refused = read(&[magic, b"rest"].concat()).expect_err(name);
            assert!(refused.contains(name) && refused.contains(unpack), "{refused}");
        }
        assert_eq!(read(b"BZ 1\n").as_deref(), Ok("BZ 1\n"));
        assert_eq!(read(b"").as_deref(), Ok(""));
    }

    #[test]
    fn no_more_is_given_than_fits() {
        for bytes_max in 0..8 {
            let mut given = Vec::new();
            let end = BoundedReader::new(b"123\n5".as_slice(), bytes_max).read_to_end(&mut given);
            assert_eq!(end.is_ok(), bytes_max >= 5, "{bytes_max}");
            assert!(given.len() as u64 <= bytes_max);
        }
    }
}
