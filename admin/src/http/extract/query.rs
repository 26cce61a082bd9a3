//! The query of an address, read once into a type that cannot be wrong.

use std::{
    borrow::Cow,
    fmt,
    future::{Ready, ready},
    ops::Deref,
};

use actix_web::{FromRequest, HttpRequest, dev::Payload};
use serde::{
    Deserializer,
    de::{
        self, DeserializeOwned, Expected, IntoDeserializer, Unexpected, Visitor,
        value::{MapDeserializer, StrDeserializer},
    },
    forward_to_deserialize_any,
};

use crate::domain::error::{Problem, stands_here};

/// The parameters of a call. Those of its fields are all that it takes: `api` refuses others by name.
#[derive(Debug)]
pub(crate) struct Query<T>(pub(crate) T);

impl<T> Deref for Query<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: DeserializeOwned> FromRequest for Query<T> {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(read(request.query_string()).map(Self))
    }
}

fn read<T: DeserializeOwned>(query: &str) -> Result<T, Problem> {
    let parameters = form(query).map(|(name, text)| (name, Text(text)));
    serde_path_to_error::deserialize(MapDeserializer::new(parameters)).map_err(|error| {
        let path = error.path().to_string();
        let QueryError { name, message } = error.into_inner();
        let name = name.map_or(path, str::to_owned);
        Problem::parameter(name.clone(), format!("{name}: {message}"))
    })
}

fn form(query: &str) -> form_urlencoded::Parse<'_> {
    form_urlencoded::parse(query.as_bytes())
}

/// What is wrong with a query that has other parameters than the known ones.
pub(crate) fn unknown(query: &str, known: &[String]) -> Option<Problem> {
    let (name, _) = form(query).find(|(name, _)| !known.iter().any(|known| known == name))?;
    let hint = match known {
        [] => "this call takes none".to_owned(),
        known => format!("this call takes {}", known.join(", ")),
    };
    Some(Problem::parameter(name.clone(), format!("there is no parameter `{name}`; {hint}")))
}

/// The text of a parameter, read as what its field is to be.
struct Text<'q>(Cow<'q, str>);

impl IntoDeserializer<'_, QueryError> for Text<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

macro_rules! whole_numbers {
    ($($method:ident $visit:ident $number:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, QueryError> {
            let wanted = || format!("a whole number from {} to {}", $number::MIN, $number::MAX);
            let number = self.0.parse().map_err(|_| QueryError::wrong(&self.0, &wanted()))?;
            visitor.$visit(number)
        }
    )*};
}

impl<'de> Deserializer<'de> for Text<'_> {
    type Error = QueryError;

    whole_numbers! {
        deserialize_u8 visit_u8 u8
        deserialize_u16 visit_u16 u16
        deserialize_u32 visit_u32 u32
        deserialize_u64 visit_u64 u64
        deserialize_i64 visit_i64 i64
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, QueryError> {
        visitor.visit_string(self.0.into_owned())
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, QueryError> {
        visitor.visit_bool(self.0.parse().map_err(|_| QueryError::wrong(&self.0, "true or false"))?)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, QueryError> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, QueryError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, QueryError> {
        visitor.visit_enum(StrDeserializer::new(&self.0))
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i128 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct
        identifier ignored_any
    }
}

/// What is wrong with a parameter.
#[derive(Debug)]
struct QueryError {
    /// The parameter, where it is not the one that was being read.
    name: Option<&'static str>,
    message: String,
}

impl QueryError {
    fn wrong(found: &str, wanted: &str) -> Self {
        Self { name: None, message: stands_here(found, wanted) }
    }
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for QueryError {}

impl de::Error for QueryError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self { name: None, message: message.to_string() }
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        match found {
            Unexpected::Str(text) => Self::wrong(text, &expected.to_string()),
            found => Self::wrong(&found.to_string(), &expected.to_string()),
        }
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(found, expected)
    }

    fn unknown_variant(name: &str, known: &'static [&'static str]) -> Self {
        Self::wrong(name, &known.join(", "))
    }

    fn missing_field(name: &'static str) -> Self {
        Self { name: Some(name), message: "it is missing; add it".to_owned() }
    }

    fn duplicate_field(name: &'static str) -> Self {
        Self { name: Some(name), message: "it stands there twice; keep one".to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::domain::error::ErrorLocation;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Order {
        Name,
        Age,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Parameters {
        name: String,
        #[serde(default)]
        all: bool,
        bits: Option<u8>,
        count: Option<usize>,
        order: Option<Order>,
        at: Option<i64>,
    }

    #[test]
    fn a_query_is_read() {
        let read = read::<Parameters>("name=5&all=true&bits=64&count=7&order=age&at=-5").expect("right");
        let (bits, count, order, at) = (Some(64), Some(7), Some(Order::Age), Some(-5));
        assert_eq!(read, Parameters { name: "5".to_owned(), all: true, bits, count, order, at });
        assert_eq!(super::read::<Parameters>("name=a+%26").expect("right").name, "a &");
    }

    #[test]
    fn what_is_wrong_with_a_parameter_is_said_in_plain_words() {
        for (query, name, message) in [
            ("all=true", "name", "it is missing; add it"),
            ("name=a&name=b", "name", "it stands there twice; keep one"),
            ("name=a&all=1", "all", "`1` stands here; write true or false"),
            ("name=a&all=", "all", "nothing stands here; write true or false"),
            ("name=a&bits=300", "bits", "`300` stands here; write a whole number from 0 to 255"),
            ("name=a&count=ten", "count", "`ten` stands here; write a whole number from 0 to 18446744073709551615"),
            ("name=a&order=size", "order", "`size` stands here; write name, age"),
        ] {
            let Err(Problem::Invalid(errors)) = read::<Parameters>(query) else { panic!("{query}") };
            assert!(matches!(&errors[0].at, ErrorLocation::Parameter(of) if of == name), "{query}: {errors:?}");
            assert_eq!(errors[0].message, format!("{name}: {message}"), "{query}");
        }
    }
}
