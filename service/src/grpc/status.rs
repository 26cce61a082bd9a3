//! Converts errors to gRPC statuses, and counts the rejected calls.

use actix_web::http::StatusCode;
use tonic::{Code, Status, metadata::MetadataValue};

use super::methods::KIND;
use crate::{
    protobuf::error::MessageError,
    shared::{
        error::{Error, ErrorReport},
        service_state::ServiceState,
    },
};

/// The metadata key of an error's stable code, which is the same as over HTTP.
pub(super) const CODE: &str = "tidegate-code";

/// Counts and logs a rejected call, and returns its status. `within` is the place of the part of a message that the
/// error is about.
pub(super) fn reject<C>(shared: &ServiceState<C>, error: &Error, within: Option<&str>) -> Status {
    let (status, code) = status(error, within);
    tracing::debug!(code, message = status.message(), "refused");
    shared.metrics.count_rejection(KIND.name, code);
    status
}

/// Returns the status of a message that is malformed or has a wrong request; the latter is counted and logged. `within`
/// is the place of the part of a message that the error is about.
pub(super) fn reject_message<C>(shared: &ServiceState<C>, error: MessageError, within: Option<&str>) -> Status {
    match (error, within) {
        (MessageError::Malformed(why), Some(place)) => Status::invalid_argument(format!("{place}: {why}")),
        (MessageError::Malformed(why), None) => Status::invalid_argument(why),
        (MessageError::Invalid(error), _) => reject(shared, &error, within),
    }
}

/// Returns the status of an error, and its code. `within` is the place of the part of a message that the error is about.
fn status(error: &Error, within: Option<&str>) -> (Status, &'static str) {
    let told = error.report();
    let ErrorReport { status, code, message, field } = match within {
        Some(place) => told.within(place),
        None => told,
    };
    let message = match field {
        // The message begins with the name of the field, which here is a part of a longer one.
        Some(field) => {
            let problem = message.split_once(": ").map_or(&*message, |(_, problem)| problem);
            format!("{field}: {problem}")
        }
        None => message,
    };
    let mut status = Status::new(grpc_code(status), message);
    status.metadata_mut().insert(CODE, MetadataValue::from_static(code));
    (status, code)
}

/// Returns the gRPC code of an HTTP status.
fn grpc_code(status: StatusCode) -> Code {
    match status {
        StatusCode::UNAUTHORIZED => Code::Unauthenticated,
        StatusCode::FORBIDDEN => Code::PermissionDenied,
        StatusCode::NOT_FOUND => Code::NotFound,
        StatusCode::METHOD_NOT_ALLOWED | StatusCode::UNSUPPORTED_MEDIA_TYPE => Code::Unimplemented,
        StatusCode::REQUEST_TIMEOUT => Code::DeadlineExceeded,
        StatusCode::CONFLICT => Code::FailedPrecondition,
        StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE | StatusCode::TOO_MANY_REQUESTS => {
            Code::ResourceExhausted
        }
        StatusCode::INTERNAL_SERVER_ERROR => Code::Internal,
        StatusCode::SERVICE_UNAVAILABLE => Code::Unavailable,
        _ => Code::InvalidArgument,
    }
}
