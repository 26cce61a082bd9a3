//! The id of a request: in its answer (`X-Request-Id`), in the server's log where it failed, and in the audit log.

use actix_web::{HttpMessage, HttpRequest};

/// Put on each request before it is answered.
#[derive(Clone, Debug)]
pub(crate) struct RequestId(pub(crate) String);

/// That of this request.
pub(crate) fn request_id(request: &HttpRequest) -> String {
    request.extensions().get::<RequestId>().map(|id| id.0.clone()).unwrap_or_default()
}
