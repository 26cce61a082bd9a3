//! Input logs of a replay. Several logs are merged in order of time. A log is opened when its first line is due, so that
//! the parts of a rotated log are read one after the other, in whatever order they were given.

use std::{
    fmt,
    io::{self, Read},
};

use tidegate::time::Nanos;

use crate::log::{
    decode,
    entries::{LogEntries, LogEntry},
    format::LogOptions,
};

/// Number of lines that are searched for the first time of a log.
const FIRST_LINES: u64 = 1_000;

/// Reader of a log's bytes.
pub type LogInput<'i> = Box<dyn Read + 'i>;

/// Function that opens a log at its beginning; it is called up to twice.
pub type OpenLog<'i> = Box<dyn FnMut() -> io::Result<LogInput<'i>> + 'i>;

/// A log to read, with its name in messages.
pub struct LogSource<'i> {
    pub(crate) name: String,
    input: Input<'i>,
}

enum Input<'i> {
    Stream(LogInput<'i>),
    File(OpenLog<'i>),
}

impl<'i> LogSource<'i> {
    /// Creates a source that can be read once, such as standard input.
    pub fn stream(name: impl Into<String>, input: impl Read + 'i) -> Self {
        Self { name: name.into(), input: Input::Stream(Box::new(input)) }
    }

    /// Creates a source that is opened twice: to find its first time, and when that is due.
    pub fn file(name: impl Into<String>, open: impl FnMut() -> io::Result<LogInput<'i>> + 'i) -> Self {
        Self { name: name.into(), input: Input::File(Box::new(open)) }
    }

    /// Returns the time at which the log is due: its first time, or 0 if that is not known.
    pub(crate) fn first_time(&mut self, reading: &LogOptions) -> Nanos {
        let Input::File(open) = &mut self.input else { return 0 };
        // Errors are reported when the log is read.
        open().and_then(|log| first_time(log, reading)).ok().flatten().unwrap_or(0)
    }

    pub(crate) fn open(self, reading: &LogOptions) -> io::Result<LogEntries<LogInput<'i>>> {
        let input = match self.input {
            Input::Stream(input) => input,
            Input::File(mut open) => open()?,
        };
        Ok(LogEntries::new(decode::plain(input)?, reading))
    }
}

impl fmt::Debug for LogSource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("name", &self.name).finish_non_exhaustive()
    }
}

fn first_time(log: impl Read, reading: &LogOptions) -> io::Result<Option<Nanos>> {
    let mut entries = LogEntries::new(decode::plain(log)?, reading);
    while let Some((number, entry)) = entries.next()? {
        match entry {
            LogEntry::Request(record, _) => return Ok(Some(record.time)),
            _ if number >= FIRST_LINES => break,
            _ => {}
        }
    }
    Ok(None)
}
