//! The content of the lines of a log, one by one.

use std::io::{self, Read};

use super::{
    format::LogReading,
    line_error::LineError,
    line_format::Form,
    lines::{LINE_BYTES_MAX, Line, Lines},
    parser::{Parsed, Parser},
    record::Record,
};

/// The lines of one log.
pub(crate) struct Entries<R> {
    lines: Lines<R>,
    parser: Parser,
    /// The number of the last line.
    last: u64,
}

/// The content of a line.
pub(crate) enum Entry<'l> {
    /// A blank line or a header.
    Nothing,
    /// A request, and the form that it was read by.
    Request(Record<'l>, Form),
    /// A request of no client, which counts against no limit.
    NoClient(Form),
    /// A line that cannot be read.
    Refused(LineError),
}

impl<R: Read> Entries<R> {
    pub(crate) fn new(log: R, reading: &LogReading) -> Self {
        Self { lines: Lines::new(log), parser: Parser::new(reading.clone()), last: 0 }
    }

    /// Returns the next line, and its number from 1.
    pub(crate) fn next(&mut self) -> io::Result<Option<(u64, Entry<'_>)>> {
        if let Some(delimiter) = self.parser.delimiter() {
            self.lines.by_records(delimiter);
        }
        let Some((number, line)) = self.lines.next()? else {
            let is_cut = self.parser.drop_parts();
            return Ok(is_cut.then(|| (self.last, Entry::Refused("the last part of the line is missing".into()))));
        };
        self.last = number;
        let entry = match line {
            Line::Whole(line) if line.trim_ascii().is_empty() => Entry::Nothing,
            Line::Whole(line) => match self.parser.read(line.strip_suffix(b"\r").unwrap_or(line)) {
                Ok(Parsed::Nothing) => Entry::Nothing,
                Ok(Parsed::NoClient(form)) => Entry::NoClient(form),
                Ok(Parsed::Request(record, form)) => match record.with_request(|_| ()) {
                    Ok(()) => Entry::Request(record, form),
                    Err(error) => Entry::Refused(error.to_string().into()),
                },
                Err(why) => Entry::Refused(why),
            },
            Line::OpenQuote => Entry::Refused(
                "a field begins with a quote that is not closed; a quote in a quoted field is written twice".into(),
            ),
            Line::TooLong(first) => {
                let way_out = match first {
                    b'[' | b'{' => "; jq -c '.[]? // .' writes an array of JSON with one object a line",
                    _ => "",
                };
                Entry::Refused(format!("it is longer than {} KiB{way_out}", LINE_BYTES_MAX / 1_024).into())
            }
        };
        Ok(Some((number, entry)))
    }

    /// Returns the names of the fields of its first lines, where they have names.
    pub(crate) fn fields(&self) -> Vec<String> {
        self.parser.fields()
    }

    /// Returns the fields of the map that no line of JSON had; `None`: there was no such line.
    pub(crate) fn absent_fields(&self) -> Option<Vec<String>> {
        self.parser.absent_fields()
    }
}
