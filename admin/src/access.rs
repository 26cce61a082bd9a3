//! Who may: the guard before everything under `/api/v1`, and the session that handlers ask for in their arguments.
//!
//! What is open is listed here, by method and path; the rest, unknown paths too, needs a session. A request that may
//! change something needs the session's token in a header besides, which no other site can send.

use std::future::{Ready, ready};

use actix_web::{
    Error, FromRequest, HttpMessage, HttpRequest,
    body::MessageBody,
    dev::{Payload, ServiceRequest, ServiceResponse},
    http::{Method, header::HeaderValue},
    middleware::Next,
    web,
};

use crate::{
    problem::Problem,
    secrets::now,
    server::State,
    store::{Session, sha256},
};

pub(crate) const CSRF_HEADER: &str = "x-csrf-token";

/// Open without a session.
const OPEN: [(Method, &str); 4] = [
    (Method::GET, "/api/v1/setup"),
    (Method::POST, "/api/v1/setup"),
    (Method::POST, "/api/v1/session"),
    (Method::GET, "/api/v1/openapi.json"),
];

/// Can this be asked without a session?
pub(crate) fn is_open(method: &Method, path: &str) -> bool {
    OPEN.iter().any(|(open, at)| open == method && *at == path)
}

/// Does this only look?
pub(crate) fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

/// Somebody who is signed in.
#[derive(Clone, Debug)]
pub(crate) struct SignedIn {
    pub(crate) session: Session,
    /// Of the cookie's token.
    pub(crate) token_sha256: String,
}

impl FromRequest for SignedIn {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(request.extensions().get::<Self>().cloned().ok_or(Problem::Unauthorized))
    }
}

/// The guard.
pub(crate) async fn guard(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    // Refusals are answers like any other, so that everything that is put on answers is put on them too.
    match admit(&request).await {
        Ok(()) => Ok(next.call(request).await?.map_into_left_body()),
        Err(problem) => Ok(request.error_response(problem).map_into_right_body()),
    }
}

async fn admit(request: &ServiceRequest) -> Result<(), Problem> {
    if is_open(request.method(), request.path()) {
        return Ok(());
    }
    let signed_in = signed_in(request).await?;
    let token = request.headers().get(CSRF_HEADER).map(HeaderValue::as_bytes);
    if !is_safe(request.method()) && token != Some(signed_in.session.csrf.as_bytes()) {
        return Err(Problem::Csrf);
    }
    request.extensions_mut().insert(signed_in);
    Ok(())
}

async fn signed_in(request: &ServiceRequest) -> Result<SignedIn, Problem> {
    let state = request.app_data::<web::Data<State>>();
    let state = state.ok_or_else(|| Problem::Internal("the state is missing".to_owned()))?;
    let cookie = request.cookie(&state.cookie).ok_or(Problem::Unauthorized)?;
    let token_sha256 = sha256(cookie.value());
    let session = state.store.session(&token_sha256, now()).await?.ok_or(Problem::Unauthorized)?;
    Ok(SignedIn { session, token_sha256 })
}

/// Address of the connection, for the audit log.
pub(crate) fn address(request: &HttpRequest) -> String {
    request.peer_addr().map(|address| address.ip().to_string()).unwrap_or_default()
}
