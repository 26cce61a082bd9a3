//! The rule list: finds the closest of the rules of one pattern whose conditions a request meets.

use std::{collections::BTreeMap, ops::Range};

use crate::policy::{matcher::Matcher, matcher_map::MatcherMap};

#[derive(Debug)]
pub(crate) struct CompiledRule {
    /// The kinds that it counts or has conditions on, as bits of their indices in the domain.
    pub(crate) kinds: u64,
    pub(crate) method: Option<Box<str>>,
    pub(crate) tiers: Option<Vec<u32>>,
    /// The conditions: the index of a kind, and the matcher of its value.
    pub(crate) condition: Vec<(u32, Matcher)>,
    pub(crate) cost: u64,
    /// A range of [`Snapshot::limits`](crate::Snapshot).
    pub(crate) limits: Range<u32>,
}

/// The length above which a list has an index: a policy may have ten thousand rules that differ in a condition only.
const UNINDEXED_MAX: usize = 8;

/// The rules of one pattern, the closest first.
#[derive(Debug, Default)]
pub(crate) struct RuleList {
    rules: Vec<CompiledRule>,
    /// The index of a long list.
    index: Option<Box<Index>>,
}

/// An index of rules by one condition of each. It holds indices into the list, in ascending order.
#[derive(Debug)]
struct Index {
    /// The rules by the kind and value of a condition.
    by_condition: Vec<(u32, MatcherMap<Vec<u32>>)>,
    /// The rules without conditions.
    rest: Vec<u32>,
}

impl RuleList {
    /// Makes a list of rules that are ordered, the closest first.
    pub(crate) fn new(rules: Vec<CompiledRule>) -> Self {
        let index = (rules.len() > UNINDEXED_MAX).then(|| Box::new(Index::new(&rules)));
        Self { rules, index }
    }

    /// Returns the rules, the closest first.
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, CompiledRule> {
        self.rules.iter()
    }

    /// Returns the first rule for which `holds` is true. `value` returns the value that the request has of a kind.
    #[inline]
    pub(crate) fn closest<'v>(
        &self,
        value: impl Fn(u32) -> Option<&'v str>,
        holds: impl Fn(&CompiledRule) -> bool,
    ) -> Option<&CompiledRule> {
        match &self.index {
            None => self.rules.iter().find(|rule| holds(rule)),
            Some(index) => index.closest(&self.rules, value, holds),
        }
    }
}

impl Index {
    fn new(rules: &[CompiledRule]) -> Self {
        let mut counts: BTreeMap<u32, MatcherMap<usize>> = BTreeMap::new();
        for (kind, matcher) in rules.iter().flat_map(|rule| &rule.condition) {
            *counts.entry(*kind).or_default().entry(matcher) += 1;
        }
        let (mut by_condition, mut rest) = (BTreeMap::<u32, MatcherMap<Vec<u32>>>::new(), Vec::new());
        for (place, rule) in (0..).zip(rules) {
            // The condition that the fewest rules have.
            let rarest =
                rule.condition.iter().min_by_key(|(kind, matcher)| counts[kind].get(&matcher.borrowed()).copied());
            match rarest {
                Some((kind, matcher)) => by_condition.entry(*kind).or_default().entry(matcher).push(place),
                None => rest.push(place),
            }
        }
        Self { by_condition: by_condition.into_iter().collect(), rest }
    }

    #[inline(never)]
    fn closest<'l, 'v>(
        &self,
        rules: &'l [CompiledRule],
        value: impl Fn(u32) -> Option<&'v str>,
        holds: impl Fn(&CompiledRule) -> bool,
    ) -> Option<&'l CompiledRule> {
        let mut closest = rules.len();
        let mut look_in = |places: &[u32]| {
            let mut closer = places.iter().map(|&place| place as usize).take_while(|place| *place < closest);
            if let Some(place) = closer.find(|place| holds(&rules[*place])) {
                closest = place;
            }
        };
        look_in(&self.rest);
        for (kind, places) in &self.by_condition {
            if let Some(value) = value(*kind) {
                places.matching(value).for_each(|places| look_in(places));
            }
        }
        rules.get(closest)
    }
}

#[cfg(all(test, not(engine_loom)))]
mod tests {
    use proptest::{collection::vec, option, prelude::*, sample::Index};

    use super::*;

    const VALUES: [&[&str]; 3] = [
        &["x", "xy", "xyz", "y", "x*", "xy*", "*"],
        &["192.0.2.1", "192.0.2.0/24", "192.0.*", "2001:db8::/32", "2001:db8::1"],
        &["a", "b", "a*"],
    ];
    const ASKED: [&[&str]; 3] = [
        &["x", "xy", "xyz", "xyzz", "y", "z"],
        &["192.0.2.1", "192.0.2.9", "192.0.9.1", "198.51.100.1", "2001:db8::1", "2001:db9::1", "no address"],
        &["a", "ab", "b", "c"],
    ];
    const NAMES: [&str; 3] = ["user", "ip", "plan"];

    fn rule(condition: Vec<(u32, Matcher)>, place: u32) -> CompiledRule {
        CompiledRule { kinds: 0, method: None, tiers: None, condition, cost: 1, limits: place..place }
    }

    proptest! {
        /// The index finds the same rule as a search through the list.
        #[test]
        fn the_closest_rule_is_found_by_the_index(
            rules in vec(vec(option::of(any::<Index>()), 3), UNINDEXED_MAX + 1..60),
            requests in vec(vec(option::of(any::<Index>()), 3), 40),
        ) {
            let rules = (0_u32..).zip(&rules).map(|(place, values)| {
                let condition = (0_u32..).zip(values).filter_map(|(kind, value)| {
                    let text = *value.as_ref()?.get(VALUES[kind as usize]);
                    let matcher = Matcher::parse(NAMES[kind as usize], text).expect("a condition").owned();
                    Some((kind, matcher))
                });
                rule(condition.collect(), place)
            });
            let list = RuleList::new(rules.collect());
            prop_assert!(list.index.is_some());
            for values in requests {
                let value = |kind: u32| values[kind as usize].as_ref().map(|value| *value.get(ASKED[kind as usize]));
                let holds = |rule: &CompiledRule| {
                    rule.condition.iter().all(|(kind, matcher)| value(*kind).is_some_and(|value| matcher.matches(value)))
                };
                let found = list.closest(value, holds).map(|rule| rule.limits.start);
                let wanted = list.iter().find(|rule| holds(rule)).map(|rule| rule.limits.start);
                prop_assert_eq!(found, wanted);
            }
        }
    }
}
