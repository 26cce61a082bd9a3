//! Truncates lists so that a message fits into one request to the admin server.

use std::io::{self, Write};

use serde::Serialize;

use crate::wire::stream::BODY_BYTES_MAX;

/// The bytes reserved for the names and numbers beside the lists, with room to spare.
const BESIDE: usize = 1 << 10;

/// The bytes that the lists of a message may take.
pub(crate) const ROOM: usize = BODY_BYTES_MAX - BESIDE;

/// Truncates a list to the first items that fit into `room` bytes of JSON, and subtracts their bytes from `room`.
pub(crate) fn keep_what_fits<T: Serialize>(items: &mut Vec<T>, room: &mut usize) {
    let fitting = items.iter().take_while(|item| {
        // One byte more for the comma.
        let rest = room.checked_sub(json_bytes(item) + 1);
        rest.inspect(|&rest| *room = rest).is_some()
    });
    items.truncate(fitting.count());
}

/// Returns the length of a value as JSON in bytes.
pub(crate) fn json_bytes(value: &impl Serialize) -> usize {
    let mut counter = ByteCounter(0);
    // A value that cannot be serialized counts as too long for any room.
    serde_json::to_writer(&mut counter, value).map_or(usize::MAX / 2, |()| counter.0)
}

/// A writer that keeps nothing but the number of bytes.
struct ByteCounter(usize);

impl Write for ByteCounter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
