//! Policy documents from text, and back: TOML, YAML and JSON carry the same document.

mod plain;
mod syntax;
mod write;

use std::{fmt, path::Path, str::FromStr};

use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::{
    policy::Policy,
    problem::{Problem, Problems},
    snapshot::Snapshot,
};

/// A text format of policies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// TOML 1.0.
    Toml,
    /// YAML 1.2.
    Yaml,
    /// JSON.
    Json,
}

/// Some editors put it before a text.
const BYTE_ORDER_MARK: char = '\u{feff}';

impl Format {
    /// The format that a file's name says: `.toml`, `.yaml`, `.yml` or `.json`.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        path.extension()?.to_str()?.parse().ok()
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name.to_ascii_lowercase().as_str() {
            "toml" => Ok(Self::Toml),
            "yaml" | "yml" => Ok(Self::Yaml),
            "json" => Ok(Self::Json),
            _ => Err(format!("`{name}` is not a policy format; toml, yaml and json are")),
        }
    }
}

impl Policy {
    /// Reads a document. The one problem of the error is the first that the text has.
    pub fn parse(text: &str, format: Format) -> Result<Self, Problems> {
        let text = text.trim_start_matches(BYTE_ORDER_MARK);
        read(text, format).map_err(|problem| Problems(vec![syntax::foreign(text, format).unwrap_or(problem)]))
    }
}

impl Snapshot {
    /// Reads and compiles a document. Every problem names its field, the first twenty their lines too.
    pub fn parse(text: &str, format: Format) -> Result<Self, Problems> {
        Self::parse_with_policy(text, format).map(|(snapshot, _)| snapshot)
    }

    /// The same, with the document.
    pub fn parse_with_policy(text: &str, format: Format) -> Result<(Self, Policy), Problems> {
        let policy = Policy::parse(text, format)?;
        let compiled = Self::compile(&policy).map_err(|mut problems| {
            // Finding a line reads the document once more.
            for problem in problems.0.iter_mut().take(20) {
                problem.line = line_of(text, format, &problem.path);
            }
            problems.0.sort_by_key(|problem| (problem.line.is_none(), problem.line));
            problems
        });
        Ok((compiled?, policy))
    }
}

/// Reads any YAML document. The problem names the field and the line.
pub fn read_yaml<T: DeserializeOwned>(text: &str) -> Result<T, Problem> {
    read(text.trim_start_matches(BYTE_ORDER_MARK), Format::Yaml)
}

fn read<T: DeserializeOwned>(text: &str, format: Format) -> Result<T, Problem> {
    read_once(text, format).map_err(|problem| {
        let value = match read_once::<Value>(text, format) {
            Ok(value) => value,
            Err(problem) => return syntax::in_plain_words(problem, format),
        };
        // A value does not show all, such as a key that stands there twice.
        let Err(plain) = plain::read::<T>(&value, format) else { return syntax::in_plain_words(problem, format) };
        // The same place: the library knows its line. One that notes its own line is read as a field `value` there.
        let below = problem.path.strip_prefix(&plain.path);
        if below.is_some_and(|below| below.is_empty() || below.starts_with(".value")) {
            Problem { message: plain.message, ..problem }
        } else {
            Problem { line: line_of(text, format, &plain.path).or(problem.line), ..plain }
        }
    })
}

/// Reads a document, with errors in the words of the library that reads it.
fn read_once<T: DeserializeOwned>(text: &str, format: Format) -> Result<T, Problem> {
    match format {
        Format::Toml => {
            let document = toml::Deserializer::parse(text).map_err(|error| from_toml("", &error, text))?;
            let read = serde_path_to_error::deserialize(document);
            read.map_err(|error| from_toml(&error.path().to_string(), error.inner(), text))
        }
        Format::Json => {
            let mut document = serde_json::Deserializer::from_str(text);
            let read = serde_path_to_error::deserialize(&mut document);
            let value = read.map_err(|error| from_json(&error.path().to_string(), error.inner()))?;
            document.end().map_err(|error| from_json("", &error))?;
            Ok(value)
        }
        Format::Yaml => read_yaml_or(text, from_yaml),
    }
}

/// Reads any document of YAML; `wrong` makes its error of the path and what is wrong there.
pub(crate) fn read_yaml_or<T: DeserializeOwned, E>(
    text: &str,
    wrong: impl FnOnce(&str, &serde_saphyr::Error) -> E,
) -> Result<T, E> {
    let mut path = String::new();
    let outcome = serde_saphyr::with_deserializer_from_str_with_options(text, yaml_options(text), |document| {
        serde_path_to_error::deserialize(document).map_err(|error| {
            path = error.path().to_string();
            error.into_inner()
        })
    });
    outcome.map_err(|error| wrong(&path, &error))
}

