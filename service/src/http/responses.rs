//! Builds the responses of the HTTP API: decisions with their headers, JSON, and plain text.

use actix_web::{
    HttpResponse,
    body::BoxBody,
    http::{
        StatusCode,
        header::{CONTENT_TYPE, HeaderName, HeaderValue},
    },
    web::Bytes,
};
use arrayvec::ArrayVec;
use tidegate::policy::ResponseSettings;
use tidegate_api::PROBLEM_JSON;
use tidegate_middleware::headers::{self, Value};

use super::response_body::{self, DECISION_BYTES};
use crate::shared::decider::CheckResult;

static HEADER_NAMES: [HeaderName; 6] = [
    HeaderName::from_static(headers::LIMIT),
    HeaderName::from_static(headers::REMAINING),
    HeaderName::from_static(headers::RESET),
    HeaderName::from_static(headers::IETF),
    HeaderName::from_static(headers::IETF_POLICY),
    HeaderName::from_static(headers::RETRY_AFTER),
];
/// Bytes that the values of most decisions' headers fit into.
const HEADERS_BYTES: usize = 64;
pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(super) const PROBLEM: HeaderValue = HeaderValue::from_static(PROBLEM_JSON);

/// Returns the response to a check with this status, which has a body unless it is "No Content". The body and the values of the
/// headers are parts of one allocation.
pub(super) fn decision(status: StatusCode, outcome: &CheckResult<'_>, settings: ResponseSettings) -> HttpResponse {
    let has_body = status != StatusCode::NO_CONTENT;
    let mut text = Vec::with_capacity(DECISION_BYTES + HEADERS_BYTES);
    if has_body {
        response_body::decision(outcome, &mut text);
    }
    let body_bytes = text.len();
    let mut headers = ArrayVec::<_, { headers::COUNT_MAX }>::new();
    let mut put = |name, value: Value| {
        let start = text.len();
        match value {
            Value::Number(number) => text.extend_from_slice(itoa::Buffer::new().format(number).as_bytes()),
            Value::Text(value) => text.extend_from_slice(value.as_bytes()),
        }
        if let Some(name) = HEADER_NAMES.iter().find(|known| known.as_str() == name) {
            headers.push((name, start..text.len()));
        }
    };
    match &outcome.decision {
        Some(decision) => headers::each(decision, settings).for_each(|(name, value)| put(name, value)),
        None if outcome.is_allowed => {}
        None => put(headers::RETRY_AFTER, Value::Number(CheckResult::CLOSED_WAIT.as_secs())),
    }
    let text = Bytes::from(text);
    let mut response = if has_body {
        json(status, text.slice(..body_bytes))
    } else {
        HttpResponse::with_body(status, BoxBody::new(()))
    };
    for (name, value) in headers {
        // Printable ASCII is always a valid value.
        let value = HeaderValue::from_maybe_shared(text.slice(value)).unwrap_or(HeaderValue::from_static(""));
        response.headers_mut().insert(name.clone(), value);
    }
    response
}

pub(super) fn json(status: StatusCode, text: impl Into<Bytes>) -> HttpResponse {
    let mut response = HttpResponse::with_body(status, BoxBody::new(text.into()));
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

pub(super) fn text(status: StatusCode, text: impl Into<String>) -> HttpResponse {
    HttpResponse::build(status).insert_header((CONTENT_TYPE, "text/plain; charset=utf-8")).body(text.into())
}
