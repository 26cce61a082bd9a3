//! Loosenings: where a change of the policy admits much more than before.

use std::collections::{BTreeMap, BTreeSet};

use super::{Warning, WarningCode, accepts_all, bounds::per_second, overlaps::overlaps};
use crate::policy::{
    document::{Client, Descriptors, Domain, Limit, Mode, OnError, OnFailure, Override, Policy, Rule, Sharing, Tier},
    explain::kinds,
    pattern::Pattern,
};

/// From here on it is much more: as many times as before.
const MUCH_MORE: f64 = 10.0;

/// Somewhere much more gets through than before.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub struct Loosening {
    /// How that comes.
    pub code: LooseningCode,
    /// The domain that it is in.
    pub domain: String,
    /// `tier`, `rule`, `client`, or `domain` for the settings of one.
    pub kind: &'static str,
    /// Of the tier or rule; `KIND:VALUE` of a client; the name of a domain.
    pub id: String,
    /// Where it is about one limit.
    pub limit: Option<String>,
    /// How many clients it is so for, of which `id` is the first; 1 for whatever is no client.
    pub objects: usize,
    /// What is otherwise, in words.
    pub message: String,
}

/// How it comes that more gets through.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum LooseningCode {
    /// Limits hold for it no longer.
    Unlimited,
    /// The rule, or the domain, is off or gone.
    Off,
    /// The rule is for fewer requests, or counts them in more parts.
    Narrowed,
    /// The rule takes requests out of a tighter one, which no longer counts them.
    Shadows,
    /// The limit is gone, and no other one stands in its place.
    Removed,
    /// The limit only counts.
    Shadow,
    /// The limit lets everything through where what nodes share cannot be reached.
    Open,
    /// Each node counts alone.
    Alone,
    /// The limit has ten times its rate, or more.
    Raised,
    /// The limit lets ten times as much through at once, or more.
    Burst,
    /// The client is no longer blocked.
    Unblocked,
    /// Checks that cannot be decided are allowed.
    OnError,
    /// Requests name the tier that they are in.
    TierHint,
    /// Descriptors of Envoy meet fewer rules, or others.
    Descriptors,
}

impl LooseningCode {
    /// As documents name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Unlimited => "unlimited",
            Self::Off => "off",
            Self::Narrowed => "narrowed",
            Self::Shadows => "shadows",
            Self::Removed => "removed",
            Self::Shadow => "shadow",
            Self::Open => "open",
            Self::Alone => "alone",
            Self::Raised => "raised",
            Self::Burst => "burst",
            Self::Unblocked => "unblocked",
            Self::OnError => "on_error",
            Self::TierHint => "tier_hint",
            Self::Descriptors => "descriptors",
        }
    }
}

impl Policy {
    /// Looks for what a change to `after` gives up: limits that go, that only count, or that let ten times as much through;
    /// rules that are off, for fewer requests, or beside a new one that is closer and allows more; a default tier of a kind, or an override, that allows so much more; clients
    /// that are no longer blocked or limited. Both policies are taken as valid. Of clients it looks at what the document says
    /// of them: where one goes that stood before a prefix or a block of addresses, the default of its kind is taken for what
    /// holds then.
    ///
    /// ```
    /// use tidegate::policy::Policy;
    ///
    /// let with = |limit: u64| -> Policy {
    ///     serde_json::from_str(&format!(r#"{{"domains": {{"default": {{"tiers": [{{"id": "free", "limits": [
    ///         {{"id": "minute", "algorithm": "token_bucket", "limit": {limit}, "period": "1m"}}
    ///     ]}}]}}}}}}"#)).unwrap()
    /// };
    /// assert!(with(60).loosened_by(&with(120)).is_empty());
    /// assert_eq!(with(60).loosened_by(&with(600))[0].message, "lets 10 times as much through");
    /// ```
    #[must_use]
    pub fn loosened_by(&self, after: &Policy) -> Vec<Loosening> {
        let mut found = Vec::new();
        for (name, before) in &self.domains {
            let mut change = Change { name, found: &mut found };
            match after.domains.get(name) {
                Some(after) => change.domain(before, after),
                None if is_limiting(before) => {
                    change.tell("domain", name, Loose::new(LooseningCode::Off, "is gone, with all of its limits"), 1);
                }
                None => {}
            }
        }
        let shadows =
            |policy: &Policy| policy.lint().into_iter().filter(|warning| warning.code == WarningCode::Shadows);
        let known: BTreeSet<Warning> = shadows(self).collect();
        found.extend(shadows(after).filter(|warning| !known.contains(warning)).map(|warning| {
            let Warning { domain, kind, id, limit, message, .. } = warning;
            Loosening { code: LooseningCode::Shadows, domain, kind, id, limit, objects: 1, message }
        }));
        found
    }
}

