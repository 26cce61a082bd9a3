//! Which format a line has, and what every format tells: who came, when, and for what.

use std::{borrow::Cow, str::FromStr};

use arrayvec::ArrayVec;
use tidegate::{Identity, Request, RequestError};

use crate::{clients::Kind, combined, csv::Csv, json, stamp::Stamps};

/// Lines whose fields are named.
const LINES_NAMED: u64 = 20;
/// Names of fields that are told.
const NAMES_MAX: usize = 100;

/// The format of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LogFormat {
    /// CSV where the first line is a header of it; else line by line: one that begins with `{` is JSON, every other is common
    /// or combined.
    #[default]
    Auto,
    /// `ADDRESS IDENT USER [TIME] "REQUEST" STATUS BYTES`; whatever comes after it is left alone.
    Common,
    /// Common, then `"REFERER" "AGENT"`.
    Combined,
    /// One JSON object a line.
    Json,
    /// A header, then a record a line (RFC 4180).
    Csv,
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "auto" => Ok(Self::Auto),
            "common" => Ok(Self::Common),
            "combined" => Ok(Self::Combined),
            "json" => Ok(Self::Json),
            "csv" => Ok(Self::Csv),
            _ => Err(format!("`{name}` is not a log format; auto, common, combined, json and csv are")),
        }
    }
}

/// How a log is read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LogReading {
    /// What its lines are.
    pub format: LogFormat,
    /// The field that says who came, if it is not those that are known by their names.
    pub key: Option<LogKey>,
}

/// A field of JSON lines or CSV that says who came: in the place of the user, or of the address where `kind` is `ip`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogKey {
    pub(crate) field: String,
    pub(crate) kind: String,
}

impl LogKey {
    /// By the field's name, and the kind of identity that it says.
    ///
    /// # Errors
    ///
    /// Identities have no such kind.
    pub fn new(field: &str, kind: &str) -> Result<Self, RequestError> {
        Identity::new(kind, "any")?;
        Ok(Self { field: field.to_owned(), kind: kind.to_owned() })
    }

    /// Name of the field.
    #[must_use]
    pub fn field(&self) -> &str {
        &self.field
    }

    /// Kind of identity.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }
}

impl From<LogFormat> for LogReading {
    fn from(format: LogFormat) -> Self {
        Self { format, key: None }
    }
}

impl LogReading {
    /// The kind of identity that stands beside the address.
    pub(crate) fn kind(&self) -> &str {
        self.key.as_ref().map(LogKey::kind).filter(|kind| *kind != Kind::IP).unwrap_or(Kind::USER)
    }
}

/// One request, as its line tells it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Record<'l> {
    pub(crate) time: u64,
    /// The address. It or the user is there.
    pub(crate) client: Option<Cow<'l, str>>,
    pub(crate) user: Option<Cow<'l, str>>,
    /// What kind of identity the user is.
    pub(crate) kind: &'l str,
    pub(crate) target: Target<'l>,
}

/// What was asked for, as far as it can be told: servers log requests that never became one, too.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Target<'l> {
    pub(crate) method: Option<Cow<'l, str>>,
    /// The path without its query.
    pub(crate) endpoint: Option<Cow<'l, str>>,
}

/// Why a line cannot be read.
pub(crate) type Why = Cow<'static, str>;

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

impl Record<'_> {
    /// Makes its request.
    pub(crate) fn with_request<T>(&self, run: impl FnOnce(&Request<'_>) -> T) -> Result<T, RequestError> {
        let (method, endpoint) = (self.target.method.as_deref(), self.target.endpoint.as_deref());
        with_request(self.client.as_deref(), self.user.as_deref().map(|user| (self.kind, user)), method, endpoint, run)
    }
}

