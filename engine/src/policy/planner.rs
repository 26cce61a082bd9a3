//! The planner: makes the limit plan of a request, the list of limits that apply to it in the order in which they are checked.

use arrayvec::ArrayVec;

use crate::{
    base::{
        hash::{IdentityHash, KeyHash, KeyHasher},
        time::Nanos,
    },
    policy::{
        compiled::{CompiledClient, CompiledDomain, CompiledOverride, Grants, PLAN_MAX, RuleSet, Snapshot},
        document::Descriptors,
        matcher::Matcher,
        path::{PathBuffer, normalize_path},
        request::{IDENTITIES_MAX, Request},
        rule_list::{CompiledRule, RuleList},
    },
};

/// An entry of a limit plan: one limit that applies to a request, the key that it counts and the cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlanEntry {
    /// An index into [`Snapshot::limits`].
    pub(crate) limit: u32,
    pub(crate) identity: IdentityHash,
    pub(crate) cost: u64,
    /// The identities of the request that are counted together, as bits of their indices.
    pub(crate) counted: u8,
}

/// The limits that apply to a request, in the order in which they are checked.
pub(crate) type Plan = ArrayVec<PlanEntry, PLAN_MAX>;

/// The identities that a limit counts together: one or several.
#[derive(Clone, Copy)]
struct CountedIdentities {
    identity: IdentityHash,
    /// The indices of the identities in the request, as bits.
    places: u8,
}

/// An identity of a request with its kind, tier and override in the domain.
#[derive(Clone, Copy)]
struct ResolvedIdentity<'s> {
    /// An index into [`CompiledDomain::kinds`].
    kind: u32,
    counted: CountedIdentities,
    tier: Option<u32>,
    exception: Option<&'s CompiledOverride>,
}

impl Snapshot {
    /// Adds the limits that apply to `request` at the wall time `now` to `plan`, which must be empty. In a domain that the policy
    /// does not have, none apply. A plan has kilobytes, so the caller provides the memory.
    pub(crate) fn plan(&self, request: &Request<'_>, now: Nanos, hasher: &KeyHasher, plan: &mut Plan) {
        self.plan_for::<false>(request, now, hasher, plan);
    }

    /// Adds the same limits as [`Snapshot::plan`], and those that a block hides: the limits of the tier, which count again once the
    /// block ends.
    pub(crate) fn plan_with_hidden(&self, request: &Request<'_>, now: Nanos, hasher: &KeyHasher, plan: &mut Plan) {
        self.plan_for::<true>(request, now, hasher, plan);
    }

    /// Prefetches the clients that plans for `requests` look up first, without waiting for the memory. The values of the
    /// identities should be in the cache.
    pub(crate) fn prefetch_clients(&self, requests: &[Request<'_>]) {
        let mut last = None;
        for request in requests {
            // Most batches have requests of one domain.
            let domain = match last {
                Some((name, domain)) if name == request.domain => domain,
                _ => self.domains.get(request.domain),
            };
            last = Some((request.domain, domain));
            for kind in domain.iter().flat_map(|domain| &domain.kinds).filter(|kind| kind.clients.len() > 0) {
                if let Some(identity) = request.identities.iter().find(|identity| *kind.name == *identity.kind()) {
                    kind.clients.fetch(identity.value());
                }
            }
        }
    }

    fn plan_for<const BEHIND_BLOCKS: bool>(
        &self,
        request: &Request<'_>,
        now: Nanos,
        hasher: &KeyHasher,
        plan: &mut Plan,
    ) {
        if let Some(domain) = self.domains.get(request.domain) {
            let planner = Planner::<BEHIND_BLOCKS> { snapshot: self, domain, request, cost: request.cost, plan };
            planner.run(now, hasher);
        }
    }
}

struct Planner<'s, 'r, const BEHIND_BLOCKS: bool> {
    snapshot: &'s Snapshot,
    domain: &'s CompiledDomain,
    request: &'r Request<'r>,
    cost: u64,
    plan: &'r mut Plan,
}

impl<'s, 'r, const BEHIND_BLOCKS: bool> Planner<'s, 'r, BEHIND_BLOCKS> {
    fn run(mut self, now: Nanos, hasher: &KeyHasher) {
        let mut known = ArrayVec::<Option<ResolvedIdentity<'s>>, IDENTITIES_MAX>::new();
        // All values are hashed first, so that they are loaded from memory together.
        let values: ArrayVec<KeyHash, IDENTITIES_MAX> =
            self.request.identities.iter().map(|identity| hasher.bytes(identity.value().as_bytes())).collect();
        known.extend(values.into_iter().enumerate().map(|(place, value)| self.look_up(place, value, now)));
        let mut buffer = PathBuffer::new();
        let path = self.request.endpoint.map(|endpoint| normalize_path(endpoint, &mut buffer));
        if self.request.is_exact && self.domain.descriptors.descriptors == Descriptors::Exact {
            return self.run_exactly(&known, path, hasher);
        }
        let mut seen = 0;
        for identity in known.iter().flatten() {
            self.add_tier(identity);
            let kind = 1 << identity.kind;
            seen |= kind;
            let completed = |set: &&RuleSet| set.kinds & kind != 0 && set.kinds & !seen == 0;
            for set in self.domain.rule_sets.iter().filter(completed) {
                self.add_closest(set, path, &known, hasher, None);
            }
        }
        for set in self.domain.rule_sets.iter().filter(|set| set.kinds == 0) {
            self.add_closest(set, path, &known, hasher, None);
        }
    }

