//! Errors of requests at all listeners: one enum, and one table from each case to its HTTP status and its stable code, which the
//! other protocols use too. The HTTP API answers them as problem details. A denial is not an error.

use actix_web::http::StatusCode;
use derive_more::{Display, From};
use tidegate::{RequestError, algorithm::NUMBER_MAX};
use tidegate_api::{ErrorLocation, FieldError, ProblemDetails};

use super::{
    body_budget::{BODY_BYTES_MAX, BudgetRefusal},
    request_id_cache::{BadRequestId, Reused},
    reservations::{Gone, ShareTaken},
    tokens::Forbidden,
};

/// The largest number of checks in one batch.
pub(crate) const CHECKS_MAX: usize = 10_000;
/// The number of open streams on a gRPC connection from which on no stream of the reflection service begins.
pub(crate) const REFLECTION_STREAMS_MAX: usize = 16;
/// The largest head of a request: its path and its headers, in bytes.
pub(crate) const HEAD_BYTES_MAX: usize = 16 << 10;

const EXAMPLE: &str = r#"{"identities":[{"kind":"ip","value":"192.0.2.7"}]}"#;

/// The largest length of a message, in characters: it quotes what a caller sent.
const MESSAGE_CHARACTERS_MAX: usize = 400;

/// An error of a request. Nothing was charged. Its text says what is wrong, and what to do.
#[derive(Debug, Display, From)]
pub(crate) enum Error {
    #[display("the body is not UTF-8 from byte {at} on; send JSON as UTF-8 text")]
    NotUtf8 { at: usize },
    /// The body is text, but not JSON; the parser's message.
    #[display("the body is not JSON: {_0}; send an object such as {EXAMPLE}")]
    NotJson(String),
    /// The body is JSON, but not the document that is read here. `field` is the name of a field, or a JSON pointer; empty for the
    /// whole body.
    #[display("{}{}{problem}", field.trim_start_matches('/'), if field.is_empty() { "" } else { ": " })]
    Field { field: String, problem: String },
    #[from]
    RequestId(BadRequestId),
    #[from]
    Reused(Reused),
    #[display("peek: a reservation charges; ask by a check what is left")]
    PeekOfReservation,
    #[from]
    ReservationShare(ShareTaken),
    /// A settlement is above the largest cost.
    #[display("actual: {_0} is out of range; from 0 to {NUMBER_MAX} fit")]
    Actual(u64),
    /// A settlement is above the largest cost at which its reservation can be settled.
    #[display(
        "actual: {actual} is above {max}, the most that this reservation can be settled at: a multiple of its estimate \
         (--settle-multiple of this server) or one burst of its largest limit; settle it at {max} or less, and reserve \
         a larger estimate next time. Nothing was changed, and the reservation is still open"
    )]
    ActualAboveMax { actual: u64, max: u64 },
    #[from]
    Reservation(Gone),
    #[display("{key}: {problem}")]
    Query { key: String, problem: String },
    /// The engine rejects the request. `field` is the name of a field, or a path to it.
    #[display("{error}")]
    Request { field: String, error: RequestError },
    #[display("checks: {_0} in one batch; at most {CHECKS_MAX} fit, send the others in another")]
    TooManyChecks(usize),
    #[display(
        "{REFLECTION_STREAMS_MAX} streams or more are open on this connection, too many for one of the reflection service; \
         ask on another connection"
    )]
    TooManyStreams,
    #[display("the path and the headers have more than {HEAD_BYTES_MAX} bytes; send fewer or shorter ones")]
    HeadTooLarge,
    /// The request has none of the server's tokens; the name of the setting that names their file.
    #[display(
        "this server asks for a token; send one of its {_0} as `Authorization: Bearer TOKEN`, or as X-Tidegate-Token"
    )]
    Token(&'static str),
    #[from]
    Forbidden(Forbidden),
    /// The `Host` is this name, which a listener on loopback does not have.
    #[display(
        "Host: `{_0}` is no name of this server, which listens on loopback; call it as localhost or 127.0.0.1, or allow the \
         name with --allowed-host"
    )]
    Host(String),
    /// A page of another origin sent the request; the origin, if the browser gives it.
    #[display(
        "pages of {} may not call this server; allow their origin with --allowed-origin",
        _0.as_deref().unwrap_or("other sites")
    )]
    Origin(Option<String>),
    #[display("the body has more than {BODY_BYTES_MAX} bytes; send less in one request")]
    TooLarge,
    #[display("the body did not come in time; send it at once")]
    TooSlow,
    #[display("the body ended early or is malformed; send all that its length or its chunks announce")]
    BrokenOff,
    #[display("Content-Type: `{_0}` is not read here; send JSON as application/json")]
    MediaType(String),
    /// The body is compressed.
    #[display("Content-Encoding: `{_0}` is not read here; send the body as it is")]
    Encoding(String),
    /// The body budget has no room for the body.
    #[display("too many long bodies are being read at once; nothing was changed, send it again")]
    Overload,
    /// No decision was made; the caller has a setting for that case.
    #[display("this could not be decided; the log of this server says why")]
    Undecided,
    /// A panic was caught.
    #[display("something went wrong in here; the log of this server says what")]
    Internal,
    /// The path exists, but takes only these methods.
    #[display("{given} is not for this path; use {allowed}")]
    Method { given: String, allowed: &'static str },
    #[display(
        "nothing is at {_0}; {}checks go to POST /v1/check and POST /v1/check/batch",
        if _0.starts_with("/api/") { "this is not an admin server, and " } else { "" }
    )]
    Path(String),
}

