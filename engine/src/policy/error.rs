//! Policy errors: problems with the field, the line where it is known, and the remedy.

use std::fmt;

/// One problem of a policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// The field, such as `domains.default.tiers[0].limits[1].burst`; empty for the whole document.
    pub path: String,
    /// The line of the field, from 1.
    pub line: Option<usize>,
    /// A message that says what is wrong and what would be right.
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

/// All problems of a policy, never empty. For a policy that was read from text, they are in the order of its lines.
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
        let lines: Vec<String> = self.0.iter().map(Problem::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for Problems {}

/// Collects problems below one field of the document. The path is formatted only for a problem: a policy may have a hundred
/// thousand clients, nearly all of them valid.
pub(crate) struct ProblemCollector<'r> {
    at: FieldPath<'r>,
    found: &'r mut Vec<Problem>,
}

/// The path of a field, as a list from the field up to the document.
#[derive(Clone, Copy)]
enum FieldPath<'r> {
    Document,
    /// A field, or one item of a list.
    Field {
        within: &'r FieldPath<'r>,
        name: &'r str,
        place: Option<usize>,
    },
}

impl<'r> ProblemCollector<'r> {
    pub(crate) fn new(found: &'r mut Vec<Problem>) -> Self {
        Self { at: FieldPath::Document, found }
    }

    /// Returns the report for a field below this one.
    pub(crate) fn field<'f>(&'f mut self, name: &'f str) -> ProblemCollector<'f> {
        ProblemCollector { at: FieldPath::Field { within: &self.at, name, place: None }, found: self.found }
    }

    /// Returns the report for an item of the list `name` below this field.
    pub(crate) fn item<'f>(&'f mut self, name: &'f str, place: usize) -> ProblemCollector<'f> {
        ProblemCollector { at: FieldPath::Field { within: &self.at, name, place: Some(place) }, found: self.found }
    }

    /// Adds a problem of this field.
    pub(crate) fn wrong(&mut self, message: impl Into<String>) {
        self.found.push(Problem { path: self.at.to_string(), line: None, message: message.into() });
    }
}

impl fmt::Display for FieldPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Field { within, name, place } = self else { return Ok(()) };
        within.fmt(f)?;
        let dot = if matches!(within, Self::Document) { "" } else { "." };
        write!(f, "{dot}{name}")?;
        place.map_or(Ok(()), |place| write!(f, "[{place}]"))
    }
}