    /// Adds the limits for a request of exactly its identities: the tier of a single identity, and the rules that name just these
    /// kinds in `per` and `where`.
    fn run_exactly(mut self, known: &[Option<ResolvedIdentity<'s>>], path: Option<&str>, hasher: &KeyHasher) {
        if let [Some(one)] = known {
            self.add_tier(one);
        }
        // No rule names a kind that the domain does not have.
        let kinds = known.iter().try_fold(0, |kinds, known| Some(kinds | 1 << (*known)?.kind));
        let Some(kinds) = kinds else { return };
        for set in self.domain.rule_sets.iter().filter(|set| set.kinds & !kinds == 0) {
            self.add_closest(set, path, known, hasher, Some(kinds));
        }
    }

    /// Returns the kind, tier and override of an identity; `None` for a kind that the domain does not have.
    fn look_up(&self, place: usize, value: KeyHash, now: Nanos) -> Option<ResolvedIdentity<'s>> {
        let identity = self.request.identities[place];
        let kind_place = self.domain.kinds.iter().position(|kind| *kind.name == *identity.kind())?;
        let kind = &self.domain.kinds[kind_place];
        let (tier, exception) = match kind.clients.find(identity.value()) {
            None => (None, None),
            Some(CompiledClient::OfTier(tier)) => (Some(*tier), None),
            Some(CompiledClient::Excepted(place)) => {
                let exception = kind.exceptions.get(*place as usize).and_then(Option::as_ref);
                (exception.and_then(|exception| exception.tier), exception)
            }
        };
        let hinted = || {
            let hint = self.request.tier.filter(|_| self.domain.tier_hint)?;
            Some(self.domain.tiers.iter().position(|(id, _)| **id == *hint)? as u32)
        };
        Some(ResolvedIdentity {
            kind: kind_place as u32,
            counted: CountedIdentities { identity: KeyHasher::identity(kind.hash, value), places: 1 << place },
            tier: tier.and_then(|tier| self.domain.place(tier)).or_else(hinted).or(kind.default_tier),
            exception: exception.filter(|exception| exception.until.is_none_or(|until| now < until)),
        })
    }

    fn add_tier(&mut self, known: &ResolvedIdentity<'s>) {
        let tier = known.tier.map_or(0..0, |tier| self.domain.tiers[tier as usize].1.clone());
        let own = match known.exception.map(|exception| &exception.grants) {
            None => 0..0,
            Some(Grants::Unlimited) => return,
            Some(Grants::Blocked(limit)) => {
                self.add(*limit, known.counted, self.cost);
                if !BEHIND_BLOCKS {
                    return;
                }
                0..0
            }
            Some(Grants::Limits(own)) => own.clone(),
        };
        let snapshot = self.snapshot;
        let id = |limit: u32| &*snapshot.limits[limit as usize].id;
        for limit in tier.clone() {
            let in_its_place = own.clone().find(|&own| id(own) == id(limit));
            self.add(in_its_place.unwrap_or(limit), known.counted, self.cost);
        }
        for addition in own.filter(|&own| !tier.clone().any(|limit| id(limit) == id(own))) {
            self.add(addition, known.counted, self.cost);
        }
    }

    /// Adds the limits of the closest rule of a set; with `exactly`, of those that name just these kinds.
    fn add_closest(
        &mut self,
        set: &'s RuleSet,
        path: Option<&str>,
        known: &[Option<ResolvedIdentity<'s>>],
        hasher: &KeyHasher,
        exactly: Option<u64>,
    ) {
        let is_exact = |rule: &CompiledRule| exactly.is_none_or(|kinds| rule.kinds == kinds);
        let value = |kind| self.value(kind, known);
        let closest = |rules: &'s RuleList| rules.closest(value, |rule| is_exact(rule) && self.accepts(rule, known));
        let Some(rule) = set.patterns.closest(path, closest) else { return };
        // In the order of the domain's kinds, so that the order of the request does not change the key.
        let counted = (0..self.domain.kinds.len() as u32)
            .filter(|kind| set.kinds & (1 << kind) != 0)
            .filter_map(|kind| known.iter().flatten().find(|known| known.kind == kind))
            .map(|known| known.counted);
        let together = |all: CountedIdentities, next: CountedIdentities| CountedIdentities {
            identity: hasher.and(all.identity, next.identity),
            places: all.places | next.places,
        };
        let counted =
            counted.reduce(together).unwrap_or(CountedIdentities { identity: IdentityHash::EVERYONE, places: 0 });
        for limit in rule.limits.clone() {
            self.add(limit, counted, self.cost.saturating_mul(rule.cost));
        }
    }

    fn accepts(&self, rule: &CompiledRule, known: &[Option<ResolvedIdentity<'s>>]) -> bool {
        let method = rule
            .method
            .as_deref()
            .is_none_or(|wanted| self.request.method.is_some_and(|method| method.eq_ignore_ascii_case(wanted)));
        let tier = || {
            rule.tiers.as_ref().is_none_or(|wanted| {
                known.iter().flatten().any(|known| known.tier.is_some_and(|tier| wanted.contains(&tier)))
            })
        };
        let holds =
            |(kind, matcher): &(u32, Matcher)| self.value(*kind, known).is_some_and(|value| matcher.matches(value));
        method && tier() && rule.condition.iter().all(holds)
    }

    /// Returns the value that the request has of a kind of the domain.
    fn value(&self, kind: u32, known: &[Option<ResolvedIdentity<'s>>]) -> Option<&'r str> {
        let place = known.iter().position(|known| known.is_some_and(|known| known.kind == kind))?;
        Some(self.request.identities[place].value())
    }

    fn add(&mut self, limit: u32, counted: CountedIdentities, cost: u64) {
        // Compilation refuses policies in which more limits could apply.
        let _ = self.plan.try_push(PlanEntry { limit, cost, identity: counted.identity, counted: counted.places });
    }
}
