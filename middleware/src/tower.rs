//! The guard as a layer of tower, for requests of the crate `http`: axum, tonic, hyper.

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
    decision::Backend,
    guard::Guard,
    headers,
    request_head::{RequestHead, ResponseHeaders},
    response::RefusalResponse,
};

/// The address at the other end of the connection, as an extension of a request. A server inserts it if the guard cannot find the
/// address by itself. With the features of their names the guard finds axum's `ConnectInfo<SocketAddr>` and tonic's
/// `TcpConnectInfo`, also behind TLS.
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

impl ResponseHeaders for HeaderMap {
    fn has(&self, name: &'static str) -> bool {
        self.contains_key(name)
    }

    fn add(&mut self, name: &str, value: String) {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            self.append(name, value);
        }
    }
}

impl<S, B> Layer<S> for Guard<B> {
    type Service = GuardService<S, B>;

    fn layer(&self, inner: S) -> GuardService<S, B> {
        GuardService { guard: self.clone(), inner }
    }
}

/// A service behind a [`Guard`].
#[derive(Debug)]
pub struct GuardService<S, B> {
    guard: Guard<B>,
    inner: S,
}

impl<S: Clone, B> Clone for GuardService<S, B> {
    fn clone(&self) -> Self {
        Self { guard: self.guard.clone(), inner: self.inner.clone() }
    }
}

impl<S, B, D, R> Service<Request<D>> for GuardService<S, B>
where
    S: Service<Request<D>, Response = Response<R>, Future: Send> + Clone + Send + 'static,
    B: Backend,
    D: Send + 'static,
{
    type Response = Response<Either<Full<Bytes>, R>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<D>) -> Self::Future {
        let (mut parts, body) = request.into_parts();
        let guard = self.guard.clone();
        // The service that reported to be ready has to be the one that is called.
        let next = self.inner.clone();
        let mut inner = mem::replace(&mut self.inner, next);
        Box::pin(async move {
            match guard.admit(guard.read(&parts)).await {
                Ok(None) => Ok(inner.call(Request::from_parts(parts, body)).await?.map(Either::Right)),
                Ok(Some(mut decision)) => {
                    let headers = mem::take(&mut decision.headers);
                    parts.extensions.insert(decision);
                    let mut response = inner.call(Request::from_parts(parts, body)).await?;
                    headers::add(response.headers_mut(), headers);
                    Ok(response.map(Either::Right))
                }
                Err(refused) => Ok(response(refused).map(Either::Left)),
            }
        })
    }
}

fn response(RefusalResponse { status, headers, body }: RefusalResponse) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::TOO_MANY_REQUESTS);
    for (name, value) in headers {
        response.headers_mut().add(&name, value);
    }
    response
}
