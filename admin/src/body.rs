//! A request's body, read once into a type that cannot be wrong.

use std::{fmt, future::Future, pin::Pin, time::Duration};

use actix_web::{
    FromRequest, HttpMessage, HttpRequest,
    dev::Payload,
    web::{self, Bytes},
};
use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeOwned, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};
use tidegate::algorithm::NUMBER_MAX;
use tidegate_fleet::wire;
use tokio::time;

use crate::{
    heavy::Heavy,
    problem::{FieldError, Problem},
    store::sha256,
};

/// The largest body.
const BYTES_MAX: usize = wire::BODY_BYTES_MAX;
/// How long a body may take to come.
const PATIENCE: Duration = Duration::from_secs(5);
/// The largest file, and how long it may take to come: a hundred thousand clients are some ten megabytes.
const FILE_BYTES_MAX: usize = 32 << 20;
const FILE_PATIENCE: Duration = Duration::from_mins(1);

/// No page of another site can send these types without asking first.
const JSON: &[&str] = &["application/json"];
const PATCH: &[&str] = &[MERGE_PATCH, "application/json"];
/// The type of RFC 7396.
pub(crate) const MERGE_PATCH: &str = "application/merge-patch+json";

/// A JSON body.
#[derive(Debug)]
pub(crate) struct Body<T> {
    pub(crate) value: T,
    /// Of the bytes as they came, hex.
    pub(crate) sha256: String,
}

impl<T: DeserializeOwned + 'static> FromRequest for Body<T> {
    type Error = Problem;
    type Future = Pin<Box<dyn Future<Output = Result<Self, Problem>>>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let bytes = bytes(request, payload, JSON, BYTES_MAX, PATIENCE);
        Box::pin(async move { Self::read(&bytes.await?) })
    }
}

impl<T: DeserializeOwned> Body<T> {
    fn read(bytes: &Bytes) -> Result<Self, Problem> {
        Ok(Self { value: read(bytes)?, sha256: sha256(bytes) })
    }
}

/// A JSON merge patch (RFC 7396) of an object.
#[derive(Debug)]
pub(crate) struct MergePatch(pub(crate) Body<Map<String, Value>>);

impl FromRequest for MergePatch {
    type Error = Problem;
    type Future = Pin<Box<dyn Future<Output = Result<Self, Problem>>>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let bytes = bytes(request, payload, PATCH, BYTES_MAX, PATIENCE);
        Box::pin(async move { Body::read(&bytes.await?).map(Self) })
    }
}

/// A JSON body with files in it.
#[derive(Debug)]
pub(crate) struct Files<T>(pub(crate) Body<T>);

impl<T: DeserializeOwned + Send + 'static> FromRequest for Files<T> {
    type Error = Problem;
    type Future = Pin<Box<dyn Future<Output = Result<Self, Problem>>>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let bytes = bytes(request, payload, JSON, FILE_BYTES_MAX, FILE_PATIENCE);
        let heavy = Heavy::from_request(request, payload).into_inner();
        Box::pin(async move {
            let bytes = bytes.await?;
            heavy?.work(move || Body::read(&bytes)).await?.map(Self)
        })
    }
}

/// A body of CSV.
#[derive(Debug)]
pub(crate) struct Csv {
    pub(crate) text: Bytes,
    /// Of the text, hex.
    pub(crate) sha256: String,
}

impl FromRequest for Csv {
    type Error = Problem;
    type Future = Pin<Box<dyn Future<Output = Result<Self, Problem>>>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let bytes = bytes(request, payload, &["text/csv"], FILE_BYTES_MAX, FILE_PATIENCE);
        Box::pin(async move {
            let text = bytes.await?;
            Ok(Self { sha256: sha256(&text), text })
        })
    }
}

