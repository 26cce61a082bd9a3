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
#[cfg(feature = "tonic")]
use tonic::transport::server::{TcpConnectInfo, TlsConnectInfo};
use tower_layer::Layer;
use tower_service::Service;

use crate::{
    decision::Decider,
    guard::Guard,
    headers,
    request_head::{AnswerHeaders, RequestHead},
    response::Answer,
};

/// The address of whoever has the connection, in a request's extensions: for servers of which the guard does not know where
/// they keep it. It knows `axum`'s `ConnectInfo<SocketAddr>` and tonic's `TcpConnectInfo`, behind TLS too, with the features of these names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer(pub SocketAddr);

impl RequestHead for Parts {
    fn header(&self, name: &str) -> Vec<&[u8]> {
        self.headers.get_all(name).iter().map(HeaderValue::as_bytes).collect()
    }

    fn first(&self, name: &str) -> Option<&[u8]> {
        self.headers.get(name).map(HeaderValue::as_bytes)
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
        {
            let tls = || self.extensions.get::<TlsConnectInfo<TcpConnectInfo>>().map(TlsConnectInfo::get_ref);
            if let Some(connection) = self.extensions.get().or_else(tls) {
                return connection.remote_addr().map(|address| address.ip());
            }
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

impl AnswerHeaders for HeaderMap {
    fn has(&self, name: &'static str) -> bool {
        self.contains_key(name)
    }

    fn add(&mut self, name: &str, value: String) {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            self.append(name, value);
        }
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
        let guard = self.guard.clone();
        // The one that is ready is the one that is called.
        let next = self.inner.clone();
        let mut inner = mem::replace(&mut self.inner, next);
        Box::pin(async move {
            let asked = guard.read(&parts);
            match guard.judge(asked).await {
                Ok(None) => Ok(inner.call(Request::from_parts(parts, body)).await?.map(Either::Right)),
                Ok(Some(mut ruling)) => {
                    let headers = mem::take(&mut ruling.headers);
                    parts.extensions.insert(ruling);
                    let mut response = inner.call(Request::from_parts(parts, body)).await?;
                    headers::add(response.headers_mut(), headers);
                    Ok(response.map(Either::Right))
                }
                Err(answer) => Ok(response(answer).map(Either::Left)),
            }
        })
    }
}

fn response(Answer { status, headers, body }: Answer) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::TOO_MANY_REQUESTS);
    for (name, value) in headers {
        response.headers_mut().add(&name, value);
    }
    response
}
