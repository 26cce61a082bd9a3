//! A deserializer of JSON values whose errors say in plain words what was found and what would be right.
//!
//! The libraries that read text name their own types and states in errors. A text that they refuse is therefore read again into a
//! JSON value, and this deserializer reads the value into the type and words the error.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{
        self, DeserializeSeed, Expected, IntoDeserializer, MapAccess, SeqAccess, Unexpected, Visitor,
        value::{MapAccessDeserializer, StrDeserializer},
    },
    forward_to_deserialize_any,
};
use serde_json::{Value, map};

use super::{Format, Step};

/// The most characters of a text that a message quotes.
const QUOTED_CHARACTERS_MAX: usize = 60;

/// Reads a value, which was read from a text of this format, into a type.
pub(super) fn read<'de, T: Deserialize<'de>>(value: &'de Value, format: Format) -> Result<T, PlainError<'de>> {
    T::deserialize(ValueDeserializer { value, format }).map_err(|mut error| {
        error.path.reverse();
        // The message of an untagged enum says only what it expects.
        if let (Some(wanted), Some(found)) = (error.message.strip_prefix("expected "), at(value, &error.path)) {
            error.message = stands_here(&found_value(found), wanted);
        }
        error
    })
}

pub(super) fn at<'v>(value: &'v Value, path: &[Step<'_>]) -> Option<&'v Value> {
    path.iter().try_fold(value, |value, step| match step {
        Step::Key(key) => value.get(key),
        Step::Item(place) => value.get(place),
    })
}

pub(super) fn stands_here(found: &str, wanted: &str) -> String {
    format!("{found} stands here; write {wanted}")
}

#[derive(Clone, Copy)]
struct ValueDeserializer<'v> {
    value: &'v Value,
    format: Format,
}

impl<'v> ValueDeserializer<'v> {
    fn text<V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, PlainError<'v>> {
        match self.value {
            // A text needs no quotes in YAML.
            Value::Number(_) | Value::Bool(_) if self.format == Format::Yaml => {
                visitor.visit_string(self.value.to_string())
            }
            _ => self.deserialize_any(visitor),
        }
    }
}

impl<'de> Deserializer<'de> for ValueDeserializer<'de> {
    type Error = PlainError<'de>;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PlainError<'de>> {
        match self.value {
            // TOML has no null: the value was a number that JSON cannot hold.
            Value::Null if self.format == Format::Toml => visitor.visit_f64(f64::NAN),
            Value::Null => visitor.visit_unit(),
            Value::Bool(flag) => visitor.visit_bool(*flag),
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Number(number) => match (number.as_u64(), number.as_i64()) {
                (Some(number), _) => visitor.visit_u64(number),
                (None, Some(number)) => visitor.visit_i64(number),
                (None, None) => visitor.visit_f64(number.as_f64().unwrap_or(f64::NAN)),
            },
            Value::Array(items) => visitor.visit_seq(Items { items: items.iter().enumerate(), format: self.format }),
            Value::Object(fields) if fields.contains_key(TOML_DATE) => {
                Err(de::Error::invalid_type(Unexpected::Other("a date without quotes"), &visitor))
            }
            Value::Object(fields) => visitor.visit_map(Fields::of(fields, self.format)),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PlainError<'de>> {
        if self.value.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, PlainError<'de>> {
        // For a value with its line, the YAML reader does not ask for a type: a text is preferred to a number.
        if name == YAML_SPANNED {
            visitor.visit_newtype_struct(SpannedDeserializer(self))
        } else {
            visitor.visit_newtype_struct(self)
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PlainError<'de>> {
        self.text(visitor)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PlainError<'de>> {
        self.text(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, PlainError<'de>> {
        // A list of a table's values is not a table.
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
    ) -> Result<V::Value, PlainError<'de>> {
        match self.value {
            Value::String(text) => visitor.visit_enum(StrDeserializer::new(text)),
            Value::Object(fields) if fields.len() == 1 => {
                visitor.visit_enum(MapAccessDeserializer::new(Fields::of(fields, self.format)))
            }
            value => Err(de::Error::custom(stands_here(&found_value(value), &one_of(variants)))),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit unit_struct seq tuple tuple_struct map
        identifier ignored_any
    }
}

/// A deserializer of the value in a [`serde_saphyr::Spanned`].
struct SpannedDeserializer<'v>(ValueDeserializer<'v>);

impl<'de> Deserializer<'de> for SpannedDeserializer<'de> {
    type Error = PlainError<'de>;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PlainError<'de>> {
        match self.0.value {
            // The visitor of `Spanned` takes the first key for itself, and none if there is none.
            Value::Object(fields) => {
                visitor.visit_map(Fields { is_first_hidden: true, ..Fields::of(fields, self.0.format) })
            }
            _ => self.0.text(visitor),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

struct Items<'v> {
    items: std::iter::Enumerate<std::slice::Iter<'v, Value>>,
    format: Format,
}

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = PlainError<'de>;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, PlainError<'de>> {
        let Some((place, value)) = self.items.next() else { return Ok(None) };
        seed.deserialize(ValueDeserializer { value, format: self.format })
            .map(Some)
            .map_err(|error| error.below(Step::Item(place)))
    }
}

struct Fields<'v> {
    left: map::Iter<'v>,
    field: Option<(&'v str, ValueDeserializer<'v>)>,
    format: Format,
    /// Whether the first request for a key is answered as if the table were empty.
    is_first_hidden: bool,
}

