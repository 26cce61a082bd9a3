//! Reads the lines of one log by the form that each of them has.
//!
//! They are tried in this order: W3C extended after a line `#Fields:`; CSV after a header of it in the first line; AWS load
//! balancers; then, behind what other programs write before a line, JSON and the common log format with its kin.

use std::{borrow::Cow, cell::Cell, mem};

use super::{
    alb, combined,
    csv::Csv,
    fields::{Columns, FieldMap, Fields, FieldsError, Meaning, Value, listed},
    format::{LogFormat, LogKey, LogReading},
    json,
    line_error::LineError,
    line_format::{Base, Form, Prefix},
    lines::LINE_BYTES_MAX,
    prefix,
    record::{Record, readable},
    unsupported, w3c,
};
use crate::{
    clients::Kind,
    timestamp::{LogZone, Stamps},
};

/// Objects that may stand around a line, one in the other.
const WRAPS_MAX: u8 = 2;
/// Lines whose fields are named.
const LINES_NAMED: u64 = 20;
/// Names of fields that are told.
const NAMES_MAX: usize = 100;

/// A line as it was parsed.
pub(crate) enum Parsed<'l> {
    /// A header or a directive.
    Nothing,
    /// A request, and the form that it was read by.
    Request(Record<'l>, Form),
    /// A request of no client.
    NoClient(Form),
}

/// Reads the lines of one log.
#[derive(Debug)]
pub(crate) struct Parser {
    rules: Rules,
    stamps: Stamps,
    csv: Option<Csv>,
    w3c: Option<Columns>,
    /// The problem of the header, and so of every line after it.
    header_error: Option<LineError>,
    /// The parts so far of a line that came in several, of each stream of a container.
    parts: [Vec<u8>; 2],
    /// Lines so far.
    lines: u64,
    /// Names of fields, without those of CSV.
    fields: Vec<String>,
}

/// Settings by which every line is read.
#[derive(Debug)]
struct Rules {
    reading: LogReading,
    /// The fields of the reading, and its key.
    map: FieldMap,
    is_client_needed: bool,
    /// A bit for each field of the map that some line of JSON had; `None`: no such line was read.
    present: Cell<Option<u8>>,
}

