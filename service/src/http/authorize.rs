//! `/v1/authorize`: what a proxy asks before it lets a request through (forward auth, `auth_request`). The proxy repeats the
//! head of the request; its body is not read, whatever the method. Nothing that an end user may send is an error here.

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
    fitting_path,
};
use tidegate_middleware::{extract::Extractors, head::RequestHead};

use super::worker::{AUTHORIZE, Door, decision_as};
use crate::{
    http::error::Error,
    shared::{caller_shares::Caller, traces::RequestSpan},
};

/// Says that a request was let through or denied without the decision that it should have had, and why.
const DEGRADED: HeaderName = HeaderName::from_static("x-tidegate-degraded");

/// How the requests are read that proxies ask about.
#[derive(Clone, Debug)]
pub struct Authorize {
    /// Who comes.
    pub identities: Extractors,
    /// In which header the proxy says where to: a path, with or without query. The proxy must write it itself, over whatever
    /// its client sent under this name.
    pub endpoint_header: HeaderName,
    /// In which it says the method.
    pub method_header: HeaderName,
}

impl Default for Authorize {
    /// Whoever asks is the one who comes.
    fn default() -> Self {
        Self::new(Extractors::default())
    }
}

impl Authorize {
    /// Where most proxies write the path.
    pub const ENDPOINT_HEADER: &str = "x-forwarded-uri";
    /// Where they write the method.
    pub const METHOD_HEADER: &str = "x-forwarded-method";

    /// Reads these identities, and path and method where most proxies write them.
    #[must_use]
    pub fn new(identities: Extractors) -> Self {
        let name = HeaderName::from_static;
        Self { identities, endpoint_header: name(Self::ENDPOINT_HEADER), method_header: name(Self::METHOD_HEADER) }
    }
}

/// The query, which whoever set up the proxy wrote.
#[derive(Debug)]
struct Options<'q> {
    domain: Cow<'q, str>,
    cost: u64,
    /// Status of a denial.
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
        // Its range is the engine's to judge.
        let number = |text: Cow<'_, str>| text.parse().map_err(|_| Error::query("cost", "is no whole number"));
        let cost = cost.map_or(Ok(1), number)?;
        Ok(Self { domain: domain.unwrap_or(Cow::Borrowed(DEFAULT_DOMAIN)), cost, deny })
    }
}

impl<C: Clock> Door<C> {
    pub(super) async fn authorize(
        &self,
        request: &HttpRequest,
        caller: &Caller,
        span: Option<&RequestSpan>,
    ) -> HttpResponse {
        self.answer(AUTHORIZE, self.authorized(request, caller, span).await)
    }

    async fn authorized(
        &self,
        asked: &HttpRequest,
        caller: &Caller,
        span: Option<&RequestSpan>,
    ) -> Result<HttpResponse, Error> {
        let options = Options::read(asked.uri().query().unwrap_or_default())?;
        caller.rights.permit_domain(&options.domain)?;
        let text = |name| asked.headers().get(name).map(|value| String::from_utf8_lossy(value.as_bytes()));
        let (endpoint, method) = (text(&self.authorize.endpoint_header), text(&self.authorize.method_header));
        let endpoint = endpoint.as_deref().map(path);
        let endpoint = endpoint.as_deref();
        let head = Head { asked, path: endpoint.unwrap_or_default(), method: method.as_deref().unwrap_or_default() };
        let found = self.authorize.identities.found(&head);
        // A value of the kind `ip` that is no address counts as it is: it is never an error.
        let engine = self.shared.decider.engine();
        let counted = |identity| engine.counted(&options.domain, identity).unwrap_or_else(|_| identity.into());
        let identities = found.identities();
        let counted: ArrayVec<_, IDENTITIES_MAX> = identities.iter().copied().map(counted).collect();
        let identities: ArrayVec<_, IDENTITIES_MAX> = counted.iter().map(CountedIdentity::identity).collect();
        if identities.is_empty() {
            self.shared.metrics.unidentified();
            return Ok(HttpResponse::NoContent().finish());
        }
        let request = request(&identities, endpoint, method.as_deref(), &options);
        let request = request.map_err(|error| Error::Request { field: "cost".to_owned(), error })?;
        // Without an id of the request there is none that was used before.
        let answer = self.shared.decider.check(&request, None, caller).await.map_err(Error::Reused)?;
        if let Some(span) = span {
            span.decided(&answer);
        }
        let status = if answer.is_allowed { StatusCode::NO_CONTENT } else { options.deny };
        let mut told = decision_as(status, &answer, self.shared.decider.engine().door_settings(&options.domain));
        if let Some(reason) = answer.degraded.map(Degraded::name) {
            told.headers_mut().insert(DEGRADED, HeaderValue::from_static(reason));
        }
        Ok(told)
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

/// Without the query.
fn path(uri: &str) -> Cow<'_, str> {
    fitting_path(uri.split(['?', '#']).next().unwrap_or_default())
}

/// The request that the proxy asks about, as far as it repeats it.
struct Head<'a> {
    asked: &'a HttpRequest,
    path: &'a str,
    method: &'a str,
}

impl RequestHead for Head<'_> {
    fn header(&self, name: &str) -> Vec<&[u8]> {
        self.asked.headers().get_all(name).map(HeaderValue::as_bytes).collect()
    }

    fn first(&self, name: &str) -> Option<&[u8]> {
        self.asked.headers().get(name).map(HeaderValue::as_bytes)
    }

    fn peer(&self) -> Option<IpAddr> {
        self.asked.peer_addr().map(|peer| peer.ip())
    }

    fn path(&self) -> &str {
        self.path
    }

    fn method(&self) -> &str {
        self.method
    }

    fn original(&self) -> &dyn Any {
        self.asked
    }
}
