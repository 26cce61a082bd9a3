//! A policy compiled for the hot path: which limits a request meets, and in which order.

use std::net::{IpAddr, Ipv6Addr};

use arrayvec::ArrayVec;
use rapidhash::RapidHashMap;

use crate::{
    algorithm::Meter,
    base::{
        address::{IP, network},
        hash::{IdentityHash, KeyHash, KeyHasher},
        time::Nanos,
    },
    policy::{
        document::{DescriptorSettings, Descriptors, DoorSettings, OnFailure, Sharing},
        matcher::{ClientMap, Matcher},
        path::{PathBuffer, PatternTree, made_plain},
        request::{IDENTITIES_MAX, Request},
        rule_list::{Rule, RuleList},
    },
};

/// The most limits that one request can meet. A policy in which more could meet is refused.
pub const PLAN_MAX: usize = 64;

/// The most kinds of identities that a domain can name.
pub(crate) const KINDS_MAX: usize = 64;

/// A policy, compiled. Immutable; made by `Snapshot::compile` or `Snapshot::parse`.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// Every limit of the policy; plans and owners name them by their place here.
    pub(crate) limits: Box<[CompiledLimit]>,
    pub(crate) domains: RapidHashMap<Box<str>, Domain>,
    /// Is any limit kept in a store?
    pub(crate) has_stored: bool,
}

/// Places in [`Snapshot::limits`].
pub(crate) type Limits = std::ops::Range<u32>;

#[derive(Clone, Debug)]
pub(crate) struct CompiledLimit {
    /// `DOMAIN/tier:ID/LIMIT`, `DOMAIN/rule:ID/LIMIT` or `DOMAIN/client:KIND:VALUE/LIMIT`.
    pub(crate) name: Box<str>,
    /// Its own id, the last part of the name.
    pub(crate) id: Box<str>,
    /// `None`: it admits nothing.
    pub(crate) meter: Option<Meter>,
    /// The length of its period; 0 for a block, which has none.
    pub(crate) period_ns: u64,
    /// The most tokens above the capacity that settlements may charge.
    pub(crate) max_debt: u64,
    /// Evaluated and counted, but it never denies.
    pub(crate) is_shadow: bool,
    /// Of a rule: the kinds that it counts together, as bits of their places in [`Domain::kinds`]. `None`: any one kind.
    pub(crate) kinds: Option<u64>,
    /// For a limit that nodes share through the store. `meter` and `max_debt` are then what counts on a node alone.
    pub(crate) stored: Option<Stored>,
}

impl CompiledLimit {
    /// Do its windows follow a calendar, which is that of a time zone?
    pub(crate) fn is_of_calendar(&self) -> bool {
        self.meter.is_some_and(|meter| meter.is_of_calendar())
    }
}

/// A limit that is kept in a store.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Stored {
    pub(crate) meter: Meter,
    pub(crate) max_debt: u64,
    pub(crate) sharing: Sharing,
    pub(crate) on_failure: OnFailure,
}

impl CompiledLimit {
    /// Full name of the tier, rule or client that it is of.
    pub(crate) fn owner_name(&self) -> &str {
        self.name.rsplit_once('/').map_or(&self.name, |(owner, _)| owner)
    }

    /// There may be a hundred thousand of those.
    pub(crate) fn is_of_a_client(&self) -> bool {
        self.name.split_once('/').is_some_and(|(_, owner)| owner.starts_with("client:"))
    }
}

#[derive(Debug)]
pub(crate) struct Domain {
    /// The most that one request can meet.
    pub(crate) most_limits: usize,
    /// Some limit is in shadow mode.
    pub(crate) has_shadow_limits: bool,
    pub(crate) tier_hint: bool,
    pub(crate) descriptors: DescriptorSettings,
    pub(crate) door: DoorSettings,
    /// Of calendar periods; UTC unless given.
    pub(crate) timezone: Option<Box<str>>,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) tiers: Vec<(Box<str>, Limits)>,
    /// The tiers that clients are of, by numbers that stay from one version to the next: where each is now.
    pub(crate) numbered: Vec<NumberedTier>,
    pub(crate) rule_sets: Vec<RuleSet>,
    /// Blocks of addresses that conditions of the rules name.
    pub(crate) named_blocks: ClientMap<()>,
}

