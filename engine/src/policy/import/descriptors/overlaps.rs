//! Overlaps of descriptors with fewer keys and descriptors with more, which matter for requests over other APIs than Envoy's.
//!
//! A limit applies to descriptors with exactly its keys, in Envoy and here. A request over another API may have more identities.
//! Of rules that count the same kinds only the closest applies, so a limit of more keys replaces one of fewer, and an unlimited
//! descriptor becomes a rule of its own. If the kinds differ, the wider limit applies to such a request as well, which is reported.

use std::collections::{BTreeMap, BTreeSet};

use super::{DescriptorNode, NodeLimit};
use crate::policy::{
    document::Rule,
    explain,
    import::{Notes, regions::ValueSet},
    pattern::Pattern,
    specificity::Specificity,
};

/// The most pairs that are compared.
const PAIRS_MAX: usize = 4_000_000;

/// The kinds that a rule counts separately. Of rules that count the same kinds only one applies.
type Per<'n> = BTreeSet<&'n str>;

/// Returns the unlimited nodes that need a rule because a limit of fewer keys counts the same kinds.
pub(super) fn unlimited_nodes_with_rules(nodes: &[DescriptorNode]) -> BTreeSet<usize> {
    let mut limits: BTreeMap<Per<'_>, BTreeSet<&[String]>> = BTreeMap::new();
    for node in nodes.iter().filter(|node| node.limit.named().is_some()) {
        limits.entry(node.counted_kinds()).or_default().insert(&node.sorted);
    }
    let needs_a_rule = |node: &DescriptorNode| {
        matches!(node.limit, NodeLimit::Unlimited)
            && limits.get(&node.counted_kinds()).is_some_and(|wide| wide.iter().any(|few| is_fewer(few, &node.sorted)))
    };
    nodes.iter().enumerate().filter(|(_, node)| needs_a_rule(node)).map(|(place, _)| place).collect()
}

/// Returns whether `few` is a proper subset of `many`. Both are sorted.
fn is_fewer(few: &[String], many: &[String]) -> bool {
    few.len() < many.len() && few.iter().all(|kind| many.binary_search(kind).is_ok())
}

/// A rule, or an unlimited node without a rule, which decides about requests with some keys.
struct DecidingRule<'n> {
    /// The node of the rule; `None` for a rule that admits requests that the file does not name.
    node: Option<usize>,
    is_limit: bool,
    per: Per<'n>,
    /// The values, in the order of the sorted keys.
    values: Vec<ValueSet>,
    specificity: Option<Specificity<'n>>,
}

impl<'n> DecidingRule<'n> {
    fn of_rule(nodes: &[DescriptorNode], kinds: &[String], (place, rule): &'n (usize, Rule)) -> Self {
        let value = |kind: &String| match rule.condition.get(kind).map(|text| (text, text.strip_suffix('*'))) {
            None | Some((_, Some(""))) => ValueSet::Any,
            Some((_, Some(prefix))) => ValueSet::Prefix(prefix.to_owned()),
            Some((text, None)) => ValueSet::Exact(text.clone()),
        };
        Self {
            node: Some(*place).filter(|place| *place < nodes.len()),
            is_limit: nodes.get(*place).is_some_and(|node| node.limit.named().is_some()),
            per: explain::kinds(rule).into_iter().collect(),
            values: kinds.iter().map(value).collect(),
            specificity: Pattern::parse(&rule.endpoint).ok().map(|pattern| Specificity::new(pattern, rule)),
        }
    }

    fn of_node(place: usize, node: &'n DescriptorNode) -> Self {
        let value = |kind: &String| {
            let place = node.kinds.iter().position(|own| own == kind);
            place.map_or(ValueSet::Any, |place| node.values[place].clone())
        };
        let values = node.sorted.iter().map(value).collect();
        Self { node: Some(place), is_limit: false, per: node.counted_kinds(), values, specificity: None }
    }

