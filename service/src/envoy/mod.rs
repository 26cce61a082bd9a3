//! Envoy's rate limit service, `envoy.service.ratelimit.v3`: version 3 of its API.
//!
//! `ask` reads descriptors as requests to the engine, `tell` writes decisions as statuses, and `offline` decides descriptors
//! without a listener.

mod offline;
mod request;
mod response;

use std::{cmp::Reverse, sync::Arc, time::Duration};

use actix_web::web::BytesMut;
use tidegate::{Decision, Retry, clock::Clock};
use tonic::Status;

pub use self::offline::decide_descriptors;

use crate::grpc::{
    check_message::Refusal,
    response_body::{self, Told},
};
use crate::{
    http::error::Error,
    listeners::Shared,
    shared::{
        caller_shares::Caller,
        decider::{Answer, Decider},
        traces::RequestSpan,
    },
};

/// Bytes that most responses fit into.
const RESPONSE_BYTES: usize = 256;

/// The service.
pub(crate) struct Envoy<C>(pub(crate) Arc<Shared<C>>);

impl<C: Clock> Envoy<C> {
    /// Answers a `RateLimitRequest`, whose decision the span of its call notes.
    pub(crate) async fn decide(
        &self,
        message: &[u8],
        caller: &Caller,
        span: Option<&RequestSpan>,
    ) -> Result<Told, Status> {
        let mut told = response_body::begun(RESPONSE_BYTES);
        let answer = decide(&self.0.decider, message, caller, &mut told).await;
        let answer = answer.map_err(|refusal| refusal.told(&self.0, None))?;
        if let Some(span) = span {
            span.decided(&answer);
        }
        response_body::sent(told, None)
    }
}

/// Decides the descriptors of a `RateLimitRequest` together, and writes the `RateLimitResponse`. Returns the answer that decided: the
/// denial with the longest wait, or else the answer with the least remaining. It writes last: nothing where it returns an error.
async fn decide<'e, C: Clock>(
    decider: &'e Decider<C>,
    message: &[u8],
    caller: &Caller,
    to: &mut BytesMut,
) -> Result<Answer<'e>, Refusal> {
    let message = request::EnvoyRequest::read(message)?;
    let domain = message.domain();
    caller.rights.permit_domain(domain).map_err(Error::from)?;
    let engine = decider.engine();
    let read = request::DescriptorsRequest::read(&message, engine.descriptor_settings(domain))?;
    let answer = read
        .with_requests(engine, async |requests| {
            let mut answers = decider.check_together(requests, caller).await?;
            let deciding = deciding(&answers)?;
            response::overall(answers.iter().all(|answer| answer.is_allowed), to);
            let has_shadows = engine.has_shadow_limits(domain);
            for (answer, (request, _)) in answers.iter().zip(requests) {
                let is_limited = answer.decision.as_ref().is_some_and(|decision| decision.limit_id().is_some());
                let shadows = if is_limited || !has_shadows { Vec::new() } else { decider.limits_of(request) };
                response::status(answer.decision.as_ref(), &shadows, to);
            }
            let deciding = answers.swap_remove(deciding);
            response::headers(&deciding, engine.door_settings(domain), to);
            Some(deciding)
        })
        .await?;
    Ok(answer.ok_or(Error::Undecided)?)
}

/// Returns the place of the answer that decides: a denial comes before everything else, and an answer without a limit last.
fn deciding(answers: &[Answer<'_>]) -> Option<usize> {
    let remaining = |answer: &Answer<'_>| answer.decision.as_ref().and_then(Decision::remaining);
    let first = answers.iter().enumerate().min_by_key(|(_, answer)| {
        let wait = match answer.decision.as_ref().map_or(Retry::Now, Decision::retry) {
            Retry::Now => Duration::ZERO,
            Retry::After(wait) => wait,
            Retry::Never => Duration::MAX,
        };
        (answer.is_allowed, Reverse(wait), remaining(answer).is_none(), remaining(answer))
    });
    first.map(|(place, _)| place)
}

#[cfg(test)]
mod tests;
