//! A client of the HTTP door of Tidegate servers: connections that are kept, several addresses, one deadline for all of it, a
//! breaker for each address, and an answer in any case.

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
pub use tidegate_net::tls::{ClientTls, Own};
use tokio::{
    runtime::Handle,
    time::{self, Instant},
};

use self::{
    attempt::{Failure, Means, Outcome, Question, Server, client},
    body::check_body,
};
use crate::decision::{Decider, Ruling};

/// For all of a check.
const DEADLINE: Duration = Duration::from_millis(5);
const BREAKER: Breaker = Breaker { failures_max: 5, pause: Duration::from_secs(30) };
/// What may be added to a time without further thought.
const TIME_MAX: Duration = Duration::from_hours(24);
/// Questions under way at each server: with answers after 5 ms, 50,000 a second.
const AT_ONCE_MAX: usize = 256;

/// Servers that decide, all by the same policy. Cheap to share: `Arc<Remote>`; it is used on a runtime of tokio.
///
/// A check goes to the next address in turn whose breaker lets it, and to another one besides when that fails, or has not
/// answered after half of the time; the first decision counts. It is answered within the deadline: where no server does, it is
/// allowed, or denied if so chosen, with the reason as [`degraded`](Ruling::degraded): `timeout`, `unreachable`,
/// `server_error`, `refused`, or `breaker_open`, `busy` and `no_runtime` where none was asked. What was given up may have been charged.
pub struct Remote {
    servers: Box<[Arc<Server>]>,
    /// Whose turn it is.
    turn: AtomicUsize,
    means: Means,
    deadline: Duration,
    on_error: OnError,
    refused: Once,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers: Vec<_> = self.servers.iter().map(|server| server.uri().authority()).collect();
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
    /// A token that no header can carry.
    Token,
    /// What TLS was to be made of, and what is wrong with it.
    Tls(String),
    /// A server refused the check as wrong: its status, code and words. Nothing was charged. So it does, with 400 and
    /// `bad_value`, where the value of the kind `ip` is no address.
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
    /// Of the servers at these addresses, `HOST:PORT`, `http://HOST:PORT` or `https://HOST:PORT`. Those that are asked over TLS
    /// are believed by whom the machine trusts.
    pub fn to<'a>(addresses: impl IntoIterator<Item = &'a str>) -> Result<Self, RemoteError> {
        let servers = servers(addresses)?;
        Self::of(servers, ClientTls { machine: true, authorities: None, own: None })
    }

    /// The same, with whom to believe over TLS, and the certificate to show to servers that ask for one
    /// (`--tls-client-ca`).
    pub fn over_tls<'a>(addresses: impl IntoIterator<Item = &'a str>, tls: ClientTls<'_>) -> Result<Self, RemoteError> {
        Self::of(servers(addresses)?, tls)
    }

    fn of(servers: Box<[Arc<Server>]>, tls: ClientTls<'_>) -> Result<Self, RemoteError> {
        let is_over_tls = servers.iter().any(|server| server.uri().scheme() == Some(&Scheme::HTTPS));
        if is_over_tls && !tls.machine && tls.authorities.is_none() {
            return Err(RemoteError::Tls("no servers over TLS are believed: name an authority".to_owned()));
        }
        // Where nobody is asked over TLS, the machine's certificates need not be read.
        let tls = ClientTls { machine: tls.machine && is_over_tls, ..tls };
        let client = tls.config().map(client).map_err(|error| RemoteError::Tls(error.to_string()))?;
        let means = Means { client, token: None, breaker: BREAKER, at_once_max: AT_ONCE_MAX };
        let turn = AtomicUsize::new(0);
        Ok(Self { servers, turn, means, deadline: DEADLINE, on_error: OnError::Open, refused: Once::new() })
    }

    /// Sends one of the servers' `--check-tokens` along; white space around it is not part of it.
    pub fn token(mut self, token: &str) -> Result<Self, RemoteError> {
        let mut token = HeaderValue::try_from(format!("Bearer {}", token.trim())).map_err(|_| RemoteError::Token)?;
        token.set_sensitive(true);
        self.means.token = Some(token);
        Ok(self)
    }

    /// Answers within this time, a day at most; 5 ms unless told.
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Self {
        Self { deadline: deadline.min(TIME_MAX), ..self }
    }

    /// After `failures` in a row (at least 1; 5 unless given) a server is not asked, except by one check after each `pause`
    /// (30 s unless given, a day at most). A failure counts if its check began after the failure before was counted, so checks
    /// that wait at the same time count once.
    #[must_use]
    pub fn breaker(mut self, failures: u32, pause: Duration) -> Self {
        self.means.breaker = Breaker { failures_max: failures.max(1), pause: pause.min(TIME_MAX) };
        self
    }

    /// Asks each server at most so many checks at once, 256 unless told; what was given up counts for the second in which it is
    /// still read. Checks beyond go to another server.
    #[must_use]
    pub fn at_once(mut self, checks: usize) -> Self {
        self.means.at_once_max = checks;
        self
    }

    /// What is answered when no server decides: [`OnError::Open`], to allow, unless told.
    #[must_use]
    pub fn on_error(self, on_error: OnError) -> Self {
        Self { on_error, ..self }
    }

    /// Asks a server. An error is the caller's: the check itself is wrong.
    pub async fn check(&self, request: &Request<'_>) -> Result<Ruling, RemoteError> {
        let undecided = |reason: Failure| Ok(Ruling::undecided(reason.name(), self.on_error));
        let (Ok(body), Ok(_)) = (serde_json::to_vec(&check_body(request)), Handle::try_current()) else {
            return undecided(Failure::NoRuntime);
        };
        let body = Bytes::from(body);
        let mut now = Instant::now();
        let end = now + self.deadline;
        let first = self.turn.fetch_add(1, Ordering::Relaxed);
        let count = self.servers.len();
        let mut others = (0..count).map(|place| &self.servers[first.wrapping_add(place) % count]);
        let mut questions = Vec::with_capacity(1);
        let mut failed = Failure::BreakerOpen;
        loop {
            for server in others.by_ref() {
                match server.ask(&self.means, &body, end) {
                    Ok(question) => {
                        questions.push(question);
                        break;
                    }
                    Err(Failure::Busy) if failed == Failure::BreakerOpen => failed = Failure::Busy,
                    Err(_) => {}
                }
            }
            if questions.is_empty() {
                return undecided(failed);
            }
            // A server that does not answer must not take all the time while there is another.
            let until = if others.len() == 0 { end } else { now + (end - now) / 2 };
            match time::timeout_at(until, first_of(&mut questions)).await {
                Ok(Ok(answer)) => return answer,
                Ok(Err(failure)) => failed = failure,
                Err(_) if until == end => return undecided(Failure::Timeout),
                Err(_) => {}
            }
            now = Instant::now().min(end);
        }
    }
}

/// The outcome of the question that is answered first, which is taken out.
async fn first_of(questions: &mut Vec<Question>) -> Outcome {
    poll_fn(|context| {
        for place in 0..questions.len() {
            if let Poll::Ready(outcome) = Pin::new(&mut questions[place]).poll(context) {
                questions.swap_remove(place);
                return Poll::Ready(outcome);
            }
        }
        Poll::Pending
    })
    .await
}

fn servers<'a>(addresses: impl IntoIterator<Item = &'a str>) -> Result<Box<[Arc<Server>]>, RemoteError> {
    let servers = addresses.into_iter().map(|address| Ok(Arc::new(Server::new(uri(address)?))));
    let servers: Box<[Arc<Server>]> = servers.collect::<Result<_, _>>()?;
    if servers.is_empty() { Err(RemoteError::NoAddress) } else { Ok(servers) }
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

/// Of the check at this address.
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
