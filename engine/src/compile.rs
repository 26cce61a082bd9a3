//! From a policy document to a snapshot: every name resolved, every number checked. What compiles is right.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, btree_map::Entry},
    iter,
};

use rapidhash::RapidHashMap;

use crate::{
    algorithm::NUMBER_MAX,
    clients::{ClientMap, Matcher},
    closeness::Closeness,
    hash::kind_hash,
    limit::numbers,
    pattern::{Pattern, PatternTree},
    policy::{self, ClientRef, DoorSettings, EVERYONE, Per, Policy, is_id},
    problem::{Problems, Report},
    request::{IDENTITIES_MAX, VALUE_BYTES_MAX, is_kind},
    snapshot::{
        Client, CompiledLimit, Domain, Exception, Grants, KINDS_MAX, Kind, Limits, PLAN_MAX, Rule, RuleSet, Snapshot,
    },
    time::Nanos,
    zone::Zone,
};

impl Snapshot {
    /// Compiles a policy, or says everything that is wrong with it.
    pub fn compile(policy: &Policy) -> Result<Self, Problems> {
        Self::of(policy.domains.iter().map(|(name, domain)| (name, domain, domain.clients.iter().map(ClientRef::from))))
    }

    /// The same of a document that was read for this alone.
    #[cfg(feature = "serde")]
    pub fn compile_borrowed(policy: &policy::borrowed::Policy<'_>) -> Result<Self, Problems> {
        Self::of(policy.domains.iter().map(|(name, of)| (name, &of.domain, of.clients())))
    }

    /// Of domains, with their names and clients.
    fn of<'p, C: Iterator<Item = ClientRef<'p>> + Clone>(
        each: impl ExactSizeIterator<Item = (&'p String, &'p policy::Domain, C)>,
    ) -> Result<Self, Problems> {
        let (mut found, mut limits) = (Vec::new(), Vec::new());
        let mut report = Report::new(&mut found);
        let mut domains = RapidHashMap::default();
        let mut under_domains = report.field("domains");
        if each.len() == 0 {
            under_domains.wrong("the policy has no domain; requests that name none are in `default`");
        }
        for (name, domain, clients) in each {
            let mut report = under_domains.field(name);
            check_id(&mut report, name);
            let zone = zone_of(&mut report, domain);
            let kinds = kinds_of(domain, clients.clone());
            let compiler = Compiler { name, source: domain, clients, zone, limits: &mut limits, kinds };
            domains.insert(name.as_str().into(), compiler.run(&mut report));
        }
        if found.is_empty() { Ok(Self { limits: limits.into(), domains }) } else { Err(Problems(found)) }
    }
}

/// Compiles one domain. Goes on after a problem, to find all of them.
struct Compiler<'p, 'l, C> {
    name: &'p str,
    source: &'p policy::Domain,
    /// Those of the domain, wherever they stand.
    clients: C,
    zone: Zone,
    limits: &'l mut Vec<CompiledLimit>,
    kinds: Vec<Kind>,
}

impl<'p, C: Iterator<Item = ClientRef<'p>> + Clone> Compiler<'p, '_, C> {
    fn run(mut self, report: &mut Report<'_>) -> Domain {
        if self.kinds.len() > KINDS_MAX {
            report.wrong(format!("{} kinds of identities; a domain can speak of {KINDS_MAX}", self.kinds.len()));
            self.kinds.truncate(KINDS_MAX);
        }
        let tiers = self.tiers(report);
        for (kind, tier) in &self.source.defaults {
            let report = &mut report.field("defaults");
            let (kind, tier) = (self.kind(&mut report.field(kind), kind), self.tier(&mut report.field(kind), tier));
            if let Some(kind) = kind {
                self.kinds[kind as usize].default_tier = tier;
            }
        }
        self.clients(report);
        let rule_sets = self.rule_sets(report);
        let policy::Domain { tier_hint, on_error, headers, reset, .. } = *self.source;
        let door = DoorSettings { on_error, headers, reset };
        let mut domain = Domain { tier_hint, door, most_limits: 0, kinds: self.kinds, tiers, rule_sets };
        let most = most_limits(self.source, self.clients.clone(), &domain);
        domain.most_limits = most;
        if most > PLAN_MAX {
            report.wrong(format!(
                "one request could meet {most} limits of this domain; at most {PLAN_MAX} fit: shorten the lists of limits"
            ));
        }
        domain
    }

