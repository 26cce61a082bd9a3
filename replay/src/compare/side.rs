//! One of the compared policies: its engine on a manual clock, and the counts of its limits.

use arrayvec::ArrayVec;
use tidegate::{
    CountedIdentity, Engine, IDENTITIES_MAX, Identity, InspectedLimit, PublishError, Request, Retry, Snapshot,
    TableShares,
    clock::ManualClock,
    time::{Nanos, Timestamp},
};

use crate::{log::record::with_parts, simulation::SEED};

/// A compared policy; without an engine it allows everything.
#[derive(Debug)]
pub(crate) struct PolicySide {
    engine: Option<(Engine<ManualClock>, ManualClock)>,
    /// Whether requests have whole addresses, which are normalized as a listener does.
    is_counting_addresses: bool,
    /// Counts by the limit's index in the engine, which is the order in the policy.
    pub(crate) limits: Vec<LimitCounts>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct LimitCounts {
    pub(crate) name: String,
    /// Requests that it checked.
    pub(crate) checked: u64,
    /// Requests that it was the first to deny.
    pub(crate) denied: u64,
    /// Requests that it would have denied, in shadow mode.
    pub(crate) shadow_denied: u64,
    /// Checks that are not counted because the identities that it counts are not in the sample.
    pub(crate) partial: u64,
    /// Kinds of identities in these checks; `None` if there was none, empty for a limit that counts everyone together.
    pub(crate) partial_kinds: Option<String>,
}

/// Decision of one policy about a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SideDecision {
    pub(crate) is_allowed: bool,
    /// The limit that decided.
    pub(crate) limit: Option<u32>,
    /// The most that the limit allows at once.
    pub(crate) most: Option<u64>,
    /// Used quota before the request, if it was inspected.
    pub(crate) used_before: Option<u64>,
    pub(crate) remaining: Option<u64>,
    pub(crate) retry: Retry,
    pub(crate) reset_ns: Option<u64>,
    pub(crate) delay_ns: u64,
}

impl SideDecision {
    /// The decision of a side without a policy.
    const ALLOWED: Self = Self {
        is_allowed: true,
        limit: None,
        most: None,
        used_before: None,
        remaining: None,
        retry: Retry::Now,
        reset_ns: None,
        delay_ns: 0,
    };
}

impl PolicySide {
    pub(crate) fn new(policy: Option<Snapshot>, room: usize) -> Result<Self, PublishError> {
        let Some(policy) = policy else {
            return Ok(Self { engine: None, is_counting_addresses: false, limits: Vec::new() });
        };
        let clock = ManualClock::default();
        // The traffic is all that there is: no share of the table is reserved.
        let engine = Engine::for_simulation(room, clock.clone(), SEED).with_shares(TableShares::WHOLE);
        // A fresh engine numbers the limits of its first policy in their order.
        let seen = |name: &str| LimitCounts { name: name.to_owned(), ..LimitCounts::default() };
        let limits = policy.limit_names().map(seen).collect();
        engine.publish(policy)?;
        Ok(Self { engine: Some((engine, clock)), is_counting_addresses: false, limits })
    }

    pub(crate) fn counting_addresses(self, ipv6_prefix: u8) -> Self {
        let engine = self.engine.map(|(engine, clock)| (engine.with_ipv6_prefix(ipv6_prefix), clock));
        Self { engine, is_counting_addresses: true, ..self }
    }

