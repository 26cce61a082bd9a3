//! The state that the listeners of a process share: the decider, metrics, health, tokens, traces and timeouts.

use std::sync::{Arc, atomic::AtomicBool};

use tidegate_listener::PeerNetwork;

use super::{
    body_budget::BodyBudget, caller_shares::Caller, decider::Decider, health_monitor::HealthMonitor, metrics::Metrics,
    timeouts::Timeouts, tokens::Tokens, traces::Traces,
};

#[derive(Debug)]
pub(crate) struct ServiceState<C> {
    pub(crate) decider: Arc<Decider<C>>,
    pub(crate) metrics: Metrics,
    pub(crate) body_budget: Arc<BodyBudget>,
    pub(crate) health_monitor: Arc<HealthMonitor<C>>,
    /// The tokens for checks; without them the server asks for none.
    pub(crate) tokens: Option<Tokens>,
    /// The tokens for the metrics; without them the server asks for none.
    pub(crate) metrics_tokens: Option<Tokens>,
    pub(crate) traces: Option<Traces>,
    pub(crate) timeouts: Timeouts,
    /// True once the server is stopping, and load balancers are to send requests elsewhere.
    pub(crate) is_draining: Arc<AtomicBool>,
}

impl<C> ServiceState<C> {
    /// Returns the caller at this peer that sent these tokens. Where the server asks for no token, every caller has the
    /// usual rights. Returns `None` where it asks for one and knows none of these.
    pub(crate) fn caller<'t>(&self, peer: PeerNetwork, tokens: impl IntoIterator<Item = &'t [u8]>) -> Option<Caller> {
        if self.tokens.is_none() { Some(Caller::without_token(peer)) } else { self.caller_by_token(peer, tokens) }
    }

    /// Returns the caller at this peer by the first of these tokens that the server knows; `None` where it knows none of them.
    pub(crate) fn caller_by_token<'t>(
        &self,
        peer: PeerNetwork,
        tokens: impl IntoIterator<Item = &'t [u8]>,
    ) -> Option<Caller> {
        let known = self.tokens.as_ref()?;
        let token = tokens.into_iter().find_map(|token| known.find(token))?;
        Some(Caller::with_token(peer, &token))
    }

    /// Returns whether a scrape that sent these tokens may read the metrics.
    pub(crate) fn may_scrape<'t>(&self, tokens: impl IntoIterator<Item = &'t [u8]>) -> bool {
        self.metrics_tokens.as_ref().is_none_or(|known| tokens.into_iter().any(|token| known.has(token)))
    }
}
