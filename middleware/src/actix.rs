//! The guard as a middleware of actix-web.

use std::{
    any::Any,
    future::{Ready, ready},
    mem,
    net::IpAddr,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use actix_web::{
    Error, HttpMessage, HttpRequest, HttpResponse,
    body::{EitherBody, MessageBody},
    dev::{Service, ServiceRequest, ServiceResponse, Transform},
    http::{
        StatusCode,
        header::{HeaderMap, HeaderName, HeaderValue},
    },
};

use crate::{
    decision::Backend,
    guard::Guard,
    headers,
    request_head::{RequestHead, ResponseHeaders},
    response::RefusalResponse,
};

impl RequestHead for HttpRequest {
    fn header(&self, name: &str) -> Vec<&[u8]> {
        self.headers().get_all(name).map(HeaderValue::as_bytes).collect()
    }

    fn first(&self, name: &str) -> Option<&[u8]> {
        self.headers().get(name).map(HeaderValue::as_bytes)
    }

    fn peer(&self) -> Option<IpAddr> {
        self.peer_addr().map(|address| address.ip())
    }

    fn path(&self) -> &str {
        self.uri().path()
    }

    fn method(&self) -> &str {
        self.head().method.as_str()
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

impl<S, B, D> Transform<S, ServiceRequest> for Guard<B>
where
    S: Service<ServiceRequest, Response = ServiceResponse<D>, Error = Error> + 'static,
    B: Backend,
    D: MessageBody + 'static,
{
    type Response = ServiceResponse<EitherBody<D>>;
    type Error = Error;
    type Transform = GuardMiddleware<S, B>;
    type InitError = ();
    type Future = Ready<Result<GuardMiddleware<S, B>, ()>>;

    fn new_transform(&self, inner: S) -> Self::Future {
        ready(Ok(GuardMiddleware { guard: self.clone(), inner: Rc::new(inner) }))
    }
}

/// A service behind a [`Guard`].
#[derive(Debug)]
pub struct GuardMiddleware<S, B> {
    guard: Guard<B>,
    inner: Rc<S>,
}

impl<S, B, D> Service<ServiceRequest> for GuardMiddleware<S, B>
where
    S: Service<ServiceRequest, Response = ServiceResponse<D>, Error = Error> + 'static,
    B: Backend,
    D: MessageBody + 'static,
{
    type Response = ServiceResponse<EitherBody<D>>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Error>>>>;

    fn poll_ready(&self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&self, request: ServiceRequest) -> Self::Future {
        let (guard, inner) = (self.guard.clone(), Rc::clone(&self.inner));
        Box::pin(async move {
            match guard.admit(guard.read(request.request())).await {
                Ok(None) => Ok(inner.call(request).await?.map_into_left_body()),
                Ok(Some(mut decision)) => {
                    let headers = mem::take(&mut decision.headers);
                    request.extensions_mut().insert(decision);
                    match inner.call(request).await {
                        Ok(mut response) => {
                            headers::add(response.headers_mut(), headers);
                            Ok(response.map_into_left_body())
                        }
                        // A middleware further out makes a response of it.
                        Err(mut error) => {
                            error.add_response_mapper(move |mut response| {
                                headers::add(response.headers_mut(), headers.clone());
                                response
                            });
                            Err(error)
                        }
                    }
                }
                Err(refused) => Ok(request.into_response(response(refused)).map_into_right_body()),
            }
        })
    }
}

fn response(RefusalResponse { status, headers, body }: RefusalResponse) -> HttpResponse {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::TOO_MANY_REQUESTS);
    let mut response = HttpResponse::build(status).body(body);
    for (name, value) in headers {
        response.headers_mut().add(&name, value);
    }
    response
}
