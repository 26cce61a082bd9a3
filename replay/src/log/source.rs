//! Gzip or plain: a log's bytes, whichever way they were stored; and no more of them than fit.

use std::{
    fmt,
    io::{self, Cursor, Read},
};

use flate2::read::MultiGzDecoder;

/// First bytes of every gzip file (RFC 1952, section 2.3.1). No line of text begins with them.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// The plain bytes of `input`. Several gzip files one after the other, as rotation may leave them, are one log.
pub(crate) fn plain<'i>(mut input: impl Read + 'i) -> io::Result<Box<dyn Read + 'i>> {
    let mut first = Vec::with_capacity(GZIP_MAGIC.len());
    input.by_ref().take(GZIP_MAGIC.len() as u64).read_to_end(&mut first)?;
    let is_gzip = first == GZIP_MAGIC;
    let whole = Cursor::new(first).chain(input);
    Ok(if is_gzip { Box::new(MultiGzDecoder::new(whole)) } else { Box::new(whole) })
}

/// Gives at most so many bytes, and breaks off with [`TooLong`] where there are more.
pub(crate) struct Bounded<R> {
    input: R,
    left: u64,
    bytes_max: u64,
}

impl<R: Read> Bounded<R> {
    pub(crate) fn new(input: R, bytes_max: u64) -> Self {
        Self { input, left: bytes_max, bytes_max }
    }
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // One more than fits tells a log that is longer from one of just so many bytes.
        let most = usize::try_from(self.left.saturating_add(1)).unwrap_or(usize::MAX).min(buffer.len());
        let bytes = self.input.read(&mut buffer[..most])?;
        let left = self.left.checked_sub(bytes as u64);
        self.left = left.ok_or_else(|| io::Error::other(TooLong(self.bytes_max)))?;
        Ok(bytes)
    }
}

/// Unpacked, a log has more bytes than this.
#[derive(Debug)]
pub(crate) struct TooLong(pub(crate) u64);

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the log has more than {} bytes when unpacked; send a part of it", self.0)
    }
}

impl std::error::Error for TooLong {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_given_than_fits() {
        for bytes_max in 0..8 {
            let mut given = Vec::new();
            let end = Bounded::new(b"123\n5".as_slice(), bytes_max).read_to_end(&mut given);
            assert_eq!(end.is_ok(), bytes_max >= 5, "{bytes_max}");
            assert!(given.len() as u64 <= bytes_max);
        }
    }
}
