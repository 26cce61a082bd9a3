//! The lint: warns of parts of a valid policy that are probably mistakes, such as rules that never match, limits that can never
//! bind beside a tighter one, and patterns that take requests away from a tighter rule.
//!
//! The files of the folder also compare two policies: `loosening` finds what a change admits, `newly_enforced` what it begins to
//! deny. `comparison` has the code that both share, and `finding` the type of all results.

mod bounds;
mod comparison;
mod finding;
mod loosening;
mod newly_enforced;
mod overlaps;

use std::collections::{BTreeMap, BTreeSet};

pub use self::finding::{Finding, LooseningCode, NewlyEnforcedCode, WarningCode};
use self::{
    bounds::{admits_more, bounds},
    overlaps::overlaps,
};
use crate::policy::{
    document::{Domain, Limit, Mode, Policy, Rule},
    explain::kinds,
    matcher::Matcher,
    pattern::Pattern,
    specificity::Specificity,
};

/// The most overlaps of patterns that the lint examines in a domain, which bounds its time: a hundred rules for every path beside
/// ten thousand others have as many.
const OVERLAPS_MAX: usize = 1 << 20;

impl Policy {
    /// Finds parts of the policy that are probably mistakes. The policy must be valid. If the patterns of its rules overlap in more
    /// than a million ways, some findings about pairs of rules are missing.
    ///
    /// ```
    /// use tidegate::policy::Policy;
    ///
    /// let policy: Policy = serde_json::from_str(r#"{"domains": {"default": {"defaults": {"user": "free"}, "tiers": [{"id": "free", "limits": [
    ///     {"id": "minute", "algorithm": "sliding_window_log", "limit": 60, "period": "1m"},
    ///     {"id": "hour", "algorithm": "fixed_window", "limit": 5000, "period": "1h"}
    /// ]}]}}}"#).unwrap();
    /// assert_eq!(policy.lint()[0].limit.as_deref(), Some("hour"), "60 a minute are at most 3,660 in an hour");
    /// ```
    #[must_use]
    pub fn lint(&self) -> Vec<Finding<WarningCode>> {
        let mut found = Vec::new();
        for (name, domain) in &self.domains {
            Lint { name, domain, found: &mut found }.run();
        }
        found
    }
}

struct Lint<'p> {
    name: &'p str,
    domain: &'p Domain,
    found: &'p mut Vec<Finding<WarningCode>>,
}

impl<'p> Lint<'p> {
    fn run(mut self) {
        let domain = self.domain;
        let in_use: BTreeSet<&str> = domain
            .defaults
            .values()
            .map(String::as_str)
            .chain(domain.clients.iter().filter_map(|client| client.tier.as_deref()))
            .collect();
        let overrides = domain.clients.iter().filter_map(|client| client.exception.as_ref());
        let replaced: BTreeSet<&str> = overrides.flat_map(|made| &made.limits).map(|limit| limit.id.as_str()).collect();
        let tiers_by_kind = self.tiers_by_kind();
        let may_be_in = |tier: &str| domain.tier_hint || in_use.contains(tier);
        for tier in &domain.tiers {
            if !may_be_in(&tier.id) {
                let message = "no kind has it as its default, and no client is in it";
                self.warn(WarningCode::UnusedTier, "tier", &tier.id, None, message.to_owned());
            }
            // An override of some client may replace the limit.
            let stays = |limit: &Limit| !replaced.contains(limit.id.as_str());
            self.warn_of_bounded_limits("tier", &tier.id, &tier.limits, stays);
        }
        for rule in &domain.rules {
            self.warn_of_bounded_limits("rule", &rule.id, &rule.limits, |_| true);
            if rule.tiers.as_ref().is_some_and(|tiers| !tiers.iter().any(|tier| may_be_in(tier))) {
                let message = "it is for tiers that nobody can be in";
                self.warn(WarningCode::NeverMatches, "rule", &rule.id, None, message.to_owned());
            }
            self.warn_of_limits_bounded_by_tiers(rule, &tiers_by_kind);
        }
        self.warn_of_hidden_rules();
        for client in &domain.clients {
            let Some(made) = &client.exception else { continue };
            let id = format!("{}:{}", client.kind, client.value);
            self.warn_of_bounded_limits("client", &id, &made.limits, |_| true);
            if made.until.is_none() {
                let message = "its override has no end";
                self.warn(WarningCode::NoEnd, "client", &id, None, message.to_owned());
            }
        }
    }

    fn warn(&mut self, code: WarningCode, kind: &'static str, id: &str, limit: Option<&Limit>, message: String) {
        self.found.push(Finding {
            code,
            domain: self.name.to_owned(),
            kind,
            id: id.to_owned(),
            limit: limit.map(|limit| limit.id.clone()),
            objects: 1,
            message,
        });
    }

    /// Warns of limits that a neighbour in their list bounds, since both count the same requests. Of two limits that bound each
    /// other, the later has the warning.
    fn warn_of_bounded_limits(
        &mut self,
        kind: &'static str,
        id: &str,
        limits: &[Limit],
        stays: impl Fn(&Limit) -> bool,
    ) {
        for (place, limit) in limits.iter().enumerate() {
            let bounds = |&(other, by): &(usize, &Limit)| {
                other != place && stays(by) && bounds(by, limit, 1) && (other < place || !bounds(limit, by, 1))
            };
            if let Some((_, by)) = limits.iter().enumerate().find(bounds) {
                let message = format!("it never denies what `{}` lets through", by.id);
                self.warn(WarningCode::NeverBinds, kind, id, Some(limit), message);
            }
        }
    }

