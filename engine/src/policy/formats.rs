//! Formats of policy documents: reads TOML, YAML and JSON with errors that name the field and the line, and writes them.
//!
//! `syntax` words the errors of a text that is not in its format, `deserializer` those of a wrong field, `tables` refuses lists in
//! the place of tables, `write` formats a document.

mod deserializer;
mod syntax;
mod tables;
mod write;

use std::{fmt, marker::PhantomData, ops::Range, path::Path, str::FromStr};

use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use self::tables::Tables;
use crate::policy::{
    compiled::Snapshot,
    document::Policy,
    error::{Problem, Problems},
};

/// A text format of policies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Format {
    /// TOML 1.0.
    Toml,
    /// YAML 1.2.
    Yaml,
    /// JSON.
    Json,
}

/// The byte order mark that some editors put before a text.
const BYTE_ORDER_MARK: char = '\u{feff}';

impl Format {
    /// Returns the format for the extension of a file: `.toml`, `.yaml`, `.yml` or `.json`.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        path.extension()?.to_str()?.parse().ok()
    }
}

/// The error of a name that is no [`Format`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownFormat(String);

impl fmt::Display for UnknownFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not a policy format; toml, yaml and json are", self.0)
    }
}

impl std::error::Error for UnknownFormat {}

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, UnknownFormat> {
        match name.to_ascii_lowercase().as_str() {
            "toml" => Ok(Self::Toml),
            "yaml" | "yml" => Ok(Self::Yaml),
            "json" => Ok(Self::Json),
            _ => Err(UnknownFormat(name.to_owned())),
        }
    }
}

impl Policy {
    /// Reads a document. The error has one problem, the first of the text.
    pub fn parse(text: &str, format: Format) -> Result<Self, Problems> {
        let text = text.trim_start_matches(BYTE_ORDER_MARK);
        read(text, format).map_err(|problem| Problems(vec![syntax::foreign_document(text, format).unwrap_or(problem)]))
    }
}

impl Snapshot {
    /// Reads and compiles a document. Every problem names its field, the first twenty their lines too.
    pub fn parse(text: &str, format: Format) -> Result<Self, Problems> {
        Self::parse_with_policy(text, format).map(|(snapshot, _)| snapshot)
    }

    /// Reads and compiles a document, and returns the document too.
    pub fn parse_with_policy(text: &str, format: Format) -> Result<(Self, Policy), Problems> {
        let policy = Policy::parse(text, format)?;
        let compiled = Self::compile(&policy).map_err(|mut problems| {
            // Finding a line reads the document once more.
            for problem in problems.0.iter_mut().take(20) {
                problem.line = line_of(text, format, &steps_of(&problem.path));
            }
            problems.0.sort_by_key(|problem| (problem.line.is_none(), problem.line));
            problems
        });
        Ok((compiled?, policy))
    }
}

/// Reads a YAML document. A problem names the field and the line, and says that `wanted` would be right.
#[cfg(feature = "tools")]
pub(crate) fn read_yaml_document<T: DeserializeOwned>(text: &str, wanted: &str) -> Result<T, Problem> {
    read_yaml(text).map_err(|problem| {
        syntax::other_document(text, Format::Yaml, wanted).unwrap_or_else(|| {
            match problem.message.split_once(" stands here; write ") {
                Some((found, _)) if problem.path.is_empty() => {
                    Problem { message: deserializer::stands_here(found, wanted), ..problem }
                }
                _ => problem,
            }
        })
    })
}

/// Reads any YAML document. A problem names the field and the line.
pub fn read_yaml<T: DeserializeOwned>(text: &str) -> Result<T, Problem> {
    read(text.trim_start_matches(BYTE_ORDER_MARK), Format::Yaml)
}

/// Reads any TOML document. A problem names the field and the line.
pub fn read_toml<T: DeserializeOwned>(text: &str) -> Result<T, Problem> {
    read(text.trim_start_matches(BYTE_ORDER_MARK), Format::Toml)
}

