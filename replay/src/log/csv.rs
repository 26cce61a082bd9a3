//! Reader of CSV (RFC 4180): a header with the field names of `field_names`, in any case, then records. The delimiter is a
//! comma, a semicolon, a tab or a vertical bar.

use csv_core::{ReadRecordResult, Reader, ReaderBuilder};

use super::{
    field_names::FieldMap,
    fields::{HeaderColumns, LineFields},
    line_error::LineError,
    lines::LINE_BYTES_MAX,
    record::readable,
};

/// Most fields of a record.
const FIELDS_MAX: usize = 1_000;
/// Delimiters of fields, in the order in which they are tried.
const DELIMITERS: [u8; 4] = *b",;\t|";

/// Reads the records of one log.
#[derive(Debug)]
pub(crate) struct CsvReader {
    reader: Reader,
    pub(crate) delimiter: u8,
    /// The fields of a record, concatenated, and the end of each.
    text: Box<[u8]>,
    ends: Box<[usize]>,
    pub(crate) columns: HeaderColumns,
}

impl CsvReader {
    /// Reads a header, and checks that it has a time and a client.
    pub(crate) fn of_header(
        header: &[u8],
        map: &FieldMap,
        is_client_needed: bool,
    ) -> Result<(Self, Result<(), LineError>), LineError> {
        let mut best = Self::delimited_by(header, b',', map)?;
        let mut check = best.columns.check(map, is_client_needed);
        for delimiter in DELIMITERS {
            if check.is_ok() {
                break;
            }
            let other = Self::delimited_by(header, delimiter, map)?;
            let of_other = other.columns.check(map, is_client_needed);
            if of_other.is_ok() || other.columns.names.len() > best.columns.names.len() {
                (best, check) = (other, of_other);
            }
        }
        Ok((best, check))
    }

    fn delimited_by(header: &[u8], delimiter: u8, map: &FieldMap) -> Result<Self, LineError> {
        let mut csv = Self {
            reader: ReaderBuilder::new().delimiter(delimiter).build(),
            delimiter,
            text: vec![0; LINE_BYTES_MAX].into(),
            ends: vec![0; FIELDS_MAX].into(),
            columns: HeaderColumns::of(Vec::new(), map),
        };
        let count = csv.split(header)?;
        let names = (0..count).map(|place| readable(csv.field(place)).trim().to_lowercase()).collect();
        csv.columns = HeaderColumns::of(names, map);
        Ok(csv)
    }

