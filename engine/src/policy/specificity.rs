//! The specificity of rules: orders the rules that match a request, the closest first.

use std::{cmp::Reverse, collections::BTreeSet};

use crate::policy::{
    document,
    matcher::{Matcher, MatcherSpecificity},
    pattern::Pattern,
};

/// The specificity of a rule. Of the rules that match a request, the one with the least is the closest. Two rules are equal only
/// if they match the same requests.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Specificity<'p> {
    pub(crate) pattern: Pattern,
    // A rule with a method comes before one without, then more conditions before fewer, then the closer condition of each kind.
    has_no_method: bool,
    conditions: Reverse<usize>,
    has_no_tiers: bool,
    method: Option<String>,
    condition: Vec<(&'p str, Option<MatcherSpecificity>, &'p str)>,
    tiers: Option<BTreeSet<&'p String>>,
}

impl<'p> Specificity<'p> {
    pub(crate) fn new(pattern: Pattern, rule: &'p document::Rule) -> Self {
        Self {
            pattern,
            has_no_method: rule.method.is_none(),
            conditions: Reverse(rule.condition.len()),
            has_no_tiers: rule.tiers.is_none(),
            method: rule.method.as_ref().map(|method| method.to_ascii_uppercase()),
            condition: rule
                .condition
                .iter()
                .map(|(kind, value)| {
                    let matcher = Matcher::parse(kind, value).ok();
                    (kind.as_str(), matcher.map(|matcher| matcher.specificity()), value.as_str())
                })
                .collect(),
            tiers: rule.tiers.as_ref().map(|tiers| tiers.iter().collect()),
        }
    }
}

impl document::Domain {
    /// Returns the rules ordered by path, and the closest first among those that match the same path.
    #[must_use]
    pub fn rules_by_specificity(&self) -> Vec<&document::Rule> {
        let mut rules: Vec<_> = self
            .rules
            .iter()
            .map(|rule| (Pattern::parse(&rule.endpoint).ok().map(|pattern| Specificity::new(pattern, rule)), rule))
            .collect();
        rules.sort_by(|(left, _), (right, _)| left.cmp(right));
        rules.into_iter().map(|(_, rule)| rule).collect()
    }
}
