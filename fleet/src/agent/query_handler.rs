//! Answers the admin server's queries about an engine, on a node and in the admin server's own process.

use std::{fmt::Display, slice, sync::Arc, time::Duration};

use tidegate::{
    CountedIdentity, DEFAULT_DOMAIN, Decide, Engine, Identity, InspectedLimit, Inspection, Request, RequestError,
    Retry,
    clock::SystemClock,
    internals::{Pending, StoreAnswer},
};
use tidegate_api::ms_rounded_up;

use crate::{
    agent::{describe::standing, live_tail::LiveTail},
    store::{SharedEngine, StoreStats},
    wire::{FULLEST_MAX, NodeQuery, NodeReply, PeekedLimit, QueryIdentity, QueryRequest, StoreReport, WATCH_MS_MAX},
};

/// A handler of queries about one engine.
#[derive(Debug)]
pub struct QueryHandler {
    engine: Arc<Engine>,
    store: Option<Arc<SharedEngine<SystemClock>>>,
    live_tail: LiveTail,
}

impl QueryHandler {
    /// Makes a handler for this engine and the store of its shared limits. While a query watches decisions, each check
    /// takes some nanoseconds longer.
    #[must_use]
    pub fn of(engine: Arc<Engine>, store: Option<Arc<SharedEngine<SystemClock>>>) -> Self {
        Self { engine, store, live_tail: LiveTail::default() }
    }

    /// Returns the number that identifies the store, if there is one.
    #[must_use]
    pub fn store_id(&self) -> Option<u64> {
        self.store.as_ref().map(|store| store.store_id())
    }

    /// Returns the state of the store, with the mean latency since the start.
    #[must_use]
    pub fn store_report(&self) -> Option<StoreReport> {
        self.store.as_ref().map(|store| StoreReport::of(&store.stats(), &StoreStats::default()))
    }

    /// Answers a query. A watch takes as long as it states; other queries take microseconds, and a round trip to the
    /// store where they need it.
    pub async fn answer(&self, query: NodeQuery) -> NodeReply {
        match query {
            NodeQuery::Peek { ref request }
            | NodeQuery::Reset { ref request }
            | NodeQuery::Clear { ref request }
            | NodeQuery::Charge { ref request } => self.answer_about(request, &query).await.unwrap_or_else(failed),
            NodeQuery::Fullest { domain, each } => {
                NodeReply::Fullest { each: self.fullest(domain.as_deref(), &each[..each.len().min(FULLEST_MAX)]).await }
            }
            NodeQuery::Watch { who, for_ms, cursor } => {
                let (engine, within) = (&self.engine, time(for_ms));
                let watched = match cursor {
                    Some(cursor) => self.live_tail.continue_watch(engine, who, cursor, within).await,
                    None => self.live_tail.watch_once(engine, Some(who), usize::MAX, within).await,
                };
                watched.map_or_else(failed, NodeReply::Watch)
            }
            NodeQuery::Sample { count, for_ms } => {
                let watched = self.live_tail.watch_once(&self.engine, None, count, time(for_ms)).await;
                watched.map_or_else(failed, NodeReply::Sample)
            }
            NodeQuery::Resync {} => NodeReply::Resync {},
        }
    }

    /// Answers a query about a request, if the request is valid.
    async fn answer_about(&self, asked: &QueryRequest, query: &NodeQuery) -> Result<NodeReply, RequestError> {
        let counted = asked.identities.iter().map(|who| self.counted(asked.domain.as_deref(), who));
        let counted = counted.collect::<Result<Vec<_>, _>>()?;
        let identities: Vec<_> = counted.iter().map(CountedIdentity::identity).collect();
        let request = asked.of(&identities)?;
        Ok(match query {
            NodeQuery::Reset { .. } => self.reset(&request),
            NodeQuery::Clear { .. } => self.clear(&request).await,
            NodeQuery::Charge { .. } => {
                let decision = match &self.store {
                    Some(store) => store.decide(&request).await,
                    None => self.engine.check(&request),
                };
                NodeReply::Charge {
                    policy_version: decision.policy_version(),
                    allowed: decision.is_allowed(),
                    limit_id: decision.limit_id().map(str::to_owned),
                    unknown_domain: !self.engine.has_domain(asked.domain.as_deref().unwrap_or(DEFAULT_DOMAIN)),
                    retry_after_ms: wait_ms(decision.retry()),
                }
            }
            _ => self.peek(&request).await,
        })
    }