    pub(crate) fn read(&mut self, line: &[u8]) -> Result<LineFields<'_>, LineError> {
        let (count, wanted) = (self.split(line)?, self.columns.names.len());
        if count != wanted {
            return Err(LineError::with(
                "its number of fields is not that of the header",
                format!("it has {count} fields, the header {wanted}"),
            ));
        }
        Ok(self.columns.fields((0..count).map(|place| readable(self.field(place)))))
    }

    fn field(&self, place: usize) -> &[u8] {
        let start = place.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[start..self.ends[place]]
    }

    /// Splits a line, and returns how many fields it has.
    fn split(&mut self, line: &[u8]) -> Result<usize, LineError> {
        self.reader.reset();
        let (mut read, mut written, mut count) = (0, 0, 0);
        loop {
            // The end of the line is the end of the record.
            let (outcome, bytes, text, ends) =
                self.reader.read_record(&line[read..], &mut self.text[written..], &mut self.ends[count..]);
            (read, written, count) = (read + bytes, written + text, count + ends);
            match outcome {
                ReadRecordResult::InputEmpty => {}
                ReadRecordResult::Record | ReadRecordResult::End => return Ok(count),
                ReadRecordResult::OutputFull => return Err("it is too long".into()),
                ReadRecordResult::OutputEndsFull => return Err(format!("it has more than {FIELDS_MAX} fields").into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{client::ClientOptions, field_names::Meaning, fields::FieldsError, record::LogRecord};

    fn keyed(field: &str) -> FieldMap {
        let mut map = FieldMap::default();
        map.set(Meaning::User, field);
        map
    }

    fn record<'l>(csv: &'l mut CsvReader, line: &[u8]) -> Result<LogRecord<'l>, String> {
        let fields = csv.read(line).map_err(|error| error.to_string())?;
        fields.record(&ClientOptions::default(), None, false).map_err(|error| match error {
            FieldsError::Unreadable(error) => error.to_string(),
            other => format!("{other:?}"),
        })
    }

    #[test]
    fn records_are_read_by_the_names_of_the_header() {
        let header = b"Time,\"IP\", status,Path,user,Method,api key";
        let (mut csv, check) = CsvReader::of_header(header, &keyed("Api Key"), false).expect("a header");
        check.expect("it has all");
        let line = b"2015-05-17T10:05:03Z,192.0.2.7,200,\"/a,\"\"b\"\"\nc?d\",-,GET,k1";
        let found = record(&mut csv, line).expect("a record");
        assert_eq!((found.time, found.client.as_deref()), (1_431_857_103_000_000_000, Some("192.0.2.7")));
        assert_eq!(found.user.as_deref(), Some("k1"));
        assert_eq!(found.target.method.as_deref(), Some("GET"));
        assert_eq!(found.target.endpoint.as_deref(), Some("/a,\"b\"\nc"));
        for (line, why) in [
            ("1,192.0.2.7,200,/,-,GET", "6 fields, the header 7"),
            ("1,192.0.2.7,200,/,-,GET,k,", "8 fields"),
            ("noon,192.0.2.7,200,/,-,GET,k", "cannot be read"),
            (",192.0.2.7,200,/,-,GET,k", "NoTime"),
        ] {
            let refused = record(&mut csv, line.as_bytes()).expect_err(line);
            assert!(refused.contains(why), "{line}: {refused}");
        }
        // The longest line that is read.
        let longest = [&b"1431857103,192.0.2.7,200,/,-,GET,"[..], &vec![b'x'; LINE_BYTES_MAX - 33]].concat();
        let longest = record(&mut csv, &longest).expect("it fits");
        assert_eq!(longest.user.map(|user| user.len()), Some(LINE_BYTES_MAX - 33));
    }

    #[test]
    fn fields_stand_apart_as_spreadsheets_write_them() {
        for header in [
            "time,ip,path",
            "Time;IP;Path",
            "Timestamp;Client IP;URL",
            "time\tip\tpath",
            "time|ip|path",
            "\"Time\";\"IP\";\"a,b\"",
        ] {
            let (mut csv, check) =
                CsvReader::of_header(header.as_bytes(), &FieldMap::default(), true).expect("a header");
            check.expect(header);
            let line = ["1", "192.0.2.7", "/a"].join(&char::from(csv.delimiter).to_string());
            let found = record(&mut csv, line.as_bytes()).expect("a record");
            assert_eq!((found.time, found.client.as_deref()), (1_000_000_000, Some("192.0.2.7")), "{header}");
        }
    }

    #[test]
    fn what_a_header_lacks_is_named() {
        for (header, map, why) in [
            ("ip,path", FieldMap::default(), "no time"),
            ("time,path", FieldMap::default(), "no client; --map client=FIELD names it; its fields are `time`, `path`"),
            ("time;path", FieldMap::default(), "its fields are `time`, `path`"),
            ("time,path", keyed("api_key"), "no field `api_key`"),
            ("time,ip", keyed("api_key"), "no field `api_key`"),
        ] {
            let (_, check) = CsvReader::of_header(header.as_bytes(), &map, map.names.is_empty()).expect("names");
            let refused = check.expect_err(header).to_string();
            assert!(refused.contains(why), "{header}: {refused}");
        }
        let many = ",".repeat(FIELDS_MAX);
        assert!(CsvReader::of_header(many.as_bytes(), &FieldMap::default(), true).is_err());
        let (_, check) = CsvReader::of_header(b"time,api_key", &keyed("api_key"), false).expect("names");
        check.expect("an address need not be");
    }
}
