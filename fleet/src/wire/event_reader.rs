//! Parses server-sent events from the pieces of a stream (HTML Living Standard, 9.2.6). Comments are skipped: the admin
//! server sends them only to show that it is alive.

use std::mem;

use derive_more::{Display, Error};

/// The most bytes of a line: a snapshot is one line.
const BYTES_MAX: usize = 160 << 20;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct ServerSentEvent {
    /// The name of the event; `message` where the stream states none.
    pub(crate) name: String,
    /// The data lines, joined by line feeds.
    pub(crate) data: String,
}

/// The error for an event that is longer than any of this protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Display, Error)]
#[display("an event of more than {BYTES_MAX} bytes")]
pub(crate) struct EventTooLong;

/// A parser that turns the pieces of a stream into events.
#[derive(Debug, Default)]
pub(crate) struct EventReader {
    /// The line that has not ended yet.
    line: Vec<u8>,
    name: String,
    data: String,
    has_data: bool,
}

impl EventReader {
    /// Parses a piece, and calls `each` with every event that it completes. After an error the stream cannot be used any
    /// more.
    pub(crate) fn read(&mut self, mut piece: &[u8], mut each: impl FnMut(ServerSentEvent)) -> Result<(), EventTooLong> {
        while let Some(end) = memchr::memchr(b'\n', piece) {
            let (line, rest) = piece.split_at(end);
            piece = &rest[1..];
            if self.line.is_empty() {
                self.line(line, &mut each);
            } else {
                let mut whole = mem::take(&mut self.line);
                whole.extend_from_slice(line);
                self.line(&whole, &mut each);
            }
            if self.data.len() > BYTES_MAX {
                return Err(EventTooLong);
            }
        }
        self.line.extend_from_slice(piece);
        if self.line.len() > BYTES_MAX { Err(EventTooLong) } else { Ok(()) }
    }

    fn line(&mut self, line: &[u8], each: &mut impl FnMut(ServerSentEvent)) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            let name = mem::take(&mut self.name);
            let data = mem::take(&mut self.data);
            if mem::take(&mut self.has_data) {
                each(ServerSentEvent { name: if name.is_empty() { "message".to_owned() } else { name }, data });
            }
            return;
        }
        let (field, value) = line.split_at(memchr::memchr(b':', line).unwrap_or(line.len()));
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = String::from_utf8_lossy(value.strip_prefix(b" ").unwrap_or(value));
        match field {
            b"event" => self.name = value.into_owned(),
            b"data" => {
                if mem::replace(&mut self.has_data, true) {
                    self.data.push('\n');
                }
                self.data.push_str(&value);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "retry: 2000\n\n: alive\n\nevent: snapshot\nid: 3\ndata: {\"a\":\"é\"}\n\ndata:x\r\ndata: y\r\n\r\nevent: bye\ndata: {}\n\nevent: half\ndata: 1\n";

    fn events() -> Vec<ServerSentEvent> {
        let event = |name: &str, data: &str| ServerSentEvent { name: name.to_owned(), data: data.to_owned() };
        vec![event("snapshot", "{\"a\":\"é\"}"), event("message", "x\ny"), event("bye", "{}")]
    }

    proptest! {
        #[test]
        fn events_are_the_same_however_the_stream_is_cut(cuts in prop::collection::vec(1..20usize, 0..100)) {
            let (mut reader, mut found, mut rest) = (EventReader::default(), Vec::new(), TEXT.as_bytes());
            for cut in cuts {
                let (piece, after) = rest.split_at(cut.min(rest.len()));
                reader.read(piece, |event| found.push(event)).expect("short");
                rest = after;
            }
            reader.read(rest, |event| found.push(event)).expect("short");
            prop_assert_eq!(found, events());
        }
    }
}
