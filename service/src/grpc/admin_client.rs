//! Calls of the admin server's REST on behalf of a caller, with his own token: whether he may is decided there.

use std::{
    collections::BTreeMap,
    fmt::Write,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use reqwest::{Client, Method, RequestBuilder, StatusCode, redirect::Policy};
use rustls::ClientConfig;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tidegate_listener::{OwnerCounts, PeerNetwork};
use tidegate_net::tls::{ClientTls, TlsError, to_oneself};
use tonic::{Code, Request, Status};

use crate::resp::{IsOperator, Operators};

use super::{
    limiter::STORE,
    proto::tidegate::v1::{Identity, ResetRateLimitRequest, ResetRateLimitResponse},
};

/// For a call to be answered. One that asks all nodes takes two seconds.
const ANSWER: Duration = Duration::from_secs(5);
/// How long a change of the policy may take. The admin server gives a publish up after 20 s in its queue and a minute at work; this
/// is longer, so that its answer says what became of the change.
const CHANGE_ANSWER: Duration = Duration::from_secs(90);

/// How long an idle connection is kept for the next call: shorter than the admin server keeps it (75 s).
const IDLE: Duration = Duration::from_secs(3);

/// Calls of callers that are under way at once: whose token it is, is known there only.
const CALLS_MAX: usize = 64;
/// Calls of one peer that are under way at once.
const CALLS_OF_PEER: usize = CALLS_MAX / 4;

/// The roles of an operator, and above.
const OPERATORS: [&str; 3] = ["operator", "editor", "admin"];

/// The way to the admin server.
#[derive(Clone, Debug)]
pub struct Admin {
    url: String,
    client: Client,
    /// How long a call may take that changes no policy.
    answer_limit: Duration,
    calls: Arc<PeerCalls>,
}

/// The calls that are under way.
#[derive(Debug, Default)]
struct PeerCalls(Mutex<OwnerCounts<PeerNetwork>>);

/// A call that is under way until it is dropped.
#[derive(Debug)]
struct CallPlace<'c> {
    calls: &'c PeerCalls,
    peer: PeerNetwork,
}

impl PeerCalls {
    /// Begins a call of this peer, or says why it may not begin.
    fn begin(&self, peer: PeerNetwork) -> Result<CallPlace<'_>, &'static str> {
        let mut counts = self.counts();
        if counts.of(&peer) >= CALLS_OF_PEER {
            return Err("too many calls from this address wait for the admin server");
        }
        if counts.sum() >= CALLS_MAX {
            return Err("too many calls wait for the admin server");
        }
        counts.add(peer, 1);
        Ok(CallPlace { calls: self, peer })
    }

    fn counts(&self) -> MutexGuard<'_, OwnerCounts<PeerNetwork>> {
        // Nothing in here panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CallPlace<'_> {
    fn drop(&mut self) {
        self.calls.counts().subtract(&self.peer, 1);
    }
}

impl Admin {
    /// `url` such as `https://admin.internal:8080`, without a slash at its end; `trusted`: PEM of authorities beside those of
    /// the system.
    ///
    /// # Errors
    ///
    /// What is trusted cannot be read, or nobody would be.
    pub fn to(url: &str, trusted: Option<&[u8]>) -> io::Result<Self> {
        let tls = ClientTls { machine: url.starts_with("https:"), authorities: trusted, own: None };
        Self::by(url, tls.config())
    }

    /// Sets how long a call may take that changes no policy: 5 s unless set.
    #[must_use]
    pub fn answering_within(self, limit: Duration) -> Self {
        Self { answer_limit: limit, ..self }
    }

    /// That of this process, which listens there.
    ///
    /// # Errors
    ///
    /// There is no TLS to be had.
    pub fn own(url: &str) -> io::Result<Self> {
        Self::by(url, to_oneself())
    }

