//! [`Remote`]: the client of Tidegate servers, which decides for a guard instead of an engine. It keeps connections, spreads checks
//! over several addresses, has one deadline for all of a check, and decides itself if no server does.

mod attempt;
mod body;

use std::{
    fmt,
    future::poll_fn,
    pin::Pin,
    sync::{
        Arc, Once,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Uri, uri::Scheme};
use tidegate::{Request, policy::OnError};
use tidegate_net::breaker::Breaker;
pub use tidegate_net::tls::{ClientTls, OwnCertificate};
use tokio::{
    runtime::Handle,
    time::{self, Instant},
};

use self::attempt::{Attempt, AttemptOutcome, AttemptSettings, RemoteFailure, RemoteServer, http_client};
use crate::decision::{Backend, OwnedDecision};

/// The time for all of a check, unless set.
const DEADLINE: Duration = Duration::from_millis(5);
const BREAKER: Breaker = Breaker { failures_max: 5, pause: Duration::from_secs(30) };
/// The largest period of a setting: added to a time, it cannot overflow.
const PERIOD_MAX: Duration = Duration::from_hours(24);
/// The largest number of checks in flight to one server, unless set: at 5 ms a response, 50,000 a second.
const IN_FLIGHT_MAX: usize = 256;

/// A client of servers that all decide by the same policy. Share it as `Arc<Remote>`; it needs a runtime of tokio.
///
/// A check goes to the next address in turn whose breaker allows it. It also goes to another address when that one fails, or has
/// not responded after half of the time; the first decision counts. A check always has a result within the deadline: if no server
/// decides, the request is allowed, or denied if so set, with the reason as [`degraded`](OwnedDecision::degraded). The reasons are
/// `timeout`, `unreachable`, `server_error` and `refused`, and where no server was asked `breaker_open`, `busy` and `no_runtime`. A
/// check that was given up may have been charged.
pub struct Remote {
    servers: Box<[Arc<RemoteServer>]>,
    /// Counts checks: it picks the server that is next in turn.
    turn: AtomicUsize,
    settings: AttemptSettings,
    deadline: Duration,
    on_error: OnError,
    first_refusal: Once,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers: Vec<_> = self.servers.iter().map(|server| server.uri.authority()).collect();
        f.debug_struct("Remote").field("servers", &servers).field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

/// An error of the settings of a client, or of a check that is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RemoteError {
    /// No address is given.
    NoAddress,
    /// The text is not an address.
    Address(String),
    /// The token has characters that a header cannot have.
    Token,
    /// A certificate, a key or an authority of TLS is wrong; a message that names it.
    Tls(String),
    /// A server rejected the check as wrong. Nothing was charged. A value of the kind `ip` that is no address is rejected with 400
    /// and `bad_value`, for example.
    Refused {
        /// HTTP status, 400 to 499.
        status: u16,
        /// Stable code, such as `bad_value`; empty if the response has none.
        code: String,
        /// Detail of the response.
        message: String,
    },
}

impl fmt::Display for RemoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAddress => f.write_str("there is no address of a server; give one such as 127.0.0.1:9080"),
            Self::Address(text) => {
                write!(f, "`{text}` is no address of a server; write HOST:PORT, http://HOST:PORT or https://HOST:PORT")
            }
            Self::Token => f.write_str("the token has characters that a header cannot carry"),
            Self::Tls(what) => f.write_str(what),
            Self::Refused { status, code, message } => {
                write!(f, "the server refuses the check ({status} {code}): {message}")
            }
        }
    }
}

impl std::error::Error for RemoteError {}

