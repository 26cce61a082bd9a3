//! Decides Envoy descriptors without a listener, for tests of policies.

use std::net::{IpAddr, Ipv4Addr};

use actix_web::web::BytesMut;
use futures_util::FutureExt;
use prost::Message;
use tidegate::{Decision, clock::Clock};

use super::decide::decide;
use crate::{
    protobuf::{
        error::MessageError,
        generated::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse},
    },
    shared::{caller_shares::Caller, decider::Decider},
};

/// Decides the descriptors of a request together, as the listener for Envoy does. Returns the decision that the listener shows in
/// its headers, and the response. The decider must have no store.
///
/// # Errors
///
/// The field of the request that the listener would refuse, and why.
pub fn decide_descriptors<'e, C: Clock>(
    decider: &'e Decider<C>,
    message: &RateLimitRequest,
) -> Result<(Decision<'e>, RateLimitResponse), String> {
    let caller = Caller::without_token(IpAddr::from(Ipv4Addr::LOCALHOST).into());
    let mut response = BytesMut::new();
    let ready = decide(decider, &message.encode_to_vec(), &caller, &mut response).now_or_never();
    let outcome = ready.ok_or("the decision waits for a store")?.map_err(|error| {
        let told = match error {
            MessageError::Malformed(why) => return why,
            MessageError::Invalid(error) => error.report(),
        };
        match told.field {
            Some(field) if !told.message.starts_with(&field) => format!("{field}: {}", told.message),
            _ => told.message,
        }
    })?;
    let decision = outcome.decision.ok_or_else(|| "the engine came to no decision".to_owned())?;
    let response = RateLimitResponse::decode(response).map_err(|error| error.to_string())?;
    Ok((decision, response))
}
