//! Reads the body of a request: JSON text, within bounds of size and time, and of the room for all bodies.

use std::{borrow::Cow, time::Duration};

use actix_web::{
    HttpRequest,
    http::header::{self, HeaderName},
    rt::time::timeout,
    web::{BytesMut, Payload},
};
use futures_util::StreamExt;

use crate::{
    error::{BODY_BYTES_MAX, Error},
    room::{Part, Room},
};

/// A body that is not there after this long does not come.
const PATIENCE: Duration = Duration::from_secs(5);

/// The text of a body that says that it is JSON, or nothing about itself.
pub(crate) async fn read(request: &HttpRequest, payload: Payload, room: &Room) -> Result<String, Error> {
    if let Some(given) = header(request, &header::CONTENT_TYPE)
        && !is_json(&given)
    {
        return Err(Error::MediaType(given.into_owned()));
    }
    if let Some(given) = header(request, &header::CONTENT_ENCODING)
        && !given.eq_ignore_ascii_case("identity")
    {
        return Err(Error::Encoding(given.into_owned()));
    }
    let announced = header(request, &header::CONTENT_LENGTH).and_then(|length| length.parse().ok()).unwrap_or(0);
    if announced > BODY_BYTES_MAX {
        return Err(Error::TooLarge);
    }
    let body = timeout(PATIENCE, collect(payload, room.part())).await.unwrap_or(Err(Error::TooSlow))?;
    String::from_utf8(body.into()).map_err(|error| Error::NotUtf8 { at: error.utf8_error().valid_up_to() })
}

async fn collect(mut payload: Payload, mut part: Part<'_>) -> Result<BytesMut, Error> {
    // Room for what came, not for what was announced.
    let mut body = BytesMut::new();
    while let Some(chunk) = payload.next().await {
        let chunk = chunk.map_err(|_| Error::BrokenOff)?;
        if body.len() + chunk.len() > BODY_BYTES_MAX {
            return Err(Error::TooLarge);
        }
        if !part.grow(chunk.len()) {
            return Err(Error::Overload);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// The value of a header, trimmed; what is not text in it shows as such.
fn header<'r>(request: &'r HttpRequest, name: &HeaderName) -> Option<Cow<'r, str>> {
    request.headers().get(name).map(|value| String::from_utf8_lossy(value.as_bytes().trim_ascii()))
}

/// `application/json`, with or without parameters.
fn is_json(media_type: &str) -> bool {
    let essence = media_type.split(';').next().unwrap_or_default();
    essence.trim().eq_ignore_ascii_case("application/json")
}