/// An error of a JSON text.
// Exhaustive: a reader of a request maps each variant to its own error.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum JsonError {
    /// The text is not JSON: the line and the problem.
    Syntax(String),
    /// A field does not have the right value.
    Field {
        /// The field, as a JSON pointer (RFC 6901); empty for the whole document.
        pointer: String,
        /// A message that says what was found and what would be right.
        message: String,
    },
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(problem) => write!(f, "not JSON: {problem}"),
            Self::Field { pointer, message } if pointer.is_empty() => f.write_str(message),
            Self::Field { pointer, message } => write!(f, "{pointer}: {message}"),
        }
    }
}

impl std::error::Error for JsonError {}

/// Reads a JSON text.
pub fn read_json<T: DeserializeOwned>(text: &str) -> Result<T, JsonError> {
    read_once(text, Format::Json)
        .map_err(|problem| json_error(text, problem, |value| from_json_value::<T>(value, text).map(drop)))
}

/// Rewords an error of `serde_json` about a text, for the crates of this repository; it may change in any version. `check` reads a value into the type that the text should have.
#[doc(hidden)]
pub fn plain_json_error(
    text: &str,
    error: &serde_json::Error,
    check: impl Fn(&Value) -> Result<(), JsonError>,
) -> JsonError {
    json_error(text, from_json("", error), check)
}

fn json_error(text: &str, problem: Problem, check: impl Fn(&Value) -> Result<(), JsonError>) -> JsonError {
    let value = match read_once(text, Format::Json) {
        Ok(value) => value,
        Err(problem) => {
            let message = syntax::in_plain_words(&problem, Format::Json);
            let message = message.unwrap_or_else(|| syntax::unknown_error(Format::Json));
            let line = problem.line.map(|line| format!("line {line}: ")).unwrap_or_default();
            return JsonError::Syntax(format!("{line}{}", message.trim_start_matches("not JSON: ")));
        }
    };
    // A value does not show a repeated field.
    check(&value).err().unwrap_or_else(|| JsonError::Field {
        pointer: pointer_of(&steps_of(&problem.path)),
        message: syntax::in_plain_words(&problem, Format::Json).unwrap_or(problem.message),
    })
}

/// Reads a JSON value into a type, for the crates of this repository; it may change in any version. Messages quote numbers as they are written in `text`, from which the value was read.
#[doc(hidden)]
pub fn from_json_value<'v, T: serde::Deserialize<'v>>(value: &'v Value, text: &str) -> Result<T, JsonError> {
    deserializer::read(value, Format::Json).map_err(|error| JsonError::Field {
        pointer: pointer_of(&error.path),
        message: with_written_number(error, text, Format::Json),
    })
}