    /// Returns the tiers that identities of a kind can be in, for the kinds without overrides.
    fn tiers_by_kind(&self) -> BTreeMap<&'p str, BTreeSet<&'p str>> {
        let domain = self.domain;
        if domain.tier_hint {
            return BTreeMap::new();
        }
        let defaults = domain.defaults.iter().map(|(kind, tier)| (kind.as_str(), BTreeSet::from([tier.as_str()])));
        let mut tiers: BTreeMap<_, _> = defaults.collect();
        for client in &domain.clients {
            let kind = client.kind.as_str();
            match (&client.exception, &client.tier, tiers.get_mut(kind)) {
                (Some(_), ..) => drop(tiers.remove(kind)),
                (None, Some(tier), Some(of_kind)) => drop(of_kind.insert(tier)),
                _ => {}
            }
        }
        tiers
    }

    /// Warns of limits of a rule for one kind that the tiers of that kind bound: the rule counts a part of what the tiers admit.
    fn warn_of_limits_bounded_by_tiers(&mut self, rule: &Rule, tiers_by_kind: &BTreeMap<&str, BTreeSet<&str>>) {
        let (domain, kinds) = (self.domain, kinds(rule));
        let &[kind] = kinds.as_slice() else { return };
        let Some(tiers) = tiers_by_kind.get(kind) else { return };
        for limit in &rule.limits {
            let bound = |id: &str| {
                let tier = domain.tiers.iter().find(|tier| tier.id == id);
                tier.is_some_and(|tier| tier.limits.iter().any(|by| bounds(by, limit, rule.cost)))
            };
            if tiers.iter().all(|tier| bound(tier)) {
                let message = format!("it never denies what the tiers of `{kind}` let through");
                self.warn(WarningCode::NeverBinds, "rule", &rule.id, Some(limit), message);
            }
        }
    }

    /// Warns of rules that hide each other: of the rules that count the same kinds, only the closest applies.
    fn warn_of_hidden_rules(&mut self) {
        let mut by_kinds: BTreeMap<Vec<&str>, Vec<(&Rule, Specificity<'_>)>> = BTreeMap::new();
        for rule in self.domain.rules.iter().filter(|rule| rule.enabled) {
            let Ok(pattern) = Pattern::parse(&rule.endpoint) else { continue };
            by_kinds.entry(kinds(rule)).or_default().push((rule, Specificity::new(pattern, rule)));
        }
        let mut left = OVERLAPS_MAX;
        for rules in by_kinds.values() {
            let overlaps = overlaps(rules.iter().map(|(_, specificity)| &specificity.pattern), &mut left);
            for ((wide, specificity), below) in rules.iter().zip(overlaps) {
                let closer = below.iter().map(|place| &rules[*place]).filter(|(_, other)| other < specificity);
                self.compare_with_closer_rules(wide, specificity, closer);
            }
        }
    }

    /// Warns of `wide` or of rules in `closer`. Those are closer than `wide` to each of their requests, and `wide` matches all of
    /// their paths.
    fn compare_with_closer_rules<'r>(
        &mut self,
        wide: &Rule,
        specificity: &Specificity<'_>,
        closer: impl Iterator<Item = &'r (&'r Rule, Specificity<'r>)> + Clone,
    ) {
        // A pattern that covers another is less specific, or the same.
        let mut same = closer.clone().filter(|(_, other)| other.pattern == specificity.pattern);
        if let Some((rule, _)) = same.find(|(rule, _)| accepts_all(rule, wide)) {
            let message = format!("rule `{}` is closer to every request that it is for", rule.id);
            self.warn(WarningCode::NeverMatches, "rule", &wide.id, None, message);
            return;
        }
        for (rule, _) in closer.filter(|(rule, _)| accepts_all(wide, rule)) {
            let mut enforced = wide.limits.iter().filter(|limit| limit.mode == Mode::Enforce);
            let escaped = enforced.find(|limit| admits_more(&rule.limits, rule.cost, limit, wide.cost));
            if let Some(limit) = escaped {
                let message = format!(
                    "its requests are no longer counted by rule `{}`, and it allows more than `{}` there",
                    wide.id, limit.id
                );
                self.warn(WarningCode::ShadowsRule, "rule", &rule.id, None, message);
            }
        }
    }
}

/// Returns whether `wide` accepts every request that `narrow` accepts, apart from the path.
fn accepts_all(wide: &Rule, narrow: &Rule) -> bool {
    let method = match (&wide.method, &narrow.method) {
        (None, _) => true,
        (Some(wide), Some(narrow)) => wide.eq_ignore_ascii_case(narrow),
        (Some(_), None) => false,
    };
    let tiers = match (&wide.tiers, &narrow.tiers) {
        (None, _) => true,
        (Some(wide), Some(narrow)) => narrow.iter().all(|tier| wide.contains(tier)),
        (Some(_), None) => false,
    };
    let holds = |(kind, value): (&String, &String)| {
        let narrow = narrow.condition.get(kind).and_then(|narrow| Matcher::parse(kind, narrow).ok());
        narrow.is_some_and(|narrow| Matcher::parse(kind, value).is_ok_and(|wide| wide.covers(&narrow)))
    };
    method && tiers && wide.condition.iter().all(holds)
}
