//! Errors of logs and lines that cannot be read.

use std::{error::Error, fmt, io};

use crate::log::fields::listed;

/// A line that could not be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnreadableLine {
    /// Name of the log.
    pub log: String,
    /// Line number, from 1; blank lines count.
    pub number: u64,
    /// The error.
    pub why: String,
}

impl fmt::Display for UnreadableLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.log, self.number, self.why)
    }
}

/// A log that could not be read to its end, or not at all.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReadError {
    /// Reading failed. Lines before the failure count.
    Broken {
        /// Name of the log.
        log: String,
        /// Lines that were read.
        lines: u64,
        /// The cause.
        error: io::Error,
    },
    /// The log has lines, and none of them can be read.
    Unreadable {
        /// The first line.
        first: UnreadableLine,
        /// Number of lines.
        lines: u64,
    },
    /// A field that the field map names is in no line of any JSON log.
    NoField {
        /// The field.
        field: String,
        /// The fields of the first lines.
        fields: Vec<String>,
    },
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken { log, lines: 0, error } => write!(f, "{log}: cannot be read: {error}"),
            Self::Broken { log, lines, error } => {
                write!(f, "{log}: cannot be read beyond line {lines}: {error}; what was read counts")
            }
            Self::NoField { field, fields } => {
                write!(f, "no line has the field `{field}` that --map names; {}", listed(fields))
            }
            Self::Unreadable { first, lines: 1 } => write!(f, "{first}; it is the only line"),
            Self::Unreadable { first, lines } => {
                write!(f, "{}: none of its {lines} lines can be read; line {}: {}", first.log, first.number, first.why)
            }
        }
    }
}

impl Error for ReadError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Broken { error, .. } => Some(error),
            Self::Unreadable { .. } | Self::NoField { .. } => None,
        }
    }
}
