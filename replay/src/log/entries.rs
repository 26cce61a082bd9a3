//! Iterates over the lines of a log and parses each of them.

use std::io::{self, Read};

use super::{
    format::LogOptions,
    lines::{LINE_BYTES_MAX, LogLines, RawLine},
    parser::LineParser,
};

pub(crate) use super::parser::LogEntry;

/// Reader of the lines of one log.
pub(crate) struct LogEntries<R> {
    lines: LogLines<R>,
    pub(crate) parser: LineParser,
    last: u64,
}

impl<R: Read> LogEntries<R> {
    pub(crate) fn new(log: R, reading: &LogOptions) -> Self {
        Self { lines: LogLines::new(log), parser: LineParser::new(reading.clone()), last: 0 }
    }

    /// Returns the next line, and its number from 1.
    pub(crate) fn next(&mut self) -> io::Result<Option<(u64, LogEntry<'_>)>> {
        if let Some(delimiter) = self.parser.delimiter() {
            self.lines.by_records(delimiter);
        }
        let Some((number, line)) = self.lines.next()? else {
            let is_cut = self.parser.drop_parts();
            return Ok(is_cut.then(|| (self.last, LogEntry::Refused("the last part of the line is missing".into()))));
        };
        self.last = number;
        let entry = match line {
            RawLine::Whole(line) if line.trim_ascii().is_empty() => LogEntry::Nothing,
            RawLine::Whole(line) => match self.parser.read(line.strip_suffix(b"\r").unwrap_or(line)) {
                Ok(LogEntry::Request(record, form)) => match record.with_request(|_| ()) {
                    Ok(()) => LogEntry::Request(record, form),
                    Err(error) => LogEntry::Refused(error.to_string().into()),
                },
                Ok(entry) => entry,
                Err(why) => LogEntry::Refused(why),
            },
            RawLine::OpenQuote => LogEntry::Refused(
                "a field begins with a quote that is not closed; a quote in a quoted field is written twice".into(),
            ),
            RawLine::TooLong(first) => {
                let way_out = match first {
                    b'[' | b'{' => "; jq -c '.[]? // .' writes an array of JSON with one object a line",
                    _ => "",
                };
                LogEntry::Refused(format!("it is longer than {} KiB{way_out}", LINE_BYTES_MAX / 1_024).into())
            }
        };
        Ok(Some((number, entry)))
    }
}
