//! Preview of a log before it is used: the first lines as they were parsed, unreadable lines with their errors, the range of
//! times, and the number of clients.

use std::{
    collections::{HashSet, hash_map::RandomState},
    fmt,
    hash::BuildHasher,
    io::{self, Read},
};

use serde::Serialize;
use tidegate::time::Nanos;

use crate::{
    Utc,
    log::{
        decode::{self, BoundedReader, LogTooLong},
        entries::{LogEntries, LogEntry},
        format::LogOptions,
        record::LogRecord,
    },
};

/// Most parsed lines in a preview.
const LINES_SHOWN: usize = 20;
/// Most unreadable lines in a preview.
const REFUSED_SHOWN: usize = 20;

/// Preview of a log.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LogPreview {
    /// Lines that are not blank.
    pub lines: u64,
    /// Lines that make a request.
    pub requests: u64,
    /// Lines without a client, which no limit counts.
    pub without_client: u64,
    /// Lines that cannot be read.
    pub refused: u64,
    /// The first lines that cannot be read.
    pub first_refused: Vec<RefusedLine>,
    /// Time of the earliest request.
    pub from: Option<Utc>,
    /// Time of the latest request.
    pub to: Option<Utc>,
    /// Distinct addresses.
    pub clients: u64,
    /// Distinct users, or values of the chosen field.
    pub users: u64,
    /// The field names of the first lines, if their format has names, as JSON and CSV do.
    pub fields: Vec<String>,
    /// The first requests, as they were parsed.
    pub first: Vec<LogLine>,
}

/// A line as it was parsed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LogLine {
    /// The line number, from 1.
    pub line: u64,
    /// Time of the request.
    pub at: Utc,
    /// The address, if there is one.
    pub ip: Option<String>,
    /// The user, or the value of the chosen field, if there is one.
    pub user: Option<String>,
    /// The method.
    pub method: Option<String>,
    /// The path, without its query.
    pub endpoint: Option<String>,
}

impl LogLine {
    fn new(number: u64, record: LogRecord<'_>) -> Self {
        Self {
            line: number,
            at: Utc(record.time),
            ip: record.client.map(Into::into),
            user: record.user.map(Into::into),
            method: record.target.method.map(Into::into),
            endpoint: record.target.endpoint.map(Into::into),
        }
    }
}

/// A line that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RefusedLine {
    /// The line number, from 1.
    pub line: u64,
    /// The error.
    pub why: String,
}

/// A log that cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum LogPreviewError {
    /// Reading failed.
    Broken(io::Error),
    /// The log has more lines than this.
    TooManyLines(u64),
    /// The decompressed log has more bytes than this.
    TooLong(u64),
    /// No line makes a request; the first unreadable line.
    Unreadable(Option<RefusedLine>),
}

impl fmt::Display for LogPreviewError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken(error) => write!(f, "the log cannot be read to its end: {error}"),
            Self::TooManyLines(most) => write!(f, "the log has more than {most} lines; send a part of it"),
            Self::TooLong(most) => LogTooLong(*most).fmt(f),
            Self::Unreadable(None) => f.write_str("the log has no line"),
            Self::Unreadable(Some(RefusedLine { line, why })) => {
                write!(f, "no line of the log can be read; line {line}: {why}")
            }
        }
    }
}

impl std::error::Error for LogPreviewError {}

impl From<io::Error> for LogPreviewError {
    fn from(error: io::Error) -> Self {
        match error.get_ref().and_then(|why| why.downcast_ref()) {
            Some(LogTooLong(most)) => Self::TooLong(*most),
            None => Self::Broken(error),
        }
    }
}

