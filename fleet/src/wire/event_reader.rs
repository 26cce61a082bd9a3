//! Parses server-sent events as they come in pieces (HTML Living Standard, 9.2.6). Comments only show that the other
//! side is there.

use std::{fmt, mem};

/// The longest line: that of a snapshot.
const BYTES_MAX: usize = 160 << 20;

/// An event.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Event {
    /// `message` where the stream says nothing else.
    pub name: String,
    /// Its lines, with line feeds between them.
    pub data: String,
}

/// An event that is longer than any of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooLong;

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an event of more than {BYTES_MAX} bytes")
    }
}

impl std::error::Error for TooLong {}

/// Makes events of the pieces of a stream.
#[derive(Debug, Default)]
pub struct EventReader {
    /// A line that is not over.
    line: Vec<u8>,
    name: String,
    data: String,
    has_data: bool,
}

impl EventReader {
    /// Takes a piece in; the events that are whole with it are told to `each`.
    ///
    /// # Errors
    ///
    /// Where an event is too long; then the stream is of no use any more.
    pub fn read(&mut self, mut piece: &[u8], mut each: impl FnMut(Event)) -> Result<(), TooLong> {
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
                return Err(TooLong);
            }
        }
        self.line.extend_from_slice(piece);
        if self.line.len() > BYTES_MAX { Err(TooLong) } else { Ok(()) }
    }

    fn line(&mut self, line: &[u8], each: &mut impl FnMut(Event)) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            let name = mem::take(&mut self.name);
            let data = mem::take(&mut self.data);
            if mem::take(&mut self.has_data) {
                each(Event { name: if name.is_empty() { "message".to_owned() } else { name }, data });
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

    fn events() -> Vec<Event> {
        let event = |name: &str, data: &str| Event { name: name.to_owned(), data: data.to_owned() };
        vec![event("snapshot", "{\"a\":\"é\"}"), event("message", "x\ny"), event("bye", "{}")]
    }

    proptest! {
        #[test]
        fn however_it_is_cut(cuts in prop::collection::vec(1..20usize, 0..100)) {
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
