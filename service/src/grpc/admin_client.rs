//! A client of the admin server's REST API, which makes calls with the token of the caller: the admin server decides
//! whether they may.

use std::{
    collections::BTreeMap,
    fmt::Write,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use reqwest::{Client, Method, RequestBuilder, StatusCode, redirect::Policy};
use rustls::ClientConfig;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tidegate_api::{ErrorLocation, FieldError, ProblemDetails};
use tidegate_listener::{OwnerCounts, PeerNetwork};
use tidegate_net::tls::{ClientTls, TlsError, to_oneself};
use tonic::{Code, Request, Status};

use super::limiter::STORE;
use crate::{
    protobuf::generated::tidegate::v1::{Identity, ResetRateLimitRequest, ResetRateLimitResponse},
    shared::operators::{OperatorQuery, Operators},
};

/// The timeout of a call. One that queries all nodes takes two seconds.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// The timeout of a change of the policy. The admin server gives a publish up after 20 s in its queue and a minute at
/// work; this is longer, so that its response says what became of the change.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(90);

/// The time for which an idle connection is kept for the next call: shorter than the admin server keeps it (75 s).
const IDLE: Duration = Duration::from_secs(3);

/// The most calls under way at once, since the admin server alone knows whether their tokens are valid.
const CALLS_MAX: usize = 64;
/// The most calls of one peer under way at once.
const CALLS_OF_PEER: usize = CALLS_MAX / 4;

/// The role of an operator, and higher ones.
const OPERATORS: [&str; 3] = ["operator", "editor", "admin"];

/// A client of the admin server.
#[derive(Clone, Debug)]
pub struct AdminApiClient {
    url: String,
    client: Client,
    /// The timeout of a call that changes no policy.
    answer_limit: Duration,
    calls: Arc<PeerCalls>,
}

/// The calls under way of each peer.
#[derive(Debug, Default)]
struct PeerCalls(Mutex<OwnerCounts<PeerNetwork>>);

/// A call under way. It ends when it is dropped.
#[derive(Debug)]
struct CallGuard<'c> {
    calls: &'c PeerCalls,
    peer: PeerNetwork,
}

impl PeerCalls {
    /// Begins a call of this peer, or returns why it may not begin.
    fn begin(&self, peer: PeerNetwork) -> Result<CallGuard<'_>, &'static str> {
        let mut counts = self.counts();
        if counts.of(&peer) >= CALLS_OF_PEER {
            return Err("too many calls from this address wait for the admin server");
        }
        if counts.sum() >= CALLS_MAX {
            return Err("too many calls wait for the admin server");
        }
        counts.add(peer, 1);
        Ok(CallGuard { calls: self, peer })
    }

    fn counts(&self) -> MutexGuard<'_, OwnerCounts<PeerNetwork>> {
        // A poisoned lock is sound: nothing panics while it is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        self.calls.counts().subtract(&self.peer, 1);
    }
}

impl AdminApiClient {
    /// Creates a client of the admin server at `url`, such as `https://admin.internal:8080`, without a slash at its
    /// end. `trusted` is the PEM of authorities beside those of the system.
    ///
    /// # Errors
    ///
    /// The authorities cannot be read, or there are none.
    pub fn to(url: &str, trusted: Option<&[u8]>) -> io::Result<Self> {
        let tls = ClientTls { machine: url.starts_with("https:"), authorities: trusted, own: None };
        Self::by(url, tls.config())
    }

    /// Sets the timeout of a call that changes no policy. The default is 5 s.
    #[must_use]
    pub fn answering_within(self, limit: Duration) -> Self {
        Self { answer_limit: limit, ..self }
    }

    /// Creates a client of this process's own admin server, which listens at `url`.
    ///
    /// # Errors
    ///
    /// TLS cannot be set up.
    pub fn own(url: &str) -> io::Result<Self> {
        Self::by(url, to_oneself())
    }

