//! Parses the lines of one log, each by its format.
//!
//! The formats are tried in this order: W3C extended after a line `#Fields:`; CSV if the first line is a CSV header; AWS load
//! balancers; then, after the prefixes of other programs, JSON, and the common log format and its variants.

use std::{borrow::Cow, cell::Cell, mem};

use super::{
    alb, combined,
    csv::CsvReader,
    field_names::{FieldMap, Meaning},
    fields::{FieldValue, FieldsError, HeaderColumns, LineFields, listed},
    format::{LogFormat, LogKey, LogOptions},
    json,
    line_error::LineError,
    line_format::{BaseFormat, LineFormat, LinePrefix},
    lines::LINE_BYTES_MAX,
    prefix,
    record::{LogRecord, readable},
    unsupported, w3c,
};
use crate::{
    clients::IdentityKind,
    timestamp::{LogZone, TimestampReader},
};

/// Most JSON objects around a line, one in the other.
const WRAPS_MAX: u8 = 2;
/// Number of lines whose field names are collected.
const LINES_NAMED: u64 = 20;
/// Most names of fields that are listed.
const NAMES_MAX: usize = 100;

/// The content of a line. The parser returns a line that it cannot read as an error; `LogEntries` makes it `Refused`.
pub(crate) enum LogEntry<'l> {
    /// No request: a blank line, a header, a directive, a bracket of a JSON array, or a part of a split line.
    Nothing,
    /// A request, and the format of its line.
    Request(LogRecord<'l>, LineFormat),
    /// A request without a client, which no limit counts.
    NoClient(LineFormat),
    /// A line that cannot be read.
    Refused(LineError),
}

#[derive(Debug)]
pub(crate) struct LineParser {
    rules: Rules,
    stamps: TimestampReader,
    csv: Option<CsvReader>,
    w3c: Option<HeaderColumns>,
    /// The error of the header, and so of every line after it.
    header_error: Option<LineError>,
    /// The parts so far of a line that is split into several, for each stream of a container.
    parts: [Vec<u8>; 2],
    lines: u64,
    /// Names of fields, without those of CSV.
    fields: Vec<String>,
}

/// Settings that apply to every line.
#[derive(Debug)]
struct Rules {
    reading: LogOptions,
    /// The fields of the settings, and their key.
    map: FieldMap,
    is_client_needed: bool,
    /// A bit for each field of the map that some JSON line had; `None` if there was no JSON line.
    present: Cell<Option<u8>>,
}

impl LineParser {
    pub(crate) fn new(reading: LogOptions) -> Self {
        let mut map = reading.fields.clone();
        if let Some(LogKey { field, kind }) = &reading.key {
            map.set(if kind == IdentityKind::IP { Meaning::Client } else { Meaning::User }, field);
        }
        let is_client_needed = reading.key.is_none();
        let stamps = TimestampReader::new(reading.time_zone.clone());
        Self {
            rules: Rules { reading, map, is_client_needed, present: Cell::new(None) },
            stamps,
            csv: None,
            w3c: None,
            header_error: None,
            parts: [Vec::new(), Vec::new()],
            lines: 0,
            fields: Vec::new(),
        }
    }

    /// Returns the delimiter of CSV fields; `None` if the log is not known to be CSV.
    pub(crate) fn delimiter(&self) -> Option<u8> {
        let is_csv = self.rules.reading.format == LogFormat::Csv;
        self.csv.as_ref().map(|csv| csv.delimiter).or(is_csv.then_some(b','))
    }

