//! Reads commands from what has come: arrays of bulk strings, as clients send them, and lines, as people type them
//! (<https://redis.io/docs/latest/develop/reference/protocol-spec/>). Nothing is copied.

use std::{fmt, mem};

use arrayvec::ArrayVec;

/// What a command may have: its name, and arguments after that.
pub(super) const ARGUMENTS_MAX: usize = 64;
/// The longest command, with its framing.
pub(super) const COMMAND_BYTES_MAX: usize = 1 << 20;
/// The longest line that is a command.
const LINE_BYTES_MAX: usize = 64 << 10;
/// The longest number of a header; longer ones are out of range anyhow.
const DIGITS_MAX: usize = 10;

/// A command: its name, and its arguments.
pub(super) type Arguments<'b> = ArrayVec<&'b [u8], ARGUMENTS_MAX>;

/// Reads the commands of a connection.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    /// Bytes of a line that have come, and do not end it.
    searched: usize,
    thrown_away: Option<TooMany>,
}

/// A command of more arguments than fit, which are thrown away as they come.
#[derive(Debug)]
struct TooMany {
    left: usize,
    bytes: usize,
}

/// What was read.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Decoded {
    /// A command, which is in the arguments.
    Command,
    /// A command of more than [`ARGUMENTS_MAX`], which has come to its end.
    TooMany,
    /// A line whose quotes are not those of an argument.
    Quotes,
    /// What has come is no whole command.
    Part,
}

/// What is no command, and leaves open where the next one begins.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum ProtocolError {
    /// A number of arguments that is none, or too large.
    Count,
    /// A length of an argument that is none, or too large.
    Length,
    /// Something else where an argument is to begin.
    NotBulk(u8),
    /// An argument does not end where it says.
    NoEnd,
    /// A line without an end.
    LongLine,
    /// A command above [`COMMAND_BYTES_MAX`].
    LongCommand,
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Protocol error: ")?;
        match self {
            Self::Count => f.write_str("invalid multibulk length"),
            Self::Length => f.write_str("invalid bulk length"),
            Self::NotBulk(byte) => write!(f, "expected '$', got '{}'", byte.escape_ascii()),
            Self::NoEnd => f.write_str("an argument does not end with CR and LF after its length"),
            Self::LongLine => write!(f, "too big inline request; {LINE_BYTES_MAX} bytes fit"),
            Self::LongCommand => write!(f, "the command is too long; {COMMAND_BYTES_MAX} bytes fit"),
        }
    }
}

impl Decoder {
    /// Reads one command from the beginning of `bytes` into `arguments`; says also how many bytes are done with. What is a part
    /// is read again, with what has come after it: at most [`ARGUMENTS_MAX`] headers.
    pub(super) fn next<'b>(
        &mut self,
        bytes: &'b [u8],
        arguments: &mut Arguments<'b>,
    ) -> Result<(usize, Decoded), ProtocolError> {
        arguments.clear();
        let mut done = 0;
        loop {
            if self.thrown_away.is_some() {
                let (bytes, decoded) = self.throw_away(&bytes[done..])?;
                return Ok((done + bytes, decoded));
            }
            let rest = &bytes[done..];
            let (bytes, decoded) = match rest.first() {
                None => return Ok((done, Decoded::Part)),
                Some(b'*') => self.array(&rest[1..], arguments)?,
                Some(_) => self.line(rest, arguments)?,
            };
            match decoded {
                Decoded::Part if self.thrown_away.is_none() => {
                    return if rest.len() > COMMAND_BYTES_MAX {
                        Err(ProtocolError::LongCommand)
                    } else {
                        Ok((done, Decoded::Part))
                    };
                }
                Decoded::Command if arguments.is_empty() => done += bytes,
                Decoded::Part => done += bytes,
                decoded => return Ok((done + bytes, decoded)),
            }
        }
    }

    /// Is there a command that has begun, beside the bytes that are not done with?
    pub(super) fn is_within(&self) -> bool {
        self.thrown_away.is_some()
    }

    /// What follows the `*`.
    fn array<'b>(&mut self, bytes: &'b [u8], arguments: &mut Arguments<'b>) -> Result<(usize, Decoded), ProtocolError> {
        let Some((count, mut at)) = number(bytes).ok_or(ProtocolError::Count)? else { return Ok((0, Decoded::Part)) };
        // What has none asks for nothing, also where it says that it is null.
        let count = usize::try_from(count).unwrap_or(0);
        if count > COMMAND_BYTES_MAX {
            return Err(ProtocolError::Count);
        }
        if count > ARGUMENTS_MAX {
            self.thrown_away = Some(TooMany { left: count, bytes: at });
            return Ok((1 + at, Decoded::Part));
        }
        for _ in 0..count {
            let Some((argument, length)) = bulk(&bytes[at..])? else { return Ok((0, Decoded::Part)) };
            arguments.push(argument);
            at += length;
            if at > COMMAND_BYTES_MAX {
                return Err(ProtocolError::LongCommand);
            }
        }
        Ok((1 + at, Decoded::Command))
    }

    /// A command on a line of its own.
    fn line<'b>(&mut self, bytes: &'b [u8], arguments: &mut Arguments<'b>) -> Result<(usize, Decoded), ProtocolError> {
        let from = mem::take(&mut self.searched);
        let looked_at = &bytes[..bytes.len().min(LINE_BYTES_MAX)];
        let end = looked_at.get(from..).and_then(|new| new.iter().position(|byte| *byte == b'\n'));
        let Some(end) = end.map(|end| from + end) else {
            if bytes.len() >= LINE_BYTES_MAX {
                return Err(ProtocolError::LongLine);
            }
            self.searched = bytes.len();
            return Ok((0, Decoded::Part));
        };
        Ok((end + 1, words(&bytes[..end], arguments)))
    }

    fn throw_away(&mut self, bytes: &[u8]) -> Result<(usize, Decoded), ProtocolError> {
        let mut at = 0;
        while let Some(of) = &mut self.thrown_away {
            let Some((_, length)) = bulk(&bytes[at..])? else { return Ok((at, Decoded::Part)) };
            at += length;
            of.bytes += length;
            of.left -= 1;
            if of.bytes > COMMAND_BYTES_MAX {
                return Err(ProtocolError::LongCommand);
            }
            if of.left == 0 {
                self.thrown_away = None;
            }
        }
        Ok((at, Decoded::TooMany))
    }
}

