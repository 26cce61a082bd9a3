//! The command `TIDEGATE.CHECK`: reads its arguments, has the check decided by the policy, and writes the reply.

use std::str;

use tidegate::{DEFAULT_DOMAIN, Decision, Identity, Request, Retry, clock::Clock};

use super::{
    error::Error,
    reply_writer::ReplyWriter,
    throttle::{seconds, to_integer},
};
use crate::shared::{
    caller_shares::Caller,
    decider::{CheckResult, Decider},
    request_id_cache::RequestId,
};

pub(super) const CHECK: &str = "tidegate.check";

/// Decides `TIDEGATE.CHECK` with these arguments, and appends the reply. Returns whether it is allowed.
pub(super) async fn check<C: Clock>(
    decider: &Decider<C>,
    caller: &Caller,
    arguments: &[&[u8]],
    to: &mut ReplyWriter,
) -> Result<bool, Error> {
    let text = |place: usize, field| match arguments.get(place) {
        Some(argument) => str::from_utf8(argument).map(Some).map_err(|_| Error::NotUtf8(field)),
        None => Ok(None),
    };
    let (kind, value) = (text(0, "kind")?.unwrap_or_default(), text(1, "value")?.unwrap_or_default());
    let identity = Identity::new(kind, value)?;
    let counted = decider.engine().counted(DEFAULT_DOMAIN, identity)?;
    let identity = [counted.identity()];
    let mut request = Request::new(&identity)?;
    if let Some(endpoint) = text(2, "endpoint")?.filter(|endpoint| !matches!(*endpoint, "" | "*")) {
        request = request.endpoint(endpoint)?;
    }
    let cost = text(3, "cost")?;
    let cost = cost.map_or(Ok(1), |cost| cost.parse().map_err(|_| Error::Cost(cost.to_owned())))?;
    request = if cost == 0 { request.without_cost() } else { request.cost(cost)? };
    let id = text(4, "request_id")?.map(RequestId::new).transpose()?;
    if arguments.len() > 5 {
        return Err(Error::Count(CHECK));
    }
    let outcome =
        if cost == 0 { decider.peek(&request, caller).await } else { decider.check(&request, id, caller).await? };
    append_decision(&outcome, to);
    Ok(outcome.is_allowed)
}

/// Appends the five numbers of redis-cell and the name of the limit that decided. Where no limit did, its numbers are -1.
fn append_decision(outcome: &CheckResult<'_>, to: &mut ReplyWriter) {
    let decision = outcome.decision.as_ref().filter(|decision| decision.limit_id().is_some());
    let wait = match decision.map(Decision::retry) {
        Some(Retry::After(wait)) => seconds(wait),
        None if !outcome.is_allowed => seconds(CheckResult::CLOSED_WAIT),
        _ => -1,
    };
    let numbers = [
        i64::from(!outcome.is_allowed),
        decision.and_then(Decision::limit).map_or(-1, to_integer),
        decision.and_then(Decision::remaining).map_or(-1, to_integer),
        wait,
        decision.and_then(Decision::reset_after).map_or(0, seconds),
    ];
    to.array(numbers.len() + 1);
    to.integers(numbers);
    match decision.and_then(Decision::limit_id) {
        Some(limit) => to.bulk(limit.as_bytes()),
        None => to.null(),
    }
}
