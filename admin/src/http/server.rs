//! The HTTP server: its routes, and what is put on every response.

use std::{
    convert::Infallible,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use actix_web::{
    App, Error, HttpMessage,
    body::{BodySize, MessageBody},
    dev::{Server, ServiceRequest, ServiceResponse},
    http::{
        Method,
        header::{self, HeaderName, HeaderValue},
    },
    middleware::{Next, from_fn},
    web::{self, Bytes},
};
use tidegate_listener::HttpListener;

use crate::{
    base::secrets::secret,
    http::{connections::Connections, request_id::RequestId, routes, state::State},
};

/// What the page may do: nothing but be itself and ask this server.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                                       connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";
/// Browsers come by TLS for a year, whatever a link says.
const TRANSPORT_SECURITY: &str = "max-age=31536000";

/// Starts to serve the routes. Connections are counted in `connections`.
pub(crate) fn start(listener: HttpListener, state: Arc<State>, connections: Connections) -> io::Result<Server> {
    let state = web::Data::from(state);
    listener.serve(
        move || App::new().app_data(state.clone()).wrap(from_fn(dress)).configure(routes::configure),
        move |data| {
            data.insert(connections.begin());
        },
    )
}

/// Puts on every answer what no handler should have to think of, and writes the server's faults to the log.
async fn dress(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    // Only to find an answer in the logs again: without random numbers it has none.
    let id = secret().map(|secret| secret[..12].to_owned()).unwrap_or_default();
    request.extensions_mut().insert(RequestId(id.clone()));
    let (method, path) = (request.method().clone(), request.path().to_owned());
    let state = request.app_data::<web::Data<State>>().cloned();
    let response = next.call(request).await?;
    // Of an answer without its body nothing is made: a stream would not end.
    let mut response = match method {
        Method::HEAD => response.map_body(|_, body| Head(body.size())).map_into_right_body(),
        _ => response.map_into_left_body(),
    };
    if let Some(state) = &state {
        state.telemetry.answered(response.status().as_u16());
    }
    if let Some(error) = response.response().error().filter(|_| response.status().is_server_error()) {
        tracing::error!(id, %method, path, %error, "request failed");
    }
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=()"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if state.is_some_and(|state| state.is_https) {
        headers.insert(header::STRICT_TRANSPORT_SECURITY, HeaderValue::from_static(TRANSPORT_SECURITY));
    }
    if !headers.contains_key(header::CACHE_CONTROL) {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    if let Ok(id) = HeaderValue::from_str(&id) {
        headers.insert(HeaderName::from_static("x-request-id"), id);
    }
    Ok(response)
}

/// A body of this size, not sent.
struct Head(BodySize);

impl MessageBody for Head {
    type Error = Infallible;

    fn size(&self) -> BodySize {
        self.0
    }

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, Infallible>>> {
        Poll::Ready(None)
    }
}
