//! Conversions between the engine's types and the bodies of the HTTP API.

use std::time::Duration;

use tidegate::{Request, Retry};
use tidegate_api::{CheckBody, DecisionBody, IdentityBody};

use crate::decision::OwnedDecision;

pub(crate) fn check<'a>(request: &Request<'a>) -> CheckBody<'a> {
    let parts = request.parts();
    let identities = parts.identities.iter();
    CheckBody {
        domain: Some(parts.domain),
        identities: identities.map(|it| IdentityBody { kind: it.kind(), value: it.value() }).collect(),
        endpoint: parts.endpoint,
        method: parts.method,
        cost: parts.cost,
        tier: parts.tier,
        // Only a peek has a cost of 0.
        peek: parts.cost == 0,
    }
}

/// Returns the decision of a server, with these headers of its response.
pub(crate) fn decision(body: DecisionBody, headers: Vec<(&'static str, String)>) -> OwnedDecision {
    OwnedDecision {
        is_allowed: body.allowed,
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
    }
}
