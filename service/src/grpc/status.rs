//! Refusals as gRPC tells them.

use actix_web::http::StatusCode;
use tonic::{Code, Status, metadata::MetadataValue};

use crate::http::error::{Error, Told};

/// Metadata of a refusal: its stable code, as over HTTP.
pub(super) const CODE: &str = "tidegate-code";

/// A refusal; of a part of a message, which stands at `within`.
pub(super) fn status(error: &Error, within: Option<&str>) -> (Status, &'static str) {
    let told = error.told();
    let Told { status, code, message, field } = match within {
        Some(place) => told.within(place),
        None => told,
    };
    let message = match field {
        // Messages begin with the field's own name, which here is a part of another one.
        Some(field) => {
            let problem = message.split_once(": ").map_or(&*message, |(_, problem)| problem);
            format!("{field}: {problem}")
        }
        None => message,
    };
    let mut status = Status::new(grpc(status), message);
    status.metadata_mut().insert(CODE, MetadataValue::from_static(code));
    (status, code)
}

/// What a status of HTTP is in gRPC.
fn grpc(status: StatusCode) -> Code {
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