    /// Returns the identities of a request with the values by which they are counted; `None` if it has them already, or there
    /// is no policy.
    pub(crate) fn counted<'r>(&self, request: &Request<'r>) -> Option<ArrayVec<CountedIdentity<'r>, IDENTITIES_MAX>> {
        let (engine, _) = self.engine.as_ref().filter(|_| self.is_counting_addresses)?;
        let parts = request.parts();
        // A host name is its own value.
        let counted = |who: &Identity<'r>| engine.counted(parts.domain, *who).unwrap_or_else(|_| (*who).into());
        Some(parts.identities.iter().map(counted).collect())
    }

    /// Decides a request. `sample` has a bit for each identity that is in the sample, if the traffic is one. With `has_state`
    /// the limits are also inspected before, which doubles the time.
    pub(crate) fn decide(
        &mut self,
        now: Nanos,
        request: &Request<'_>,
        sample: Option<u8>,
        has_state: bool,
    ) -> SideDecision {
        let Some((engine, clock)) = &self.engine else {
            return SideDecision::ALLOWED;
        };
        clock.set(Timestamp::from_nanos(now));
        let counted = self.counted(request);
        let counted: Option<ArrayVec<_, IDENTITIES_MAX>> =
            counted.as_ref().map(|counted| counted.iter().map(CountedIdentity::identity).collect());
        let request = &counted.as_ref().and_then(|counted| with_identities(request, counted)).unwrap_or(*request);
        let before = has_state.then(|| engine.inspect(request).limits);
        let limits = &mut self.limits;
        let mut last_met = None;
        let decision = engine.check_observing(request, |met| {
            let place = met.limit.place();
            // The traffic has all requests of a key if it has those of one of its identities.
            let is_whole = sample.is_none_or(|sample| sample & met.counted != 0);
            if let Some(limit) = limits.get_mut(place) {
                if is_whole {
                    limit.checked += 1;
                    limit.shadow_denied += u64::from(met.shadow_denied);
                } else {
                    limit.partial += 1;
                    limit.partial_kinds.get_or_insert_with(|| kinds(request, met.counted));
                }
            }
            last_met = Some((place, is_whole));
        });
        let is_allowed = decision.is_allowed();
        let by = last_met.filter(|_| !is_allowed);
        if let Some((place, true)) = by
            && let Some(limit) = limits.get_mut(place)
        {
            limit.denied += 1;
        }
        let by = decision.limit_index();
        let of = |limit: &InspectedLimit<'_>| limit.state.limit().saturating_sub(limit.state.remaining());
        SideDecision {
            is_allowed,
            limit: by.map(|limit| limit.place() as u32),
            most: decision.limit(),
            used_before: before.and_then(|limits| limits.iter().find(|limit| Some(limit.limit) == by).map(of)),
            remaining: decision.remaining(),
            retry: decision.retry(),
            reset_ns: decision.reset_after().map(|after| after.as_nanos() as u64),
            delay_ns: decision.delay().as_nanos() as u64,
        }
    }

    /// Returns whether there is a policy.
    pub(crate) fn is_some(&self) -> bool {
        self.engine.is_some()
    }

    /// Returns the number of charges that used a shared counter for lack of room, or an approximate log: above 0, some requests
    /// may have been denied wrongly.
    pub(crate) fn without_room(&self) -> u64 {
        let engine = self.engine.as_ref();
        engine.map_or(0, |(engine, _)| engine.overflow_charges() + engine.log_charges_without_ring())
    }
}

/// Returns the request with other identities of the same kinds.
pub(crate) fn with_identities<'r>(request: &Request<'r>, identities: &'r [Identity<'r>]) -> Option<Request<'r>> {
    let parts = request.parts();
    let made = if parts.is_exact { Request::exactly(identities) } else { Request::new(identities) };
    let made = made.and_then(|made| made.domain(parts.domain).cost(parts.cost));
    made.and_then(|made| with_parts(made, [parts.endpoint, parts.method, parts.tier])).ok()
}

/// Returns the kinds of identities that a limit counts, such as `ip` or `ip and user`.
fn kinds(request: &Request<'_>, counted: u8) -> String {
    let identities = request.parts().identities.iter().enumerate();
    let kinds = identities.filter(|(place, _)| counted >> place & 1 == 1).map(|(_, identity)| identity.kind());
    kinds.collect::<Vec<_>>().join(" and ")
}
