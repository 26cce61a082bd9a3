//! Decides the descriptors of an Envoy request together, and writes the response.

use std::{cmp::Reverse, time::Duration};

use actix_web::web::BytesMut;
use tidegate::{Decision, Retry, clock::Clock};

use super::{
    request::{DescriptorsRequest, EnvoyRequest},
    response,
};
use crate::{
    protobuf::error::MessageError,
    shared::{
        caller_shares::Caller,
        decider::{CheckResult, Decider},
        error::Error,
    },
};

/// Decides the descriptors of a `RateLimitRequest` together, and writes the `RateLimitResponse`. Returns the outcome
/// that decides: the denial with the longest wait, or else the outcome with the least remaining. Where it returns an
/// error it has written nothing.
pub(crate) async fn decide<'e, C: Clock>(
    decider: &'e Decider<C>,
    message: &[u8],
    caller: &Caller,
    to: &mut BytesMut,
) -> Result<CheckResult<'e>, MessageError> {
    let message = EnvoyRequest::read(message)?;
    let domain = message.domain;
    caller.rights.permit_domain(domain).map_err(Error::from)?;
    let engine = decider.engine();
    let request = DescriptorsRequest::read(&message, engine.descriptor_settings(domain))?;
    let deciding = request
        .with_requests(engine, async |requests| {
            let mut outcomes = decider.check_atomic_batch(requests, caller).await?;
            let deciding = deciding_index(&outcomes)?;
            response::put_overall_code(outcomes.iter().all(|outcome| outcome.is_allowed), to);
            let has_shadows = engine.has_shadow_limits(domain);
            for (outcome, (request, _)) in outcomes.iter().zip(requests) {
                let is_limited = outcome.decision.as_ref().is_some_and(|decision| decision.limit_id().is_some());
                let shadows = if is_limited || !has_shadows { Vec::new() } else { decider.limits_of(request) };
                response::put_status(outcome.decision.as_ref(), &shadows, to);
            }
            let deciding = outcomes.swap_remove(deciding);
            response::put_headers(&deciding, engine.response_settings(domain), to);
            Some(deciding)
        })
        .await?;
    Ok(deciding.ok_or(Error::Undecided)?)
}

/// Returns the index of the outcome that decides: a denial comes before everything else, and an outcome without a limit last.
fn deciding_index(outcomes: &[CheckResult<'_>]) -> Option<usize> {
    let remaining = |outcome: &CheckResult<'_>| outcome.decision.as_ref().and_then(Decision::remaining);
    let first = outcomes.iter().enumerate().min_by_key(|(_, outcome)| {
        let wait = match outcome.decision.as_ref().map_or(Retry::Now, Decision::retry) {
            Retry::Now => Duration::ZERO,
            Retry::After(wait) => wait,
            Retry::Never => Duration::MAX,
        };
        (outcome.is_allowed, Reverse(wait), remaining(outcome).is_none(), remaining(outcome))
    });
    first.map(|(index, _)| index)
}
