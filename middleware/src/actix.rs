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

use crate::{answer::Answer, guard::Guard, head::RequestHead, headers::NUMBERS, ruling::Decider};

impl RequestHead for HttpRequest {
    fn header(&self, name: &str) -> Vec<&[u8]> {
        self.headers().get_all(name).map(HeaderValue::as_bytes).collect()
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

impl<S, D, B> Transform<S, ServiceRequest> for Guard<D>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    D: Decider,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<EitherBody<B>>;
    type Error = Error;
    type Transform = Guarded<S, D>;
    type InitError = ();
    type Future = Ready<Result<Guarded<S, D>, ()>>;

    fn new_transform(&self, inner: S) -> Self::Future {
        ready(Ok(Guarded { guard: self.clone(), inner: Rc::new(inner) }))
    }
}

/// A service behind a [`Guard`].
#[derive(Debug)]
pub struct Guarded<S, D> {
    guard: Guard<D>,
    inner: Rc<S>,
}

impl<S, D, B> Service<ServiceRequest> for Guarded<S, D>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    D: Decider,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<EitherBody<B>>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Error>>>>;

    fn poll_ready(&self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&self, request: ServiceRequest) -> Self::Future {
        let asked = self.guard.read(request.request());
        let (guard, inner) = (self.guard.clone(), Rc::clone(&self.inner));
        Box::pin(async move {
            match guard.judge(asked).await {
                Ok(None) => Ok(inner.call(request).await?.map_into_left_body()),
                Ok(Some(mut ruling)) => {
                    let headers = mem::take(&mut ruling.headers);
                    request.extensions_mut().insert(ruling);
                    let mut response = inner.call(request).await?;
                    add(response.headers_mut(), headers);
                    Ok(response.map_into_left_body())
                }
                Err(answer) => Ok(request.into_response(response(answer)).map_into_right_body()),
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

fn response(Answer { status, headers, body }: Answer) -> HttpResponse {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::TOO_MANY_REQUESTS);
    let mut response = HttpResponse::build(status).body(body);
    for (name, value) in headers {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(&*name), HeaderValue::try_from(value)) {
            response.headers_mut().append(name, value);
        }
    }
    response
}