/// Makes the request of a line: the client's address, and the user, of a kind and with a value, as far as the log has them.
pub(crate) fn with_request<T>(
    client: Option<&str>,
    user: Option<(&str, &str)>,
    method: Option<&str>,
    endpoint: Option<&str>,
    run: impl FnOnce(&Request<'_>) -> T,
) -> Result<T, RequestError> {
    let client = client.map(|client| Identity::new(Kind::IP, client)).transpose()?;
    let user = user.map(|(kind, value)| Identity::new(kind, value)).transpose()?;
    let both: ArrayVec<_, 2> = client.into_iter().chain(user).collect();
    let mut request = Request::new(&both)?;
    if let Some(method) = method {
        request = request.method(method);
    }
    if let Some(endpoint) = endpoint {
        request = request.endpoint(endpoint)?;
    }
    Ok(run(&request))
}

/// The longest word that is taken for a method.
const METHOD_BYTES_MAX: usize = 32;

impl<'l> Target<'l> {
    /// Of a request line: `GET /path HTTP/1.1`, `GET /path`, or a path alone. A path may have spaces, as some clients
    /// send them. Bytes that are not UTF-8 are replaced.
    pub(crate) fn of_request(request: &'l [u8]) -> Self {
        let request = request.trim_ascii();
        if request.first() == Some(&b'/') {
            return Self { method: None, endpoint: Some(endpoint(request)) };
        }
        let Some(space) = memchr::memchr(b' ', request) else { return Self::default() };
        let (method, path) = (&request[..space], request[space..].trim_ascii());
        if method.len() > METHOD_BYTES_MAX || !method.iter().all(|b| b.is_ascii_alphabetic() || b"-_".contains(b)) {
            return Self::default();
        }
        let path = match memchr::memrchr(b' ', path) {
            Some(space) if path[space + 1..].starts_with(b"HTTP/") => path[..space].trim_ascii_end(),
            _ => path,
        };
        if path.is_empty() || path.starts_with(b"HTTP/") {
            return Self::default();
        }
        Self { method: Some(readable(method)), endpoint: Some(endpoint(path)) }
    }

    /// Of a method and a path or address in fields of their own.
    pub(crate) fn of_fields(method: Option<Cow<'l, str>>, path: Option<Cow<'l, str>>) -> Self {
        let endpoint = path.filter(|path| !path.is_empty() && path != "-").map(|path| match path {
            Cow::Borrowed(path) => endpoint(path.as_bytes()),
            Cow::Owned(path) => Cow::Owned(endpoint(path.as_bytes()).into_owned()),
        });
        let is_method = |method: &Cow<'_, str>| (1..=METHOD_BYTES_MAX).contains(&method.len()) && method != "-";
        Self { method: method.filter(is_method), endpoint }
    }
}

/// Text, with bytes that are not UTF-8 replaced. Nearly all is UTF-8, and that is found out fastest by itself.
pub(crate) fn readable(bytes: &[u8]) -> Cow<'_, str> {
    std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

/// The path of `address`, without scheme, host, query and fragment.
fn endpoint(address: &[u8]) -> Cow<'_, str> {
    let end = memchr::memchr2(b'?', b'#', address).unwrap_or(address.len());
    let path = &address[..end];
    if path.first() == Some(&b'/') {
        return readable(path);
    }
    let is_scheme = |scheme: &[u8]| !scheme.is_empty() && scheme.iter().all(u8::is_ascii_alphanumeric);
    let after_scheme = memchr::memmem::find(path, b"://").filter(|&at| is_scheme(&path[..at])).map(|at| at + 3);
    match after_scheme.map(|host| (host, memchr::memchr(b'/', &path[host..]))) {
        Some((host, Some(slash))) => readable(&path[host + slash..]),
        Some((_, None)) => Cow::Borrowed("/"),
        None => readable(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_lines_become_methods_and_paths() {
        for (request, method, path) in [
            ("GET /a/b?q=1 HTTP/1.1", Some("GET"), Some("/a/b")),
            ("GET /a", Some("GET"), Some("/a")),
            ("GET /a b HTTP/1.0", Some("GET"), Some("/a b")),
            ("GET /HTTP/x HTTP/1.0", Some("GET"), Some("/HTTP/x")),
            ("M-SEARCH * HTTP/1.1", Some("M-SEARCH"), Some("*")),
            ("GET http://example.org/a?q HTTP/1.1", Some("GET"), Some("/a")),
            ("GET http://example.org HTTP/1.1", Some("GET"), Some("/")),
            ("GET https://example.org?q HTTP/1.1", Some("GET"), Some("/")),
            ("GET /to/http://example.org HTTP/1.1", Some("GET"), Some("/to/http://example.org")),
            ("CONNECT example.org:443 HTTP/1.1", Some("CONNECT"), Some("example.org:443")),
            ("/only#here", None, Some("/only")),
            ("GET / HTTP/1.1", Some("GET"), Some("/")),
            ("-", None, None),
            ("", None, None),
            ("GET", None, None),
            ("GET HTTP/1.1", None, None),
            (r"\x16\x03\x01 \x00", None, None),
        ] {
            let target = Target::of_request(request.as_bytes());
            assert_eq!((target.method.as_deref(), target.endpoint.as_deref()), (method, path), "{request}");
        }
        assert_eq!(Target::of_request(b"GET /\xff HTTP/1.1").endpoint.as_deref(), Some("/\u{fffd}"));
    }
}
