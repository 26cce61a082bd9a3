//! The form that a line was read by, for the report.

use std::fmt;

/// Forms of a line, without what stands before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Base {
    Common,
    Combined,
    OldIngress,
    Json,
    Csv,
    W3c,
    Alb,
}

/// Text that other programs, or the server itself, write before a line or around it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Prefix {
    /// The name of a file or the number of a line, as `grep` writes it.
    FileName,
    /// A stamp, a stream or a name, as container runtimes, kubectl and Docker Compose write them.
    Container,
    /// A header of syslog.
    Syslog,
    /// The line is a field of an object of JSON, as Docker and collectors of logs write it.
    Wrapped,
    /// The virtual host.
    Vhost,
}

impl Prefix {
    const ALL: [(Self, &'static str); 5] = [
        (Self::FileName, "file name first"),
        (Self::Container, "container stamp first"),
        (Self::Syslog, "syslog header first"),
        (Self::Wrapped, "in a field of JSON"),
        (Self::Vhost, "vhost first"),
    ];
}

/// The form of a line: what it is, and what stood before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Form {
    base: Base,
    /// A bit for each [`Prefix`].
    prefixes: u8,
}

impl Form {
    pub(crate) fn new(base: Base) -> Self {
        Self { base, prefixes: 0 }
    }

    /// The same behind one more prefix.
    #[must_use]
    pub(crate) fn behind(self, prefix: Prefix) -> Self {
        Self { prefixes: self.prefixes | 1 << prefix as u8, ..self }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.base {
            Base::Common => "common",
            Base::Combined => "combined",
            Base::OldIngress => "ingress-nginx of old",
            Base::Json => "JSON",
            Base::Csv => "CSV",
            Base::W3c => "W3C extended",
            Base::Alb => "AWS load balancer",
        })?;
        let before = Prefix::ALL.iter().filter(|(prefix, _)| self.prefixes & 1 << *prefix as u8 != 0);
        before.map(|(_, name)| name).try_for_each(|name| write!(f, ", {name}"))
    }
}
