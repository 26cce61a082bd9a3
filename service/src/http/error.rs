//! What this door refuses: one enum, and one table that gives each case its status and its stable code; the field that is
//! wrong, and a message that says what to do. A denial is not an error.

use std::fmt;

use actix_web::http::StatusCode;
use serde::Serialize;
use tidegate::{RequestError, algorithm::NUMBER_MAX};

use crate::shared::{
    body_budget::{BODY_BYTES_MAX, BudgetRefusal},
    decider::{Unreserved, Unsettled},
    request_id_cache::{BadRequestId, RequestId, Reused},
    reservations::{Gone, ShareTaken},
    tokens::Forbidden,
};

/// The most checks in one batch.
pub(crate) const CHECKS_MAX: usize = 10_000;
/// Streams on a connection over gRPC beside which no other one of the reflection service begins.
pub(crate) const REFLECTION_STREAMS_MAX: usize = 16;
/// The largest head of a request: its path and its headers, in bytes.
pub(crate) const HEAD_BYTES_MAX: usize = 16 << 10;

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
    /// An id of a request that is empty or too long.
    RequestId(BadRequestId),
    /// An id of a request that came with another one.
    Reused(Reused),
    /// A reservation charges.
    PeekOfReservation,
    /// The caller has its share of the open reservations.
    ReservationShare(ShareTaken),
    /// A settlement above what a cost can be.
    Actual(u64),
    /// A settlement above the most that its reservation can be settled at.
    ActualAboveMax { actual: u64, max: u64 },
    /// There is nothing to settle.
    Reservation(Gone),
    /// A part of the query.
    Query { key: String, problem: String },
    /// The engine cannot decide it.
    Request { field: String, error: RequestError },
    /// So many checks in one batch.
    TooManyChecks(usize),
    /// A stream of the reflection service on a connection that has too many streams for that.
    TooManyStreams,
    /// A head above the bound.
    HeadTooLarge,
    /// None of the tokens that this server asks for, by the setting that names their file.
    Token(&'static str),
    /// A token that has no right to it.
    Forbidden(Forbidden),
    /// It came under this name, which is not one of a listener on loopback.
    Host(String),
    /// A page of another origin sent it; of which, where the browser says so.
    Origin(Option<String>),
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
    /// The body budget has no room for the body.
    Overload,
    /// There is no decision, and whoever asked knows what to do then.
    Undecided,
    /// A panic.
    Internal,
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

impl From<Unreserved> for Error {
    fn from(unreserved: Unreserved) -> Self {
        match unreserved {
            Unreserved::Reused(reused) => Self::Reused(reused),
            Unreserved::ShareTaken(share_taken) => Self::ReservationShare(share_taken),
        }
    }
}

impl From<Unsettled> for Error {
    fn from(unsettled: Unsettled) -> Self {
        match unsettled {
            Unsettled::Gone(gone) => Self::Reservation(gone),
            Unsettled::AboveMax { actual, max } => Self::ActualAboveMax { actual, max },
            Unsettled::Panicked => Self::Internal,
        }
    }
}

impl From<Forbidden> for Error {
    fn from(forbidden: Forbidden) -> Self {
        Self::Forbidden(forbidden)
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

    /// The table: status and stable code.
    fn kind(&self) -> (StatusCode, &'static str) {
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

    /// The field that is wrong.
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

    pub(crate) fn told(&self) -> Told {
        let (status, code) = self.kind();
        let field = self.field().map(|field| shortened(field.to_owned()));
        Told { status, code, message: shortened(self.to_string()), field }
    }
}

/// What is wrong, and what to do.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotUtf8 { at } => write!(f, "the body is not UTF-8 from byte {at} on; send JSON as UTF-8 text"),
            Self::NotJson(problem) => write!(f, "the body is not JSON: {problem}; send an object such as {EXAMPLE}"),
            Self::Field { field, problem } if field.is_empty() => f.write_str(problem),
            Self::Field { field, problem } => write!(f, "{field}: {problem}"),
            Self::Query { key, problem } => write!(f, "{key}: {problem}"),
            Self::Request { error, .. } => error.fmt(f),
            Self::RequestId(BadRequestId { bytes }) => {
                write!(f, "request_id: {bytes} bytes; from 1 to {} fit", RequestId::BYTES_MAX)
            }
            Self::Reused(Reused) => f.write_str(
                "request_id: came with another request in the last 60 s; give each request an id of its own, and a repeat what \
                 the first one had",
            ),
            Self::PeekOfReservation => f.write_str("peek: a reservation charges; ask by a check what is left"),
            Self::Actual(actual) => write!(f, "actual: {actual} is out of range; from 0 to {NUMBER_MAX} fit"),
            Self::ActualAboveMax { actual, max } => write!(
                f,
                "actual: {actual} is above {max}, the most that this reservation can be settled at: a multiple of its estimate \
                 (--settle-multiple of this server) or one burst of its largest limit; settle it at {max} or less, and reserve \
                 a larger estimate next time. Nothing was changed, and the reservation is still open"
            ),
            Self::Reservation(Gone::Settled) => {
                f.write_str("reservation: was settled or refunded before; nothing was changed")
            }
            Self::Reservation(Gone::Unknown) => f.write_str(
                "reservation: not known here; it is of another node, or more than an hour old, or from before a restart, and \
                 stands as it was charged",
            ),
            Self::ReservationShare(ShareTaken { open }) => write!(
                f,
                "reservation: this caller has {open} open ones, its share of the places (--caller-share of this server); settle \
                 or refund some of them, or ask by a check, which takes no place. Nothing was charged"
            ),
            Self::TooManyChecks(count) => {
                write!(f, "checks: {count} in one batch; at most {CHECKS_MAX} fit, send the others in another")
            }
            Self::TooManyStreams => write!(
                f,
                "{REFLECTION_STREAMS_MAX} streams or more are open on this connection, too many for one of the reflection \
                 service; ask on another connection"
            ),
            Self::HeadTooLarge => {
                write!(f, "the path and the headers have more than {HEAD_BYTES_MAX} bytes; send fewer or shorter ones")
            }
            Self::Token(setting) => write!(
                f,
                "this server asks for a token; send one of its {setting} as `Authorization: Bearer TOKEN`, or as \
                 X-Tidegate-Token"
            ),
            Self::Forbidden(forbidden) => forbidden.fmt(f),
            Self::Host(name) => write!(
                f,
                "Host: `{name}` is no name of this server, which listens on loopback; call it as localhost or 127.0.0.1, or \
                 allow the name with --allowed-host"
            ),
            Self::Origin(origin) => write!(
                f,
                "pages of {} may not call this server; allow their origin with --allowed-origin",
                origin.as_deref().unwrap_or("other sites")
            ),
            Self::TooLarge => write!(f, "the body has more than {BODY_BYTES_MAX} bytes; send less in one request"),
            Self::TooSlow => f.write_str("the body did not come in time; send it at once"),
            Self::BrokenOff => f.write_str(
                "the body ended early or is malformed; send all that its length or its chunks announce",
            ),
            Self::MediaType(given) => {
                write!(f, "Content-Type: `{given}` is not read here; send JSON as application/json")
            }
            Self::Encoding(given) => write!(f, "Content-Encoding: `{given}` is not read here; send the body as it is"),
            Self::Overload => {
                f.write_str("too many long bodies are being read at once; nothing was changed, send it again")
            }
            Self::Undecided => f.write_str("this could not be decided; the log of this server says why"),
            Self::Internal => f.write_str("something went wrong in here; the log of this server says what"),
            Self::Method { given, allowed } => write!(f, "{given} is not for this path; use {allowed}"),
            Self::Path(path) => {
                write!(f, "nothing is at {path}; checks go to POST /v1/check and POST /v1/check/batch")
            }
        }
    }
}

/// What the engine refuses has a code each.
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
