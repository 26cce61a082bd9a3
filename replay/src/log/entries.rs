//! What the lines of a log say, one by one.

use std::io::{self, Read};

use super::{
    format::LogReading,
    lines::{LINE_BYTES_MAX, Line, Lines},
    parser::Parser,
    record::{Record, Why},
};

/// The lines of one log.
pub(crate) struct Entries<R> {
    lines: Lines<R>,
    parser: Parser,
}

/// What a line says.
pub(crate) enum Entry<'l> {
    /// Nothing, and that is right: it is blank, or a header.
    Nothing,
    /// A request, which the engine takes.
    Request(Record<'l>),
    /// Nothing that can be understood.
    Refused(Why),
}

impl<R: Read> Entries<R> {
    pub(crate) fn new(log: R, reading: &LogReading) -> Self {
        Self { lines: Lines::new(log), parser: Parser::new(reading.clone()) }
    }

    /// The next line, and its number from 1.
    pub(crate) fn next(&mut self) -> io::Result<Option<(u64, Entry<'_>)>> {
        if self.parser.is_csv() {
            self.lines.by_records();
        }
        let Some((number, line)) = self.lines.next()? else { return Ok(None) };
        let entry = match line {
            Line::Whole(line) => match line.trim_ascii() {
                [] => Entry::Nothing,
                line => match self.parser.read(line) {
                    Ok(None) => Entry::Nothing,
                    Ok(Some(record)) => match record.with_request(|_| ()) {
                        Ok(()) => Entry::Request(record),
                        Err(error) => Entry::Refused(error.to_string().into()),
                    },
                    Err(why) => Entry::Refused(why),
                },
            },
            Line::TooLong => Entry::Refused(format!("it is longer than {} KiB", LINE_BYTES_MAX / 1_024).into()),
        };
        Ok(Some((number, entry)))
    }

    /// The names of the fields of its first lines, where they have names.
    pub(crate) fn into_fields(self) -> Vec<String> {
        self.parser.into_fields()
    }
}