/// Returns what stands at `path` of a document of YAML.
pub(crate) fn value_at(text: &str, path: &str) -> Option<Value> {
    // A list at the top has no name.
    let steps: Vec<Step<'_>> =
        path.split('.').flat_map(Step::of).filter(|step| !matches!(step, Step::Key(""))).collect();
    let options = yaml_options(text);
    let found = serde_saphyr::with_deserializer_from_str_with_options(text, options, |document| {
        Follow::new(&steps).deserialize(document)
    });
    found.ok()?
}

/// Whoever hands over a text bounds its length; what stands in it once is bounded by that. Depth and aliases, by which a
/// short text becomes a long one, have the bounds that are usual.
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
    Problem { path: plain(path), line, message: error.message().trim_end().to_owned() }
}

fn from_json(path: &str, error: &serde_json::Error) -> Problem {
    let message = error.to_string();
    // serde_json repeats the place at the end of its message.
    let message = message.split(" at line ").next().unwrap_or(&message).to_owned();
    Problem { path: plain(path), line: (error.line() > 0).then(|| error.line()), message }
}

pub(crate) fn from_yaml(path: &str, error: &serde_saphyr::Error) -> Problem {
    let line = error.location().map(|location| location.line() as usize);
    let message = error.without_snippet().to_string();
    // The place and the drawing around it are ours to show.
    let message = message.lines().next().unwrap_or_default();
    let message = message.split(" at line ").next().unwrap_or(message).trim_start_matches("error: ");
    // Advice to programmers.
    let message = message.split(", set DuplicateKeyPolicy").next().unwrap_or(message).to_owned();
    Problem { path: plain(path), line, message }
}

/// serde writes `.` for the whole document, and `?` for a field whose name it did not get to read.
fn plain(path: &str) -> String {
    path.trim_end_matches('?').trim_end_matches('.').to_owned()
}

fn line_at(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|&byte| byte == b'\n').count()
}

/// The line of the field at `path`, or of the nearest field above it that the text has.
fn line_of(text: &str, format: Format, path: &str) -> Option<usize> {
    let steps: Vec<Step<'_>> = path.split('.').flat_map(Step::of).collect();
    (1..=steps.len()).rev().find_map(|depth| {
        let steps = &steps[..depth];
        match format {
            Format::Toml => {
                let document = toml::Deserializer::parse(text).ok()?;
                let found: toml::Spanned<IgnoredAny> = Follow::new(steps).deserialize(document).ok()??;
                Some(line_at(text, found.span().start))
            }
            // JSON is YAML, and its places are where YAML sees them.
            Format::Yaml | Format::Json => {
                let found: Option<serde_saphyr::Spanned<IgnoredAny>> =
                    serde_saphyr::with_deserializer_from_str_with_options(text, yaml_options(text), |document| {
                        Follow::new(steps).deserialize(document)
                    })
                    .ok()?;
                Some(found?.referenced.line() as usize)
            }
        }
    })
}

/// One step of a path.
#[derive(Clone, Copy)]
enum Step<'p> {
    Key(&'p str),
    Item(usize),
}

impl<'p> Step<'p> {
    /// `limits[1]` is two steps.
    fn of(part: &'p str) -> impl Iterator<Item = Self> {
        let (key, item) = part.split_once('[').unwrap_or((part, ""));
        let item = item.strip_suffix(']').and_then(|place| place.parse().ok());
        std::iter::once(Self::Key(key)).chain(item.map(Self::Item))
    }
}

/// Walks down a document of any format to the value at a path, skipping everything else.
struct Follow<'p, T> {
    steps: &'p [Step<'p>],
    found: std::marker::PhantomData<T>,
}

impl<'p, T> Follow<'p, T> {
    fn new(steps: &'p [Step<'p>]) -> Self {
        Self { steps, found: std::marker::PhantomData }
    }
}

impl<'de, T: serde::Deserialize<'de>> DeserializeSeed<'de> for Follow<'_, T> {
    type Value = Option<T>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        if self.steps.is_empty() {
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
            match self.steps {
                [Step::Key(wanted), below @ ..] if key == *wanted => {
                    found = entries.next_value_seed(Follow::new(below))?;
                }
                _ => drop(entries.next_value::<IgnoredAny>()?),
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        for place in 0.. {
            let item = match self.steps {
                [Step::Item(wanted), below @ ..] if place == *wanted => items.next_element_seed(Follow::new(below))?,
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