    fn by(url: &str, tls: Result<ClientConfig, TlsError>) -> io::Result<Self> {
        let client = Client::builder()
            .tls_backend_preconfigured(tls.map_err(io::Error::other)?)
            .connect_timeout(CALL_TIMEOUT)
            .pool_idle_timeout(IDLE)
            .tcp_nodelay(true)
            // The server is named, so no proxy is used.
            .no_proxy()
            .redirect(Policy::none())
            .user_agent(concat!("tidegate-service/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(io::Error::other)?;
        Ok(Self { url: url.to_owned(), client, answer_limit: CALL_TIMEOUT, calls: Arc::default() })
    }
}

/// Queries the admin server, which gave the tokens of operators out; the listeners know only the tokens for checks.
impl Operators for AdminApiClient {
    fn has<'a>(&'a self, token: &'a str) -> OperatorQuery<'a> {
        let request = self.client.get(format!("{}/api/v1/me", self.url)).timeout(self.answer_limit).bearer_auth(token);
        Box::pin(async {
            let response: Result<Me, reqwest::Error> = async {
                let response = request.send().await?;
                if matches!(response.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
                    return Ok(Me::default());
                }
                response.error_for_status()?.json().await
            }
            .await;
            match response {
                Ok(Me { role }) => Ok(role.is_some_and(|role| OPERATORS.contains(&&*role))),
                // A token that cannot stand in a header is not valid.
                Err(error) if error.is_builder() => Ok(false),
                Err(error) => Err(error.to_string()),
            }
        })
    }
}

/// The part of the response about the owner of a token.
#[derive(Default, Deserialize)]
struct Me {
    role: Option<String>,
}

/// A call by the token of its caller.
pub(super) struct AdminCall<'c> {
    admin: &'c AdminApiClient,
    authorization: &'c str,
    _guard: CallGuard<'c>,
}

/// A response of the admin server, with the entity tag of its object.
pub(super) struct AdminResponse<T> {
    pub(super) etag: Option<String>,
    pub(super) body: T,
}

/// The replies of nodes to a reset.
#[derive(Deserialize)]
struct ResetReplies {
    answers: BTreeMap<String, ResetReply>,
    did_not_answer: Vec<String>,
    /// The reply of the store of shared limits, if nodes share any.
    store: Option<ResetReply>,
}

/// The reply of one node, or of the store.
#[derive(Deserialize)]
#[serde(tag = "what", rename_all = "lowercase")]
enum ResetReply {
    Reset {
        keys: u64,
    },
    Clear {
        keys: u64,
    },
    #[serde(other)]
    Other,
}

impl<'c> AdminCall<'c> {
    /// Begins the call of a request. Returns an error where the request has no token, or too many calls are under way.
    pub(super) fn begin<T>(admin: &'c AdminApiClient, request: &'c Request<T>) -> Result<Self, Status> {
        let authorization = request.metadata().get("authorization").and_then(|value| value.to_str().ok());
        let authorization = authorization.ok_or_else(|| {
            Status::unauthenticated(
                "this call takes a token of the admin server; send it in the metadata `authorization: Bearer TOKEN`",
            )
        })?;
        let peer = request.extensions().get::<PeerNetwork>().ok_or_else(|| Status::internal("the peer is missing"))?;
        let guard = admin.calls.begin(*peer);
        let guard = guard.map_err(|why| Status::unavailable(format!("{why}; nothing was changed, try again")))?;
        Ok(Self { admin, authorization, _guard: guard })
    }

    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<AdminResponse<T>, Status> {
        self.send(self.request(Method::GET, path)).await
    }

    /// Creates an object of the policy.
    pub(super) async fn post(&self, path: &str, body: &impl Serialize) -> Result<(), Status> {
        let request = self.request(Method::POST, path).timeout(CHANGE_TIMEOUT).json(body);
        self.send::<Value>(request).await.map(drop)
    }

    /// Replaces an object that has this entity tag.
    pub(super) async fn put(&self, path: &str, etag: &str, body: &impl Serialize) -> Result<(), Status> {
        let request = self.request(Method::PUT, path).timeout(CHANGE_TIMEOUT).header("if-match", etag).json(body);
        self.send::<Value>(request).await.map(drop)
    }

