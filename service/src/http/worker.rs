//! What a worker of the HTTP door does with a request: its route, its body, its answer.

use std::{
    convert::Infallible,
    iter,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    panic::AssertUnwindSafe,
    pin::Pin,
    rc::Rc,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll},
};

use actix_http::{HttpMessage, Request};
use actix_web::{
    HttpResponse,
    body::{BodySize, BoxBody, MessageBody},
    dev::Payload,
    http::{
        ConnectionType, Method, StatusCode,
        header::{ALLOW, CONTENT_TYPE, HeaderName, HeaderValue, WWW_AUTHENTICATE},
    },
    web::Bytes,
};
use arrayvec::ArrayVec;
use futures_util::FutureExt;
use tidegate::{
    clock::{Clock, SystemClock},
    policy::DoorSettings,
    time::Nanos,
};
use tidegate_listener::PeerNetwork;
use tidegate_middleware::{
    extract,
    headers::{self, Value},
};

use super::Authorize;
use crate::{
    http::{
        body_reader::{self, BodyHeaders},
        error::{Error, ErrorBody, HEAD_BYTES_MAX, Told},
        request_body,
        response_body::{self, DECISION_BYTES},
    },
    listeners::Shared,
    shared::{
        body_budget::{BodyPermit, ConnectionShare},
        caller_shares::Caller,
        decider::Answer,
        latency::{DoorKind, Latencies},
        metrics,
        request_id_cache::Call,
        reservations::ReservationId,
        tokens::{METRICS_TOKENS, Right},
        traces::RequestSpan,
    },
};

const CHECK: &str = "/v1/check";
const BATCH: &str = "/v1/check/batch";
const RESERVE: &str = "/v1/reserve";
const SETTLE: &str = "/v1/settle";
const REFUND: &str = "/v1/refund";
pub(super) const AUTHORIZE: &str = "/v1/authorize";
pub(super) const HEALTHZ: &str = "/healthz";
pub(super) const READYZ: &str = "/readyz";
pub(super) const METRICS: &str = "/metrics";
/// Every other path, in metrics.
const OTHER: &str = "other";
const ROUTES: [&str; 10] = [CHECK, BATCH, RESERVE, SETTLE, REFUND, AUTHORIZE, HEALTHZ, READYZ, METRICS, OTHER];
/// This door, in metrics.
pub(crate) const KIND: DoorKind = DoorKind {
    name: "http",
    routes: &ROUTES,
    deciding: &[CHECK, RESERVE, AUTHORIZE],
    statuses: &[
        (200, "200"),
        (204, "204"),
        (400, "400"),
        (401, "401"),
        (403, "403"),
        (404, "404"),
        (405, "405"),
        (408, "408"),
        (409, "409"),
        (413, "413"),
        (415, "415"),
        (429, "429"),
        (431, "431"),
        (500, "500"),
        (503, "503"),
    ],
};
/// For callers whose `Authorization` is somebody else's.
const TOKEN: &str = "x-tidegate-token";
/// What browsers say of the page that sends a request, to a server that they reach over TLS or on loopback. Elsewhere they send
/// `Origin` alone, and not with images or links.
const SEC_FETCH_SITE: &str = "sec-fetch-site";

/// Those that decisions are told in.
static NAMES: [HeaderName; 6] = [
    HeaderName::from_static(headers::LIMIT),
    HeaderName::from_static(headers::REMAINING),
    HeaderName::from_static(headers::RESET),
    HeaderName::from_static(headers::IETF),
    HeaderName::from_static(headers::IETF_POLICY),
    HeaderName::from_static(headers::RETRY_AFTER),
];
/// Bytes that the values of most decisions' headers fit into.
const HEADERS_BYTES: usize = 64;
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The path as metrics know it.
fn route(path: &str) -> &'static str {
    ROUTES.into_iter().find(|route| *route == path).unwrap_or(OTHER)
}

/// What the requests of a worker share.
pub(super) struct Door<C> {
    pub(super) shared: Arc<Shared<C>>,
    pub(super) authorize: Authorize,
    /// Where it listens.
    pub(super) listener: SocketAddr,
    pub(super) latencies: Arc<Latencies>,
    pub(super) clock: SystemClock,
}

