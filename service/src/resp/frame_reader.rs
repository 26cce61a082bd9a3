//! Reads the commands of the Redis protocol by hand, where they stand: arrays of bulk strings, as clients send them,
//! and lines, as people type them (<https://redis.io/docs/latest/develop/reference/protocol-spec/>). Nothing is copied
//! or allocated.
//!
//! A command costs little more than reading it, so the reader decides how fast the listener is. With pipelines of 16
//! the listener runs 0.99 of the commands that redis-server's `GET` runs in the same processor time (0.92 to 1.01,
//! `benches/README.md`), and a command takes 3,200 instructions, 3,700 before lengths of one and two digits were read
//! at once.

use std::mem;

use arrayvec::ArrayVec;
use derive_more::Display;

/// The most arguments of a command, with its name.
pub(super) const ARGUMENTS_MAX: usize = 64;
/// The longest command, with its framing.
pub(super) const COMMAND_BYTES_MAX: usize = 1 << 20;
/// The longest line that is a command.
const LINE_BYTES_MAX: usize = 64 << 10;
/// The most digits of a number in a header. Longer numbers are out of range.
const DIGITS_MAX: usize = 10;

/// A command: its name, and its arguments.
pub(super) type Arguments<'b> = ArrayVec<&'b [u8], ARGUMENTS_MAX>;

#[derive(Debug, Default)]
pub(super) struct FrameReader {
    /// Bytes of an unfinished line that were searched for its end.
    searched: usize,
    /// The command whose arguments are discarded as they come.
    discarded: Option<DiscardedCommand>,
}

/// A command with too many arguments.
#[derive(Debug)]
struct DiscardedCommand {
    arguments_left: usize,
    bytes: usize,
}

/// The result of reading.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Frame {
    /// A command, which is in the arguments.
    Command,
    /// The end of a command with more than [`ARGUMENTS_MAX`] arguments.
    TooMany,
    /// A line with unbalanced quotes or escapes.
    Quotes,
    /// No whole command has come.
    Incomplete,
}

/// An error after which the beginning of the next command is unknown.
#[derive(PartialEq, Eq, Debug, Display)]
#[display("Protocol error: {_variant}")]
pub(super) enum ProtocolError {
    /// The number of arguments is no number, or too large.
    #[display("invalid multibulk length")]
    Count,
    /// The length of an argument is no number, or too large.
    #[display("invalid bulk length")]
    Length,
    /// An argument begins with this byte instead of `$`.
    #[display("expected '$', got '{}'", _0.escape_ascii())]
    NotBulk(u8),
    #[display("an argument does not end with CR and LF after its length")]
    NoEnd,
    #[display("too big inline request; {LINE_BYTES_MAX} bytes fit")]
    LongLine,
    #[display("the command is too long; {COMMAND_BYTES_MAX} bytes fit")]
    LongCommand,
}

impl FrameReader {
    /// Reads one command from the beginning of `bytes` into `arguments`, and returns how many bytes it used. An
    /// incomplete command is read again with the bytes that follow it, which reads at most [`ARGUMENTS_MAX`] headers
    /// twice.
    pub(super) fn next<'b>(
        &mut self,
        bytes: &'b [u8],
        arguments: &mut Arguments<'b>,
    ) -> Result<(usize, Frame), ProtocolError> {
        arguments.clear();
        let mut used = 0;
        loop {
            if self.discarded.is_some() {
                let (bytes, frame) = self.discard(&bytes[used..])?;
                return Ok((used + bytes, frame));
            }
            let rest = &bytes[used..];
            let (bytes, frame) = match rest.first() {
                None => return Ok((used, Frame::Incomplete)),
                Some(b'*') => self.read_array(&rest[1..], arguments)?,
                Some(_) => self.read_line(rest, arguments)?,
            };
            match frame {
                Frame::Incomplete if self.discarded.is_none() => {
                    return if rest.len() > COMMAND_BYTES_MAX {
                        Err(ProtocolError::LongCommand)
                    } else {
                        Ok((used, Frame::Incomplete))
                    };
                }
                Frame::Command if arguments.is_empty() => used += bytes,
                Frame::Incomplete => used += bytes,
                frame => return Ok((used + bytes, frame)),
            }
        }
    }

    /// Returns whether a command has begun of which all bytes so far were used.
    pub(super) fn is_within_command(&self) -> bool {
        self.discarded.is_some()
    }

    /// Reads an array behind its `*`.
    fn read_array<'b>(
        &mut self,
        bytes: &'b [u8],
        arguments: &mut Arguments<'b>,
    ) -> Result<(usize, Frame), ProtocolError> {
        let Some((count, mut at)) = read_number(bytes).ok_or(ProtocolError::Count)? else {
            return Ok((0, Frame::Incomplete));
        };
        // An empty or null array is no command.
        let count = usize::try_from(count).unwrap_or(0);
        if count > COMMAND_BYTES_MAX {
            return Err(ProtocolError::Count);
        }
        if count > ARGUMENTS_MAX {
            self.discarded = Some(DiscardedCommand { arguments_left: count, bytes: at });
            return Ok((1 + at, Frame::Incomplete));
        }
        for _ in 0..count {
            let Some((argument, length)) = read_bulk(&bytes[at..])? else { return Ok((0, Frame::Incomplete)) };
            arguments.push(argument);
            at += length;
            if at > COMMAND_BYTES_MAX {
                return Err(ProtocolError::LongCommand);
            }
        }
        Ok((1 + at, Frame::Command))
    }

    fn read_line<'b>(
        &mut self,
        bytes: &'b [u8],
        arguments: &mut Arguments<'b>,
    ) -> Result<(usize, Frame), ProtocolError> {
        let from = mem::take(&mut self.searched);
        let searchable = &bytes[..bytes.len().min(LINE_BYTES_MAX)];
        let end = searchable.get(from..).and_then(|new| new.iter().position(|byte| *byte == b'\n'));
        let Some(end) = end.map(|end| from + end) else {
            if bytes.len() >= LINE_BYTES_MAX {
                return Err(ProtocolError::LongLine);
            }
            self.searched = bytes.len();
            return Ok((0, Frame::Incomplete));
        };
        Ok((end + 1, split_words(&bytes[..end], arguments)))
    }

    /// Discards the arguments of a command with too many.
    fn discard(&mut self, bytes: &[u8]) -> Result<(usize, Frame), ProtocolError> {
        let mut at = 0;
        while let Some(command) = &mut self.discarded {
            let Some((_, length)) = read_bulk(&bytes[at..])? else { return Ok((at, Frame::Incomplete)) };
            at += length;
            command.bytes += length;
            command.arguments_left -= 1;
            if command.bytes > COMMAND_BYTES_MAX {
                return Err(ProtocolError::LongCommand);
            }
            if command.arguments_left == 0 {
                self.discarded = None;
            }
        }
        Ok((at, Frame::TooMany))
    }
}

