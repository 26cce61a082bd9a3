//! A policy compiled for the hot path: its limits, and by domain the tiers, clients and rules that name them.

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
        document::{DescriptorSettings, DoorSettings, OnFailure, Sharing},
        pattern::PatternTree,
        rule_list::RuleList,
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

impl Domain {
    /// Place of a tier that clients are of.
    pub(crate) fn place(&self, number: u32) -> Option<u32> {
        self.numbered.get(number as usize)?.place
    }
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
}
