//! Reads a value into a type, with errors in plain words: what stands there, and what would be right.
//!
//! The libraries that read text name their own types and states in errors. So what they refuse is read once more, into a
//! JSON value, and that into the type by the deserializer here, whose error words it itself.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{
        self, Expected, IntoDeserializer, Unexpected, Visitor,
        value::{MapAccessDeserializer, MapDeserializer, SeqDeserializer, StrDeserializer},
    },
    forward_to_deserialize_any,
};
use serde_json::Value;
use serde_path_to_error::{Path, Segment};

use super::Format;
use crate::problem::Problem;

/// The most characters of a text that a message quotes.
const QUOTED_CHARACTERS_MAX: usize = 60;

/// Reads a value of a text of this format into a type. The problem names the field, and no line.
pub(super) fn read<'de, T: Deserialize<'de>>(value: &'de Value, format: Format) -> Result<T, Problem> {
    serde_path_to_error::deserialize(Node { value, format }).map_err(|error| {
        let path = super::plain(&error.path().to_string());
        let PlainError(message) = error.inner();
        // A type that takes several forms says only what it expects.
        let message = match (message.strip_prefix("expected "), at(value, error.path())) {
            (Some(wanted), Some(found)) => stands_here(&found_value(found), wanted),
            _ => message.clone(),
        };
        Problem { path, line: None, message }
    })
}

fn at<'v>(value: &'v Value, path: &Path) -> Option<&'v Value> {
    path.iter().try_fold(value, |value, segment| match segment {
        Segment::Seq { index } => value.get(index),
        Segment::Map { key } => value.get(key),
        Segment::Enum { variant } => value.get(variant),
        Segment::Unknown => None,
    })
}

fn stands_here(found: &str, wanted: &str) -> String {
    format!("{found} stands here; write {wanted}")
}

/// A JSON value to be read.
#[derive(Clone, Copy)]
struct Node<'v> {
    value: &'v Value,
    format: Format,
}

impl<'v> Node<'v> {
    fn with(self, value: &'v Value) -> Self {
        Self { value, ..self }
    }

    fn text<V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, PlainError> {
        match self.value {
            // A text needs no quotes in YAML.
            Value::Number(_) | Value::Bool(_) if self.format == Format::Yaml => {
                visitor.visit_string(self.value.to_string())
            }
            _ => self.deserialize_any(visitor),
        }
    }
}

impl<'v> IntoDeserializer<'v, PlainError> for Node<'v> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Node<'de> {
    type Error = PlainError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PlainError> {
        match self.value {
            // TOML has no null; JSON has no such number.
            Value::Null if self.format == Format::Toml => visitor.visit_f64(f64::NAN),
            Value::Null => visitor.visit_unit(),
            Value::Bool(flag) => visitor.visit_bool(*flag),
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Number(number) => match (number.as_u64(), number.as_i64()) {
                (Some(number), _) => visitor.visit_u64(number),
                (None, Some(number)) => visitor.visit_i64(number),
                (None, None) => visitor.visit_f64(number.as_f64().unwrap_or(f64::NAN)),
            },
            Value::Array(items) => visitor.visit_seq(SeqDeserializer::new(items.iter().map(|item| self.with(item)))),
            Value::Object(fields) if fields.contains_key(TOML_DATE) => {
                Err(de::Error::invalid_type(Unexpected::Other("a date without quotes"), &visitor))
            }
            Value::Object(fields) => {
                let fields = fields.iter().map(|(key, value)| (key.as_str(), self.with(value)));
                visitor.visit_map(MapDeserializer::new(fields))
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PlainError> {
        if self.value.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, PlainError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PlainError> {
        self.text(visitor)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PlainError> {
        self.text(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, PlainError> {
        // A list of a table's values is none.
        match self.value {
            Value::Array(_) => Err(de::Error::invalid_type(Unexpected::Seq, &TABLE)),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, PlainError> {
        match self.value {
            Value::String(text) => visitor.visit_enum(StrDeserializer::new(text)),
            Value::Object(fields) if fields.len() == 1 => {
                let fields = fields.iter().map(|(key, value)| (key.as_str(), self.with(value)));
                visitor.visit_enum(MapAccessDeserializer::new(MapDeserializer::new(fields)))
            }
            value => Err(PlainError(stands_here(&found_value(value), &one_of(variants)))),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit unit_struct seq tuple tuple_struct map
        identifier ignored_any
    }
}

/// What is wrong with a value.
#[derive(Debug)]
struct PlainError(String);

impl fmt::Display for PlainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PlainError {}

impl de::Error for PlainError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self(stands_here(&found_of(found), &wanted(&expected.to_string(), found)))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(found, expected)
    }

    fn invalid_length(length: usize, expected: &dyn Expected) -> Self {
        Self(format!("{length} items stand here; expected {expected}"))
    }

    fn unknown_variant(name: &str, known: &'static [&'static str]) -> Self {
        Self(stands_here(&found_of(Unexpected::Str(name)), &one_of(known)))
    }

    fn unknown_field(name: &str, known: &'static [&'static str]) -> Self {
        Self(format!("unknown field `{}`; write {}", shortened(name), one_of(known)))
    }

    fn missing_field(name: &'static str) -> Self {
        Self(format!("missing field `{name}`; add it"))
    }

    fn duplicate_field(name: &'static str) -> Self {
        Self(format!("`{name}` stands here twice; keep one"))
    }
}

/// The only key of a date in what the reader of TOML gives out.
const TOML_DATE: &str = "$__toml_private_datetime";

const TABLE: &str = "a table of keys and values";

/// Describes what is wanted, which a type's visitor says in the terms of its own.
fn wanted(expected: &str, found: Unexpected<'_>) -> String {
    let is_number_or_flag =
        matches!(found, Unexpected::Unsigned(_) | Unexpected::Signed(_) | Unexpected::Float(_) | Unexpected::Bool(_));
    let wanted = match expected {
        "a string" if is_number_or_flag => "a text, in quotes",
        "a string" => "a text",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" | "a table" => TABLE,
        "f32" | "f64" => "a number",
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number from 0",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        _ if expected.starts_with("struct ") => TABLE,
        _ => expected,
    };
    let is_quoted =
        matches!(found, Unexpected::Str(text) if text.parse::<f64>().is_ok() || ["true", "false"].contains(&text));
    if is_quoted { format!("{wanted}, without quotes") } else { wanted.to_owned() }
}

fn one_of(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    match names.split_last() {
        None => "nothing".to_owned(),
        Some((last, [])) => last.clone(),
        Some((last, names)) => format!("{} or {last}", names.join(", ")),
    }
}

fn found_value(value: &Value) -> String {
    match value {
        Value::Null => found_of(Unexpected::Unit),
        Value::String(text) => found_of(Unexpected::Str(text)),
        Value::Array(_) => found_of(Unexpected::Seq),
        Value::Object(_) => found_of(Unexpected::Map),
        Value::Bool(_) | Value::Number(_) => format!("`{value}`"),
    }
}

fn found_of(found: Unexpected<'_>) -> String {
    match found {
        Unexpected::Bool(flag) => format!("`{flag}`"),
        Unexpected::Unsigned(number) => format!("`{number}`"),
        Unexpected::Signed(number) => format!("`{number}`"),
        Unexpected::Float(number) => format!("`{number}`"),
        Unexpected::Str(text) => format!("`{}`", shortened(text)),
        Unexpected::Unit | Unexpected::Option => "nothing".to_owned(),
        Unexpected::Seq => "a list".to_owned(),
        Unexpected::Map => TABLE.to_owned(),
        _ => found.to_string(),
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(QUOTED_CHARACTERS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