    /// Parses a line without its end.
    pub(crate) fn read<'l>(&'l mut self, line: &'l [u8]) -> Result<LogEntry<'l>, LineError> {
        let format = self.rules.reading.format;
        self.lines += 1;
        if matches!(format, LogFormat::Auto | LogFormat::Csv) && self.csv.is_none() {
            if self.lines == 1 && line.starts_with(b"sep=") {
                // Excel writes this before the header.
                self.lines = 0;
                return Ok(LogEntry::Nothing);
            }
            if self.is_header(line)? {
                return Ok(LogEntry::Nothing);
            }
        }
        // Spaces around a line have no meaning; tabs may be fields.
        let whole = line;
        let line = if self.delimiter() == Some(b'\t') { line } else { line.trim_ascii() };
        let is_of_array = matches!(format, LogFormat::Auto | LogFormat::Json) && matches!(line, b"[" | b"]");
        if is_of_array && self.csv.is_none() {
            return Ok(LogEntry::Nothing);
        }
        let is_w3c = matches!(format, LogFormat::Auto | LogFormat::W3c);
        if is_w3c && line.starts_with(b"#") {
            return self.take_directive(line).map(|()| LogEntry::Nothing);
        }
        if let Some(why) = &self.header_error {
            return Err(why.clone());
        }
        let rules = &self.rules;
        let (record, form) = if let Some(csv) = &mut self.csv {
            let fields = csv.read(line)?;
            let zone = rules.reading.time_zone.as_ref();
            (rules.record(fields, zone, || "the header has its fields".to_owned())?, LineFormat::new(BaseFormat::Csv))
        } else if let Some(columns) = self.w3c.as_ref().filter(|_| is_w3c) {
            let fields = w3c::read(whole, columns)?;
            (rules.record(fields, Some(&LogZone::UTC), || listed(&columns.names))?, LineFormat::new(BaseFormat::W3c))
        } else {
            if self.lines <= LINES_NAMED && line.first() == Some(&b'{') {
                self.fields.extend(json::names(line));
            }
            match prefix::cri(line) {
                Some((stream, is_part, part)) if is_part || !self.parts[stream].is_empty() => {
                    let parts = &mut self.parts[stream];
                    if parts.len() + part.len() > LINE_BYTES_MAX {
                        parts.clear();
                        return Err(format!("its parts together are longer than {} KiB", LINE_BYTES_MAX / 1_024).into());
                    }
                    parts.extend_from_slice(part);
                    if is_part {
                        return Ok(LogEntry::Nothing);
                    }
                    let whole = mem::take(parts);
                    let (record, form) = rules.line(whole.trim_ascii(), &mut self.stamps, WRAPS_MAX)?;
                    (record.into_owned(), form.behind(LinePrefix::Container))
                }
                _ => rules.line(line, &mut self.stamps, WRAPS_MAX)?,
            }
        };
        rules.parsed(record, form)
    }