    /// Removes an object that has this entity tag.
    pub(super) async fn delete(&self, path: &str, etag: &str) -> Result<(), Status> {
        let request = self.request(Method::DELETE, path).timeout(CHANGE_TIMEOUT).header("if-match", etag);
        self.send::<Value>(request).await.map(drop)
    }

    /// Resets what identities have used, on every node and in the store.
    pub(super) async fn reset(&self, request: &ResetRateLimitRequest) -> Result<ResetRateLimitResponse, Status> {
        let ResetRateLimitRequest { identifier, identifier_type, endpoint, method, domain, identities } = request;
        if identifier.is_empty() || identifier_type.is_empty() {
            return Err(Status::invalid_argument("identifier: say whom, by identifier and identifier_type"));
        }
        let identity = |kind: &str, value: &str| json!({ "kind": kind, "value": value });
        let others = identities.iter().map(|Identity { kind, value }| identity(kind, value));
        let identities: Vec<Value> = [identity(identifier_type, identifier)].into_iter().chain(others).collect();
        let mut body = json!({ "identities": identities });
        for (name, value) in [("endpoint", endpoint), ("method", method), ("domain", domain)] {
            if !value.is_empty() {
                body[name] = json!(value);
            }
        }
        let request = self.request(Method::POST, "/api/v1/keys/reset").json(&json!({ "request": body }));
        let ResetReplies { answers, did_not_answer: missing, store } = self.send(request).await?.body;
        let mut response = ResetRateLimitResponse { missing, ..ResetRateLimitResponse::default() };
        match store {
            None => {}
            Some(ResetReply::Clear { keys }) => response.keys += keys,
            Some(_) => response.missing.push(STORE.to_owned()),
        }
        for (node, reply) in answers {
            match reply {
                ResetReply::Reset { keys } => {
                    response.keys += keys;
                    response.nodes.push(node);
                }
                ResetReply::Clear { .. } | ResetReply::Other => response.missing.push(node),
            }
        }
        Ok(response)
    }

    /// Returns a request with the token of the caller.
    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.admin.client.request(method, format!("{}{path}", self.admin.url));
        request.timeout(self.admin.answer_limit).header("authorization", self.authorization)
    }

    async fn send<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<AdminResponse<T>, Status> {
        let unavailable = |error: reqwest::Error| {
            tracing::debug!(%error, "the admin server does not answer");
            Status::unavailable("the admin server cannot be reached; nothing is known to have changed, try again")
        };
        let response = request.send().await.map_err(unavailable)?;
        let status = response.status();
        let etag = response.headers().get("etag").and_then(|etag| etag.to_str().ok()).map(str::to_owned);
        let text = response.bytes().await.map_err(unavailable)?;
        if !status.is_success() {
            return Err(problem_status(status, &serde_json::from_slice(&text).unwrap_or_default()));
        }
        // A response without content is read as `null`.
        let text: &[u8] = if text.is_empty() { b"null" } else { &text };
        match serde_json::from_slice(text) {
            Ok(body) => Ok(AdminResponse { etag, body }),
            Err(error) => Err(Status::internal(format!("the admin server's answer cannot be read: {error}"))),
        }
    }
}

/// Returns the gRPC status of a problem that the admin server reports.
fn problem_status(status: StatusCode, problem: &ProblemDetails) -> Status {
    let ProblemDetails { code, title, detail, errors, .. } = problem;
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
    let mut message = if detail.is_empty() { title.clone().into_owned() } else { detail.clone() };
    for FieldError { at, message: problem, .. } in errors {
        let field = match at {
            ErrorLocation::Pointer(pointer) => pointer.trim_start_matches('/'),
            ErrorLocation::Parameter(_) | ErrorLocation::Header(_) => "",
        };
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
        let mut held: Vec<CallGuard<'_>> = Vec::new();
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
