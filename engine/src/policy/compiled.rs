//! The snapshot: a policy compiled for the hot path, with its limits, and the tiers, clients and rules of each domain.

use std::net::{IpAddr, Ipv6Addr};

use rapidhash::RapidHashMap;

use crate::{
    algorithm::Meter,
    base::{
        address::{IP, network},
        time::Nanos,
    },
    policy::{
        client_map::ClientMap,
        document::{DescriptorSettings, OnFailure, ResponseSettings, Sharing},
        pattern::PatternTree,
        rule_list::RuleList,
    },
};

/// The most limits that can apply to one request. A policy in which more could apply is refused.
pub const PLAN_MAX: usize = 64;

/// The most kinds of identity that a domain can name.
pub(crate) const KINDS_MAX: usize = 64;

/// An immutable compiled policy, made by `Snapshot::compile` or `Snapshot::parse`.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// Every limit of the policy; plans and owners refer to them by index.
    pub(crate) limits: Box<[CompiledLimit]>,
    pub(crate) domains: RapidHashMap<Box<str>, CompiledDomain>,
    /// Whether any limit is kept in a store.
    pub(crate) has_stored: bool,
}

/// A range of [`Snapshot::limits`].
pub(crate) type Limits = std::ops::Range<u32>;

#[derive(Clone, Debug)]
pub(crate) struct CompiledLimit {
    /// `DOMAIN/tier:ID/LIMIT`, `DOMAIN/rule:ID/LIMIT` or `DOMAIN/client:KIND:VALUE/LIMIT`.
    pub(crate) name: Box<str>,
    /// The limit's own id, the last part of the name.
    pub(crate) id: Box<str>,
    /// `None` for a limit that admits nothing.
    pub(crate) meter: Option<Meter>,
    /// The length of the period; 0 for a block, which has none.
    pub(crate) period_ns: u64,
    /// The most tokens above the capacity that settlements may charge.
    pub(crate) max_debt: u64,
    /// Whether the limit is evaluated and counted, but never denies.
    pub(crate) is_shadow: bool,
    /// The kinds that the limit of a rule counts together, as bits of their indices in [`CompiledDomain::kinds`]. `None`: any one kind.
    pub(crate) kinds: Option<u64>,
    /// The numbers in the store of a limit that nodes share. `meter` and `max_debt` then apply to a node that counts alone.
    pub(crate) stored: Option<StoredNumbers>,
}

/// The numbers of a limit that is kept in a store.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct StoredNumbers {
    pub(crate) meter: Meter,
    pub(crate) max_debt: u64,
    pub(crate) sharing: Sharing,
    pub(crate) on_failure: OnFailure,
}

impl CompiledLimit {
    /// Returns whether its windows follow the calendar of a time zone.
    pub(crate) fn is_of_calendar(&self) -> bool {
        self.meter.is_some_and(|meter| meter.is_of_calendar())
    }

    /// Returns the full name of the tier, rule or client that has this limit.
    pub(crate) fn owner_name(&self) -> &str {
        self.name.rsplit_once('/').map_or(&self.name, |(owner, _)| owner)
    }

    /// Returns whether a client has this limit: there may be a hundred thousand such limits.
    pub(crate) fn is_of_a_client(&self) -> bool {
        self.name.split_once('/').is_some_and(|(_, owner)| owner.starts_with("client:"))
    }
}

#[derive(Debug)]
pub(crate) struct CompiledDomain {
    /// The most limits that can apply to one request.
    pub(crate) most_limits: usize,
    /// Whether some limit is in shadow mode.
    pub(crate) has_shadow_limits: bool,
    pub(crate) tier_hint: bool,
    pub(crate) descriptors: DescriptorSettings,
    pub(crate) response_settings: ResponseSettings,
    /// The time zone of calendar periods; UTC unless given.
    pub(crate) timezone: Option<Box<str>>,
    pub(crate) kinds: Vec<DomainKind>,
    pub(crate) tiers: Vec<(Box<str>, Limits)>,
    /// The tiers of clients, by numbers that stay the same from one version to the next.
    pub(crate) numbered: Vec<NumberedTier>,
    pub(crate) rule_sets: Vec<RuleSet>,
    /// The blocks of addresses that conditions of the rules name.
    pub(crate) named_blocks: ClientMap<()>,
}

