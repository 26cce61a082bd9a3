//! Compiles the rules of a domain: resolves their kinds, tiers and conditions, and orders them by specificity.

use std::collections::{BTreeMap, HashSet, btree_map::Entry};

use super::{
    Compiler,
    checks::{check_id, check_unique, read_matcher},
};
use crate::{
    algorithm::NUMBER_MAX,
    policy::{
        compiled::RuleSet,
        document::{self, ClientRef, DescriptorPaths, Per},
        error::ProblemCollector,
        matcher::Matcher,
        pattern::{Pattern, PatternTree},
        rule_list::{CompiledRule, RuleList},
        specificity::Specificity,
    },
};

impl<'p, C: Iterator<Item = ClientRef<'p>> + Clone> Compiler<'p, '_, C> {
    pub(super) fn rule_sets(&mut self, report: &mut ProblemCollector<'_>) -> Vec<RuleSet> {
        let mut ids = HashSet::new();
        // By counted kinds, then by specificity: the order of the file does not matter.
        let mut sets: BTreeMap<u64, BTreeMap<_, (&str, CompiledRule)>> = BTreeMap::new();
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
                // A disabled rule is checked, but its limits are not part of the policy.
                self.limits.truncate(limits_before);
                continue;
            }
            let (Some(pattern), Some(kinds)) = (pattern, kinds) else { continue };
            for limit in &mut self.limits[limits_before..] {
                limit.kinds = Some(kinds);
            }
            let same = sets.entry(kinds).or_default();
            match same.entry(Specificity::new(pattern, source)) {
                Entry::Vacant(free) => drop(free.insert((&source.id, rule))),
                Entry::Occupied(taken) => report.field("endpoint").wrong(format!(
                    "rule `{}` has the same pattern, method, `per`, `tiers` and `where`",
                    taken.get().0
                )),
            }
        }
        // Fewer kinds first: the tightest combination is last.
        let mut sets: Vec<_> = sets.into_iter().collect();
        sets.sort_by_key(|(kinds, _)| kinds.count_ones());
        let compiled = sets.into_iter().map(|(kinds, rules)| {
            let mut by_pattern: BTreeMap<Pattern, Vec<CompiledRule>> = BTreeMap::new();
            for (Specificity { pattern, .. }, (_, rule)) in rules {
                by_pattern.entry(pattern).or_default().push(rule);
            }
            let lists = by_pattern.into_iter().map(|(pattern, rules)| (pattern, RuleList::new(rules)));
            RuleSet { kinds, patterns: PatternTree::new(lists) }
        });
        compiled.collect()
    }

    /// Reports an endpoint or a method in a domain where the path of a descriptor is an identity: no descriptor would match it.
    fn report_endpoint(report: &mut ProblemCollector<'_>, source: &document::Rule) {
        let endpoint = Some(&source.endpoint).filter(|endpoint| *endpoint != "*");
        for (field, kind, value) in [("endpoint", "path", endpoint), ("method", "method", source.method.as_ref())] {
            if let Some(value) = value {
                report.field(field).wrong(format!(
                    "with `descriptor_paths = \"identity\"` a rule has none; write `where = {{ {kind} = \"{value}\" }}`"
                ));
            }
        }
    }

    fn rule(&mut self, report: &mut ProblemCollector<'_>, source: &document::Rule, counted: u64) -> CompiledRule {
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
            let matcher = read_matcher(&mut report.field(name), name, value);
            condition.extend(kind.zip(matcher.map(Matcher::owned)));
        }
        let kinds = condition.iter().fold(counted, |kinds, (kind, _)| kinds | 1 << kind);
        let owner = format!("{}/rule:{}", self.name, source.id);
        let limits = self.limits_of(report, &owner, &source.limits);
        CompiledRule {
            kinds,
            method: source.method.as_deref().map(Into::into),
            tiers,
            condition,
            cost: source.cost,
            limits,
        }
    }

    fn counted_kinds(&mut self, report: &mut ProblemCollector<'_>, per: &Per) -> Option<u64> {
        if matches!(per, Per::Each(kinds) if kinds.is_empty()) {
            report.wrong("an empty list counts nobody; write \"everyone\" to count all together");
            return None;
        }
        let mut set = 0;
        for kind in per.kinds() {
            let bit = 1 << self.kind(report, kind)?;
            if set & bit != 0 {
                report.wrong(format!("`{kind}` stands here twice"));
            }
            set |= bit;
        }
        Some(set)
    }
}