fn is_limiting(domain: &Domain) -> bool {
    let limits = domain.tiers.iter().flat_map(|tier| &tier.limits);
    limits.chain(domain.rules.iter().flat_map(|rule| &rule.limits)).any(is_enforced)
}

pub(super) fn is_enforced(limit: &Limit) -> bool {
    limit.mode == Mode::Enforce
}

/// What is looser, wherever it is.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Loose {
    code: LooseningCode,
    limit: Option<String>,
    message: String,
}

impl Loose {
    fn new(code: LooseningCode, message: impl Into<String>) -> Self {
        Self { code, limit: None, message: message.into() }
    }

    fn of(limit: &Limit, code: LooseningCode, message: impl Into<String>) -> Self {
        Self { limit: Some(limit.id.clone()), ..Self::new(code, message) }
    }
}

/// What holds for somebody.
pub(super) enum Held<'p> {
    Blocked,
    Unlimited,
    Limits(Vec<&'p Limit>),
}

impl<'p> Held<'p> {
    pub(super) fn by_tier(tier: Option<&'p Tier>) -> Self {
        match tier {
            Some(tier) if !tier.unlimited => Self::Limits(tier.limits.iter().collect()),
            _ => Self::Unlimited,
        }
    }

    /// By a client's override, where it has one, before its tier.
    fn by_client(tier: Option<&'p Tier>, made: Option<&'p Override>) -> Self {
        match made {
            Some(Override { blocked: true, .. }) => Self::Blocked,
            Some(Override { unlimited: true, .. }) => Self::Unlimited,
            Some(Override { limits: own, .. }) => {
                let of_tier = tier.map(|tier| tier.limits.iter()).unwrap_or_default();
                let stays = of_tier.filter(|limit| own.iter().all(|other| other.id != limit.id));
                Self::Limits(stays.chain(own).collect())
            }
            None => Self::by_tier(tier),
        }
    }

    fn loosened_by(&self, after: &Self) -> Vec<Loose> {
        match (self, after) {
            (Self::Unlimited, _) | (_, Self::Blocked) => Vec::new(),
            (Self::Blocked, _) => vec![Loose::new(LooseningCode::Unblocked, "is no longer blocked")],
            (Self::Limits(before), Self::Unlimited) if before.iter().any(|limit| is_enforced(limit)) => {
                vec![Loose::new(LooseningCode::Unlimited, "is no longer limited")]
            }
            (Self::Limits(_), Self::Unlimited) => Vec::new(),
            (Self::Limits(before), Self::Limits(after)) => limits_loosened(before, after, 1.0),
        }
    }
}

/// `cheaper` is how many times as many requests the same tokens are for.
fn limits_loosened(before: &[&Limit], after: &[&Limit], cheaper: f64) -> Vec<Loose> {
    let enforced = before.iter().filter(|limit| is_enforced(limit));
    enforced
        .flat_map(|was| match after.iter().find(|limit| limit.id == was.id) {
            Some(is) => limit_loosened(was, is, cheaper),
            None if after.iter().any(|limit| is_enforced(limit) && more(was, limit, cheaper).is_none()) => Vec::new(),
            None => vec![Loose::of(was, LooseningCode::Removed, "no longer has this limit")],
        })
        .collect()
}