impl<'v> Fields<'v> {
    fn of(fields: &'v map::Map<String, Value>, format: Format) -> Self {
        Self { left: fields.iter(), field: None, format, is_first_hidden: false }
    }
}

impl<'de> MapAccess<'de> for Fields<'de> {
    type Error = PlainError<'de>;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, PlainError<'de>> {
        if std::mem::take(&mut self.is_first_hidden) {
            return Ok(None);
        }
        let Some((key, value)) = self.left.next() else { return Ok(None) };
        self.field = Some((key, ValueDeserializer { value, format: self.format }));
        let key_of_map: StrDeserializer<'_, PlainError<'de>> = key.as_str().into_deserializer();
        seed.deserialize(key_of_map).map(Some).map_err(|error| error.below(Step::Key(key)))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, PlainError<'de>> {
        let (key, node) = self.field.take().ok_or_else(|| de::Error::custom("a key without a value"))?;
        seed.deserialize(node).map_err(|error| error.below(Step::Key(key)))
    }
}

/// An error in plain words, with its path. The steps are in reverse order until [`read`] returns.
#[derive(Debug)]
pub(super) struct PlainError<'v> {
    pub(super) path: Vec<Step<'v>>,
    pub(super) message: String,
}

impl<'v> PlainError<'v> {
    fn below(mut self, step: Step<'v>) -> Self {
        self.path.push(step);
        self
    }
}

impl fmt::Display for PlainError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for PlainError<'_> {}

impl de::Error for PlainError<'_> {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self { path: Vec::new(), message: message.to_string() }
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::custom(stands_here(&found_of(found), &wanted(&expected.to_string(), found)))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(found, expected)
    }

    fn invalid_length(length: usize, expected: &dyn Expected) -> Self {
        Self::custom(format!("{length} items stand here; expected {expected}"))
    }

    fn unknown_variant(name: &str, known: &'static [&'static str]) -> Self {
        Self::custom(stands_here(&found_of(Unexpected::Str(name)), &one_of(known)))
    }

    fn unknown_field(name: &str, known: &'static [&'static str]) -> Self {
        Self::custom(format!("unknown field `{}`; write {}", shortened(name), one_of(known)))
    }

    fn missing_field(name: &'static str) -> Self {
        Self::custom(format!("missing field `{name}`; add it"))
    }

    fn duplicate_field(name: &'static str) -> Self {
        Self::custom(format!("`{name}` stands here twice; keep one"))
    }
}

/// The name of [`serde_saphyr::Spanned`] as a type.
const YAML_SPANNED: &str = "__yaml_spanned";

/// The only key of a date, in the output of the TOML reader.
const TOML_DATE: &str = "$__toml_private_datetime";

pub(super) const TABLE: &str = "a table of keys and values";

/// Returns the plain words for what a type's visitor expects.
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
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number from 0 to 18446744073709551615",
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

pub(super) fn shortened(text: &str) -> String {
    match text.char_indices().nth(QUOTED_CHARACTERS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
