//! The comparison of a domain before and after a change: which limits apply to its tiers, clients and defaults, and which rule
//! replaces which.

use std::collections::{BTreeMap, BTreeSet};

use super::{accepts_all, finding::Finding, overlaps::overlaps};
use crate::policy::{
    document::{Client, Domain, Limit, Mode, Override, Rule, Tier},
    pattern::Pattern,
};

pub(super) fn is_enforced(limit: &Limit) -> bool {
    limit.mode == Mode::Enforce
}

/// The limits that apply to a tier, or to an identity by its tier and override.
pub(super) enum EffectiveLimits<'p> {
    Blocked,
    Unlimited,
    Limits(Vec<&'p Limit>),
}

impl<'p> EffectiveLimits<'p> {
    fn of_tier(tier: Option<&'p Tier>) -> Self {
        match tier {
            Some(tier) if !tier.unlimited => Self::Limits(tier.limits.iter().collect()),
            _ => Self::Unlimited,
        }
    }

    /// Returns the limits of a client: those of its override, if it has one, take the place of those of its tier.
    fn of_client(tier: Option<&'p Tier>, exception: Option<&'p Override>) -> Self {
        match exception {
            Some(Override { blocked: true, .. }) => Self::Blocked,
            Some(Override { unlimited: true, .. }) => Self::Unlimited,
            Some(Override { limits: own, .. }) => {
                let of_tier = tier.map(|tier| tier.limits.iter()).unwrap_or_default();
                let stays = of_tier.filter(|limit| own.iter().all(|other| other.id != limit.id));
                Self::Limits(stays.chain(own).collect())
            }
            None => Self::of_tier(tier),
        }
    }
}

/// One effect of a change on a tier, rule, client or domain.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Effect<Code> {
    pub(super) code: Code,
    pub(super) limit: Option<String>,
    pub(super) message: String,
}

impl<Code> Effect<Code> {
    pub(super) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, limit: None, message: message.into() }
    }

    pub(super) fn of_limit(limit: &Limit, code: Code, message: impl Into<String>) -> Self {
        Self { limit: Some(limit.id.clone()), ..Self::new(code, message) }
    }
}

/// A function that finds the effects where other limits apply after a change than before.
pub(super) type FindEffects<Code> = fn(&EffectiveLimits<'_>, &EffectiveLimits<'_>) -> Vec<Effect<Code>>;

/// Compares a domain before and after a change, and collects findings.
pub(super) struct DomainComparison<'p, 'f, Code> {
    pub(super) domain: &'p str,
    pub(super) before: &'p Domain,
    pub(super) after: &'p Domain,
    pub(super) found: &'f mut Vec<Finding<Code>>,
    pub(super) effects: FindEffects<Code>,
}