/// Reads a whole log, gzip or plain. Memory grows by 8 bytes for each distinct client and user.
pub fn preview_log(
    log: impl Read,
    reading: &LogOptions,
    lines_max: u64,
    bytes_max: u64,
) -> Result<LogPreview, LogPreviewError> {
    let mut entries = LogEntries::new(BoundedReader::new(decode::plain(log)?, bytes_max), reading);
    let hasher = RandomState::new();
    let (mut clients, mut users): (HashSet<u64>, HashSet<u64>) = Default::default();
    let (mut from, mut to): (Nanos, Nanos) = (Nanos::MAX, 0);
    let mut preview = LogPreview::default();
    while let Some((number, entry)) = entries.next()? {
        let outcome = match entry {
            LogEntry::Nothing => continue,
            LogEntry::NoClient(_) => Ok(None),
            LogEntry::Request(record, _) => Ok(Some(record)),
            LogEntry::Refused(why) => Err(why),
        };
        preview.lines += 1;
        if preview.lines > lines_max {
            return Err(LogPreviewError::TooManyLines(lines_max));
        }
        match outcome {
            Ok(None) => preview.without_client += 1,
            Ok(Some(record)) => {
                preview.requests += 1;
                (from, to) = (from.min(record.time), to.max(record.time));
                if let Some(client) = &record.client {
                    clients.insert(hasher.hash_one(&**client));
                }
                if let Some(user) = &record.user {
                    users.insert(hasher.hash_one(&**user));
                }
                if preview.first.len() < LINES_SHOWN {
                    preview.first.push(LogLine::new(number, record));
                }
            }
            Err(why) => {
                preview.refused += 1;
                if preview.first_refused.len() < REFUSED_SHOWN {
                    preview.first_refused.push(RefusedLine { line: number, why: why.to_string() });
                }
            }
        }
    }
    if preview.requests == 0 {
        return Err(LogPreviewError::Unreadable(preview.first_refused.first().cloned()));
    }
    (preview.from, preview.to) = (Some(Utc(from)), Some(Utc(to)));
    (preview.clients, preview.users) = (clients.len() as u64, users.len() as u64);
    preview.fields = entries.parser.fields();
    Ok(preview)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"192.0.2.7 - ada [05/Jan/2026:09:00:01 +0000] "GET /b?x HTTP/1.1" 200 5"#;

    #[test]
    fn a_log_is_shown_as_it_was_understood() {
        let earlier = LINE.replace("09:00:01", "08:59:00").replace("ada", "-").replace("2.7", "2.8");
        let log = format!("{LINE}\nnonsense\n\n{earlier}\n{LINE}");
        let look = preview_log(log.as_bytes(), &LogOptions::default(), 4, log.len() as u64).expect("a good log");
        assert_eq!((look.lines, look.requests, look.refused), (4, 3, 1));
        assert_eq!((look.clients, look.users), (2, 1));
        let told = [look.from, look.to].map(|at| at.expect("there are requests").to_string());
        assert_eq!(told, ["2026-01-05T08:59:00Z", "2026-01-05T09:00:01Z"]);
        assert_eq!(look.first_refused[0].line, 2);
        let lines: Vec<_> = look.first.iter().map(|line| (line.line, line.endpoint.as_deref())).collect();
        assert_eq!(lines, [(1, Some("/b")), (4, Some("/b")), (5, Some("/b"))]);
    }

    #[test]
    fn fields_that_have_names_are_told() {
        let json =
            "{\"time\":1,\"ip\":\"192.0.2.7\",\"api_key\":\"k\"}\n{\"time\":1,\"ip\":\"192.0.2.7\",\"more\":1}\n";
        let csv = "time,IP,API_Key\n1,192.0.2.7,k\n";
        for (log, fields) in
            [(json, &["api_key", "ip", "more", "time"][..]), (csv, &["api_key", "ip", "time"]), (LINE, &[])]
        {
            assert_eq!(preview_log(log.as_bytes(), &LogOptions::default(), 9, 999).expect("a good log").fields, fields);
        }
        let key = Some(crate::LogKey::new("api_key", "api_key").expect("a kind"));
        let look =
            preview_log(csv.as_bytes(), &LogOptions { key, ..LogOptions::default() }, 9, 999).expect("a good log");
        assert_eq!((look.lines, look.requests, look.users, look.first[0].line), (1, 1, 1, 2));
        assert_eq!((look.first[0].ip.as_deref(), look.first[0].user.as_deref()), (Some("192.0.2.7"), Some("k")));
    }

    #[test]
    fn what_is_too_much_or_nothing_is_refused() {
        let look = |log: &str, lines, bytes| {
            preview_log(log.as_bytes(), &LogOptions::default(), lines, bytes).map(|look| look.lines)
        };
        let log = format!("{LINE}\n{LINE}\n");
        assert!(matches!(look(&log, 2, log.len() as u64), Ok(2)));
        assert!(matches!(look(&log, 1, u64::MAX), Err(LogPreviewError::TooManyLines(1))));
        // The bound holds anywhere: in a line, before the last line end, in a line that is too long.
        for bytes in [0, 1, LINE.len(), LINE.len() + 1, log.len() - 2, log.len() - 1] {
            let most = bytes as u64;
            assert!(matches!(look(&log, 9, most), Err(LogPreviewError::TooLong(it)) if it == most), "{bytes}");
        }
        let good = format!("{LINE}\n");
        let endless = good.as_bytes().chain(io::repeat(0));
        assert!(matches!(preview_log(endless, &LogOptions::default(), 9, 1 << 24), Err(LogPreviewError::TooLong(_))));
        let stretched = format!("{LINE}\n{}\n", "x".repeat(1 << 20));
        assert!(matches!(look(&stretched, 9, stretched.len() as u64), Ok(2)));
        assert!(matches!(look(&stretched, 9, stretched.len() as u64 - 1), Err(LogPreviewError::TooLong(_))));
        assert!(matches!(look("", 9, 9), Err(LogPreviewError::Unreadable(None))));
        assert!(matches!(look("x\ny\n", 9, 9), Err(LogPreviewError::Unreadable(Some(RefusedLine { line: 1, .. })))));
    }
}
