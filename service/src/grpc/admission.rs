//! Admits calls: finds the method that a call names and the caller that makes it, and refuses callers without the access.

use std::iter::once_with;

use http::{Request, header::CONTENT_TYPE};
use hyper::body::Incoming;
use tidegate::clock::Clock;
use tidegate_listener::PeerNetwork;
use tidegate_middleware::extract;
use tonic::Status;

use super::{
    methods::{KIND, Method, MethodAccess, SERVICES},
    status::reject,
};
use crate::shared::{
    caller_shares::Caller,
    error::Error,
    service_state::ServiceState,
    tokens::{CHECK_TOKENS, METRICS_TOKENS, Right},
};

/// The metadata key of a token, for callers whose `authorization` is for another server.
const TOKEN: &str = "x-tidegate-token";
/// The longest part of a path that is quoted.
const PATH_CHARACTERS_MAX: usize = 200;

/// Returns whether a content type is gRPC with protobuf messages, with or without parameters.
fn is_grpc(kind: &[u8]) -> bool {
    let kind = kind.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii_end();
    [&b"application/grpc"[..], b"application/grpc+proto"].iter().any(|known| kind.eq_ignore_ascii_case(known))
}

/// Finds the method of a call, and its caller. The caller has no token where the method requires none, or one that the
/// admin server checks. Returns an error where the call is not gRPC, there is no such method, or the caller lacks the
/// access.
pub(super) fn admit<C: Clock>(
    shared: &ServiceState<C>,
    method: Option<&'static Method>,
    request: &Request<Incoming>,
    peer: PeerNetwork,
) -> Result<(&'static Method, Caller), Status> {
    let headers = request.headers();
    if !headers.get(CONTENT_TYPE).is_some_and(|kind| is_grpc(kind.as_bytes())) {
        let given = headers.get(CONTENT_TYPE).map(|kind| String::from_utf8_lossy(kind.as_bytes()).into_owned());
        let problem = format!("`{}` is not gRPC; ask by a client of gRPC", given.unwrap_or_default());
        return Err(reject(shared, &Error::Field { field: "content-type".to_owned(), problem }, None));
    }
    let Some(method) = method else {
        shared.metrics.count_rejection(KIND.name, "not_found");
        let path: String = request.uri().path().chars().take(PATH_CHARACTERS_MAX).collect();
        return Err(Status::unimplemented(format!(
            "nothing is called {path}; the services are {}",
            SERVICES.join(", ")
        )));
    };
    let bearer = || headers.get("authorization").and_then(|value| extract::bearer(value.as_bytes()));
    let own = || headers.get(TOKEN).map(http::HeaderValue::as_bytes);
    let tokens = || once_with(own).chain(once_with(bearer)).flatten();
    let by_token = || shared.caller(peer, tokens()).ok_or(Error::Token(CHECK_TOKENS));
    let caller = match method.access {
        MethodAccess::Nothing | MethodAccess::Admin => Ok(Caller::without_token(peer)),
        MethodAccess::Metrics if shared.may_scrape(tokens()) => Ok(Caller::without_token(peer)),
        MethodAccess::Metrics => Err(Error::Token(METRICS_TOKENS)),
        // A token without that right may still be valid at the admin server.
        MethodAccess::Reset => {
            let caller = shared.caller_by_token(peer, tokens());
            let caller = caller.filter(|caller| caller.rights.permit(Right::Reset).is_ok());
            Ok(caller.unwrap_or_else(|| Caller::without_token(peer)))
        }
        MethodAccess::Token => by_token(),
        MethodAccess::Right(right) => by_token().and_then(|caller| {
            caller.rights.permit(right)?;
            Ok(caller)
        }),
    };
    caller.map(|caller| (method, caller)).map_err(|error| reject(shared, &error, None))
}
