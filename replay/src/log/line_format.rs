//! Format of a line as it was detected, for the report.

use std::fmt;

/// Format of a line without its prefixes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BaseFormat {
    Common,
    Combined,
    OldIngress,
    Json,
    Csv,
    W3c,
    Alb,
}

/// Text that other programs or the server itself write before or around a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LinePrefix {
    /// The name of a file or the number of a line, as `grep` writes it.
    FileName,
    /// A timestamp, a stream or a name, as container runtimes, kubectl and Docker Compose write them.
    Container,
    Syslog,
    /// A JSON object with the line in a field, as Docker and log collectors write it.
    Wrapped,
    Vhost,
}

impl LinePrefix {
    const ALL: [(Self, &'static str); 5] = [
        (Self::FileName, "file name first"),
        (Self::Container, "container stamp first"),
        (Self::Syslog, "syslog header first"),
        (Self::Wrapped, "in a field of JSON"),
        (Self::Vhost, "vhost first"),
    ];
}

/// Format of a line: its base format and its prefixes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LineFormat {
    base: BaseFormat,
    /// A bit for each [`LinePrefix`].
    prefixes: u8,
}

impl LineFormat {
    pub(crate) fn new(base: BaseFormat) -> Self {
        Self { base, prefixes: 0 }
    }

    /// Returns this format with one more prefix.
    #[must_use]
    pub(crate) fn behind(self, prefix: LinePrefix) -> Self {
        Self { prefixes: self.prefixes | 1 << prefix as u8, ..self }
    }
}

impl fmt::Display for LineFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.base {
            BaseFormat::Common => "common",
            BaseFormat::Combined => "combined",
            BaseFormat::OldIngress => "ingress-nginx of old",
            BaseFormat::Json => "JSON",
            BaseFormat::Csv => "CSV",
            BaseFormat::W3c => "W3C extended",
            BaseFormat::Alb => "AWS load balancer",
        })?;
        let before = LinePrefix::ALL.iter().filter(|(prefix, _)| self.prefixes & 1 << *prefix as u8 != 0);
        before.map(|(_, name)| name).try_for_each(|name| write!(f, ", {name}"))
    }
}
