//! Compiles a policy document to a snapshot: resolves every name and checks every number. A document that compiles is valid.

mod previous;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, btree_map::Entry},
    iter,
};

use rapidhash::RapidHashMap;

use self::previous::Before;
use crate::{
    algorithm::NUMBER_MAX,
    base::{address::IP, hash::kind_hash, time::Nanos},
    policy::{
        client_map::ClientMap,
        compiled::{
            CompiledLimit, Domain, Exception, Grants, KINDS_MAX, Kind, Limits, NumberedTier, PLAN_MAX, RuleSet,
            Snapshot,
        },
        document::{
            self, ClientRef, DESCRIPTION_CHARACTERS_MAX, DescriptorPaths, DescriptorSettings, DoorSettings, EVERYONE,
            Per, Policy, TAGS_MAX, is_id,
        },
        error::{Problems, Report},
        limit_numbers::{LimitNumbers, numbers},
        matcher::Matcher,
        pattern::{Pattern, PatternTree},
        request::{IDENTITIES_MAX, VALUE_BYTES_MAX, is_kind},
        rule_list::{Rule, RuleList},
        specificity::Closeness,
        timezone::Zone,
    },
};

impl Snapshot {
    /// Compiles a policy, or says everything that is wrong with it.
    pub fn compile(policy: &Policy) -> Result<Self, Problems> {
        Self::of(policy.domains.iter().map(|(name, domain)| {
            let clients = domain.clients.iter().map(ClientRef::from);
            Source { name, domain, clients, before: None }
        }))
    }

    /// The same of a document that was read for this alone.
    #[cfg(feature = "serde")]
    pub fn compile_borrowed(policy: &document::borrowed::Policy<'_>) -> Result<Self, Problems> {
        Self::of(policy.domains.iter().map(|(name, of)| Source {
            name,
            domain: &of.domain,
            clients: of.clients(),
            before: None,
        }))
    }

    /// Compiles the document that differs by `delta` from the one that this is of. Clients that are as they were are shared:
    /// this takes as long as tiers, rules, overrides and what differs are long, whatever the number of other clients, but for
    /// the time in many in which the layers of clients are made one again.
    ///
    /// # Errors
    ///
    /// Where the document is wrong, or the delta is none of the document that this is of, as far as that is seen: whoever
    /// keeps deltas keeps what they are between, too.
    #[cfg(feature = "serde")]
    pub fn compile_delta(&self, delta: &document::borrowed::Delta<'_>) -> Result<Self, Problems> {
        Self::of(delta.policy.domains.iter().map(|(name, of)| {
            let of_before = |domain| Before { limits: &self.limits, domain, gone: delta.gone(name).collect() };
            let before = self.domains.get(name.as_str()).map(of_before);
            Source { name, domain: &of.domain, clients: of.clients(), before }
        }))
    }

    fn of<'p, C: Iterator<Item = ClientRef<'p>> + Clone>(
        each: impl ExactSizeIterator<Item = Source<'p, C>>,
    ) -> Result<Self, Problems> {
        let (mut found, mut limits) = (Vec::new(), Vec::new());
        let mut report = Report::new(&mut found);
        let mut domains = RapidHashMap::default();
        let mut under_domains = report.field("domains");
        if each.len() == 0 {
            under_domains.wrong("the policy has no domain; requests that name none are in `default`");
        }
        for Source { name, domain, clients, before } in each {
            let mut report = under_domains.field(name);
            check_id(&mut report, name);
            let zone = zone_of(&mut report, domain);
            let had = before.as_ref().map(|before| before.kinds(&mut report)).unwrap_or_default();
            let kinds = kinds_of(domain, clients.clone(), had);
            let compiler = Compiler { name, source: domain, clients, before, zone, limits: &mut limits, kinds };
            domains.insert(name.into(), compiler.run(&mut report));
        }
        let has_stored = limits.iter().any(|limit| limit.stored.is_some());
        if found.is_empty() { Ok(Self { limits: limits.into(), domains, has_stored }) } else { Err(Problems(found)) }
    }
}

/// A domain to be compiled.
struct Source<'p, C> {
    name: &'p str,
    domain: &'p document::Domain,
    /// Those of the domain, wherever they stand; beside `before` those that are new or other.
    clients: C,
    before: Option<Before<'p>>,
}