fn pointer_of(steps: &[Step<'_>]) -> String {
    steps.iter().fold(String::new(), |pointer, step| match step {
        Step::Key(key) => format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1")),
        Step::Item(place) => format!("{pointer}/{place}"),
    })
}

fn read<T: DeserializeOwned>(text: &str, format: Format) -> Result<T, Problem> {
    read_once(text, format).map_err(|problem: Problem| {
        // A type that keeps its own line is read as a field `value`.
        let path = problem.path.replace("].value", "]");
        let value = match read_once::<Value>(text, format) {
            Ok(value) => value,
            // A TOML integer that a JSON value cannot hold: the type's own message says what is right.
            Err(_) if problem.message.contains(" is out of range; expected ") => return Problem { path, ..problem },
            Err(problem) => {
                let message = syntax::in_plain_words(&problem, format).unwrap_or_else(|| syntax::unknown_error(format));
                let message = match written_at(text, format, &steps_of(&problem.path)) {
                    Some(written) => {
                        message.replace("this number", &format!("`{}`", deserializer::shortened(&written)))
                    }
                    None => message,
                };
                return Problem { message, ..problem };
            }
        };
        let Err(error) = deserializer::read::<T>(&value, format) else {
            // A value does not show everything, such as a repeated key.
            let message = syntax::in_plain_words(&problem, format).unwrap_or(problem.message);
            return Problem { path, message, ..problem };
        };
        let normalized_path = path_of(&error.path);
        let is_same_place = path.strip_suffix(".value").unwrap_or(&path) == normalized_path || path == normalized_path;
        let is_list = deserializer::at(&value, &steps_of(&path)).is_some_and(Value::is_array);
        if is_list && !is_same_place && problem.message.contains("expected mapping start") {
            return Problem { path, message: deserializer::stands_here("a list", deserializer::TABLE), ..problem };
        }
        let line = if is_same_place { problem.line } else { None };
        let line = line.or_else(|| line_of(text, format, &error.path)).or(problem.line);
        let message = with_written_number(error, text, format);
        Problem { path: normalized_path, line, message }
    })
}

/// Returns the message with a number as it is written in the text. Numbers beyond 64 bits and fractions would look different.
fn with_written_number(error: deserializer::PlainError<'_>, text: &str, format: Format) -> String {
    let quoted = error.message.strip_prefix('`').and_then(|rest| rest.split_once('`'));
    let number = quoted.filter(|(quoted, _)| quoted.parse::<f64>().is_ok());
    match number.and_then(|(_, rest)| Some((written_at(text, format, &error.path)?, rest))) {
        Some((written, rest)) => format!("`{}`{rest}", deserializer::shortened(written.trim_matches(['"', '\'']))),
        None => error.message,
    }
}

/// Reads a document, with the original messages of the library.
fn read_once<T: DeserializeOwned>(text: &str, format: Format) -> Result<T, Problem> {
    match format {
        Format::Toml => {
            let document = toml::Deserializer::parse(text).map_err(|error| from_toml("", &error, text))?;
            let read = serde_path_to_error::deserialize(Tables(document));
            read.map_err(|error| from_toml(&error.path().to_string(), error.inner(), text))
        }
        Format::Json => {
            let mut document = serde_json::Deserializer::from_str(text);
            let read = serde_path_to_error::deserialize(Tables(&mut document));
            let value = read.map_err(|error| from_json(&error.path().to_string(), error.inner()))?;
            document.end().map_err(|error| from_json("", &error))?;
            Ok(value)
        }
        Format::Yaml => {
            let mut path = String::new();
            let outcome = serde_saphyr::with_deserializer_from_str_with_options(text, yaml_options(text), |document| {
                serde_path_to_error::deserialize(Tables(document)).map_err(|error| {
                    path = error.path().to_string();
                    error.into_inner()
                })
            });
            outcome.map_err(|error| from_yaml(&path, &error))
        }
    }
}

/// Returns the limits for reading YAML. The caller bounds the length of the text, which bounds all that is written once. Depth
/// and aliases, which make a long document of a short text, have the library's default bounds.
fn yaml_options(text: &str) -> serde_saphyr::Options {
    let usual = serde_saphyr::Budget::default();
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_nodes: usual.max_nodes.max(2 * text.len()),
            max_events: usual.max_events.max(2 * text.len()),
            max_total_scalar_bytes: usual.max_total_scalar_bytes.max(text.len()),
        },
    }
}

fn from_toml(path: &str, error: &toml::de::Error, text: &str) -> Problem {
    let line = error.span().map(|span| line_at(text, span.start));
    // The library reports a missing value as a text without quotes.
    let before = error.span().filter(Range::is_empty).and_then(|span| text.get(..span.start));
    let is_missing = before.is_some_and(|before| before.trim_end().ends_with('='));
    let message = if is_missing { "key with no value" } else { error.message().trim_end() };
    Problem { path: plain(path), line, message: message.to_owned() }
}

fn from_json(path: &str, error: &serde_json::Error) -> Problem {
    let message = error.to_string();
    // serde_json repeats the line at the end of its message.
    let message = message.split(" at line ").next().unwrap_or(&message).to_owned();
    Problem { path: plain(path), line: (error.line() > 0).then(|| error.line()), message }
}

fn from_yaml(path: &str, error: &serde_saphyr::Error) -> Problem {
    let line = error.location().map(|location| location.line() as usize);
    let message = error.without_snippet().to_string();
    // The line and the snippet are shown by the caller.
    let message = message.lines().next().unwrap_or_default();
    let message = message.split(" at line ").next().unwrap_or(message).trim_start_matches("error: ");
    // The rest is advice to programmers.
    let message = message.split(", set DuplicateKeyPolicy").next().unwrap_or(message).to_owned();
    Problem { path: plain(path), line, message }
}

