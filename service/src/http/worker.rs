//! Handles the requests of a worker thread of the HTTP listener: their routes, bodies and responses.

use std::{
    convert::Infallible,
    iter,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    panic::AssertUnwindSafe,
    rc::Rc,
    sync::{Arc, atomic::Ordering},
};

use actix_http::{HttpMessage, Request};
use actix_web::{
    HttpResponse,
    body::BoxBody,
    dev::Payload,
    http::{
        ConnectionType, Method, StatusCode,
        header::{ALLOW, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE},
    },
    web::Bytes,
};
use futures_util::FutureExt;
use tidegate::{
    clock::{Clock, SystemClock},
    time::Nanos,
};
use tidegate_api::ProblemDetails;
use tidegate_listener::PeerNetwork;
use tidegate_middleware::extract;

use super::{
    authorize_settings::Authorize,
    body_reader,
    browsers::BrowserAccess,
    held_bodies::{BudgetedBody, UnreadRequest},
    known_headers::KnownHeaders,
    request_body,
    response_body::{self, DECISION_BYTES},
    responses::{self, JSON, PROBLEM, json, text},
    routes::{AUTHORIZE, BATCH, CHECK, HEALTHZ, KIND, METRICS, OTHER, READYZ, REFUND, RESERVE, SETTLE, route},
};
use crate::shared::{
    body_budget::{BodyPermit, ConnectionShare},
    caller_shares::Caller,
    error::{Error, HEAD_BYTES_MAX, RequestPart},
    latency::WorkerLatencies,
    metrics,
    request_id_cache::CallKind,
    reservations::ReservationId,
    service_state::ServiceState,
    tokens::{CHECK_TOKENS, METRICS_TOKENS, Right},
    traces::RequestSpan,
};

/// The state that the requests of a worker thread share.
pub(super) struct HttpWorker<C> {
    pub(super) shared: Arc<ServiceState<C>>,
    pub(super) authorize: Authorize,
    pub(super) browsers: BrowserAccess,
    pub(super) address: SocketAddr,
    pub(super) latencies: Arc<WorkerLatencies>,
    pub(super) clock: SystemClock,
}

/// The unread body of a request, and the time at which its reading ended.
struct UnreadBody {
    /// The rest of the body; `Payload::None` once it was read to its end.
    unread: Payload,
    /// The time from which the latency counts: when the request had all come, or no more of it was waited for.
    read_at: Nanos,
}

impl<C: Clock> HttpWorker<C> {
    /// Answers a request, also where its handler panics.
    pub(super) async fn handle(self: Rc<Self>, mut request: Request) -> Result<HttpResponse, Infallible> {
        let route = route(request.path());
        let mut body = UnreadBody { unread: request.take_payload(), read_at: self.clock.now().as_nanos() };
        let known = KnownHeaders::of(&request);
        let mut span = None;
        let response = match self.admit(route, &known) {
            Ok(caller) => {
                span = self.begin_span(&request, route);
                // A panic leaves nothing half done in what requests share: see `decider::catch_panic`.
                let routed = async {
                    let routed = self.route(route, &caller, &known, &mut body, span.as_ref()).await;
                    routed.unwrap_or_else(|error| self.error_response(route, &error))
                };
                let routed = AssertUnwindSafe(routed).catch_unwind().await;
                routed.unwrap_or_else(|_| self.error_response(route, &Error::Internal))
            }
            Err(error) => self.error_response(route, &error),
        };
        let took = self.clock.now().as_nanos().saturating_sub(body.read_at);
        self.latencies.count(route, response.status().as_u16(), took);
        if let Some(span) = span {
            span.end_request(response.status().as_u16());
        }
        if response.status() == StatusCode::INTERNAL_SERVER_ERROR {
            self.shared.health_monitor.count_failure();
        }
        Ok(match body.unread {
            Payload::None => response,
            unread => response.map_body(|_, response| BoxBody::new(UnreadRequest { response, _request: unread })),
        })
    }

    /// Begins the span of a request, if it is sampled. Probes and scrapes have none: they come all the time, and no
    /// request of a user is behind them.
    fn begin_span(&self, request: &Request, route: &'static str) -> Option<RequestSpan> {
        let traces = self.shared.traces.as_ref().filter(|_| !matches!(route, HEALTHZ | READYZ | METRICS))?;
        let header = |name: &str| request.headers().get(name)?.to_str().ok();
        traces.begin(request.method().as_str(), Some(route).filter(|route| *route != OTHER), &header)
    }

