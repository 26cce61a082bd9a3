//! A client of the HTTP door of Tidegate servers: connections that are kept, several addresses, one deadline for all of it, a
//! breaker for each address, and an answer in any case.

use std::{
    fmt,
    sync::{
        Mutex, Once, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{
    HeaderValue, Method, Request as HttpRequest, StatusCode, Uri,
    header::{AUTHORIZATION, CONTENT_TYPE},
    uri::Scheme,
};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use tidegate::{Request, policy::OnError};
use tokio::{runtime::Handle, sync::oneshot, time};

use crate::{
    breaker::{Breaker, Permit, State},
    headers,
    ruling::{Decider, Ruling},
    wire::{self, CheckBody},
};

/// For all of a check.
const DEADLINE: Duration = Duration::from_millis(5);
/// How long the answer to a check that was given up is still read, so that its connection can be used again.
const LATE: Duration = Duration::from_secs(1);
/// Probes of connections that nothing comes over.
const TCP_KEEPALIVE: Duration = Duration::from_secs(10);
/// Connections rest so long; servers keep them for 60 s.
const IDLE: Duration = Duration::from_secs(50);
/// Connections that rest, of each address.
const IDLE_MAX: usize = 64;
/// A decision is far below this.
const BODY_BYTES_MAX: usize = 64 * 1024;
const BREAKER: Breaker = Breaker { failures_max: 5, pause: Duration::from_secs(30) };

/// Servers that decide, all by the same policy. Cheap to share: `Arc<Remote>`; it is used on a runtime of tokio.
///
/// A check goes to the next address in turn whose breaker lets it, and on to another when it cannot connect. It is answered
/// within the deadline: where no server does, it is allowed, or denied if so chosen, with the reason as
/// [`degraded`](Ruling::degraded): `timeout`, `unreachable`, `server_error`, or `breaker_open` where none was asked. What was
/// given up may have been charged.
pub struct Remote {
    servers: Box<[Server]>,
    /// Whose turn it is.
    turn: AtomicUsize,
    client: Client<HttpConnector, Full<Bytes>>,
    deadline: Duration,
    breaker: Breaker,
    on_error: OnError,
    token: Option<HeaderValue>,
    refused: Once,
}

struct Server {
    uri: Uri,
    state: Mutex<State>,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers: Vec<_> = self.servers.iter().map(|server| server.uri.authority()).collect();
        f.debug_struct("Remote").field("servers", &servers).field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

/// Why a client cannot be made, or a check is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RemoteError {
    /// No address.
    NoAddress,
    /// This is none.
    Address(String),
    /// A server refused the check as wrong: its status, code and words. Nothing was charged.
    Refused {
        /// Status of HTTP, 400 to 499.
        status: u16,
        /// Its code, such as `bad_value`; empty if it gave none.
        code: String,
        /// What it says.
        message: String,
    },
}

impl fmt::Display for RemoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAddress => f.write_str("there is no address of a server; give one such as 127.0.0.1:9080"),
            Self::Address(text) => {
                write!(f, "`{text}` is no address of a server; write HOST:PORT or http://HOST:PORT")
            }
            Self::Refused { status, code, message } => {
                write!(f, "the server refuses the check ({status} {code}): {message}")
            }
        }
    }
}

impl std::error::Error for RemoteError {}

impl Remote {
    /// Of the servers at these addresses, `HOST:PORT` or `http://HOST:PORT`.
    pub fn to<'a>(addresses: impl IntoIterator<Item = &'a str>) -> Result<Self, RemoteError> {
        let servers = addresses.into_iter().map(|address| {
            let state = Mutex::new(State::Closed { failures: 0 });
            Ok(Server { uri: uri(address)?, state })
        });
        let servers: Box<[Server]> = servers.collect::<Result<_, _>>()?;
        if servers.is_empty() {
            return Err(RemoteError::NoAddress);
        }
        let mut connector = HttpConnector::new();
        connector.set_keepalive(Some(TCP_KEEPALIVE));
        connector.set_keepalive_interval(Some(TCP_KEEPALIVE));
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(LATE));
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(IDLE_MAX)
            .build(connector);
        Ok(Self {
            servers,
            turn: AtomicUsize::new(0),
            client,
            deadline: DEADLINE,
            breaker: BREAKER,
            on_error: OnError::Open,
            token: None,
            refused: Once::new(),
        })
    }

    /// Sends one of the servers' `--check-tokens` along. A text that no header can carry is none.
    #[must_use]
    pub fn token(self, token: &str) -> Self {
        let mut token = HeaderValue::try_from(format!("Bearer {token}")).ok();
        if let Some(token) = &mut token {
            token.set_sensitive(true);
        }
        Self { token, ..self }
    }

    /// Answers within this time; 5 ms unless told.
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// After `failures` in a row (at least 1; 5 unless told) a server is not asked, but by one call after each `pause` (30 s).
    #[must_use]
    pub fn breaker(self, failures: u32, pause: Duration) -> Self {
        Self { breaker: Breaker { failures_max: failures.max(1), pause }, ..self }
    }

    /// What is answered when no server decides: [`OnError::Open`], to allow, unless told.
    #[must_use]
    pub fn on_error(self, on_error: OnError) -> Self {
        Self { on_error, ..self }
    }

    /// Asks a server. An error is the caller's: the check itself is wrong.
    pub async fn check(&self, request: &Request<'_>) -> Result<Ruling, RemoteError> {
        let undecided = |reason: Failure| Ok(Ruling::undecided(reason.name(), self.on_error));
        let (Ok(body), Ok(runtime)) = (serde_json::to_vec(&CheckBody::from(request)), Handle::try_current()) else {
            return undecided(Failure::NoRuntime);
        };
        let body = Bytes::from(body);
        let end = time::Instant::now() + self.deadline;
        let first = self.turn.fetch_add(1, Ordering::Relaxed);
        let mut failed = Failure::BreakerOpen;
        for place in 0..self.servers.len() {
            let server = &self.servers[first.wrapping_add(place) % self.servers.len()];
            let Some(permit) = server.ask(self.breaker) else { continue };
            let (tell, told) = oneshot::channel();
            let exchange = exchange(self.client.clone(), server.uri.clone(), self.token.clone(), body.clone());
            let late = LATE.max(self.deadline);
            // It goes on when nobody waits any more.
            runtime.spawn(async move {
                if let Ok(outcome) = time::timeout(late, exchange).await {
                    let _ = tell.send(outcome);
                }
            });
            let outcome = match time::timeout_at(end, told).await {
                Ok(Ok(outcome)) => outcome,
                // It was not waited for, here or beside: it may have been charged.
                Ok(Err(_)) | Err(_) => Err(Failure::Timeout),
            };
            let answer = outcome.and_then(Answer::read);
            server.learn(self.breaker, permit, answer.is_ok());
            match answer {
                Ok(answer) => return answer,
                // Nothing was sent.
                Err(Failure::Unreachable) => failed = Failure::Unreachable,
                Err(failure) => return undecided(failure),
            }
        }
        undecided(failed)
    }
}