/// An error in the form that all protocols write.
#[derive(Debug)]
pub(crate) struct ErrorReport {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    pub(crate) message: String,
    /// Name of the field that is wrong, or the path to it in the message or the body.
    pub(crate) field: Option<String>,
}

impl ErrorReport {
    /// Prefixes the field with the place of the value in a larger message.
    pub(crate) fn within(mut self, place: &str) -> Self {
        self.field = Some(self.field.map_or_else(|| place.to_owned(), |field| format!("{place}/{field}")));
        self
    }
}

impl From<BudgetRefusal> for Error {
    fn from(refusal: BudgetRefusal) -> Self {
        if refusal == BudgetRefusal::Overdue { Self::TooSlow } else { Self::Overload }
    }
}

impl Error {
    pub(crate) fn query(key: &str, problem: &str) -> Self {
        Self::Query { key: key.to_owned(), problem: problem.to_owned() }
    }

    /// Returns the HTTP status and the stable code: the table of all errors.
    pub(crate) fn kind(&self) -> (StatusCode, &'static str) {
        match self {
            Self::NotUtf8 { .. } | Self::NotJson(_) => (StatusCode::BAD_REQUEST, "bad_json"),
            Self::Field { .. } | Self::PeekOfReservation => (StatusCode::BAD_REQUEST, "bad_field"),
            Self::Query { .. } => (StatusCode::BAD_REQUEST, "bad_query"),
            Self::Request { error, .. } => (StatusCode::BAD_REQUEST, code(error)),
            Self::Actual(_) | Self::ActualAboveMax { .. } => (StatusCode::BAD_REQUEST, "bad_cost"),
            Self::RequestId(_) => (StatusCode::BAD_REQUEST, "bad_request_id"),
            Self::Reused(_) => (StatusCode::BAD_REQUEST, "request_id_reused"),
            Self::TooManyChecks(_) => (StatusCode::BAD_REQUEST, "too_many_checks"),
            Self::TooManyStreams => (StatusCode::TOO_MANY_REQUESTS, "too_many_streams"),
            Self::BrokenOff => (StatusCode::BAD_REQUEST, "broken_off"),
            Self::Reservation(Gone::Unknown) => (StatusCode::NOT_FOUND, "unknown_reservation"),
            Self::Path(_) => (StatusCode::NOT_FOUND, "not_found"),
            Self::Method { .. } => (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed"),
            Self::TooSlow => (StatusCode::REQUEST_TIMEOUT, "too_slow"),
            Self::Reservation(Gone::Settled) => (StatusCode::CONFLICT, "settled_before"),
            Self::HeadTooLarge => (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "head_too_large"),
            Self::Token(_) => (StatusCode::UNAUTHORIZED, "no_token"),
            Self::Forbidden(_) => (StatusCode::FORBIDDEN, "forbidden"),
            Self::Host(_) => (StatusCode::FORBIDDEN, "unknown_host"),
            Self::Origin(_) => (StatusCode::FORBIDDEN, "cross_origin"),
            Self::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "too_large"),
            Self::MediaType(_) | Self::Encoding(_) => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type"),
            Self::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "internal_error"),
            Self::ReservationShare(_) => (StatusCode::SERVICE_UNAVAILABLE, "too_many_reservations"),
            Self::Overload => (StatusCode::SERVICE_UNAVAILABLE, "overload"),
            Self::Undecided => (StatusCode::SERVICE_UNAVAILABLE, "undecided"),
        }
    }

    fn field(&self) -> Option<&str> {
        match self {
            Self::Field { field, .. } | Self::Request { field, .. } => {
                Some(field).filter(|field| !field.is_empty()).map(|field| &**field)
            }
            Self::Query { key, .. } => Some(key),
            Self::RequestId(_) | Self::Reused(_) => Some("request_id"),
            Self::PeekOfReservation => Some("peek"),
            Self::Actual(_) | Self::ActualAboveMax { .. } => Some("actual"),
            Self::Reservation(_) | Self::ReservationShare(_) => Some("reservation"),
            Self::TooManyChecks(_) => Some("checks"),
            Self::Forbidden(Forbidden::Domain(_)) => Some("domain"),
            _ => None,
        }
    }

    fn header(&self) -> Option<&'static str> {
        match self {
            Self::MediaType(_) => Some("content-type"),
            Self::Encoding(_) => Some("content-encoding"),
            Self::Host(_) => Some("host"),
            Self::Origin(_) => Some("origin"),
            _ => None,
        }
    }

    pub(crate) fn report(&self) -> ErrorReport {
        let (status, code) = self.kind();
        let field = self.field().map(|field| shortened(field.to_owned()));
        ErrorReport { status, code, message: shortened(self.to_string()), field }
    }

    /// Returns the error as the body of an HTTP response, with the place of what is wrong in this part of the request.
    pub(crate) fn problem(&self, part: RequestPart<'_>) -> ProblemDetails {
        let ErrorReport { status, code, message, .. } = self.report();
        let at = match (self.header(), part, self.field()) {
            (Some(header), ..) => Some(ErrorLocation::Header(header.to_owned())),
            (None, RequestPart::Query, field) => field.map(|field| ErrorLocation::Parameter(field.to_owned())),
            // No body that reserves has the field.
            (None, RequestPart::Body(""), _) if matches!(self, Self::ReservationShare(_)) => None,
            (None, RequestPart::Body(place), Some(field)) => {
                let slash = if field.starts_with('/') { "" } else { "/" };
                Some(ErrorLocation::Pointer(format!("{place}{slash}{}", short_pointer(field))))
            }
            (None, RequestPart::Body(place), None) => {
                let is_of_body = matches!(self, Self::NotUtf8 { .. } | Self::NotJson(_) | Self::Field { .. });
                (is_of_body || !place.is_empty()).then(|| ErrorLocation::Pointer(place.to_owned()))
            }
        };
        let errors = at.map(|at| FieldError { at, code: code.into(), message: message.clone() });
        let title = status.canonical_reason().unwrap_or_default();
        ProblemDetails {
            errors: errors.into_iter().collect(),
            ..ProblemDetails::new(status.as_u16(), code, title, message)
        }
    }
}

