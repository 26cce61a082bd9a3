//! One check that is sent to one server. The caller of the check reads the response itself. A check that it gives up is read on by a
//! task, so that the connection can be used again, and the breaker learns of a late response.

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{
    HeaderValue, Method, Request, StatusCode, Uri,
    header::{AUTHORIZATION, CONTENT_TYPE},
};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use rustls::ClientConfig;
use tidegate_api::ProblemDetails;
use tidegate_net::breaker::{self, Breaker, CallPermit, State};
use tokio::{
    runtime::Handle,
    time::{self, Instant},
};

use super::{RemoteError, body};
use crate::{decision::OwnedDecision, headers};

/// The period for which the response to a check that was given up is still read.
const LATE: Duration = Duration::from_secs(1);
/// The time after which an idle connection is probed, and between two probes.
const TCP_KEEPALIVE: Duration = Duration::from_secs(10);
/// The period for which an idle connection is kept; servers keep it for 60 s.
const IDLE: Duration = Duration::from_secs(50);
/// The largest number of idle connections to one address.
const IDLE_MAX: usize = 64;
/// The largest body of a response; a decision is far smaller.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// An HTTP client, with the connections to all servers.
pub(crate) type HttpClient = legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

pub(crate) fn http_client(tls: ClientConfig) -> HttpClient {
    let mut tcp = HttpConnector::new();
    // `https` addresses too.
    tcp.enforce_http(false);
    tcp.set_keepalive(Some(TCP_KEEPALIVE));
    tcp.set_keepalive_interval(Some(TCP_KEEPALIVE));
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(LATE));
    let connector =
        HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().wrap_connector(tcp);
    legacy::Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(IDLE_MAX)
        .build(connector)
}

pub(crate) struct AttemptSettings {
    pub(crate) client: HttpClient,
    pub(crate) token: Option<HeaderValue>,
    pub(crate) breaker: Breaker,
    /// The largest number of checks in flight to one server.
    pub(crate) in_flight_max: usize,
}

/// A server: its address, its breaker, and the number of checks in flight.
pub(crate) struct RemoteServer {
    pub(crate) uri: Uri,
    breaker_state: Mutex<State>,
    /// Checks that were sent, while their responses are read.
    in_flight: AtomicUsize,
}

impl RemoteServer {
    pub(crate) fn new(uri: Uri) -> Self {
        Self { uri, breaker_state: Mutex::default(), in_flight: AtomicUsize::new(0) }
    }

    /// Sends a check to the server, unless its breaker is open or too many checks are in flight.
    pub(crate) fn send(
        self: &Arc<Self>,
        settings: &AttemptSettings,
        body: &Bytes,
        end: Instant,
    ) -> Result<Attempt, RemoteFailure> {
        // Dropping the call counts it down again.
        let before = self.in_flight.fetch_add(1, Ordering::Relaxed);
        let began = Instant::now();
        let mut call =
            ServerCall { server: Arc::clone(self), breaker: settings.breaker, permit: CallPermit::Usual, began };
        if before >= settings.in_flight_max {
            return Err(RemoteFailure::Busy);
        }
        let permit = self.step_breaker(|state| settings.breaker.ask(state, began));
        call.permit = permit.ok_or(RemoteFailure::BreakerOpen)?;
        let exchange = Box::pin(exchange(settings.client.request(self.request(settings, body))));
        Ok(Attempt(Some(ActiveAttempt { exchange, call, end })))
    }

    fn request(&self, settings: &AttemptSettings, body: &Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body.clone()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(token) = &settings.token {
            request.headers_mut().insert(AUTHORIZATION, token.clone());
        }
        request
    }

    fn step_breaker<T>(&self, step: impl FnOnce(State) -> (State, T)) -> T {
        let mut state = self.breaker_state.lock().unwrap_or_else(PoisonError::into_inner);
        let (next, result) = step(*state);
        *state = next;
        result
    }
}

/// The part of an attempt that the server's breaker and count know of. It counts as in flight until it is dropped.
struct ServerCall {
    server: Arc<RemoteServer>,
    breaker: Breaker,
    permit: CallPermit,
    began: Instant,
}

