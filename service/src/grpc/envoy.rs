//! Envoy's rate limit service, `envoy.service.ratelimit.v3`: version 3 of its API.
//!
//! `ask` reads descriptors as requests to the engine, `tell` writes decisions as statuses, and `offline` decides descriptors
//! without a listener.

mod ask;
mod offline;
mod tell;

use std::{cmp::Reverse, sync::Arc, time::Duration};

use http::Extensions;
use tidegate::{Decision, Request, Retry, clock::Clock};
use tonic::Status;

pub use self::offline::decide_descriptors;

use super::{
    proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse},
    refuse,
};
use crate::{
    callers::Caller,
    decider::{Answer, Decider},
    doors::Shared,
    error::Error,
    traces::RequestSpan,
};

/// The service.
pub(super) struct Envoy<C>(pub(super) Arc<Shared<C>>);

impl<C: Clock> Envoy<C> {
    /// `ShouldRateLimit`; `about`: what is known of the call.
    pub(super) async fn decide(
        &self,
        message: &RateLimitRequest,
        caller: &Caller,
        about: &Extensions,
    ) -> Result<RateLimitResponse, Status> {
        let told = match caller.rights.permit_domain(&message.domain) {
            Ok(()) => decide(&self.0.decider, message, caller).await,
            Err(forbidden) => Err(forbidden.into()),
        };
        let (answer, response) = told.map_err(|error| refuse(&self.0, &error, None))?;
        if let Some(span) = about.get::<RequestSpan>() {
            span.decided(&answer);
        }
        Ok(response)
    }
}

/// Decides the descriptors together. Returns the response, and the answer that decided: the denial with the longest wait, or
/// else the answer with the least remaining.
async fn decide<'e, C: Clock>(
    decider: &'e Decider<C>,
    message: &RateLimitRequest,
    caller: &Caller,
) -> Result<(Answer<'e>, RateLimitResponse), Error> {
    let read = ask::DescriptorsRequest::read(message, decider.engine().descriptor_settings(&message.domain))?;
    let answers = read
        .with_requests(decider.engine(), async |requests| {
            let answers = decider.check_together(requests, caller).await?;
            let has_shadows = decider.engine().has_shadow_limits(&message.domain);
            let status = |(answer, (request, _)): (&Answer<'_>, &(Request<'_>, _))| {
                let is_limited = answer.decision.as_ref().is_some_and(|decision| decision.limit_id().is_some());
                let shadows = if is_limited || !has_shadows { Vec::new() } else { decider.limits_of(request) };
                tell::status(answer.decision.as_ref(), &shadows)
            };
            let statuses = answers.iter().zip(requests).map(status).collect();
            Some((answers, statuses))
        })
        .await?;
    let (answers, statuses) = answers.ok_or(Error::Undecided)?;
    let settings = decider.engine().door_settings(&message.domain);
    let remaining = |answer: &Answer<'_>| answer.decision.as_ref().and_then(Decision::remaining);
    // A denial comes before everything else, and an answer without a limit last.
    let telling = answers.into_iter().min_by_key(|answer| {
        let wait = match answer.decision.as_ref().map_or(Retry::Now, Decision::retry) {
            Retry::Now => Duration::ZERO,
            Retry::After(wait) => wait,
            Retry::Never => Duration::MAX,
        };
        (answer.is_allowed, Reverse(wait), remaining(answer).is_none(), remaining(answer))
    });
    let telling = telling.ok_or(Error::Undecided)?;
    let response = tell::response(&telling, statuses, settings);
    Ok((telling, response))
}

#[cfg(test)]
mod tests;
