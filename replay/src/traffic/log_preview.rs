//! What a log looks like, before a policy is asked with it: the first lines as they were understood, lines that were
//! refused and why, from when to when, how many clients.

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
        decode::{self, Bounded, TooLong},
        entries::{Entries, Entry},
        format::LogReading,
    },
};

/// Lines that are shown as they were understood.
const SHOWN: usize = 20;
/// Refused lines that are named.
const REFUSED_NAMED: usize = 20;

/// What a log looks like.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LogLook {
    /// Lines that are not blank.
    pub lines: u64,
    /// Lines that make a request.
    pub requests: u64,
    /// Lines that name no client, which no limit is asked for.
    pub without_client: u64,
    /// Lines that cannot be read.
    pub refused: u64,
    /// The first of those.
    pub first_refused: Vec<RefusedLine>,
    /// Time of the earliest request.
    pub from: Option<Utc>,
    /// Time of the latest request.
    pub to: Option<Utc>,
    /// Addresses that differ.
    pub clients: u64,
    /// Users that differ, or values of the field that was chosen.
    pub users: u64,
    /// The names of the fields of its first lines, where they have names: of JSON and CSV.
    pub fields: Vec<String>,
    /// The first requests, as they were understood.
    pub first: Vec<LogLine>,
}

/// A line that was understood.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LogLine {
    /// Its number, from 1.
    pub line: u64,
    /// When.
    pub at: Utc,
    /// The address, if it names one.
    pub ip: Option<String>,
    /// The user, if it names one, or what the field says that was chosen.
    pub user: Option<String>,
    /// The method.
    pub method: Option<String>,
    /// The path, without its query.
    pub endpoint: Option<String>,
}

/// A line that was not understood.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RefusedLine {
    /// Its number, from 1.
    pub line: u64,
    /// What is wrong with it.
    pub why: String,
}

/// A log that cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum LookError {
    /// Reading broke off.
    Broken(io::Error),
    /// It has more lines than this.
    TooManyLines(u64),
    /// Unpacked it has more bytes than this.
    TooLong(u64),
    /// Not one line makes a request; the first of them.
    Unreadable(Option<RefusedLine>),
}

impl fmt::Display for LookError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken(error) => write!(f, "the log cannot be read to its end: {error}"),
            Self::TooManyLines(most) => write!(f, "the log has more than {most} lines; send a part of it"),
            Self::TooLong(most) => TooLong(*most).fmt(f),
            Self::Unreadable(None) => f.write_str("the log has no line"),
            Self::Unreadable(Some(RefusedLine { line, why })) => {
                write!(f, "no line of the log can be read; line {line}: {why}")
            }
        }
    }
}

impl std::error::Error for LookError {}

impl From<io::Error> for LookError {
    fn from(error: io::Error) -> Self {
        match error.get_ref().and_then(|why| why.downcast_ref()) {
            Some(TooLong(most)) => Self::TooLong(*most),
            None => Self::Broken(error),
        }
    }
}