#[derive(Debug)]
pub(crate) struct NumberedTier {
    pub(crate) id: Box<str>,
    /// Place in [`Domain::tiers`]; `None`: it is gone, and nobody is of it.
    pub(crate) place: Option<u32>,
}

/// A kind of identity that the domain speaks of.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) name: Box<str>,
    pub(crate) hash: u64,
    pub(crate) default_tier: Option<u32>,
    pub(crate) clients: ClientMap<Client>,
    /// Of its clients; `None`: free, for the next.
    pub(crate) exceptions: Vec<Option<Exception>>,
    /// By the number of a tier: its clients that have no exception.
    pub(crate) members: Vec<usize>,
}

/// Nothing of it changes with the tiers and limits of a policy, so most stay as they are from one version to the next.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Client {
    /// The number of its tier in [`Domain::numbered`].
    OfTier(u32),
    /// Its place in [`Kind::exceptions`].
    Excepted(u32),
}

#[derive(Clone, Debug)]
pub(crate) struct Exception {
    /// Of its client, by number.
    pub(crate) tier: Option<u32>,
    pub(crate) until: Option<Nanos>,
    pub(crate) grants: Grants,
}

#[derive(Clone, Debug)]
pub(crate) enum Grants {
    /// Denied, by a limit of its own that admits nothing.
    Blocked(u32),
    Unlimited,
    Limits(Limits),
}

/// The rules that count the same kinds. Only the closest of them applies to a request.
#[derive(Debug)]
pub(crate) struct RuleSet {
    /// Kinds that are counted together, as bits of their places in [`Domain::kinds`]; none: everyone together.
    pub(crate) kinds: u64,
    pub(crate) patterns: PatternTree<RuleList>,
}

/// One limit that a request meets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Charge {
    /// Place in [`Snapshot::limits`].
    pub(crate) limit: u32,
    pub(crate) identity: IdentityHash,
    pub(crate) cost: u64,
    /// The identities of the request that are counted together, as bits of their places.
    pub(crate) counted: u8,
}

impl Domain {
    /// Place of a tier that clients are of.
    pub(crate) fn place(&self, number: u32) -> Option<u32> {
        self.numbered.get(number as usize)?.place
    }
}

/// The limits that a request meets, in the order in which they are checked.
pub(crate) type Plan = ArrayVec<Charge, PLAN_MAX>;

/// What a limit counts: one identity or several together.
#[derive(Clone, Copy)]
struct Counted {
    identity: IdentityHash,
    /// Places in the request, as bits.
    places: u8,
}

/// What the domain knows of one identity of a request.
#[derive(Clone, Copy)]
struct Known<'s> {
    /// Place in [`Domain::kinds`].
    kind: u32,
    counted: Counted,
    tier: Option<u32>,
    exception: Option<&'s Exception>,
}