impl Decider for Remote {
    async fn decide(&self, request: &Request<'_>) -> Ruling {
        self.check(request).await.unwrap_or_else(|error| {
            self.refused.call_once(|| tracing::error!("{error}; whatever is refused so is not limited"));
            Ruling::undecided("refused", self.on_error)
        })
    }

    fn on_error(&self, _: &str) -> OnError {
        self.on_error
    }
}

impl Server {
    fn ask(&self, breaker: Breaker) -> Option<Permit> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (next, permit) = breaker.ask(*state, time::Instant::now());
        *state = next;
        permit
    }

    fn learn(&self, breaker: Breaker, permit: Permit, succeeded: bool) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *state;
        *state = breaker.learn(before, permit, succeeded, time::Instant::now());
        let after = *state;
        drop(state);
        let server = self.uri.authority().map(http::uri::Authority::as_str);
        match (before, after) {
            (State::Closed { .. }, State::Open { .. }) => {
                tracing::warn!(server, pause = ?breaker.pause, "it does not answer, and is not asked for a while");
            }
            (State::Open { .. }, State::Closed { .. }) => tracing::info!(server, "it answers again"),
            _ => {}
        }
    }
}

/// Why nobody decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Failure {
    Timeout,
    /// No connection.
    Unreachable,
    /// What came is no decision.
    ServerError,
    BreakerOpen,
    /// There is no runtime to wait on.
    NoRuntime,
}

impl Failure {
    fn name(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Unreachable => "unreachable",
            Self::ServerError => "server_error",
            Self::BreakerOpen => "breaker_open",
            Self::NoRuntime => "no_runtime",
        }
    }
}

/// What a server answered.
struct Answer {
    status: StatusCode,
    headers: Vec<(&'static str, String)>,
    body: Bytes,
}

impl Answer {
    fn read(self) -> Result<Result<Ruling, RemoteError>, Failure> {
        let Self { status, headers, body } = self;
        match status {
            StatusCode::OK | StatusCode::TOO_MANY_REQUESTS => {
                wire::ruling(&body, headers).map(Ok).ok_or(Failure::ServerError)
            }
            // Whoever is turned away, or asks at a wrong place, has no server.
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND | StatusCode::REQUEST_TIMEOUT => {
                Err(Failure::ServerError)
            }
            _ if status.is_client_error() => {
                let (code, message) = wire::refusal(&body);
                Ok(Err(RemoteError::Refused { status: status.as_u16(), code, message }))
            }
            _ => Err(Failure::ServerError),
        }
    }
}

async fn exchange(
    client: Client<HttpConnector, Full<Bytes>>,
    uri: Uri,
    token: Option<HeaderValue>,
    body: Bytes,
) -> Result<Answer, Failure> {
    let mut request = HttpRequest::new(Full::new(body));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = uri;
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(token) = token {
        request.headers_mut().insert(AUTHORIZATION, token);
    }
    let failed = |error: hyper_util::client::legacy::Error| {
        if error.is_connect() { Failure::Unreachable } else { Failure::ServerError }
    };
    let (parts, body) = client.request(request).await.map_err(failed)?.into_parts();
    let body = Limited::new(body, BODY_BYTES_MAX).collect().await.map_err(|_| Failure::ServerError)?.to_bytes();
    let names = headers::NUMBERS.into_iter().chain([headers::RETRY_AFTER]);
    let header = |name: &'static str| Some((name, parts.headers.get(name)?.to_str().ok()?.to_owned()));
    Ok(Answer { status: parts.status, headers: names.filter_map(header).collect(), body })
}

/// Of the check at this address.
fn uri(address: &str) -> Result<Uri, RemoteError> {
    let wrong = || RemoteError::Address(address.chars().take(256).collect::<String>().escape_debug().to_string());
    let authority = address.strip_prefix("http://").unwrap_or(address);
    let authority = authority.strip_suffix('/').unwrap_or(authority);
    let uri = Uri::builder().scheme(Scheme::HTTP).authority(authority).path_and_query("/v1/check").build();
    uri.ok().filter(|uri| uri.port_u16().is_some() && !authority.contains('@')).ok_or_else(wrong)
}