/// A request, and those of its headers that every request is asked for, found in one pass. Of those that come twice, the first.
#[derive(Clone, Copy)]
pub(super) struct KnownHeaders<'r> {
    pub(super) request: &'r Request,
    /// Bytes of all headers, also of those that are not known.
    bytes: usize,
    pub(super) host: Option<&'r HeaderValue>,
    pub(super) origin: Option<&'r HeaderValue>,
    pub(super) sec_fetch_site: Option<&'r HeaderValue>,
    authorization: Option<&'r HeaderValue>,
    token: Option<&'r HeaderValue>,
    body: BodyHeaders<'r>,
}

impl<'r> KnownHeaders<'r> {
    fn of(request: &'r Request) -> Self {
        let mut known = Self {
            request,
            bytes: 0,
            host: None,
            origin: None,
            sec_fetch_site: None,
            authorization: None,
            token: None,
            body: BodyHeaders::default(),
        };
        for (name, value) in request.headers() {
            let name = name.as_str();
            known.bytes += name.len() + value.len();
            let header = match name {
                "host" => &mut known.host,
                "content-type" => &mut known.body.media_type,
                "content-length" => &mut known.body.length,
                "content-encoding" => &mut known.body.encoding,
                "authorization" => &mut known.authorization,
                "origin" => &mut known.origin,
                SEC_FETCH_SITE => &mut known.sec_fetch_site,
                TOKEN => &mut known.token,
                _ => continue,
            };
            header.get_or_insert(value);
        }
        known
    }
}

/// The unread body of a request, and when its reading ended.
struct RequestBody {
    /// None, once it was read to its end.
    unread: Payload,
    /// When all was there that it takes to answer, or nothing more was waited for: how long its sender took is not ours.
    read_at: Nanos,
}

impl<C: Clock> Door<C> {
    /// Answers a request, whatever happens on the way.
    pub(super) async fn handle(self: Rc<Self>, mut request: Request) -> Result<HttpResponse, Infallible> {
        let route = route(request.path());
        let mut body = RequestBody { unread: request.take_payload(), read_at: self.clock.now() };
        let known = KnownHeaders::of(&request);
        let mut span = None;
        let answer = match self.admit(route, &known) {
            Ok(caller) => {
                span = self.span(&request, route);
                // What a request leaves behind is its own, and the parts of the door are safe: see `decider::caught`.
                let routed = self.routed(route, &caller, &known, &mut body, span.as_ref());
                AssertUnwindSafe(routed).catch_unwind().await
            }
            Err(error) => Ok(self.answer(route, Err(error))),
        };
        let answer = answer.unwrap_or_else(|_| self.answer(route, Err(Error::Internal)));
        let took = self.clock.now().saturating_sub(body.read_at);
        self.latencies.answered(route, answer.status().as_u16(), took);
        if let Some(span) = span {
            span.end(answer.status().as_u16());
        }
        if answer.status() == StatusCode::INTERNAL_SERVER_ERROR {
            self.shared.watch.failed();
        }
        Ok(match body.unread {
            Payload::None => answer,
            unread => answer.map_body(|_, answer| BoxBody::new(Unread { answer, _body: unread })),
        })
    }

    /// Begins the span of a request, if it is sampled. Probes and scrapes have none: they come all the time, and on nobody's
    /// behalf.
    fn span(&self, request: &Request, route: &'static str) -> Option<RequestSpan> {
        let traces = self.shared.traces.as_ref().filter(|_| !matches!(route, HEALTHZ | READYZ | METRICS))?;
        let header = |name: &str| request.headers().get(name)?.to_str().ok();
        traces.begin(request.method().as_str(), Some(route).filter(|route| *route != OTHER), &header)
    }

    async fn routed(
        &self,
        route: &'static str,
        caller: &Caller,
        known: &KnownHeaders<'_>,
        body: &mut RequestBody,
        span: Option<&RequestSpan>,
    ) -> HttpResponse {
        let request = known.request;
        match (route, request.method()) {
            (CHECK, &Method::POST) => {
                self.decide((CHECK, Call::Check), caller, self.body(known, body).await, span).await
            }
            (BATCH, &Method::POST) => self.batch(caller, self.body(known, body).await, peer(request)).await,
            (RESERVE, &Method::POST) => {
                self.decide((RESERVE, Call::Reserve), caller, self.body(known, body).await, span).await
            }
            (SETTLE, &Method::POST) => self.settle(SETTLE, request_body::settlement, self.body(known, body).await),
            (REFUND, &Method::POST) => self.settle(REFUND, request_body::refund, self.body(known, body).await),
            (AUTHORIZE, _) => self.authorize(request, caller, span).await,
            (HEALTHZ, &Method::GET | &Method::HEAD) => self.health(),
            (READYZ, &Method::GET | &Method::HEAD) => self.readiness(),
            (METRICS, &Method::GET | &Method::HEAD) => self.metrics().await,
            (OTHER, _) => self.answer(OTHER, Err(Error::Path(request.path().to_owned()))),
            (CHECK | BATCH | RESERVE | SETTLE | REFUND, _) => self.wrong_method(route, request, "POST"),
            _ => self.wrong_method(route, request, "GET, HEAD"),
        }
    }

