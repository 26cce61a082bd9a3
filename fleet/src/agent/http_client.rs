//! The HTTP client with which an agent calls the admin server, and its token.

use std::{fmt, fs, io, iter, path::PathBuf, time::Duration};

use derive_more::Display;
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use serde::Serialize;
use tidegate_api::ProblemDetails;
use tidegate_net::tls::ClientTls;

use crate::wire::{Hello, STREAM};

/// The time limit for making a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// The time limit for the response to a request.
const ANSWER: Duration = Duration::from_secs(5);
/// The time for which an idle connection is kept: less than the admin server keeps it (75 s).
const IDLE: Duration = Duration::from_secs(3);

/// The secret with which a node authenticates to the admin server.
#[derive(Clone)]
pub struct NodeToken(TokenSource);

#[derive(Clone)]
enum TokenSource {
    Text(String),
    File(PathBuf),
}

impl NodeToken {
    /// Makes a token of this text.
    #[must_use]
    pub fn text(token: impl Into<String>) -> Self {
        Self(TokenSource::Text(token.into()))
    }

    /// Makes a token that is read from this file before each connection, so that a new one is used as soon as it is
    /// written.
    #[must_use]
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self(TokenSource::File(path.into()))
    }

    pub(crate) fn read(&self) -> io::Result<String> {
        match &self.0 {
            TokenSource::Text(token) => Ok(token.clone()),
            TokenSource::File(path) => fs::read_to_string(path)
                .map(|text| text.trim().to_owned())
                .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))),
        }
    }
}

impl fmt::Debug for NodeToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Logs must not show the secret.
        f.write_str(match self.0 {
            TokenSource::Text(_) => "NodeToken(..)",
            TokenSource::File(_) => "NodeToken(file)",
        })
    }
}

#[derive(Debug, Display)]
pub(crate) enum CallError {
    /// No response, or one of a proxy that could not reach the admin server.
    #[display("the admin server cannot be reached: {_0}")]
    Unreachable(String),
    /// The admin server refused the request with this code and text.
    #[display("the admin server refuses ({status} {code}): {why}")]
    Refused { status: u16, code: String, why: String },
}

impl std::error::Error for CallError {}

#[derive(Clone, Debug)]
pub(crate) struct AdminClient {
    client: Client,
    url: String,
    token: NodeToken,
}

impl AdminClient {
    /// Makes a client. `url` has no slash at its end; `trusted` is PEM of authorities that are trusted besides those of
    /// the system.
    pub(crate) fn to(url: &str, token: NodeToken, trusted: Option<&[u8]>) -> Result<Self, String> {
        let tls = ClientTls { machine: url.starts_with("https:"), authorities: trusted, own: None };
        let client = Client::builder()
            .tls_backend_preconfigured(tls.config().map_err(|error| error.to_string())?)
            .connect_timeout(CONNECT)
            .pool_idle_timeout(IDLE)
            .tcp_nodelay(true)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("tidegate-fleet/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| with_causes(&error))?;
        Ok(Self { client, url: url.to_owned(), token })
    }

    /// Opens the stream. Its body may never end.
    pub(crate) async fn open(&self, hello: &Hello) -> Result<Response, CallError> {
        let request = self.client.get(format!("{}{STREAM}", self.url)).query(hello).bearer_auth(self.token()?);
        // The time limit covers the whole body of a refusal.
        let opened = tokio::time::timeout(ANSWER, send(request)).await;
        opened.unwrap_or_else(|_| Err(CallError::Unreachable("it does not answer".to_owned())))
    }

    pub(crate) async fn post(&self, path: &str, body: &impl Serialize) -> Result<(), CallError> {
        let request = self.client.post(format!("{}{path}", self.url)).bearer_auth(self.token()?);
        send(request.timeout(ANSWER).json(body)).await.map(drop)
    }

    fn token(&self) -> Result<String, CallError> {
        self.token.read().map_err(|error| CallError::Unreachable(format!("there is no token: {error}")))
    }
}

/// Sends a request. Returns the response if its status is one of success.
async fn send(request: RequestBuilder) -> Result<Response, CallError> {
    let response = request.send().await.map_err(|error| CallError::Unreachable(with_causes(&error)))?;
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    // A proxy may respond with any body.
    let ProblemDetails { code, detail, .. } = response.json().await.unwrap_or_default();
    let why = if detail.is_empty() { "without a reason".to_owned() } else { detail };
    match status {
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
            Err(CallError::Unreachable(format!("{status}: {why}")))
        }
        _ => Err(CallError::Refused { status: status.as_u16(), code: code.into_owned(), why }),
    }
}

/// Formats an error with its causes.
fn with_causes(error: &reqwest::Error) -> String {
    let first: &dyn std::error::Error = error;
    let causes = iter::successors(Some(first), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