/// The part of an HTTP request that an error is about.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RequestPart<'p> {
    /// The value at this JSON pointer into the body; empty for the whole body.
    Body(&'p str),
    /// The query: the body is not read.
    Query,
}

/// Returns the stable code of an error of the engine.
fn code(error: &RequestError) -> &'static str {
    match error {
        RequestError::Identities(_) => "bad_identities",
        RequestError::RepeatedKind(_) => "repeated_kind",
        RequestError::Kind(_) => "bad_kind",
        RequestError::Value { .. } | RequestError::Address(_) => "bad_value",
        RequestError::Endpoint(_) => "bad_endpoint",
        RequestError::Cost(_) => "bad_cost",
    }
}

/// Returns a JSON pointer, or if it is long the pointer to the innermost value around that has a short one: a pointer that is
/// cut elsewhere would point to nothing.
fn short_pointer(pointer: &str) -> &str {
    if pointer.len() <= MESSAGE_CHARACTERS_MAX {
        return pointer;
    }
    let start = &pointer[..pointer.floor_char_boundary(MESSAGE_CHARACTERS_MAX)];
    start.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// Cuts a text to [`MESSAGE_CHARACTERS_MAX`].
fn shortened(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(MESSAGE_CHARACTERS_MAX) {
        text.truncate(end);
        text.push('…');
    }
    text
}
