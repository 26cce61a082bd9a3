//! Gzip or plain: a log's bytes, whichever way they were stored.

use std::io::{self, Cursor, Read};

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
