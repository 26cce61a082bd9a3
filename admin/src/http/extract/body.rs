//! A request's body, read once into a type that cannot be wrong. Short bodies are read into memory, for which there is a
//! budget; those with files in them are written to the disk as they come, once their handler has its place.

use std::{
    fmt,
    future::{Future, Ready, ready},
    marker::PhantomData,
    pin::Pin,
};

use actix_web::{
    FromRequest, HttpMessage, HttpRequest,
    dev::Payload,
    http::header::CONTENT_LENGTH,
    web::{self, Data},
};
use futures_util::StreamExt;
use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeOwned, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};
use tidegate::{
    algorithm::NUMBER_MAX,
    formats::{JsonError, read_json},
};
use tidegate_fleet::wire;
use tokio::time;

use crate::{
    base::{addresses::network, sha256::sha256},
    capacity::{body_budget::BodyPermit, spool::SpooledBody},
    domain::{
        error::{FieldError, Problem},
        json::json_error,
    },
    http::{
        client_address::address,
        guard::{OpenCall, sender},
        state::State,
    },
};

/// The largest body.
const BYTES_MAX: usize = wire::BODY_BYTES_MAX;
/// The largest body of a call that needs no session or token.
const OPEN_BYTES_MAX: usize = 8 << 10;
/// The largest body with files in it: a hundred thousand clients are some ten megabytes.
const FILE_BYTES_MAX: usize = 32 << 20;
/// Bits of an IPv6 address that are counted as one address.
const NETWORK_BITS: u8 = 64;

/// No page of another site can send these types without asking first.
const JSON: &[&str] = &["application/json"];
const PATCH: &[&str] = &[MERGE_PATCH, "application/json"];
const CSV: &[&str] = &["text/csv"];
/// The type of RFC 7396.
pub(crate) const MERGE_PATCH: &str = "application/merge-patch+json";

/// A JSON body.
#[derive(Debug)]
pub(crate) struct Body<T> {
    pub(crate) value: T,
    /// Of the bytes as they came, hex.
    pub(crate) sha256: String,
    /// Held until the handler ends: the value takes the memory of the bytes.
    _permit: BodyPermit,
}

impl<T: DeserializeOwned + 'static> FromRequest for Body<T> {
    type Error = Problem;
    type Future = Pin<Box<dyn Future<Output = Result<Self, Problem>>>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let bytes = bytes(request, payload, JSON);
        Box::pin(async move { Self::read(bytes.await?) })
    }
}

impl<T: DeserializeOwned> Body<T> {
    fn read((bytes, permit): (Vec<u8>, BodyPermit)) -> Result<Self, Problem> {
        Ok(Self { value: read(&bytes)?, sha256: sha256(&bytes), _permit: permit })
    }
}

/// A JSON merge patch (RFC 7396) of an object.
#[derive(Debug)]
pub(crate) struct MergePatch(pub(crate) Body<Map<String, Value>>);

impl FromRequest for MergePatch {
    type Error = Problem;
    type Future = Pin<Box<dyn Future<Output = Result<Self, Problem>>>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let bytes = bytes(request, payload, PATCH);
        Box::pin(async move { Body::read(bytes.await?).map(Self) })
    }
}

/// A JSON body with files in it, of which nothing is read before it is [received](Self::receive): its handler takes its own
/// place first.
pub(crate) struct Files<T> {
    payload: web::Payload,
    of: PhantomData<fn() -> T>,
}

impl<T> FromRequest for Files<T> {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let payload = unread(request, payload, JSON, FILE_BYTES_MAX);
        ready(payload.map(|payload| Self { payload, of: PhantomData }))
    }
}

impl<T: DeserializeOwned> Files<T> {
    /// Takes a place of this user in the spool, and writes the body there.
    pub(crate) async fn receive(self, state: &State, user: &str) -> Result<ReceivedFiles<T>, Problem> {
        let body = receive(self.payload, state, user).await?;
        Ok(ReceivedFiles { body, of: PhantomData })
    }
}

/// A JSON body on the disk.
#[derive(Debug)]
pub(crate) struct ReceivedFiles<T> {
    pub(crate) body: SpooledBody,
    of: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> ReceivedFiles<T> {
    /// Reads what is in it. It blocks.
    pub(crate) fn read(&self) -> Result<T, Problem> {
        read(&self.body.read()?)
    }
}

/// A body of CSV, of which nothing is read before it is [received](Self::receive).
pub(crate) struct Csv(web::Payload);

impl FromRequest for Csv {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        ready(unread(request, payload, CSV, FILE_BYTES_MAX).map(Self))
    }
}

impl Csv {
    /// Takes a place of this user in the spool, and writes the body there.
    pub(crate) async fn receive(self, state: &State, user: &str) -> Result<SpooledBody, Problem> {
        receive(self.0, state, user).await
    }
}

async fn receive(payload: web::Payload, state: &State, user: &str) -> Result<SpooledBody, Problem> {
    state.spool.receive(user, payload, FILE_BYTES_MAX as u64, state.fleet.periods.file_timeout).await
}

/// A whole body of one of these types, with its part of the budget.
fn bytes(
    request: &HttpRequest,
    payload: &mut Payload,
    media: &'static [&'static str],
) -> impl Future<Output = Result<(Vec<u8>, BodyPermit), Problem>> + use<> {
    let is_open = request.extensions().contains::<OpenCall>();
    let bytes_max = if is_open { OPEN_BYTES_MAX } else { BYTES_MAX };
    let body = unread(request, payload, media, bytes_max);
    let state = request.app_data::<Data<State>>().cloned();
    let (address, sender) = (network(&address(request), NETWORK_BITS), sender(request));
    async move {
        let body = body?;
        let state = state.ok_or_else(|| Problem::Internal("the state is missing".to_owned()))?;
        let patience = state.fleet.periods.body_timeout;
        let mut permit = state.bodies.body_permit(address, sender);
        let read = time::timeout(patience, collect(body, bytes_max, &mut permit)).await;
        let bytes = read.map_err(|_| Problem::TooSlow { patience })??;
        Ok((bytes, permit))
    }
}

