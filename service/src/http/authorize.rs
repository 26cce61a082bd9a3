//! Answers `/v1/authorize`: a proxy asks there before it lets a request through (forward auth, `auth_request`). The
//! proxy repeats the head of the request; a body is not read, whatever the method. Nothing that an end user may send is
//! an error here.

use std::{any::Any, borrow::Cow, net::IpAddr};

use actix_http::{HttpMessage, Request as HttpRequest};
use actix_web::{
    HttpResponse,
    http::{
        StatusCode,
        header::{HeaderName, HeaderValue},
    },
};
use arrayvec::ArrayVec;
use tidegate::{
    CountedIdentity, DEFAULT_DOMAIN, Degraded, IDENTITIES_MAX, Identity, Request, RequestError, clock::Clock,
    truncated_path,
};
use tidegate_middleware::request_head::RequestHead;

use super::{responses, worker::HttpWorker};
use crate::shared::{caller_shares::Caller, error::Error, traces::RequestSpan};

/// The header of a degraded outcome, with the reason.
const DEGRADED: HeaderName = HeaderName::from_static("x-tidegate-degraded");

/// The options in the query, which the operator of the proxy wrote.
#[derive(Debug)]
struct Options<'q> {
    domain: Cow<'q, str>,
    cost: u64,
    /// The status of a denial.
    deny: StatusCode,
}

impl<'q> Options<'q> {
    fn read(query: &'q str) -> Result<Self, Error> {
        let (mut domain, mut cost, mut deny) = (None, None, None);
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            let place = match &*key {
                "domain" => &mut domain,
                "cost" => &mut cost,
                "deny" => &mut deny,
                _ => return Err(Error::query(&key, "is not known; there are domain, cost and deny")),
            };
            if place.replace(value).is_some() {
                return Err(Error::query(&key, "is given twice; give it once"));
            }
        }
        let deny = match deny.as_deref() {
            None | Some("429") => StatusCode::TOO_MANY_REQUESTS,
            Some("403") => StatusCode::FORBIDDEN,
            Some(_) => return Err(Error::query("deny", "is the status of a denial; write 429 or 403")),
        };
        // The engine checks the range.
        let number = |text: Cow<'_, str>| text.parse().map_err(|_| Error::query("cost", "is no whole number"));
        let cost = cost.map_or(Ok(1), number)?;
        Ok(Self { domain: domain.unwrap_or(Cow::Borrowed(DEFAULT_DOMAIN)), cost, deny })
    }
}

impl<C: Clock> HttpWorker<C> {
    pub(super) async fn authorize(
        &self,
        original: &HttpRequest,
        caller: &Caller,
        span: Option<&RequestSpan>,
    ) -> Result<HttpResponse, Error> {
        let options = Options::read(original.uri().query().unwrap_or_default())?;
        caller.rights.permit_domain(&options.domain)?;
        let text = |name| original.headers().get(name).map(|value| String::from_utf8_lossy(value.as_bytes()));
        let (endpoint, method) = (text(&self.authorize.endpoint_header), text(&self.authorize.method_header));
        let endpoint = endpoint.as_deref().map(path_of);
        let endpoint = endpoint.as_deref();
        let head =
            ProxiedHead { original, path: endpoint.unwrap_or_default(), method: method.as_deref().unwrap_or_default() };
        let found = self.authorize.identities.found(&head);
        // A value of the kind `ip` that is no address counts as it is: it is never an error.
        let engine = self.shared.decider.engine();
        let counted = |identity| engine.counted(&options.domain, identity).unwrap_or_else(|_| identity.into());
        let identities = found.identities();
        let counted: ArrayVec<_, IDENTITIES_MAX> = identities.iter().copied().map(counted).collect();
        let identities: ArrayVec<_, IDENTITIES_MAX> = counted.iter().map(CountedIdentity::identity).collect();
        if identities.is_empty() {
            self.shared.metrics.count_unidentified();
            return Ok(HttpResponse::NoContent().finish());
        }
        let request = request(&identities, endpoint, method.as_deref(), &options);
        let request = request.map_err(|error| Error::Request { field: "cost".to_owned(), error })?;
        // Without a request ID the error does not occur.
        let outcome = self.shared.decider.check(&request, None, caller).await?;
        if let Some(span) = span {
            span.record(&outcome);
        }
        let status = if outcome.is_allowed { StatusCode::NO_CONTENT } else { options.deny };
        let mut response =
            responses::decision(status, &outcome, self.shared.decider.engine().response_settings(&options.domain));
        if let Some(reason) = outcome.degraded.map(Degraded::name) {
            response.headers_mut().insert(DEGRADED, HeaderValue::from_static(reason));
        }
        Ok(response)
    }
}

fn request<'a>(
    identities: &'a [Identity<'a>],
    endpoint: Option<&'a str>,
    method: Option<&'a str>,
    options: &'a Options<'a>,
) -> Result<Request<'a>, RequestError> {
    let mut request = Request::new(identities)?.cost(options.cost)?.domain(&options.domain);
    if let Some(endpoint) = endpoint {
        request = request.endpoint(endpoint)?;
    }
    Ok(method.map_or(request, |method| request.method(method)))
}

/// Returns the path of a URI, without the query, cut to the length that the engine takes.
fn path_of(uri: &str) -> Cow<'_, str> {
    truncated_path(uri.split(['?', '#']).next().unwrap_or_default())
}

/// The head of the request that the proxy asks about, as far as the proxy repeats it.
struct ProxiedHead<'a> {
    original: &'a HttpRequest,
    path: &'a str,
    method: &'a str,
}

impl RequestHead for ProxiedHead<'_> {
    fn header(&self, name: &str) -> Vec<&[u8]> {
        self.original.headers().get_all(name).map(HeaderValue::as_bytes).collect()
    }

    fn first(&self, name: &str) -> Option<&[u8]> {
        self.original.headers().get(name).map(HeaderValue::as_bytes)
    }

    fn peer(&self) -> Option<IpAddr> {
        self.original.peer_addr().map(|peer| peer.ip())
    }

    fn path(&self) -> &str {
        self.path
    }

    fn method(&self) -> &str {
        self.method
    }

    fn original(&self) -> &dyn Any {
        self.original
    }
}