    async fn body(&self, known: &KnownHeaders<'_>, body: &mut RequestBody) -> Result<Bytes, Error> {
        let period = self.shared.periods.request;
        let permit = || self.permit(peer(known.request));
        let read = body_reader::read(&known.body, &mut body.unread, permit, period).await;
        body.read_at = self.clock.now();
        if read.is_ok() {
            body.unread = Payload::None;
        }
        read
    }

    /// A permit for a body from this peer, or for the answer to it: a connection has one at a time.
    fn permit(&self, peer: IpAddr) -> BodyPermit {
        BodyPermit::new(&ConnectionShare::new(&self.shared.body_budget, peer))
    }

    async fn batch(&self, caller: &Caller, body: Result<Bytes, Error>, peer: IpAddr) -> HttpResponse {
        let answer = match body {
            Ok(body) => self.batched(caller, &body, peer).await,
            Err(error) => Err(error),
        };
        self.answer(BATCH, answer)
    }

    /// The answer to a batch, which holds part of the body budget until it is sent. Nothing is decided without that.
    async fn batched(&self, caller: &Caller, body: &[u8], peer: IpAddr) -> Result<HttpResponse, Error> {
        let checks = request_body::batch(body_reader::text(body)?)?;
        let (bytes, mut permit) = (DECISION_BYTES * checks.len(), self.permit(peer));
        permit.begin_work(body.len() + size_of::<&str>() * checks.capacity(), bytes).await?;
        let mut text = Vec::with_capacity(bytes);
        text.extend_from_slice(br#"{"decisions":["#);
        let decider = &self.shared.decider;
        let mut place = 0;
        let tell = |decided| {
            if place > 0 {
                text.push(b',');
            }
            match decided {
                Ok((answer, _)) => response_body::decision(&answer, &mut text),
                Err(error) => {
                    let error = self.refuse(BATCH, &error).within(&format!("checks/{place}"));
                    response_body::field(&mut text, "", ErrorBody { error });
                }
            }
            place += 1;
        };
        decider.each(checks, |check| request_body::decide(decider, Call::Check, caller, check), tell).await;
        text.extend_from_slice(b"]}");
        let held = HeldAnswer::new(permit, text);
        Ok(HttpResponse::Ok().insert_header((CONTENT_TYPE, JSON)).body(held))
    }

    /// Alive; and what is wrong, if anything is.
    fn health(&self) -> HttpResponse {
        let faults: Vec<String> = self.shared.watch.faults().iter().map(ToString::to_string).collect();
        if faults.is_empty() {
            text(StatusCode::OK, "ok\n")
        } else {
            text(StatusCode::OK, format!("degraded: {}\n", faults.join("; ")))
        }
    }

    /// Has a policy to decide by.
    fn readiness(&self) -> HttpResponse {
        match self.shared.decider.engine().version() {
            _ if self.shared.is_leaving.load(Ordering::Relaxed) => {
                text(StatusCode::SERVICE_UNAVAILABLE, "stopping: send requests elsewhere\n")
            }
            0 => {
                text(StatusCode::SERVICE_UNAVAILABLE, "no policy has been published yet: everything would be allowed\n")
            }
            _ => text(StatusCode::OK, "ready\n"),
        }
    }

    async fn metrics(&self) -> HttpResponse {
        let Shared { decider, metrics, periods, .. } = &*self.shared;
        match metrics.page(decider.engine(), periods.metrics_page).await {
            Some(page) => HttpResponse::Ok().insert_header((CONTENT_TYPE, metrics::MEDIA_TYPE)).body(page.text),
            None => text(StatusCode::INTERNAL_SERVER_ERROR, "the metrics could not be written\n"),
        }
    }

    fn wrong_method(&self, route: &'static str, request: &Request, allowed: &'static str) -> HttpResponse {
        let error = Error::Method { given: request.method().to_string(), allowed };
        let mut answer = self.answer(route, Err(error));
        answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
        answer
    }

    /// Finds the caller of a request. An error: the request is read no further.
    fn admit(&self, route: &'static str, known: &KnownHeaders<'_>) -> Result<Caller, Error> {
        let request = known.request;
        let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
        // What proxies ask about is written by end users: they are not to be told of it, and nobody is to pass by it.
        if request.path() != AUTHORIZE && target + known.bytes > HEAD_BYTES_MAX {
            return Err(Error::HeadTooLarge);
        }
        self.shared.browsers.admit(route, known, &self.authorize, self.listener)?;
        let bearer = || known.authorization.and_then(|value| extract::bearer(value.as_bytes()));
        let own = || known.token.map(HeaderValue::as_bytes);
        let tokens = || iter::once_with(own).chain(iter::once_with(bearer)).flatten();
        let peer = PeerNetwork::from(peer(request));
        let right = match route {
            HEALTHZ | READYZ => return Ok(Caller::without_token(peer)),
            METRICS if self.shared.may_scrape(tokens()) => return Ok(Caller::without_token(peer)),
            METRICS => return Err(Error::Token(METRICS_TOKENS)),
            CHECK | BATCH | AUTHORIZE => Some(Right::Check),
            RESERVE | SETTLE | REFUND => Some(Right::Reserve),
            // Also the paths above in another spelling.
            _ => None,
        };
        let caller = self.shared.caller(peer, tokens())?;
        if let Some(right) = right {
            caller.rights.permit(right)?;
        }
        Ok(caller)
    }

    /// The answer to a body that is a check.
    async fn decide(
        &self,
        (route, call): (&'static str, Call),
        caller: &Caller,
        body: Result<Bytes, Error>,
        span: Option<&RequestSpan>,
    ) -> HttpResponse {
        let answer = match body {
            Ok(body) => match body_reader::text(&body) {
                Ok(text) => {
                    let decided = request_body::decide(&self.shared.decider, call, caller, text).await;
                    decided.map(|(answer, settings)| {
                        if let Some(span) = span {
                            span.decided(&answer);
                        }
                        decision(&answer, settings)
                    })
                }
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        self.answer(route, answer)
    }

    /// The answer to a body that settles a reservation.
    fn settle(
        &self,
        route: &'static str,
        read: impl FnOnce(&str) -> Result<(ReservationId, u64), Error>,
        body: Result<Bytes, Error>,
    ) -> HttpResponse {
        let answer = body.and_then(|body| {
            let (reservation, actual) = read(body_reader::text(&body)?)?;
            self.shared.decider.settle(reservation, actual)?;
            Ok(HttpResponse::NoContent().finish())
        });
        self.answer(route, answer)
    }

    /// What goes out.
    pub(super) fn answer(&self, route: &'static str, outcome: Result<HttpResponse, Error>) -> HttpResponse {
        outcome.unwrap_or_else(|error| {
            let told = self.refuse(route, &error);
            let status = told.status;
            let mut body = Vec::new();
            response_body::field(&mut body, "", ErrorBody { error: told });
            let mut answer = json(status, body);
            // What follows would be taken for the next request.
            if matches!(error, Error::BrokenOff) {
                answer.head_mut().set_connection_type(ConnectionType::Close);
            }
            if status == StatusCode::UNAUTHORIZED {
                answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            answer
        })
    }

    fn refuse(&self, route: &'static str, error: &Error) -> Told {
        let told = error.told();
        tracing::debug!(route, code = told.code, field = told.field, "refused");
        self.shared.metrics.refused(KIND.name, told.code);
        told
    }
}

/// The address that a request came from.
fn peer(request: &Request) -> IpAddr {
    request.peer_addr().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.ip())
}

/// Makes the response to a decision: its status, body and headers.
fn decision(answer: &Answer<'_>, settings: DoorSettings) -> HttpResponse {
    let status = if answer.is_allowed { StatusCode::OK } else { StatusCode::TOO_MANY_REQUESTS };
    decision_as(status, answer, settings)
}

/// Makes the response to a decision with this status, which has a body unless it is "No Content". Body and values of headers
/// are parts of one allocation.
pub(super) fn decision_as(status: StatusCode, answer: &Answer<'_>, settings: DoorSettings) -> HttpResponse {
    let has_body = status != StatusCode::NO_CONTENT;
    let mut text = Vec::with_capacity(DECISION_BYTES + HEADERS_BYTES);
    if has_body {
        response_body::decision(answer, &mut text);
    }
    let body_bytes = text.len();
    let mut headers = ArrayVec::<_, { headers::COUNT_MAX }>::new();
    let mut put = |name, value: Value| {
        let start = text.len();
        match value {
            Value::Number(number) => text.extend_from_slice(itoa::Buffer::new().format(number).as_bytes()),
            Value::Text(value) => text.extend_from_slice(value.as_bytes()),
        }
        if let Some(name) = NAMES.iter().find(|known| known.as_str() == name) {
            headers.push((name, start..text.len()));
        }
    };
    match &answer.decision {
        Some(decision) => headers::each(decision, settings).for_each(|(name, value)| put(name, value)),
        None if answer.is_allowed => {}
        None => put(headers::RETRY_AFTER, Value::Number(Answer::CLOSED_WAIT.as_secs())),
    }
    let text = Bytes::from(text);
    let mut response = if has_body {
        json(status, text.slice(..body_bytes))
    } else {
        HttpResponse::with_body(status, BoxBody::new(()))
    };
    for (name, value) in headers {
        // Printable ASCII is a value always.
        let value = HeaderValue::from_maybe_shared(text.slice(value)).unwrap_or(HeaderValue::from_static(""));
        response.headers_mut().insert(name.clone(), value);
    }
    response
}

/// The answer to a request whose body was not read to its end. While the rest of a body is held, actix-http tells the sender
/// that the connection ends, and waits for the rest [a time](crate::Periods::linger); if it is not held, actix-http waits for the
/// end of chunks for ever. An answer of [`BodySize::None`] would hold nothing; those without a body are of size 0.
struct Unread {
    answer: BoxBody,
    _body: Payload,
}

impl MessageBody for Unread {
    type Error = <BoxBody as MessageBody>::Error;

    fn size(&self) -> BodySize {
        self.answer.size()
    }

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        Pin::new(&mut self.answer).poll_next(context)
    }
}

/// The body of an answer that is kept with its permit. It ends early where that is revoked, which ends the connection.
struct HeldAnswer {
    permit: BodyPermit,
    bytes: u64,
}

impl HeldAnswer {
    fn new(mut permit: BodyPermit, answer: Vec<u8>) -> Self {
        let bytes = answer.len() as u64;
        permit.keep(answer);
        Self { permit, bytes }
    }
}

impl MessageBody for HeldAnswer {
    type Error = Infallible;

    fn size(&self) -> BodySize {
        BodySize::Sized(self.bytes)
    }

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, Infallible>>> {
        Poll::Ready(self.permit.take_piece().map(Ok))
    }
}

fn json(status: StatusCode, text: impl Into<Bytes>) -> HttpResponse {
    let mut response = HttpResponse::with_body(status, BoxBody::new(text.into()));
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

fn text(status: StatusCode, text: impl Into<String>) -> HttpResponse {
    HttpResponse::build(status).insert_header((CONTENT_TYPE, "text/plain; charset=utf-8")).body(text.into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Names of headers that every request is asked for, and others.
    static NAMES_OF_REQUESTS: [&str; 10] = [
        "host",
        "content-type",
        "content-length",
        "content-encoding",
        "authorization",
        "origin",
        SEC_FETCH_SITE,
        TOKEN,
        "accept",
        "hosts",
    ];

    /// Generates a name in some mixture of cases, and a value.
    fn header() -> impl Strategy<Value = (String, String)> {
        let name = (prop::sample::select(&NAMES_OF_REQUESTS[..]), any::<u32>()).prop_map(|(name, capitals)| {
            let letter = |(place, letter): (usize, char)| {
                if capitals >> (place % 32) & 1 == 1 { letter.to_ascii_uppercase() } else { letter }
            };
            name.chars().enumerate().map(letter).collect()
        });
        (name, "[!-~]{0,9}")
    }

    proptest! {
        #[test]
        fn known_headers_are_those_that_a_look_up_finds(headers in prop::collection::vec(header(), 0..24)) {
            let mut request = Request::new();
            for (name, value) in &headers {
                let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
                request.headers_mut().append(name, HeaderValue::from_str(value).expect("a value"));
            }
            let known = KnownHeaders::of(&request);
            for (name, found) in [
                ("host", known.host),
                ("content-type", known.body.media_type),
                ("content-length", known.body.length),
                ("content-encoding", known.body.encoding),
                ("authorization", known.authorization),
                ("origin", known.origin),
                (SEC_FETCH_SITE, known.sec_fetch_site),
                (TOKEN, known.token),
            ] {
                prop_assert_eq!(found, request.headers().get(name), "{}", name);
            }
            let bytes: usize = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
            prop_assert_eq!(known.bytes, bytes);
        }
    }
}