    async fn route(
        &self,
        route: &'static str,
        caller: &Caller,
        known: &KnownHeaders<'_>,
        body: &mut UnreadBody,
        span: Option<&RequestSpan>,
    ) -> Result<HttpResponse, Error> {
        let request = known.request;
        let wrong_method = |allowed| Err(Error::Method { given: request.method().to_string(), allowed });
        match (route, request.method()) {
            (CHECK, &Method::POST) => {
                self.decide(CallKind::Check, caller, &self.read_body(known, body).await?, span).await
            }
            (BATCH, &Method::POST) => self.batch(caller, &self.read_body(known, body).await?, peer(request)).await,
            (RESERVE, &Method::POST) => {
                self.decide(CallKind::Reserve, caller, &self.read_body(known, body).await?, span).await
            }
            (SETTLE, &Method::POST) => self.settle(request_body::settlement, &self.read_body(known, body).await?),
            (REFUND, &Method::POST) => self.settle(request_body::refund, &self.read_body(known, body).await?),
            (AUTHORIZE, _) => self.authorize(request, caller, span).await,
            (HEALTHZ, &Method::GET | &Method::HEAD) => Ok(self.health()),
            (READYZ, &Method::GET | &Method::HEAD) => Ok(self.readiness()),
            (METRICS, &Method::GET | &Method::HEAD) => self.metrics().await,
            (OTHER, _) => Err(Error::Path(request.path().to_owned())),
            (CHECK | BATCH | RESERVE | SETTLE | REFUND, _) => wrong_method("POST"),
            _ => wrong_method("GET, HEAD"),
        }
    }

    async fn read_body(&self, known: &KnownHeaders<'_>, body: &mut UnreadBody) -> Result<Bytes, Error> {
        let period = self.shared.timeouts.request;
        let permit = || self.permit(peer(known.request));
        let read = body_reader::read(&known.body, &mut body.unread, permit, period).await;
        body.read_at = self.clock.now().as_nanos();
        if read.is_ok() {
            body.unread = Payload::None;
        }
        read
    }

    /// Returns a permit for a body from this peer, or for the response to it. A connection has one at a time.
    fn permit(&self, peer: IpAddr) -> BodyPermit {
        BodyPermit::new(&ConnectionShare::new(&self.shared.body_budget, peer))
    }

