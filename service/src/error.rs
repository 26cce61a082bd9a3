//! What this door refuses: one enum, and one table that gives each case its status, its stable code, the field that is
//! wrong and a message that says what to do. A denial is not an error.

use actix_web::http::StatusCode;
use serde::Serialize;
use tidegate::RequestError;

/// The largest body, in bytes.
pub(crate) const BODY_BYTES_MAX: usize = 1 << 20;
/// The most checks in one batch.
pub(crate) const CHECKS_MAX: usize = 1_000;

const EXAMPLE: &str = r#"{"identities":[{"kind":"ip","value":"192.0.2.7"}]}"#;

/// Callers may send anything, and messages quote it: they end here, in characters.
const MESSAGE_CHARACTERS_MAX: usize = 400;

/// What was wrong with a request. Nothing was charged.
#[derive(Debug)]
pub(crate) enum Error {
    /// Bytes from this place on are not text.
    NotUtf8 { at: usize },
    /// Text, but not JSON; what the parser says.
    NotJson(String),
    /// JSON, but not the document that is read here.
    Field { field: String, problem: String },
    /// Parts of the contract that the engine does not have yet.
    NotBuilt { field: &'static str },
    /// The engine cannot decide it.
    Request { field: String, error: RequestError },
    /// So many checks in one batch.
    TooManyChecks(usize),
    /// A body above the bound.
    TooLarge,
    /// A body that took too long.
    TooSlow,
    /// A body that ended early, or whose framing is wrong.
    BrokenOff,
    /// A body that says that it is something else.
    MediaType(String),
    /// A compressed body.
    Encoding(String),
    /// The path is known, and takes these methods instead.
    Method { given: String, allowed: &'static str },
    /// Nothing is there.
    Path(String),
}

/// How a case is told.
#[derive(Debug, Serialize)]
pub(crate) struct Told {
    #[serde(skip)]
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    pub(crate) message: String,
    /// Where in the body, such as `identities/0/kind`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) field: Option<String>,
}

impl Error {
    /// The table.
    pub(crate) fn told(self) -> Told {
        let bad = StatusCode::BAD_REQUEST;
        let (status, code, field, message) = match self {
            Self::NotUtf8 { at } => {
                (bad, "bad_json", None, format!("the body is not UTF-8 from byte {at} on; send JSON as UTF-8 text"))
            }
            Self::NotJson(problem) => {
                (bad, "bad_json", None, format!("the body is not JSON: {problem}; send an object such as {EXAMPLE}"))
            }
            Self::Field { field, problem } if field.is_empty() => (bad, "bad_field", None, problem),
            Self::Field { field, problem } => {
                let message = format!("{field}: {problem}");
                (bad, "bad_field", Some(field), message)
            }
            Self::NotBuilt { field } => {
                (bad, "not_built", Some(field.to_owned()), format!("{field}: not built yet; leave it out"))
            }
            Self::Request { field, error } => (bad, code(&error), Some(field), error.to_string()),
            Self::TooManyChecks(count) => (
                bad,
                "too_many_checks",
                Some("checks".to_owned()),
                format!("checks: {count} in one batch; at most {CHECKS_MAX} fit, send the others in another"),
            ),
            Self::TooLarge => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "too_large",
                None,
                format!("the body has more than {BODY_BYTES_MAX} bytes; send less in one request"),
            ),
            Self::TooSlow => (
                StatusCode::REQUEST_TIMEOUT,
                "too_slow",
                None,
                "the body did not come in time; send it at once".to_owned(),
            ),
            Self::BrokenOff => (
                bad,
                "broken_off",
                None,
                "the body ended early or its chunks are malformed; send all that Content-Length or the chunks announce"
                    .to_owned(),
            ),
            Self::MediaType(given) => (
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "unsupported_media_type",
                None,
                format!("Content-Type: `{given}` is not read here; send JSON as application/json"),
            ),
            Self::Encoding(given) => (
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "unsupported_media_type",
                None,
                format!("Content-Encoding: `{given}` is not read here; send the body as it is"),
            ),
            Self::Method { given, allowed } => (
                StatusCode::METHOD_NOT_ALLOWED,
                "method_not_allowed",
                None,
                format!("{given} is not for this path; use {allowed}"),
            ),
            Self::Path(path) => (
                StatusCode::NOT_FOUND,
                "not_found",
                None,
                format!("nothing is at {path}; checks go to POST /v1/check and POST /v1/check/batch"),
            ),
        };
        Told { status, code, message: shortened(message), field: field.map(shortened) }
    }
}

/// What the engine refuses has a code each.
fn code(error: &RequestError) -> &'static str {
    match error {
        RequestError::Identities(_) => "bad_identities",
        RequestError::RepeatedKind(_) => "repeated_kind",
        RequestError::Kind(_) => "bad_kind",
        RequestError::Value { .. } => "bad_value",
        RequestError::Endpoint(_) => "bad_endpoint",
        RequestError::Cost(_) => "bad_cost",
    }
}

fn shortened(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(MESSAGE_CHARACTERS_MAX) {
        text.truncate(end);
        text.push('…');
    }
    text
}

impl Told {
    /// The same, of something that stands at `place` in a larger document.
    pub(crate) fn within(mut self, place: &str) -> Self {
        self.field = Some(self.field.map_or_else(|| place.to_owned(), |field| format!("{place}/{field}")));
        self
    }
}

/// As a body: `{"error": {...}}`.
#[derive(Debug, Serialize)]
pub(crate) struct ErrorBody {
    pub(crate) error: Told,
}