impl Snapshot {
    /// Full names of the policy's limits.
    #[must_use]
    pub fn limit_names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.limits.iter().map(|limit| &*limit.name)
    }

    /// Does this limit count each identity of `kind` by itself?
    pub(crate) fn counts(&self, limit: usize, kind: &str) -> bool {
        let CompiledLimit { name, kinds, .. } = &self.limits[limit];
        let Some(kinds) = kinds else { return true };
        let domain = name.split('/').next().and_then(|domain| self.domains.get(domain));
        let place = domain.and_then(|domain| domain.kinds.iter().position(|it| &*it.name == kind));
        place.is_some_and(|place| *kinds == 1 << place)
    }

    /// The most limits that one request can meet: how many keys it may need at once.
    #[must_use]
    pub fn most_limits_per_request(&self) -> usize {
        self.domains.values().map(|domain| domain.most_limits).max().unwrap_or(0)
    }

    /// What a domain asks of the doors; of one that the policy does not have, what is usual.
    #[must_use]
    pub fn door_settings(&self, domain: &str) -> DoorSettings {
        self.domains.get(domain).map(|domain| domain.door).unwrap_or_default()
    }

    /// Returns the bits of the network by which an IPv6 address is counted: `least`; or as many as the smallest block has that it is
    /// in, of those that clients and conditions of the domain name; or else so many that the network's first address is in no such
    /// block that the address is not in.
    pub(crate) fn counted_bits(&self, domain: &str, address: Ipv6Addr, least: u8) -> u8 {
        let Some(Domain { kinds, named_blocks, .. }) = self.domains.get(domain) else { return least };
        let clients = kinds.iter().find(|kind| *kind.name == *IP).map(|ip| &ip.clients);
        let named_bits = |address, least| {
            let of_clients = clients.map_or(0, |clients| clients.named_bits(address, least));
            of_clients.max(named_blocks.named_bits(address, least))
        };
        let mut bits = named_bits(address.into(), least).max(least);
        loop {
            let first = network(address.into(), bits);
            let differing = match first {
                IpAddr::V6(first) => (first.to_bits() ^ address.to_bits()).leading_zeros(),
                IpAddr::V4(_) => return bits,
            };
            if named_bits(first, bits) <= bits {
                return bits;
            }
            // The bit by which the address is not in that block.
            bits = u8::try_from(differing + 1).unwrap_or(u8::MAX).min(128);
        }
    }

    pub(crate) fn descriptor_settings(&self, domain: &str) -> DescriptorSettings {
        self.domains.get(domain).map(|domain| domain.descriptors).unwrap_or_default()
    }

    pub(crate) fn has_shadow_limits(&self, domain: &str) -> bool {
        self.domains.get(domain).is_some_and(|domain| domain.has_shadow_limits)
    }

    pub(crate) fn names_kind(&self, domain: &str, kind: &str) -> bool {
        self.domains.get(domain).is_some_and(|domain| domain.kinds.iter().any(|known| *known.name == *kind))
    }

    pub(crate) fn has_domain(&self, domain: &str) -> bool {
        self.domains.contains_key(domain)
    }

    /// Adds the limits that `request` meets at the wall time `now` to `plan`, which is empty: none in a domain that the policy does
    /// not have. A plan is kilobytes, so it is made where it stays.
    pub(crate) fn plan(&self, request: &Request<'_>, now: Nanos, hasher: &KeyHasher, plan: &mut Plan) {
        self.plan_for::<false>(request, now, hasher, plan);
    }

    /// The same with the limits that a block stands before: those of the tier, which count again once it ends.
    pub(crate) fn plan_behind_blocks(&self, request: &Request<'_>, now: Nanos, hasher: &KeyHasher, plan: &mut Plan) {
        self.plan_for::<true>(request, now, hasher, plan);
    }

    /// Reads what a plan for `request` will read first, and waits for nothing. The values of the identities should be at hand.
    pub(crate) fn fetch_clients(&self, request: &Request<'_>) {
        if let Some(domain) = self.domains.get(request.domain) {
            for kind in domain.kinds.iter().filter(|kind| kind.clients.len() > 0) {
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
    domain: &'s Domain,
    request: &'r Request<'r>,
    cost: u64,
    plan: &'r mut Plan,
}

impl<'s, 'r, const BEHIND_BLOCKS: bool> Planner<'s, 'r, BEHIND_BLOCKS> {
    fn run(mut self, now: Nanos, hasher: &KeyHasher) {
        let mut known = ArrayVec::<Option<Known<'s>>, IDENTITIES_MAX>::new();
        // All are hashed first, so that they come from memory together.
        let values: ArrayVec<KeyHash, IDENTITIES_MAX> =
            self.request.identities.iter().map(|identity| hasher.bytes(identity.value().as_bytes())).collect();
        known.extend(values.into_iter().enumerate().map(|(place, value)| self.look_up(place, value, now)));
        let mut buffer = PathBuffer::new();
        let path = self.request.endpoint.map(|endpoint| made_plain(endpoint, &mut buffer));
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

    /// One identity meets its tier; all of them the rules that name just these kinds, to count them or in conditions.
    fn run_exactly(mut self, known: &[Option<Known<'s>>], path: Option<&str>, hasher: &KeyHasher) {
        if let [Some(one)] = known {
            self.add_tier(one);
        }
        // No rule names a kind that the domain never speaks of.
        let kinds = known.iter().try_fold(0, |kinds, known| Some(kinds | 1 << (*known)?.kind));
        let Some(kinds) = kinds else { return };
        for set in self.domain.rule_sets.iter().filter(|set| set.kinds & !kinds == 0) {
            self.add_closest(set, path, known, hasher, Some(kinds));
        }
    }

    /// `None` for a kind that the domain never speaks of.
    fn look_up(&self, place: usize, value: KeyHash, now: Nanos) -> Option<Known<'s>> {
        let identity = self.request.identities[place];
        let kind_place = self.domain.kinds.iter().position(|kind| *kind.name == *identity.kind())?;
        let kind = &self.domain.kinds[kind_place];
        let (tier, exception) = match kind.clients.find(identity.value()) {
            None => (None, None),
            Some(Client::OfTier(tier)) => (Some(*tier), None),
            Some(Client::Excepted(place)) => {
                let exception = kind.exceptions.get(*place as usize).and_then(Option::as_ref);
                (exception.and_then(|exception| exception.tier), exception)
            }
        };
        let hinted = || {
            let hint = self.request.tier.filter(|_| self.domain.tier_hint)?;
            Some(self.domain.tiers.iter().position(|(id, _)| **id == *hint)? as u32)
        };
        Some(Known {
            kind: kind_place as u32,
            counted: Counted { identity: KeyHasher::identity(kind.hash, value), places: 1 << place },
            tier: tier.and_then(|tier| self.domain.place(tier)).or_else(hinted).or(kind.default_tier),
            exception: exception.filter(|exception| exception.until.is_none_or(|until| now < until)),
        })
    }

    fn add_tier(&mut self, known: &Known<'s>) {
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
        known: &[Option<Known<'s>>],
        hasher: &KeyHasher,
        exactly: Option<u64>,
    ) {
        let is_exact = |rule: &Rule| exactly.is_none_or(|kinds| rule.kinds == kinds);
        let value = |kind| self.value(kind, known);
        let closest = |rules: &'s RuleList| rules.closest(value, |rule| is_exact(rule) && self.accepts(rule, known));
        let Some(rule) = set.patterns.closest(path, closest) else { return };
        // In the order of the domain's kinds, so that the order of the request does not make another key.
        let counted = (0..self.domain.kinds.len() as u32)
            .filter(|kind| set.kinds & (1 << kind) != 0)
            .filter_map(|kind| known.iter().flatten().find(|known| known.kind == kind))
            .map(|known| known.counted);
        let together = |all: Counted, next: Counted| Counted {
            identity: hasher.and(all.identity, next.identity),
            places: all.places | next.places,
        };
        let counted = counted.reduce(together).unwrap_or(Counted { identity: IdentityHash::EVERYONE, places: 0 });
        for limit in rule.limits.clone() {
            self.add(limit, counted, self.cost.saturating_mul(rule.cost));
        }
    }

    fn accepts(&self, rule: &Rule, known: &[Option<Known<'s>>]) -> bool {
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
    fn value(&self, kind: u32, known: &[Option<Known<'s>>]) -> Option<&'r str> {
        let place = known.iter().position(|known| known.is_some_and(|known| known.kind == kind))?;
        Some(self.request.identities[place].value())
    }

    fn add(&mut self, limit: u32, counted: Counted, cost: u64) {
        // Compiling made sure that no request meets more.
        let _ = self.plan.try_push(Charge { limit, cost, identity: counted.identity, counted: counted.places });
    }
}