/// Compiles one domain. Goes on after a problem, to find all of them.
struct Compiler<'p, 'l, C> {
    name: &'p str,
    source: &'p document::Domain,
    clients: C,
    before: Option<Before<'p>>,
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
        let first_limit = self.limits.len();
        let tiers = self.tiers(report);
        let timezone = self.source.timezone.as_deref();
        let mut numbered = Vec::new();
        if let Some(before) = self.before.take() {
            // While exceptions still name their limits as they were before.
            before.check(report, &self.kinds, timezone);
            before.limits_go_on(&mut self.kinds, self.limits);
            numbered = before.tiers_go_on(report, &self.kinds, &tiers);
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
        let door = DoorSettings { on_error, headers, reset };
        let timezone = timezone.map(Into::into);
        let kinds = self.kinds;
        let conditions = rule_sets
            .iter()
            .flat_map(|set| set.patterns.each().flat_map(RuleList::iter))
            .flat_map(|rule| &rule.condition);
        let of_addresses = conditions.filter(|(kind, _)| *kinds[*kind as usize].name == *IP);
        let mut named_blocks = ClientMap::default();
        for block in of_addresses.filter_map(|(_, matcher)| matcher.block()) {
            named_blocks.insert(Matcher::Block(block), ());
        }
        let mut domain = Domain {
            tier_hint,
            descriptors: DescriptorSettings { descriptors, paths: descriptor_paths },
            door,
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

    fn tiers(&mut self, report: &mut Report<'_>) -> Vec<(Box<str>, Limits)> {
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

    /// `numbers` are those of tiers, by their places.
    fn clients(&mut self, report: &mut Report<'_>, numbers: &[u32]) {
        let is_free = |(place, exception): (usize, &Option<Exception>)| exception.is_none().then_some(place as u32);
        let places = |kind: &Kind| kind.exceptions.iter().enumerate().filter_map(is_free).collect();
        let mut free: Vec<Vec<u32>> = self.kinds.iter().map(places).collect();
        let (mut last_kind, mut last_tier) = (None, None);
        for (place, client) in self.clients.clone().enumerate() {
            let report = &mut report.item("clients", place);
            let kind = as_before(&mut last_kind, client.kind, |kind| self.kind(&mut report.field("kind"), kind));
            let tier = client
                .tier
                .and_then(|tier| as_before(&mut last_tier, tier, |tier| self.tier(&mut report.field("tier"), tier)))
                .map(|place| numbers[place as usize]);
            if client.tier.is_none() && client.exception.is_none() {
                report.wrong("a client needs a tier or an override");
            }
            check_tags(report, client.tags);
            let exception = client.exception.and_then(|exception| {
                let owner = format!("{}/client:{}:{}", self.name, client.kind, client.value);
                self.exception(&mut report.field("override"), &owner, tier, exception)
            });
            let matcher = matcher(&mut report.field("value"), client.kind, client.value);
            let (Some(place), Some(matcher)) = (kind, matcher) else { continue };
            let kind = &mut self.kinds[place as usize];
            let known = kind.joins(tier, exception, &mut free[place as usize]);
            if !kind.clients.insert(matcher, known) {
                report.field("value").wrong(format!("{} `{}` stands here twice", client.kind, client.value));
            }
        }
    }

    fn exception(
        &mut self,
        report: &mut Report<'_>,
        owner: &str,
        tier: Option<u32>,
        source: &document::Override,
    ) -> Option<Exception> {
        let until = source.until.as_ref().and_then(|until| instant(&mut report.field("until"), until));
        let limits = self.limits_of(report, owner, &source.limits);
        let grants = match (source.blocked, source.unlimited, source.limits.is_empty()) {
            (true, false, true) => {
                let name = format!("{owner}/blocked").into();
                self.limits.push(CompiledLimit {
                    name,
                    id: "blocked".into(),
                    meter: None,
                    period_ns: 0,
                    max_debt: 0,
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
        Some(Exception { tier, until, grants })
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
            if self.source.descriptor_paths == DescriptorPaths::Identity {
                Self::report_endpoint(report, source);
            }
            let kinds = self.counted_kinds(&mut report.field("per"), &source.per);
            let limits_before = self.limits.len();
            let rule = self.rule(report, source, kinds.unwrap_or_default());
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
            let rules = rules.into_iter().map(|(closeness, (_, rule))| (closeness.pattern, rule));
            let mut patterns = PatternTree::new(rules, RuleList::push);
            patterns.for_each_mut(RuleList::build_index);
            RuleSet { kinds, patterns }
        });
        compiled.collect()
    }

    /// Reports an endpoint or a method in a domain to whose descriptors a path is an identity: no descriptor would meet it.
    fn report_endpoint(report: &mut Report<'_>, source: &document::Rule) {
        let endpoint = Some(&source.endpoint).filter(|endpoint| *endpoint != "*");
        for (field, kind, value) in [("endpoint", "path", endpoint), ("method", "method", source.method.as_ref())] {
            if let Some(value) = value {
                report.field(field).wrong(format!(
                    "with `descriptor_paths = \"identity\"` a rule has none; write `where = {{ {kind} = \"{value}\" }}`"
                ));
            }
        }
    }

    fn rule(&mut self, report: &mut Report<'_>, source: &document::Rule, counted: u64) -> Rule {
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
        let kinds = condition.iter().fold(counted, |kinds, (kind, _)| kinds | 1 << kind);
        let owner = format!("{}/rule:{}", self.name, source.id);
        let limits = self.limits_of(report, &owner, &source.limits);
        Rule { kinds, method: source.method.as_deref().map(Into::into), tiers, condition, cost: source.cost, limits }
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

    fn limits_of(&mut self, report: &mut Report<'_>, owner: &str, limits: &[document::Limit]) -> Limits {
        let first = self.limits.len() as u32;
        let mut ids = HashSet::new();
        for (place, limit) in limits.iter().enumerate() {
            let report = &mut report.item("limits", place);
            check_id(&mut report.field("id"), &limit.id);
            check_unique(&mut report.field("id"), &mut ids, &limit.id, "limit");
            let LimitNumbers { meter, period_ns, max_debt, stored } = numbers(report, limit, &self.zone);
            let name = format!("{owner}/{}", limit.id).into();
            let is_shadow = limit.mode == document::Mode::Shadow;
            self.limits.push(CompiledLimit {
                name,
                id: limit.id.as_str().into(),
                meter,
                period_ns,
                max_debt,
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

/// The numbers of tiers by their places; new ones are given to those that have none.
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

/// The time zone of the domain's calendar periods.
fn zone_of(report: &mut Report<'_>, domain: &document::Domain) -> Zone {
    let named = domain.timezone.as_deref().map_or(Ok(Zone::UTC), Zone::named);
    named.unwrap_or_else(|why| {
        report.field("timezone").wrong(why);
        Zone::UTC
    })
}

/// Every kind that the domain names, in the order of their names: so the file's order makes no difference to any key. Those
/// that were there go on with the clients that they have.
fn kinds_of<'p>(
    domain: &'p document::Domain,
    clients: impl Iterator<Item = ClientRef<'p>>,
    had: Vec<Kind>,
) -> Vec<Kind> {
    let mut had: BTreeMap<Box<str>, Kind> = had.into_iter().map(|kind| (kind.name.clone(), kind)).collect();
    let per = |rule: &'p document::Rule| match &rule.per {
        Per::One(kind) => std::slice::from_ref(kind),
        Per::Each(kinds) => kinds,
    };
    let with_clients: Vec<_> =
        had.values().filter(|kind| kind.clients.len() > 0).map(|kind| kind.name.clone()).collect();
    let mut names: BTreeSet<&str> = domain.defaults.keys().map(String::as_str).collect();
    names.extend(with_clients.iter().map(|name| &**name));
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for (client, count) in runs(clients, |one, other| one.kind == other.kind) {
        *counts.entry(client.kind).or_default() += count;
    }
    names.extend(counts.keys());
    names
        .extend(domain.rules.iter().flat_map(|rule| per(rule).iter().chain(rule.condition.keys())).map(String::as_str));
    let new = |name: &str| Kind {
        hash: kind_hash(name),
        name: name.into(),
        default_tier: None,
        clients: ClientMap::with_room_for(name, counts.get(name).copied().unwrap_or(0)),
        exceptions: Vec::new(),
        members: Vec::new(),
    };
    let kind = |name: &str| had.remove(name).unwrap_or_else(|| new(name));
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

fn check_description(report: &mut Report<'_>, text: &str) {
    let characters = text.chars().count();
    if characters > DESCRIPTION_CHARACTERS_MAX {
        report.wrong(format!("{characters} characters; at most {DESCRIPTION_CHARACTERS_MAX} fit"));
    }
    if let Some(control) = text.chars().find(|character| character.is_control() && *character != '\n') {
        report.wrong(format!(
            "the control character U+{:04X} cannot be part of it; take it out (line feeds may stay)",
            u32::from(control)
        ));
    }
}

fn check_tags(report: &mut Report<'_>, tags: &[String]) {
    if tags.len() > TAGS_MAX {
        report.field("tags").wrong(format!("{} tags; at most {TAGS_MAX} fit", tags.len()));
    }
    let mut known = HashSet::new();
    for (place, tag) in tags.iter().enumerate() {
        let report = &mut report.item("tags", place);
        check_id(report, tag);
        check_unique(report, &mut known, tag, "tag");
    }
}

fn check_unique<'p>(report: &mut Report<'_>, ids: &mut HashSet<&'p str>, id: &'p str, what: &str) {
    if !ids.insert(id) {
        report.wrong(format!("another {what} here is called `{id}`"));
    }
}

/// The most limits that one request could meet: of its eight longest kinds, and of every set of rules.
fn most_limits(domain: &Domain, limits: &[CompiledLimit]) -> usize {
    let tier = |place: u32| domain.tiers[place as usize].1.clone();
    let numbered = |number: u32| domain.place(number).map_or(0..0, tier);
    let longest = domain.tiers.iter().map(|(_, limits)| limits.clone()).max_by_key(Limits::len);
    let id = |limit: u32| &limits[limit as usize].id;
    let of_kind = |kind: &Kind| {
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
