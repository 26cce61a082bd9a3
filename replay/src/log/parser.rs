//! Reads lines of a log by the form that they have.

use std::borrow::Cow;

use super::{
    combined,
    csv::Csv,
    format::{LogFormat, LogKey, LogReading},
    json,
    record::{Record, Why},
};
use crate::{clients::Kind, stamp::Stamps};

/// Lines whose fields are named.
const LINES_NAMED: u64 = 20;
/// Names of fields that are told.
const NAMES_MAX: usize = 100;

/// Reads the lines of one log.
#[derive(Debug)]
pub(crate) struct Parser {
    reading: LogReading,
    stamps: Stamps,
    csv: Option<Csv>,
    /// Lines so far.
    lines: u64,
    /// Names of fields, without those of CSV.
    fields: Vec<String>,
}

impl Parser {
    pub(crate) fn new(reading: LogReading) -> Self {
        Self { reading, stamps: Stamps::default(), csv: None, lines: 0, fields: Vec::new() }
    }

    /// Is it CSV, as far as can be told by now?
    pub(crate) fn is_csv(&self) -> bool {
        self.csv.is_some() || self.reading.format == LogFormat::Csv
    }

    /// `line` has no space around it. `None`: it is a header.
    pub(crate) fn read<'l>(&'l mut self, line: &'l [u8]) -> Result<Option<Record<'l>>, Why> {
        let key = self.reading.key.as_ref();
        self.lines += 1;
        match self.reading.format {
            LogFormat::Csv if self.csv.is_none() => {
                return self.csv.insert(Csv::of_header(line, key)?).check(key).map(|()| None);
            }
            LogFormat::Auto if self.lines == 1 => {
                // Anything may have commas; names that tell requests are no accident.
                self.csv = Csv::of_header(line, key).ok().filter(|csv| csv.check(key).is_ok());
                if self.csv.is_some() {
                    return Ok(None);
                }
            }
            _ => {}
        }
        let is_json = match self.reading.format {
            LogFormat::Auto => line.first() == Some(&b'{'),
            format => format == LogFormat::Json,
        };
        if is_json && self.lines <= LINES_NAMED {
            self.fields.extend(json::names(line));
        }
        let (mut record, found) = match &mut self.csv {
            Some(csv) => {
                let (record, found) = csv.read(line)?;
                (record, found.map(Cow::Borrowed))
            }
            None if is_json => (json::read(line)?, key.and_then(|key| json::field(line, &key.field)).map(Cow::Owned)),
            None => {
                if let Some(LogKey { field, .. }) = key {
                    return Err(format!("it is neither JSON nor CSV, so it has no field `{field}`").into());
                }
                let is_combined = self.reading.format == LogFormat::Combined;
                (combined::read(line, is_combined, &mut self.stamps)?, None)
            }
        };
        if let Some(LogKey { field, kind }) = key {
            let found = found.filter(|found| !found.is_empty() && found != "-");
            let found = Some(found.ok_or_else(|| format!("it says nothing in the field `{field}`"))?);
            *(if kind == Kind::IP { &mut record.client } else { &mut record.user }) = found;
        } else if record.client.is_none() {
            return Err("no client; its field is `ip`, or one of those that the help names".into());
        }
        record.kind = self.reading.kind();
        Ok(Some(record))
    }

    pub(crate) fn into_fields(self) -> Vec<String> {
        let mut names = self.csv.map_or(self.fields, |csv| csv.names);
        names.sort_unstable();
        names.dedup();
        names.truncate(NAMES_MAX);
        names
    }
}
