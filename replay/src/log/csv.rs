//! CSV (RFC 4180): a header with the names that JSON lines have too, in any case, then a record a line.

use csv_core::{ReadRecordResult, Reader};

use super::{
    fields::{CLIENT, Fields, TIME, is_known},
    format::LogKey,
    lines::LINE_BYTES_MAX,
    record::{Record, Why, readable},
};

/// The most fields of a record.
const FIELDS_MAX: usize = 1_000;
/// Some programs write it before a header.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Reads the records of one log.
#[derive(Debug)]
pub(crate) struct Csv {
    reader: Reader,
    /// The fields of a record, one after the other, and where each ends.
    text: Box<[u8]>,
    ends: Box<[usize]>,
    /// Names by their places, in lower case.
    pub(crate) names: Vec<String>,
    /// Place of the field that says who came.
    key: Option<usize>,
}

impl Csv {
    /// Reads a header.
    pub(crate) fn of_header(header: &[u8], key: Option<&LogKey>) -> Result<Self, Why> {
        let mut csv = Self {
            reader: Reader::new(),
            text: vec![0; LINE_BYTES_MAX].into(),
            ends: vec![0; FIELDS_MAX].into(),
            names: Vec::new(),
            key: None,
        };
        let count = csv.split(header.strip_prefix(BYTE_ORDER_MARK).unwrap_or(header))?;
        csv.names = (0..count).map(|place| readable(csv.field(place)).trim().to_lowercase()).collect();
        csv.key = key.and_then(|key| csv.names.iter().position(|name| *name == key.field.to_lowercase()));
        Ok(csv)
    }

    /// What the header lacks to tell requests.
    pub(crate) fn check(&self, key: Option<&LogKey>) -> Result<(), Why> {
        let has = |known: &[&str]| self.names.iter().any(|name| known.contains(&name.as_str()));
        match key {
            _ if !has(&TIME) => Err("the header has no time; its name is `time`, or one of those of JSON lines".into()),
            None if !has(&CLIENT) => {
                Err("the header has no client; its name is `ip`, or one of those of JSON lines".into())
            }
            Some(key) if self.key.is_none() => Err(format!("the header has no field `{}`", key.field).into()),
            _ => Ok(()),
        }
    }

    /// Reads a record; also answers the field that says who came.
    pub(crate) fn read(&mut self, line: &[u8]) -> Result<(Record<'_>, Option<&str>), Why> {
        let count = self.split(line)?;
        if count != self.names.len() {
            return Err(format!("it has {count} fields, the header {}", self.names.len()).into());
        }
        let this = &*self;
        let mut fields = Fields::default();
        for (place, name) in this.names.iter().enumerate().filter(|(_, name)| is_known(name)) {
            fields.put_text(name, readable(this.field(place)));
        }
        let key = this.key.map(|key| str::from_utf8(this.field(key)).map_err(|_| "it is not UTF-8")).transpose()?;
        Ok((fields.record()?, key))
    }

    fn field(&self, place: usize) -> &[u8] {
        let start = place.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[start..self.ends[place]]
    }

    /// Takes a line apart, and answers how many fields it has.
    fn split(&mut self, line: &[u8]) -> Result<usize, Why> {
        self.reader.reset();
        let (mut read, mut written, mut count) = (0, 0, 0);
        loop {
            // The end of the input is the end of the record.
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

    fn key(field: &str) -> LogKey {
        LogKey::new(field, "api_key").expect("valid")
    }

    #[test]
    fn records_are_read_by_the_names_of_the_header() {
        let key = key("Api Key");
        let header = b"\xef\xbb\xbfTime,\"IP\", status,Path,user,Method,api key";
        let mut csv = Csv::of_header(header, Some(&key)).expect("a header");
        csv.check(Some(&key)).expect("it has all");
        let line = b"2015-05-17T10:05:03Z,192.0.2.7,200,\"/a,\"\"b\"\"\nc?d\",-,GET,k1";
        let (record, found) = csv.read(line).expect("a record");
        assert_eq!((record.time, record.client.as_deref()), (1_431_857_103_000_000_000, Some("192.0.2.7")));
        assert_eq!((record.user.as_deref(), found), (None, Some("k1")));
        assert_eq!(record.target.method.as_deref(), Some("GET"));
        assert_eq!(record.target.endpoint.as_deref(), Some("/a,\"b\"\nc"));
        for (line, why) in [
            ("1,a,200,/,-,GET", "6 fields, the header 7"),
            ("1,a,200,/,-,GET,k,", "8 fields"),
            ("noon,a,200,/,-,GET,k", "cannot be read"),
            (",a,200,/,-,GET,k", "no time"),
        ] {
            let refused = csv.read(line.as_bytes()).expect_err(line);
            assert!(refused.contains(why), "{line}: {refused}");
        }
        // As long as a line may be.
        let longest = [&b"1,a,200,/,-,GET,"[..], &vec![b'x'; LINE_BYTES_MAX - 16]].concat();
        assert_eq!(csv.read(&longest).expect("it fits").1.map(str::len), Some(LINE_BYTES_MAX - 16));
    }

    #[test]
    fn what_a_header_lacks_is_named() {
        let key = key("api_key");
        for (header, by, why) in [
            ("ip,path", None, "no time"),
            ("time,path", None, "no client"),
            ("time,path", Some(&key), "no field `api_key`"),
            ("time,ip", Some(&key), "no field `api_key`"),
        ] {
            let refused = Csv::of_header(header.as_bytes(), by).expect("names").check(by).expect_err(header);
            assert!(refused.contains(why), "{header}: {refused}");
        }
        let many = ",".repeat(FIELDS_MAX);
        assert!(Csv::of_header(many.as_bytes(), None).is_err());
        Csv::of_header(b"time,api_key", Some(&key))
            .and_then(|csv| csv.check(Some(&key)))
            .expect("an address need not be");
    }
}
