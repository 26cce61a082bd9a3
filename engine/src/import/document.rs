//! The YAML documents of a file, and what is wrong with one in plain words.

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_saphyr::Error;

use super::{ImportError, Source};
use crate::formats::{read_yaml, read_yaml_or, value_at};

/// A document of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Document<'a> {
    /// Which of the files, from 0.
    pub(super) file: usize,
    name: &'a str,
    text: &'a str,
    /// The lines of the file before it.
    lines_before: usize,
    /// What a document of its limiter is.
    is: &'static str,
}

impl<'a> Document<'a> {
    /// Returns the documents of the files in their order; a file in which nothing stands is one. `is` says what each is.
    pub(super) fn each_of(sources: &[Source<'a>], is: &'static str) -> Vec<Self> {
        let mut found = Vec::new();
        for (file, Source { name, text }) in sources.iter().enumerate() {
            let whole = Document { file, name, text, lines_before: 0, is };
            let count = found.len();
            let mut at = (0, 0);
            let mut end = (0, 0);
            for line in text.split_inclusive('\n') {
                if is_marker(line) {
                    found.extend(whole.part(at, end));
                    at = end;
                }
                end = (end.0 + line.len(), end.1 + 1);
            }
            found.extend(whole.part(at, end));
            if found.len() == count {
                found.push(whole);
            }
        }
        found
    }

    /// Returns what stands between two places (bytes, lines), if it is more than comments and directives.
    fn part(self, at: (usize, usize), end: (usize, usize)) -> Option<Self> {
        let text = &self.text[at.0..end.0];
        let is_content =
            |line: &str| !is_bare_marker(line) && !line.trim_start().starts_with('#') && !line.starts_with('%');
        let has_content = text.lines().any(|line| !line.trim().is_empty() && is_content(line));
        has_content.then_some(Self { text, lines_before: at.1, ..self })
    }

    /// Returns the line in the file of a line of the document.
    pub(super) fn line(&self, line: u64) -> usize {
        self.lines_before + line as usize
    }

    /// Returns an error about a field; `line` is that of the file.
    pub(super) fn wrong(
        &self,
        line: Option<usize>,
        path: impl Into<String>,
        message: impl Into<String>,
    ) -> ImportError {
        ImportError::new(self.file, self.name, line, path, message)
    }

    /// Reads it.
    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<T, ImportError> {
        read_yaml_or(self.text, |path, error| {
            let line = error.location().map(|location| location.line());
            self.explained(path, line, error)
        })
    }

    fn explained(&self, path: &str, line: Option<u64>, error: &Error) -> ImportError {
        // A value whose line is asked for is one step further down for its reader.
        let path = path.replace("].value", "]").replace("domain.value", "domain");
        let path = path.trim_end_matches('?').trim_end_matches('.');
        let in_file = line.map(|line| self.line(line));
        if let Some(message) = read_yaml::<Value>(self.text).ok().and_then(|whole| of_kubernetes(&whole, self.is)) {
            return self.wrong(Some(self.line(1)), "", message);
        }
        let message = match error.without_snippet() {
            Error::MultipleDocuments { .. } => {
                "several YAML documents; put a line `---` before each, or give each a file of its own".to_owned()
            }
            Error::SerdeUnknownField { .. } | Error::SerdeMissingField { .. } | Error::DuplicateMappingKey { .. } => {
                crate::formats::from_yaml(path, error).message
            }
            Error::Message { .. } | Error::ExternalMessage { .. } | Error::Eof { .. } => {
                format!("this is not YAML: {}", crate::formats::from_yaml(path, error).message)
            }
            _ => {
                let found =
                    value_at(self.text, path).map_or_else(|| "something else".to_owned(), |value| shown(&value));
                format!("{found} stands here; right is {}", self.expected(path))
            }
        };
        // In a list in brackets another bracket begins a list.
        let text = line.and_then(|line| self.text.lines().nth((line as usize).checked_sub(1)?));
        let is_bare = text.is_some_and(|text| text.contains("[descriptors[") || text.contains(", descriptors["));
        let hint = if is_bare { "; put each expression in quotes" } else { "" };
        self.wrong(in_file, path, format!("{message}{hint}"))
    }

    /// Returns what is right at a path.
    fn expected(&self, path: &str) -> &'static str {
        let field = path.rsplit('.').next().unwrap_or(path);
        match field.split('[').next().unwrap_or(field) {
            "" if path.is_empty() => self.is,
            "" => "a limit, with the fields `namespace`, `max_value` and `seconds`",
            "descriptors" if field.ends_with(']') => "a descriptor, with the field `key`",
            "replaces" if field.ends_with(']') => "the `name` of a limit",
            "conditions" | "variables" if field.ends_with(']') => "an expression in quotes",
            "descriptors" | "replaces" | "conditions" | "variables" => "a list",
            "rate_limit" => "a limit, with the fields `unit` and `requests_per_unit`",
            "requests_per_unit" => "a whole number from 0 to 4294967295",
            "max_value" | "seconds" => "a whole number from 0 to 18446744073709551615",
            "unlimited" | "shadow_mode" | "quota_mode" | "detailed_metric" | "value_to_metric" | "share_threshold" => {
                "`true` or `false`"
            }
            _ => "a text",
        }
    }
}

