//! Compiles a policy document, or a delta to the previous snapshot, to a snapshot: resolves every name and checks every number.
//! A document that compiles is valid.
//!
//! The files of the folder compile parts of a domain: `rules`, `kinds`, single fields (`checks`), and the clients of the
//! snapshot before (`previous`).

mod checks;
mod kinds;
mod previous;
mod rules;

use std::collections::HashSet;

use rapidhash::RapidHashMap;

use self::{
    checks::{check_description, check_id, check_tags, check_unique, read_instant, read_matcher},
    kinds::kinds_of,
    previous::PreviousDomain,
};
use crate::{
    base::address::IP,
    policy::{
        client_map::ClientMap,
        compiled::{
            CompiledDomain, CompiledLimit, CompiledOverride, DomainKind, Grants, KINDS_MAX, Limits, NumberedTier,
            PLAN_MAX, RuleSet, Snapshot,
        },
        document::{self, ClientRef, DescriptorSettings, EVERYONE, Policy, ResponseSettings},
        error::{ProblemCollector, Problems},
        limit_numbers::{CompiledNumbers, numbers},
        matcher::Matcher,
        request::{IDENTITIES_MAX, is_kind},
        rule_list::RuleList,
        timezone::Zone,
    },
};

impl Snapshot {
    /// Compiles a policy.
    ///
    /// # Errors
    ///
    /// Returns all problems of the policy.
    pub fn compile(policy: &Policy) -> Result<Self, Problems> {
        Self::of(policy.domains.iter().map(|(name, domain)| {
            let clients = domain.clients.iter().map(ClientRef::from);
            DomainSource { name, domain, clients, before: None }
        }))
    }

    /// Compiles a document whose clients are borrowed from its text.
    #[cfg(feature = "serde")]
    pub fn compile_borrowed(policy: &document::borrowed::Policy<'_>) -> Result<Self, Problems> {
        Self::of(policy.domains.iter().map(|(name, of)| DomainSource {
            name,
            domain: &of.domain,
            clients: of.clients(),
            before: None,
        }))
    }

    /// Compiles the document that `delta` makes of the one that this snapshot was compiled from.
    ///
    /// Unchanged clients are shared with this snapshot: the time depends on the tiers, rules, overrides and changes, not on the
    /// number of other clients, except when the layers of a client map are merged, which happens rarely.
    ///
    /// # Errors
    ///
    /// Returns the problems of the document, or that the delta does not fit this snapshot. Not every such mismatch is detected:
    /// callers must keep with each delta the versions that it is between.
    #[cfg(feature = "serde")]
    pub fn compile_delta(&self, delta: &document::borrowed::Delta<'_>) -> Result<Self, Problems> {
        Self::of(delta.policy.domains.iter().map(|(name, of)| {
            let of_before = |domain| PreviousDomain { limits: &self.limits, domain, gone: delta.gone(name).collect() };
            let before = self.domains.get(name.as_str()).map(of_before);
            DomainSource { name, domain: &of.domain, clients: of.clients(), before }
        }))
    }

    fn of<'p, C: Iterator<Item = ClientRef<'p>> + Clone>(
        each: impl ExactSizeIterator<Item = DomainSource<'p, C>>,
    ) -> Result<Self, Problems> {
        let (mut found, mut limits) = (Vec::new(), Vec::new());
        let mut report = ProblemCollector::new(&mut found);
        let mut domains = RapidHashMap::default();
        let mut under_domains = report.field("domains");
        if each.len() == 0 {
            under_domains.wrong("the policy has no domain; requests that name none are in `default`");
        }
        for DomainSource { name, domain, clients, before } in each {
            let mut report = under_domains.field(name);
            check_id(&mut report, name);
            let zone = zone_of(&mut report, domain);
            let previous = before.as_ref().map(|before| before.kinds(&mut report)).unwrap_or_default();
            let kinds = kinds_of(domain, clients.clone(), previous);
            let compiler = Compiler { name, source: domain, clients, before, zone, limits: &mut limits, kinds };
            domains.insert(name.into(), compiler.run(&mut report));
        }
        let has_stored = limits.iter().any(|limit| limit.stored.is_some());
        if found.is_empty() { Ok(Self { limits: limits.into(), domains, has_stored }) } else { Err(Problems(found)) }
    }
}