    fn by(url: &str, tls: Result<ClientConfig, TlsError>) -> io::Result<Self> {
        let client = Client::builder()
            .tls_backend_preconfigured(tls.map_err(io::Error::other)?)
            .connect_timeout(ANSWER)
            .pool_idle_timeout(IDLE)
            .tcp_nodelay(true)
            // The server is named, so nobody else is asked.
            .no_proxy()
            .redirect(Policy::none())
            .user_agent(concat!("tidegate-service/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(io::Error::other)?;
        Ok(Self { url: url.to_owned(), client, answer_limit: ANSWER, calls: Arc::default() })
    }
}

/// It is asked whose token it is: it gave them out, and doors know only the tokens of callers.
impl Operators for Admin {
    fn has<'a>(&'a self, token: &'a str) -> IsOperator<'a> {
        let request = self.client.get(format!("{}/api/v1/me", self.url)).timeout(self.answer_limit).bearer_auth(token);
        Box::pin(async {
            let asked: Result<Me, reqwest::Error> = async {
                let answer = request.send().await?;
                if matches!(answer.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
                    return Ok(Me::default());
                }
                answer.error_for_status()?.json().await
            }
            .await;
            match asked {
                Ok(Me { role }) => Ok(role.is_some_and(|role| OPERATORS.contains(&&*role))),
                // A token that cannot stand in a header is none.
                Err(error) if error.is_builder() => Ok(false),
                Err(error) => Err(error.to_string()),
            }
        })
    }
}

/// What it says of whoever asks.
#[derive(Default, Deserialize)]
struct Me {
    role: Option<String>,
}

/// Somebody who changes something, by his own token.
pub(super) struct Caller<'c> {
    admin: &'c Admin,
    authorization: &'c str,
    _place: CallPlace<'c>,
}

/// What the admin server says, and the entity tag of what it is about.
pub(super) struct Told<T> {
    pub(super) etag: Option<String>,
    pub(super) body: T,
}

/// Why it refused.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Problem {
    code: String,
    title: String,
    detail: String,
    errors: Vec<FieldError>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct FieldError {
    pointer: String,
    message: String,
}

/// What nodes said to a question.
#[derive(Deserialize)]
struct Outcome {
    answers: BTreeMap<String, Answered>,
    did_not_answer: Vec<String>,
    /// What the store said of what nodes share; nothing: they share nothing.
    store: Option<Answered>,
}

#[derive(Deserialize)]
#[serde(tag = "what", rename_all = "lowercase")]
enum Answered {
    Reset {
        keys: u64,
    },
    Clear {
        keys: u64,
    },
    #[serde(other)]
    Other,
}

impl<'c> Caller<'c> {
    /// Takes a place for the call that this request asks for.
    ///
    /// # Errors
    ///
    /// It has no token, or as many calls are under way as may be.
    pub(super) fn of<T>(admin: &'c Admin, request: &'c Request<T>) -> Result<Self, Status> {
        let authorization = request.metadata().get("authorization").and_then(|value| value.to_str().ok());
        let authorization = authorization.ok_or_else(|| {
            Status::unauthenticated(
                "this call takes a token of the admin server; send it in the metadata `authorization: Bearer TOKEN`",
            )
        })?;
        let peer = request.extensions().get::<PeerNetwork>().ok_or_else(|| Status::internal("the peer is missing"))?;
        let place = admin.calls.begin(*peer);
        let place = place.map_err(|why| Status::unavailable(format!("{why}; nothing was changed, try again")))?;
        Ok(Self { admin, authorization, _place: place })
    }

    /// What is there.
    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<Told<T>, Status> {
        self.answered(self.request(Method::GET, path)).await
    }

    /// Creates an object of the policy.
    pub(super) async fn post<T: DeserializeOwned>(&self, path: &str, body: &Value) -> Result<Told<T>, Status> {
        self.answered(self.request(Method::POST, path).timeout(CHANGE_ANSWER).json(body)).await
    }

    /// Replaces what has this entity tag.
    pub(super) async fn put(&self, path: &str, etag: &str, body: &Value) -> Result<(), Status> {
        let request = self.request(Method::PUT, path).timeout(CHANGE_ANSWER).header("if-match", etag).json(body);
        self.answered::<Value>(request).await.map(drop)
    }

    /// Removes what has this entity tag.
    pub(super) async fn delete(&self, path: &str, etag: &str) -> Result<(), Status> {
        let request = self.request(Method::DELETE, path).timeout(CHANGE_ANSWER).header("if-match", etag);
        self.answered::<Value>(request).await.map(drop)
    }

