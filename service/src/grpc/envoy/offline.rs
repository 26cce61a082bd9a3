//! Decisions on descriptors without a listener, for tests of policies.

use std::net::{IpAddr, Ipv4Addr};

use futures_util::FutureExt;
use tidegate::{Decision, clock::Clock};

use super::super::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use crate::{callers::Caller, decider::Decider};

/// Decides the descriptors of a request together, as the listener for Envoy does. Returns the decision that the listener
/// tells in its headers, and its answer. The decider has no store.
///
/// # Errors
///
/// The field of the request that the listener would refuse, and why.
pub fn decide_descriptors<'e, C: Clock>(
    decider: &'e Decider<C>,
    message: &RateLimitRequest,
) -> Result<(Decision<'e>, RateLimitResponse), String> {
    let caller = Caller::without_token(IpAddr::from(Ipv4Addr::LOCALHOST).into());
    let ready = super::decide(decider, message, &caller).now_or_never();
    let (answer, response) = ready.ok_or("the decision waits for a store")?.map_err(|error| {
        let told = error.told();
        match told.field {
            Some(field) if !told.message.starts_with(&field) => format!("{field}: {}", told.message),
            _ => told.message,
        }
    })?;
    let decision = answer.decision.ok_or_else(|| "the engine came to no decision".to_owned())?;
    Ok((decision, response))
}
