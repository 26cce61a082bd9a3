//! Splits a log of any length into lines in bounded memory: one buffer that never grows. A line that is too long is
//! reported and skipped.

use std::{
    io::{self, ErrorKind, Read},
    mem,
};

use memchr::memchr;

/// Longest line that is read, in bytes without the line end. No server writes longer ones.
pub const LINE_BYTES_MAX: usize = 64 * 1024;

const BUFFER_BYTES: usize = 4 * LINE_BYTES_MAX;

pub(crate) struct LogLines<R> {
    input: R,
    buffer: Box<[u8]>,
    /// Bytes that were read and not returned yet are `buffer[start..end]`.
    start: usize,
    end: usize,
    /// Bytes before this index were searched for the line end.
    searched: usize,
    /// Set while the rest of a line that is too long is skipped.
    skipping: bool,
    /// First byte of the line that was skipped last.
    first: u8,
    ended: bool,
    /// Number of the next line, from 1.
    number: u64,
    /// Line ends within the next CSV record.
    within: u64,
    /// First line end within quotes in the next CSV record.
    quoted_end: Option<usize>,
    /// State before the next byte, if lines are CSV records.
    quotes: Option<QuoteState>,
    /// Delimiter of the fields of such a record.
    delimiter: u8,
}

/// State of a CSV parser for quotes (RFC 4180): a quote begins a field, and ends it unless it is doubled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum QuoteState {
    Start,
    Plain,
    Quoted,
    /// After a quote in a quoted field.
    Closing,
}

impl QuoteState {
    fn after(self, byte: u8, delimiter: u8) -> Self {
        match (self, byte) {
            (Self::Quoted, b'"') => Self::Closing,
            (Self::Quoted, _) | (Self::Start | Self::Closing, b'"') => Self::Quoted,
            (_, byte) if byte == delimiter || byte == b'\n' => Self::Start,
            _ => Self::Plain,
        }
    }
}

/// A line, or the reason why it is skipped.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum RawLine<'b> {
    /// A line without its end.
    Whole(&'b [u8]),
    /// The first byte of a line that is longer than [`LINE_BYTES_MAX`].
    TooLong(u8),
    /// The first line of a CSV record whose quote is not closed correctly. Reading continues with the line after it.
    OpenQuote,
}

struct End {
    /// Index in the buffer.
    at: usize,
    has_open_quote: bool,
}

impl<R: Read> LogLines<R> {
    pub(crate) fn new(input: R) -> Self {
        let buffer = vec![0; BUFFER_BYTES].into_boxed_slice();
        Self {
            input,
            buffer,
            start: 0,
            end: 0,
            searched: 0,
            skipping: false,
            first: 0,
            ended: false,
            number: 1,
            within: 0,
            quoted_end: None,
            quotes: None,
            delimiter: b',',
        }
    }

    /// Returns CSV records instead of lines from here on: a line end within quotes is part of a record.
    pub(crate) fn by_records(&mut self, delimiter: u8) {
        self.delimiter = delimiter;
        self.quotes.get_or_insert(QuoteState::Start);
    }

    /// Returns the next line and its number. Before an error only whole lines are returned: an incomplete one could be misread.
    pub(crate) fn next(&mut self) -> io::Result<Option<(u64, RawLine<'_>)>> {
        let (from, to) = loop {
            let end = self.find_end();
            if let Some(End { at, has_open_quote }) = end {
                let from = self.start;
                self.start = at + 1;
                self.searched = self.start;
                self.quoted_end = None;
                self.quotes = self.quotes.map(|_| QuoteState::Start);
                if has_open_quote {
                    self.within = 0;
                    self.number += 1;
                    return Ok(Some((self.number - 1, RawLine::OpenQuote)));
                }
                break (from, at);
            }
            self.searched = self.end;
            if self.ended {
                if self.start == self.end && !self.skipping {
                    return Ok(None);
                }
                let (from, to) = (self.start, self.end);
                self.start = self.end;
                break (from, to);
            }
            if self.end - self.start > LINE_BYTES_MAX {
                if !mem::replace(&mut self.skipping, true) {
                    self.first = self.buffer[self.start];
                }
                self.start = self.end;
            }
            self.fill()?;
        };
        let number = self.number;
        self.number += 1 + mem::take(&mut self.within);
        let line = match &self.buffer[from..to] {
            _ if mem::take(&mut self.skipping) => RawLine::TooLong(self.first),
            [first, rest @ ..] if rest.len() >= LINE_BYTES_MAX => RawLine::TooLong(*first),
            line => RawLine::Whole(line),
        };
        Ok(Some((number, line)))
    }