    /// Returns an identity as listeners count it. A value of the kind `ip` that is no address is counted as it is.
    fn counted<'w>(&self, domain: Option<&str>, who: &'w QueryIdentity) -> Result<CountedIdentity<'w>, RequestError> {
        let identity = Identity::new(&who.kind, &who.value)?;
        let counted = self.engine.counted(domain.unwrap_or(DEFAULT_DOMAIN), identity);
        Ok(counted.unwrap_or_else(|_| identity.into()))
    }

    /// Returns what the store has of the shared limits of a request, for [`Engine::inspect_with`]; `None` without a
    /// store.
    pub async fn stored(&self, request: &Request<'_>) -> Option<Vec<StoreAnswer>> {
        let (store, pending) = (self.store.as_ref()?, self.engine.begin_inspection(request)?);
        store.look(&[&pending]).await.pop()
    }

    /// Inspects the limits of several requests, with one question to the store for all of them.
    async fn inspect(&self, requests: &[Request<'_>]) -> Vec<Inspection<'_>> {
        let Some(store) = &self.store else { return requests.iter().map(|one| self.engine.inspect(one)).collect() };
        let pending: Vec<_> = requests.iter().map(|request| self.engine.begin_inspection(request)).collect();
        let asked: Vec<&Pending<'_>> = pending.iter().flatten().collect();
        let mut answers = store.look(&asked).await.into_iter();
        let each = requests.iter().zip(&pending).map(|(request, pending)| match pending {
            Some(pending) => self.engine.inspect_with(pending, &answers.next().unwrap_or_default()),
            None => self.engine.inspect(request),
        });
        each.collect()
    }

    async fn peek(&self, request: &Request<'_>) -> NodeReply {
        let Some(found) = self.inspect(slice::from_ref(request)).await.pop() else {
            return failed("nothing was found");
        };
        NodeReply::Peek {
            policy_version: found.decision.policy_version(),
            allowed: found.decision.is_allowed(),
            limit_id: found.decision.limit_id().filter(|_| !found.decision.is_allowed()).map(str::to_owned),
            retry_after_ms: wait_ms(found.decision.retry()),
            limits: found.limits.iter().map(|limit| PeekedLimit::of(limit, self.store.is_some())).collect(),
        }
    }

    /// Resets the limits of a request on this node: its own counts, and the leases and views that it holds.
    fn reset(&self, request: &Request<'_>) -> NodeReply {
        let cleared = used(&self.engine.inspect(request), false).collect();
        // The reply has the state before the reset.
        let keys = self.engine.reset(request) as u64;
        if let Some(store) = &self.store {
            store.forget(request);
        }
        NodeReply::Reset { keys, cleared }
    }

    /// Clears the limits of a request in the store alone.
    async fn clear(&self, request: &Request<'_>) -> NodeReply {
        let Some(store) = &self.store else { return failed("this node shares no limits through a store") };
        let found = self.inspect(slice::from_ref(request)).await;
        let cleared: Vec<_> =
            found.iter().flat_map(|found| used(found, true)).filter(|limit| limit.is_stored).collect();
        match store.clear(request).await {
            Ok(_) => NodeReply::Clear { keys: cleared.len() as u64, cleared },
            Err(error) => failed(error),
        }
    }

    /// Returns the limit that is nearest to denying requests of each identity alone. Shadow limits and limits that deny
    /// every request do not count.
    async fn fullest(&self, domain: Option<&str>, each: &[QueryIdentity]) -> Vec<Option<PeekedLimit>> {
        let counted: Vec<_> = each.iter().map(|who| self.counted(domain, who).ok()).collect();
        let who: Vec<_> = counted.iter().map(|counted| counted.as_ref().map(CountedIdentity::identity)).collect();
        let request = |who| {
            let request = Request::new(slice::from_ref(who)).ok()?;
            Some(domain.map_or(request, |domain| request.domain(domain)))
        };
        let requests: Vec<_> = who.iter().map(|who| request(who.as_ref()?)).collect();
        let asked: Vec<_> = requests.iter().flatten().copied().collect();
        let mut found = self.inspect(&asked).await.into_iter();
        let fullest = |found: Inspection<'_>| {
            let limits = found.limits.iter().map(|limit| PeekedLimit::of(limit, self.store.is_some()));
            let limits = limits.filter(|limit| !limit.is_shadow && limit.limit > 0);
            // Of several limits that are equally full, the first that is checked.
            limits.reduce(|fullest, limit| if limit.is_fuller(&fullest) { limit } else { fullest })
        };
        requests.iter().map(|request| request.and_then(|_| fullest(found.next()?))).collect()
    }
}

