//! Error of a line that cannot be read.

use std::{borrow::Cow, fmt};

/// Most characters of a line that an error shows.
const FOUND_MAX: usize = 60;

/// The problem of a line, and its text. Lines with the same problem are counted together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LineError {
    /// The problem, and how to solve it.
    pub(crate) problem: Cow<'static, str>,
    detail: Option<String>,
}

impl LineError {
    /// Creates an error that shows the text at fault.
    pub(crate) fn of(problem: impl Into<Cow<'static, str>>, found: impl AsRef<[u8]>) -> Self {
        Self::with(problem, format!("here stands `{}`", shown(found.as_ref())))
    }

    /// Creates an error that shows the text from a column on.
    pub(crate) fn of_column(problem: impl Into<Cow<'static, str>>, column: usize, found: &str) -> Self {
        Self::with(problem, format!("from column {column} on stands `{}`", shown(found.as_bytes())))
    }

    /// Creates an error with a detail about this line.
    pub(crate) fn with(problem: impl Into<Cow<'static, str>>, detail: String) -> Self {
        Self { problem: problem.into(), detail: Some(detail) }
    }
}

/// Returns the beginning of a text.
fn shown(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let mut shown: String = text.chars().take(FOUND_MAX).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

impl<T: Into<Cow<'static, str>>> From<T> for LineError {
    fn from(problem: T) -> Self {
        Self { problem: problem.into(), detail: None }
    }
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)?;
        self.detail.as_ref().map_or(Ok(()), |detail| write!(f, "; {detail}"))
    }
}
