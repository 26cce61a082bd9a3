//! Errors of a policy: the field, the line where that is known, and what to do.

use std::fmt;

use crate::algorithm::Unfit;

/// One thing that is wrong with a policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// The field, such as `domains.default.tiers[0].limits[1].burst`; empty for the whole document.
    pub path: String,
    /// The line that the field stands on, from 1.
    pub line: Option<usize>,
    /// What is wrong, and what would be right.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

/// Everything that is wrong with a policy; read from text, in the order of its lines. Never empty.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problems(pub(crate) Vec<Problem>);

impl Problems {
    /// The problems.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, problem) in self.0.iter().enumerate() {
            if place > 0 {
                f.write_str("\n")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// Collects problems below one field of the document. Its path is written when something is wrong there: a policy may have
/// a hundred thousand clients, nearly all of them right.
pub(crate) struct Report<'r> {
    at: Place<'r>,
    found: &'r mut Vec<Problem>,
}

/// A field, by the fields that it is in.
#[derive(Clone, Copy)]
enum Place<'r> {
    Document,
    Field { within: &'r Place<'r>, name: &'r str },
    Item { within: &'r Place<'r>, name: &'r str, place: usize },
}

impl<'r> Report<'r> {
    pub(crate) fn new(found: &'r mut Vec<Problem>) -> Self {
        Self { at: Place::Document, found }
    }

    /// The report of a field below this one.
    pub(crate) fn field<'f>(&'f mut self, name: &'f str) -> Report<'f> {
        Report { at: Place::Field { within: &self.at, name }, found: self.found }
    }

    /// The report of an item of the list `name` below this field.
    pub(crate) fn item<'f>(&'f mut self, name: &'f str, place: usize) -> Report<'f> {
        Report { at: Place::Item { within: &self.at, name, place }, found: self.found }
    }

    /// This field is wrong.
    pub(crate) fn wrong(&mut self, message: impl Into<String>) {
        self.found.push(Problem { path: self.at.to_string(), line: None, message: message.into() });
    }

    /// A parameter of this field does not fit.
    pub(crate) fn unfit(&mut self, unfit: Unfit) {
        self.field(unfit.field).wrong(unfit.message);
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Field { within, name } | Self::Item { within, name, .. }) = self else { return Ok(()) };
        within.fmt(f)?;
        let dot = if matches!(within, Self::Document) { "" } else { "." };
        match self {
            Self::Item { place, .. } => write!(f, "{dot}{name}[{place}]"),
            _ => write!(f, "{dot}{name}"),
        }
    }
}
