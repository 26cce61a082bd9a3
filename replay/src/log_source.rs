//! Several logs as one, in order of time: the next line is the oldest of those that the logs have next. A log is opened when
//! its first line is due, so that the parts of a rotated log are read one after the other, whatever order they come in.

use std::{
    fmt,
    io::{self, Read},
};

use tidegate::time::Nanos;

use crate::log::{
    decode,
    entries::{Entries, Entry},
    format::LogReading,
};

/// Lines in which the first time of a log is looked for.
const FIRST_LINES: u64 = 1_000;

/// Bytes of a log.
pub type LogInput<'i> = Box<dyn Read + 'i>;

/// Opens a log from its beginning, as often as it is asked to.
pub type OpenLog<'i> = Box<dyn FnMut() -> io::Result<LogInput<'i>> + 'i>;

/// A log that is to be read, by the name that messages have for it.
pub struct Log<'i> {
    pub(crate) name: String,
    input: Input<'i>,
}

enum Input<'i> {
    Stream(LogInput<'i>),
    File(OpenLog<'i>),
}

impl<'i> Log<'i> {
    /// A log that can be read once, such as standard input.
    pub fn stream(name: impl Into<String>, input: impl Read + 'i) -> Self {
        Self { name: name.into(), input: Input::Stream(Box::new(input)) }
    }

    /// A log that can be opened again: once for its first time, and once when that is due.
    pub fn file(name: impl Into<String>, open: impl FnMut() -> io::Result<LogInput<'i>> + 'i) -> Self {
        Self { name: name.into(), input: Input::File(Box::new(open)) }
    }

    /// When it is to be opened: at its first time, or at once where that is not known.
    pub(crate) fn first_time(&mut self, reading: &LogReading) -> Nanos {
        let Input::File(open) = &mut self.input else { return 0 };
        // What is wrong with it is said when it is read.
        open().and_then(|log| first_time(log, reading)).ok().flatten().unwrap_or(0)
    }

    pub(crate) fn open(self, reading: &LogReading) -> io::Result<Entries<LogInput<'i>>> {
        let input = match self.input {
            Input::Stream(input) => input,
            Input::File(mut open) => open()?,
        };
        Ok(Entries::new(decode::plain(input)?, reading))
    }
}

impl fmt::Debug for Log<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("name", &self.name).finish_non_exhaustive()
    }
}

fn first_time(log: impl Read, reading: &LogReading) -> io::Result<Option<Nanos>> {
    let mut entries = Entries::new(decode::plain(log)?, reading);
    while let Some((number, entry)) = entries.next()? {
        match entry {
            Entry::Request(record, _) => return Ok(Some(record.time)),
            _ if number >= FIRST_LINES => break,
            _ => {}
        }
    }
    Ok(None)
}
