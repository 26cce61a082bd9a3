//! Encoded requests of the timed callers and of the hostile one.

use serde_json::json;
use tidegate_service::grpc::proto::tidegate::v1::RateLimitRequest;

/// Returns the body of a check of a user.
pub(crate) fn check(user: &str) -> String {
    check_of("user", user)
}

/// Returns the body of a check of an identity. Limits of the kind `member` are in the store.
pub(crate) fn check_of(kind: &str, value: &str) -> String {
    json!({ "identities": [{ "kind": kind, "value": value }] }).to_string()
}

/// Returns a `GET` request of the audit log with this session cookie, which reads from the database.
pub(crate) fn read_as(cookie: &str) -> Vec<u8> {
    format!("GET /api/v1/audit?limit=20 HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {cookie}\r\n\r\n").into_bytes()
}

/// Returns a `POST` request with a JSON body.
pub(crate) fn post(path: &str, body: &str) -> Vec<u8> {
    let head = format!("POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n");
    format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// Returns a check over gRPC of a user.
pub(crate) fn grpc_check(user: &str) -> RateLimitRequest {
    RateLimitRequest { identifier: user.to_owned(), identifier_type: "user".to_owned(), ..RateLimitRequest::default() }
}
