//! Splits files into YAML documents, and reads each with the lines of the file in its errors.

use serde::de::DeserializeOwned;

use super::{ImportError, Source};
use crate::policy::formats::read_yaml_document;

/// A YAML document of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct YamlDocument<'a> {
    /// The index of the file, from 0.
    pub(super) file: usize,
    name: &'a str,
    text: &'a str,
    /// The number of lines of the file before the document.
    lines_before: usize,
    /// A description of the limiter's documents.
    is: &'static str,
}

impl<'a> YamlDocument<'a> {
    /// Returns the documents of the files in their order. An empty file counts as one. `is` describes the limiter's documents.
    pub(super) fn each_of(sources: &[Source<'a>], is: &'static str) -> Vec<Self> {
        let mut found = Vec::new();
        for (file, Source { name, text }) in sources.iter().enumerate() {
            let whole = YamlDocument { file, name, text, lines_before: 0, is };
            let count = found.len();
            let mut at = (0, 0);
            let mut end = (0, 0);
            for line in text.split_inclusive('\n') {
                if is_marker(line) {
                    found.extend(whole.part(at, end));
                    at = end;
                }
                end = (end.0 + line.len(), end.1 + 1);
                if line.trim_end() == "..." {
                    found.extend(whole.part(at, end));
                    at = end;
                }
            }
            found.extend(whole.part(at, end));
            if found.len() == count {
                found.push(whole);
            }
        }
        found
    }

    /// Returns the document between two positions (bytes, lines), if it is more than comments and directives.
    fn part(self, at: (usize, usize), end: (usize, usize)) -> Option<Self> {
        let text = &self.text[at.0..end.0];
        let is_content =
            |line: &str| !is_bare_marker(line) && !line.trim_start().starts_with('#') && !line.starts_with('%');
        let has_content = text.lines().any(|line| !line.trim().is_empty() && is_content(line));
        has_content.then_some(Self { text, lines_before: at.1, ..self })
    }

    /// Converts a line of the document to a line of the file.
    pub(super) fn line(&self, line: u64) -> usize {
        self.lines_before + line as usize
    }

    /// Returns an error about a field. `line` is a line of the file.
    pub(super) fn wrong(
        &self,
        line: Option<usize>,
        path: impl Into<String>,
        message: impl Into<String>,
    ) -> ImportError {
        ImportError::new(self.file, self.name, line, path, message)
    }

    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<T, ImportError> {
        read_yaml_document(self.text, self.is).map_err(|problem| {
            let line = problem.line.map(|line| self.lines_before + line);
            self.wrong(line, problem.path, problem.message)
        })
    }
}

/// Returns whether a line begins another document.
fn is_marker(line: &str) -> bool {
    line.strip_prefix("---").is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace))
}

fn is_bare_marker(line: &str) -> bool {
    ["---", "..."].contains(&line.trim_end())
}

#[cfg(all(test, not(engine_loom)))]
mod tests {
    use super::*;

    #[test]
    fn documents_are_split_and_keep_their_lines() {
        let of = |text: &str| -> Vec<(usize, String)> {
            let each = YamlDocument::each_of(&[Source { name: "a", text }], "a");
            each.into_iter().map(|it| (it.line(1), it.text.to_owned())).collect()
        };
        let found =
            |each: &[(usize, &str)]| each.iter().map(|(line, text)| (*line, (*text).to_owned())).collect::<Vec<_>>();
        assert_eq!(of("a: 1\n---\nb: 1\n"), found(&[(1, "a: 1\n"), (2, "---\nb: 1\n")]));
        assert_eq!(of("# x\n%YAML 1.2\n---\na: 1\n...\n---\n\n---\n"), found(&[(3, "---\na: 1\n...\n")]));
        assert_eq!(of("--- { a: 1 }\n--- { b: 1 }"), found(&[(1, "--- { a: 1 }\n"), (2, "--- { b: 1 }")]));
        assert_eq!(of("a: 1\n...\nb: 1\n"), found(&[(1, "a: 1\n...\n"), (3, "b: 1\n")]));
        assert_eq!(of("a: ---\n---b: 1\n"), found(&[(1, "a: ---\n---b: 1\n")]));
        assert_eq!(of(""), found(&[(1, "")]));
    }
}