    /// Returns the end of the line if it is in the buffer. No byte is searched twice.
    fn find_end(&mut self) -> Option<End> {
        let unsearched = &self.buffer[self.searched..self.end];
        let Some(quotes) = &mut self.quotes else {
            return memchr(b'\n', unsearched).map(|at| End { at: self.searched + at, has_open_quote: false });
        };
        for (at, byte) in unsearched.iter().enumerate() {
            let (at, is_end) = (self.searched + at, *byte == b'\n');
            let is_over = self.skipping || at - self.start >= LINE_BYTES_MAX;
            let may_close = matches!(byte, b'"' | b'\r' | b'\n') || *byte == self.delimiter;
            if let Some(at) = self.quoted_end
                && (is_over || *quotes == QuoteState::Closing && !may_close)
            {
                return Some(End { at, has_open_quote: true });
            }
            if is_end && (is_over || *quotes != QuoteState::Quoted) {
                return Some(End { at, has_open_quote: false });
            }
            if is_end {
                self.quoted_end.get_or_insert(at);
                self.within += 1;
            }
            *quotes = quotes.after(*byte, self.delimiter);
        }
        let is_open = self.ended && *quotes == QuoteState::Quoted;
        self.quoted_end.filter(|_| is_open).map(|at| End { at, has_open_quote: true })
    }

    /// Moves the rest to the front of the buffer and reads more bytes behind it.
    fn fill(&mut self) -> io::Result<()> {
        // The rest is at most a line, so there is always room.
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.searched -= self.start;
        self.quoted_end = self.quoted_end.map(|end| end - self.start);
        self.start = 0;
        loop {
            match self.input.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.ended = true,
                Ok(bytes) => self.end += bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that returns at most this many bytes at a time.
    struct Steps<'a>(&'a [u8], usize);

    impl Read for Steps<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let bytes = self.1.min(buffer.len()).min(self.0.len());
            buffer[..bytes].copy_from_slice(&self.0[..bytes]);
            self.0 = &self.0[bytes..];
            Ok(bytes)
        }
    }

    fn all(input: impl Read) -> Vec<Option<Vec<u8>>> {
        let mut lines = LogLines::new(input);
        let mut all = Vec::new();
        while let Some((number, line)) = lines.next().expect("readable") {
            all.push(if let RawLine::Whole(line) = line { Some(line.to_vec()) } else { None });
            assert_eq!(number, all.len() as u64);
        }
        assert_eq!(lines.buffer.len(), BUFFER_BYTES);
        all
    }

    #[test]
    fn lines_are_the_same_however_the_input_comes() {
        let long = vec![b'x'; LINE_BYTES_MAX];
        let text = [b"one\n\ntwo\r\n".as_slice(), &long, b"\n", &long, b"y\nlast"].concat();
        let whole = |line: &[u8]| Some(line.to_vec());
        let expected = [whole(b"one"), whole(b""), whole(b"two\r"), whole(&long), None, whole(b"last")];
        for step in [1, 7, 4_096, LINE_BYTES_MAX, usize::MAX] {
            assert_eq!(all(Steps(&text, step)), expected, "{step} bytes at a time");
        }
        assert!(all(Steps(b"", 1)).is_empty());
        assert_eq!(all(Steps(b"\n", 1)), [whole(b"")]);
    }

    #[test]
    fn a_record_of_csv_may_have_ends_of_lines_in_quotes() {
        let text = "a,\"b\n\"\"c\"\"\n\",d\n5\" disk,\"\"\n\"open\n".to_owned()
            + &"x".repeat(2 * LINE_BYTES_MAX)
            + "\n1,\"a\n2,\"b\",\r\n3\n\"last\n4";
        for step in [1, 3, 4_096, usize::MAX] {
            let mut lines = LogLines::new(Steps(text.as_bytes(), step));
            lines.by_records(b',');
            let mut all = Vec::new();
            while let Some((number, line)) = lines.next().expect("readable") {
                all.push(match line {
                    RawLine::Whole(line) => (number, str::from_utf8(line).expect("text").to_owned()),
                    other => (number, format!("{other:?}")),
                });
            }
            let expected = [
                (1, "a,\"b\n\"\"c\"\"\n\",d"),
                (4, "5\" disk,\"\""),
                (5, "OpenQuote"),
                (6, "TooLong(120)"),
                (7, "OpenQuote"),
                (8, "2,\"b\",\r"),
                (9, "3"),
                (10, "OpenQuote"),
                (11, "4"),
            ];
            assert_eq!(all, expected.map(|(number, line)| (number, line.to_owned())), "{step} bytes at a time");
        }
    }

    #[test]
    fn a_line_without_end_is_skipped_in_a_buffer_that_stays() {
        let endless = io::repeat(b'x').take(300 << 20);
        assert_eq!(all(endless.chain(b"\nnext\n".as_slice())), [None, Some(b"next".to_vec())]);
        assert_eq!(all(io::repeat(0).take(1 << 20)), [None]);
    }
}
