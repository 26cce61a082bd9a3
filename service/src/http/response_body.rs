//! Writes the body of a decision, [`DecisionBody`](tidegate_api::DecisionBody), byte by byte as serde would.
//!
//! Names of fields are written as they stand, and numbers by `itoa`. Through `serde_json`, which looks through every name for
//! characters to escape, the names alone took a quarter of the time of a decision's body. A test proves that the bytes are those
//! that serde writes of that type.

use serde::Serialize;
use tidegate::{Decision, Degraded, Retry};
use tidegate_api::ms_rounded_up;

use crate::shared::decider::CheckResult;

/// The capacity in bytes that holds most decisions.
pub(crate) const DECISION_BYTES: usize = 256;

pub(crate) fn decision(outcome: &CheckResult<'_>, to: &mut Vec<u8>) {
    let decision = outcome.decision.as_ref();
    let limit_id = decision.and_then(Decision::limit_id);
    // 0 when allowed; `null` when it will never be allowed, and when no limit applied.
    let retry_after_ms = match decision.map(Decision::retry) {
        Some(Retry::Now) => limit_id.map(|_| 0),
        Some(Retry::After(wait)) => Some(ms_rounded_up(wait)),
        Some(Retry::Never) => None,
        None => (!outcome.is_allowed).then(|| ms_rounded_up(CheckResult::CLOSED_WAIT)),
    };
    to.extend_from_slice(if outcome.is_allowed { br#"{"allowed":true"# } else { br#"{"allowed":false"# });
    number(to, r#","limit":"#, decision.and_then(Decision::limit));
    number(to, r#","remaining":"#, decision.and_then(Decision::remaining));
    number(to, r#","reset_after_ms":"#, decision.and_then(Decision::reset_after).map(ms_rounded_up));
    number(to, r#","retry_after_ms":"#, retry_after_ms);
    let delay = decision.filter(|_| limit_id.is_some()).map(Decision::delay);
    number(to, r#","delay_ms":"#, delay.map(ms_rounded_up));
    field(to, r#","limit_id":"#, limit_id);
    number(to, r#","policy_version":"#, Some(outcome.policy_version));
    if let Some(reason) = outcome.degraded {
        field(to, r#","degraded":"#, Degraded::name(reason));
    }
    let mut shadow = decision.into_iter().flat_map(Decision::shadow_denied).peekable();
    if shadow.peek().is_some() {
        field(to, r#","shadow_denied":"#, shadow.collect::<Vec<_>>());
    }
    if let Some(id) = outcome.reservation {
        field(to, r#","reservation":"#, id.to_string());
    }
    to.push(b'}');
}

/// Appends the text before a value, and the value.
pub(crate) fn field(to: &mut Vec<u8>, before: &str, value: impl Serialize) {
    to.extend_from_slice(before.as_bytes());
    // A vector takes every byte, and plain data is always JSON.
    let _ = serde_json::to_writer(to, &value);
}

/// Appends the text before a number, and the number, or `null` if there is none.
fn number(to: &mut Vec<u8>, before: &str, number: Option<u64>) {
    to.extend_from_slice(before.as_bytes());
    match number {
        Some(number) => to.extend_from_slice(itoa::Buffer::new().format(number).as_bytes()),
        None => to.extend_from_slice(b"null"),
    }
}

#[cfg(test)]
mod tests {
    use tidegate::{Engine, Identity, Request, Snapshot, clock::ManualClock, formats::Format, time::Timestamp};
    use tidegate_api::DecisionBody;

    use super::*;
    use crate::shared::reservations::ReservationId;

    /// A domain with a kind of identity for each form of a decision.
    const POLICY: &str = r#"
        [domains.default]
        defaults = { window = "window", queue = "queue", closed = "closed", shadow = "shadow" }
        [[domains.default.tiers]]
        id = "window"
        limits = [{ id = "minute", algorithm = "fixed_window", limit = 2, period = "1m" }]
        [[domains.default.tiers]]
        id = "queue"
        limits = [{ id = "second", algorithm = "leaky_bucket", limit = 3, period = "1s" }]
        [[domains.default.tiers]]
        id = "closed"
        limits = [{ id = "none", algorithm = "fixed_window", limit = 0, period = "1m" }]
        [[domains.default.tiers]]
        id = "shadow"
        limits = [
            { id = "first", algorithm = "fixed_window", limit = 0, period = "1m", mode = "shadow" },
            { id = "second", algorithm = "fixed_window", limit = 0, period = "1h", mode = "shadow" },
        ]
        [[domains.default.clients]]
        kind = "window"
        value = "\"ada\" \\ \u00e9\u2028"
        override = { limits = [{ id = "minute", algorithm = "fixed_window", limit = 1, period = "1m" }] }
    "#;

    fn identities() -> Vec<[Identity<'static>; 1]> {
        let values = [
            ("window", "ada"),
            ("window", "\"ada\" \\ \u{e9}\u{2028}"),
            ("queue", "ada"),
            ("closed", "ada"),
            ("shadow", "ada"),
            ("free", "ada"),
        ];
        values.map(|(kind, value)| [Identity::new(kind, value).expect("it fits")]).into()
    }

    #[test]
    fn every_form_of_a_decision_is_written_as_serde_writes_it() {
        let engine = Engine::for_simulation(100, ManualClock::at(Timestamp::from_nanos(1_700_000_000_000_000_000)), 7);
        let unpublished = [Identity::new("user", "ada").expect("it fits")];
        let mut decisions = vec![None, Some(engine.check(&Request::new(&unpublished).expect("it fits")))];
        engine.publish(Snapshot::parse(POLICY, Format::Toml).expect("a right policy")).expect("room for its limits");
        let identities = identities();
        for identities in &identities {
            let request = Request::new(identities).expect("it fits");
            decisions.extend((0..3).map(|_| Some(engine.check(&request))));
        }
        let reasons = [Degraded::NoStore, Degraded::StoreFailed, Degraded::InternalError, Degraded::Overload];
        let id = ReservationId::random().expect("random numbers");
        let mut bodies = Vec::new();
        for decision in decisions {
            for degraded in reasons.map(Some).into_iter().chain([None]) {
                for (is_allowed, reservation) in [(true, None), (false, None), (true, Some(id)), (false, Some(id))] {
                    let is_allowed = decision.as_ref().map_or(is_allowed, Decision::is_allowed);
                    let policy_version = engine.version();
                    let outcome =
                        CheckResult { is_allowed, decision, degraded, policy_version, reservation, waited: None };
                    let mut text = Vec::new();
                    super::decision(&outcome, &mut text);
                    let body: DecisionBody = serde_json::from_slice(&text).expect("a decision");
                    let by_serde = serde_json::to_string(&body).expect("it is plain data");
                    assert_eq!(String::from_utf8(text).expect("text"), by_serde);
                    bodies.push(body);
                }
            }
        }
        let has = |what: &str, is_there: &dyn Fn(&DecisionBody) -> bool| assert!(bodies.iter().any(is_there), "{what}");
        has("a delay", &|body| body.delay_ms > Some(0));
        has("a wait", &|body| !body.allowed && body.retry_after_ms > Some(0));
        has("a denial that never ends", &|body| !body.allowed && body.limit.is_some() && body.retry_after_ms.is_none());
        has("two shadow limits", &|body| body.shadow_denied.len() == 2);
        has("a name with characters to escape", &|body| {
            body.limit_id.as_ref().is_some_and(|id| id.contains("\"ada\" \\"))
        });
        has("no limit", &|body| body.allowed && body.limit_id.is_none());
        has("a reservation", &|body| body.reservation.is_some());
    }
}