fn limit_loosened(was: &Limit, is: &Limit, cheaper: f64) -> Vec<Loose> {
    if !is_enforced(is) {
        return vec![Loose::of(is, LooseningCode::Shadow, "no longer denies, it only counts")];
    }
    let mut found = Vec::new();
    if is.on_failure == Some(OnFailure::Open) && was.on_failure != is.on_failure && is.sharing != Sharing::Local {
        let message = "lets everything through when what nodes share cannot be reached";
        found.push(Loose::of(is, LooseningCode::Open, message));
    }
    if was.sharing != Sharing::Local && is.sharing == Sharing::Local {
        found.push(Loose::of(
            is,
            LooseningCode::Alone,
            "holds for each node alone, no longer for all of them together",
        ));
    }
    found.extend(more(was, is, cheaper).map(|(code, message)| Loose::of(is, code, message)));
    found
}

/// Does it let much more through than it did?
fn more(was: &Limit, is: &Limit, cheaper: f64) -> Option<(LooseningCode, String)> {
    let at_once = |limit: &Limit| limit.burst.unwrap_or(limit.limit) as f64;
    let times = |was: f64, is: f64| if was == 0.0 && is == 0.0 { 1.0 } else { is * cheaper / was };
    let (rate, burst) = (times(per_second(was)?, per_second(is)?), times(at_once(was), at_once(is)));
    if rate.is_infinite() {
        Some((LooseningCode::Raised, "lets through what it denied altogether".to_owned()))
    } else if rate >= MUCH_MORE {
        Some((LooseningCode::Raised, format!("lets {rate:.0} times as much through")))
    } else if burst >= MUCH_MORE {
        Some((LooseningCode::Burst, format!("lets {burst:.0} times as much through at once")))
    } else {
        None
    }
}

/// The objects of one domain before and after.
struct Change<'p, 'f> {
    name: &'p str,
    found: &'f mut Vec<Loosening>,
}

impl Change<'_, '_> {
    fn tell(&mut self, kind: &'static str, id: &str, loose: Loose, objects: usize) {
        let Loose { code, limit, message } = loose;
        let (domain, id) = (self.name.to_owned(), id.to_owned());
        self.found.push(Loosening { code, domain, kind, id, limit, objects, message });
    }

    fn domain(&mut self, before: &Domain, after: &Domain) {
        for tier in &before.tiers {
            let Some(now) = tier_of(after, &tier.id) else { continue };
            for loose in Held::by_tier(Some(tier)).loosened_by(&Held::by_tier(Some(now))) {
                self.tell("tier", &tier.id, loose, 1);
            }
        }
        let rules = RulesAfter::new(before, after);
        for rule in before.rules.iter().filter(|rule| rule.enabled && rule.limits.iter().any(is_enforced)) {
            for loose in rules.loosened(rule) {
                self.tell("rule", &rule.id, loose, 1);
            }
        }
        self.clients(before, after);
        self.settings(before, after);
    }

    fn settings(&mut self, before: &Domain, after: &Domain) {
        for (kind, was) in &before.defaults {
            let is = after.defaults.get(kind);
            if is == Some(was) {
                continue;
            }
            let [was, is] = [Some(was), is].map(|tier| Held::by_tier(tier_between(before, after, tier)));
            for mut loose in was.loosened_by(&is) {
                loose.message = format!("for each {kind} without a tier of its own: {}", loose.message);
                self.tell("domain", self.name, loose, 1);
            }
        }
        if before.on_error == OnError::Closed && after.on_error == OnError::Open {
            let message = "lets requests through when nothing can be decided";
            self.tell("domain", self.name, Loose::new(LooseningCode::OnError, message), 1);
        }
        if !before.tier_hint && after.tier_hint {
            let message = "lets requests name the tier that they are in";
            self.tell("domain", self.name, Loose::new(LooseningCode::TierHint, message), 1);
        }
        if before.descriptors == Descriptors::Subset && after.descriptors == Descriptors::Exact {
            let message = "lets descriptors of Envoy pass rules that name fewer kinds than they have";
            self.tell("domain", self.name, Loose::new(LooseningCode::Descriptors, message), 1);
        }
        if before.descriptor_paths != after.descriptor_paths {
            let message = "changes which rules descriptors of Envoy meet that have a path or a method";
            self.tell("domain", self.name, Loose::new(LooseningCode::Descriptors, message), 1);
        }
    }