    /// Returns whether this rule of fewer keys applies to a request of the rule of more keys, beside it or instead of it. `at` has
    /// the indices of this rule's keys in the keys of `more`.
    fn interferes_with(&self, more: &Self, at: &[usize]) -> bool {
        let is_closer = || more.specificity.is_some() && more.specificity < self.specificity;
        let is_other = if self.per == more.per { !is_closer() } else { self.is_limit };
        // If neither is a limit, the request passes in any case.
        is_other
            && (self.is_limit || more.is_limit)
            && self.values.iter().zip(at).all(|(own, at)| own.meets(&more.values[*at]))
    }
}

/// The rules of the nodes with these keys, each with the index of its node.
pub(super) type RulesOf<'n> = (&'n [String], Vec<(usize, Rule)>);

/// Reports the descriptors of fewer keys that decide about requests over other APIs with a descriptor of their own.
pub(super) fn report(nodes: &[DescriptorNode], made: &[RulesOf<'_>], opens: &BTreeSet<usize>, report: &mut Notes) {
    let mut parts: BTreeMap<&[String], Vec<DecidingRule<'_>>> = BTreeMap::new();
    for (keys, rules) in made {
        parts.entry(keys).or_default().extend(rules.iter().map(|rule| DecidingRule::of_rule(nodes, keys, rule)));
    }
    let wide: Vec<&[String]> = parts.keys().copied().collect();
    for (place, node) in nodes.iter().enumerate() {
        if matches!(node.limit, NodeLimit::Unlimited) && !opens.contains(&place) {
            parts.entry(&node.sorted).or_default().push(DecidingRule::of_node(place, node));
        }
    }
    // The keys that other descriptors have in addition, by limit.
    let mut beside: BTreeMap<usize, BTreeSet<&String>> = BTreeMap::new();
    let mut instead: BTreeMap<usize, BTreeSet<&String>> = BTreeMap::new();
    let mut pairs = 0;
    for few in wide {
        for (many, narrow) in &parts {
            pairs += 1;
            if !is_fewer(few, many) {
                continue;
            }
            let at: Vec<usize> = few.iter().filter_map(|key| many.binary_search(key).ok()).collect();
            let added = || many.iter().filter(|key| !few.contains(key));
            for wide in &parts[few] {
                let met = narrow.iter().find(|narrow| {
                    pairs += 1;
                    pairs > PAIRS_MAX || wide.interferes_with(narrow, &at)
                });
                let Some(met) = met else { continue };
                match (wide.node.filter(|_| wide.is_limit), met.node) {
                    (Some(limit), _) => beside.entry(limit).or_default().extend(added()),
                    (None, Some(limit)) => instead.entry(limit).or_default().extend(added()),
                    (None, None) => {}
                }
            }
            if pairs > PAIRS_MAX {
                let what = "too many descriptors to compare those of few keys with those of more";
                let instead = "a request that has those too may meet limits of fewer keys as well";
                let first = nodes.iter().find(|node| node.limit.named().is_some());
                if let Some(node) = first {
                    report.note(&node.at, "", what, format!("{instead}, unless Envoy asks"));
                }
                return;
            }
        }
    }
    let listed = |kinds: BTreeSet<&String>| kinds.into_iter().cloned().collect::<Vec<_>>().join("`, `");
    let mut report_both = |limit: usize, what: String, instead: &str| {
        report.note(&nodes[limit].at, "", what, format!("{instead}, unless Envoy asks"));
    };
    for (limit, added) in beside {
        let what = format!("a limit of descriptors without `{}`, which others have beside its keys", listed(added));
        report_both(limit, what, "a request that has those too meets this limit as well");
    }
    for (limit, added) in instead {
        let what = format!("a limit beside descriptors without `{}` that let requests pass", listed(added));
        report_both(limit, what, "a request that has those too passes where theirs is the closer rule");
    }
}
