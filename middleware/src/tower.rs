//! The guard as a `tower` layer, for requests of the crate `http`: axum, tonic, hyper.

use std::{
    any::Any,
    mem,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, request::Parts};
use http_body_util::{Either, Full};
use tower_layer::Layer;
use tower_service::Service;

use crate::{answer::Answer, guard::Guard, head::RequestHead, headers::NUMBERS, ruling::Decider};

/// The address of whoever has the connection, in a request's extensions: for servers of which the guard does not know where
/// they keep it. It knows `axum`'s `ConnectInfo<SocketAddr>` and tonic's `TcpConnectInfo`, with the features of these names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer(pub SocketAddr);

impl RequestHead for Parts {
    fn header(&self, name: &str) -> Vec<&[u8]> {
        self.headers.get_all(name).iter().map(HeaderValue::as_bytes).collect()
    }

    fn peer(&self) -> Option<IpAddr> {
        if let Some(Peer(address)) = self.extensions.get() {
            return Some(address.ip());
        }
        #[cfg(feature = "axum")]
        if let Some(axum::extract::ConnectInfo(address)) =
            self.extensions.get::<axum::extract::ConnectInfo<SocketAddr>>()
        {
            return Some(address.ip());
        }
        #[cfg(feature = "tonic")]
        if let Some(connection) = self.extensions.get::<tonic::transport::server::TcpConnectInfo>() {
            return connection.remote_addr().map(|address| address.ip());
        }
        None
    }

    fn path(&self) -> &str {
        self.uri.path()
    }

    fn method(&self) -> &str {
        self.method.as_str()
    }

    fn original(&self) -> &dyn Any {
        self
    }
}

impl<S, D> Layer<S> for Guard<D> {
    type Service = Guarded<S, D>;

    fn layer(&self, inner: S) -> Guarded<S, D> {
        Guarded { guard: self.clone(), inner }
    }
}

/// A service behind a [`Guard`].
#[derive(Debug)]
pub struct Guarded<S, D> {
    guard: Guard<D>,
    inner: S,
}

impl<S: Clone, D> Clone for Guarded<S, D> {
    fn clone(&self) -> Self {
        Self { guard: self.guard.clone(), inner: self.inner.clone() }
    }
}

impl<S, D, B, R> Service<Request<B>> for Guarded<S, D>
where
    S: Service<Request<B>, Response = Response<R>, Future: Send> + Clone + Send + 'static,
    D: Decider,
    B: Send + 'static,
{
    type Response = Response<Either<Full<Bytes>, R>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (mut parts, body) = request.into_parts();
        let asked = self.guard.read(&parts);
        let guard = self.guard.clone();
        // The one that is ready is the one that is called.
        let next = self.inner.clone();
        let mut inner = mem::replace(&mut self.inner, next);
        Box::pin(async move {
            match guard.judge(asked).await {
                Ok(None) => Ok(inner.call(Request::from_parts(parts, body)).await?.map(Either::Right)),
                Ok(Some(mut ruling)) => {
                    let headers = mem::take(&mut ruling.headers);
                    parts.extensions.insert(ruling);
                    let mut response = inner.call(Request::from_parts(parts, body)).await?;
                    add(response.headers_mut(), headers);
                    Ok(response.map(Either::Right))
                }
                Err(answer) => Ok(response(answer).map(Either::Left)),
            }
        })
    }
}

/// Adds what an inner guard has not told already.
fn add(headers: &mut HeaderMap, told: Vec<(&'static str, String)>) {
    if NUMBERS.iter().any(|name| headers.contains_key(*name)) {
        return;
    }
    for (name, value) in told {
        // Those of decisions always fit.
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
}

fn response(Answer { status, headers, body }: Answer) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::TOO_MANY_REQUESTS);
    for (name, value) in headers {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(&*name), HeaderValue::try_from(value)) {
            response.headers_mut().append(name, value);
        }
    }
    response
}
