//! One question to one server. Whoever waits for the answer asks and reads himself; where he gives it up, a task reads on, so
//! that the connection can be used again, and what comes late is learnt.

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
use tidegate_net::breaker::{self, Breaker, Permit, State};
use tokio::{
    runtime::Handle,
    time::{self, Instant},
};

use super::{RemoteError, body};
use crate::{decision::Ruling, headers};

/// How long the answer to a check that was given up is still read.
const LATE: Duration = Duration::from_secs(1);
/// Probes of connections that nothing comes over.
const TCP_KEEPALIVE: Duration = Duration::from_secs(10);
/// Connections rest so long; servers keep them for 60 s.
const IDLE: Duration = Duration::from_secs(50);
/// Connections that rest, of each address.
const IDLE_MAX: usize = 64;
/// A decision is far below this.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// Connections to all servers.
pub(crate) type Client = legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

pub(crate) fn client(tls: ClientConfig) -> Client {
    let mut tcp = HttpConnector::new();
    // Not only `http`.
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

/// What servers are asked by.
pub(crate) struct Means {
    pub(crate) client: Client,
    pub(crate) token: Option<HeaderValue>,
    pub(crate) breaker: Breaker,
    /// So many questions at once to each server.
    pub(crate) at_once_max: usize,
}

/// A server, and what is known of it.
pub(crate) struct Server {
    uri: Uri,
    state: Mutex<State>,
    /// Questions that it was asked, while their answers are read.
    under_way: AtomicUsize,
}

impl Server {
    pub(crate) fn new(uri: Uri) -> Self {
        Self { uri, state: Mutex::default(), under_way: AtomicUsize::new(0) }
    }

    pub(crate) fn uri(&self) -> &Uri {
        &self.uri
    }

    /// Asks it, unless it is not to be asked now.
    pub(crate) fn ask(self: &Arc<Self>, means: &Means, body: &Bytes, end: Instant) -> Result<Question, Failure> {
        // From here on it counts, until this is dropped.
        let before = self.under_way.fetch_add(1, Ordering::Relaxed);
        let began = Instant::now();
        let mut call = Call { server: Arc::clone(self), breaker: means.breaker, permit: Permit::Usual, began };
        if before >= means.at_once_max {
            return Err(Failure::Busy);
        }
        let permit = self.step(|state| means.breaker.ask(state, began));
        call.permit = permit.ok_or(Failure::BreakerOpen)?;
        let exchange = Box::pin(exchange(means.client.request(self.request(means, body))));
        Ok(Question(Some(Asked { exchange, call, end })))
    }

    fn request(&self, means: &Means, body: &Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body.clone()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(token) = &means.token {
            request.headers_mut().insert(AUTHORIZATION, token.clone());
        }
        request
    }

    fn step<T>(&self, step: impl FnOnce(State) -> (State, T)) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (next, told) = step(*state);
        *state = next;
        told
    }
}

/// That a server is asked. It counts as under way while this is there.
struct Call {
    server: Arc<Server>,
    breaker: Breaker,
    permit: Permit,
    began: Instant,
}

impl Call {
    fn learn(&self, succeeded: bool) {
        let outcome = if succeeded {
            breaker::Outcome::Answered
        } else {
            breaker::Outcome::Failed { since: self.began, failures: 1 }
        };
        let (before, after) = self.server.step(|before| {
            let after = self.breaker.learn(before, self.permit, outcome, Instant::now());
            (after, (before, after))
        });
        let server = self.server.uri.authority().map(http::uri::Authority::as_str);
        match (before, after) {
            (State::Closed { .. }, State::Open { .. }) => {
                tracing::warn!(server, pause = ?self.breaker.pause, "it does not answer, and is not asked for a while");
            }
            (State::Open { .. }, State::Closed { .. }) => tracing::info!(server, "it answers again"),
            _ => {}
        }
    }

    fn learn_late(&self) {
        self.server.step(|state| (Breaker::late(state, Instant::now()), ()));
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.server.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A question under way; `None` when it is answered.
pub(crate) struct Question(Option<Asked>);

struct Asked {
    exchange: Pin<Box<dyn Future<Output = Outcome> + Send>>,
    call: Call,
    /// When it counts as failed.
    end: Instant,
}

/// A decision, or what is wrong with the check; or else why there is none.
pub(crate) type Outcome = Result<Result<Ruling, RemoteError>, Failure>;

impl Future for Question {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let Some(asked) = &mut self.0 else { return Poll::Pending };
        let outcome = ready!(asked.exchange.as_mut().poll(context));
        asked.call.learn(outcome.is_ok());
        self.0 = None;
        Poll::Ready(outcome)
    }
}

/// Given up: at the end of its time, or because another server was faster, or because nobody waits for the check any more.
impl Drop for Question {
    fn drop(&mut self) {
        let (Some(asked), Ok(runtime)) = (self.0.take(), Handle::try_current()) else { return };
        let Asked { mut exchange, call, end } = asked;
        let is_over = Instant::now() >= end;
        if is_over {
            // Here, so that the next check knows it.
            call.learn(false);
        }
        runtime.spawn(async move {
            if !is_over {
                match time::timeout_at(end, &mut exchange).await {
                    Ok(outcome) => return call.learn(outcome.is_ok()),
                    Err(_) => call.learn(false),
                }
            }
            if let Ok(Ok(_)) = time::timeout(LATE, exchange).await {
                call.learn_late();
            }
        });
    }
}

/// Why a server did not decide.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Failure {
    Timeout,
    /// No connection.
    Unreachable,
    /// What came is no decision.
    ServerError,
    BreakerOpen,
    /// Too many questions wait for its answer.
    Busy,
    /// There is no runtime to wait on.
    NoRuntime,
}

impl Failure {
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

async fn exchange(asked: legacy::ResponseFuture) -> Outcome {
    let failed = |error: legacy::Error| if error.is_connect() { Failure::Unreachable } else { Failure::ServerError };
    let (parts, body) = asked.await.map_err(failed)?.into_parts();
    let body = Limited::new(body, BODY_BYTES_MAX).collect().await.map_err(|_| Failure::ServerError)?.to_bytes();
    match parts.status {
        StatusCode::OK | StatusCode::TOO_MANY_REQUESTS => {
            let names = headers::NUMBERS.into_iter().chain([headers::RETRY_AFTER]);
            let header = |name: &'static str| Some((name, parts.headers.get(name)?.to_str().ok()?.to_owned()));
            let body = serde_json::from_slice(&body).map_err(|_| Failure::ServerError)?;
            Ok(Ok(body::ruling(body, names.filter_map(header).collect())))
        }
        // Whoever is turned away, or asks at a wrong place, has no server.
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND | StatusCode::REQUEST_TIMEOUT => {
            Err(Failure::ServerError)
        }
        status if status.is_client_error() => {
            // A proxy between may have written any body.
            let ProblemDetails { code, detail, .. } = serde_json::from_slice(&body).unwrap_or_default();
            Ok(Err(RemoteError::Refused { status: status.as_u16(), code: code.into_owned(), message: detail }))
        }
        _ => Err(Failure::ServerError),
    }
}
