//! The response to a request that may not pass, without types of a framework: problem details over HTTP, or a gRPC status.

use std::{borrow::Cow, fmt::Write};

use tidegate::Retry;
use tidegate_api::{ABOUT_BLANK, DecisionProblem, PROBLEM_JSON, ProblemDetails, ms_rounded_up};

use crate::decision::OwnedDecision;

// Types of problems of the registry of RFC 9457.
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
const REDUCED_CAPACITY: &str = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";

/// The reason why a request may not pass.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// A limit denied the request: 429.
    Denied(OwnedDecision),
    /// The request could not be decided, and such requests may not pass: 503.
    Undecided(OwnedDecision),
    /// The request has no identity, and such requests may not pass: 403.
    NoIdentity,
    /// The path is longer than the path of a rule can be: 414.
    PathTooLong,
}

impl Refusal {
    /// Returns the decision, if there is one.
    #[must_use]
    pub fn decision(&self) -> Option<&OwnedDecision> {
        match self {
            Self::Denied(decision) | Self::Undecided(decision) => Some(decision),
            Self::NoIdentity | Self::PathTooLong => None,
        }
    }

    fn kind(&self) -> RefusalKind {
        let (status, grpc_status, problem_type, code, title) = match self {
            Self::Denied(_) => (429, 8, QUOTA_EXCEEDED, "denied", "Too many requests"),
            Self::Undecided(_) => (503, 14, REDUCED_CAPACITY, "undecided", "The request could not be decided"),
            Self::NoIdentity => (403, 7, ABOUT_BLANK, "no_identity", "The request has no identity"),
            Self::PathTooLong => (414, 3, ABOUT_BLANK, "path_too_long", "The path is too long"),
        };
        RefusalKind { status, grpc_status, problem_type, code, title }
    }

    fn detail(&self) -> Cow<'static, str> {
        match self {
            Self::Denied(OwnedDecision { retry: Retry::Never, .. }) => "The limit never admits this request.".into(),
            Self::Denied(OwnedDecision { retry: Retry::After(wait), .. }) => {
                format!("Retry in {} ms.", ms_rounded_up(*wait)).into()
            }
            Self::Denied(_) | Self::Undecided(_) => "Retry later.".into(),
            Self::NoIdentity => "The request has none of the identities that are counted here.".into(),
            Self::PathTooLong => format!("At most {} bytes fit.", tidegate::ENDPOINT_BYTES_MAX).into(),
        }
    }
}

/// The part of a response that is the same for all refusals of a kind: the statuses of HTTP and gRPC, and the `type`, `code` and
/// `title` of the problem details.
struct RefusalKind {
    status: u16,
    grpc_status: u8,
    problem_type: &'static str,
    code: &'static str,
    title: &'static str,
}

/// A response to a refused request. The guard adds the headers of the decision, except those that the response already has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RefusalResponse {
    /// HTTP status.
    pub status: u16,
    /// Names and values. The guard leaves out what HTTP does not allow.
    pub headers: Vec<(Cow<'static, str>, String)>,
    /// The body.
    pub body: String,
}

impl RefusalResponse {
    /// Creates a response with a body of this media type.
    #[must_use]
    pub fn new(status: u16, media_type: &str, body: impl Into<String>) -> Self {
        Self { status, headers: vec![("content-type".into(), media_type.to_owned())], body: body.into() }
    }

    /// Creates a response with problem details (RFC 9457): `type`, `code`, `title`, `status`, `detail`, and with a decision also
    /// `limit_id` and `retry_after_ms`, which is exact, and null if the request will never be allowed.
    #[must_use]
    pub fn problem(refusal: &Refusal) -> Self {
        let RefusalKind { status, problem_type, code, title, .. } = refusal.kind();
        let details = ProblemDetails::new(status, code, title, refusal.detail());
        let problem = ProblemDetails { kind: problem_type.into(), ..details };
        let body = match refusal.decision() {
            None => serde_json::to_string(&problem),
            Some(decision) => serde_json::to_string(&DecisionProblem {
                problem,
                limit_id: decision.limit_id.clone(),
                retry_after_ms: retry_after_ms(decision),
                degraded: decision.degraded.clone(),
            }),
        };
        // Plain data is always JSON.
        Self::new(status, PROBLEM_JSON, body.unwrap_or_default())
    }

    /// Creates a response as gRPC wants it: HTTP 200, the status and its message in headers, no body. A denial is
    /// `RESOURCE_EXHAUSTED`, with the exact wait as `retry_after_ms` in its metadata, unless the request will never be allowed.
    #[must_use]
    pub fn grpc(refusal: &Refusal) -> Self {
        let RefusalKind { grpc_status, title, .. } = refusal.kind();
        let limit_id = refusal.decision().and_then(|decision| decision.limit_id.as_deref());
        let message = limit_id.map_or_else(|| title.to_owned(), |limit_id| format!("{title}: {limit_id}"));
        let mut response = Self::new(200, "application/grpc", "");
        response.headers.push(("grpc-status".into(), grpc_status.to_string()));
        response.headers.push(("grpc-message".into(), percent_encoded(&message)));
        let wait = refusal.decision().and_then(retry_after_ms);
        response.headers.extend(wait.map(|ms| ("retry_after_ms".into(), ms.to_string())));
        response
    }

    /// Adds the headers of the decision.
    pub(crate) fn with_headers_of(mut self, refusal: Refusal) -> Self {
        let (Refusal::Denied(decision) | Refusal::Undecided(decision)) = refusal else { return self };
        for (name, value) in decision.headers {
            if !self.headers.iter().any(|(own, _)| own.eq_ignore_ascii_case(name)) {
                self.headers.push((name.into(), value));
            }
        }
        self
    }
}

/// Returns the milliseconds until the request would be allowed; `None` if it never will be.
fn retry_after_ms(decision: &OwnedDecision) -> Option<u64> {
    match decision.retry {
        Retry::After(wait) => Some(ms_rounded_up(wait)),
        Retry::Now | Retry::Never => None,
    }
}

/// Encodes the value of `grpc-message`: printable ASCII except `%` stays, every other byte is percent-encoded.
fn percent_encoded(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut encoded, byte| {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(char::from(byte)),
            // Writing to a string cannot fail.
            _ => drop(write!(encoded, "%{byte:02X}")),
        }
        encoded
    })
}
