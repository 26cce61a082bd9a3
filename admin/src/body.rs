//! A request's body, read once into a type that cannot be wrong.

use std::{future::Future, pin::Pin, time::Duration};

use actix_web::{FromRequest, HttpMessage, HttpRequest, dev::Payload, web::Bytes};
use serde::de::DeserializeOwned;
use tokio::time;

use crate::{
    problem::{FieldError, Problem},
    store::sha256,
};

/// The largest body.
pub(crate) const BYTES_MAX: usize = 1 << 20;
/// How long a body may take to come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

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
        // No page of another site can send this type without asking first.
        let is_json = request.content_type().eq_ignore_ascii_case("application/json");
        let bytes = time::timeout(PATIENCE, Bytes::from_request(request, payload));
        Box::pin(async move {
            if !is_json {
                return Err(Problem::MediaType);
            }
            let bytes = bytes.await.map_err(|_| Problem::TooSlow)?;
            let bytes = bytes.map_err(|error| match error.as_response_error().status_code().as_u16() {
                413 => Problem::TooLarge,
                _ => Problem::BadJson(FieldError::invalid("", error.to_string())),
            })?;
            let value = read(&bytes).map_err(Problem::BadJson)?;
            Ok(Self { value, sha256: sha256(&bytes) })
        })
    }
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, FieldError> {
    // serde would take a list for an object, field by field.
    if !matches!(bytes.trim_ascii_start(), [b'{', ..]) {
        return Err(FieldError::invalid("", "expected a JSON object"));
    }
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|error| field_error("", &error))?;
    json.end().map_err(|error| FieldError::invalid("", error.to_string()))?;
    Ok(value)
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
