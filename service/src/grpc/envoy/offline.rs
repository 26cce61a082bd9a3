//! Decisions on descriptors without a listener, for tests of policies.

use std::net::{IpAddr, Ipv4Addr};

use futures_util::FutureExt;
use tidegate::{Decision, clock::Clock};

use super::super::proto::envoy::{
    extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor::Entry},
    service::ratelimit::v3::RateLimitRequest,
};
use crate::{callers::Caller, decider::Decider};

/// Decides descriptors together, as the listener for Envoy does, and charges `hits` for each; 0 charges nothing. Returns the
/// decision that the listener tells in its headers. The decider has no store.
///
/// # Errors
///
/// The field of the request that the listener would refuse, and why.
pub fn decide_descriptors<'e, C: Clock>(
    decider: &'e Decider<C>,
    domain: &str,
    descriptors: &[Vec<(&str, &str)>],
    hits: u64,
) -> Result<Decision<'e>, String> {
    let entry = |&(key, value): &(&str, &str)| Entry { key: key.to_owned(), value: value.to_owned().into() };
    let descriptor = |entries: &Vec<_>| RateLimitDescriptor {
        entries: entries.iter().map(entry).collect(),
        limit: None,
        hits_addend: Some(hits),
        is_negative_hits: false,
    };
    let descriptors = descriptors.iter().map(descriptor).collect();
    let message = RateLimitRequest { domain: domain.to_owned(), descriptors, hits_addend: 0 };
    let caller = Caller::without_token(IpAddr::from(Ipv4Addr::LOCALHOST).into());
    let ready = super::decide(decider, &message, &caller).now_or_never();
    let (answer, _) = ready.ok_or("the decision waits for a store")?.map_err(|error| {
        let told = error.told();
        match told.field {
            Some(field) if !told.message.starts_with(&field) => format!("{field}: {}", told.message),
            _ => told.message,
        }
    })?;
    answer.decision.ok_or_else(|| "the engine came to no decision".to_owned())
}