    /// Those whose tier or override is otherwise. What a tier allows is what it is given for; told is who is limited no longer,
    /// and an override, or a tier in the place of one that is gone, that allows much more than held before. What changed of a tier is told once, of the tier.
    fn clients(&mut self, before: &Domain, after: &Domain) {
        let mut alike: BTreeMap<Loose, (ClientId<'_>, usize)> = BTreeMap::new();
        for ClientChange { id, was, is, held, holds } in clients_changed(before, after) {
            // Where its tier is gone, the one that it is in now may be that one by another name.
            let tier_is_gone =
                was.and_then(|client| client.tier.as_ref()).is_some_and(|id| tier_of(after, id).is_none());
            let is_told = tier_is_gone || is.is_some_and(|client| client.exception.is_some());
            for loose in held.loosened_by(&holds).into_iter().filter(|loose| is_told || loose.limit.is_none()) {
                alike.entry(loose).or_insert((id, 0)).1 += 1;
            }
        }
        for (loose, ((kind, value), objects)) in alike {
            self.tell("client", &format!("{kind}:{value}"), loose, objects);
        }
    }
}

/// Kind and value.
pub(super) type ClientId<'p> = (&'p str, &'p str);

/// A client whose tier or override is otherwise, and what holds for it then.
pub(super) struct ClientChange<'p> {
    pub(super) id: ClientId<'p>,
    pub(super) was: Option<&'p Client>,
    pub(super) is: Option<&'p Client>,
    pub(super) held: Held<'p>,
    pub(super) holds: Held<'p>,
}

pub(super) fn clients_changed<'p>(before: &'p Domain, after: &'p Domain) -> Vec<ClientChange<'p>> {
    fn ids(domain: &Domain) -> BTreeMap<ClientId<'_>, &Client> {
        domain.clients.iter().map(|client| ((client.kind.as_str(), client.value.as_str()), client)).collect()
    }
    let (old, new) = (ids(before), ids(after));
    let ids = old.keys().chain(new.keys().filter(|id| !old.contains_key(*id)));
    let changed = ids.filter_map(|id| {
        let [was, is] = [&old, &new].map(|clients| clients.get(id).copied());
        let given = |client: Option<&'p Client>| client.map(|client| (&client.tier, &client.exception));
        if given(was) == given(is) {
            return None;
        }
        let [held, holds] = [(before, was), (after, is)].map(|(domain, client)| {
            let own = client.and_then(|client| client.tier.as_ref()).or_else(|| domain.defaults.get(id.0));
            Held::by_client(tier_between(before, after, own), client.and_then(|client| client.exception.as_ref()))
        });
        Some(ClientChange { id: *id, was, is, held, holds })
    });
    changed.collect()
}

pub(super) fn tier_of<'p>(domain: &'p Domain, id: &str) -> Option<&'p Tier> {
    domain.tiers.iter().find(|tier| tier.id == id)
}

/// As it will be, so that a change of the tier itself is not told of whoever is given it; as it was where it goes.
pub(super) fn tier_between<'p>(before: &'p Domain, after: &'p Domain, id: Option<&String>) -> Option<&'p Tier> {
    id.and_then(|id| tier_of(after, id).or_else(|| tier_of(before, id)))
}

/// The rules of a domain after a change, and how those before are found among them.
pub(super) struct RulesAfter<'p> {
    domain: &'p Domain,
    by_id: BTreeMap<&'p str, &'p Rule>,
    /// That one which is gone may be, by another name.
    new: Vec<&'p Rule>,
}

