//! What is wrong with a policy: the field, the line where that is known, and what to do.

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

/// Collects problems below one field of the document.
pub(crate) struct Report<'r> {
    path: String,
    found: &'r mut Vec<Problem>,
}

impl<'r> Report<'r> {
    pub(crate) fn new(found: &'r mut Vec<Problem>) -> Self {
        Self { path: String::new(), found }
    }

    /// The report of a field below this one.
    pub(crate) fn field(&mut self, name: &str) -> Report<'_> {
        let path = if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) };
        Report { path, found: self.found }
    }

    /// The report of an item of the list `name` below this field.
    pub(crate) fn item(&mut self, name: &str, place: usize) -> Report<'_> {
        self.field(&format!("{name}[{place}]"))
    }

    /// This field is wrong.
    pub(crate) fn wrong(&mut self, message: impl Into<String>) {
        self.found.push(Problem { path: self.path.clone(), line: None, message: message.into() });
    }

    /// A parameter of this field does not fit.
    pub(crate) fn unfit(&mut self, unfit: Unfit) {
        self.field(unfit.field).wrong(unfit.message);
    }
}