/// A whole body of one of these types.
fn bytes(
    request: &HttpRequest,
    payload: &mut Payload,
    media: &'static [&'static str],
    bytes_max: usize,
    patience: Duration,
) -> impl Future<Output = Result<Bytes, Problem>> + use<> {
    let is_of_type = media.iter().any(|media| request.content_type().eq_ignore_ascii_case(media));
    let body = web::Payload::from_request(request, payload).into_inner();
    async move {
        if !is_of_type {
            return Err(Problem::MediaType { wanted: media.join(" or ") });
        }
        let unreadable = |error: actix_web::Error| Problem::BadJson(FieldError::invalid("", error.to_string()));
        let body = time::timeout(patience, body.map_err(unreadable)?.to_bytes_limited(bytes_max)).await;
        let body = body.map_err(|_| Problem::TooSlow { patience })?;
        body.map_err(|_| Problem::TooLarge { bytes_max })?.map_err(unreadable)
    }
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    // serde would take a list for an object, field by field.
    if !matches!(bytes.trim_ascii_start(), [b'{', ..]) {
        return Err(Problem::BadJson(FieldError::invalid("", "expected a JSON object")));
    }
    typed::<Exact>(bytes, |too_large| Problem::Invalid(vec![too_large]))?;
    typed(bytes, Problem::BadJson)
}

fn typed<T: DeserializeOwned>(bytes: &[u8], of_another_type: fn(FieldError) -> Problem) -> Result<T, Problem> {
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let field = field_error("", &error);
        if error.inner().is_data() { of_another_type(field) } else { Problem::BadJson(field) }
    })?;
    json.end().map_err(|error| Problem::BadJson(FieldError::invalid("", error.to_string())))?;
    Ok(value)
}

/// Any JSON without a whole number that is larger than what JavaScript reads exactly: no call takes one, nor answers one.
struct Exact;

impl<'de> Deserialize<'de> for Exact {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ExactVisitor;

        impl<'de> Visitor<'de> for ExactVisitor {
            type Value = Exact;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON")
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Exact, E> {
                if number > NUMBER_MAX {
                    return Err(E::custom(format!("{number} is too large; the largest number is {NUMBER_MAX}")));
                }
                Ok(Exact)
            }

            fn visit_i64<E>(self, _: i64) -> Result<Exact, E> {
                Ok(Exact)
            }

            fn visit_f64<E>(self, _: f64) -> Result<Exact, E> {
                Ok(Exact)
            }

            fn visit_bool<E>(self, _: bool) -> Result<Exact, E> {
                Ok(Exact)
            }

            fn visit_str<E>(self, _: &str) -> Result<Exact, E> {
                Ok(Exact)
            }

            fn visit_unit<E>(self) -> Result<Exact, E> {
                Ok(Exact)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Exact, A::Error> {
                while let Some(Exact) = items.next_element()? {}
                Ok(Exact)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Exact, A::Error> {
                while let Some((_, Exact)) = fields.next_entry::<String, _>()? {}
                Ok(Exact)
            }
        }

        deserializer.deserialize_any(ExactVisitor)
    }
}

/// What serde says about a value that stands at `pointer`.
pub(crate) fn field_error(pointer: &str, error: &serde_path_to_error::Error<serde_json::Error>) -> FieldError {
    let path = error.path().to_string();
    let below = if path == "." { String::new() } else { pointer_of(&path) };
    FieldError::invalid(format!("{pointer}{below}"), error.inner().to_string())
}

/// `limits[0].burst` as a JSON pointer: `/limits/0/burst`. A `?` stands where the reader did not get to know the name.
pub(crate) fn pointer_of(path: &str) -> String {
    path.split(['.', '[']).map(|part| part.trim_end_matches(']')).filter(|part| !matches!(*part, "" | "?")).fold(
        String::new(),
        |mut pointer, part| {
            pointer.push('/');
            pointer.push_str(part);
            pointer
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_pointers() {
        assert_eq!(pointer_of("limits[0].burst"), "/limits/0/burst");
        assert_eq!(pointer_of(".limits[12]"), "/limits/12");
        assert_eq!(pointer_of(""), "");
    }
}