struct DomainSource<'p, C> {
    name: &'p str,
    domain: &'p document::Domain,
    /// The clients of the domain; with `before`, only those that are new or changed.
    clients: C,
    before: Option<PreviousDomain<'p>>,
}

/// Compiles one domain. It continues after a problem, to find all of them.
struct Compiler<'p, 'l, C> {
    name: &'p str,
    source: &'p document::Domain,
    clients: C,
    before: Option<PreviousDomain<'p>>,
    zone: Zone,
    limits: &'l mut Vec<CompiledLimit>,
    kinds: Vec<DomainKind>,
}

impl<'p, C: Iterator<Item = ClientRef<'p>> + Clone> Compiler<'p, '_, C> {
    fn run(mut self, report: &mut ProblemCollector<'_>) -> CompiledDomain {
        if self.kinds.len() > KINDS_MAX {
            report.wrong(format!("{} kinds of identities; a domain can speak of {KINDS_MAX}", self.kinds.len()));
            self.kinds.truncate(KINDS_MAX);
        }
        let first_limit = self.limits.len();
        let tiers = self.tiers(report);
        let timezone = self.source.timezone.as_deref();
        let mut numbered = Vec::new();
        if let Some(before) = self.before.take() {
            // Exceptions still refer to limits of the previous snapshot here.
            before.check_timezone(report, &self.kinds, timezone);
            before.copy_limits(&mut self.kinds, self.limits);
            numbered = before.renumber_tiers(report, &self.kinds, &tiers);
        }
        let numbers = number(&tiers, &mut numbered);
        for kind in &mut self.kinds {
            kind.members.resize(numbered.len(), 0);
        }
        for (kind, tier) in &self.source.defaults {
            let report = &mut report.field("defaults");
            let (kind, tier) = (self.kind(&mut report.field(kind), kind), self.tier(&mut report.field(kind), tier));
            if let Some(kind) = kind {
                self.kinds[kind as usize].default_tier = tier;
            }
        }
        self.clients(report, &numbers);
        let rule_sets = self.rule_sets(report);
        let document::Domain { tier_hint, descriptors, descriptor_paths, on_error, headers, reset, .. } = *self.source;
        let response_settings = ResponseSettings { on_error, headers, reset };
        let timezone = timezone.map(Into::into);
        let kinds = self.kinds;
        let named_blocks = named_blocks(&rule_sets, &kinds);
        let mut domain = CompiledDomain {
            tier_hint,
            descriptors: DescriptorSettings { descriptors, paths: descriptor_paths },
            response_settings,
            timezone,
            most_limits: 0,
            has_shadow_limits: self.limits[first_limit..].iter().any(|limit| limit.is_shadow),
            kinds,
            tiers,
            numbered,
            rule_sets,
            named_blocks,
        };
        let most = most_limits(&domain, self.limits);
        domain.most_limits = most;
        if most > PLAN_MAX {
            report.wrong(format!(
                "one request could meet {most} limits of this domain; at most {PLAN_MAX} fit: shorten the lists of limits"
            ));
        }
        domain
    }

    fn tiers(&mut self, report: &mut ProblemCollector<'_>) -> Vec<(Box<str>, Limits)> {
        let mut ids = HashSet::new();
        let mut tiers = Vec::new();
        for (place, tier) in self.source.tiers.iter().enumerate() {
            let report = &mut report.item("tiers", place);
            check_id(&mut report.field("id"), &tier.id);
            check_unique(&mut report.field("id"), &mut ids, &tier.id, "tier");
            check_description(&mut report.field("description"), tier.description.as_deref().unwrap_or_default());
            match (tier.limits.is_empty(), tier.unlimited) {
                (true, false) => report.wrong("a tier needs limits, or `unlimited = true`"),
                (false, true) => report.field("unlimited").wrong("a tier has limits or is unlimited, not both"),
                _ => {}
            }
            let owner = format!("{}/tier:{}", self.name, tier.id);
            tiers.push((tier.id.as_str().into(), self.limits_of(report, &owner, &tier.limits)));
        }
        tiers
    }

