//! Bodies of the HTTP door, from the side of who asks.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate::{Identity, Request, Retry};

use crate::ruling::Ruling;

/// Body of a check.
#[derive(Serialize)]
pub(crate) struct CheckBody<'a> {
    domain: &'a str,
    identities: Vec<WireIdentity<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoint: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<&'a str>,
    cost: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    tier: Option<&'a str>,
    /// A cost of 0 is for looks alone.
    peek: bool,
}

#[derive(Serialize)]
struct WireIdentity<'a> {
    kind: &'a str,
    value: &'a str,
}

impl<'a> From<&Request<'a>> for CheckBody<'a> {
    fn from(request: &Request<'a>) -> Self {
        let parts = request.parts();
        let identity = |identity: &Identity<'a>| WireIdentity { kind: identity.kind(), value: identity.value() };
        Self {
            domain: parts.domain,
            identities: parts.identities.iter().map(identity).collect(),
            endpoint: parts.endpoint,
            method: parts.method,
            cost: parts.cost,
            tier: parts.tier,
            peek: parts.cost == 0,
        }
    }
}

/// Body of a decision. What is not known here is left out: a newer server may say more.
#[derive(Deserialize)]
struct DecisionBody {
    allowed: bool,
    limit: Option<u64>,
    remaining: Option<u64>,
    reset_after_ms: Option<u64>,
    retry_after_ms: Option<u64>,
    delay_ms: Option<u64>,
    limit_id: Option<String>,
    policy_version: u64,
    degraded: Option<String>,
    #[serde(default)]
    shadow_denied: Vec<String>,
}

/// The decision that a server made.
pub(crate) fn ruling(body: &[u8], headers: Vec<(&'static str, String)>) -> Option<Ruling> {
    let body: DecisionBody = serde_json::from_slice(body).ok()?;
    Some(Ruling {
        allowed: body.allowed,
        retry: match body.retry_after_ms {
            _ if body.allowed => Retry::Now,
            Some(ms) => Retry::After(Duration::from_millis(ms)),
            None => Retry::Never,
        },
        delay: Duration::from_millis(body.delay_ms.unwrap_or(0)),
        limit_id: body.limit_id,
        limit: body.limit,
        remaining: body.remaining,
        reset_after: body.reset_after_ms.map(Duration::from_millis),
        policy_version: body.policy_version,
        degraded: body.degraded,
        shadow_denied: body.shadow_denied,
        headers,
    })
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RefusalBody {
    error: Told,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Told {
    code: String,
    message: String,
}

/// Code and message of a refusal; whoever stands between may answer anything.
pub(crate) fn refusal(body: &[u8]) -> (String, String) {
    let RefusalBody { error: Told { code, message } } = serde_json::from_slice(body).unwrap_or_default();
    (code, message)
}