impl<'p> RulesAfter<'p> {
    pub(super) fn new(before: &Domain, after: &'p Domain) -> Self {
        let old: BTreeSet<&str> = before.rules.iter().map(|rule| rule.id.as_str()).collect();
        let new = after.rules.iter().filter(|rule| rule.enabled && !old.contains(rule.id.as_str())).collect();
        Self { domain: after, by_id: after.rules.iter().map(|rule| (rule.id.as_str(), rule)).collect(), new }
    }

    /// What a rule is now, if it still limits something.
    pub(super) fn now(&self, was: &Rule) -> Option<&'p Rule> {
        let same = self.by_id.get(was.id.as_str()).or_else(|| self.new.iter().find(|rule| self.takes_all(rule, was)));
        same.copied().filter(|is| is.enabled)
    }

    fn loosened(&self, was: &Rule) -> Vec<Loose> {
        let Some(is) = self.now(was) else {
            return vec![Loose::new(LooseningCode::Off, "no longer limits anything")];
        };
        let [held, holds] = [was, is].map(|rule| rule.limits.iter().collect::<Vec<_>>());
        let mut found = limits_loosened(&held, &holds, was.cost as f64 / is.cost as f64);
        if !self.takes_all(is, was) {
            found.push(Loose::new(LooseningCode::Narrowed, "is no longer for all requests that it was for"));
        } else if !kinds(is).iter().all(|kind| kinds(was).contains(kind)) {
            found.push(Loose::new(LooseningCode::Narrowed, "counts apart what it counted together"));
        }
        found
    }

    /// Is `is` for every request that `was` is for? Tiers that are gone nobody is in.
    fn takes_all(&self, is: &Rule, was: &Rule) -> bool {
        let left =
            |tiers: &Vec<String>| tiers.iter().filter(|id| tier_of(self.domain, id).is_some()).cloned().collect();
        let was = Rule { tiers: was.tiers.as_ref().map(left), ..was.clone() };
        if !accepts_all(is, &was) {
            return false;
        }
        let patterns = [is, &was].map(|rule| Pattern::parse(&rule.endpoint).ok());
        let [Some(wide), Some(narrow)] = &patterns else { return false };
        overlaps([wide, narrow].into_iter(), &mut { usize::MAX })[0].contains(&1)
    }
}