impl Parser {
    pub(crate) fn new(reading: LogReading) -> Self {
        let mut map = reading.fields.clone();
        if let Some(LogKey { field, kind }) = &reading.key {
            map.set(if kind == Kind::IP { Meaning::Client } else { Meaning::User }, field);
        }
        let is_client_needed = reading.key.is_none();
        let stamps = Stamps::new(reading.time_zone.clone());
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

    /// Returns the delimiter of fields of CSV; `None`: the log is not CSV, as far as is known by now.
    pub(crate) fn delimiter(&self) -> Option<u8> {
        let is_csv = self.rules.reading.format == LogFormat::Csv;
        self.csv.as_ref().map(|csv| csv.delimiter).or(is_csv.then_some(b','))
    }

    /// Reads a line, without its end.
    pub(crate) fn read<'l>(&'l mut self, line: &'l [u8]) -> Result<Parsed<'l>, LineError> {
        let format = self.rules.reading.format;
        self.lines += 1;
        if matches!(format, LogFormat::Auto | LogFormat::Csv) && self.csv.is_none() {
            if self.lines == 1 && line.starts_with(b"sep=") {
                // As Excel writes it before the header.
                self.lines = 0;
                return Ok(Parsed::Nothing);
            }
            if self.is_header(line)? {
                return Ok(Parsed::Nothing);
            }
        }
        // Spaces around a line mean nothing; tabs may be fields.
        let whole = line;
        let line = if self.delimiter() == Some(b'\t') { line } else { line.trim_ascii() };
        let is_of_array = matches!(format, LogFormat::Auto | LogFormat::Json) && matches!(line, b"[" | b"]");
        if is_of_array && self.csv.is_none() {
            return Ok(Parsed::Nothing);
        }
        let is_w3c = matches!(format, LogFormat::Auto | LogFormat::W3c);
        if is_w3c && line.starts_with(b"#") {
            return match w3c::columns(line, &self.rules.map, self.rules.is_client_needed) {
                Some(Err(why)) => {
                    self.header_error = Some(why.clone());
                    Err(why)
                }
                Some(Ok(columns)) => {
                    (self.w3c, self.header_error) = (Some(columns), None);
                    Ok(Parsed::Nothing)
                }
                None => Ok(Parsed::Nothing),
            };
        }
        if let Some(why) = &self.header_error {
            return Err(why.clone());
        }
        let rules = &self.rules;
        let (record, form) = if let Some(csv) = &mut self.csv {
            let fields = csv.read(line)?;
            let zone = rules.reading.time_zone.as_ref();
            (rules.record(fields, zone, || "the header has its fields".to_owned())?, Form::new(Base::Csv))
        } else if let Some(columns) = self.w3c.as_ref().filter(|_| is_w3c) {
            let fields = w3c::read(whole, columns)?;
            (rules.record(fields, Some(&LogZone::UTC), || listed(&columns.names))?, Form::new(Base::W3c))
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
                        return Ok(Parsed::Nothing);
                    }
                    let whole = mem::take(parts);
                    let (record, form) = rules.line(whole.trim_ascii(), &mut self.stamps, WRAPS_MAX)?;
                    (record.into_owned(), form.behind(Prefix::Container))
                }
                _ => rules.line(line, &mut self.stamps, WRAPS_MAX)?,
            }
        };
        rules.parsed(record, form)
    }

    /// Takes a header of CSV. In another format, anything may have commas; names that tell requests are no accident.
    fn is_header(&mut self, line: &[u8]) -> Result<bool, LineError> {
        let is_csv = self.rules.reading.format == LogFormat::Csv;
        if !is_csv && (self.lines > 1 || matches!(line.first(), Some(b'{' | b'#'))) {
            return Ok(false);
        }
        let map = &self.rules.map;
        match Csv::of_header(line, map, self.rules.is_client_needed) {
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

    /// Drops, at the end of the log, parts of lines whose last part did not come, and returns whether there were any.
    pub(crate) fn drop_parts(&mut self) -> bool {
        mem::take(&mut self.parts).iter().any(|parts| !parts.is_empty())
    }

    /// Returns the fields of the map that no line of JSON had; `None`: there was no such line.
    pub(crate) fn absent_fields(&self) -> Option<Vec<String>> {
        let present = self.rules.present.get()?;
        let names = self.rules.map.names.iter().enumerate();
        Some(names.filter(|(place, _)| present >> place & 1 == 0).map(|(_, (_, name))| name.clone()).collect())
    }

    /// Returns the names of the fields of its first lines, where they have names.
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
    /// Reads a line that needs no header.
    fn line<'l>(&self, line: &'l [u8], stamps: &mut Stamps, wraps: u8) -> Result<(Record<'l>, Form), LineError> {
        let LogReading { format, clients, .. } = &self.reading;
        if *format == LogFormat::W3c {
            return Err("no line #Fields: stands before it, which names its fields".into());
        }
        if *format == LogFormat::Alb || *format == LogFormat::Auto && alb::is_line(line) {
            self.needs_no_names()?;
            return Ok((alb::read(line, clients, stamps)?, Form::new(Base::Alb)));
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
        Ok((record, prefixes.fold(form, Form::behind)))
    }

    fn json<'l>(&self, line: &'l str, stamps: &mut Stamps, wraps: u8) -> Result<(Record<'l>, Form), LineError> {
        // Within an array, an object a line.
        let line = line.strip_suffix(',').unwrap_or(line);
        let mut fields = json::fields(line)?;
        if let Some((inner, is_all)) = wraps.checked_sub(1).and_then(|_| fields.take_line()) {
            match self.line(inner.trim_ascii().as_bytes(), stamps, wraps - 1) {
                Ok((record, form)) => return Ok((record.into_owned(), form.behind(Prefix::Wrapped))),
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
                fields.replace(*meaning, found.map_or(Value::Null, json::value));
            }
        }
        let zone = self.reading.time_zone.as_ref();
        Ok((self.record(fields, zone, || listed(&json::paths(line)))?, Form::new(Base::Json)))
    }

    /// The record of a line that has fields with names; `names` lists those of the line for an error.
    fn record<'l>(
        &self,
        fields: Fields<'l>,
        zone: Option<&LogZone>,
        names: impl FnOnce() -> String,
    ) -> Result<Record<'l>, LineError> {
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

    /// Refuses a line whose fields have no names where one is asked for by its name.
    fn needs_no_names(&self) -> Result<(), LineError> {
        match self.map.names.first() {
            Some((_, field)) => Err(format!("it is neither JSON nor CSV, so it has no field `{field}`").into()),
            None => Ok(()),
        }
    }

    /// Separates requests of a client from those of none.
    fn parsed<'l>(&'l self, mut record: Record<'l>, form: Form) -> Result<Parsed<'l>, LineError> {
        if let Some(LogKey { field, kind }) = &self.reading.key {
            let found = if kind == Kind::IP { &record.client } else { &record.user };
            if found.is_none() {
                return Err(format!("it says nothing in the field `{field}`").into());
            }
        }
        if record.client.is_none() && record.user.is_none() {
            return Ok(Parsed::NoClient(form));
        }
        record.kind = self.reading.kind();
        Ok(Parsed::Request(record, form))
    }
}
