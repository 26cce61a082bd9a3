//! What a request is answered that does not go on, without a framework's types.

use std::{borrow::Cow, fmt::Write, time::Duration};

use tidegate::Retry;
use tidegate_api::{ABOUT_BLANK, DecisionProblem, PROBLEM_JSON, ProblemDetails};

use crate::decision::Ruling;

/// Why a request does not go on.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// A limit refused it: 429.
    Denied(Ruling),
    /// Nobody could decide, and is closed then: 503.
    Undecided(Ruling),
    /// It has no identity, and such requests are refused: 403.
    NoIdentity,
    /// Its path is longer than rules can have one: 414.
    PathTooLong,
}

impl Refusal {
    /// The decision, where there is one.
    #[must_use]
    pub fn ruling(&self) -> Option<&Ruling> {
        match self {
            Self::Denied(ruling) | Self::Undecided(ruling) => Some(ruling),
            Self::NoIdentity | Self::PathTooLong => None,
        }
    }

    fn told(&self) -> Told {
        match self {
            Self::Denied(_) => Told {
                status: 429,
                grpc_status: 8,
                kind: "https://iana.org/assignments/http-problem-types#quota-exceeded",
                code: "denied",
                title: "Too many requests",
            },
            Self::Undecided(_) => Told {
                status: 503,
                grpc_status: 14,
                kind: "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
                code: "undecided",
                title: "The limits cannot be asked",
            },
            Self::NoIdentity => Told {
                status: 403,
                grpc_status: 7,
                kind: ABOUT_BLANK,
                code: "no_identity",
                title: "The request does not say who it is of",
            },
            Self::PathTooLong => Told {
                status: 414,
                grpc_status: 3,
                kind: ABOUT_BLANK,
                code: "path_too_long",
                title: "The path is too long",
            },
        }
    }

    fn detail(&self) -> Cow<'static, str> {
        match self {
            Self::Denied(Ruling { retry: Retry::Never, .. }) => "The limit never admits this request.".into(),
            Self::Denied(Ruling { retry: Retry::After(wait), .. }) => {
                format!("Come again in {} ms.", ms_rounded_up(*wait)).into()
            }
            Self::Denied(_) | Self::Undecided(_) => "Come again later.".into(),
            Self::NoIdentity => "None of what identifies a client here came with it.".into(),
            Self::PathTooLong => format!("At most {} bytes fit.", tidegate::ENDPOINT_BYTES_MAX).into(),
        }
    }
}

struct Told {
    status: u16,
    /// Code of gRPC.
    grpc_status: u8,
    /// `type` of the problem details.
    kind: &'static str,
    /// Stable code of the problem details.
    code: &'static str,
    title: &'static str,
}

/// An answer. The headers of the decision are added to it, but for those that it has itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Status of HTTP.
    pub status: u16,
    /// Names and values. What HTTP does not allow is left out.
    pub headers: Vec<(Cow<'static, str>, String)>,
    /// The body.
    pub body: String,
}

impl Answer {
    /// With a body of this media type.
    #[must_use]
    pub fn new(status: u16, media_type: &str, body: impl Into<String>) -> Self {
        Self { status, headers: vec![("content-type".into(), media_type.to_owned())], body: body.into() }
    }

    /// Problem details (RFC 9457): `type`, `title`, `status`, `detail`; of a decision also `limit_id` and `retry_after_ms`,
    /// which is exact, and null where it will never be.
    #[must_use]
    pub fn problem(refusal: &Refusal) -> Self {
        let Told { status, kind, code, title, .. } = refusal.told();
        let problem =
            ProblemDetails { kind: kind.into(), ..ProblemDetails::new(status, code, title, refusal.detail()) };
        let body = match refusal.ruling() {
            None => serde_json::to_string(&problem),
            Some(ruling) => serde_json::to_string(&DecisionProblem {
                problem,
                limit_id: ruling.limit_id.clone(),
                retry_after_ms: retry_after_ms(ruling),
                degraded: ruling.degraded.clone(),
            }),
        };
        // Both are plain data, which serde can always write.
        Self::new(status, PROBLEM_JSON, body.unwrap_or_default())
    }

    /// As gRPC has it: HTTP 200, the status and its message in headers, no body. A denial is `RESOURCE_EXHAUSTED`, with the
    /// exact wait as `retry_after_ms` in its metadata, unless it never ends.
    #[must_use]
    pub fn grpc(refusal: &Refusal) -> Self {
        let Told { grpc_status, title, .. } = refusal.told();
        let limit_id = refusal.ruling().and_then(|ruling| ruling.limit_id.as_deref());
        let message = limit_id.map_or_else(|| title.to_owned(), |limit_id| format!("{title}: {limit_id}"));
        let mut answer = Self::new(200, "application/grpc", "");
        answer.headers.push(("grpc-status".into(), grpc_status.to_string()));
        answer.headers.push(("grpc-message".into(), percent_encoded(&message)));
        let wait = refusal.ruling().and_then(retry_after_ms);
        answer.headers.extend(wait.map(|ms| ("retry_after_ms".into(), ms.to_string())));
        answer
    }

    /// With the headers of the decision.
    pub(crate) fn with_headers_of(mut self, refusal: Refusal) -> Self {
        let (Refusal::Denied(ruling) | Refusal::Undecided(ruling)) = refusal else { return self };
        for (name, value) in ruling.headers {
            if !self.headers.iter().any(|(own, _)| own.eq_ignore_ascii_case(name)) {
                self.headers.push((name.into(), value));
            }
        }
        self
    }
}

/// When it may come again; `None` where it never may.
fn retry_after_ms(ruling: &Ruling) -> Option<u64> {
    match ruling.retry {
        Retry::After(wait) => Some(ms_rounded_up(wait)),
        Retry::Now | Retry::Never => None,
    }
}

fn ms_rounded_up(wait: Duration) -> u64 {
    u64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// As `grpc-message` is written: printable ASCII but `%` as it is.
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