impl Remote {
    /// Creates a client of the servers at these addresses, `HOST:PORT`, `http://HOST:PORT` or `https://HOST:PORT`. Over TLS it
    /// trusts the authorities that the machine trusts.
    pub fn to<'a>(addresses: impl IntoIterator<Item = &'a str>) -> Result<Self, RemoteError> {
        Self::over_tls(addresses, ClientTls { machine: true, authorities: None, own: None })
    }

    /// Creates a client with these trusted authorities, and the certificate for servers that ask for one (`--tls-client-ca`).
    pub fn over_tls<'a>(addresses: impl IntoIterator<Item = &'a str>, tls: ClientTls<'_>) -> Result<Self, RemoteError> {
        let servers = addresses.into_iter().map(|address| Ok(Arc::new(RemoteServer::new(uri(address)?))));
        let servers: Box<[Arc<RemoteServer>]> = servers.collect::<Result<_, _>>()?;
        if servers.is_empty() {
            return Err(RemoteError::NoAddress);
        }
        let is_over_tls = servers.iter().any(|server| server.uri.scheme() == Some(&Scheme::HTTPS));
        if is_over_tls && !tls.machine && tls.authorities.is_none() {
            return Err(RemoteError::Tls("no authority is trusted for servers over TLS; name one".to_owned()));
        }
        // Without an address over TLS the machine's certificates need not be read.
        let tls = ClientTls { machine: tls.machine && is_over_tls, ..tls };
        let client = tls.config().map(http_client).map_err(|error| RemoteError::Tls(error.to_string()))?;
        let settings = AttemptSettings { client, token: None, breaker: BREAKER, in_flight_max: IN_FLIGHT_MAX };
        let turn = AtomicUsize::new(0);
        Ok(Self { servers, turn, settings, deadline: DEADLINE, on_error: OnError::Open, first_refusal: Once::new() })
    }

    /// Sends one of the servers' `--check-tokens` along; white space around it is not part of it.
    pub fn token(mut self, token: &str) -> Result<Self, RemoteError> {
        let mut token = HeaderValue::try_from(format!("Bearer {}", token.trim())).map_err(|_| RemoteError::Token)?;
        token.set_sensitive(true);
        self.settings.token = Some(token);
        Ok(self)
    }

    /// Sets the time for all of a check, a day at most; 5 ms unless set.
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Self {
        Self { deadline: deadline.min(PERIOD_MAX), ..self }
    }

    /// Sets the circuit breaker of each server: after `failures` in a row (at least 1; 5 unless set) no check is sent, except one
    /// after each `pause` (30 s unless set, a day at most). A failure counts if its check began after the failure before was
    /// counted, so checks that wait at the same time count once.
    #[must_use]
    pub fn breaker(mut self, failures: u32, pause: Duration) -> Self {
        self.settings.breaker = Breaker { failures_max: failures.max(1), pause: pause.min(PERIOD_MAX) };
        self
    }

    /// Sets the largest number of checks in flight to one server, 256 unless set; a check that was given up counts for the second
    /// in which its response is still read. Further checks go to another server.
    #[must_use]
    pub fn max_in_flight(mut self, checks: usize) -> Self {
        self.settings.in_flight_max = checks;
        self
    }

    /// Sets what becomes of a request when no server decides; [`OnError::Open`], which allows it, unless set.
    #[must_use]
    pub fn on_error(self, on_error: OnError) -> Self {
        Self { on_error, ..self }
    }

    /// Has a server decide. The error is the caller's: the check itself is wrong.
    pub async fn check(&self, request: &Request<'_>) -> Result<OwnedDecision, RemoteError> {
        let undecided = |reason: RemoteFailure| Ok(OwnedDecision::undecided(reason.name(), self.on_error));
        let (Ok(body), Ok(_)) = (serde_json::to_vec(&body::check(request)), Handle::try_current()) else {
            return undecided(RemoteFailure::NoRuntime);
        };
        let body = Bytes::from(body);
        let mut now = Instant::now();
        let end = now + self.deadline;
        let first = self.turn.fetch_add(1, Ordering::Relaxed);
        let count = self.servers.len();
        let mut others = (0..count).map(|place| &self.servers[first.wrapping_add(place) % count]);
        let mut attempts = Vec::with_capacity(1);
        let mut failure = RemoteFailure::BreakerOpen;
        loop {
            for server in others.by_ref() {
                match server.send(&self.settings, &body, end) {
                    Ok(attempt) => {
                        attempts.push(attempt);
                        break;
                    }
                    Err(RemoteFailure::Busy) if failure == RemoteFailure::BreakerOpen => failure = RemoteFailure::Busy,
                    Err(_) => {}
                }
            }
            if attempts.is_empty() {
                return undecided(failure);
            }
            // A server that does not respond must not take all the time while there is another.
            let until = if others.len() == 0 { end } else { now + (end - now) / 2 };
            match time::timeout_at(until, first_outcome(&mut attempts)).await {
                Ok(Ok(result)) => return result,
                Ok(Err(reason)) => failure = reason,
                Err(_) if until == end => return undecided(RemoteFailure::Timeout),
                Err(_) => {}
            }
            now = Instant::now().min(end);
        }
    }
}

/// Waits for the first attempt that ends, removes it, and returns its outcome.
async fn first_outcome(attempts: &mut Vec<Attempt>) -> AttemptOutcome {
    poll_fn(|context| {
        for place in 0..attempts.len() {
            if let Poll::Ready(outcome) = Pin::new(&mut attempts[place]).poll(context) {
                attempts.swap_remove(place);
                return Poll::Ready(outcome);
            }
        }
        Poll::Pending
    })
    .await
}

impl Backend for Remote {
    async fn decide(&self, request: &Request<'_>) -> OwnedDecision {
        self.check(request).await.unwrap_or_else(|error| {
            self.first_refusal.call_once(|| tracing::error!("{error}; requests that are refused so are not limited"));
            OwnedDecision::undecided("refused", self.on_error)
        })
    }

    fn on_error(&self, _: &str) -> OnError {
        self.on_error
    }
}

/// Returns the URI of the check at this address.
fn uri(address: &str) -> Result<Uri, RemoteError> {
    let wrong = || RemoteError::Address(address.chars().take(256).collect::<String>().escape_debug().to_string());
    let (scheme, authority) = match address.split_once("://") {
        None => (Scheme::HTTP, address),
        Some(("http", authority)) => (Scheme::HTTP, authority),
        Some(("https", authority)) => (Scheme::HTTPS, authority),
        Some(_) => return Err(wrong()),
    };
    let authority = authority.strip_suffix('/').unwrap_or(authority);
    let uri = Uri::builder().scheme(scheme).authority(authority).path_and_query("/v1/check").build();
    uri.ok().filter(|uri| uri.port_u16().is_some() && !authority.contains('@')).ok_or_else(wrong)
}
