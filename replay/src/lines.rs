//! The lines of a log of any length, in bounded memory: one buffer that never grows. A line that is too long for it is
//! named as such and skipped.

use std::io::{self, ErrorKind, Read};

use memchr::memchr;

/// The longest line that is read, in bytes without its end. No server writes longer ones.
pub const LINE_BYTES_MAX: usize = 64 * 1024;

const BUFFER_BYTES: usize = 4 * LINE_BYTES_MAX;

pub(crate) struct Lines<R> {
    input: R,
    buffer: Box<[u8]>,
    /// What was read and not given out yet: `buffer[start..end]`.
    start: usize,
    end: usize,
    /// Up to here there is no line end.
    searched: usize,
    /// The beginning of this line was given up.
    skipping: bool,
    ended: bool,
    /// Of the last line given out, from 1.
    number: u64,
}

/// One line.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Line<'b> {
    /// Without its end.
    Whole(&'b [u8]),
    /// Longer than [`LINE_BYTES_MAX`].
    TooLong,
}

impl<R: Read> Lines<R> {
    pub(crate) fn new(input: R) -> Self {
        let buffer = vec![0; BUFFER_BYTES].into_boxed_slice();
        Self { input, buffer, start: 0, end: 0, searched: 0, skipping: false, ended: false, number: 0 }
    }

    /// The next line and its number. After an error only whole lines were given out: half a line would be a guess.
    pub(crate) fn next(&mut self) -> io::Result<Option<(u64, Line<'_>)>> {
        let (from, to) = loop {
            if let Some(found) = memchr(b'\n', &self.buffer[self.searched..self.end]) {
                let (from, to) = (self.start, self.searched + found);
                self.start = to + 1;
                self.searched = self.start;
                break (from, to);
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
                self.skipping = true;
                self.start = self.end;
            }
            self.fill()?;
        };
        self.number += 1;
        let is_long = std::mem::take(&mut self.skipping) || to - from > LINE_BYTES_MAX;
        let line = if is_long { Line::TooLong } else { Line::Whole(&self.buffer[from..to]) };
        Ok(Some((self.number, line)))
    }

    /// Reads more, behind what is left at the front of the buffer.
    fn fill(&mut self) -> io::Result<()> {
        // What is left is at most a line, so there is always room.
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.searched -= self.start;
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

    /// Gives at most `step` bytes at a time.
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
        let mut lines = Lines::new(input);
        let mut all = Vec::new();
        while let Some((number, line)) = lines.next().expect("readable") {
            all.push(if let Line::Whole(line) = line { Some(line.to_vec()) } else { None });
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
    fn a_line_without_end_is_skipped_in_a_buffer_that_stays() {
        let endless = io::repeat(b'x').take(300 << 20);
        assert_eq!(all(endless.chain(b"\nnext\n".as_slice())), [None, Some(b"next".to_vec())]);
        assert_eq!(all(io::repeat(0).take(1 << 20)), [None]);
    }
}