    /// Compiles the clients. `numbers` has the numbers of the tiers by their indices.
    fn clients(&mut self, report: &mut ProblemCollector<'_>, numbers: &[u32]) {
        let is_free =
            |(place, exception): (usize, &Option<CompiledOverride>)| exception.is_none().then_some(place as u32);
        let places = |kind: &DomainKind| kind.exceptions.iter().enumerate().filter_map(is_free).collect();
        let mut free: Vec<Vec<u32>> = self.kinds.iter().map(places).collect();
        let (mut last_kind, mut last_tier) = (None, None);
        for (place, client) in self.clients.clone().enumerate() {
            let report = &mut report.item("clients", place);
            let kind = cached_index(&mut last_kind, client.kind, |kind| self.kind(&mut report.field("kind"), kind));
            let tier = client
                .tier
                .and_then(|tier| cached_index(&mut last_tier, tier, |tier| self.tier(&mut report.field("tier"), tier)))
                .map(|place| numbers[place as usize]);
            if client.tier.is_none() && client.exception.is_none() {
                report.wrong("a client needs a tier or an override");
            }
            check_tags(report, client.tags);
            let exception = client.exception.and_then(|exception| {
                let owner = format!("{}/client:{}:{}", self.name, client.kind, client.value);
                self.exception(&mut report.field("override"), &owner, tier, exception)
            });
            let matcher = read_matcher(&mut report.field("value"), client.kind, client.value);
            let (Some(place), Some(matcher)) = (kind, matcher) else { continue };
            let kind = &mut self.kinds[place as usize];
            let known = kind.add_client(tier, exception, &mut free[place as usize]);
            if !kind.clients.insert(matcher, known) {
                report.field("value").wrong(format!("{} `{}` stands here twice", client.kind, client.value));
            }
        }
    }

    fn exception(
        &mut self,
        report: &mut ProblemCollector<'_>,
        owner: &str,
        tier: Option<u32>,
        source: &document::Override,
    ) -> Option<CompiledOverride> {
        let until = source.until.as_ref().and_then(|until| read_instant(&mut report.field("until"), until));
        let limits = self.limits_of(report, owner, &source.limits);
        let grants = match (source.blocked, source.unlimited, source.limits.is_empty()) {
            (true, false, true) => {
                self.add_limit(owner, "blocked", &CompiledNumbers::default(), false);
                Grants::Blocked(self.limits.len() as u32 - 1)
            }
            (false, true, true) => Grants::Unlimited,
            (false, false, false) => Grants::Limits(limits),
            _ => {
                report.wrong("an override is exactly one of `blocked = true`, `unlimited = true` and `limits`");
                return None;
            }
        };
        Some(CompiledOverride { tier, until, grants })
    }

    fn limits_of(&mut self, report: &mut ProblemCollector<'_>, owner: &str, limits: &[document::Limit]) -> Limits {
        let first = self.limits.len() as u32;
        let mut ids = HashSet::new();
        for (place, limit) in limits.iter().enumerate() {
            let report = &mut report.item("limits", place);
            check_id(&mut report.field("id"), &limit.id);
            check_unique(&mut report.field("id"), &mut ids, &limit.id, "limit");
            let numbers = numbers(report, limit, &self.zone);
            self.add_limit(owner, &limit.id, &numbers, limit.mode == document::Mode::Shadow);
        }
        first..self.limits.len() as u32
    }

    fn add_limit(&mut self, owner: &str, id: &str, numbers: &CompiledNumbers, is_shadow: bool) {
        let &CompiledNumbers { meter, period_ns, max_debt, stored } = numbers;
        let (name, id) = (format!("{owner}/{id}").into(), id.into());
        self.limits.push(CompiledLimit { name, id, meter, period_ns, max_debt, is_shadow, kinds: None, stored });
    }

    /// Returns the index of a kind.
    fn kind(&self, report: &mut ProblemCollector<'_>, name: &str) -> Option<u32> {
        if !is_kind(name) || name == EVERYONE {
            report.wrong(format!(
                "`{name}` is not a kind; such as ip, user or api_key: a-z, 0-9 and _, 32 characters at most"
            ));
            return None;
        }
        self.kinds.iter().position(|kind| *kind.name == *name).map(|place| place as u32)
    }