/// Returns the limits of which something is used: those that a reset clears.
fn used(found: &Inspection<'_>, is_asked: bool) -> impl Iterator<Item = PeekedLimit> {
    let each = found.limits.iter().map(move |limit| PeekedLimit::of(limit, is_asked));
    each.filter(|limit| limit.remaining < limit.limit)
}

fn wait_ms(retry: Retry) -> Option<u64> {
    match retry {
        Retry::Now => Some(0),
        Retry::After(wait) => Some(ms_rounded_up(wait)),
        Retry::Never => None,
    }
}

impl PeekedLimit {
    /// Describes a limit; `is_asked` means that there is a store and that it was asked.
    fn of(limit: &InspectedLimit<'_>, is_asked: bool) -> Self {
        Self {
            limit_id: limit.limit_id.to_owned(),
            limit: limit.state.limit(),
            remaining: limit.state.remaining(),
            reset_after_ms: ms_rounded_up(limit.state.reset_after()),
            retry_after_ms: limit.outcome.map_or(Some(0), |outcome| wait_ms(outcome.retry())),
            remaining_after: limit.outcome.map_or(limit.state.remaining(), |outcome| outcome.remaining()),
            is_shadow: limit.is_shadow,
            sharing: limit.sharing,
            is_stored: limit.is_stored,
            says: standing(limit, is_asked),
        }
    }

    /// Returns whether a larger share of its tokens is used.
    #[must_use]
    pub fn is_fuller(&self, other: &Self) -> bool {
        let left_here = u128::from(self.remaining) * u128::from(other.limit);
        left_here < u128::from(other.remaining) * u128::from(self.limit)
    }
}

impl QueryRequest {
    /// Checks whether this can be a request.
    ///
    /// # Errors
    ///
    /// States what is wrong with the request.
    pub fn check(&self) -> Result<(), RequestError> {
        let each = self.identities.iter().map(|who| Identity::new(&who.kind, &who.value));
        self.of(&each.collect::<Result<Vec<_>, _>>()?).map(drop)
    }

    /// Makes a request of this identity alone.
    #[must_use]
    pub fn of_one(who: QueryIdentity) -> Self {
        Self { domain: None, identities: vec![who], endpoint: None, method: None, cost: None }
    }

    /// Makes the engine's request of these identities.
    fn of<'q>(&'q self, identities: &'q [Identity<'q>]) -> Result<Request<'q>, RequestError> {
        let mut request = Request::new(identities)?;
        if let Some(domain) = &self.domain {
            request = request.domain(domain);
        }
        if let Some(endpoint) = &self.endpoint {
            request = request.endpoint(endpoint)?;
        }
        if let Some(method) = &self.method {
            request = request.method(method);
        }
        if let Some(cost) = self.cost {
            request = request.cost(cost)?;
        }
        Ok(request)
    }
}

fn time(ms: u64) -> Duration {
    Duration::from_millis(ms.min(WATCH_MS_MAX))
}

fn failed(why: impl Display) -> NodeReply {
    NodeReply::Failed { why: why.to_string() }
}

#[cfg(test)]
mod tests;