/// An argument, and its length with its framing; `None`: not all of it is there.
fn bulk(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, ProtocolError> {
    let Some((first, rest)) = bytes.split_first() else { return Ok(None) };
    if *first != b'$' {
        return Err(ProtocolError::NotBulk(*first));
    }
    let Some((length, head)) = number(rest).ok_or(ProtocolError::Length)? else { return Ok(None) };
    let length = usize::try_from(length).ok().filter(|length| *length <= COMMAND_BYTES_MAX);
    let length = length.ok_or(ProtocolError::Length)?;
    let Some(argument) = rest.get(head..head + length) else { return Ok(None) };
    match rest.get(head + length..head + length + 2) {
        Some(b"\r\n") => Ok(Some((argument, 1 + head + length + 2))),
        Some(_) => Err(ProtocolError::NoEnd),
        None => Ok(None),
    }
}

/// Returns the number at the beginning of a header, and the header's length from there. Outer `None`: there is none; inner: not all of
/// it is there.
#[expect(clippy::option_option, reason = "there is none, or it is not all there")]
#[inline]
fn number(bytes: &[u8]) -> Option<Option<(i64, usize)>> {
    // Most have one digit or two.
    match *bytes {
        [ones @ b'0'..=b'9', b'\r', b'\n', ..] => Some(Some((i64::from(ones - b'0'), 3))),
        [tens @ b'0'..=b'9', ones @ b'0'..=b'9', b'\r', b'\n', ..] => {
            Some(Some((i64::from(tens - b'0') * 10 + i64::from(ones - b'0'), 4)))
        }
        _ => any_number(bytes),
    }
}

/// Reads such a number of any length.
#[expect(clippy::option_option, reason = "there is none, or it is not all there")]
fn any_number(bytes: &[u8]) -> Option<Option<(i64, usize)>> {
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

/// The words of a line: those with blanks in them stand in quotes.
fn words<'b>(line: &'b [u8], arguments: &mut Arguments<'b>) -> Decoded {
    let mut rest = line.trim_ascii();
    while let Some(first) = rest.first().copied() {
        let word;
        if matches!(first, b'"' | b'\'') {
            let Some(close) = rest[1..].iter().position(|byte| *byte == first) else { return Decoded::Quotes };
            (word, rest) = (&rest[1..=close], &rest[close + 2..]);
            let is_plain = first == b'\'' || !word.contains(&b'\\');
            if !is_plain || rest.first().is_some_and(|byte| !byte.is_ascii_whitespace()) {
                return Decoded::Quotes;
            }
        } else {
            let close = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
            (word, rest) = rest.split_at(close);
        }
        rest = rest.trim_ascii_start();
        if arguments.try_push(word).is_err() {
            return Decoded::TooMany;
        }
    }
    Decoded::Command
}

#[cfg(test)]
mod tests;