impl<'p, Code: Copy + Ord> DomainComparison<'p, '_, Code> {
    pub(super) fn add(&mut self, kind: &'static str, id: &str, effect: Effect<Code>, objects: usize) {
        let Effect { code, limit, message } = effect;
        let (domain, id) = (self.domain.to_owned(), id.to_owned());
        self.found.push(Finding { code, domain, kind, id, limit, objects, message });
    }

    pub(super) fn add_of_domain(&mut self, effect: Effect<Code>) {
        self.add("domain", self.domain, effect, 1);
    }

    /// Adds the effects on tiers that exist before and after.
    pub(super) fn compare_tiers(&mut self) {
        for tier in &self.before.tiers {
            let Some(now) = tier_of(self.after, &tier.id) else { continue };
            let [before, after] = [tier, now].map(|tier| EffectiveLimits::of_tier(Some(tier)));
            for effect in (self.effects)(&before, &after) {
                self.add("tier", &tier.id, effect, 1);
            }
        }
    }

    /// Adds the effects on clients whose tier or override changes; with `has_new`, also on clients that are new.
    ///
    /// A client that moves to another tier is meant to get its limits, so an effect on one limit is left out, unless the client
    /// has an override or its former tier is removed: its present tier may then be the former one by another name. A change of
    /// the tier itself is an effect on the tier. Clients with the same effect are one finding.
    pub(super) fn compare_clients(&mut self, has_new: bool) {
        let [old, new] = [self.before, self.after].map(|domain| -> BTreeMap<_, &Client> {
            domain.clients.iter().map(|client| ((client.kind.as_str(), client.value.as_str()), client)).collect()
        });
        let mut alike: BTreeMap<Effect<Code>, ((&str, &str), usize)> = BTreeMap::new();
        for id in old.keys().chain(new.keys().filter(|id| has_new && !old.contains_key(*id))) {
            let [was, is] = [&old, &new].map(|clients| clients.get(id).copied());
            let given = |client: Option<&'p Client>| client.map(|client| (&client.tier, &client.exception));
            if given(was) == given(is) {
                continue;
            }
            let [before, after] = [(self.before, was), (self.after, is)].map(|(domain, client)| {
                let tier = client.and_then(|client| client.tier.as_ref()).or_else(|| domain.defaults.get(id.0));
                let exception = client.and_then(|client| client.exception.as_ref());
                EffectiveLimits::of_client(self.tier(tier), exception)
            });
            let is_tier_gone =
                was.and_then(|client| client.tier.as_ref()).is_some_and(|id| tier_of(self.after, id).is_none());
            let has_limits = is_tier_gone || is.is_some_and(|client| client.exception.is_some());
            let effects = (self.effects)(&before, &after).into_iter();
            for effect in effects.filter(|effect| has_limits || effect.limit.is_none()) {
                alike.entry(effect).or_insert((*id, 0)).1 += 1;
            }
        }
        for (effect, ((kind, value), objects)) in alike {
            self.add("client", &format!("{kind}:{value}"), effect, objects);
        }
    }

    /// Adds the effects on identities without a tier of their own, where the default tier of their kind changes.
    pub(super) fn compare_defaults(&mut self) {
        let kinds: BTreeSet<&String> = self.before.defaults.keys().chain(self.after.defaults.keys()).collect();
        for kind in kinds {
            let [was, is] = [self.before, self.after].map(|domain| domain.defaults.get(kind));
            if was == is {
                continue;
            }
            let [was, is] = [was, is].map(|tier| EffectiveLimits::of_tier(self.tier(tier)));
            for mut effect in (self.effects)(&was, &is) {
                effect.message = format!("for each {kind} without a tier of its own: {}", effect.message);
                self.add_of_domain(effect);
            }
        }
    }

    /// Returns a tier as it is after the change, so that a change of the tier itself is no effect on its clients; as it was
    /// before if it is removed.
    fn tier(&self, id: Option<&String>) -> Option<&'p Tier> {
        id.and_then(|id| tier_of(self.after, id).or_else(|| tier_of(self.before, id)))
    }
}

fn tier_of<'p>(domain: &'p Domain, id: &str) -> Option<&'p Tier> {
    domain.tiers.iter().find(|tier| tier.id == id)
}

/// The rules of a domain after a change, by the rules before it.
pub(super) struct RulesAfter<'p> {
    domain: &'p Domain,
    by_id: BTreeMap<&'p str, &'p Rule>,
    /// Rules with new ids: one of them may be a removed rule by another name.
    new: Vec<&'p Rule>,
}

impl<'p> RulesAfter<'p> {
    pub(super) fn new(before: &Domain, after: &'p Domain) -> Self {
        let old: BTreeSet<&str> = before.rules.iter().map(|rule| rule.id.as_str()).collect();
        let new = after.rules.iter().filter(|rule| rule.enabled && !old.contains(rule.id.as_str())).collect();
        Self { domain: after, by_id: after.rules.iter().map(|rule| (rule.id.as_str(), rule)).collect(), new }
    }

    /// Returns the rule that `was` became, if it is still enabled.
    pub(super) fn successor(&self, was: &Rule) -> Option<&'p Rule> {
        let same = self.by_id.get(was.id.as_str()).or_else(|| self.new.iter().find(|rule| self.takes_all(rule, was)));
        same.copied().filter(|is| is.enabled)
    }

    /// Returns whether `is` matches every request that `was` matches. No identity is in a tier that is removed.
    pub(super) fn takes_all(&self, is: &Rule, was: &Rule) -> bool {
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