/// Begins another document.
fn is_marker(line: &str) -> bool {
    line.strip_prefix("---").is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace))
}

fn is_bare_marker(line: &str) -> bool {
    ["---", "..."].contains(&line.trim_end())
}

/// A value as a message shows it.
fn shown(value: &Value) -> String {
    const CHARACTERS_MAX: usize = 60;
    match value {
        Value::Null => "nothing".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a mapping".to_owned(),
        Value::String(text) => format!("`{}`", text.chars().take(CHARACTERS_MAX).collect::<String>()),
        other => format!("`{other}`"),
    }
}

/// Says where a resource of Kubernetes holds the file, if the document is one.
fn of_kubernetes(document: &Value, is: &str) -> Option<String> {
    document.get("apiVersion")?;
    let kind = document.get("kind")?.as_str()?;
    let keys = match kind {
        "ConfigMap" => document.get("data").and_then(Value::as_object),
        _ => None,
    };
    let held = keys.map(|keys| keys.keys().map(|key| format!("`data[\"{key}\"]`")).collect::<Vec<_>>().join(", "));
    let instead = match (kind, held.filter(|held| !held.is_empty())) {
        (_, Some(held)) => format!("the text of its key {held}"),
        ("Limitador", None) => "the list of its key `spec.limits`".to_owned(),
        _ => format!("the file that the limiter itself reads, {is}"),
    };
    Some(format!("a resource of Kubernetes of the kind `{kind}`; put into a file of its own {instead}, and give that"))
}

#[cfg(all(test, not(engine_loom)))]
mod tests {
    use super::*;

    #[test]
    fn documents_are_apart_and_know_their_lines() {
        let of = |text: &str| -> Vec<(usize, String)> {
            let each = Document::each_of(&[Source { name: "a", text }], "a");
            each.into_iter().map(|it| (it.line(1), it.text.to_owned())).collect()
        };
        let found =
            |each: &[(usize, &str)]| each.iter().map(|(line, text)| (*line, (*text).to_owned())).collect::<Vec<_>>();
        assert_eq!(of("a: 1\n---\nb: 1\n"), found(&[(1, "a: 1\n"), (2, "---\nb: 1\n")]));
        assert_eq!(of("# x\n%YAML 1.2\n---\na: 1\n...\n---\n\n---\n"), found(&[(3, "---\na: 1\n...\n")]));
        assert_eq!(of("--- { a: 1 }\n--- { b: 1 }"), found(&[(1, "--- { a: 1 }\n"), (2, "--- { b: 1 }")]));
        assert_eq!(of("a: ---\n---b: 1\n"), found(&[(1, "a: ---\n---b: 1\n")]));
        assert_eq!(of(""), found(&[(1, "")]));
    }
}