    /// Has every node, and what they share, forget what somebody used.
    pub(super) async fn reset(&self, request: &ResetRateLimitRequest) -> Result<ResetRateLimitResponse, Status> {
        let ResetRateLimitRequest { identifier, identifier_type, endpoint, method, domain, identities } = request;
        if identifier.is_empty() || identifier_type.is_empty() {
            return Err(Status::invalid_argument("identifier: say whom, by identifier and identifier_type"));
        }
        let who = |kind: &str, value: &str| json!({ "kind": kind, "value": value });
        let others = identities.iter().map(|Identity { kind, value }| who(kind, value));
        let identities: Vec<Value> = [who(identifier_type, identifier)].into_iter().chain(others).collect();
        let mut question = json!({ "identities": identities });
        for (name, value) in [("endpoint", endpoint), ("method", method), ("domain", domain)] {
            if !value.is_empty() {
                question[name] = json!(value);
            }
        }
        let request = self.request(Method::POST, "/api/v1/keys/reset").json(&json!({ "request": question }));
        let Outcome { answers, did_not_answer: missing, store } = self.answered(request).await?.body;
        let mut response = ResetRateLimitResponse { missing, ..ResetRateLimitResponse::default() };
        match store {
            None => {}
            Some(Answered::Clear { keys }) => response.keys += keys,
            Some(_) => response.missing.push(STORE.to_owned()),
        }
        for (node, told) in answers {
            match told {
                Answered::Reset { keys } => {
                    response.keys += keys;
                    response.nodes.push(node);
                }
                Answered::Clear { .. } | Answered::Other => response.missing.push(node),
            }
        }
        Ok(response)
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.admin.client.request(method, format!("{}{path}", self.admin.url));
        request.timeout(self.admin.answer_limit).header("authorization", self.authorization)
    }

    async fn answered<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<Told<T>, Status> {
        let away = |error: reqwest::Error| {
            tracing::debug!(%error, "the admin server does not answer");
            Status::unavailable("the admin server cannot be reached; nothing is known to have changed, try again")
        };
        let answer = request.send().await.map_err(away)?;
        let status = answer.status();
        let etag = answer.headers().get("etag").and_then(|etag| etag.to_str().ok()).map(str::to_owned);
        let text = answer.bytes().await.map_err(away)?;
        if !status.is_success() {
            return Err(refusal(status, &serde_json::from_slice(&text).unwrap_or_default()));
        }
        // What has no content says nothing.
        let text: &[u8] = if text.is_empty() { b"null" } else { &text };
        match serde_json::from_slice(text) {
            Ok(body) => Ok(Told { etag, body }),
            Err(error) => Err(Status::internal(format!("the admin server's answer cannot be read: {error}"))),
        }
    }
}

/// A refusal of the admin server, as gRPC tells it.
fn refusal(status: StatusCode, problem: &Problem) -> Status {
    let Problem { code, title, detail, errors } = problem;
    let kind = match status {
        StatusCode::UNAUTHORIZED => Code::Unauthenticated,
        StatusCode::FORBIDDEN => Code::PermissionDenied,
        StatusCode::NOT_FOUND => Code::NotFound,
        StatusCode::CONFLICT => Code::FailedPrecondition,
        StatusCode::PRECONDITION_FAILED => Code::Aborted,
        StatusCode::TOO_MANY_REQUESTS => Code::ResourceExhausted,
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => Code::Unavailable,
        status if status.is_client_error() => Code::InvalidArgument,
        _ => Code::Internal,
    };
    let mut message = if detail.is_empty() { title.clone() } else { detail.clone() };
    for FieldError { pointer, message: problem } in errors {
        let field = pointer.trim_start_matches('/');
        // Writing to a string cannot fail.
        let _ = write!(message, "; {field}: {problem}");
    }
    if message.is_empty() {
        message = format!("the admin server answered {status} {code}");
    }
    Status::new(kind, message)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn peer(number: u8) -> PeerNetwork {
        PeerNetwork::from(IpAddr::from([192, 0, 2, number]))
    }

    #[test]
    fn a_peer_has_its_share_of_calls_and_leaves_the_others_theirs() {
        let calls = PeerCalls::default();
        let mut held: Vec<CallPlace<'_>> = Vec::new();
        for number in 0..4 {
            held.extend((0..CALLS_OF_PEER).map(|_| calls.begin(peer(number)).expect("there is room")));
            let refused = calls.begin(peer(number)).expect_err("it has its share");
            assert!(refused.contains("from this address"), "{refused}");
        }
        assert_eq!(calls.begin(peer(4)).expect_err("all are taken"), "too many calls wait for the admin server");
        held.pop();
        held.push(calls.begin(peer(4)).expect("a place was given back"));
        drop(held);
        assert_eq!(*calls.counts(), OwnerCounts::default());
    }
}
