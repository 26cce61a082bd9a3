//! The reason for which a line cannot be read.

use std::{borrow::Cow, fmt};

/// Characters of a line that are shown.
const FOUND_MAX: usize = 60;

/// The problem of a line, and the text that stands there. Lines with the same problem are of one kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LineError {
    /// The problem and the way out.
    pub(crate) problem: Cow<'static, str>,
    detail: Option<String>,
}

impl LineError {
    /// A problem with what stands there.
    pub(crate) fn of(problem: impl Into<Cow<'static, str>>, found: impl AsRef<[u8]>) -> Self {
        Self::with(problem, format!("here stands `{}`", shown(found.as_ref())))
    }

    /// A problem with what stands from a column on.
    pub(crate) fn of_column(problem: impl Into<Cow<'static, str>>, column: usize, found: &str) -> Self {
        Self::with(problem, format!("from column {column} on stands `{}`", shown(found.as_bytes())))
    }

    /// A problem with a sentence about this line.
    pub(crate) fn with(problem: impl Into<Cow<'static, str>>, detail: String) -> Self {
        Self { problem: problem.into(), detail: Some(detail) }
    }
}

/// Returns the beginning of a text of a line.
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
