//! What a request can be refused for, and the one table from it to a status, a stable code and words
//! (RFC 9457, problem details).

use std::{fmt, time::Duration};

use actix_web::{
    HttpResponse, ResponseError,
    http::{StatusCode, header},
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::store::{Trouble, trouble};

/// Why a request was refused.
#[derive(Debug)]
pub(crate) enum Problem {
    /// Nobody is signed in.
    Unauthorized,
    /// A change without the header that only our own page can send.
    Csrf,
    WrongCredentials,
    /// Too many tries.
    TooMany {
        /// When to come again.
        retry_after_s: u64,
    },
    /// What was not found.
    NotFound(String),
    MethodNotAllowed {
        /// The methods that this path takes.
        allowed: &'static str,
    },
    MediaType {
        /// What the body should be said to be.
        wanted: &'static str,
    },
    /// The body did not come in time.
    TooSlow {
        /// When it should have been here.
        patience: Duration,
    },
    /// The body cannot be read.
    BadJson(FieldError),
    TooLarge {
        /// So many fit.
        bytes_max: usize,
    },
    /// Objects that changed meanwhile.
    Conflict(Vec<Value>),
    /// A tier that is used.
    InUse {
        what: String,
        /// By whom, as [`Usage`](crate::objects::Usage).
        used_by: Value,
    },
    /// A domain has at least one of these.
    LastOfItsKind(String),
    /// Keys of objects that `if_match` does not name.
    PreconditionRequired(Vec<String>),
    /// Fields that are wrong.
    Invalid(Vec<FieldError>),
    /// The database cannot be written; the words are for people.
    Storage(String),
    /// The server's fault; the words are for its log.
    Internal(String),
}

/// A field that is wrong.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct FieldError {
    /// JSON pointer into the request's body; empty for the whole.
    pub(crate) pointer: String,
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

impl FieldError {
    pub(crate) fn invalid(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), code: "invalid", message: message.into() }
    }
}

impl Problem {
    /// One field is wrong.
    pub(crate) fn field(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Invalid(vec![FieldError::invalid(pointer, message)])
    }

    /// The table.
    fn row(&self) -> (StatusCode, &'static str, &'static str) {
        match self {
            Self::Unauthorized => (StatusCode::UNAUTHORIZED, "unauthorized", "Sign in first"),
            Self::Csrf => (StatusCode::FORBIDDEN, "csrf", "This request did not come from the dashboard"),
            Self::WrongCredentials => (StatusCode::UNAUTHORIZED, "wrong_credentials", "Wrong name or password"),
            Self::TooMany { .. } => (StatusCode::TOO_MANY_REQUESTS, "too_many", "Too many tries"),
            Self::NotFound(_) => (StatusCode::NOT_FOUND, "not_found", "Not found"),
            Self::MethodNotAllowed { .. } => {
                (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "This cannot be done here")
            }
            Self::MediaType { .. } => {
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", "The body is of another type")
            }
            Self::TooSlow { .. } => (StatusCode::REQUEST_TIMEOUT, "too_slow", "The body did not come in time"),
            Self::BadJson(_) => (StatusCode::BAD_REQUEST, "bad_json", "The body cannot be read"),
            Self::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "too_large", "The body is too large"),
            Self::Conflict(_) => (StatusCode::PRECONDITION_FAILED, "conflict", "Somebody changed this meanwhile"),
            Self::InUse { .. } => (StatusCode::CONFLICT, "in_use", "Others need this"),
            Self::LastOfItsKind(_) => (StatusCode::CONFLICT, "last_of_its_kind", "One must stay"),
            Self::PreconditionRequired(_) => {
                (StatusCode::PRECONDITION_REQUIRED, "precondition_required", "Say which state you change")
            }
            Self::Invalid(_) => (StatusCode::UNPROCESSABLE_ENTITY, "invalid", "Something is wrong with the request"),
            Self::Storage(_) => (StatusCode::SERVICE_UNAVAILABLE, "storage", "The database cannot be written"),
            Self::Internal(_) => (StatusCode::INTERNAL_SERVER_ERROR, "internal", "The server failed"),
        }
    }

    fn detail(&self) -> String {
        match self {
            Self::Unauthorized => "There is no session, or it has ended.".to_owned(),
            Self::Csrf => "Send the header X-CSRF-Token with the value that GET /api/v1/session gives.".to_owned(),
            Self::WrongCredentials => "Wrong name or password.".to_owned(),
            Self::NotFound(what) => what.clone(),
            Self::TooMany { retry_after_s } => format!("Try again in {retry_after_s} s."),
            Self::MethodNotAllowed { allowed } => format!("This path takes {allowed}."),
            Self::MediaType { wanted } => format!("Send it with the header content-type: {wanted}."),
            Self::TooSlow { patience } => format!("A body must be here within {} s.", patience.as_secs()),
            Self::BadJson(field) => field.message.clone(),
            Self::TooLarge { bytes_max } => format!("At most {bytes_max} bytes fit."),
            Self::Conflict(objects) => match objects.len() {
                1 => "One object was changed since you read it. Nothing was published.".to_owned(),
                count => format!("{count} objects were changed since you read them. Nothing was published."),
            },
            Self::InUse { what, .. } => {
                format!("{what} is in use; move its users to another tier first, or in the same list.")
            }
            Self::LastOfItsKind(what) => format!("{what} is the last one; make another one first."),
            Self::PreconditionRequired(keys) => format!("if_match must name the ETag of {}.", keys.join(", ")),
            Self::Invalid(fields) => fields.iter().map(|field| field.message.as_str()).collect::<Vec<_>>().join("; "),
            Self::Storage(why) => format!("{why}. Nothing was changed."),
            Self::Internal(_) => "It is written in the server's log, under the request's id.".to_owned(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Internal(why) => f.write_str(why),
            other => f.write_str(&other.detail()),
        }
    }
}

impl ResponseError for Problem {
    fn status_code(&self) -> StatusCode {
        self.row().0
    }

    fn error_response(&self) -> HttpResponse {
        let (status, code, title) = self.row();
        let mut body = json!({
            "type": "about:blank", "code": code, "title": title, "status": status.as_u16(), "detail": self.detail(),
        });
        match self {
            Self::BadJson(field) => body["errors"] = json!([field]),
            Self::Invalid(fields) => body["errors"] = json!(fields),
            Self::Conflict(objects) => body["conflicts"] = json!(objects),
            Self::InUse { used_by, .. } => body["used_by"].clone_from(used_by),
            _ => {}
        }
        let mut response = HttpResponse::build(status);
        match self {
            Self::TooMany { retry_after_s } => drop(response.insert_header((header::RETRY_AFTER, *retry_after_s))),
            Self::MethodNotAllowed { allowed } => drop(response.insert_header((header::ALLOW, *allowed))),
            // What is left of the body would be taken for the next request.
            Self::TooSlow { .. } => drop(response.force_close()),
            _ => {}
        }
        response.content_type("application/problem+json").body(body.to_string())
    }
}

impl From<sqlx::Error> for Problem {
    fn from(error: sqlx::Error) -> Self {
        match trouble(&error) {
            Some(Trouble::Full) => Self::Storage("The disk of the database is full".to_owned()),
            Some(Trouble::Gone) => Self::Storage("The database was removed or replaced; restart the server".to_owned()),
            None => Self::Internal(format!("database: {error}")),
        }
    }
}