#[cfg(all(test, not(engine_loom)))]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn policy(domain: &Value) -> Policy {
        serde_json::from_value(json!({ "domains": { "default": domain } })).expect("a policy")
    }

    fn limit(limit: u64, more: &Value) -> Value {
        let mut made = json!({ "id": "m", "algorithm": "token_bucket", "limit": limit, "period": "1m" });
        let fields = more.as_object().into_iter().flatten();
        fields.for_each(|(name, value)| made[name] = value.clone());
        made
    }

    fn tier(limits: &Value) -> Value {
        json!({ "tiers": [{ "id": "free", "limits": limits }] })
    }

    fn rule(more: &Value) -> Value {
        let mut made = json!({ "id": "r", "endpoint": "/a/*", "per": "user", "limits": [limit(60, &json!({}))] });
        let fields = more.as_object().into_iter().flatten();
        fields.for_each(|(name, value)| made[name] = value.clone());
        json!({ "rules": [made], "tiers": [{ "id": "free", "limits": [] }, { "id": "pro", "limits": [] }] })
    }

    /// As `KIND:ID/LIMIT CODE`, with how many there are of more than one.
    fn found(before: &Value, after: &Value) -> Vec<String> {
        let found = policy(before).loosened_by(&policy(after));
        let told = found.into_iter().map(|Loosening { code, kind, id, limit, objects, .. }| {
            let limit = limit.map(|limit| format!("/{limit}")).unwrap_or_default();
            let objects = if objects == 1 { String::new() } else { format!(" {objects}") };
            format!("{kind}:{id}{limit} {}{objects}", code.name())
        });
        told.collect()
    }

    #[test]
    fn of_limits() {
        let with = |number: u64, more: Value| tier(&json!([limit(number, &more)]));
        let now = with(60, json!({}));
        let cases = [
            (with(599, json!({})), ""),
            (with(600, json!({})), "raised"),
            (with(60, json!({ "period": "6s" })), "raised"),
            (with(600, json!({ "period": "10m" })), "burst"),
            (with(60, json!({ "burst": 600 })), "burst"),
            (with(60, json!({ "algorithm": "fixed_window", "period": "day" })), ""),
            (with(864_000, json!({ "algorithm": "fixed_window", "period": "day" })), "raised"),
            (with(60, json!({ "mode": "shadow" })), "shadow"),
            (with(60, json!({ "id": "other" })), ""),
            (with(600, json!({ "id": "other" })), "removed"),
            (with(60, json!({ "id": "other", "mode": "shadow" })), "removed"),
            (tier(&json!([])), "removed"),
            (json!({ "tiers": [{ "id": "free", "unlimited": true }] }), "unlimited"),
        ];
        for (after, expected) in cases {
            let of = if expected == "unlimited" { "tier:free" } else { "tier:free/m" };
            let expected: Vec<String> = expected.split_whitespace().map(|code| format!("{of} {code}")).collect();
            assert_eq!(found(&now, &after), expected, "{after}");
            assert_eq!(found(&after, &after), [""; 0], "nothing changed");
        }
        assert_eq!(found(&with(0, json!({})), &with(1, json!({}))), ["tier:free/m raised"]);
        assert_eq!(found(&with(60, json!({ "mode": "shadow" })), &with(6_000, json!({}))), [""; 0], "it never denied");
        let shared = |more: &Value| {
            let mut made = with(60, json!({ "sharing": "strict" }));
            let fields = more.as_object().into_iter().flatten();
            fields.for_each(|(name, value)| made["tiers"][0]["limits"][0][name] = value.clone());
            made
        };
        assert_eq!(found(&shared(&json!({})), &shared(&json!({ "on_failure": "open" }))), ["tier:free/m open"]);
        assert_eq!(found(&shared(&json!({})), &with(60, json!({}))), ["tier:free/m alone"]);
    }

    #[test]
    fn of_rules() {
        let now = rule(&json!({ "cost": 20 }));
        let cases = [
            (json!({}), "r/m raised"),
            (json!({ "cost": 3 }), ""),
            (json!({ "cost": 20, "enabled": false }), "r off"),
            (json!({ "cost": 20, "id": "s" }), ""),
            (json!({ "cost": 20, "id": "s", "endpoint": "/a" }), "r off"),
            (json!({ "cost": 20, "endpoint": "*" }), ""),
            (json!({ "cost": 20, "endpoint": "/a/b" }), "r narrowed"),
            (json!({ "cost": 20, "method": "GET" }), "r narrowed"),
            (json!({ "cost": 20, "where": { "ip": "10.*" } }), "r narrowed"),
            (json!({ "cost": 20, "per": "everyone" }), ""),
            (json!({ "cost": 20, "per": ["user", "ip"] }), "r narrowed"),
            (json!({ "cost": 20, "tiers": ["free"] }), "r narrowed"),
        ];
        for (more, expected) in cases {
            let expected: Vec<String> =
                (!expected.is_empty()).then(|| format!("rule:{expected}")).into_iter().collect();
            assert_eq!(found(&now, &rule(&more)), expected, "{more}");
        }
        let mut beside = now.clone();
        let closer = rule(&json!({ "id": "closer", "endpoint": "/a/b", "limits": [limit(6_000, &json!({}))] }));
        beside["rules"].as_array_mut().expect("a list").push(closer["rules"][0].clone());
        assert_eq!(found(&now, &beside), ["rule:closer shadows"]);
        assert_eq!(found(&beside, &beside), [""; 0]);
        let mut gone = rule(&json!({}));
        gone["rules"] = json!([]);
        assert_eq!(found(&now, &gone), ["rule:r off"]);
        assert_eq!(found(&rule(&json!({ "enabled": false })), &gone), [""; 0]);
        // A tier that is renamed takes its place.
        let mut renamed = rule(&json!({ "tiers": ["best"] }));
        renamed["tiers"][1]["id"] = json!("best");
        assert_eq!(found(&rule(&json!({ "tiers": ["pro"] })), &renamed), [""; 0]);
    }

    #[test]
    fn of_clients_and_domains() {
        let domain = |defaults: Value, clients: Value| {
            let tier = |id: &str, number: u64| json!({ "id": id, "limits": [limit(number, &json!({}))] });
            json!({ "defaults": defaults, "clients": clients, "tiers": [tier("free", 60), tier("pro", 6_000), { "id": "all", "unlimited": true }] })
        };
        let client = |value: &str, more: &Value| {
            let mut made = json!({ "kind": "user", "value": value });
            let fields = more.as_object().into_iter().flatten();
            fields.for_each(|(name, value)| made[name] = value.clone());
            made
        };
        let free = json!({ "user": "free" });
        let of = |more: Value| {
            domain(
                free.clone(),
                json!([client("ada", &more), client("bob", &more), client("cy", &json!({ "tier": "pro" }))]),
            )
        };
        let now = of(json!({ "tier": "free" }));
        let cases = [
            (of(json!({ "tier": "pro" })), vec![]),
            (of(json!({ "tier": "all" })), vec!["client:user:ada unlimited 2"]),
            (of(json!({ "label": "somebody" })), vec![]),
            (of(json!({ "override": { "unlimited": true } })), vec!["client:user:ada unlimited 2"]),
            (of(json!({ "override": { "limits": [limit(600, &json!({}))] } })), vec!["client:user:ada/m raised 2"]),
            (domain(free.clone(), json!([])), vec![]),
            (domain(json!({}), of(json!({ "tier": "free" }))["clients"].clone()), vec!["domain:default unlimited"]),
            (
                domain(json!({ "user": "pro" }), of(json!({ "tier": "free" }))["clients"].clone()),
                vec!["domain:default/m raised"],
            ),
        ];
        for (after, expected) in cases {
            assert_eq!(found(&now, &after), expected, "{after}");
        }
        let blocked = of(json!({ "override": { "blocked": true } }));
        assert_eq!(found(&blocked, &now), ["client:user:ada unblocked 2"]);
        assert_eq!(found(&blocked, &domain(free.clone(), json!([]))), ["client:user:ada unblocked 2"]);
        // It stays as it is, whatever becomes of its tier: that is told once.
        let mut wider = now.clone();
        wider["tiers"][0]["limits"][0]["limit"] = json!(600);
        assert_eq!(found(&now, &wider), ["tier:free/m raised"]);
        // Also by another name.
        let mut renamed = domain(json!({ "user": "big" }), json!([client("cy", &json!({ "tier": "huge" }))]));
        renamed["tiers"] = json!([
            { "id": "big", "limits": [limit(60, &json!({}))] }, { "id": "huge", "limits": [limit(60_000, &json!({}))] },
        ]);
        let one = domain(free.clone(), json!([client("cy", &json!({ "tier": "pro" }))]));
        assert_eq!(found(&one, &renamed), ["client:user:cy/m raised"]);
        let with = |name: &str, value: &Value| {
            let mut made = now.clone();
            made[name] = value.clone();
            made
        };
        assert_eq!(found(&with("on_error", &json!("closed")), &now), ["domain:default on_error"]);
        let subset = with("descriptors", &json!("subset"));
        assert_eq!(found(&subset, &now), ["domain:default descriptors"]);
        assert_eq!(found(&now, &subset), [""; 0]);
        let identity = with("descriptor_paths", &json!("identity"));
        assert_eq!([found(&identity, &now), found(&now, &identity)], [["domain:default descriptors"]; 2]);
        assert_eq!(found(&now, &with("tier_hint", &json!(true))), ["domain:default tier_hint"]);
        let none: Policy = serde_json::from_value(json!({ "domains": {} })).expect("a policy");
        assert_eq!(policy(&now).loosened_by(&none)[0].code, LooseningCode::Off);
    }
}
