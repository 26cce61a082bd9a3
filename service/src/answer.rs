//! Bodies of answers.

use std::time::Duration;

use serde::Serialize;
use tidegate::{Decision, Degraded, Retry};

use crate::{decider::Answer, error::ErrorBody};

/// Body of a decision.
#[derive(Debug, Serialize)]
pub(crate) struct DecisionBody<'e> {
    allowed: bool,
    limit: Option<u64>,
    remaining: Option<u64>,
    reset_after_ms: Option<u64>,
    /// 0 when allowed; nothing when it will never be, and when no limit applied.
    retry_after_ms: Option<u64>,
    delay_ms: Option<u64>,
    limit_id: Option<&'e str>,
    policy_version: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    degraded: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    shadow_denied: Vec<&'e str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reservation: Option<String>,
}

impl<'e> From<&Answer<'e>> for DecisionBody<'e> {
    fn from(answer: &Answer<'e>) -> Self {
        let decision = answer.decision.as_ref();
        let limit_id = decision.and_then(Decision::limit_id);
        let retry_after_ms = decision.and_then(|decision| match decision.retry() {
            Retry::Now => limit_id.map(|_| 0),
            Retry::After(wait) => Some(ms_rounded_up(wait)),
            Retry::Never => None,
        });
        let closed = (!answer.is_allowed && decision.is_none()).then(|| ms_rounded_up(Answer::CLOSED_WAIT));
        Self {
            allowed: answer.is_allowed,
            limit: decision.and_then(Decision::limit),
            remaining: decision.and_then(Decision::remaining),
            reset_after_ms: decision.and_then(Decision::reset_after).map(ms_rounded_up),
            retry_after_ms: retry_after_ms.or(closed),
            delay_ms: decision.filter(|_| limit_id.is_some()).map(|decision| ms_rounded_up(decision.delay())),
            limit_id,
            policy_version: answer.policy_version,
            degraded: answer.degraded.map(Degraded::name),
            shadow_denied: decision.map(|decision| decision.shadow_denied().collect()).unwrap_or_default(),
            reservation: answer.reservation.map(|id| id.to_string()),
        }
    }
}

fn ms_rounded_up(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Body of the answer to a batch.
#[derive(Serialize)]
pub(crate) struct BatchBody<'e> {
    pub(crate) decisions: Vec<Item<'e>>,
}

/// What became of one check of a batch.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum Item<'e> {
    Decision(DecisionBody<'e>),
    Error(ErrorBody),
}