impl ServerCall {
    /// Records in the breaker whether the server responded in time, and logs when the breaker opens or closes.
    fn record(&self, has_succeeded: bool) {
        let outcome = if has_succeeded {
            breaker::CallOutcome::Answered
        } else {
            breaker::CallOutcome::Failed { since: self.began, failures: 1 }
        };
        let (before, after) = self.server.step_breaker(|before| {
            let after = self.breaker.learn(before, self.permit, outcome, Instant::now());
            (after, (before, after))
        });
        let server = self.server.uri.authority().map(http::uri::Authority::as_str);
        match (before, after) {
            (State::Closed { .. }, State::Open { .. }) => {
                tracing::warn!(server, pause = ?self.breaker.pause, "the server does not answer; no requests are sent to it during the pause");
            }
            (State::Open { .. }, State::Closed { .. }) => tracing::info!(server, "the server answers again"),
            _ => {}
        }
    }

    /// Records in the breaker that the server responded after the attempt had failed.
    fn record_late(&self) {
        self.server.step_breaker(|state| (Breaker::late(state, Instant::now()), ()));
    }
}

impl Drop for ServerCall {
    fn drop(&mut self) {
        self.server.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A check in flight, as a future of its outcome; `None` once that was returned.
pub(crate) struct Attempt(Option<ActiveAttempt>);

struct ActiveAttempt {
    exchange: Pin<Box<dyn Future<Output = AttemptOutcome> + Send>>,
    call: ServerCall,
    /// The time at which the attempt counts as failed.
    end: Instant,
}

/// A decision, or an error that the check itself is wrong; else the reason why the server did not decide.
pub(crate) type AttemptOutcome = Result<Result<OwnedDecision, RemoteError>, RemoteFailure>;

impl Future for Attempt {
    type Output = AttemptOutcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<AttemptOutcome> {
        let Some(active) = &mut self.0 else { return Poll::Pending };
        let outcome = ready!(active.exchange.as_mut().poll(context));
        active.call.record(outcome.is_ok());
        self.0 = None;
        Poll::Ready(outcome)
    }
}

/// Gives the attempt up: its time is over, another server was faster, or the caller dropped the check.
impl Drop for Attempt {
    fn drop(&mut self) {
        let (Some(active), Ok(runtime)) = (self.0.take(), Handle::try_current()) else { return };
        let ActiveAttempt { mut exchange, call, end } = active;
        let is_over = Instant::now() >= end;
        if is_over {
            // Not in the task: the next check has to see it.
            call.record(false);
        }
        runtime.spawn(async move {
            if !is_over {
                match time::timeout_at(end, &mut exchange).await {
                    Ok(outcome) => return call.record(outcome.is_ok()),
                    Err(_) => call.record(false),
                }
            }
            if let Ok(Ok(_)) = time::timeout(LATE, exchange).await {
                call.record_late();
            }
        });
    }
}

/// The reason why a server did not decide.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RemoteFailure {
    /// The deadline passed.
    Timeout,
    /// The connection could not be made.
    Unreachable,
    /// The response is no decision.
    ServerError,
    /// The breaker of every server is open.
    BreakerOpen,
    /// Too many checks are in flight.
    Busy,
    /// The check runs outside a runtime of tokio.
    NoRuntime,
}

impl RemoteFailure {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Unreachable => "unreachable",
            Self::ServerError => "server_error",
            Self::BreakerOpen => "breaker_open",
            Self::Busy => "busy",
            Self::NoRuntime => "no_runtime",
        }
    }
}

async fn exchange(response: legacy::ResponseFuture) -> AttemptOutcome {
    let failed = |error: legacy::Error| {
        if error.is_connect() { RemoteFailure::Unreachable } else { RemoteFailure::ServerError }
    };
    let (parts, body) = response.await.map_err(failed)?.into_parts();
    let body = Limited::new(body, BODY_BYTES_MAX).collect().await.map_err(|_| RemoteFailure::ServerError)?.to_bytes();
    match parts.status {
        StatusCode::OK | StatusCode::TOO_MANY_REQUESTS => {
            let names = headers::NUMBERS.into_iter().chain([headers::RETRY_AFTER]);
            let header = |name: &'static str| Some((name, parts.headers.get(name)?.to_str().ok()?.to_owned()));
            let body = serde_json::from_slice(&body).map_err(|_| RemoteFailure::ServerError)?;
            Ok(Ok(body::decision(body, names.filter_map(header).collect())))
        }
        // A missing token or a wrong path is a mistake of the configuration: the server counts as one that does not decide.
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND | StatusCode::REQUEST_TIMEOUT => {
            Err(RemoteFailure::ServerError)
        }
        status if status.is_client_error() => {
            // A proxy between may have written any body.
            let ProblemDetails { code, detail, .. } = serde_json::from_slice(&body).unwrap_or_default();
            Ok(Err(RemoteError::Refused { status: status.as_u16(), code: code.into_owned(), message: detail }))
        }
        _ => Err(RemoteFailure::ServerError),
    }
}