/// Reads a bulk string. Returns it with its length and framing; `None` where not all of it has come.
fn read_bulk(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, ProtocolError> {
    let Some((first, rest)) = bytes.split_first() else { return Ok(None) };
    if *first != b'$' {
        return Err(ProtocolError::NotBulk(*first));
    }
    let Some((length, head)) = read_number(rest).ok_or(ProtocolError::Length)? else { return Ok(None) };
    let length = usize::try_from(length).ok().filter(|length| *length <= COMMAND_BYTES_MAX);
    let length = length.ok_or(ProtocolError::Length)?;
    let Some(argument) = rest.get(head..head + length) else { return Ok(None) };
    match rest.get(head + length..head + length + 2) {
        Some(b"\r\n") => Ok(Some((argument, 1 + head + length + 2))),
        Some(_) => Err(ProtocolError::NoEnd),
        None => Ok(None),
    }
}

/// Reads the number of a header. Returns it with the length of the header. The outer option is `None` where there is no
/// number, the inner one where not all of it has come.
#[expect(clippy::option_option, reason = "there is none, or it is not all there")]
#[inline]
fn read_number(bytes: &[u8]) -> Option<Option<(i64, usize)>> {
    // Most numbers have one digit or two.
    match *bytes {
        [ones @ b'0'..=b'9', b'\r', b'\n', ..] => Some(Some((i64::from(ones - b'0'), 3))),
        [tens @ b'0'..=b'9', ones @ b'0'..=b'9', b'\r', b'\n', ..] => {
            Some(Some((i64::from(tens - b'0') * 10 + i64::from(ones - b'0'), 4)))
        }
        _ => read_any_number(bytes),
    }
}

/// Reads a number of any length, see [`read_number`].
#[expect(clippy::option_option, reason = "there is none, or it is not all there")]
fn read_any_number(bytes: &[u8]) -> Option<Option<(i64, usize)>> {
    let (sign, from) = if bytes.first() == Some(&b'-') { (-1, 1) } else { (1, 0) };
    let mut number = 0;
    for (place, byte) in bytes.iter().enumerate().skip(from) {
        match byte {
            b'0'..=b'9' if place < DIGITS_MAX + from => number = number * 10 + i64::from(byte - b'0'),
            b'\r' if place > from => {
                return match bytes.get(place + 1) {
                    Some(b'\n') => Some(Some((sign * number, place + 2))),
                    Some(_) => None,
                    None => Some(None),
                };
            }
            _ => return None,
        }
    }
    Some(None)
}

/// Splits a line into words. A word with blanks stands in quotes.
fn split_words<'b>(line: &'b [u8], arguments: &mut Arguments<'b>) -> Frame {
    let mut rest = line.trim_ascii();
    while let Some(first) = rest.first().copied() {
        let word;
        if matches!(first, b'"' | b'\'') {
            let Some(close) = rest[1..].iter().position(|byte| *byte == first) else { return Frame::Quotes };
            (word, rest) = (&rest[1..=close], &rest[close + 2..]);
            let is_plain = first == b'\'' || !word.contains(&b'\\');
            if !is_plain || rest.first().is_some_and(|byte| !byte.is_ascii_whitespace()) {
                return Frame::Quotes;
            }
        } else {
            let close = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
            (word, rest) = rest.split_at(close);
        }
        rest = rest.trim_ascii_start();
        if arguments.try_push(word).is_err() {
            return Frame::TooMany;
        }
    }
    Frame::Command
}

#[cfg(test)]
mod tests;
