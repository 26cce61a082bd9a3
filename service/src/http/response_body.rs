//! Bodies of answers.
//!
//! What is the same in all of them is written as it stands, and values by `serde_json`: names that it would look through for
//! what to escape took a quarter of the time of a decision's body.

use std::time::Duration;

use serde::Serialize;
use tidegate::{Decision, Degraded, Retry};

use crate::shared::decider::CheckOutcome as Answer;

/// Bytes that most decisions fit into.
pub(crate) const DECISION_BYTES: usize = 256;

/// Appends the body of a decision.
pub(crate) fn decision(answer: &Answer<'_>, to: &mut Vec<u8>) {
    let decision = answer.decision.as_ref();
    let limit_id = decision.and_then(Decision::limit_id);
    // 0 when allowed; nothing when it will never be, and when no limit applied.
    let retry_after_ms = match decision.map(Decision::retry) {
        Some(Retry::Now) => limit_id.map(|_| 0),
        Some(Retry::After(wait)) => Some(ms_rounded_up(wait)),
        Some(Retry::Never) => None,
        None => (!answer.is_allowed).then(|| ms_rounded_up(Answer::CLOSED_WAIT)),
    };
    to.extend_from_slice(if answer.is_allowed { br#"{"allowed":true"# } else { br#"{"allowed":false"# });
    number(to, r#","limit":"#, decision.and_then(Decision::limit));
    number(to, r#","remaining":"#, decision.and_then(Decision::remaining));
    number(to, r#","reset_after_ms":"#, decision.and_then(Decision::reset_after).map(ms_rounded_up));
    number(to, r#","retry_after_ms":"#, retry_after_ms);
    let delay = decision.filter(|_| limit_id.is_some()).map(Decision::delay);
    number(to, r#","delay_ms":"#, delay.map(ms_rounded_up));
    field(to, r#","limit_id":"#, limit_id);
    number(to, r#","policy_version":"#, Some(answer.policy_version));
    if let Some(reason) = answer.degraded {
        field(to, r#","degraded":"#, Degraded::name(reason));
    }
    let mut shadow = decision.into_iter().flat_map(Decision::shadow_denied).peekable();
    if shadow.peek().is_some() {
        field(to, r#","shadow_denied":"#, shadow.collect::<Vec<_>>());
    }
    if let Some(id) = answer.reservation {
        field(to, r#","reservation":"#, id.to_string());
    }
    to.push(b'}');
}

/// Appends what stands before a value, and the value.
pub(crate) fn field(to: &mut Vec<u8>, before: &str, value: impl Serialize) {
    to.extend_from_slice(before.as_bytes());
    // Memory takes everything, and JSON can tell numbers and texts.
    let _ = serde_json::to_writer(to, &value);
}

/// Appends what stands before a number, and the number, or `null` where there is none.
fn number(to: &mut Vec<u8>, before: &str, number: Option<u64>) {
    to.extend_from_slice(before.as_bytes());
    match number {
        Some(number) => to.extend_from_slice(itoa::Buffer::new().format(number).as_bytes()),
        None => to.extend_from_slice(b"null"),
    }
}

pub(crate) fn ms_rounded_up(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