/// Returns a path of serde without the `.` for the whole document and the `?` for a field whose name was not read.
fn plain(path: &str) -> String {
    path.trim_end_matches('?').trim_end_matches('.').to_owned()
}

fn line_at(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|&byte| byte == b'\n').count()
}

/// Returns the line of the field at a path, or of the nearest field above it that the text has.
fn line_of(text: &str, format: Format, path: &[Step<'_>]) -> Option<usize> {
    (1..=path.len()).rev().find_map(|depth| {
        let path = &path[..depth];
        match format {
            Format::Toml => Some(line_at(text, toml_span(text, path)?.start)),
            // JSON is YAML, so the reader of YAML finds its lines.
            Format::Yaml | Format::Json => {
                Some(yaml_value::<serde_saphyr::Spanned<IgnoredAny>>(text, path)?.referenced.line() as usize)
            }
        }
    })
}

/// Returns the value at a path as it is written in the text, if it is neither a list nor a table.
fn written_at(text: &str, format: Format, path: &[Step<'_>]) -> Option<String> {
    match format {
        Format::Toml => text.get(toml_span(text, path)?).map(ToOwned::to_owned),
        Format::Yaml | Format::Json => yaml_value(text, path),
    }
}

fn toml_span(text: &str, path: &[Step<'_>]) -> Option<Range<usize>> {
    let document = toml::Deserializer::parse(text).ok()?;
    let found: Option<toml::Spanned<IgnoredAny>> = Follow(path, PhantomData).deserialize(document).ok()?;
    found.map(|found| found.span())
}

fn yaml_value<T: DeserializeOwned>(text: &str, path: &[Step<'_>]) -> Option<T> {
    serde_saphyr::with_deserializer_from_str_with_options(text, yaml_options(text), |document| {
        Follow(path, PhantomData).deserialize(document)
    })
    .ok()?
}

/// Parses a path such as `limits[1].burst`.
fn steps_of(path: &str) -> Vec<Step<'_>> {
    path.split('.').flat_map(Step::of).filter(|step| !matches!(step, Step::Key(""))).collect()
}

fn path_of(steps: &[Step<'_>]) -> String {
    steps.iter().fold(String::new(), |path, step| match step {
        Step::Key(key) if path.is_empty() => (*key).to_owned(),
        Step::Key(key) => format!("{path}.{key}"),
        Step::Item(place) => format!("{path}[{place}]"),
    })
}

#[derive(Clone, Copy, Debug)]
enum Step<'p> {
    Key(&'p str),
    Item(usize),
}

impl<'p> Step<'p> {
    /// Parses a part between dots: `limits[1]` is two steps.
    fn of(part: &'p str) -> impl Iterator<Item = Self> {
        let (key, item) = part.split_once('[').unwrap_or((part, ""));
        let item = item.strip_suffix(']').and_then(|place| place.parse().ok());
        std::iter::once(Self::Key(key)).chain(item.map(Self::Item))
    }
}

/// A seed that reads the value at a path of a document in any format, and skips everything else.
struct Follow<'p, T>(&'p [Step<'p>], PhantomData<T>);

impl<'de, T: serde::Deserialize<'de>> DeserializeSeed<'de> for Follow<'_, T> {
    type Value = Option<T>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        if self.0.is_empty() {
            return T::deserialize(deserializer).map(Some);
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: serde::Deserialize<'de>> Visitor<'de> for Follow<'_, T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table or a list")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(key) = entries.next_key::<String>()? {
            match self.0 {
                [Step::Key(wanted), below @ ..] if key == *wanted => {
                    found = entries.next_value_seed(Follow(below, PhantomData))?;
                }
                _ => drop(entries.next_value::<IgnoredAny>()?),
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        for place in 0.. {
            let item = match self.0 {
                [Step::Item(wanted), below @ ..] if place == *wanted => {
                    items.next_element_seed(Follow(below, PhantomData))?
                }
                _ => items.next_element::<IgnoredAny>()?.map(|_| None),
            };
            match item {
                Some(item) => found = item.or(found),
                None => break,
            }
        }
        Ok(found)
    }
}