    fn tiers(&mut self, report: &mut Report<'_>) -> Vec<(Box<str>, Limits)> {
        let mut ids = HashSet::new();
        let mut tiers = Vec::new();
        for (place, tier) in self.source.tiers.iter().enumerate() {
            let report = &mut report.item("tiers", place);
            check_id(&mut report.field("id"), &tier.id);
            check_unique(&mut report.field("id"), &mut ids, &tier.id, "tier");
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

    fn clients(&mut self, report: &mut Report<'_>) {
        let (mut last_kind, mut last_tier) = (None, None);
        for (place, client) in self.clients.clone().enumerate() {
            let report = &mut report.item("clients", place);
            let kind = as_before(&mut last_kind, client.kind, |kind| self.kind(&mut report.field("kind"), kind));
            let tier = client
                .tier
                .and_then(|tier| as_before(&mut last_tier, tier, |tier| self.tier(&mut report.field("tier"), tier)));
            if client.tier.is_none() && client.exception.is_none() {
                report.wrong("a client needs a tier or an override");
            }
            let exception = client.exception.and_then(|exception| {
                let owner = format!("{}/client:{}:{}", self.name, client.kind, client.value);
                self.exception(&mut report.field("override"), &owner, exception).map(Box::new)
            });
            let matcher = matcher(&mut report.field("value"), client.kind, client.value);
            if let (Some(kind), Some(matcher)) = (kind, matcher)
                && !self.kinds[kind as usize].clients.insert(matcher, Client { tier, exception })
            {
                report.field("value").wrong(format!("{} `{}` stands here twice", client.kind, client.value));
            }
        }
    }

    fn exception(&mut self, report: &mut Report<'_>, owner: &str, source: &policy::Override) -> Option<Exception> {
        let until = source.until.as_ref().and_then(|until| instant(&mut report.field("until"), until));
        let limits = self.limits_of(report, owner, &source.limits);
        let grants = match (source.blocked, source.unlimited, source.limits.is_empty()) {
            (true, false, true) => {
                let name = format!("{owner}/blocked").into();
                self.limits.push(CompiledLimit {
                    name,
                    id: "blocked".into(),
                    meter: None,
                    is_shadow: false,
                    kinds: None,
                    stored: None,
                });
                Grants::Blocked(self.limits.len() as u32 - 1)
            }
            (false, true, true) => Grants::Unlimited,
            (false, false, false) => Grants::Limits(limits),
            _ => {
                report.wrong("an override is exactly one of `blocked = true`, `unlimited = true` and `limits`");
                return None;
            }
        };
        Some(Exception { until, grants })
    }

    fn rule_sets(&mut self, report: &mut Report<'_>) -> Vec<RuleSet> {
        let mut ids = HashSet::new();
        // By counted kinds, then by everything that makes one rule closer than another: the file's order is forgotten.
        let mut sets: BTreeMap<u64, BTreeMap<_, (&str, Rule)>> = BTreeMap::new();
        for (place, source) in self.source.rules.iter().enumerate() {
            let report = &mut report.item("rules", place);
            check_id(&mut report.field("id"), &source.id);
            check_unique(&mut report.field("id"), &mut ids, &source.id, "rule");
            let pattern = Pattern::parse(&source.endpoint).map_err(|why| report.field("endpoint").wrong(why)).ok();
            let kinds = self.counted_kinds(&mut report.field("per"), &source.per);
            let limits_before = self.limits.len();
            let rule = self.rule(report, source);
            if !source.enabled {
                // It was checked; its limits are not the policy's.
                self.limits.truncate(limits_before);
                continue;
            }
            let (Some(pattern), Some(kinds)) = (pattern, kinds) else { continue };
            for limit in &mut self.limits[limits_before..] {
                limit.kinds = Some(kinds);
            }
            let same = sets.entry(kinds).or_default();
            match same.entry(Closeness::new(pattern, source)) {
                Entry::Vacant(free) => drop(free.insert((&source.id, rule))),
                Entry::Occupied(taken) => report.field("endpoint").wrong(format!(
                    "rule `{}` has the same pattern, method, `per`, `tiers` and `where`",
                    taken.get().0
                )),
            }
        }
        // The tightest combination last: fewer kinds first.
        let mut sets: Vec<_> = sets.into_iter().collect();
        sets.sort_by_key(|(kinds, _)| kinds.count_ones());
        let compiled = sets.into_iter().map(|(kinds, rules)| {
            let mut patterns = PatternTree::default();
            for (closeness, (_, rule)) in rules {
                patterns.values(&closeness.pattern).push(rule);
            }
            RuleSet { kinds, patterns }
        });
        compiled.collect()
    }

    fn rule(&mut self, report: &mut Report<'_>, source: &policy::Rule) -> Rule {
        if source
            .method
            .as_ref()
            .is_some_and(|method| method.is_empty() || !method.bytes().all(|b| b.is_ascii_alphabetic()))
        {
            report.field("method").wrong("a method is letters, such as GET");
        }
        if source.limits.is_empty() {
            report.field("limits").wrong("a rule needs at least one limit");
        }
        if source.cost == 0 || source.cost > NUMBER_MAX {
            report.field("cost").wrong(format!("{} is out of range; from 1 to {NUMBER_MAX} fit", source.cost));
        }
        let tiers = source.tiers.as_ref().map(|tiers| {
            if tiers.is_empty() {
                report.field("tiers").wrong("an empty list would match nobody; leave it out to match every tier");
            }
            let each = tiers.iter().enumerate();
            each.filter_map(|(place, tier)| self.tier(&mut report.item("tiers", place), tier)).collect()
        });
        let mut condition = Vec::new();
        for (name, value) in &source.condition {
            let report = &mut report.field("where");
            let kind = self.kind(&mut report.field(name), name);
            let matcher = matcher(&mut report.field(name), name, value);
            condition.extend(kind.zip(matcher.map(Matcher::owned)));
        }
        let owner = format!("{}/rule:{}", self.name, source.id);
        let limits = self.limits_of(report, &owner, &source.limits);
        Rule { method: source.method.as_deref().map(Into::into), tiers, condition, cost: source.cost, limits }
    }

    fn counted_kinds(&mut self, report: &mut Report<'_>, per: &Per) -> Option<u64> {
        let kinds = match per {
            Per::One(everyone) if everyone == EVERYONE => return Some(0),
            Per::One(kind) => std::slice::from_ref(kind),
            Per::Each(kinds) if kinds.is_empty() => {
                report.wrong("an empty list counts nobody; write \"everyone\" to count all together");
                return None;
            }
            Per::Each(kinds) => kinds,
        };
        let mut set = 0;
        for kind in kinds {
            let bit = 1 << self.kind(report, kind)?;
            if set & bit != 0 {
                report.wrong(format!("`{kind}` stands here twice"));
            }
            set |= bit;
        }
        Some(set)
    }

    fn limits_of(&mut self, report: &mut Report<'_>, owner: &str, limits: &[policy::Limit]) -> Limits {
        let first = self.limits.len() as u32;
        let mut ids = HashSet::new();
        for (place, limit) in limits.iter().enumerate() {
            let report = &mut report.item("limits", place);
            check_id(&mut report.field("id"), &limit.id);
            check_unique(&mut report.field("id"), &mut ids, &limit.id, "limit");
            let (meter, stored) = numbers(report, limit, &self.zone);
            let name = format!("{owner}/{}", limit.id).into();
            let is_shadow = limit.mode == policy::Mode::Shadow;
            self.limits.push(CompiledLimit {
                name,
                id: limit.id.as_str().into(),
                meter,
                is_shadow,
                kinds: None,
                stored,
            });
        }
        first..self.limits.len() as u32
    }

    /// Place of a kind.
    fn kind(&self, report: &mut Report<'_>, name: &str) -> Option<u32> {
        if !is_kind(name) || name == EVERYONE {
            report.wrong(format!(
                "`{name}` is not a kind; such as ip, user or api_key: a-z, 0-9 and _, 32 characters at most"
            ));
            return None;
        }
        self.kinds.iter().position(|kind| *kind.name == *name).map(|place| place as u32)
    }

    fn tier(&self, report: &mut Report<'_>, id: &str) -> Option<u32> {
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

/// The time zone of the domain's calendar periods.
fn zone_of(report: &mut Report<'_>, domain: &policy::Domain) -> Zone {
    let named = domain.timezone.as_deref().map_or(Ok(Zone::UTC), Zone::named);
    named.unwrap_or_else(|why| {
        report.field("timezone").wrong(why);
        Zone::UTC
    })
}

/// Every kind that the domain names, in the order of their names: so the file's order makes no difference to any key.
fn kinds_of<'p>(domain: &'p policy::Domain, clients: impl Iterator<Item = ClientRef<'p>>) -> Vec<Kind> {
    let per = |rule: &'p policy::Rule| match &rule.per {
        Per::One(kind) => std::slice::from_ref(kind),
        Per::Each(kinds) => kinds,
    };
    let mut names: BTreeSet<&str> = domain.defaults.keys().map(String::as_str).collect();
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for (client, count) in runs(clients, |one, other| one.kind == other.kind) {
        *counts.entry(client.kind).or_default() += count;
    }
    names.extend(counts.keys());
    names
        .extend(domain.rules.iter().flat_map(|rule| per(rule).iter().chain(rule.condition.keys())).map(String::as_str));
    let kind = |name: &str| Kind {
        hash: kind_hash(name),
        name: name.into(),
        default_tier: None,
        clients: ClientMap::with_room_for(name, counts.get(name).copied().unwrap_or(0)),
    };
    names.into_iter().filter(|name| is_kind(name) && *name != EVERYONE).map(kind).collect()
}

/// Clients of which neighbours are mostly alike: the first of each run, and how many those are.
fn runs<'p>(
    clients: impl Iterator<Item = ClientRef<'p>>,
    is_like: impl Fn(&ClientRef<'p>, &ClientRef<'p>) -> bool,
) -> impl Iterator<Item = (ClientRef<'p>, usize)> {
    let mut clients = clients.peekable();
    iter::from_fn(move || {
        let first = clients.next()?;
        let mut count = 1;
        while clients.next_if(|next| is_like(&first, next)).is_some() {
            count += 1;
        }
        Some((first, count))
    })
}

/// The place of a name, looked for where it is not the last one again.
fn as_before<'p>(
    last: &mut Option<(&'p str, u32)>,
    name: &'p str,
    find: impl FnOnce(&'p str) -> Option<u32>,
) -> Option<u32> {
    if last.is_none_or(|(known, _)| known != name) {
        *last = Some((name, find(name)?));
    }
    last.map(|(_, place)| place)
}

fn matcher<'v>(report: &mut Report<'_>, kind: &str, value: &'v str) -> Option<Matcher<&'v str>> {
    if value.is_empty() || value.len() > VALUE_BYTES_MAX {
        report.wrong(format!("{} bytes; from 1 to {VALUE_BYTES_MAX} fit", value.len()));
        return None;
    }
    // Not every database can keep it, and no request is meant to send it.
    if value.contains('\0') {
        report.wrong("a NUL character cannot be part of a value".to_owned());
        return None;
    }
    Matcher::parse(kind, value).map_err(|why| report.wrong(why)).ok()
}

fn instant(report: &mut Report<'_>, text: &str) -> Option<Nanos> {
    let instant = text.parse::<jiff::Timestamp>().ok().and_then(|at| u64::try_from(at.as_nanosecond()).ok());
    if instant.is_none() {
        report.wrong(format!("`{text}` is not an instant; write RFC 3339, such as 2027-01-01T00:00:00Z"));
    }
    instant
}

fn check_id(report: &mut Report<'_>, id: &str) {
    if !is_id(id) {
        report
            .wrong(format!("`{id}` is not an id; begin with a-z, go on with a-z, 0-9, _ and -, 64 characters at most"));
    }
}

fn check_unique<'p>(report: &mut Report<'_>, ids: &mut HashSet<&'p str>, id: &'p str, what: &str) {
    if !ids.insert(id) {
        report.wrong(format!("another {what} here is called `{id}`"));
    }
}

/// The most limits that one request could meet: of its eight longest kinds, and of every set of rules.
fn most_limits<'p>(source: &policy::Domain, clients: impl Iterator<Item = ClientRef<'p>>, domain: &Domain) -> usize {
    let tier = |id: &str| source.tiers.iter().find(|tier| tier.id == *id);
    let longest = source.tiers.iter().max_by_key(|tier| tier.limits.len());
    let mut by_kind: HashMap<&str, usize> = HashMap::new();
    let mut meets = |kind, count: usize| {
        let most = by_kind.entry(kind).or_default();
        *most = count.max(*most);
    };
    let unassigned = |kind: &Kind| {
        let default = source.defaults.get(&*kind.name).and_then(|id| tier(id));
        if source.tier_hint { longest.or(default) } else { default }
    };
    for kind in &domain.kinds {
        meets(&*kind.name, unassigned(kind).map_or(0, |tier| tier.limits.len()));
    }
    let is_like = |one: &ClientRef<'_>, other: &ClientRef<'_>| {
        one.exception.is_none() && other.exception.is_none() && (one.kind, one.tier) == (other.kind, other.tier)
    };
    for (client, _) in runs(clients, is_like) {
        let kind = domain.kinds.iter().find(|kind| *kind.name == *client.kind);
        let base = client.tier.map_or_else(|| kind.and_then(unassigned), tier);
        let base: &[policy::Limit] = base.map_or(&[], |tier| &tier.limits);
        let own: &[policy::Limit] = client.exception.map_or(&[], |exception| &exception.limits);
        let added = own.iter().filter(|own| base.iter().all(|limit| limit.id != own.id)).count();
        meets(client.kind, (base.len() + added).max(1));
    }
    let mut by_kind: Vec<usize> = by_kind.into_values().collect();
    by_kind.sort_unstable_by(|a, b| b.cmp(a));
    let by_rules =
        domain.rule_sets.iter().map(|set| set.patterns.each().map(|rule| rule.limits.len()).max().unwrap_or(0));
    by_kind.iter().take(IDENTITIES_MAX).sum::<usize>() + by_rules.sum::<usize>()
}