#[derive(Debug)]
pub(crate) struct NumberedTier {
    pub(crate) id: Box<str>,
    /// The index in [`CompiledDomain::tiers`]; `None` for a removed tier, which has no clients.
    pub(crate) place: Option<u32>,
}

/// A kind of identity that the domain names.
#[derive(Debug)]
pub(crate) struct DomainKind {
    pub(crate) name: Box<str>,
    pub(crate) hash: u64,
    pub(crate) default_tier: Option<u32>,
    pub(crate) clients: ClientMap<CompiledClient>,
    /// The overrides of its clients; `None` is a free slot.
    pub(crate) exceptions: Vec<Option<CompiledOverride>>,
    /// The number of clients without an override, by the number of their tier.
    pub(crate) members: Vec<usize>,
}

/// A compiled client. It does not change with the tiers and limits of a policy, so most stay the same from one version to the
/// next.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CompiledClient {
    /// A client with a tier only: the index in [`CompiledDomain::numbered`].
    OfTier(u32),
    /// A client with an override: the index in [`DomainKind::exceptions`].
    Excepted(u32),
}

#[derive(Clone, Debug)]
pub(crate) struct CompiledOverride {
    /// The number of the client's tier.
    pub(crate) tier: Option<u32>,
    pub(crate) until: Option<Nanos>,
    pub(crate) grants: Grants,
}

#[derive(Clone, Debug)]
pub(crate) enum Grants {
    /// Every request is denied, by this limit that admits nothing.
    Blocked(u32),
    Unlimited,
    Limits(Limits),
}

/// The rules that count the same kinds, of which only the closest applies to a request.
#[derive(Debug)]
pub(crate) struct RuleSet {
    /// The kinds that are counted together, as bits of their indices in [`CompiledDomain::kinds`]; 0: all identities together.
    pub(crate) kinds: u64,
    pub(crate) patterns: PatternTree<RuleList>,
}

impl CompiledDomain {
    /// Returns the index in [`CompiledDomain::tiers`] of a numbered tier.
    pub(crate) fn place(&self, number: u32) -> Option<u32> {
        self.numbered.get(number as usize)?.place
    }
}

impl Snapshot {
    /// Returns the full names of the policy's limits.
    #[must_use]
    pub fn limit_names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.limits.iter().map(|limit| &*limit.name)
    }

    /// Returns whether this limit counts each identity of `kind` by itself.
    pub(crate) fn counts(&self, limit: usize, kind: &str) -> bool {
        let CompiledLimit { name, kinds, .. } = &self.limits[limit];
        let Some(kinds) = kinds else { return true };
        let domain = name.split('/').next().and_then(|domain| self.domains.get(domain));
        let place = domain.and_then(|domain| domain.kinds.iter().position(|it| &*it.name == kind));
        place.is_some_and(|place| *kinds == 1 << place)
    }

    /// Returns the most limits that can apply to one request, which is the most keys that it needs at once.
    #[must_use]
    pub fn most_limits_per_request(&self) -> usize {
        self.domains.values().map(|domain| domain.most_limits).max().unwrap_or(0)
    }

    /// Returns the response settings of a domain; the defaults for one that the policy does not have.
    #[must_use]
    pub fn response_settings(&self, domain: &str) -> ResponseSettings {
        self.domains.get(domain).map(|domain| domain.response_settings).unwrap_or_default()
    }

    /// Returns the prefix length of the network by which an IPv6 address is counted. That is at least `least`, and at least the
    /// length of the smallest block with this address that clients and conditions of the domain name. It is longer where the
    /// network's first address would otherwise be in such a block that the address is not in.
    pub(crate) fn counted_prefix_bits(&self, domain: &str, address: Ipv6Addr, least: u8) -> u8 {
        let Some(CompiledDomain { kinds, named_blocks, .. }) = self.domains.get(domain) else { return least };
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
            // The first bit that keeps the address out of that block.
            bits = u8::try_from(differing + 1).unwrap_or(u8::MAX).min(128);
        }
    }
}