    fn tier(&self, report: &mut ProblemCollector<'_>, id: &str) -> Option<u32> {
        let place = self.source.tiers.iter().position(|tier| tier.id == id);
        if place.is_none() {
            let ids: Vec<&str> = self.source.tiers.iter().map(|tier| tier.id.as_str()).collect();
            let known =
                if ids.is_empty() { "there are none".to_owned() } else { format!("the tiers are {}", ids.join(", ")) };
            report.wrong(format!("no tier is called `{id}`; {known}"));
        }
        place.map(|place| place as u32)
    }
}

/// Returns the blocks of addresses that conditions of the rules name.
fn named_blocks(rule_sets: &[RuleSet], kinds: &[DomainKind]) -> ClientMap<()> {
    let rules = rule_sets.iter().flat_map(|set| set.patterns.each().flat_map(RuleList::iter));
    let mut blocks = ClientMap::default();
    for (kind, matcher) in rules.flat_map(|rule| &rule.condition) {
        if let Matcher::Block(block) = matcher
            && *kinds[*kind as usize].name == *IP
        {
            blocks.insert(Matcher::Block(*block), ());
        }
    }
    blocks
}

/// Returns the numbers of tiers by their indices, and adds numbers for new tiers.
fn number(tiers: &[(Box<str>, Limits)], numbered: &mut Vec<NumberedTier>) -> Vec<u32> {
    let each = (0..).zip(tiers).map(|(place, (id, _))| {
        let known = numbered.iter().position(|tier| tier.id == *id);
        let number = known.unwrap_or_else(|| {
            numbered.push(NumberedTier { id: id.clone(), place: Some(place) });
            numbered.len() - 1
        });
        number as u32
    });
    each.collect()
}

/// Returns the time zone of the domain's calendar periods.
fn zone_of(report: &mut ProblemCollector<'_>, domain: &document::Domain) -> Zone {
    let named = domain.timezone.as_deref().map_or(Ok(Zone::UTC), Zone::named);
    named.unwrap_or_else(|why| {
        report.field("timezone").wrong(why);
        Zone::UTC
    })
}

/// Returns the index of a name, searching only if the name differs from the last one.
fn cached_index<'p>(
    last: &mut Option<(&'p str, u32)>,
    name: &'p str,
    find: impl FnOnce(&'p str) -> Option<u32>,
) -> Option<u32> {
    if last.is_none_or(|(known, _)| known != name) {
        *last = Some((name, find(name)?));
    }
    last.map(|(_, place)| place)
}

/// Returns the most limits that could apply to one request: those of the eight kinds with the most, and of every set of rules.
fn most_limits(domain: &CompiledDomain, limits: &[CompiledLimit]) -> usize {
    let tier = |place: u32| domain.tiers[place as usize].1.clone();
    let numbered = |number: u32| domain.place(number).map_or(0..0, tier);
    let longest = domain.tiers.iter().map(|(_, limits)| limits.clone()).max_by_key(Limits::len);
    let id = |limit: u32| &limits[limit as usize].id;
    let of_kind = |kind: &DomainKind| {
        let default = kind.default_tier.map(tier);
        let unassigned = if domain.tier_hint { longest.clone().or(default) } else { default }.unwrap_or_default();
        let members = (0..).zip(&kind.members).filter(|(_, members)| **members > 0);
        let members = members.map(|(number, _)| numbered(number).len().max(1));
        let exceptions = kind.exceptions.iter().flatten().map(|exception| {
            let base = exception.tier.map_or_else(|| unassigned.clone(), numbered);
            let Grants::Limits(own) = &exception.grants else { return base.len().max(1) };
            base.len() + own.clone().filter(|&own| base.clone().all(|limit| id(limit) != id(own))).count()
        });
        members.chain(exceptions).max().unwrap_or(0).max(unassigned.len())
    };
    let mut by_kind: Vec<usize> = domain.kinds.iter().map(of_kind).collect();
    by_kind.sort_unstable_by(|a, b| b.cmp(a));
    let by_rules = domain
        .rule_sets
        .iter()
        .map(|set| set.patterns.each().flat_map(RuleList::iter).map(|rule| rule.limits.len()).max().unwrap_or(0));
    by_kind.iter().take(IDENTITIES_MAX).sum::<usize>() + by_rules.sum::<usize>()
}