/// Reads a whole log, gzip or plain. Of who differs it keeps 8 bytes each.
pub fn look_at(log: impl Read, reading: &LogReading, lines_max: u64, bytes_max: u64) -> Result<LogLook, LookError> {
    let mut entries = Entries::new(Bounded::new(decode::plain(log)?, bytes_max), reading);
    let hasher = RandomState::new();
    let (mut clients, mut users): (HashSet<u64>, HashSet<u64>) = Default::default();
    let (mut from, mut to): (Nanos, Nanos) = (Nanos::MAX, 0);
    let mut look = LogLook {
        lines: 0,
        requests: 0,
        without_client: 0,
        refused: 0,
        first_refused: Vec::new(),
        from: None,
        to: None,
        clients: 0,
        users: 0,
        fields: Vec::new(),
        first: Vec::new(),
    };
    while let Some((number, entry)) = entries.next()? {
        let outcome = match entry {
            Entry::Nothing => continue,
            Entry::NoClient(_) => Ok(None),
            Entry::Request(record, _) => Ok(Some(record)),
            Entry::Refused(why) => Err(why),
        };
        look.lines += 1;
        if look.lines > lines_max {
            return Err(LookError::TooManyLines(lines_max));
        }
        match outcome {
            Ok(None) => look.without_client += 1,
            Ok(Some(record)) => {
                look.requests += 1;
                (from, to) = (from.min(record.time), to.max(record.time));
                if let Some(client) = &record.client {
                    clients.insert(hasher.hash_one(&**client));
                }
                if let Some(user) = &record.user {
                    users.insert(hasher.hash_one(&**user));
                }
                if look.first.len() < SHOWN {
                    look.first.push(LogLine {
                        line: number,
                        at: Utc(record.time),
                        ip: record.client.map(Into::into),
                        user: record.user.map(Into::into),
                        method: record.target.method.map(Into::into),
                        endpoint: record.target.endpoint.map(Into::into),
                    });
                }
            }
            Err(why) => {
                look.refused += 1;
                if look.first_refused.len() < REFUSED_NAMED {
                    look.first_refused.push(RefusedLine { line: number, why: why.to_string() });
                }
            }
        }
    }
    if look.requests == 0 {
        return Err(LookError::Unreadable(look.first_refused.first().cloned()));
    }
    (look.from, look.to) = (Some(Utc(from)), Some(Utc(to)));
    (look.clients, look.users) = (clients.len() as u64, users.len() as u64);
    look.fields = entries.fields();
    Ok(look)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"192.0.2.7 - ada [05/Jan/2026:09:00:01 +0000] "GET /b?x HTTP/1.1" 200 5"#;

    #[test]
    fn a_log_is_shown_as_it_was_understood() {
        let earlier = LINE.replace("09:00:01", "08:59:00").replace("ada", "-").replace("2.7", "2.8");
        let log = format!("{LINE}\nnonsense\n\n{earlier}\n{LINE}");
        let look = look_at(log.as_bytes(), &LogReading::default(), 4, log.len() as u64).expect("a good log");
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
            assert_eq!(look_at(log.as_bytes(), &LogReading::default(), 9, 999).expect("a good log").fields, fields);
        }
        let key = Some(crate::LogKey::new("api_key", "api_key").expect("a kind"));
        let look = look_at(csv.as_bytes(), &LogReading { key, ..LogReading::default() }, 9, 999).expect("a good log");
        assert_eq!((look.lines, look.requests, look.users, look.first[0].line), (1, 1, 1, 2));
        assert_eq!((look.first[0].ip.as_deref(), look.first[0].user.as_deref()), (Some("192.0.2.7"), Some("k")));
    }

    #[test]
    fn what_is_too_much_or_nothing_is_refused() {
        let look = |log: &str, lines, bytes| {
            look_at(log.as_bytes(), &LogReading::default(), lines, bytes).map(|look| look.lines)
        };
        let log = format!("{LINE}\n{LINE}\n");
        assert!(matches!(look(&log, 2, log.len() as u64), Ok(2)));
        assert!(matches!(look(&log, 1, u64::MAX), Err(LookError::TooManyLines(1))));
        // Nothing is lost by where it would be cut: in a line, before the last end of one, in a line that is too long.
        for bytes in [0, 1, LINE.len(), LINE.len() + 1, log.len() - 2, log.len() - 1] {
            let most = bytes as u64;
            assert!(matches!(look(&log, 9, most), Err(LookError::TooLong(it)) if it == most), "{bytes}");
        }
        let good = format!("{LINE}\n");
        let endless = good.as_bytes().chain(io::repeat(0));
        assert!(matches!(look_at(endless, &LogReading::default(), 9, 1 << 24), Err(LookError::TooLong(_))));
        let stretched = format!("{LINE}\n{}\n", "x".repeat(1 << 20));
        assert!(matches!(look(&stretched, 9, stretched.len() as u64), Ok(2)));
        assert!(matches!(look(&stretched, 9, stretched.len() as u64 - 1), Err(LookError::TooLong(_))));
        assert!(matches!(look("", 9, 9), Err(LookError::Unreadable(None))));
        assert!(matches!(look("x\ny\n", 9, 9), Err(LookError::Unreadable(Some(RefusedLine { line: 1, .. })))));
    }
}
