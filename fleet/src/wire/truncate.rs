//! Truncates lists to what the admin server takes in one request.

use std::io::{self, Write};

use serde::Serialize;

use crate::wire::stream::BODY_BYTES_MAX;

/// Bytes of what is told beside its lists: names and numbers, amply.
const BESIDE: usize = 1 << 10;
/// Bytes for what lists tell.
pub(crate) const ROOM: usize = BODY_BYTES_MAX - BESIDE;

/// Keeps the first of a list that fit into so many bytes of JSON, and takes these bytes from `room`.
pub(crate) fn keep_what_fits<T: Serialize>(items: &mut Vec<T>, room: &mut usize) {
    let fitting = items.iter().take_while(|item| {
        // With what parts it from the next.
        let rest = room.checked_sub(json_bytes(item) + 1);
        rest.inspect(|&rest| *room = rest).is_some()
    });
    items.truncate(fitting.count());
}

/// Bytes of something as JSON.
pub(crate) fn json_bytes(value: &impl Serialize) -> usize {
    struct Counter(usize);

    impl Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let mut counter = Counter(0);
    // What cannot be written is too long for anything.
    serde_json::to_writer(&mut counter, value).map_or(usize::MAX / 2, |()| counter.0)
}