    /// Takes a directive of the W3C extended format. Only `#Fields:` has an effect.
    fn take_directive(&mut self, line: &[u8]) -> Result<(), LineError> {
        match w3c::columns(line, &self.rules.map, self.rules.is_client_needed) {
            Some(Err(why)) => {
                self.header_error = Some(why.clone());
                Err(why)
            }
            Some(Ok(columns)) => {
                (self.w3c, self.header_error) = (Some(columns), None);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Takes a CSV header. A line of another format may have commas, but not the names of the required fields.
    fn is_header(&mut self, line: &[u8]) -> Result<bool, LineError> {
        let is_csv = self.rules.reading.format == LogFormat::Csv;
        if !is_csv && (self.lines > 1 || matches!(line.first(), Some(b'{' | b'#'))) {
            return Ok(false);
        }
        let map = &self.rules.map;
        match CsvReader::of_header(line, map, self.rules.is_client_needed) {
            Ok((csv, Ok(()))) => {
                self.csv = Some(csv);
                Ok(true)
            }
            Ok((csv, Err(why))) if is_csv || !map.names.is_empty() && csv.columns.are_names() => {
                (self.csv, self.header_error) = (Some(csv), Some(why.clone()));
                Err(why)
            }
            Err(why) if is_csv => Err(why),
            _ => Ok(false),
        }
    }

    /// Drops incomplete lines at the end of the log, and returns whether there were any.
    pub(crate) fn drop_parts(&mut self) -> bool {
        mem::take(&mut self.parts).iter().any(|parts| !parts.is_empty())
    }

    /// Returns the fields of the map that no JSON line had; `None` if there was no JSON line.
    pub(crate) fn absent_fields(&self) -> Option<Vec<String>> {
        let present = self.rules.present.get()?;
        let names = self.rules.map.names.iter().enumerate();
        Some(names.filter(|(place, _)| present >> place & 1 == 0).map(|(_, (_, name))| name.clone()).collect())
    }

    /// Returns the field names of the first lines, if their format has names.
    pub(crate) fn fields(&self) -> Vec<String> {
        let columns = self.csv.as_ref().map(|csv| &csv.columns).or(self.w3c.as_ref());
        let mut names = columns.map_or(&self.fields, |columns| &columns.names).clone();
        names.sort_unstable();
        names.dedup();
        names.truncate(NAMES_MAX);
        names
    }
}

impl Rules {
    /// Parses a line of a format without a header.
    fn line<'l>(
        &self,
        line: &'l [u8],
        stamps: &mut TimestampReader,
        wraps: u8,
    ) -> Result<(LogRecord<'l>, LineFormat), LineError> {
        let LogOptions { format, clients, .. } = &self.reading;
        if *format == LogFormat::W3c {
            return Err("no line #Fields: stands before it, which names its fields".into());
        }
        if *format == LogFormat::Alb || *format == LogFormat::Auto && alb::is_line(line) {
            self.needs_no_names()?;
            return Ok((alb::read(line, clients, stamps)?, LineFormat::new(BaseFormat::Alb)));
        }
        let (line, prefixes) = prefix::strip(line);
        let is_json = *format == LogFormat::Json || *format == LogFormat::Auto && matches!(line.first(), Some(b'{'));
        let (record, form) = if is_json {
            match readable(line) {
                Cow::Borrowed(text) => self.json(text, stamps, wraps)?,
                Cow::Owned(text) => {
                    let (record, form) = self.json(&text, stamps, wraps)?;
                    (record.into_owned(), form)
                }
            }
        } else {
            self.needs_no_names()?;
            let read = combined::read(line, *format == LogFormat::Combined, clients, stamps);
            read.map_err(|why| unsupported::problem(line).unwrap_or(why))?
        };
        Ok((record, prefixes.fold(form, LineFormat::behind)))
    }

    fn json<'l>(
        &self,
        line: &'l str,
        stamps: &mut TimestampReader,
        wraps: u8,
    ) -> Result<(LogRecord<'l>, LineFormat), LineError> {
        // A line of an array with one object a line.
        let line = line.strip_suffix(',').unwrap_or(line);
        let mut fields = json::fields(line)?;
        if let Some((inner, is_all)) = wraps.checked_sub(1).and_then(|_| fields.take_line()) {
            match self.line(inner.trim_ascii().as_bytes(), stamps, wraps - 1) {
                Ok((record, form)) => return Ok((record.into_owned(), form.behind(LinePrefix::Wrapped))),
                Err(why) if is_all && self.map.names.is_empty() => return Err(why),
                Err(_) => {}
            }
        }
        if !self.map.names.is_empty() {
            let all = serde_json::from_str(line).unwrap_or_default();
            for (place, (meaning, name)) in self.map.names.iter().enumerate() {
                let found = json::field(&all, name);
                let present = self.present.get().unwrap_or_default() | u8::from(found.is_some()) << place;
                self.present.set(Some(present));
                let is_needed = matches!(meaning, Meaning::Time | Meaning::Client) && self.is_client_needed;
                if found.is_none() && is_needed {
                    return Err(LineError::with(format!("it has no field `{name}`"), listed(&json::paths(line))));
                }
                fields.replace(*meaning, found.map_or(FieldValue::Null, json::value));
            }
        }
        let zone = self.reading.time_zone.as_ref();
        Ok((self.record(fields, zone, || listed(&json::paths(line)))?, LineFormat::new(BaseFormat::Json)))
    }

    /// Returns the record of a line with named fields; `names` lists the names for an error.
    fn record<'l>(
        &self,
        fields: LineFields<'l>,
        zone: Option<&LogZone>,
        names: impl FnOnce() -> String,
    ) -> Result<LogRecord<'l>, LineError> {
        fields.record(&self.reading.clients, zone, self.is_client_needed).map_err(|lack| match lack {
            FieldsError::NoTime => {
                LineError::with("no time under a name that is known; --map time=FIELD names its field", names())
            }
            FieldsError::NoClient => {
                LineError::with("no client under a name that is known; --map client=FIELD names its field", names())
            }
            FieldsError::Unreadable(why) => why,
        })
    }

    /// Returns an error if the settings name a field, for a line whose fields have no names.
    fn needs_no_names(&self) -> Result<(), LineError> {
        match self.map.names.first() {
            Some((_, field)) => Err(format!("it is neither JSON nor CSV, so it has no field `{field}`").into()),
            None => Ok(()),
        }
    }

    /// Distinguishes requests with a client from those without.
    fn parsed<'l>(&'l self, mut record: LogRecord<'l>, form: LineFormat) -> Result<LogEntry<'l>, LineError> {
        if let Some(LogKey { field, kind }) = &self.reading.key {
            let found = if kind == IdentityKind::IP { &record.client } else { &record.user };
            if found.is_none() {
                return Err(format!("it says nothing in the field `{field}`").into());
            }
        }
        if record.client.is_none() && record.user.is_none() {
            return Ok(LogEntry::NoClient(form));
        }
        record.kind = self.reading.kind();
        Ok(LogEntry::Request(record, form))
    }
}