/// The body of a request, of which nothing is read yet. Refuses one of another type, and one that says it is too long.
fn unread(
    request: &HttpRequest,
    payload: &mut Payload,
    media: &'static [&'static str],
    bytes_max: usize,
) -> Result<web::Payload, Problem> {
    if !media.iter().any(|media| request.content_type().eq_ignore_ascii_case(media)) {
        return Err(Problem::MediaType { wanted: media.join(" or ") });
    }
    let length = request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    if length.is_some_and(|length: u64| length > bytes_max as u64) {
        return Err(Problem::TooLarge { bytes_max });
    }
    web::Payload::from_request(request, payload).into_inner().map_err(|error| unreadable(&error))
}

async fn collect(mut body: web::Payload, bytes_max: usize, permit: &mut BodyPermit) -> Result<Vec<u8>, Problem> {
    let mut bytes = Vec::new();
    while let Some(piece) = body.next().await {
        let piece = piece.map_err(|error| unreadable(&error))?;
        let length = bytes.len() + piece.len();
        if length > bytes_max {
            return Err(Problem::TooLarge { bytes_max });
        }
        permit.grow_to(length)?;
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

fn unreadable(error: &dyn fmt::Display) -> Problem {
    Problem::BadJson(FieldError::invalid("", error.to_string()))
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let text = str::from_utf8(bytes).map_err(|error| {
        unreadable(&format!("the body is not UTF-8 from byte {} on; send JSON as UTF-8 text", error.valid_up_to()))
    })?;
    read_json::<Exact>(text).map_err(|error| match &error {
        JsonError::Syntax(_) => Problem::BadJson(json_error(error)),
        JsonError::Field { .. } => Problem::Invalid(vec![json_error(error)]),
    })?;
    read_json(text).map_err(|error| Problem::BadJson(json_error(error)))
}

fn too_large<E: de::Error>(number: impl fmt::Display) -> E {
    E::custom(format!("`{number}` is too large; the largest number is {NUMBER_MAX}"))
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
                if number > NUMBER_MAX { Err(too_large(number)) } else { Ok(Exact) }
            }

            fn visit_i64<E>(self, _: i64) -> Result<Exact, E> {
                Ok(Exact)
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Exact, E> {
                // A whole number of more than 64 bits.
                if number >= 18_446_744_073_709_551_616.0 { Err(too_large(number)) } else { Ok(Exact) }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::error::ErrorLocation;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        #[serde(rename = "a.b")]
        _dotted: Option<u64>,
        #[serde(default)]
        _list: Vec<Inner>,
    }

    #[derive(Debug, Deserialize)]
    struct Inner {
        _kind: Kind,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Kind {
        One,
        Two,
    }

    #[test]
    fn errors_name_the_field_in_plain_words() {
        for (body, code, pointer, message) in [
            (
                "",
                "bad_json",
                "",
                "the body is not JSON: line 1: the text ends here in the middle of a value; a bracket or a quote is missing",
            ),
            ("[]", "bad_json", "", "a list stands here; write a table of keys and values"),
            (
                "{\n\"_list\": x}",
                "bad_json",
                "",
                "the body is not JSON: line 2: no value stands here; put a text in double quotes",
            ),
            (
                "{}{}",
                "bad_json",
                "",
                "the body is not JSON: line 1: something stands after the end of the document; remove it",
            ),
            (r#"{"c": 1}"#, "bad_json", "/c", "unknown field `c`; write `a.b` or `_list`"),
            (
                r#"{"a.b": "5"}"#,
                "bad_json",
                "/a.b",
                "`5` stands here; write a whole number from 0 to 18446744073709551615, without quotes",
            ),
            (r#"{"a.b": 1, "a.b": 2}"#, "bad_json", "", "`a.b` stands here twice; keep one"),
            (r#"{"_list": {}}"#, "bad_json", "/_list", "a table of keys and values stands here; write a list"),
            (r#"{"_list": [["one"]]}"#, "bad_json", "/_list/0", "a list stands here; write a table of keys and values"),
            (r#"{"_list": [{}]}"#, "bad_json", "/_list/0", "missing field `_kind`; add it"),
            (
                r#"{"_list": [{"_kind": "three"}]}"#,
                "bad_json",
                "/_list/0/_kind",
                "`three` stands here; write `one` or `two`",
            ),
            (
                r#"{"x/y": {"z": 99999999999999999999}}"#,
                "invalid",
                "/x~1y/z",
                "`99999999999999999999` is too large; the largest number is 9007199254740991",
            ),
            (
                r#"{"a.b": 9007199254740992}"#,
                "invalid",
                "/a.b",
                "`9007199254740992` is too large; the largest number is 9007199254740991",
            ),
        ] {
            let (found, error) = match read::<Outer>(body.as_bytes()) {
                Err(Problem::BadJson(error)) => ("bad_json", error),
                Err(Problem::Invalid(mut errors)) => ("invalid", errors.remove(0)),
                other => panic!("{body}: {other:?}"),
            };
            let expected = (code, ErrorLocation::Pointer(pointer.to_owned()), message);
            assert_eq!((found, error.at, error.message.as_str()), expected, "{body}");
        }
        assert!(
            matches!(read::<Outer>(b"{\"\xff\": 1}"), Err(Problem::BadJson(error)) if error.message.starts_with("the body is not UTF-8 from byte 2"))
        );
    }
}
