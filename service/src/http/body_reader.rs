//! Reads the JSON body of a request, within bounds of size and time and of the body budget.

use std::{
    future::poll_fn,
    mem,
    pin::pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use actix_web::{
    dev::Payload,
    error::PayloadError,
    http::header::HeaderValue,
    web::{Bytes, BytesMut},
};
use futures_util::{FutureExt, StreamExt};
use tokio::time::{Instant, timeout_at};

use crate::shared::{
    body_budget::{BLOCK_BYTES, BODY_BYTES_MAX, BodyPermit},
    error::Error,
};

/// The headers of a request that describe its body.
#[derive(Clone, Copy, Default)]
pub(crate) struct BodyHeaders<'r> {
    pub(crate) media_type: Option<&'r HeaderValue>,
    pub(crate) encoding: Option<&'r HeaderValue>,
    pub(crate) length: Option<&'r HeaderValue>,
}

/// The result of polling a payload.
type Polled = Poll<Option<Result<Bytes, PayloadError>>>;

/// Reads a body whose headers say that it is JSON, or nothing. All of it must come within `period`. Where it must be
/// waited for, the bytes beyond its first block need a permit.
pub(crate) async fn read(
    headers: &BodyHeaders<'_>,
    payload: &mut Payload,
    permit: impl FnMut() -> BodyPermit,
    period: Duration,
) -> Result<Bytes, Error> {
    let deadline = Instant::now() + period;
    if let Some(given) = headers.media_type
        && !is_json(given.as_bytes())
    {
        return Err(Error::MediaType(quoted(given)));
    }
    if let Some(given) = headers.encoding
        && !given.as_bytes().trim_ascii().eq_ignore_ascii_case(b"identity")
    {
        return Err(Error::Encoding(quoted(given)));
    }
    let announced = headers.length.and_then(|length| length.to_str().ok()?.trim().parse().ok());
    if announced > Some(BODY_BYTES_MAX) {
        return Err(Error::TooLarge);
    }
    let first_chunk = poll_first_chunk(payload).await;
    let mut body = pin!(collect(first_chunk, payload, permit));
    // Most bodies have come already, and need no timer.
    match body.as_mut().now_or_never() {
        Some(read) => read,
        None => timeout_at(deadline, body).await.unwrap_or(Err(Error::TooSlow)),
    }
}

/// Polls a payload for its first chunk, and once more where the listener tracks the payload and it has no chunk. A
/// request is polled before the part of its body is parsed that came together with its head, and again after that.
/// Between the two polls no timer runs. The listener promises the second poll for the streams that it makes of
/// payloads: it wakes a reader that was not polled again when the connection's task writes or flushes, or is dropped.
async fn poll_first_chunk(payload: &mut Payload) -> Polled {
    let mut is_last = !matches!(payload, Payload::Stream { .. });
    poll_fn(|context| match payload.poll_next_unpin(context) {
        Poll::Pending if !mem::replace(&mut is_last, true) => Poll::Pending,
        polled => Poll::Ready(polled),
    })
    .await
}

/// Reads a payload, of which `polled` is the result of the first poll.
async fn collect(
    mut polled: Polled,
    payload: &mut Payload,
    mut permit: impl FnMut() -> BodyPermit,
) -> Result<Bytes, Error> {
    let mut held: Option<BodyPermit> = None;
    let mut next = async |before: usize| {
        let mut poll = |context: &mut Context<'_>| match mem::replace(&mut polled, Poll::Pending) {
            Poll::Pending => payload.poll_next_unpin(context),
            ready @ Poll::Ready(_) => ready,
        };
        let chunk = poll_fn(|context| match poll(context) {
            Poll::Pending if before > BLOCK_BYTES => {
                let refusal = ready!(held.get_or_insert_with(&mut permit).poll_wait(before, context));
                Poll::Ready(Err(Error::from(refusal)))
            }
            chunk => chunk.map(Ok),
        });
        let Some(chunk) = chunk.await? else { return Ok(None) };
        let chunk = chunk.map_err(|_| Error::BrokenOff)?;
        if before + chunk.len() > BODY_BYTES_MAX {
            return Err(Error::TooLarge);
        }
        Ok(Some(chunk))
    };
    let Some(first) = next(0).await? else { return Ok(Bytes::new()) };
    let Some(second) = next(first.len()).await? else { return Ok(first) };
    // Takes memory for the bytes that came, not for the length that was announced.
    let mut body = BytesMut::from(&first[..]);
    body.extend_from_slice(&second);
    while let Some(chunk) = next(body.len()).await? {
        body.extend_from_slice(&chunk);
    }
    Ok(body.freeze())
}

/// Returns the text of a body.
pub(crate) fn text(body: &[u8]) -> Result<&str, Error> {
    str::from_utf8(body).map_err(|error| Error::NotUtf8 { at: error.valid_up_to() })
}

/// Returns the value of a header for an error message, with a replacement for bytes that are no text.
fn quoted(value: &HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes().trim_ascii()).into_owned()
}

/// Returns whether a media type is `application/json`, with or without parameters.
fn is_json(media_type: &[u8]) -> bool {
    let essence = media_type.split(|&byte| byte == b';').next().unwrap_or_default();
    essence.trim_ascii().eq_ignore_ascii_case(b"application/json")
}