    /// Decides a batch. Its response holds part of the body budget until it is sent; without that part nothing is decided.
    async fn batch(&self, caller: &Caller, body: &[u8], peer: IpAddr) -> Result<HttpResponse, Error> {
        let checks = request_body::batch(body_reader::text(body)?)?;
        let (bytes, mut permit) = (DECISION_BYTES * checks.len(), self.permit(peer));
        permit.begin_work(body.len() + size_of::<&str>() * checks.capacity(), bytes).await?;
        let mut text = Vec::with_capacity(bytes);
        text.extend_from_slice(br#"{"decisions":["#);
        let decider = &self.shared.decider;
        let mut index = 0;
        let tell = |decided| {
            if index > 0 {
                text.push(b',');
            }
            match decided {
                Ok((outcome, _)) => response_body::decision(&outcome, &mut text),
                Err(error) => {
                    let pointer = format!("/checks/{index}");
                    response_body::field(&mut text, "", self.reject(BATCH, &error, RequestPart::Body(&pointer)));
                }
            }
            index += 1;
        };
        decider.decide_each(checks, |check| request_body::decide(decider, CallKind::Check, caller, check), tell).await;
        text.extend_from_slice(b"]}");
        let body = BudgetedBody::new(permit, text);
        Ok(HttpResponse::Ok().insert_header((CONTENT_TYPE, JSON)).body(body))
    }

    /// Answers `/healthz`: the process is alive, and these are its faults.
    fn health(&self) -> HttpResponse {
        let faults: Vec<String> = self.shared.health_monitor.faults().iter().map(ToString::to_string).collect();
        if faults.is_empty() {
            text(StatusCode::OK, "ok\n")
        } else {
            text(StatusCode::OK, format!("degraded: {}\n", faults.join("; ")))
        }
    }

    /// Answers `/readyz`: whether the server has a policy, and is not stopping.
    fn readiness(&self) -> HttpResponse {
        match self.shared.decider.engine().version() {
            _ if self.shared.is_draining.load(Ordering::Relaxed) => {
                text(StatusCode::SERVICE_UNAVAILABLE, "stopping: send requests elsewhere\n")
            }
            0 => {
                text(StatusCode::SERVICE_UNAVAILABLE, "no policy has been published yet: everything would be allowed\n")
            }
            _ => text(StatusCode::OK, "ready\n"),
        }
    }

    async fn metrics(&self) -> Result<HttpResponse, Error> {
        let ServiceState { decider, metrics, timeouts, .. } = &*self.shared;
        let page = metrics.page(decider.engine(), timeouts.metrics_page).await.ok_or(Error::Internal)?;
        Ok(HttpResponse::Ok().insert_header((CONTENT_TYPE, metrics::MEDIA_TYPE)).body(page.text))
    }

    /// Finds the caller of a request, before its body is read. Returns an error where the head is too long, a page in a
    /// browser must not send the request, or the caller has no token with the right to it.
    fn admit(&self, route: &'static str, known: &KnownHeaders<'_>) -> Result<Caller, Error> {
        let request = known.request;
        let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
        // End users write the heads that proxies repeat. The bound does not hold for them: it would be an error of the
        // proxy, which may let the request pass.
        if request.path() != AUTHORIZE && target + known.bytes > HEAD_BYTES_MAX {
            return Err(Error::HeadTooLarge);
        }
        self.browsers.admit(route, known, &self.authorize, self.address)?;
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
            // The paths above in another spelling are among these.
            _ => None,
        };
        let caller = self.shared.caller(peer, tokens()).ok_or(Error::Token(CHECK_TOKENS))?;
        if let Some(right) = right {
            caller.rights.permit(right)?;
        }
        Ok(caller)
    }

    async fn decide(
        &self,
        call: CallKind,
        caller: &Caller,
        body: &[u8],
        span: Option<&RequestSpan>,
    ) -> Result<HttpResponse, Error> {
        let text = body_reader::text(body)?;
        let (outcome, settings) = request_body::decide(&self.shared.decider, call, caller, text).await?;
        if let Some(span) = span {
            span.record(&outcome);
        }
        let status = if outcome.is_allowed { StatusCode::OK } else { StatusCode::TOO_MANY_REQUESTS };
        Ok(responses::decision(status, &outcome, settings))
    }

    fn settle(
        &self,
        read: impl FnOnce(&str) -> Result<(ReservationId, u64), Error>,
        body: &[u8],
    ) -> Result<HttpResponse, Error> {
        let (reservation, actual) = read(body_reader::text(body)?)?;
        self.shared.decider.settle(reservation, actual)?;
        Ok(HttpResponse::NoContent().finish())
    }

    /// Returns the response that reports an error.
    fn error_response(&self, route: &'static str, error: &Error) -> HttpResponse {
        let part = if route == AUTHORIZE { RequestPart::Query } else { RequestPart::Body("") };
        let mut body = Vec::new();
        response_body::field(&mut body, "", self.reject(route, error, part));
        let mut response = json(error.kind().0, body);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, PROBLEM);
        match error {
            Error::Method { allowed, .. } => drop(headers.insert(ALLOW, HeaderValue::from_static(allowed))),
            Error::Token(_) => drop(headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))),
            // The rest of the body would be taken for the next request.
            Error::BrokenOff => response.head_mut().set_connection_type(ConnectionType::Close),
            _ => {}
        }
        response
    }

    /// Counts and logs a rejected request.
    fn reject(&self, route: &'static str, error: &Error, part: RequestPart<'_>) -> ProblemDetails {
        let problem = error.problem(part);
        let (_, code) = error.kind();
        tracing::debug!(
            route,
            code,
            at = problem.errors.first().map(|error| tracing::field::debug(&error.at)),
            "refused"
        );
        self.shared.metrics.count_rejection(KIND.name, code);
        problem
    }
}

/// Returns the address that a request came from.
fn peer(request: &Request) -> IpAddr {
    request.peer_addr().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.ip())
}
